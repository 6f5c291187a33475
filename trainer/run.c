/* A run from an empty directory or a checkpoint to its last step. */
#include "run.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "header.h"
#include "run_internal.h"

/* Which signal asks the run to stop. A handler can reach nothing else. */
static volatile sig_atomic_t stop_signal;

static void on_signal(int number)
{
    stop_signal = number;
}

/* A second signal of the same kind ends the process at once: SA_RESETHAND. */
static void watch_signals(int on)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGUSR1};
    stop_signal = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction a = {0};
        a.sa_handler = on ? on_signal : SIG_DFL;
        a.sa_flags = on ? (int)(SA_RESTART | SA_RESETHAND) : 0;
        sigemptyset(&a.sa_mask);
        sigaction(numbers[i], &a, NULL);
    }
}

static void run_free(struct bl_run *r)
{
    bl_metrics_free(r->metrics);
    bl_update_free(r->update);
    bl_regularizers_free(r->regularizers);
    bl_rows_free(&r->rows);
    bl_rows_free(&r->eval_rows);
    bl_free(r->tokens);
    bl_free(r->targets);
    if (r->s->ranks > 1) {
        bl_free(r->sum);
        bl_free(r->ce_sum);
    }
    bl_model_free(r->model);
    /* What a plugin asks the host for while it is destroyed is no longer there. */
    r->metrics = NULL;
    r->update = NULL;
    r->model = NULL;
    /* Plugins may hold host memory and threads' results, never threads: they go before the pool. */
    bl_setup_free(r->s);
    bl_backend_destroy(r->backend);
    bl_log_file(NULL);
    bl_rundir_close(&r->directory);
}

static void refresh(void *context, uint64_t offset, uint64_t count)
{
    bl_model_refresh(context, offset, count);
}

static int has_transforms(const struct bl_run *r)
{
    return bl_regularizers_transforms(r->regularizers)->transforms > 0;
}

static int needs_pz(const struct bl_run *r)
{
    int needs = (bl_regularizers_hooks(r->regularizers)->needs & BL_NEED_PZ) != 0;
    for (size_t i = 0; i < r->s->monitors.count; i++) {
        const struct bl_plugin_instance *m = r->s->monitors.items[i];
        if (m->ops.monitor.needs != NULL && (m->ops.monitor.needs(m->self) & BL_MONITOR_PZ))
            needs = 1;
    }
    return needs;
}

static int make_arrays(struct bl_run *r, struct bl_error *err)
{
    const struct bl_setup *s = r->s;
    uint64_t rows = s->info.sequences * s->info.context;
    r->tokens = bl_alloc(rows, sizeof *r->tokens);
    r->targets = bl_alloc(rows, sizeof *r->targets);
    r->head = bl_params_find(&s->params, s->info.head);
    r->sum = bl_model_gradients(r->model);
    if (s->ranks > 1) {
        r->sum = bl_alloc(s->params.floats, sizeof *r->sum);
        r->ce_sum = s->info.tied ? NULL : bl_alloc(s->params.items[r->head].count, sizeof(float));
    }
    if (r->tokens == NULL || r->targets == NULL || r->sum == NULL ||
        (s->ranks > 1 && !s->info.tied && r->ce_sum == NULL))
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory for the batch and its gradients");
    if (bl_rows_make(rows, needs_pz(r), has_transforms(r), &r->rows, err) < 0)
        return -1;
    return s->validation != NULL ? bl_rows_make((uint64_t)s->config->batch.micro * s->info.context,
                                                0, 0, &r->eval_rows, err)
                                 : 0;
}

static int run_make(struct bl_run *r, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    const struct bl_config *c = s->config;
    if (bl_backend_cpu((uint32_t)c->run.threads, "auto", &r->backend, err) < 0 ||
        bl_model_make(r->backend, &c->model, &s->dials, (uint64_t)c->batch.micro, &r->model, err) <
            0)
        return -1;
    bl_run_services(r);
    if (bl_setup_create(s, err) < 0 ||
        bl_regularizers_make(s->regularizers.items, s->regularizers.count, r->backend,
                             s->info.sequences * s->info.context, &r->regularizers, err) < 0)
        return -1;
    r->reduce = (struct bl_reduce){r->backend, &s->params, &s->dials, s->ranks};
    if (bl_reduce_check(&r->reduce, err) < 0 || make_arrays(r, err) < 0)
        return -1;
    struct bl_update_setup u = {
        .params = &s->params,
        .weights = bl_model_weights(r->model),
        .gradients = bl_model_gradients(r->model),
        .rules = c->rules,
        .rule_count = c->rule_count,
        .weight_decay = c->optimizer.weight_decay,
        .optimizer = s->optimizer,
        .backend = r->backend,
        .refresh = refresh,
        .refresh_context = r->model,
    };
    return bl_update_make(&u, &r->update, err);
}

/* The run's directory and what writes there: only once nothing in the config can be refused, as
 * `fresh` removes an older run. */
