/* What the files of a sum share and nobody else sees. */
#ifndef BL_COLLECTIVES_SUM_INTERNAL_H
#define BL_COLLECTIVES_SUM_INTERNAL_H

#include "collectives/order_internal.h"
#include "collectives/sum.h"
#include "collectives/sum_math.h"

enum {
    BL_SUM_BLOCK = 16384, /* elements that one thread works on */
    BL_SUM_LINE = 4096    /* of them at a time */
};

/* The two arrays that are summed. */
enum { BL_SUM_ARRAY, BL_SUM_PART, BL_SUM_ARRAYS };

/* The elements of an array that a buffer has: of the part, where they meet. Element numbers are
 * those of the (first) array. */
struct bl_sum_span {
    uint64_t begin, end;
    uint64_t level; /* of partial sums above the first: where this span's begin, in floats */
    uint64_t store; /* where its packed contribution begins in a slot of the store, in bytes */
};

struct bl_sum_programs;
struct bl_route;

struct bl_sum_item { /* a buffer */
    struct bl_sum_buffer buffer;
    struct bl_sum_rule rule;
    struct bl_order *order;
    struct bl_sum_programs *programs; /* one process */
    const struct bl_route *routes;    /* several: one a program */
    struct bl_sum_span span[BL_SUM_ARRAYS];
};

/* A part of a span that one thread works on. */
struct bl_sum_block {
    uint32_t item, array;
    uint64_t begin, end;
};

struct bl_sum_stream;
struct bl_sum_exchange;

struct bl_sum {
    struct bl_sum_setup setup;
    struct bl_sum_item *items;
    size_t count;
    struct bl_sum_range *ranges;
    size_t range_count;
    uint64_t *shard;

    struct bl_sum_block *blocks;
    uint64_t block_count;

    uint64_t level_floats[BL_SUM_ARRAYS];
    float *levels[BL_SUM_ARRAYS]; /* partial sums above the first, which is in `out` */

    /* Contributions that are kept: `slots` of slot_bytes. */
    uint64_t slots, slot_bytes;
    char *store;

    struct bl_sum_stream *stream;     /* one process */
    struct bl_sum_exchange *exchange; /* several */

    double *exact; /* (elements) of a measured run */
    struct bl_sum_statistics statistics[BL_GROUP_COUNT + 1];
};

/* Element `element` of partial sum `level` of an item's array. */
static inline float *bl_sum_level(const struct bl_sum *s, const struct bl_sum_run *run,
                                  const struct bl_sum_item *item, uint32_t array, uint32_t level,
                                  uint64_t element)
{
    const struct bl_sum_span *span = &item->span[array];
    if (level == 0)
        return array == BL_SUM_ARRAY ? run->out + element
                                     : run->part_out + (element - s->setup.part_begin);
    return s->levels[array] + span->level + (level - 1) * (span->end - span->begin) +
           (element - span->begin);
}

/* The same element of rank's raw gradient. */
static inline const float *bl_sum_raw(const struct bl_sum *s, const struct bl_sum_contribution *c,
                                      uint32_t array, uint64_t element)
{
    return array == BL_SUM_ARRAY ? c->array + element : c->part + (element - s->setup.part_begin);
}

/* The same element in a slot of the store. */
static inline char *bl_sum_stored(const struct bl_sum *s, const struct bl_sum_item *item,
                                  uint32_t array, uint64_t slot, uint64_t element)
{
    const struct bl_sum_span *span = &item->span[array];
    return s->store + slot * s->slot_bytes + span->store +
           (element - span->begin) * bl_sum_width(item->buffer.format.wire);
}

static inline struct bl_sum_random bl_sum_random_at(const struct bl_sum *s,
                                                    const struct bl_sum_run *run, uint64_t element)
{
    return (struct bl_sum_random){.seed = s->setup.seed, .step = run->step, .element = element};
}

void bl_sum_parallel(const struct bl_sum *s, uint64_t n, void (*body)(void *, uint64_t),
                     void *argument);
int bl_sum_contribute(const struct bl_sum *s, const struct bl_sum_run *run, uint32_t rank,
                      int again, struct bl_sum_contribution *out, struct bl_error *err);

/* Of a measured run: raw gradient of a rank into the fp64 sum (0: the first); what came of it. */
int bl_sum_measure_begin(struct bl_sum *s, struct bl_error *err);
void bl_sum_measure_add(struct bl_sum *s, const float *array, int first);
/* counts: (groups + 1) pairs of addends and lost ones; NULL: unknown */
void bl_sum_measure_end(struct bl_sum *s, const float *out, const uint64_t (*counts)[2]);
uint32_t bl_sum_group(const struct bl_sum *s, const struct bl_sum_item *item, uint64_t element,
                      uint64_t *end);

/* sum_stream.c: the plan in make, arrays in allocate. */
int bl_sum_stream_make(struct bl_sum *s, struct bl_error *err);
void bl_sum_stream_free(struct bl_sum_stream *t);
int bl_sum_stream_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err);
double bl_sum_stream_visits(const struct bl_sum *s);
uint64_t bl_sum_stream_bytes(const struct bl_sum *s);

/* sum_exchange.c */
int bl_sum_exchange_make(struct bl_sum *s, struct bl_error *err);
void bl_sum_exchange_free(struct bl_sum_exchange *x);
int bl_sum_exchange_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err);
int bl_sum_exchange_gather(struct bl_sum *s, float *array, struct bl_error *err);
uint64_t bl_sum_exchange_wire_bytes(const struct bl_sum *s);
uint64_t bl_sum_exchange_bytes(const struct bl_sum *s);

#endif
