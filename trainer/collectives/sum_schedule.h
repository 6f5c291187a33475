/* What several processes do for a sum: batches of elements, and rounds of batches. */
#ifndef BL_COLLECTIVES_SUM_SCHEDULE_H
#define BL_COLLECTIVES_SUM_SCHEDULE_H

#include "collectives/sum_internal.h"
#include "collectives/sum_route.h"

/* Neighbouring pieces whose steps are spread over the processes in the same way, or a part of a
 * long piece: what a message is about. */
struct bl_batch {
    uint32_t array;
    uint64_t begin, end; /* elements */
    uint32_t program;    /* of the first piece */
    uint32_t owner;      /* process */
    uint64_t result;     /* where its packed sum is among those of a round, the owners' in turn */
};

/* Batches of an item; round k of `rounds` has k, k + rounds, ... */
struct bl_schedule {
    struct bl_batch *batches;
    uint32_t count, capacity, rounds;
};

/* A segment of a batch that this process does. */
struct bl_task {
    uint32_t stage, batch, segment;
};

struct bl_route_set { /* of an algorithm and collective */
    uint32_t algorithm, collective, count;
    struct bl_route *routes;
};

struct bl_sum_exchange {
    struct bl_world *world;
    uint32_t process, processes, ranks; /* ranks: of each process */
    struct bl_route_set *sets;
    size_t set_count;
    struct bl_schedule *schedules; /* one an item */
    size_t schedule_count;

    /* Of the largest round. */
    uint64_t task_count, outbox_bytes, result_bytes, batch_bytes;
    struct bl_task *tasks;
    char *outbox;    /* partial sums that leave */
    char *inbox;     /* messages that arrive: BL_SUM_AHEAD batches */
    char *result;    /* packed sums */
    uint64_t *parts; /* (processes + 1) whose they are, in bytes */

    struct bl_message **messages; /* of a round that are waited for at its end */
    uint64_t message_count, message_capacity;
    uint64_t wire_bytes;
};

enum { BL_SUM_AHEAD = 8 /* messages of a process that are under way to it */ };

static inline const struct bl_route *bl_batch_route(const struct bl_sum_item *item,
                                                    const struct bl_batch *b)
{
    return &item->routes[b->program];
}

static inline uint64_t bl_batch_bytes(const struct bl_sum_item *item, const struct bl_batch *b)
{
    return (b->end - b->begin) * bl_sum_width(item->rule.wire);
}

/* The format in which a partial sum travels. */
static inline uint32_t bl_sum_partial(const struct bl_sum_item *item, uint32_t rounding)
{
    return rounding == BL_ORDER_WIRE  ? item->rule.wire
           : rounding == BL_ORDER_SUM ? item->rule.sum
                                      : (uint32_t)BL_FP32;
}

/* Fills x->tasks, in their order, and x->parts; answers the number of tasks. */
uint64_t bl_schedule_tasks(struct bl_sum *s, size_t item, uint32_t round);

#endif
