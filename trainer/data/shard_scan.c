#include "data/shard_scan.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"

/* A task reads BLOCK bytes of one file in pieces of PIECE, which lie on its stack. */
enum { BLOCK = 1 << 24, PIECE = 1 << 16 };

typedef unsigned long long ull;

void bl_shard_report(const char *path, enum bl_shard_format wanted, struct bl_shard_report *out)
{
    struct stat st;
    int fd;

    memset(out, 0, sizeof(*out));
    out->path = path;
    fd = bl_shard_open(path, &st, out->why);
    if (fd < 0)
        return;
    out->size = (uint64_t)st.st_size;
    if (bl_shard_inspect(fd, out->size, wanted, &out->layout, out->why) == 0)
        out->why[0] = '\0';
    close(fd);
}

struct range {
    uint32_t smallest, largest;
    uint64_t outside, first_at, first_outside;
};

struct scan {
    struct bl_shard_report *reports;
    uint64_t *ends; /* (count,) blocks of the files up to and including this one */
    size_t count;
    pthread_mutex_t lock; /* of what tasks write into a report */
};

static uint32_t id_at(const unsigned char *bytes, unsigned width, uint64_t i)
{
    return width == 2 ? bl_little16(bytes + 2 * i) : bl_little32(bytes + 4 * i);
}

/* n ids whose first stands at byte `at` of the file. */
static void look(struct range *r, const unsigned char *bytes, unsigned width, uint64_t n,
                 uint64_t limit, uint64_t at)
{
    uint32_t smallest = UINT32_MAX, largest = 0;

    if (width == 2) { /* 16-bit arithmetic makes this loop twice as wide */
        uint16_t low = UINT16_MAX, high = 0;
        for (uint64_t i = 0; i < n; i++) {
            uint16_t id = (uint16_t)bl_little16(bytes + 2 * i);
            low = id < low ? id : low;
            high = id > high ? id : high;
        }
        smallest = low;
        largest = high;
    } else {
        for (uint64_t i = 0; i < n; i++) {
            uint32_t id = bl_little32(bytes + 4 * i);
            smallest = id < smallest ? id : smallest;
            largest = id > largest ? id : largest;
        }
    }
    r->smallest = smallest < r->smallest ? smallest : r->smallest;
    r->largest = largest > r->largest ? largest : r->largest;
    if (largest < limit)
        return;
    for (uint64_t i = 0; i < n; i++) {
        uint32_t id = id_at(bytes, width, i);
        if (id >= limit && r->outside++ == 0) {
            r->first_at = at + width * i;
            r->first_outside = id;
        }
    }
}

/* One block: 0, or -1 with the reason. */
static int read_block(const struct bl_shard_report *f, uint64_t block, struct range *r, char *why)
{
    const struct bl_shard_layout *l = &f->layout;
    uint64_t at = l->start + block * BLOCK, end = l->start + l->items * l->width;
    unsigned char bytes[PIECE];
    struct stat st;
    int fd = bl_shard_open(f->path, &st, why), answer = -1;

    if (fd < 0)
        return -1;
    if (end > at + BLOCK)
        end = at + BLOCK;
    if ((uint64_t)st.st_size != f->size) {
        snprintf(why, BL_SHARD_WHY, "changed while it was read");
        goto done;
    }
    while (at < end) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        if (bl_shard_pread(fd, bytes, n, at) != 0) {
            snprintf(why, BL_SHARD_WHY, "reading at byte %llu: %s", (ull)at,
                     errno ? strerror(errno) : "the file ends before");
            goto done;
        }
        look(r, bytes, l->width, n / l->width, f->limit, at);
        at += n;
    }
    answer = 0;
done:
    close(fd);
    return answer;
}

/* Results are combined by minimum, maximum and sum: the order of tasks does not matter. */
static void merge(struct bl_shard_report *f, const struct range *r)
{
    f->smallest = r->smallest < f->smallest ? r->smallest : f->smallest;
    f->largest = r->largest > f->largest ? r->largest : f->largest;
    if (r->outside > 0 && (f->outside == 0 || r->first_at < f->first_at)) {
        f->first_at = r->first_at;
        f->first_outside = r->first_outside;
    }
    f->outside += r->outside;
}

static void scan_block(void *argument, uint64_t i)
{
    struct scan *s = argument;
    struct range r = {UINT32_MAX, 0, 0, 0, 0};
    struct bl_shard_report *f;
    char why[BL_SHARD_WHY];
    size_t low = 0, high = s->count;
    int failed;

    while (low < high) { /* the first file whose blocks end after i */
        size_t middle = low + (high - low) / 2;
        if (s->ends[middle] > i)
            high = middle;
        else
            low = middle + 1;
    }
    f = &s->reports[low];
    failed = read_block(f, i - (low > 0 ? s->ends[low - 1] : 0), &r, why);
    pthread_mutex_lock(&s->lock);
    if (failed) {
        memcpy(f->why, why, sizeof(why));
        f->scanned = 0;
    } else {
        merge(f, &r);
    }
    pthread_mutex_unlock(&s->lock);
}

int bl_shard_scan(struct bl_shard_report *reports, size_t count, uint64_t vocab,
                  struct bl_error *err)
{
    struct scan s = {.reports = reports, .count = count, .lock = PTHREAD_MUTEX_INITIALIZER};
    struct bl_pool *pool;
    uint64_t blocks = 0;

    if (bl_pool_make(0, &pool, err) != 0)
        return -1;
    s.ends = calloc(count ? count : 1, sizeof(*s.ends));
    if (!s.ends) {
        bl_pool_free(pool);
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the list of files");
    }
    for (size_t i = 0; i < count; i++) {
        struct bl_shard_report *f = &reports[i];
        uint64_t most = (uint64_t)INT32_MAX + 1, told = vocab ? vocab : f->layout.vocab;
        f->scanned = f->why[0] == '\0' && f->layout.items > 0;
        f->limit = told && told < most ? told : most;
        f->smallest = UINT64_MAX;
        if (f->scanned)
            blocks += (f->layout.items * f->layout.width + BLOCK - 1) / BLOCK;
        s.ends[i] = blocks;
    }
    bl_pool_run(pool, blocks, scan_block, &s);
    for (size_t i = 0; i < count; i++) {
        struct bl_shard_report *f = &reports[i];
        if (f->scanned && f->outside > 0)
            snprintf(f->why, sizeof(f->why),
                     "byte %llu: token id %llu, the vocabulary has %llu (%llu such id%s)",
                     (ull)f->first_at, (ull)f->first_outside, (ull)f->limit, (ull)f->outside,
                     f->outside > 1 ? "s" : "");
    }
    free(s.ends);
    bl_pool_free(pool);
    return 0;
}
