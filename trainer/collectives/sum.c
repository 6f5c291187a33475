#include "collectives/sum.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "collectives/sum_internal.h"

/* ---- setup ----------------------------------------------------------------------------------- */

static int is_format(uint32_t dtype)
{
    return dtype == BL_FP32 || dtype == BL_BF16 || dtype == BL_FP16;
}

static int check_format(const struct bl_sum_format *f, struct bl_error *err)
{
    if (!is_format(f->wire) || !is_format(f->sum))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s format %" PRIu32 " cannot be summed over ranks; write \"fp32\", "
                            "\"bf16\" or \"fp16\"",
                            is_format(f->wire) ? "sum" : "wire",
                            is_format(f->wire) ? f->sum : f->wire);
    if (f->average > BL_AVERAGE_PREDIVIDE)
        return bl_error_set(err, BL_EXIT_USAGE, "average %" PRIu32 " is none", f->average);
    if (f->sum_rounding > BL_ROUND_STOCHASTIC)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "sum_rounding %" PRIu32 " is none; write \"nearest\" or \"stochastic\"",
                            f->sum_rounding);
    if (f->algorithm == BL_ALGORITHM_NVLS && f->average == BL_AVERAGE_PREMULTIPLY)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "algorithm \"nvls\" has no average \"premultiply\" in NCCL; write "
                            "\"divide\" or \"divide_first\"");
    return 0;
}

static int check(const struct bl_sum_setup *u, struct bl_error *err)
{
    uint64_t end = 0;
    uint32_t processes = u->world != NULL ? bl_world_processes(u->world) : 1;
    if (u->ranks == 0 || u->ranks % processes != 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%" PRIu32 " ranks cannot be spread over %" PRIu32 " processes",
                            u->ranks, processes);
    for (size_t i = 0; i < u->buffer_count; i++) {
        const struct bl_sum_buffer *b = &u->buffers[i];
        if (b->begin < end || b->end <= b->begin || b->end > u->elements ||
            b->group >= BL_GROUP_COUNT)
            return bl_error_set(err, BL_EXIT_FAILED,
                                "buffer %zu of a sum: elements %" PRIu64 " ... %" PRIu64
                                " of %" PRIu64 ", group %" PRIu32,
                                i, b->begin, b->end, u->elements, b->group);
        if (check_format(&b->format, err) < 0)
            return -1;
        end = b->end;
    }
    return 0;
}

static struct bl_sum_span clip(const struct bl_sum_buffer *b, uint64_t begin, uint64_t end)
{
    struct bl_sum_span span = {.begin = b->begin > begin ? b->begin : begin,
                               .end = b->end < end ? b->end : end};
    if (span.end <= span.begin)
        span.end = span.begin = b->begin;
    return span;
}

static void make_spans(struct bl_sum *s, struct bl_sum_item *item)
{
    const struct bl_sum_setup *u = &s->setup;
    size_t width = bl_sum_width(item->buffer.format.wire);
    item->span[BL_SUM_ARRAY] = clip(&item->buffer, 0, u->elements);
    item->span[BL_SUM_PART] = clip(&item->buffer, u->part_begin, u->part_begin + u->part_count);
    for (int a = 0; a < BL_SUM_ARRAYS; a++) {
        struct bl_sum_span *span = &item->span[a];
        uint64_t n = span->end - span->begin;
        span->level = s->level_floats[a];
        span->store = s->slot_bytes;
        s->level_floats[a] += n * (bl_order_depth(item->order) - 1);
        s->slot_bytes += (n * width + 63) / 64 * 64;
        s->block_count += bl_order_divide_up(n, BL_SUM_BLOCK);
    }
}

static int make_items(struct bl_sum *s, struct bl_error *err)
{
    for (size_t i = 0; i < s->count; i++) {
        struct bl_sum_item *item = &s->items[i];
        item->buffer = s->setup.buffers[i];
        bl_sum_rule_make(&item->buffer.format, s->setup.ranks, &item->rule);
        struct bl_order_setup o = {
            .ranks = s->setup.ranks,
            .algorithm = item->buffer.format.algorithm,
            .collective = item->buffer.format.collective,
            .cluster = s->setup.cluster,
            .elements = item->buffer.end - item->buffer.begin,
            .element_bytes = (uint32_t)bl_sum_width(item->buffer.format.wire),
        };
        if (bl_order_make(&o, &item->order, err) < 0)
            return -1;
        make_spans(s, item);
    }
    return 0;
}

