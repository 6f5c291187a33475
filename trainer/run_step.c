/* One step, as data flows: forward and backward of every rank and micro-batch -> reduction
 * -> regularizers on the output matrix -> monitors -> guards -> update -> one row of metrics. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "run_internal.h"
#include "stop.h"

/* ---- batch ---------------------------------------------------------------------------------- */

int bl_run_read(struct bl_run *r, struct bl_error *err)
{
    double start = bl_clock();
    int rc = bl_prefetch_next(r->prefetch, r->step + 1, bl_stop_signal, &r->batch, err);
    r->waited = bl_clock() - start;
    return rc;
}

/* ---- statistics ------------------------------------------------------------------------------ */

/* Mean of lse - z_y over unmasked rows, one fp64 add a row in (sequence, time) order. */
static double cross_entropy(const struct bl_rows *rows, uint64_t targets)
{
    double sum = 0;
    for (uint64_t i = 0; i < rows->count; i++) {
        if (rows->valid[i])
            sum += rows->lse[i] - rows->target[i];
    }
    return sum / (double)targets;
}

/* Whether somebody looks at pz in a step in which monitors have these needs. */
static int wants_pz(const struct bl_run *r, uint32_t needs)
{
    return (needs & BL_MONITOR_PZ) || (bl_regularizers_hooks(r->regularizers)->needs & BL_NEED_PZ);
}

static void stats_of(const struct bl_run *r, uint32_t needs, int before, struct bl_row_stats *out)
{
    const struct bl_rows *rows = &r->rows;
    *out = (struct bl_row_stats){
        .size = sizeof *out,
        .count = rows->count,
        .vocab = r->s->info.vocab,
        .lse = before ? rows->pre_lse : rows->lse,
        .target = before ? rows->pre_target : rows->target,
        .mean = before ? rows->pre_mean : rows->mean,
        .m2 = before ? rows->pre_m2 : rows->m2,
        .max = before ? rows->pre_max : rows->max,
        .argmax = before ? rows->pre_argmax : rows->argmax,
        .pz = !before && wants_pz(r, needs) ? rows->pz : NULL,
        .valid = rows->valid,
    };
}

/* ---- gradient -------------------------------------------------------------------------------- */

int bl_run_is_due(const struct bl_plugin_instance *monitor, uint64_t step)
{
    return step % (uint64_t)monitor->every == 0 || step == 1;
}

static uint32_t due_needs(const struct bl_run *r, uint64_t step)
{
    uint32_t needs = 0;
    for (size_t i = 0; i < r->s->monitors.count; i++) {
        const struct bl_plugin_instance *m = r->s->monitors.items[i];
        if (bl_run_is_due(m, step) && m->ops.monitor.needs != NULL)
            needs |= m->ops.monitor.needs(m->self);
    }
    return needs;
}

/* Forward and backward of the whole batch, rank after rank, then the reduction. */
static int gradient(struct bl_run *r, uint32_t needs, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    const struct bl_head_hooks *hooks = bl_regularizers_hooks(r->regularizers);
    uint64_t context = s->info.context, micro = (uint64_t)s->config->batch.micro;
    uint64_t per_rank = s->info.sequences / s->ranks;
    int split = !s->info.tied && ((needs & BL_MONITOR_CE_GRADIENT) ||
                                  bl_regularizers_has_project_grad(r->regularizers));
    struct bl_rows rows = r->rows;
    if (!wants_pz(r, needs))
        rows.pz = NULL;
    rows.count = 0;
    for (uint64_t rank = 0; rank < s->ranks; rank++) {
        for (uint64_t first = 0; first < per_rank; first += micro) {
            uint64_t at = (rank * per_rank + first) * context;
            struct bl_pass pass = {
                .tokens = r->batch.tokens + at,
                .targets = r->batch.targets + at,
                .sequences = micro,
                .weight = (double)s->ranks / (double)r->batch.valid,
                .accumulate = first > 0,
                .split_head = (uint32_t)split,
                .hooks = hooks,
                .rows = &rows,
            };
            if (bl_model_train(r->model, &pass, err) < 0)
                return -1;
        }
        bl_reduce_add(&r->reduce, r->sum, bl_model_gradients(r->model), rank);
        if (split) {
            float *ce = bl_model_ce_gradient(r->model);
            bl_reduce_add_array(&r->reduce, BL_GROUP_HEAD, s->params.items[r->head].count,
                                r->ce_sum != NULL ? r->ce_sum : ce, ce, rank);
        }
    }
    bl_reduce_finish(&r->reduce, r->sum, bl_model_gradients(r->model));
    if (split) {
        float *ce = bl_model_ce_gradient(r->model);
        bl_reduce_finish_array(&r->reduce, BL_GROUP_HEAD, s->params.items[r->head].count,
                               r->ce_sum != NULL ? r->ce_sum : ce, ce);
    }
    r->rows.count = rows.count;
    r->gradients_ready = 1;
    r->ce_ready = split;
    return 0;
}

