/* The gradient of a step: forward and backward of the ranks that this process plays, the sum over
 * all ranks, and what every process has to know of the others' rows. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "run_internal.h"

int bl_run_make_gradient(struct bl_run *r, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    r->head = bl_params_find(&s->params, s->info.head);
    if (s->config->cluster.shard == BL_SHARD_OPTIMIZER && r->processes > 1) {
        r->border = bl_alloc(r->processes + 1, sizeof *r->border);
        if (r->border == NULL)
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        bl_shard_cut(&s->params, r->processes, r->border);
        bl_shard_of(r->world, r->border, &r->shards);
    }
    struct bl_reduce_setup reduce = {
        .backend = r->backend,
        .params = &s->params,
        .dials = &s->dials,
        .cluster = &s->config->cluster,
        .ranks = (uint32_t)s->ranks,
        .world = r->world,
        .seed = s->info.seed,
        .head = s->info.tied ? -1 : r->head,
        .shard = r->border,
    };
    if (bl_reduce_make(&reduce, &r->sum, err) < 0)
        return -1;
    r->share = BL_SHARE_TERMS + s->regularizers.count;
    r->shares = bl_alloc(s->ranks * r->share, sizeof *r->shares);
    r->news = bl_alloc(r->processes, sizeof *r->news);
    r->columns = bl_alloc(2 * (s->ranks + r->processes), sizeof *r->columns);
    r->gradient = s->ranks > 1 ? bl_alloc(s->params.floats, sizeof *r->gradient)
                               : bl_model_gradients(r->model);
    if (r->shares == NULL || r->news == NULL || r->columns == NULL || r->gradient == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory for the sum over ranks");
    return 0;
}

void bl_run_free_gradient(struct bl_run *r)
{
    bl_sum_free(r->sum);
    bl_free(r->shares);
    bl_free(r->news);
    bl_free(r->columns);
    bl_free(r->border);
    bl_free(r->ce_gradient);
    if (r->s->ranks > 1)
        bl_free(r->gradient);
    r->sum = NULL;
    r->shares = NULL;
    r->news = NULL;
    r->gradient = r->ce_gradient = NULL;
}

int bl_run_wants_pz(const struct bl_run *r, uint32_t needs)
{
    return (needs & BL_MONITOR_PZ) || (bl_regularizers_hooks(r->regularizers)->needs & BL_NEED_PZ);
}

double bl_run_cross_entropy(const struct bl_rows *rows, uint64_t first, uint64_t count)
{
    double sum = 0;
    for (uint64_t i = first; i < first + count; i++) {
        if (rows->valid[i])
            sum += rows->lse[i] - rows->target[i];
    }
    return sum;
}

static double norm_of(const struct bl_run *r, const float *gradient)
{
    double norm = 0;
    bl_shard_norm(NULL, r->backend, &r->s->params, gradient, &norm, NULL); /* no others: no error */
    return norm;
}

int bl_run_norm(struct bl_run *r, double *out, struct bl_error *err)
{
    return bl_shard_norm(r->scattered ? &r->shards : NULL, r->backend, &r->s->params, r->gradient,
                         out, err);
}

int bl_run_whole_gradient(struct bl_run *r, struct bl_error *err)
{
    /* A plugin asks for it, and that of another process may have failed before it could. */
    if (r->scattered &&
        (bl_world_agree(r->world, 0, err) < 0 || bl_sum_gather(r->sum, r->gradient, err) < 0))
        return -1;
    r->scattered = 0;
    return 0;
}

int bl_run_gather_weights(struct bl_run *r, struct bl_error *err)
{
    if (r->border == NULL)
        return 0;
    if (bl_sum_gather(r->sum, bl_model_weights(r->model), err) < 0)
        return -1;
    bl_model_refresh(r->model, 0, r->s->params.floats);
    return 0;
}

/* ---- one rank -------------------------------------------------------------------------------- */

struct ranks {
    struct bl_run *r;
    struct bl_rows rows;
    int split; /* the CE part of the head's gradient is kept apart */
    int apart; /* and is added up apart from the rest: it will be projected */
};

#define EXCHANGE_BLOCK 4096

struct exchange {
    float *whole, *part; /* of the output matrix, (count,) */
    uint64_t count;
};

/* whole, part -> part, whole - part: cross-entropy's gradient and that of everything else. */
static void part_block(void *argument, uint64_t b)
{
    const struct exchange *e = argument;
    uint64_t end = (b + 1) * EXCHANGE_BLOCK < e->count ? (b + 1) * EXCHANGE_BLOCK : e->count;
    for (uint64_t i = b * EXCHANGE_BLOCK; i < end; i++) {
        float whole = e->whole[i], part = e->part[i];
        e->whole[i] = part;
        e->part[i] = whole - part;
    }
}

/* The reverse. */
static void join_block(void *argument, uint64_t b)
{
    const struct exchange *e = argument;
    uint64_t end = (b + 1) * EXCHANGE_BLOCK < e->count ? (b + 1) * EXCHANGE_BLOCK : e->count;
    for (uint64_t i = b * EXCHANGE_BLOCK; i < end; i++) {
        float part = e->whole[i], rest = e->part[i];
        e->whole[i] = part + rest;
        e->part[i] = part;
    }
}

static void exchange(const struct bl_run *r, void (*body)(void *, uint64_t), float *gradient,
                     float *part)
{
    const struct bl_param *head = &r->s->params.items[r->head];
    struct exchange e = {gradient + head->offset, part, head->count};
    uint64_t blocks = (e.count + EXCHANGE_BLOCK - 1) / EXCHANGE_BLOCK;
    r->backend->ops->parallel_for(r->backend, blocks, body, &e);
}

