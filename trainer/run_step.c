/* One step, as data flows: forward and backward of every rank and micro-batch -> reduction
 * -> regularizers on the output matrix -> monitors -> guards -> update -> one row of metrics. */
#include <float.h>
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
    int rc = bl_stop_signal() != 0
                 ? 1
                 : bl_prefetch_next(r->prefetch, r->step + 1, bl_stop_signal, &r->batch, err);
    r->waited = bl_clock() - start;
    return bl_run_exchange(r, rc, err);
}

/* ---- statistics ------------------------------------------------------------------------------ */

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
        .pz = !before && bl_run_wants_pz(r, needs) ? rows->pz : NULL,
        .valid = rows->valid,
    };
}

/* ---- gradient -------------------------------------------------------------------------------- */

int bl_run_is_due(const struct bl_plugin_instance *monitor, uint64_t step)
{
    return step % (uint64_t)monitor->every == 0 || step == 1;
}

/* Whether a monitor looks at this step's rows. */
static int observers_due(const struct bl_run *r, uint64_t step)
{
    for (size_t i = 0; i < r->s->monitors.count; i++) {
        const struct bl_plugin_instance *m = r->s->monitors.items[i];
        if (bl_run_is_due(m, step) && (m->ops.monitor.observe != NULL || m->ops.monitor.after))
            return 1;
    }
    return 0;
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

/* What plugins answer is mostly the same in all processes: then one of them says it. A plugin that
 * waits for the whole gradient hears of another's error there: bl_run_whole_gradient. */
static int agree(struct bl_run *r, int rc, struct bl_error *err)
{
    return r->lost.code != 0 ? -1 : bl_world_agree(r->world, rc, err);
}

/* Projections of the cross-entropy part of the output matrix's gradient, then terms on the matrix.
 */
static int head_gradient(struct bl_run *r, struct bl_error *err)
{
    struct bl_tensor head, g;
    int projects = bl_regularizers_has_project_grad(r->regularizers);
    if (!bl_regularizers_has_weight_grad(r->regularizers) && !projects)
        return 0;
    if (bl_run_whole_gradient(r, err) < 0)
        return -1;
    if (bl_run_tensor(r, (uint64_t)r->head, BL_WEIGHT, &head) < 0 ||
        bl_run_tensor(r, (uint64_t)r->head, BL_GRADIENT, &g) < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "the output matrix has no gradient");
    if (projects) {
        if (agree(r, bl_regularizers_project_grad(r->regularizers, &g, err), err) < 0)
            return -1;
        bl_run_join_gradient(r);
    }
    if (bl_regularizers_has_weight_grad(r->regularizers))
        bl_regularizers_weight_grad(r->regularizers, &head, &g);
    return 0;
}

/* Whether a plugin asked for a gradient that could not be gathered: whatever it made of that. */
static int lost(const struct bl_run *r, struct bl_error *err)
{
    if (r->lost.code != 0 && err != NULL)
        *err = r->lost;
    return r->lost.code != 0;
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
        if (lost(r, err))
            return -1;
        if (rc < 0)
            return bl_error_prefix(err, "guard %s", g->name);
        if (!(v.scale >= 0 && out->scale * v.scale <= FLT_MAX)) /* it multiplies fp32 gradients */
            return bl_error_set(err, BL_EXIT_FAILED,
                                "guard %s: scale %g, %g with the earlier ones, is not a number "
                                "from 0 to %g",
                                g->name, v.scale, out->scale * v.scale, (double)FLT_MAX);
        if (changed & BL_CHANGED_WEIGHT)
            bl_model_refresh(r->model, 0, r->s->params.floats);
        if ((changed & BL_CHANGED_GRADIENT) &&
            !r->scattered) { /* else it has not seen what it says it changed */
            if (bl_run_norm(r, &in->norm, err) < 0)
                return -1;
            in->norm *= out->scale;
        }
        out->scale *= v.scale;
        out->skip |= v.skip != 0;
        in->norm *= v.scale;
        if (out->skip)
            break; /* what later guards remember must not hold this step */
    }
    return 0;
}

/* Tells all guards whether the step made an update. */
static void settle_guards(const struct bl_run *r, int skipped)
{
    for (size_t i = 0; i < r->s->guards.count; i++) {
        const struct bl_plugin_instance *g = r->s->guards.items[i];
        if (!g->null && g->ops.guard.settle != NULL)
            g->ops.guard.settle(g->self, skipped != 0);
    }
}

/* ---- monitors -------------------------------------------------------------------------------- */

static int run_monitors(struct bl_run *r, const struct bl_monitor_input *in, int after,
                        struct bl_error *err)
{
    for (size_t i = 0; i < r->s->monitors.count; i++) {
        struct bl_plugin_instance *m = r->s->monitors.items[i];
        int32_t (*op)(void *, const struct bl_host *, const struct bl_monitor_input *,
                      struct bl_error *) = after ? m->ops.monitor.after : m->ops.monitor.observe;
        if (op == NULL || !bl_run_is_due(m, in->step))
            continue;
        int rc = op(m->self, &m->host, in, err);
        if (lost(r, err))
            return -1;
        if (rc < 0)
            return bl_error_prefix(err, "monitor %s", m->name);
    }
    return 0;
}

