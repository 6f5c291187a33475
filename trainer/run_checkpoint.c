/* A run's state to checkpoints/<step>/ and checkpoints/ring/<step>/, while it goes on. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "budget.h"
#include "checkpoint/saver.h"
#include "run_state.h"

struct saved {
    struct bl_checkpoint_plugin *items;
    size_t count, capacity;
};

/* Takes key and buffer, either of which may be NULL for want of memory. */
static int keep(struct saved *saved, char *key, char *buffer, uint64_t bytes, struct bl_error *err)
{
    if (saved->count == saved->capacity) {
        size_t capacity = saved->capacity ? 2 * saved->capacity : 8;
        struct bl_checkpoint_plugin *grown = realloc(saved->items, capacity * sizeof *grown);
        if (grown != NULL) {
            saved->items = grown;
            saved->capacity = capacity;
        }
    }
    if (buffer == NULL || key == NULL || saved->count == saved->capacity) {
        free(buffer);
        free(key);
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
    }
    saved->items[saved->count++] = (struct bl_checkpoint_plugin){key, buffer, bytes};
    return 0;
}

static int save_instance(struct bl_plugin_instance *i, void *context, struct bl_error *err)
{
    struct saved *saved = context;
    if (i->ops.common.save == NULL)
        return 0;
    uint64_t bytes = i->ops.common.save(i->self, NULL, 0);
    char *buffer = malloc(bytes + 1);
    uint64_t got = buffer != NULL ? i->ops.common.save(i->self, buffer, bytes) : bytes;
    if (keep(saved, bl_format("%s.%s", bl_kind_name(i->plugin->kind), i->name), buffer, bytes,
             err) < 0)
        return -1;
    if (got != bytes)
        return bl_error_set(
            err, BL_EXIT_FAILED,
            "plugin %s: save wants %llu bytes, then %llu; its state changed between", i->name,
            (unsigned long long)bytes, (unsigned long long)got);
    return 0;
}

static void saved_free(struct saved *s)
{
    for (size_t i = 0; i < s->count; i++) {
        free((void *)(uintptr_t)s->items[i].key);
        free((void *)(uintptr_t)s->items[i].bytes);
    }
    free(s->items);
}

static int save_alarms(const struct bl_run *r, struct saved *saved, struct bl_error *err)
{
    char *text;
    if (r->s->config->alarm_count == 0)
        return 0;
    if (bl_alarms_save(r->alarms, &text, err) < 0)
        return -1;
    return keep(saved, strdup(bl_run_alarms_key), text, strlen(text), err);
}

struct loaded {
    struct bl_checkpoint_loaded *items;
    size_t count;
};

static int count_plugin(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    (void)key;
    (void)plugin;
    ++*(size_t *)context;
    return 0;
}

static int add_loaded(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    struct loaded *l = context;
    struct bl_checkpoint_loaded *item = &l->items[l->count];
    *item = (struct bl_checkpoint_loaded){strdup(key), bl_library_checksum(plugin->library)};
    l->count += item->key != NULL;
    return item->key != NULL ? 0 : -1;
}

static void loaded_free(struct loaded *l)
{
    for (size_t i = 0; i < l->count; i++)
        free((char *)(uintptr_t)l->items[i].key);
    free(l->items);
}

static int loaded_make(const struct bl_run *r, struct loaded *out, struct bl_error *err)
{
    size_t n = 0;
    bl_attempts_each_plugin(r->s, count_plugin, &n);
    *out = (struct loaded){calloc(n + 1, sizeof *out->items), 0};
    if (out->items != NULL && bl_attempts_each_plugin(r->s, add_loaded, out) == 0)
        return 0;
    loaded_free(out);
    *out = (struct loaded){NULL, 0};
    return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
}

/* A checkpoint from which nothing can go on must not push good ones out. */
static int check_finite(struct bl_run *r, struct bl_error *err)
{
    double squares =
        r->backend->ops->sum_squares(r->backend, r->s->params.floats, bl_model_weights(r->model));
    if (isfinite(squares))
        return 0;
    return bl_error_set(err, BL_EXIT_DIVERGED,
                        "diverged at step %llu: the update made weights that are not finite; no "
                        "checkpoint is written, those before it stay",
                        (unsigned long long)r->step);
}

