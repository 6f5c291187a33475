#include "budget.h"

#include "base/memory.h"
#include "collectives/sum_math.h"
#include "data/prefetch.h"
#include "reduce.h"
#include "regularizers.h"
#include "shard.h"

static uint32_t monitor_needs(const struct bl_setup *s)
{
    uint32_t needs = 0;
    for (size_t i = 0; i < s->monitors.count; i++) {
        const struct bl_plugin_instance *m = s->monitors.items[i];
        if (m->ops.monitor.needs != NULL)
            needs |= m->ops.monitor.needs(m->self);
    }
    return needs;
}

/* Instances that keep a value for every row. */
static uint64_t row_terms(const struct bl_setup *s)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->regularizers.count; i++)
        n += s->regularizers.items[i]->ops.regularizer.rows != NULL;
    return n;
}

/* Elements of the largest shard of an arena, all of it without shards. */
static int largest_shard(const struct bl_setup *s, uint32_t processes, uint64_t *out,
                         struct bl_error *err)
{
    *out = s->params.floats;
    if (s->config->cluster.shard != BL_SHARD_OPTIMIZER)
        return 0;
    uint64_t *begin = bl_alloc((size_t)processes + 1, sizeof *begin);
    if (begin == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the borders of %u shards",
                            processes);
    bl_shard_cut(&s->params, processes, begin);
    *out = 0;
    for (uint32_t p = 0; p < processes; p++)
        *out = begin[p + 1] - begin[p] > *out ? begin[p + 1] - begin[p] : *out;
    bl_free(begin);
    return 0;
}

/* Of one process; on the wire each element of a group has that dial's width. With shards fp32
 * weights come back, else sums in the wire's format. */
static uint64_t sent_bytes(const struct bl_setup *s, uint32_t processes)
{
    double bytes = 0;
    int sharded = s->config->cluster.shard == BL_SHARD_OPTIMIZER;
    for (uint64_t i = 0; i < s->params.count; i++) {
        const struct bl_param *p = &s->params.items[i];
        double width = (double)bl_sum_width(s->dials.dial[p->group][BL_DIAL_WIRE]);
        bytes += (double)p->count * (width + (sharded ? 4 : width));
    }
    return (uint64_t)(bytes * (double)(processes - 1) / (double)processes);
}

/* One process adds ranks up as they come; each of several keeps those it plays. Then the result,
 * what is kept apart of the output matrix (`split`), and the fp64 sum that a monitor compares with.
 */
static int ranks_bytes(const struct bl_setup *s, uint32_t processes, int split, int measured,
                       struct bl_budget *b, struct bl_error *err)
{
    int64_t head = s->info.tied ? -1 : bl_params_find(&s->params, s->info.head);
    uint64_t arena = s->params.floats * sizeof(float);
    uint64_t part = head >= 0 ? s->params.items[head].count * sizeof(float) : 0;
    struct bl_reduce_setup reduce = {
        .params = &s->params,
        .dials = &s->dials,
        .cluster = &s->config->cluster,
        .ranks = (uint32_t)s->ranks,
        .head = head,
    };
    if (bl_reduce_describe(&reduce, &b->ranks, &b->order, err) < 0)
        return -1;
    if (processes > 1)
        b->ranks = s->ranks / processes * (arena + part);
    b->ranks = s->ranks > 1 ? b->ranks + arena : 0;
    b->ranks += split ? part : 0;
    b->ranks += measured ? s->params.floats * sizeof(double) : 0;
    return 0;
}

int bl_budget_copies(const struct bl_setup *s)
{
    const struct bl_run_options *o = &s->config->run;
    int copies = (o->checkpoint_every > 0 && o->checkpoint_every < o->steps) ||
                 (o->ring > 0 && o->ring_every < o->steps);
    for (size_t i = 0; i < s->config->alarm_count; i++)
        copies |= s->config->alarms[i].action == BL_ALARM_CHECKPOINT;
    return copies && o->save == BL_SAVE_ASYNC;
}