/* ---- the step -------------------------------------------------------------------------------- */

/* Mean over the unmasked targets; ranks in their order. */
static double cross_entropy(const struct bl_run *r)
{
    double sum = 0;
    for (uint64_t i = 0; i < r->s->ranks; i++)
        sum += r->shares[i * r->share + BL_SHARE_CE];
    return sum / (double)r->batch.valid;
}

/* Mean over the ranks of ||gradient of a rank||^2. */
static double rank_squares(const struct bl_run *r)
{
    double sum = 0;
    for (uint64_t i = 0; i < r->s->ranks; i++) {
        double norm = r->shares[i * r->share + BL_SHARE_NORM];
        sum += norm * norm;
    }
    return r->s->ranks > 1 ? sum / (double)r->s->ranks : NAN;
}

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

/* An optimizer's survey may fail in one process alone (memory); other errors of an update are those
 * of an exchange, and everybody's. */
static int surveyed(struct bl_run *r, int rc, struct bl_error *err)
{
    return r->s->optimizer->ops.optimizer.survey != NULL ? bl_world_agree(r->world, rc, err) : rc;
}

/* A skipped update changes nothing but the batch counter. */
static int update(struct bl_run *r, double lr, const struct verdict *gradients, uint32_t needs,
                  struct bl_guard_input *in, int *skipped, struct bl_error *err)
{
    struct verdict v = {1, gradients->skip};
    int measure = (needs & BL_MONITOR_UPDATES) != 0;
    if (!v.skip && bl_setup_has_update_guard(r->s)) {
        double squares;
        if (surveyed(r, bl_update_prepare(r->update, lr, gradients->scale, &squares, err), err) < 0)
            return -1;
        in->norm = sqrt(squares);
        if (agree(r, run_guards(r, 1, in, &v, err), err) < 0)
            return -1;
    }
    *skipped = v.skip;
    if (v.skip) {
        bl_update_skip(r->update);
        return 0;
    }
    if (surveyed(r, bl_update_apply(r->update, lr, gradients->scale, v.scale, measure, err), err) <
            0 ||
        bl_run_gather_weights(r, err) < 0)
        return -1;
    if (!bl_regularizers_has_project_weight(r->regularizers))
        return 0;
    struct bl_tensor head;
    if (bl_run_tensor(r, (uint64_t)r->head, BL_WEIGHT, &head) < 0 ||
        agree(r, bl_regularizers_project_weight(r->regularizers, &head, err), err) < 0)
        return -1;
    bl_update_store(r->update, (uint64_t)r->head, (uint64_t)r->head + 1);
    if (r->border != NULL)
        return bl_run_gather_weights(r, err);
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
    double start = bl_clock(), peers = bl_world_waited(r->world),
           lr = bl_setup_learning_rate(s, step);
    uint32_t needs = due_needs(r, step);
    int observed = observers_due(r, step);
    struct bl_row_stats seen, before;

    r->gradients_ready = r->ce_ready = 0;
    bl_regularizers_begin(r->regularizers, step);
    if (bl_run_gradient(r, needs, observed, err) < 0)
        return -1;
    if (head_gradient(r, err) < 0)
        return -1;
    double ce = cross_entropy(r);
    double aux = bl_regularizers_aux(r->regularizers, r->batch.valid);
    double norm;
    if (bl_run_norm(r, &norm, err) < 0)
        return -1;
    record_losses(r, ce, aux);
    bl_run_record_ranks(r);
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
        .gradient_norm = norm,
        .rank_squares = rank_squares(r),
        .logical_ranks = s->ranks,
    };
    struct bl_guard_input guarded = {sizeof guarded, 0, step, ce + aux, norm, lr};
    struct verdict v = {1, 0};
    int rc = run_monitors(r, &in, 0, err);
    if (rc == 0)
        rc = run_guards(r, 0, &guarded, &v, err);
    if ((observed || s->guards.count > 0) && agree(r, rc, err) < 0)
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
    settle_guards(r, skipped || failed);
    in.skipped = skipped != 0;
    if (!failed && observed && agree(r, run_monitors(r, &in, 1, err), err) < 0)
        goto fail;

    double seconds = r->waited + bl_clock() - start;
    r->peers = bl_world_waited(r->world) - peers;
    r->seconds = seconds - r->peers;
    bl_metrics_set(r->metrics, "time/data", r->waited);
    bl_metrics_set(r->metrics, "perf/step_seconds", seconds);
    bl_metrics_set(r->metrics, "perf/tokens_per_second",
                   (double)(s->info.sequences * s->info.context) / seconds);
    bl_metrics_set(r->metrics, "perf/memory_bytes", (double)bl_memory_peak());
    if (failed)
        goto fail;
    r->gradients_ready = r->ce_ready = 0;
    r->step = step;
    bl_run_tell_job(r, ce + aux);
    return 0;
fail: /* the row of the step that ends a run tells why */
    r->gradients_ready = r->ce_ready = 0;
    bl_metrics_emit(r->metrics, step, r->directory.attempt);
    return -1;
}