struct shift {
    float *gradient;
    const float *part;
    float sign;
    uint64_t count;
};

#define SHIFT_BLOCK 4096

static void shift_block(void *argument, uint64_t b)
{
    const struct shift *s = argument;
    uint64_t end = (b + 1) * SHIFT_BLOCK < s->count ? (b + 1) * SHIFT_BLOCK : s->count;
    for (uint64_t i = b * SHIFT_BLOCK; i < end; i++)
        s->gradient[i] += s->sign * s->part[i];
}

/* Terms on the output matrix, then projections of the cross-entropy part of its gradient. */
static int head_gradient(struct bl_run *r, struct bl_error *err)
{
    struct bl_tensor head, g;
    if (bl_run_tensor(r, (uint64_t)r->head, BL_WEIGHT, &head) < 0 ||
        bl_run_tensor(r, (uint64_t)r->head, BL_GRADIENT, &g) < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "the output matrix has no gradient");
    if (bl_regularizers_has_weight_grad(r->regularizers))
        bl_regularizers_weight_grad(r->regularizers, &head, &g);
    if (!bl_regularizers_has_project_grad(r->regularizers))
        return 0;
    struct bl_tensor ce;
    if (bl_run_tensor(r, (uint64_t)r->head, BL_CE_GRADIENT, &ce) < 0)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "the cross-entropy part of the head's gradient was not kept apart");
    struct shift shift = {g.data, ce.data, -1, g.count};
    uint64_t blocks = (g.count + SHIFT_BLOCK - 1) / SHIFT_BLOCK;
    r->backend->ops->parallel_for(r->backend, blocks, shift_block, &shift);
    if (bl_regularizers_project_grad(r->regularizers, &ce, err) < 0)
        return -1;
    shift.sign = 1;
    r->backend->ops->parallel_for(r->backend, blocks, shift_block, &shift);
    return 0;
}

/* L2 norm over all parameters, tied ones once. */
static double gradient_norm(struct bl_run *r)
{
    const struct bl_params *p = &r->s->params;
    const float *g = bl_model_gradients(r->model);
    double total = 0;
    for (uint64_t i = 0; i < p->count; i++)
        total +=
            r->backend->ops->sum_squares(r->backend, p->items[i].count, g + p->items[i].offset);
    return sqrt(total);
}

/* ---- guards ---------------------------------------------------------------------------------- */

struct verdict {
    double scale; /* product of all */
    int skip;
};

/* Runs the gradient (or update) op of every guard that has one, in config order. */
static int run_guards(struct bl_run *r, int updates, struct bl_guard_input *in, struct verdict *out,
                      struct bl_error *err)
{
    for (size_t i = 0; i < r->s->guards.count; i++) {
        struct bl_plugin_instance *g = r->s->guards.items[i];
        struct bl_verdict v = {sizeof v, 0, 1};
        uint32_t changed = 0;
        if (g->null)
            continue;
        int rc = 0;
        if (updates && g->ops.guard.update != NULL)
            rc = g->ops.guard.update(g->self, &g->host, in, &v, err);
        else if (!updates && g->ops.guard.gradient != NULL)
            rc = g->ops.guard.gradient(g->self, &g->host, in, &v, &changed, err);
        if (rc < 0)
            return bl_error_prefix(err, "guard %s", g->name);
        if (!(v.scale >= 0 && isfinite(v.scale)))
            return bl_error_set(err, BL_EXIT_FAILED, "guard %s: scale %g is not a number >= 0",
                                g->name, v.scale);
        if (changed)
            in->norm = gradient_norm(r) * out->scale;
        out->scale *= v.scale;
        out->skip |= v.skip != 0;
        in->norm *= v.scale;
        if (out->skip)
            break; /* what later guards remember must not hold this step */
    }
    return 0;
}

/* ---- monitors -------------------------------------------------------------------------------- */