static int open_outputs(struct bl_run *r, int fresh, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    if (bl_rundir_open(s, fresh, &r->directory, err) < 0)
        return -1;
    char *path = bl_format("%s/log.txt", r->directory.path);
    int rc = path != NULL ? bl_log_file(path) : -1;
    if (rc < 0)
        bl_error_set(err, BL_EXIT_FAILED, "%s/log.txt cannot be opened", r->directory.path);
    free(path);
    return rc < 0 || bl_setup_create_sinks(s, err) < 0
               ? -1
               : bl_metrics_make(s->sinks.items, s->sinks.count, &r->metrics, err);
}

/* Fresh weights, or those of the newest checkpoint. */
static int start(struct bl_run *r, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    if (bl_run_resume(r, err) < 0)
        return -1;
    if (r->step == 0) {
        bl_params_init_threads(&s->params, s->info.seed, bl_model_weights(r->model), r->backend);
        bl_model_refresh(r->model, 0, s->params.floats);
    }
    char *path = bl_format("%s/header.json", r->directory.path);
    if (path == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    int rc = bl_header_write(s, r->backend, path, err);
    free(path);
    return rc;
}

/* One line for all groups where they agree, one a group where they do not. */
static void announce_precision(const struct bl_precision *dials)
{
    struct bl_text t[BL_GROUP_COUNT] = {{0}};
    int agree = 1;
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        bl_dials_text(dials, g, &t[g]);
        agree = agree && t[g].text != NULL && t[0].text != NULL && !strcmp(t[g].text, t[0].text);
    }
    for (uint32_t g = 0; g < (agree ? 1 : BL_GROUP_COUNT); g++)
        bl_log(BL_LOG_INFO, "precision of %s: %s", agree ? "every tensor" : bl_group_name(g),
               t[g].text != NULL ? t[g].text : "");
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++)
        bl_text_free(&t[g]);
}

static void announce(const struct bl_run *r)
{
    const struct bl_setup *s = r->s;
    char parameters[32], tokens[32];
    bl_log(BL_LOG_INFO, "%s", r->backend->description);
    bl_log(BL_LOG_INFO,
           "%s: %s parameters, %s tokens a step, ranks %llu, micro %lld, vocabulary %llu",
           r->directory.path, bl_human((double)s->params.elements, parameters),
           bl_human((double)(s->info.sequences * s->info.context), tokens),
           (unsigned long long)s->ranks, (long long)s->config->batch.micro,
           (unsigned long long)s->info.vocab);
    announce_precision(&s->dials);
}

/* Whether `every` (0: never) falls on this step; the last step always counts. */
static int falls(int64_t every, uint64_t step, uint64_t last)
{
    return step == last || (every > 0 && step % (uint64_t)every == 0);
}

static int loop(struct bl_run *r, struct bl_error *err)
{
    const struct bl_run_options *o = &r->s->config->run;
    uint64_t last = r->s->info.steps;
    while (r->step < last) {
        if (bl_run_step(r, err) < 0)
            return -1;
        if (r->s->validation != NULL && falls(o->eval_every, r->step, last) &&
            bl_run_evaluate(r, err) < 0)
            return -1;
        bl_metrics_emit(r->metrics, r->step, r->directory.attempt);
        int stop = stop_signal;
        if ((stop != 0 || falls(o->checkpoint_every, r->step, last)) && bl_run_save(r, err) < 0)
            return -1;
        if (stop != 0 && r->step < last)
            return bl_error_set(err, stop == SIGINT ? BL_EXIT_INTERRUPTED : BL_EXIT_REQUEUE,
                                "stopped by %s after step %llu of %llu with a checkpoint; the same "
                                "command goes on from there",
                                strsignal(stop), (unsigned long long)r->step,
                                (unsigned long long)last);
    }
    return 0;
}

int bl_run_train(struct bl_setup *s, int fresh, struct bl_error *err)
{
    struct bl_run r = {.s = s, .directory = {NULL, -1, 0}};
    int rc = -1;
    watch_signals(1);
    if (run_make(&r, err) < 0 || open_outputs(&r, fresh, err) < 0 || start(&r, err) < 0)
        goto done;
    if (r.step >= s->info.steps) {
        bl_log(BL_LOG_INFO, "%s: complete, all %llu steps are done", r.directory.path,
               (unsigned long long)s->info.steps);
        rc = 0;
        goto done;
    }
    announce(&r);
    rc = loop(&r, err);
    bl_metrics_finish(r.metrics);
    if (rc == 0)
        bl_log(BL_LOG_INFO, "%s: complete", r.directory.path);
    if (bl_metrics_failures(r.metrics) > 0)
        bl_log(BL_LOG_WARNING, "%llu rows of metrics could not be written by some sink",
               (unsigned long long)bl_metrics_failures(r.metrics));
done:
    watch_signals(0);
    run_free(&r);
    return rc;
}