static int make_blocks(struct bl_sum *s)
{
    uint64_t n = 0;
    s->blocks = calloc(s->block_count + 1, sizeof *s->blocks);
    if (s->blocks == NULL)
        return -1;
    for (size_t i = 0; i < s->count; i++)
        for (uint32_t a = 0; a < BL_SUM_ARRAYS; a++) {
            const struct bl_sum_span *span = &s->items[i].span[a];
            for (uint64_t at = span->begin; at < span->end; at += BL_SUM_BLOCK)
                s->blocks[n++] = (struct bl_sum_block){
                    .item = (uint32_t)i,
                    .array = a,
                    .begin = at,
                    .end = bl_order_less(at + BL_SUM_BLOCK, span->end),
                };
        }
    return 0;
}

static void *copy(const void *from, size_t bytes)
{
    void *to = malloc(bytes + 1);
    if (to != NULL && bytes > 0)
        memcpy(to, from, bytes);
    return to;
}

static void forget_statistics(struct bl_sum *s)
{
    for (int g = 0; g <= BL_GROUP_COUNT; g++)
        s->statistics[g] = (struct bl_sum_statistics){(double)NAN, (double)NAN, (double)NAN, 0};
}

/* Everything but the large arrays. */
static int plan(const struct bl_sum_setup *setup, struct bl_sum **out, struct bl_error *err)
{
    if (check(setup, err) < 0)
        return -1;
    struct bl_sum *s = calloc(1, sizeof *s);
    if (s == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "sum over ranks: out of memory");
    uint32_t processes = setup->world != NULL ? bl_world_processes(setup->world) : 1;
    s->setup = *setup;
    s->setup.seed = bl_random(setup->seed, bl_hash("sum over ranks"), 0); /* draws of its own */
    s->count = setup->buffer_count;
    s->items = calloc(s->count + 1, sizeof *s->items);
    s->ranges = copy(setup->ranges, setup->range_count * sizeof *s->ranges);
    s->range_count = setup->range_count;
    if (setup->shard != NULL)
        s->shard = copy(setup->shard, (processes + 1) * sizeof *s->shard);
    forget_statistics(s);
    if (!s->items || !s->ranges || (setup->shard != NULL && !s->shard)) {
        bl_error_set(err, BL_EXIT_FAILED, "sum over ranks: out of memory");
        goto fail;
    }
    if (make_items(s, err) < 0)
        goto fail;
    if (make_blocks(s) < 0) {
        bl_error_set(err, BL_EXIT_FAILED, "sum over ranks: out of memory");
        goto fail;
    }
    if ((processes > 1 ? bl_sum_exchange_make(s, err) : bl_sum_stream_make(s, err)) < 0)
        goto fail;
    *out = s;
    return 0;
fail:
    bl_sum_free(s);
    return -1;
}

static uint64_t array_bytes(const struct bl_sum *s)
{
    return (s->level_floats[BL_SUM_ARRAY] + s->level_floats[BL_SUM_PART]) * sizeof(float) +
           s->slots * s->slot_bytes;
}

int bl_sum_make(const struct bl_sum_setup *setup, struct bl_sum **out, struct bl_error *err)
{
    struct bl_sum *s;
    if (plan(setup, &s, err) < 0)
        return -1;
    int failed = 0;
    for (int a = 0; a < BL_SUM_ARRAYS; a++)
        if (s->level_floats[a] > 0)
            failed |= (s->levels[a] = bl_alloc(s->level_floats[a], sizeof(float))) == NULL;
    if (s->slots > 0)
        failed |= (s->store = bl_alloc(s->slots, s->slot_bytes)) == NULL;
    if (failed) {
        bl_error_set(err, BL_EXIT_FAILED,
                     "the sum over %" PRIu32 " ranks needs %" PRIu64
                     " bytes that are not there; lower cluster.keep, or start more processes",
                     setup->ranks, array_bytes(s));
        bl_sum_free(s);
        return -1;
    }
    *out = s;
    return 0;
}

void bl_sum_free(struct bl_sum *s)
{
    if (s == NULL)
        return;
    bl_sum_stream_free(s->stream);
    bl_sum_exchange_free(s->exchange);
    for (int a = 0; a < BL_SUM_ARRAYS; a++)
        bl_free(s->levels[a]);
    bl_free(s->store);
    bl_free(s->exact);
    for (size_t i = 0; s->items != NULL && i < s->count; i++)
        bl_order_free(s->items[i].order);
    free(s->items);
    free(s->ranges);
    free(s->shard);
    free(s->blocks);
    free(s);
}