static int run_monitors(struct bl_run *r, const struct bl_monitor_input *in, int after,
                        struct bl_error *err)
{
    for (size_t i = 0; i < r->s->monitors.count; i++) {
        struct bl_plugin_instance *m = r->s->monitors.items[i];
        int32_t (*op)(void *, const struct bl_host *, const struct bl_monitor_input *,
                      struct bl_error *) = after ? m->ops.monitor.after : m->ops.monitor.observe;
        if (op != NULL && bl_run_is_due(m, in->step) && op(m->self, &m->host, in, err) < 0)
            return bl_error_prefix(err, "monitor %s", m->name);
    }
    return 0;
}

/* ---- the step -------------------------------------------------------------------------------- */

static void record_losses(struct bl_run *r, double ce, double aux)
{
    bl_metrics_set(r->metrics, "loss/ce", ce);
    bl_metrics_set(r->metrics, "loss/aux", aux);
    bl_metrics_set(r->metrics, "loss/total", ce + aux);
    for (size_t i = 0; i < r->s->regularizers.count; i++) {
        char name[160];
        if (!bl_regularizers_has_value(r->regularizers, i))
            continue;
        snprintf(name, sizeof name, "loss/%s", r->s->regularizers.items[i]->name);
        bl_metrics_set(r->metrics, name, bl_regularizers_value(r->regularizers, i, r->batch.valid));
    }
}

/* A skipped update changes nothing but the batch counter. */
static int update(struct bl_run *r, double lr, const struct verdict *gradients, uint32_t needs,
                  struct bl_guard_input *in, int *skipped, struct bl_error *err)
{
    struct verdict v = {1, gradients->skip};
    int measure = (needs & BL_MONITOR_UPDATES) != 0;
    if (!v.skip && bl_setup_has_update_guard(r->s)) {
        double squares;
        if (bl_update_prepare(r->update, lr, gradients->scale, &squares, err) < 0)
            return -1;
        in->norm = sqrt(squares);
        if (run_guards(r, 1, in, &v, err) < 0)
            return -1;
    }
    *skipped = v.skip;
    if (v.skip) {
        bl_update_skip(r->update);
        return 0;
    }
    if (bl_update_apply(r->update, lr, gradients->scale, v.scale, measure, err) < 0)
        return -1;
    if (!bl_regularizers_has_project_weight(r->regularizers))
        return 0;
    struct bl_tensor head;
    if (bl_run_tensor(r, (uint64_t)r->head, BL_WEIGHT, &head) < 0 ||
        bl_regularizers_project_weight(r->regularizers, &head, err) < 0)
        return -1;
    bl_update_store(r->update, (uint64_t)r->head, (uint64_t)r->head + 1);
    bl_model_refresh(r->model, r->s->params.items[r->head].offset, head.count);
    return 0;
}

static int diverged(uint64_t step, const char *what, double value, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_DIVERGED,
                        "diverged at step %llu: %s is %g; the weights are those before this step",
                        (unsigned long long)step, what,
                        isnan(value) ? (double)NAN : value /* no sign */);
}

int bl_run_step(struct bl_run *r, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    uint64_t step = r->step + 1;
    double start = bl_clock(), lr = bl_setup_learning_rate(s, step);
    uint32_t needs = due_needs(r, step);
    struct bl_row_stats seen, before;

    r->gradients_ready = r->ce_ready = 0;
    bl_regularizers_begin(r->regularizers, step);
    if (gradient(r, needs, err) < 0)
        return -1;
    bl_regularizers_end(r->regularizers);
    if (head_gradient(r, err) < 0)
        return -1;
    double ce = cross_entropy(&r->rows, r->batch.valid);
    double aux = bl_regularizers_aux(r->regularizers, r->batch.valid);
    double norm = gradient_norm(r);
    record_losses(r, ce, aux);
    bl_metrics_set(r->metrics, "optim/lr", lr);
    /* before rules; header.json has what they make of it per parameter */
    bl_metrics_set(r->metrics, "optim/weight_decay", s->config->optimizer.weight_decay);
    bl_metrics_set(r->metrics, "optim/grad_norm", norm);

    stats_of(r, needs, 0, &seen);
    stats_of(r, needs, 1, &before);
    struct bl_monitor_input in = {
        .size = sizeof in,
        .step = step,
        .rows = &seen,
        .before = r->rows.pre_lse != NULL ? &before : NULL,
        .targets = r->batch.valid,
        .learning_rate = lr,
        .loss = ce + aux,
    };
    if (run_monitors(r, &in, 0, err) < 0)
        goto fail;

    struct bl_guard_input guarded = {sizeof guarded, 0, step, ce + aux, norm, lr};
    struct verdict v = {1, 0};
    if (run_guards(r, 0, &guarded, &v, err) < 0)
        goto fail;
    bl_metrics_set(r->metrics, "optim/grad_norm_clipped", guarded.norm);
    int failed = 0, skipped = 0;
    if (!v.skip && !isfinite(ce + aux))
        failed =
            diverged(step, isfinite(ce) ? "loss/aux" : "loss/ce", isfinite(ce) ? aux : ce, err);
    else if (!v.skip && !isfinite(guarded.norm))
        failed = diverged(step, "the gradient norm", guarded.norm, err);
    if (!failed && update(r, lr, &v, needs, &guarded, &skipped, err) < 0)
        goto fail;
    bl_metrics_set(r->metrics, "optim/skipped", skipped);
    if (!failed && run_monitors(r, &in, 1, err) < 0)
        goto fail;

    double seconds = r->waited + bl_clock() - start;
    bl_metrics_set(r->metrics, "time/data", r->waited);
    bl_metrics_set(r->metrics, "perf/step_seconds", seconds);
    bl_metrics_set(r->metrics, "perf/tokens_per_second",
                   (double)(s->info.sequences * s->info.context) / seconds);
    bl_metrics_set(r->metrics, "perf/memory_bytes", (double)bl_memory_peak());
    if (failed)
        goto fail;
    r->gradients_ready = r->ce_ready = 0;
    r->step = step;
    return 0;
fail: /* the row of the step that ends a run tells why */
    r->gradients_ready = r->ce_ready = 0;
    bl_metrics_emit(r->metrics, step, r->directory.attempt);
    return -1;
}