void bl_run_join_gradient(struct bl_run *r)
{
    exchange(r, join_block, r->gradient, r->ce_gradient);
}

/* What came a second time is what was there: the rows are written to the same place. */
static int contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                      struct bl_error *err)
{
    struct ranks *c = context;
    struct bl_run *r = c->r;
    const struct bl_setup *s = r->s;
    uint64_t length = s->info.context, micro = (uint64_t)s->config->batch.micro;
    uint64_t sequences = s->info.sequences / s->ranks;
    c->rows.count = rank * sequences * length;
    bl_regularizers_at(r->regularizers, c->rows.count);
    for (uint64_t first = 0; first < sequences; first += micro) {
        uint64_t at = (rank * sequences + first) * length;
        struct bl_pass pass = {
            .tokens = r->batch.tokens + at,
            .targets = r->batch.targets + at,
            .sequences = micro,
            .weight = (double)s->ranks / (double)r->batch.valid,
            .accumulate = first > 0,
            .split_head = (uint32_t)c->split,
            .hooks = bl_regularizers_hooks(r->regularizers),
            .rows = &c->rows,
        };
        if (bl_model_train(r->model, &pass, err) < 0)
            return -1;
    }
    if (!again && s->ranks > 1)
        r->shares[rank * r->share + BL_SHARE_NORM] = norm_of(r, bl_model_gradients(r->model));
    if (c->apart)
        exchange(r, part_block, bl_model_gradients(r->model), bl_model_ce_gradient(r->model));
    out->array = bl_model_gradients(r->model);
    out->part = c->split ? bl_model_ce_gradient(r->model) : NULL;
    return 0;
}

/* ---- what the others have to know ------------------------------------------------------------ */

/* Everybody's rows of one array of `size` bytes an element. */
static int gather_rows(struct bl_run *r, void *array, size_t size, struct bl_error *err)
{
    uint64_t begin[r->processes + 1];
    for (uint32_t p = 0; p <= r->processes; p++)
        begin[p] = r->rows.count / r->processes * p * size;
    return array != NULL ? bl_world_gather_parts(r->world, array, begin, err) : 0;
}

static int gather_statistics(struct bl_run *r, int pz, struct bl_error *err)
{
    struct bl_rows *w = &r->rows;
    double *arrays[] = {w->lse,      w->target,         w->mean,    w->m2,
                        w->max,      pz ? w->pz : NULL, w->pre_lse, w->pre_target,
                        w->pre_mean, w->pre_m2,         w->pre_max};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++) {
        if (gather_rows(r, arrays[i], sizeof(double), err) < 0)
            return -1;
    }
    return gather_rows(r, w->argmax, sizeof *w->argmax, err) < 0 ||
                   gather_rows(r, w->pre_argmax, sizeof *w->pre_argmax, err) < 0 ||
                   gather_rows(r, w->valid, sizeof *w->valid, err) < 0
               ? -1
               : 0;
}

/* Sums over each rank's rows, then to everybody: the sum over all is of these, in the order of the
 * ranks, whoever played them. */
static int gather_ranks(struct bl_run *r, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    uint64_t rows = r->rows.count / s->ranks, per = s->ranks / r->processes;
    uint64_t begin[r->processes + 1];
    for (uint64_t i = r->process * per; i < (r->process + 1) * per; i++) {
        double *values = r->shares + i * r->share;
        values[BL_SHARE_CE] = bl_run_cross_entropy(&r->rows, i * rows, rows);
        bl_regularizers_sums(r->regularizers, i * rows, rows, values + BL_SHARE_TERMS);
    }
    for (uint32_t p = 0; p <= r->processes; p++)
        begin[p] = p * per * r->share * sizeof(double);
    if (bl_world_gather_parts(r->world, r->shares, begin, err) < 0)
        return -1;
    for (size_t k = 0; k < s->regularizers.count; k++) {
        double sum = 0;
        for (uint64_t i = 0; i < s->ranks; i++)
            sum += r->shares[i * r->share + BL_SHARE_TERMS + k];
        bl_regularizers_set_sum(r->regularizers, k, sum);
    }
    return 0;
}

int bl_run_gradient(struct bl_run *r, uint32_t needs, int rows_wanted, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    struct ranks c = {r, r->rows, 0, 0};
    int pz = bl_run_wants_pz(r, needs);
    c.apart = !s->info.tied && bl_regularizers_has_project_grad(r->regularizers);
    c.split = c.apart || (!s->info.tied && (needs & BL_MONITOR_CE_GRADIENT));
    if (!pz)
        c.rows.pz = NULL;
    if (c.split && r->ce_gradient == NULL) {
        r->ce_gradient = bl_alloc(s->params.items[r->head].count, sizeof *r->ce_gradient);
        if (r->ce_gradient == NULL)
            return bl_error_set(err, BL_EXIT_FAILED,
                                "out of memory for a second gradient of the output matrix");
    }
    struct bl_sum_run run = {
        .step = r->step + 1,
        .contribute = contribute,
        .context = &c,
        .out = r->gradient,
        .part_out = c.split ? r->ce_gradient : NULL,
        .measure = (needs & BL_MONITOR_REDUCTION) != 0,
    };
    run.scatter = r->border != NULL && !run.measure;
    if (bl_sum_run(r->sum, &run, err) < 0)
        return -1;
    r->rows.count = s->info.sequences * s->info.context;
    if (gather_ranks(r, err) < 0 || (rows_wanted && gather_statistics(r, pz, err) < 0))
        return -1;
    r->scattered = run.scatter;
    r->measured = run.measure;
    r->gradients_ready = 1;
    r->ce_ready = c.split;
    return 0;
}
