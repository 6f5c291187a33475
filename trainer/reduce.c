#include "reduce.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "collectives/sum_math.h"

/* ---- dials ----------------------------------------------------------------------------------- */

static struct bl_sum_format format_of(const struct bl_precision *dials, uint32_t group)
{
    const uint32_t *dial = dials->dial[group];
    return (struct bl_sum_format){
        .wire = dial[BL_DIAL_WIRE],
        .sum = dial[BL_DIAL_SUM],
        .average = dial[BL_DIAL_AVERAGE],
        .algorithm = dial[BL_DIAL_ALGORITHM],
        .collective = dial[BL_DIAL_COLLECTIVE],
        .sum_rounding = dial[BL_DIAL_SUM_ROUNDING],
    };
}

static int check_dtype(uint32_t group, uint32_t dial, uint32_t dtype, struct bl_error *err)
{
    if (dtype == BL_FP32 || dtype == BL_BF16 || dtype == BL_FP16)
        return 0;
    return bl_error_set(err, BL_EXIT_USAGE,
                        "precision.%s.%s: format %" PRIu32 " cannot be summed over ranks, write "
                        "\"fp32\", \"bf16\" or \"fp16\"",
                        bl_group_name(group), bl_dial_name(dial), dtype);
}

static int check_word(uint32_t group, uint32_t dial, uint32_t word, uint32_t last,
                      struct bl_error *err)
{
    if (word <= last)
        return 0;
    return bl_error_set(err, BL_EXIT_USAGE, "precision.%s.%s: unknown mode %" PRIu32,
                        bl_group_name(group), bl_dial_name(dial), word);
}

/* What the sum refuses too, but here the dial has a name. */
static int check_dials(const struct bl_precision *dials, struct bl_error *err)
{
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        struct bl_sum_format f = format_of(dials, g);
        if (check_dtype(g, BL_DIAL_WIRE, f.wire, err) < 0 ||
            check_dtype(g, BL_DIAL_SUM, f.sum, err) < 0 ||
            check_word(g, BL_DIAL_AVERAGE, f.average, BL_AVERAGE_PREDIVIDE, err) < 0 ||
            check_word(g, BL_DIAL_ALGORITHM, f.algorithm, BL_ALGORITHM_HYBRID, err) < 0 ||
            check_word(g, BL_DIAL_COLLECTIVE, f.collective, BL_COLLECTIVE_REDUCE_SCATTER, err) <
                0 ||
            check_word(g, BL_DIAL_SUM_ROUNDING, f.sum_rounding, BL_ROUND_STOCHASTIC, err) < 0)
            return -1;
    }
    return 0;
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* End of the buffer that begins with parameter `first`. */
static uint64_t buffer_end(const struct bl_reduce_setup *u, uint64_t first)
{
    const struct bl_params *params = u->params;
    struct bl_sum_format mine = format_of(u->dials, params->items[first].group);
    uint64_t width = bl_sum_width(mine.wire), end = first + 1;
    for (; end < params->count; end++) {
        const struct bl_param *next = &params->items[end];
        struct bl_sum_format its = format_of(u->dials, next->group);
        uint64_t length = next->offset + next->count - params->items[first].offset;
        if (memcmp(&its, &mine, sizeof mine) != 0 || length * width > (uint64_t)u->cluster->bucket)
            break;
    }
    return end;
}

struct layout {
    struct bl_sum_buffer *buffers;
    struct bl_sum_range *ranges;
    size_t count;
};

static void make_layout(const struct bl_reduce_setup *u, struct layout *out)
{
    const struct bl_param *items = u->params->items;
    out->count = 0;
    for (uint64_t i = 0; i < u->params->count; i++)
        out->ranges[i] = (struct bl_sum_range){items[i].offset, items[i].offset + items[i].count,
                                               items[i].group};
    for (uint64_t i = 0, end; i < u->params->count; i = end) {
        end = buffer_end(u, i);
        out->buffers[out->count++] = (struct bl_sum_buffer){
            .begin = items[i].offset,
            .end = items[end - 1].offset + items[end - 1].count,
            .format = format_of(u->dials, items[i].group),
            .group = items[i].group,
        };
    }
}

/* What is asked of a sum; `layout` is malloc'd. */
static int prepare(const struct bl_reduce_setup *u, struct layout *layout, struct bl_sum_setup *out,
                   struct bl_error *err)
{
    *layout = (struct layout){0};
    if (check_dials(u->dials, err) < 0)
        return -1;
    layout->buffers = calloc(u->params->count + 1, sizeof *layout->buffers);
    layout->ranges = calloc(u->params->count + 1, sizeof *layout->ranges);
    if (layout->buffers == NULL || layout->ranges == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "reduction: out of memory");
    make_layout(u, layout);
    *out = (struct bl_sum_setup){
        .ranks = u->ranks,
        .cluster = u->cluster,
        .buffers = layout->buffers,
        .buffer_count = layout->count,
        .ranges = layout->ranges,
        .range_count = u->params->count,
        .elements = u->params->floats,
        .world = u->world,
        .keep = (uint64_t)u->cluster->keep,
        .seed = u->seed,
        .shard = u->shard,
    };
    if (u->head >= 0) {
        out->part_begin = u->params->items[u->head].offset;
        out->part_count = u->params->items[u->head].count;
    }
    if (u->backend != NULL) {
        out->parallel_for = bl_backend_parallel_for;
        out->parallel_context = u->backend;
    }
    return 0;
}

static void free_layout(struct layout *layout)
{
    free(layout->buffers);
    free(layout->ranges);
}

int bl_reduce_make(const struct bl_reduce_setup *setup, struct bl_sum **out, struct bl_error *err)
{
    struct layout layout;
    struct bl_sum_setup sum;
    int rc = prepare(setup, &layout, &sum, err);
    if (rc == 0)
        rc = bl_sum_make(&sum, out, err);
    free_layout(&layout);
    return rc;
}

int bl_reduce_describe(const struct bl_reduce_setup *setup, uint64_t *bytes, struct bl_text *text,
                       struct bl_error *err)
{
    struct layout layout;
    struct bl_sum_setup sum;
    int rc = prepare(setup, &layout, &sum, err);
    if (rc == 0)
        rc = bl_sum_describe(&sum, bytes, text, err);
    free_layout(&layout);
    return rc;
}
