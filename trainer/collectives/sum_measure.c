/* How far a sum is from the fp64 mean of what went into it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collectives/sum_internal.h"

uint32_t bl_sum_group(const struct bl_sum *s, const struct bl_sum_item *item, uint64_t element,
                      uint64_t *end)
{
    *end = item->buffer.end;
    size_t low = 0, high = s->range_count;
    while (low < high) { /* the first range that ends after the element */
        size_t middle = (low + high) / 2;
        if (s->ranges[middle].end <= element)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == s->range_count)
        return item->buffer.group;
    if (element < s->ranges[low].begin) {
        *end = bl_order_less(*end, s->ranges[low].begin);
        return item->buffer.group;
    }
    *end = bl_order_less(*end, s->ranges[low].end);
    return s->ranges[low].group;
}

int bl_sum_measure_begin(struct bl_sum *s, struct bl_error *err)
{
    if (s->exact == NULL)
        s->exact = bl_alloc(s->setup.elements, sizeof *s->exact);
    return s->exact != NULL
               ? 0
               : bl_error_set(err, BL_EXIT_FAILED,
                              "no memory for the exact sum of %llu gradients: leave the monitor of "
                              "reductions out",
                              (unsigned long long)s->setup.elements);
}

struct measure {
    const struct bl_sum *s;
    const float *array;
    double (*sums)[BL_GROUP_COUNT][3]; /* (blocks) ||g||^2, <out - g, g>, ||out - g||^2 */
    int first;
};

static void add_block(void *argument, uint64_t index)
{
    const struct measure *m = argument;
    const struct bl_sum_block *block = &m->s->blocks[index];
    if (block->array != BL_SUM_ARRAY)
        return;
    for (uint64_t i = block->begin; i < block->end; i++)
        m->s->exact[i] = (m->first ? 0 : m->s->exact[i]) + (double)m->array[i];
}

void bl_sum_measure_add(struct bl_sum *s, const float *array, int first)
{
    struct measure m = {.s = s, .array = array, .first = first};
    bl_sum_parallel(s, s->block_count, add_block, &m);
}

static void compare_block(void *argument, uint64_t index)
{
    const struct measure *m = argument;
    const struct bl_sum_block *block = &m->s->blocks[index];
    if (block->array != BL_SUM_ARRAY)
        return;
    for (uint64_t at = block->begin, end; at < block->end; at = end) {
        uint32_t group = bl_sum_group(m->s, &m->s->items[block->item], at, &end);
        double *sum = m->sums[index][group];
        end = bl_order_less(end, block->end);
        for (uint64_t i = at; i < end; i++) {
            double g = m->s->exact[i] / m->s->setup.ranks, d = (double)m->array[i] - g;
            sum[0] += g * g;
            sum[1] += d * g;
            sum[2] += d * d;
        }
    }
}

void bl_sum_measure_end(struct bl_sum *s, const float *out, const uint64_t (*counts)[2])
{
    double total[BL_GROUP_COUNT + 1][3] = {{0}};
    struct measure m = {.s = s, .array = out};
    m.sums = calloc(s->block_count + 1, sizeof *m.sums);
    if (m.sums != NULL)
        bl_sum_parallel(s, s->block_count, compare_block, &m);
    for (uint64_t b = 0; m.sums != NULL && b < s->block_count; b++)
        for (int g = 0; g < BL_GROUP_COUNT; g++)
            for (int k = 0; k < 3; k++) {
                total[g][k] += m.sums[b][g][k];
                total[BL_GROUP_COUNT][k] += m.sums[b][g][k];
            }
    free(m.sums);
    for (int g = 0; g <= BL_GROUP_COUNT; g++) {
        double squares = total[g][0];
        int some = squares > 0;
        s->statistics[g] = (struct bl_sum_statistics){
            .error = some ? sqrt(total[g][2] / squares) : (double)NAN,
            .bias = some ? total[g][1] / squares : (double)NAN,
            .lost = some && counts != NULL && counts[g][0] > 0
                        ? (double)counts[g][1] / (double)counts[g][0]
                        : (double)NAN,
            .squares = squares,
        };
    }
}

void bl_sum_measured(const struct bl_sum *s, uint32_t group, struct bl_sum_statistics *out)
{
    *out = s->statistics[group <= BL_GROUP_COUNT ? group : BL_GROUP_COUNT];
}
