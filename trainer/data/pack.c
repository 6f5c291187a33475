#include "data/pack.h"

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "data/pack_internal.h"

/* A ring of chunks. Those in [head, taken) are being encoded or are done, those in [taken, tail)
 * wait. The calling thread reads and writes, and encodes when there is neither to do, so that one
 * thread needs no other. */
struct slot {
    struct bl_chunk chunk;
    int done;
};

struct packer {
    struct bl_reader reader;
    struct bl_encoder encoder;
    struct bl_writer *writer;
    struct slot *slots;
    size_t slot_count;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t work, done;
    uint64_t head, taken, tail;
    int stop;
    pthread_t *threads;
    unsigned thread_count;
};

/* Encodes the first chunk that waits; the lock is held, and given back meanwhile. */
static void encode_one(struct packer *p)
{
    struct slot *s = &p->slots[p->taken++ % p->slot_count];

    pthread_mutex_unlock(&p->lock);
    bl_encoder_run(&p->encoder, &s->chunk);
    pthread_mutex_lock(&p->lock);
    s->done = 1;
    pthread_cond_signal(&p->done);
}

static void *work(void *argument)
{
    struct packer *p = argument;

    pthread_mutex_lock(&p->lock);
    while (!p->stop) {
        if (p->taken < p->tail)
            encode_one(p);
        else
            pthread_cond_wait(&p->work, &p->lock);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int write_head(struct packer *p, struct bl_pack_result *sum, struct bl_error *err)
{
    struct slot *s = &p->slots[p->head % p->slot_count];
    const struct bl_chunk *c = &s->chunk;

    if (c->failed)
        return bl_error_set(err, c->err.code, "%s", c->err.text);
    if (bl_writer_add(p->writer, c->validation, c->packed, c->tokens, err) != 0)
        return -1;
    s->done = 0;
    sum->documents += c->documents;
    sum->text_bytes += c->text_bytes;
    sum->input_bytes += c->read;
    return 0;
}

/* Shown on a terminal only. */
static void show_progress(const struct packer *p, uint64_t bytes, double start, double *shown)
{
    double now = bl_clock(), seconds = now - start;
    char line[96];

    if (now - *shown < 0.25 || seconds < 1)
        return;
    *shown = now;
    snprintf(line, sizeof(line), "packing: %3.0f%%, %.1f MB/s",
             100 * (double)bytes / (double)p->reader.total, (double)bytes / seconds / 1e6);
    bl_log_progress(line);
}

/* An error of reading is told only when everything before it is written, and of several errors in
 * chunks the first in the input: the message does not depend on the threads. */
static int pack_all(struct packer *p, struct bl_pack_result *sum, struct bl_error *err)
{
    struct bl_error reading = BL_ERROR_INIT;
    double start = bl_clock(), shown = start;
    int more = 1, rc = 0;

    pthread_mutex_lock(&p->lock);
    while (rc == 0 && (more > 0 || p->head < p->tail)) {
        struct slot *oldest = &p->slots[p->head % p->slot_count];
        if (more > 0 && p->tail - p->head < p->slot_count) {
            pthread_mutex_unlock(&p->lock);
            more = bl_reader_next(&p->reader, &p->slots[p->tail % p->slot_count].chunk, &reading);
            pthread_mutex_lock(&p->lock);
            if (more > 0) {
                p->tail++;
                pthread_cond_signal(&p->work);
            }
        } else if (p->head < p->taken && oldest->done) {
            pthread_mutex_unlock(&p->lock);
            rc = write_head(p, sum, err);
            show_progress(p, sum->input_bytes, start, &shown);
            pthread_mutex_lock(&p->lock);
            p->head++;
        } else if (p->taken < p->tail) {
            encode_one(p);
        } else {
            pthread_cond_wait(&p->done, &p->lock);
        }
    }
    pthread_mutex_unlock(&p->lock);
    bl_log_progress("");
    if (rc == 0 && more < 0)
        rc = bl_error_set(err, reading.code, "%s", reading.text);
    return rc;
}

static unsigned available(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
    return n > 0 ? (unsigned)n : 1;
}

static int start_threads(struct packer *p, unsigned threads, struct bl_error *err)
{
    if (threads == 0)
        threads = available();
    if (threads > BL_PACK_THREADS_MOST)
        threads = BL_PACK_THREADS_MOST;
    p->slot_count = 4 * (size_t)threads;
    p->slots = calloc(p->slot_count, sizeof(*p->slots));
    p->threads = calloc(threads, sizeof(*p->threads));
    if (!p->slots || !p->threads)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for %u threads", threads);
    for (; p->thread_count + 1 < threads; p->thread_count++)
        if (pthread_create(&p->threads[p->thread_count], NULL, work, p) != 0)
            return bl_error_set(err, BL_EXIT_FAILED,
                                "only %u of %u threads can be started; use a smaller --threads",
                                p->thread_count + 1, threads);
    return 0;
}

static void stop_threads(struct packer *p)
{
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->thread_count; i++)
        pthread_join(p->threads[i], NULL);
    free(p->threads);
    for (size_t i = 0; p->slots && i < p->slot_count; i++)
        bl_chunk_free(&p->slots[i].chunk);
    free(p->slots);
}

static int check(const struct bl_pack *pack, struct bl_error *err)
{
    if (!(pack->validation >= 0.0 && pack->validation <= 0.5))
        return bl_error_set(err, BL_EXIT_USAGE, "validation share %g: not in 0 ... 0.5",
                            pack->validation);
    if (pack->count == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "no input file");
    if (pack->shard_tokens > INT32_MAX)
        return bl_error_set(err, BL_EXIT_USAGE, "%llu tokens a shard: its header counts at most %d",
                            (unsigned long long)pack->shard_tokens, INT32_MAX);
    return 0;
}

int bl_data_pack(const struct bl_pack *pack, struct bl_pack_result *out, struct bl_error *err)
{
    struct packer p = {.reader = {.fd = -1},
                       .lock = PTHREAD_MUTEX_INITIALIZER,
                       .work = PTHREAD_COND_INITIALIZER,
                       .done = PTHREAD_COND_INITIALIZER};
    struct bl_pack_result result = {{0, 0}, {0, 0}, 0, 0, 0};
    int rc = -1;

    if (check(pack, err) != 0 || bl_encoder_start(&p.encoder, pack, err) != 0)
        return -1;
    int join = p.encoder.end_of_document < 0 && pack->documents != BL_DOCUMENTS_JSON;
    if (bl_reader_start(&p.reader, pack, join, err) != 0)
        return -1;
    if (pack->shard_tokens == 0 && p.reader.total > INT32_MAX) {
        bl_error_set(err, BL_EXIT_DATA,
                     "%llu bytes of input can be more than the %d tokens that one file may have; "
                     "add --shard-tokens 100000000, for one",
                     (unsigned long long)p.reader.total, INT32_MAX);
        goto done;
    }
    if (bl_writer_start(&p.writer, pack, &p.reader, &p.encoder, err) == 0 &&
        start_threads(&p, pack->threads, err) == 0)
        rc = pack_all(&p, &result, err);
    stop_threads(&p);
    if (rc == 0)
        rc = bl_writer_publish(p.writer, &result.train, &result.validation, err);
    if (rc == 0)
        *out = result;
done:
    bl_writer_free(p.writer);
    bl_reader_end(&p.reader);
    return rc;
}
