/* A run from an empty directory or a checkpoint to its last step. */
#include "run.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "header.h"
#include "run_internal.h"
#include "stop.h"

static void run_free(struct bl_run *r)
{
    bl_job_free(r->job);
    bl_run_free_saver(r);
    bl_prefetch_free(r->prefetch); /* its thread uses the source */
    bl_alarms_free(r->alarms);
    json_decref(r->notes);
    bl_metrics_free(r->metrics);
    bl_update_free(r->update);
    bl_regularizers_free(r->regularizers);
    bl_rows_free(&r->rows);
    bl_rows_free(&r->eval_rows);
    bl_run_free_gradient(r);
    bl_rank_rows_free(r->rank_rows);
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
    if (bl_run_make_gradient(r, err) < 0 ||
        bl_rank_rows_make((uint32_t)s->ranks, r->processes, &r->rank_rows, err) < 0)
        return -1;
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
    if (make_arrays(r, err) < 0)
        return -1;
    struct bl_update_setup u = {
        .params = &s->params,
        .weights = bl_model_weights(r->model),
        .gradients = r->gradient,
        .rules = c->rules,
        .rule_count = c->rule_count,
        .weight_decay = c->optimizer.weight_decay,
        .peak_learning_rate = c->optimizer.lr,
        .optimizer = s->optimizer,
        .backend = r->backend,
        .dials = &s->dials,
        .seed = s->info.seed,
        .shard = r->border != NULL ? &r->shards : NULL,
        .refresh = refresh,
        .refresh_context = r->model,
    };
    return bl_update_make(&u, &r->update, err);
}

/* What process 0 found, for the others, which have neither a lock nor a file of their own. */
struct identity {
    uint64_t plan;
    uint32_t attempt;
};

static int open_directory(struct bl_run *r, struct bl_error *err)
{
    if (bl_rundir_open(r->s, &r->how, &r->directory, err) < 0)
        return -1;
    char *path = bl_format("%s/log.txt", r->directory.path);
    int rc = path != NULL ? bl_log_file(path) : -1;
    if (rc < 0)
        bl_error_set(err, BL_EXIT_FAILED, "%s/log.txt cannot be opened", r->directory.path);
    free(path);
    return rc;
}

/* The run's directory and what writes there: only once nothing in the config can be refused, as
 * `fresh` removes an older run. */
static int open_outputs(struct bl_run *r, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    int rc = r->process == 0 ? open_directory(r, err) : 0;
    struct identity identity = {r->directory.plan, r->directory.attempt};
    if (bl_world_agree(r->world, rc, err) < 0 ||
        bl_world_broadcast(r->world, 0, &identity, sizeof identity, err) < 0)
        return -1;
    if (r->process > 0) {
        r->directory.path = strdup(s->directory);
        r->directory.plan = identity.plan;
        r->directory.attempt = identity.attempt;
    }
    rc = r->process > 0 && r->directory.path == NULL
             ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
             : 0;
    if (rc == 0 && r->process == 0)
        rc = bl_setup_create_sinks(s, err);
    if (rc == 0)
        rc = bl_alarms_make(s->config->alarms, s->config->alarm_count, &r->alarms, err);
    if (rc == 0)
        rc =
            bl_metrics_make(s->sinks.items, r->process == 0 ? s->sinks.count : 0, &r->metrics, err);
    return bl_world_agree(r->world, rc, err);
}

static int write_header(const struct bl_run *r, struct bl_error *err)
{
    const struct bl_rundir *d = &r->directory;
    char *path = bl_format("%s/header.json", d->path);
    json_t *first = bl_attempts_first(d->path, d->attempt);
    int rc = path == NULL ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
                          : bl_header_write(r->s, r->backend, r->world, r->sum,
                                            bl_attempts_history(d->path, d->attempt),
                                            json_object_get(first, "from"), path, err);
    json_decref(first);
    free(path);
    return rc;
}

/* config.cfg, this attempt's file, header.json. */
static int write_identity(const struct bl_run *r, struct bl_error *err)
{
    const struct bl_rundir *d = &r->directory;
    if (r->process > 0)
        return 0;
    if (bl_rundir_keep_config(d, err) < 0 ||
        bl_attempts_write(d->path, d->attempt, r->s, r->step, r->notes, err) < 0 ||
        write_header(r, err) < 0) {
        bl_rundir_owns(d, err); /* a later start removes what this one writes: the better reason */
        return -1;
    }
    return 0;
}