/* ---- the saver ------------------------------------------------------------------------------- */

static int owns(void *context, struct bl_error *err)
{
    const struct bl_run *r = context;
    return bl_rundir_owns(&r->directory, err);
}

/* What this process writes, without plugins. */
static int view(struct bl_run *r, struct bl_run_views *v, struct bl_checkpoint *c,
                struct bl_error *err)
{
    const uint64_t *part = r->saving.parts + r->process;
    if (bl_run_views_make(r, part[0], part[1], v, err) < 0)
        return -1;
    if (r->processes == 1)
        bl_run_views_whole(v);
    else
        bl_run_views_drop_empty(v);
    *c = (struct bl_checkpoint){
        .weights = v->weights,
        .weight_count = r->process == 0 ? v->weight_count : 0,
        .states = v->states,
        .state_count = v->state_count,
        .slices = r->processes > 1 ? v->slices : NULL,
        .shard = r->process,
        .shards = r->processes,
    };
    return 0;
}

/* Before the training, so that no save is the first to take it. */
static int reserve(struct bl_run *r, struct bl_error *err)
{
    struct bl_run_views v = {0};
    struct bl_checkpoint c;
    if (!bl_budget_copies(r->s) || r->step >= r->s->info.steps)
        return 0;
    if (view(r, &v, &c, err) < 0)
        return -1;
    if (bl_saver_reserve(r->saving.saver, &c) < 0)
        bl_log(BL_LOG_WARNING,
               "no memory for the copy that run.save = \"async\" writes from: every save holds the "
               "training up, as \"sync\" does");
    bl_run_views_free(&v);
    return 0;
}

int bl_run_make_saver(struct bl_run *r, struct bl_error *err)
{
    const struct bl_run_options *o = &r->s->config->run;
    char *folder = bl_format("%s/checkpoints", r->directory.path);
    uint64_t *parts = calloc(r->processes + 1, sizeof *parts);
    int rc = -1;
    if (folder == NULL || parts == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        goto done;
    }
    struct bl_saver_setup setup = {
        .directory = folder,
        .world = r->world,
        .copy = o->save == BL_SAVE_ASYNC,
        .keep = (uint64_t)o->keep,
        .keep_every = (uint64_t)o->keep_every,
        .ring = (uint64_t)o->ring,
        .owns = owns,
        .context = r,
        .parallel_for = bl_backend_parallel_for,
        .parallel_context = r->backend,
    };
    rc = bl_saver_make(&setup, &r->saving.saver, err);
    if (rc == 0) {
        bl_shard_cut(&r->s->params, r->processes, parts);
        r->saving.parts = parts;
        parts = NULL;
        rc = reserve(r, err);
    }
done:
    free(parts);
    free(folder);
    return rc;
}

void bl_run_free_saver(struct bl_run *r)
{
    bl_saver_free(r->saving.saver);
    free(r->saving.parts);
    free(r->saving.from);
    r->saving = (struct bl_run_saving){0};
}

static int begin(struct bl_run *r, uint32_t where, struct bl_error *err)
{
    struct bl_run_views v = {0};
    struct saved saved = {0};
    struct loaded loaded = {0};
    r->saving.began = bl_clock();
    struct bl_checkpoint c;
    int rc = -1;
    /* Compared first: what is not finite in one process alone is a fault of that one. */
    if (bl_run_compare(r, err) < 0 || check_finite(r, err) < 0 || view(r, &v, &c, err) < 0 ||
        bl_run_each_instance(r, save_instance, &saved, err) < 0 ||
        save_alarms(r, &saved, err) < 0 || loaded_make(r, &loaded, err) < 0)
        goto done;
    c.info = bl_run_info(r);
    c.plugins = saved.items;
    c.plugin_count = saved.count;
    c.loaded = loaded.items;
    c.loaded_count = loaded.count;
    c.config = r->directory.config;
    c.from = r->saving.from;
    rc = bl_saver_begin(r->saving.saver, &c, where, err);
done:
    loaded_free(&loaded);
    saved_free(&saved);
    bl_run_views_free(&v);
    return rc;
}

