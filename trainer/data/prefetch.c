/* Two slots. The batch of step s lives in slot s % 2; the thread fills a slot that is empty, the
 * caller holds the one it got last and empties it by asking for the next. */
#include "data/prefetch.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "data/data.h"

enum { SLOTS = 2, POLL_MILLISECONDS = 50 };

struct slot {
    uint64_t step; /* whose batch this is; 0 = empty */
    int failed;
    struct bl_batch batch;
    struct bl_error error;
};

struct bl_prefetch {
    struct bl_batches from;
    uint64_t first, last;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a slot was filled or emptied, or stop was set */
    int stop;               /* under lock, like slot[].step */
    struct slot slot[SLOTS];
};

int bl_sequence_read(struct bl_plugin_instance *source, uint64_t index, uint64_t vocab,
                     int32_t *tokens, int32_t *targets, struct bl_error *err)
{
    struct bl_error own = BL_ERROR_INIT;
    if (source->ops.source.read(source->self, index, vocab, tokens, targets, &own) >= 0)
        return 0;
    own.text[sizeof own.text - 1] = '\0';
    return bl_error_set(err, own.code > 0 ? own.code : BL_EXIT_DATA, "%s",
                        own.text[0] != '\0' ? own.text : "the source failed without saying why");
}

static int stopping(struct bl_prefetch *p)
{
    pthread_mutex_lock(&p->lock);
    int stop = p->stop;
    pthread_mutex_unlock(&p->lock);
    return stop;
}

/* In this one thread: the pool is the step's. Sequence after sequence, so that the error is that of
 * the first bad one and a stop waits for one only. */
static int read_batch(struct bl_prefetch *p, uint64_t step, struct bl_batch *b,
                      struct bl_error *err)
{
    const struct bl_batches *f = &p->from;
    b->valid = 0;
    for (uint64_t i = 0; i < f->sequences && !stopping(p); i++) {
        uint64_t sample = f->origin + (step - 1) * f->sequences + i;
        uint64_t index = bl_sample_index(f->seed, f->available, sample);
        int32_t *targets = b->targets + i * f->context;
        if (bl_sequence_read(f->source, index, f->vocab, b->tokens + i * f->context, targets, err) <
            0)
            return bl_error_prefix(err, "batch of step %llu", (unsigned long long)step);
        for (uint64_t t = 0; t < f->context; t++)
            b->valid += targets[t] >= 0;
    }
    if (b->valid == 0 && !stopping(p))
        return bl_error_set(err, BL_EXIT_DATA,
                            "batch of step %llu: every target is masked; nothing to learn from",
                            (unsigned long long)step);
    return 0;
}

static void *work(void *argument)
{
    struct bl_prefetch *p = argument;
    int failed = 0;
    pthread_mutex_lock(&p->lock);
    for (uint64_t step = p->first; step <= p->last && !failed; step++) {
        struct slot *s = &p->slot[step % SLOTS];
        while (s->step != 0 && !p->stop)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->stop)
            break;
        pthread_mutex_unlock(&p->lock); /* nobody else looks into an empty slot */
        failed = s->failed = read_batch(p, step, &s->batch, &s->error) < 0;
        pthread_mutex_lock(&p->lock);
        s->step = step;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

static int start_thread(struct bl_prefetch *p, struct bl_error *err)
{
    pthread_condattr_t monotonic;
    sigset_t all, old;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    int code = pthread_create(&p->thread, NULL, work, p);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (code == 0)
        return 0;
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    return bl_error_set(err, BL_EXIT_FAILED,
                        "cannot start the thread that reads batches: %s; raise the limit on "
                        "processes or memory",
                        strerror(code));
}

static void free_slots(struct bl_prefetch *p)
{
    for (int i = 0; i < SLOTS; i++) {
        bl_free(p->slot[i].batch.tokens);
        bl_free(p->slot[i].batch.targets);
    }
    bl_free(p);
}

int bl_prefetch_make(const struct bl_batches *from, uint64_t first, uint64_t last,
                     struct bl_prefetch **out, struct bl_error *err)
{
    uint64_t rows = from->sequences * from->context;
    struct bl_prefetch *p = bl_alloc(1, sizeof *p);
    if (p == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    p->from = *from;
    p->first = first;
    p->last = last;
    for (int i = 0; i < SLOTS; i++) {
        p->slot[i].error = (struct bl_error)BL_ERROR_INIT;
        p->slot[i].batch.tokens = bl_alloc(rows, sizeof(int32_t));
        p->slot[i].batch.targets = bl_alloc(rows, sizeof(int32_t));
        if (p->slot[i].batch.tokens == NULL || p->slot[i].batch.targets == NULL) {
            free_slots(p);
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory for two batches of %llu tokens",
                                (unsigned long long)rows);
        }
    }
    if (start_thread(p, err) < 0) {
        free_slots(p);
        return -1;
    }
    *out = p;
    return 0;
}

/* Waits a moment for a change; the lock is held. */
static void wait_briefly(struct bl_prefetch *p)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += POLL_MILLISECONDS * 1000000L;
    if (until.tv_nsec >= 1000000000L) {
        until.tv_nsec -= 1000000000L;
        until.tv_sec++;
    }
    pthread_cond_timedwait(&p->changed, &p->lock, &until);
}

int bl_prefetch_next(struct bl_prefetch *p, uint64_t step, int (*stopped)(void),
                     struct bl_batch *out, struct bl_error *err)
{
    struct slot *s = &p->slot[step % SLOTS], *before = &p->slot[(step + 1) % SLOTS];
    pthread_mutex_lock(&p->lock);
    if (before->step != 0 && before->step < step) {
        before->step = 0;
        pthread_cond_broadcast(&p->changed);
    }
    int gone = 0;
    while (s->step != step && !gone) {
        wait_briefly(p);
        gone = s->step != step && stopped != NULL && stopped();
    }
    pthread_mutex_unlock(&p->lock);
    if (gone)
        return 1;
    if (s->failed)
        return bl_error_set(err, s->error.code, "%s", s->error.text);
    *out = s->batch;
    return 0;
}

void bl_prefetch_free(struct bl_prefetch *p)
{
    if (p == NULL)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    pthread_join(p->thread, NULL);
    pthread_cond_destroy(&p->changed);
    pthread_mutex_destroy(&p->lock);
    free_slots(p);
}

uint64_t bl_prefetch_bytes(uint64_t sequences, uint64_t context)
{
    return SLOTS * 2 * sequences * context * sizeof(int32_t);
}
