/* The held-out loss: every process takes its share of the micro-batches, all get every sum. */
#include <math.h>

#include "base/memory.h"
#include "run_internal.h"
#include "stop.h"

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
    bl_sequence_read(s->validation, s->validation_first + g->first + i, s->info.vocab,
                     g->r->batch.tokens + at, g->r->batch.targets + at, &g->errors[i]);
}

/* Reads n sequences in parallel; the first failing sequence is the error, whatever the threads. */
static int read_all(const struct bl_run *r, uint64_t first, uint64_t n, struct bl_error *err)
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
    return rc;
}

/* Of one micro-batch. The targets of one that a signal cut off are -1: there is no value then. */
struct part {
    double sum;
    int64_t targets;
};

static int evaluate_part(struct bl_run *r, uint64_t first, uint64_t count, struct part *out,
                         struct bl_error *err)
{
    if (read_all(r, first, count, err) < 0)
        return -1;
    struct bl_pass pass = {.tokens = r->batch.tokens,
                           .targets = r->batch.targets,
                           .sequences = count,
                           .hooks = bl_regularizers_transforms(r->regularizers),
                           .rows = &r->eval_rows};
    r->eval_rows.count = 0;
    if (bl_model_evaluate(r->model, &pass, err) < 0)
        return -1;
    out->sum = bl_run_cross_entropy(&r->eval_rows, 0, r->eval_rows.count);
    out->targets = 0;
    for (uint64_t i = 0; i < count * r->s->info.context; i++)
        out->targets += r->batch.targets[i] >= 0;
    return 0;
}

/* The parts of this process; the batch is free between steps and holds a micro-batch. */
static int evaluate_share(struct bl_run *r, uint64_t n, uint64_t first, uint64_t last,
                          struct part *parts, struct bl_error *err)
{
    uint64_t micro = (uint64_t)r->s->config->batch.micro;
    for (uint64_t i = first; i < last; i++)
        parts[i].targets = -1;
    for (uint64_t i = first; i < last; i++) {
        uint64_t at = i * micro;
        if (bl_stop_signal() != 0 && r->step < r->s->info.steps)
            return 0;
        if (evaluate_part(r, at, n - at < micro ? n - at : micro, &parts[i], err) < 0)
            return -1;
    }
    return 0;
}

int bl_run_evaluate(struct bl_run *r, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    uint64_t micro = (uint64_t)s->config->batch.micro, context = s->info.context;
    uint64_t n = s->validation_info.sequences, limit = (uint64_t)s->config->run.eval_tokens;
    if (limit > 0 && n > (limit + context - 1) / context)
        n = (limit + context - 1) / context;
    uint64_t count = (n + micro - 1) / micro, begin[r->processes + 1];
    struct part *parts = bl_alloc(count + 1, sizeof *parts);
    if (parts == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "evaluation: out of memory");
    for (uint32_t p = 0; p <= r->processes; p++)
        begin[p] = count * p / r->processes;
    int rc = evaluate_share(r, n, begin[r->process], begin[r->process + 1], parts, err);
    for (uint32_t p = 0; p <= r->processes; p++)
        begin[p] *= sizeof *parts;
    if (bl_world_agree(r->world, rc, err) < 0 ||
        bl_world_gather_parts(r->world, parts, begin, err) < 0) {
        bl_free(parts);
        return -1;
    }
    double sum = 0;
    int64_t targets = 0, whole = 1;
    for (uint64_t i = 0; i < count; i++) {
        whole &= parts[i].targets >= 0;
        targets += parts[i].targets;
        sum += parts[i].sum;
    }
    bl_free(parts);
    if (!whole)
        return 0;
    double loss = targets > 0 ? sum / (double)targets : NAN;
    bl_metrics_set(r->metrics, "loss/val", loss);
    bl_metrics_set(r->metrics, "loss/val_perplexity", exp(loss)); /* saturates to inf */
    return 0;
}
