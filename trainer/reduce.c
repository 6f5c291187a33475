#include "reduce.h"

#include <inttypes.h>
#include <string.h>

#include "base/bf16.h"

enum { BLOCK = 16384 };

static void round_array(uint64_t n, float *x)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = bl_bf16_nearest(x[i]);
}

/* What is done to an array; both stages are lists of element-wise passes over one cached block. */
struct work {
    uint64_t count;
    const float *in;
    float *out;
    int first; /* out := ..., else out := out + ... */
    int round_wire, round_sum;
    float multiply; /* 1 = do not */
    float divide;   /* 1 = do not */
};

static uint64_t predivisor(uint64_t ranks)
{
    uint64_t f = 1;
    while (ranks % f == 0 && ranks / f > f)
        f *= 2;
    return f;
}

static void scale(uint64_t n, float *x, const struct work *w)
{
    if (w->multiply != 1.0f)
        for (uint64_t i = 0; i < n; i++)
            x[i] *= w->multiply;
    if (w->divide != 1.0f)
        for (uint64_t i = 0; i < n; i++)
            x[i] /= w->divide;
}

static void add_block(void *argument, uint64_t block)
{
    const struct work *w = argument;
    uint64_t begin = block * BLOCK;
    uint64_t n = w->count - begin < BLOCK ? w->count - begin : BLOCK;
    float x[BLOCK], *out = w->out + begin;
    memcpy(x, w->in + begin, n * sizeof(float));
    if (w->round_wire)
        round_array(n, x);
    if (w->multiply != 1.0f || w->divide != 1.0f) {
        scale(n, x, w);
        if (w->round_wire)
            round_array(n, x);
    }
    if (w->first)
        memcpy(out, x, n * sizeof(float));
    else
        for (uint64_t i = 0; i < n; i++)
            out[i] = out[i] + x[i];
    if (w->round_sum)
        round_array(n, out);
}

static void finish_block(void *argument, uint64_t block)
{
    const struct work *w = argument;
    uint64_t begin = block * BLOCK;
    uint64_t n = w->count - begin < BLOCK ? w->count - begin : BLOCK;
    float *out = w->out + begin;
    if (w->in != w->out)
        memcpy(out, w->in + begin, n * sizeof(float));
    if (w->divide != 1.0f) {
        scale(n, out, w);
        if (w->round_sum)
            round_array(n, out);
    }
}

static void run(const struct bl_reduce *r, struct work *w, void (*body)(void *, uint64_t))
{
    uint64_t blocks = (w->count + BLOCK - 1) / BLOCK;
    if (r->backend != NULL)
        r->backend->ops->parallel_for(r->backend, blocks, body, w);
    else
        for (uint64_t i = 0; i < blocks; i++)
            body(w, i);
}

int bl_reduce_check(const struct bl_reduce *r, struct bl_error *err)
{
    if (r->ranks == 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "a reduction over 0 ranks: cluster.emulate wants "
                            "1 or more");
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        const uint32_t *dial = r->precision->dial[g];
        for (int i = 0; i < 2; i++) {
            uint32_t dtype = dial[i == 0 ? BL_DIAL_WIRE : BL_DIAL_SUM];
            if (dtype != BL_FP32 && dtype != BL_BF16)
                return bl_error_set(err, BL_EXIT_USAGE,
                                    "precision.%s.%s: format %" PRIu32 " cannot be reduced, "
                                    "write \"fp32\" or \"bf16\"",
                                    bl_group_name(g), i == 0 ? "wire" : "sum", dtype);
        }
        if (dial[BL_DIAL_AVERAGE] > BL_AVERAGE_PREDIVIDE)
            return bl_error_set(err, BL_EXIT_USAGE, "precision.%s.average: unknown mode %" PRIu32,
                                bl_group_name(g), dial[BL_DIAL_AVERAGE]);
        if (r->ranks > 1 && dial[BL_DIAL_ALGORITHM] != BL_ALGORITHM_ALLTOALL)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "precision.%s.algorithm: ranks played by one process are added in "
                                "ascending order, write \"alltoall\"",
                                bl_group_name(g));
        if (r->ranks > 1 && dial[BL_DIAL_SUM_ROUNDING] != BL_ROUND_NEAREST)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "precision.%s.sum_rounding: only \"nearest\" is there",
                                bl_group_name(g));
    }
    return 0;
}

void bl_reduce_add_array(const struct bl_reduce *r, uint32_t group, uint64_t count, float *sum,
                         const float *gradient, uint64_t rank)
{
    const uint32_t *dial = r->precision->dial[group];
    float ranks = (float)r->ranks;
    struct work w = {.count = count,
                     .in = gradient,
                     .out = sum,
                     .first = rank == 0,
                     .round_wire = dial[BL_DIAL_WIRE] == BL_BF16,
                     .round_sum = dial[BL_DIAL_SUM] == BL_BF16,
                     .multiply = 1.0f,
                     .divide = 1.0f};
    switch (dial[BL_DIAL_AVERAGE]) {
    case BL_AVERAGE_DIVIDE_FIRST:
        w.divide = ranks;
        break;
    case BL_AVERAGE_PREMULTIPLY:
        w.multiply = w.round_wire ? bl_bf16_nearest(1.0f / ranks) : 1.0f / ranks;
        break;
    case BL_AVERAGE_PREDIVIDE:
        w.divide = (float)predivisor(r->ranks);
        break;
    default:
        break;
    }
    int changes = w.round_wire || w.round_sum || w.multiply != 1.0f || w.divide != 1.0f;
    if (sum == gradient && w.first && !changes)
        return;
    run(r, &w, add_block);
}

void bl_reduce_finish_array(const struct bl_reduce *r, uint32_t group, uint64_t count,
                            const float *sum, float *out)
{
    const uint32_t *dial = r->precision->dial[group];
    struct work w = {.count = count,
                     .in = sum,
                     .out = out,
                     .round_sum = dial[BL_DIAL_SUM] == BL_BF16,
                     .multiply = 1.0f,
                     .divide = 1.0f};
    if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_DIVIDE)
        w.divide = (float)r->ranks;
    else if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREDIVIDE)
        w.divide = (float)r->ranks / (float)predivisor(r->ranks); /* 1.5 for W = 3 */
    if (out == sum && w.divide == 1.0f)
        return;
    run(r, &w, finish_block);
}

/* Neighbours of the same group are one array, so that small parameters share a block. */
static uint64_t group_run(const struct bl_params *params, uint64_t i)
{
    uint64_t end = i + 1;
    while (end < params->count && params->items[end].group == params->items[i].group &&
           params->items[end].offset ==
               params->items[end - 1].offset + params->items[end - 1].count)
        end++;
    return end;
}

void bl_reduce_add(const struct bl_reduce *r, float *sum, const float *gradient, uint64_t rank)
{
    const struct bl_params *params = r->params;
    for (uint64_t i = 0, end; i < params->count; i = end) {
        end = group_run(params, i);
        const struct bl_param *first = &params->items[i], *last = &params->items[end - 1];
        bl_reduce_add_array(r, first->group, last->offset + last->count - first->offset,
                            sum + first->offset, gradient + first->offset, rank);
    }
}

void bl_reduce_finish(const struct bl_reduce *r, const float *sum, float *out)
{
    const struct bl_params *params = r->params;
    for (uint64_t i = 0, end; i < params->count; i = end) {
        end = group_run(params, i);
        const struct bl_param *first = &params->items[i], *last = &params->items[end - 1];
        bl_reduce_finish_array(r, first->group, last->offset + last->count - first->offset,
                               sum + first->offset, out + first->offset);
    }
}