static void take_report(struct bl_run *r, const struct bl_saver_report *report)
{
    if (report->published & BL_SAVE_CHECKPOINT) {
        r->saved = report->step;
        r->saving.seconds = bl_clock() - r->saving.began;
        if (r->process == 0)
            bl_job_saved(report->step);
        bl_log(BL_LOG_INFO, "checkpoint %s/checkpoints/%llu", r->directory.path,
               (unsigned long long)report->step);
    }
    if (report->event == BL_SAVER_FAILED) {
        r->saving.failed++;
        bl_log(BL_LOG_WARNING,
               "step %llu is not saved, the older checkpoints stay and the run goes on: %s",
               (unsigned long long)report->step, report->error.text);
    }
}

static int settle(struct bl_run *r, struct bl_saver_report *report, struct bl_error *err)
{
    if (bl_saver_wait(r->saving.saver, report, err) < 0)
        return -1;
    take_report(r, report);
    return 0;
}

/* After the last step there is nothing to go on with beside the save. */
static int start_save(struct bl_run *r, uint32_t where, struct bl_error *err)
{
    struct bl_saver_report report;
    int still = r->s->config->run.save != BL_SAVE_ASYNC || r->step == r->s->info.steps;
    if (settle(r, &report, err) < 0 || begin(r, where | (still ? BL_SAVE_STILL : 0), err) < 0)
        return -1;
    return still ? settle(r, &report, err) : 0;
}

static uint32_t due(const struct bl_run *r, int wanted)
{
    const struct bl_run_options *o = &r->s->config->run;
    uint32_t where = 0;
    if (wanted || r->step == r->s->info.steps ||
        (o->checkpoint_every > 0 && r->step % (uint64_t)o->checkpoint_every == 0))
        where |= BL_SAVE_CHECKPOINT;
    if (o->ring > 0 && r->step % (uint64_t)o->ring_every == 0)
        where |= BL_SAVE_RING;
    return where;
}

int bl_run_save(struct bl_run *r, int wanted, struct bl_error *err)
{
    uint32_t where = due(r, wanted);
    double start = bl_clock();
    int rc = 0;
    if (where != 0) {
        rc = start_save(r, where, err);
    } else if (bl_saver_busy(r->saving.saver)) {
        struct bl_saver_report report;
        rc = bl_saver_poll(r->saving.saver, &report, err);
        if (rc == 0)
            take_report(r, &report);
    } else {
        start = NAN;
    }
    if (rc == 0 && !isnan(start))
        bl_metrics_set(r->metrics, "time/checkpoint", bl_clock() - start);
    if (rc == 0 && r->saving.failed > 0)
        bl_metrics_set(r->metrics, "checkpoint/failed", (double)r->saving.failed);
    return rc;
}

int bl_run_save_last(struct bl_run *r, struct bl_error *err)
{
    struct bl_saver_report report;
    if (settle(r, &report, err) < 0)
        return -1;
    if (r->saved == r->step)
        return 0;
    if (begin(r, BL_SAVE_CHECKPOINT | BL_SAVE_STILL, err) < 0 ||
        bl_saver_wait(r->saving.saver, &report, err) < 0)
        return -1;
    if (report.event == BL_SAVER_FAILED)
        return bl_error_set(err, report.error.code, "%s", report.error.text);
    take_report(r, &report);
    return 0;
}

void bl_run_save_end(struct bl_run *r, const struct bl_error *err)
{
    struct bl_saver_report report;
    struct bl_error other = BL_ERROR_INIT;
    if (r->saving.saver == NULL || !bl_saver_busy(r->saving.saver))
        return;
    /* Others that do not end here, or are gone, would not answer. */
    if (r->processes > 1 && (err == NULL || err->code != BL_EXIT_DIVERGED))
        return;
    if (settle(r, &report, &other) < 0)
        bl_log(BL_LOG_WARNING, "%s", other.text);
}
