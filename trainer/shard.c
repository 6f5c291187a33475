#include "shard.h"

#include <inttypes.h>
#include <math.h>

#include "base/memory.h"

static uint64_t blocks_of(uint64_t elements)
{
    return (elements + BL_SHARD_BLOCK - 1) / BL_SHARD_BLOCK;
}

/* The border of a block that is nearest below `at`, or above where it lies in padding. */
static uint64_t border(const struct bl_params *params, uint64_t at)
{
    for (uint64_t i = 0; i < params->count; i++) {
        const struct bl_param *p = &params->items[i];
        if (at <= p->offset)
            return p->offset;
        if (at < p->offset + p->count)
            return p->offset + (at - p->offset) / BL_SHARD_BLOCK * BL_SHARD_BLOCK;
    }
    return params->floats;
}

void bl_shard_cut(const struct bl_params *params, uint32_t processes, uint64_t *begin)
{
    uint64_t each = params->floats / processes, more = params->floats % processes;
    begin[0] = 0;
    for (uint32_t p = 1; p < processes; p++)
        begin[p] = border(params, each * p + more * p / processes);
    begin[processes] = params->floats;
}

static int gather_over_world(void *context, void *data, const uint64_t *begin, struct bl_error *err)
{
    return bl_world_gather_parts(context, data, begin, err);
}

void bl_shard_of(struct bl_world *world, const uint64_t *begin, struct bl_shards *out)
{
    *out = (struct bl_shards){begin, bl_world_process(world), bl_world_processes(world),
                              gather_over_world, world};
}

int bl_shard_check(const struct bl_shards *s, const struct bl_params *params, struct bl_error *err)
{
    uint32_t last = s->processes;
    if (s->begin[0] != 0 || s->begin[last] != params->floats)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "shards cover elements %" PRIu64 " to %" PRIu64
                            " of an arena of %" PRIu64,
                            s->begin[0], s->begin[last], params->floats);
    for (uint32_t p = 1; p < last; p++) {
        if (s->begin[p] < s->begin[p - 1] || s->begin[p] > params->floats)
            return bl_error_set(err, BL_EXIT_FAILED,
                                "shard %" PRIu32 " begins at element %" PRIu64
                                ", before the one in front of it or after the end",
                                p, s->begin[p]);
        if (border(params, s->begin[p]) != s->begin[p])
            return bl_error_set(err, BL_EXIT_FAILED,
                                "shard %" PRIu32 " begins at element %" PRIu64
                                ", which is within a block of %d of a parameter",
                                p, s->begin[p], BL_SHARD_BLOCK);
    }
    return 0;
}

uint64_t bl_shard_blocks(const struct bl_params *params)
{
    return bl_shard_blocks_before(params, params->floats);
}

uint64_t bl_shard_blocks_before(const struct bl_params *params, uint64_t at)
{
    uint64_t blocks = 0;
    for (uint64_t i = 0; i < params->count && params->items[i].offset < at; i++) {
        uint64_t inside = at - params->items[i].offset;
        blocks += blocks_of(inside < params->items[i].count ? inside : params->items[i].count);
    }
    return blocks;
}

int bl_shard_part(const struct bl_param *param, uint64_t from, uint64_t to, uint64_t *begin,
                  uint64_t *end)
{
    uint64_t last = param->offset + param->count;
    from = from > param->offset ? from : param->offset;
    to = to < last ? to : last;
    if (from >= to)
        return 0;
    *begin = from - param->offset;
    *end = to - param->offset;
    return 1;
}

int bl_shard_gather(const struct bl_shards *s, const struct bl_params *params, double *sums,
                    struct bl_error *err)
{
    if (s == NULL || s->processes == 1)
        return 0;
    uint64_t *begin = bl_alloc((size_t)s->processes + 1, sizeof *begin);
    if (begin == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the borders of %" PRIu32 " shards",
                            s->processes);
    for (uint32_t p = 0; p <= s->processes; p++)
        begin[p] = bl_shard_blocks_before(params, s->begin[p]) * sizeof *sums;
    int rc = s->gather(s->context, sums, begin, err);
    bl_free(begin);
    return rc;
}

double bl_shard_add(const struct bl_params *params, const double *sums, double *each)
{
    double total = 0.0;
    for (uint64_t i = 0; i < params->count; i++) {
        uint64_t n = blocks_of(params->items[i].count);
        double sum = 0.0;
        for (uint64_t k = 0; k < n; k++)
            sum += *sums++;
        if (each != NULL)
            each[i] = sum;
        total += sum;
    }
    return total;
}

int bl_shard_norm(const struct bl_shards *s, struct bl_backend *backend,
                  const struct bl_params *params, const float *array, double *out,
                  struct bl_error *err)
{
    uint64_t from = s != NULL ? s->begin[s->process] : 0, begin, end;
    uint64_t to = s != NULL ? s->begin[s->process + 1] : params->floats;
    uint64_t block = bl_shard_blocks_before(params, from);
    double *sums = bl_alloc(bl_shard_blocks(params) + 1, sizeof *sums);
    if (sums == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the sums of a norm");
    for (uint64_t i = 0; i < params->count; i++) {
        const struct bl_param *p = &params->items[i];
        if (!bl_shard_part(p, from, to, &begin, &end))
            continue;
        backend->ops->block_squares(backend, end - begin, array + p->offset + begin, sums + block);
        block += blocks_of(end - begin);
    }
    int rc = bl_shard_gather(s, params, sums, err);
    if (rc == 0)
        *out = sqrt(bl_shard_add(params, sums, NULL));
    bl_free(sums);
    return rc;
}