/* Master and states of what the process writes; process 0 the working weights too, those apart that
 * are the same numbers as the masters it has whole. */
static uint64_t copied_bytes(const struct bl_setup *s, const uint64_t *part, int first, int apart,
                             uint64_t states)
{
    uint64_t floats = 0;
    for (uint64_t i = 0; i < s->params.count; i++) {
        const struct bl_param *p = &s->params.items[i];
        uint64_t begin = 0, end = 0;
        if (bl_shard_part(p, part[0], part[1], &begin, &end))
            floats += (1 + states) * (end - begin);
        if (first && (apart || end - begin < p->count))
            floats += p->count;
    }
    return floats * sizeof(float);
}

static int snapshot_bytes(const struct bl_setup *s, uint32_t processes, int apart, uint64_t states,
                          uint64_t *out, struct bl_error *err)
{
    uint64_t *parts = bl_alloc((size_t)processes + 1, sizeof *parts);
    *out = 0;
    if (parts == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the borders of %u shards",
                            processes);
    bl_shard_cut(&s->params, processes, parts);
    for (uint32_t p = 0; bl_budget_copies(s) && p < processes; p++) {
        uint64_t bytes = copied_bytes(s, parts + p, p == 0, apart, states);
        *out = bytes > *out ? bytes : *out;
    }
    bl_free(parts);
    return 0;
}

int bl_budget_make(const struct bl_setup *s, struct bl_backend *backend, uint32_t processes,
                   struct bl_budget *out, struct bl_error *err)
{
    const struct bl_config *c = s->config;
    struct bl_regularizers *set;
    struct bl_budget b = {0};
    uint64_t rows = s->info.sequences * s->info.context;
    uint64_t micro = (uint64_t)c->batch.micro, states, shard;
    uint32_t needs = monitor_needs(s);

    *out = (struct bl_budget){0}; /* so that bl_budget_free may follow an error */
    if (largest_shard(s, processes, &shard, err) < 0)
        return -1;
    /* Room for one row: only what the set asks of the head is of interest. */
    if (bl_regularizers_make(s->regularizers.items, s->regularizers.count, backend, 1, &set, err) <
        0)
        return -1;
    const struct bl_head_hooks *hooks = bl_regularizers_hooks(set);
    int split = !s->info.tied &&
                ((needs & BL_MONITOR_CE_GRADIENT) || bl_regularizers_has_project_grad(set));
    int pz = (hooks->needs & BL_NEED_PZ) || (needs & BL_MONITOR_PZ), before = hooks->transforms > 0;
    int rc = bl_model_size(backend, &c->model, &s->dials, micro, hooks, split, &b.model, err);
    bl_regularizers_free(set);
    if (rc < 0)
        return -1;

    states = s->optimizer->ops.optimizer.states(s->optimizer->self) +
             (uint64_t)bl_update_compensates(&s->dials);
    b.optimizer = states * shard * sizeof(float);
    if (snapshot_bytes(s, processes, b.model.working > 0, states, &b.snapshot, err) < 0)
        return -1;
    b.sent = sent_bytes(s, processes);
    if (ranks_bytes(s, processes, split, (needs & BL_MONITOR_REDUCTION) != 0, &b, err) < 0)
        return -1;
    b.batch = bl_prefetch_bytes(s->info.sequences, s->info.context) +
              rows * row_terms(s) * sizeof(double) + bl_rows_bytes(rows, pz, before);
    if (s->validation != NULL || c->data.holdout > 0)
        b.batch += bl_rows_bytes(micro * s->info.context, 0, 0);
    b.total = b.model.total + b.optimizer + b.ranks + b.snapshot + b.batch;
    /* working weights, master, optimizer state; fp32 each */
    b.checkpoint = (2 + states) * s->params.elements * sizeof(float);
    *out = b;
    return 0;
}

void bl_budget_free(struct bl_budget *b)
{
    bl_text_free(&b->order);
}