/* Fresh weights, or those of the newest checkpoint; meanwhile the first batch is read. */
static int start(struct bl_run *r, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    if (bl_run_resume(r, err) < 0 || bl_run_make_saver(r, err) < 0)
        return -1;
    r->saved = r->step;
    struct bl_batches batches = {
        .source = s->train,
        .seed = s->info.seed,
        .context = s->info.context,
        .vocab = s->info.vocab,
        .sequences = s->info.sequences,
        .available = s->train_info.sequences,
        .origin = r->origin,
    };
    if (r->step < s->info.steps &&
        bl_prefetch_make(&batches, r->step + 1, s->info.steps, &r->prefetch, err) < 0)
        return -1;
    if (r->step == 0) {
        bl_params_init_threads(&s->params, s->info.seed, bl_model_weights(r->model), r->backend);
        bl_update_store(r->update, 0, s->params.count);
        bl_model_refresh(r->model, 0, s->params.floats);
        return bl_run_gather_weights(r, err);
    }
    return 0;
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

/* How the others were found, and in which order gradients are added: what bits depend on. */
static void announce_reduction(const struct bl_run *r)
{
    if (r->processes > 1)
        bl_log(BL_LOG_INFO, "%u processes on %u nodes by %s: %s", r->processes,
               1 + bl_world_node(r->world, r->processes - 1), bl_world_method(r->world),
               bl_world_transport(r->world));
    if (r->s->ranks == 1)
        return;
    struct bl_text t = {0};
    bl_sum_text(r->sum, &t);
    for (char *line = t.text, *end; line != NULL && *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        if (*end != '\0')
            *end++ = '\0';
        bl_log(BL_LOG_INFO, "%s", line);
    }
    bl_text_free(&t);
}

static void announce(const struct bl_run *r)
{
    const struct bl_setup *s = r->s;
    char parameters[32], tokens[32];
    bl_log(BL_LOG_INFO, "%s", r->backend->description);
    bl_log(BL_LOG_INFO,
           "%s: %s parameters, %s tokens a step, ranks %llu, processes %u, micro %lld, "
           "vocabulary %llu",
           r->directory.path, bl_human((double)s->params.elements, parameters),
           bl_human((double)(s->info.sequences * s->info.context), tokens),
           (unsigned long long)s->ranks, r->processes, (long long)s->config->batch.micro,
           (unsigned long long)s->info.vocab);
    announce_precision(&s->dials);
    announce_reduction(r);
}

/* Whether `every` (0: never) falls on this step; the last step always counts. */
static int falls(int64_t every, uint64_t step, uint64_t last)
{
    return step == last || (every > 0 && step % (uint64_t)every == 0);
}

/* Evaluates the alarms on the row as it stands. Their names are checked once, in the first row that
 * has a value of every monitor. */
static int judge(struct bl_run *r, int *names_checked, struct bl_alarms_verdict *out,
                 struct bl_error *err)
{
    static const char *const with_validation[] = {"loss/val", "loss/val_perplexity", NULL};
    struct bl_metrics_row row;
    bl_metrics_row(r->metrics, &row);
    if (bl_alarms_check(r->alarms, r->step, &row, out, err) < 0)
        return -1;
    int all_due = 1;
    for (size_t i = 0; i < r->s->monitors.count; i++)
        all_due &= bl_run_is_due(r->s->monitors.items[i], r->step);
    if (all_due && !*names_checked) {
        bl_alarms_check_names(r->alarms, &row,
                              with_validation + (r->s->validation != NULL ? 0 : 2));
        *names_checked = 1;
    }
    return 0;
}

/* Process 0 has the row that counts: clocks are in it. */
static int check_alarms(struct bl_run *r, int *names_checked, struct bl_alarms_verdict *out,
                        struct bl_error *err)
{
    struct {
        int rc;
        struct bl_alarms_verdict verdict;
    } told = {0};
    if (r->process == 0) {
        told.rc = judge(r, names_checked, out, err);
        told.verdict = *out;
    }
    if (r->s->config->alarm_count == 0)
        return told.rc;
    if (bl_world_broadcast(r->world, 0, &told, sizeof told, err) < 0)
        return -1;
    *out = told.verdict;
    /* The error itself is told only when there is one. */
    return told.rc < 0 ? bl_world_agree(r->world, r->process == 0 ? -1 : 0, err) : 0;
}

static int stopped_by_alarm(const struct bl_run *r, const char *why, struct bl_error *err)
{
    if (r->step == r->s->info.steps)
        return bl_error_set(err, BL_EXIT_DIVERGED,
                            "all %llu steps are done and the last checkpoint is kept, but the last "
                            "row set off %s",
                            (unsigned long long)r->step, why);
    return bl_error_set(err, BL_EXIT_DIVERGED,
                        "stopped after step %llu of %llu with a checkpoint by %s; the same command "
                        "goes on from there and stops again if that is still so: change the alarm, "
                        "or what it warns of",
                        (unsigned long long)r->step, (unsigned long long)r->s->info.steps, why);
}

static int directory_there(struct bl_run *r, struct bl_error *err)
{
    return r->process == 0 ? bl_rundir_check(&r->directory, err) : 0;
}

/* Ends an unfinished run because of a signal; never twice with the same checkpoint. */
static int stop(struct bl_run *r, int number, struct bl_error *err)
{
    if (r->step > 0 && (directory_there(r, err) < 0 || bl_run_save_last(r, err) < 0))
        return -1;
    if (r->step == 0)
        return bl_error_set(err, bl_stop_code(number),
                            "stopped by %s before the first step: nothing was trained, the same "
                            "command starts again",
                            bl_stop_name(number));
    return bl_error_set(err, bl_stop_code(number),
                        "stopped by %s after step %llu of %llu with a checkpoint; the same command "
                        "goes on from there",
                        bl_stop_name(number), (unsigned long long)r->step,
                        (unsigned long long)r->s->info.steps);
}

/* A sequence that cannot be read has changed nothing: what was trained so far is kept. */
static int no_data(struct bl_run *r, const struct bl_error *err)
{
    struct bl_error other = BL_ERROR_INIT;
    if (err != NULL && err->code == BL_EXIT_PEER)
        return -1;
    if (r->step > 0 && (directory_there(r, &other) < 0 || bl_run_save_last(r, &other) < 0))
        bl_log(BL_LOG_WARNING, "%s", other.text);
    return -1;
}

static int loop(struct bl_run *r, struct bl_error *err)
{
    const struct bl_run_options *o = &r->s->config->run;
    uint64_t last = r->s->info.steps;
    uint64_t check_every = (uint64_t)r->s->config->cluster.check_every;
    int names_checked = 0;
    while (r->step < last) {
        int got = bl_run_read(r, err);
        if (got != 0)
            return got < 0 ? no_data(r, err) : stop(r, r->signal, err);
        if (directory_there(r, err) < 0 || bl_run_step(r, err) < 0)
            return -1;
        if (r->s->validation != NULL && falls(o->eval_every, r->step, last) &&
            bl_run_evaluate(r, err) < 0) {
            bl_metrics_emit(r->metrics, r->step, r->directory.attempt);
            return no_data(r, err);
        }
        if (check_every > 0 && r->step % check_every == 0 && bl_run_compare(r, err) < 0)
            return -1;
        struct bl_alarms_verdict alarm = {0};
        if (check_alarms(r, &names_checked, &alarm, err) < 0)
            return -1;
        bl_metrics_emit(r->metrics, r->step, r->directory.attempt);
        if (directory_there(r, err) < 0 || bl_run_save(r, alarm.checkpoint, err) < 0 ||
            ((alarm.stop[0] != '\0' || r->step == last) && bl_run_save_last(r, err) < 0))
            return alarm.stop[0] != '\0' ? bl_error_prefix(err, "%s", alarm.stop) : -1;
        if (alarm.stop[0] != '\0')
            return stopped_by_alarm(r, alarm.stop, err);
    }
    return 0;
}

int bl_run_ends_everywhere(int code)
{
    return code == BL_EXIT_DIVERGED || code == BL_EXIT_REQUEUE || code == BL_EXIT_INTERRUPTED;
}

/* One process's failure is that of all: the others, which may wait for it, are told. Not of what
 * comes to all at once, nor of what they agreed on. */
static void tell(struct bl_run *r, const struct bl_error *err)
{
    if (r->processes > 1 && err != NULL && err->text[0] != '\0' && err->code != BL_EXIT_PEER &&
        !bl_run_ends_everywhere(err->code))
        bl_world_abort(r->world, err->text);
}

int bl_run_train(struct bl_setup *s, struct bl_world *world, const struct bl_start *how,
                 struct bl_error *err)
{
    struct bl_run r = {.s = s,
                       .how = *how,
                       .world = world,
                       .process = bl_world_process(world),
                       .processes = bl_world_processes(world),
                       .directory = {.folder = -1, .lock = -1, .claim = -1},
                       .lost = BL_ERROR_INIT};
    int rc = -1;
    if (bl_world_agree(world, run_make(&r, err), err) < 0)
        goto done;
    bl_stop_defer(1); /* what is written is written whole */
    if (open_outputs(&r, err) < 0)
        goto done;
    bl_stop_defer(0);
    if (start(&r, err) < 0)
        goto done;
    bl_stop_defer(1);
    if (bl_world_agree(world, write_identity(&r, err), err) < 0)
        goto done;
    if (r.step >= s->info.steps) {
        bl_log(BL_LOG_INFO, "%s: complete, all %llu steps are done", r.directory.path,
               (unsigned long long)s->info.steps);
        rc = 0;
        goto done;
    }
    announce(&r);
    if (r.process == 0)
        r.job = bl_job_make();
    rc = loop(&r, err);
    if (rc < 0)
        bl_run_save_end(&r, err);
    bl_metrics_finish(r.metrics);
    if (rc == 0)
        bl_log(BL_LOG_INFO, "%s: complete", r.directory.path);
    if (bl_metrics_failures(r.metrics) > 0)
        bl_log(BL_LOG_WARNING, "%llu rows of metrics could not be written by some sink",
               (unsigned long long)bl_metrics_failures(r.metrics));
done:
    bl_stop_defer(1);          /* it is over: a signal changes nothing any more */
    if (rc < 0 && err != NULL) /* main prints it, when log.txt is closed */
        bl_log_record(err->code == BL_EXIT_REQUEUE || err->code == BL_EXIT_INTERRUPTED
                          ? BL_LOG_INFO
                          : BL_LOG_ERROR,
                      err->text);
    if (rc < 0)
        tell(&r, err);
    run_free(&r);
    return rc;
}