/* ---- held-out loss --------------------------------------------------------------------------- */

struct reading {
    const struct bl_run *r;
    uint64_t first;          /* of these held-out sequences, in the source */
    struct bl_error *errors; /* one a sequence */
};

static void read_held_out(void *argument, uint64_t i)
{
    const struct reading *g = argument;
    const struct bl_setup *s = g->r->s;
    uint64_t at = i * s->info.context;
    bl_sequence_read(s->validation, g->first + i, s->info.vocab, g->r->batch.tokens + at,
                     g->r->batch.targets + at, &g->errors[i]);
}

/* Reads n sequences in parallel; the first failing sequence is the error, whatever the threads. */
static int read_all(const struct bl_run *r, uint64_t first, uint64_t n, uint64_t *targets,
                    struct bl_error *err)
{
    struct reading g = {r, first, bl_alloc(n, sizeof *g.errors)};
    if (g.errors == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "evaluation: out of memory");
    r->backend->ops->parallel_for(r->backend, n, read_held_out, &g);
    int rc = 0;
    for (uint64_t i = 0; i < n && rc == 0; i++) {
        if (g.errors[i].code != 0)
            rc = bl_error_set(err, g.errors[i].code, "evaluation after step %llu: %s",
                              (unsigned long long)r->step, g.errors[i].text);
    }
    bl_free(g.errors);
    for (uint64_t i = 0; i < n * r->s->info.context; i++)
        *targets += r->batch.targets[i] >= 0;
    return rc;
}

int bl_run_evaluate(struct bl_run *r, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    uint64_t micro = (uint64_t)s->config->batch.micro, context = s->info.context;
    uint64_t n = s->validation_info.sequences, limit = (uint64_t)s->config->run.eval_tokens;
    if (limit > 0 && n > (limit + context - 1) / context)
        n = (limit + context - 1) / context;
    double sum = 0;
    uint64_t targets = 0;
    /* The batch is free between steps and holds at least one micro-batch. */
    for (uint64_t first = 0; first < n; first += micro) {
        uint64_t count = n - first < micro ? n - first : micro;
        if (bl_stop_signal() != 0 && r->step < s->info.steps)
            return 0;
        if (read_all(r, s->validation_first + first, count, &targets, err) < 0)
            return -1;
        struct bl_pass pass = {.tokens = r->batch.tokens,
                               .targets = r->batch.targets,
                               .sequences = count,
                               .hooks = bl_regularizers_transforms(r->regularizers),
                               .rows = &r->eval_rows};
        r->eval_rows.count = 0;
        if (bl_model_evaluate(r->model, &pass, err) < 0)
            return -1;
        sum += cross_entropy(&r->eval_rows, 1);
    }
    double loss = targets > 0 ? sum / (double)targets : NAN;
    bl_metrics_set(r->metrics, "loss/val", loss);
    bl_metrics_set(r->metrics, "loss/val_perplexity", exp(loss)); /* saturates to inf */
    return 0;
}