int bl_sum_describe(const struct bl_sum_setup *setup, uint64_t *bytes, struct bl_text *text,
                    struct bl_error *err)
{
    struct bl_sum *s;
    if (plan(setup, &s, err) < 0)
        return -1;
    *bytes = sizeof *s + array_bytes(s) + s->count * sizeof *s->items +
             s->block_count * sizeof *s->blocks +
             (s->stream != NULL ? bl_sum_stream_bytes(s) : bl_sum_exchange_bytes(s));
    for (size_t i = 0; i < s->count; i++)
        *bytes += bl_order_bytes(s->items[i].order);
    if (text != NULL)
        bl_sum_text(s, text);
    bl_sum_free(s);
    return 0;
}

/* ---- tools of the executors ------------------------------------------------------------------ */

void bl_sum_parallel(const struct bl_sum *s, uint64_t n, void (*body)(void *, uint64_t),
                     void *argument)
{
    if (s->setup.parallel_for != NULL)
        s->setup.parallel_for(s->setup.parallel_context, n, body, argument);
    else
        for (uint64_t i = 0; i < n; i++)
            body(argument, i);
}

int bl_sum_contribute(const struct bl_sum *s, const struct bl_sum_run *run, uint32_t rank,
                      int again, struct bl_sum_contribution *out, struct bl_error *err)
{
    *out = (struct bl_sum_contribution){0};
    if (run->contribute(run->context, rank, again, out, err) < 0)
        return -1;
    if (out->array == NULL || (run->part_out != NULL && s->setup.part_count > 0 && !out->part))
        return bl_error_set(err, BL_EXIT_FAILED, "rank %" PRIu32 " has no gradient", rank);
    return 0;
}

/* ---- calls ----------------------------------------------------------------------------------- */

int bl_sum_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err)
{
    if (run->measure && bl_sum_measure_begin(s, err) < 0)
        return -1;
    return s->stream != NULL ? bl_sum_stream_run(s, run, err) : bl_sum_exchange_run(s, run, err);
}

int bl_sum_gather(struct bl_sum *s, float *array, struct bl_error *err)
{
    return s->stream != NULL ? 0 : bl_sum_exchange_gather(s, array, err);
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == BL_BF16 ? "bf16" : dtype == BL_FP16 ? "fp16" : "fp32";
}

static int same_format(const struct bl_sum_item *a, const struct bl_sum_item *b)
{
    return memcmp(&a->buffer.format, &b->buffer.format, sizeof a->buffer.format) == 0;
}

void bl_sum_text(const struct bl_sum *s, struct bl_text *out)
{
    static const char *const averages[] = {"divide", "divide_first", "premultiply", "predivide"};
    for (size_t i = 0; i < s->count; i++) {
        const struct bl_sum_item *item = &s->items[i];
        const struct bl_sum_format *f = &item->buffer.format;
        size_t seen = 0, same = 1;
        uint64_t elements = item->buffer.end - item->buffer.begin;
        while (seen < i && !same_format(&s->items[seen], item))
            seen++;
        if (seen < i)
            continue;
        for (size_t k = i + 1; k < s->count; k++)
            if (same_format(&s->items[k], item)) {
                same++;
                elements += s->items[k].buffer.end - s->items[k].buffer.begin;
            }
        bl_text_add(
            out, "%zu buffer%s, %" PRIu64 " elements: %s, wire %s, sum %s%s, %s; the first: ", same,
            same == 1 ? "" : "s", elements,
            f->collective == BL_COLLECTIVE_ALL_REDUCE ? "all_reduce" : "reduce_scatter",
            dtype_name(f->wire), dtype_name(f->sum),
            f->sum_rounding == BL_ROUND_STOCHASTIC ? " stochastic" : "", averages[f->average]);
        bl_order_text(item->order, out);
        bl_text_add(out, "\n");
    }
}

uint64_t bl_sum_wire_bytes(const struct bl_sum *s)
{
    return s->stream != NULL ? 0 : bl_sum_exchange_wire_bytes(s);
}

double bl_sum_visits(const struct bl_sum *s)
{
    return s->stream != NULL ? bl_sum_stream_visits(s) : 1;
}
