/* From the newest good checkpoint, or the one that the run is forked from, to the run's state. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/strings.h"
#include "run_state.h"

struct load_context {
    const struct bl_checkpoint_reader *reader;
    int replan; /* plugins may come and go */
};

static int load_instance(struct bl_plugin_instance *i, void *context, struct bl_error *err)
{
    const struct load_context *c = context;
    const struct bl_checkpoint_reader *reader = c->reader;
    if (i->ops.common.save == NULL)
        return 0;
    char *key = bl_format("%s.%s", bl_kind_name(i->plugin->kind), i->name);
    if (key == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
    uint64_t bytes = 0;
    const void *data = bl_checkpoint_plugin(reader, key, &bytes);
    int rc;
    if (data == NULL && i->plugin->kind == BL_KIND_SINK)
        rc = 0; /* sinks may come and go between starts */
    else if (data == NULL && c->replan) {
        bl_log(BL_LOG_WARNING, "the checkpoint has no state of %s, which starts without", key);
        rc = 0;
    } else if (data == NULL)
        rc = bl_error_set(err, BL_EXIT_CHECKPOINT,
                          "the checkpoint has no state of %s; it was written without that plugin",
                          key);
    else if (i->ops.common.load == NULL)
        rc = bl_error_set(err, BL_EXIT_CHECKPOINT, "plugin %s saves state but cannot load it", key);
    else {
        rc = i->ops.common.load(i->self, data, bytes, err);
        if (rc < 0) {
            err->code = BL_EXIT_CHECKPOINT;
            bl_error_prefix(err, "state of %s", key);
        }
    }
    free(key);
    return rc;
}

struct key_search {
    const char *key;
    int found;
};

static int match_key(struct bl_plugin_instance *i, void *context, struct bl_error *err)
{
    (void)err;
    struct key_search *k = context;
    const char *kind = bl_kind_name(i->plugin->kind);
    size_t n = strlen(kind);
    if (i->ops.common.save != NULL && strncmp(k->key, kind, n) == 0 && k->key[n] == '.' &&
        strcmp(k->key + n + 1, i->name) == 0)
        k->found = 1;
    return 0;
}

/* A plugin whose state is in the checkpoint but which is not loaded now is named, not dropped. */
static int check_no_orphans(struct bl_run *r, const struct load_context *c, struct bl_error *err)
{
    const struct bl_checkpoint_reader *reader = c->reader;
    for (size_t i = 0; i < bl_checkpoint_plugin_count(reader); i++) {
        struct key_search k = {bl_checkpoint_plugin_key(reader, i), 0};
        bl_run_each_instance(r, match_key, &k, NULL);
        if (k.found || strcmp(k.key, bl_run_alarms_key) == 0 || strncmp(k.key, "sink.", 5) == 0)
            continue;
        if (!c->replan)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "the checkpoint holds state of %s, which this config does not load",
                                k.key);
        bl_log(BL_LOG_WARNING, "the checkpoint's state of %s is left out", k.key);
    }
    return 0;
}

static int load_alarms(struct bl_run *r, const struct bl_checkpoint_reader *reader,
                       struct bl_error *err)
{
    uint64_t bytes;
    const void *text = bl_checkpoint_plugin(reader, bl_run_alarms_key, &bytes);
    return text != NULL ? bl_alarms_load(r->alarms, text, bytes, err) : 0;
}

/* ---- which checkpoint ------------------------------------------------------------------------ */

static int check_layout(const struct bl_run *r, const struct bl_checkpoint_info *i,
                        const char *path, struct bl_error *err)
{
    struct bl_checkpoint_info now = bl_run_info(r);
    if (i->seed != now.seed || i->ranks != now.ranks || i->micro != now.micro)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s was made with seed %llu, %u ranks, micro %llu; this run has seed "
                            "%llu, %u ranks, micro %llu; go on with those (cluster.emulate says "
                            "how many ranks), or give --replan",
                            path, (unsigned long long)i->seed, i->ranks,
                            (unsigned long long)i->micro, (unsigned long long)now.seed, now.ranks,
                            (unsigned long long)now.micro);
    return 0;
}

/* Views of what is loaded: all that is here. */
static int targets(struct bl_run *r, struct bl_run_views *v, struct bl_error *err)
{
    return bl_run_views_make(r, 0, r->s->params.floats, v, err);
}

static struct bl_checkpoint_tensors states_of(const struct bl_run_views *v)
{
    return (struct bl_checkpoint_tensors){
        .states = v->states, .state_count = v->state_count, .slices = v->slices};
}

enum verdict { GOOD, BAD, REFUSED };

/* BAD: an older one may do; REFUSED: it is whole and not this run's, which is for people to decide.
 * replan: the plan and the layout may be others. */
static enum verdict examine(struct bl_run *r, const char *path, uint64_t step, int replan,
                            struct bl_checkpoint_reader **out, struct bl_error *err)
{
    struct bl_checkpoint_reader *reader = NULL;
    struct bl_run_views v = {0};
    enum verdict verdict = BAD;
    if (bl_checkpoint_open(path, &reader, err) < 0) /* no memory now is no damage */
        return err == NULL || err->code == BL_EXIT_CHECKPOINT ? BAD : REFUSED;
    const struct bl_checkpoint_info *i = bl_checkpoint_info(reader);
    if (step != UINT64_MAX && i->step != step) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: it is the checkpoint of step %llu", path,
                     (unsigned long long)i->step);
        goto done;
    }
    if (!replan &&
        (bl_run_check_plan(r, reader, path, err) < 0 || check_layout(r, i, path, err) < 0)) {
        verdict = REFUSED;
        goto done;
    }
    if (targets(r, &v, err) < 0) {
        verdict = REFUSED;
        goto done;
    }
    struct bl_checkpoint_tensors to = states_of(&v);
    if (bl_checkpoint_fits(reader, &to, err) < 0)
        goto done;
    verdict = GOOD;
    *out = reader;
    reader = NULL;
done:
    bl_run_views_free(&v);
    bl_checkpoint_close(reader);
    return verdict;
}

/* What process 0 decided for all. */
struct choice {
    int32_t found, forked; /* forked: not this run's own */
    char path[3800];
};

static int choose(struct choice *c, const char *path, int forked, struct bl_error *err)
{
    c->found = 1;
    c->forked = forked;
    if (snprintf(c->path, sizeof c->path, "%s", path) < (int)sizeof c->path)
        return 0;
    return bl_error_set(err, BL_EXIT_USAGE, "%.100s...: this path is too long", path);
}

static int find_own(struct bl_run *r, const char *folder, const uint64_t *steps, size_t count,
                    struct choice *out, struct bl_checkpoint_reader **reader, struct bl_error *err)
{
    struct bl_error newest = BL_ERROR_INIT;
    for (size_t i = count; i > 0; i--) {
        struct bl_error why = BL_ERROR_INIT;
        char *path = bl_format("%s/%llu", folder, (unsigned long long)steps[i - 1]);
        if (path == NULL)
            return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        enum verdict verdict = examine(r, path, steps[i - 1], r->how.replan, reader, &why);
        int rc = 0;
        if (verdict == GOOD)
            rc = choose(out, path, 0, err);
        else if (verdict == REFUSED)
            rc = bl_error_set(err, why.code, "%s", why.text);
        else if (i == count)
            newest = why;
        if (verdict == BAD && i > 1) /* of the oldest, the error tells */
            bl_log(BL_LOG_WARNING, "%s; the checkpoint before is taken", why.text);
        else if (verdict == BAD && count > 1)
            bl_log(BL_LOG_WARNING, "%s", why.text);
        free(path);
        if (rc < 0 || verdict == GOOD)
            return rc;
    }
    return bl_error_set(err, BL_EXIT_CHECKPOINT,
                        "%s: none of the %zu checkpoints there can be used: %s; remove them or "
                        "start over with --fresh",
                        folder, count, newest.text);
}

/* "<real path of the folder above>/<name>": the same for a state that was removed since. */
static char *canonical(const char *path)
{
    char *copy = strdup(path), *slash, *parent, *out;
    size_t n = copy != NULL ? strlen(copy) : 0;
    while (n > 1 && copy[n - 1] == '/')
        copy[--n] = '\0';
    slash = copy != NULL ? strrchr(copy, '/') : NULL;
    if (slash != NULL && slash != copy)
        *slash = '\0';
    parent = copy != NULL ? realpath(slash == NULL ? "." : slash == copy ? "/" : copy, NULL) : NULL;
    out = parent != NULL ? bl_format("%s/%s", parent, slash != NULL ? slash + 1 : copy)
                         : strdup(path);
    free(parent);
    free(copy);
    return out;
}

/* --from with checkpoints in the run: they must continue that fork. */
static int check_fork(const struct bl_run *r, const char *path,
                      const struct bl_checkpoint_reader *reader, struct bl_error *err)
{
    const char *from = bl_checkpoint_from(reader);
    char *wanted = canonical(r->how.from);
    int same = wanted != NULL && from != NULL && strcmp(wanted, from) == 0;
    free(wanted);
    return same ? 0
                : bl_error_set(err, BL_EXIT_CHECKPOINT,
                               "%s is of a run that was forked from %s, not from %s: give the fork "
                               "another run.name, or leave --from out",
                               path, from != NULL ? from : "nowhere", r->how.from);
}

/* A run without checkpoints: its earlier starts, which were killed before the first one, must have
 * begun where this one does. */
static int check_beginning(const struct bl_run *r, struct bl_error *err)
{
    const struct bl_rundir *d = &r->directory;
    json_t *first = bl_attempts_first(d->path, d->attempt);
    const char *from = json_string_value(json_object_get(json_object_get(first, "from"), "state"));
    char *wanted = r->how.from != NULL ? canonical(r->how.from) : NULL;
    int rc = 0;
    if (first == NULL)
        rc = 0;
    else if (wanted == NULL && from != NULL)
        rc = bl_error_set(err, BL_EXIT_CHECKPOINT,
                          "%s was forked from %s and has no checkpoint of its own yet: give --from "
                          "again, or start over with --fresh",
                          d->path, from);
    else if (wanted != NULL && (from == NULL || strcmp(from, wanted) != 0))
        rc = bl_error_set(err, BL_EXIT_CHECKPOINT,
                          "%s is a run that started from %s, not from %s: give the fork another "
                          "run.name, or start over with --fresh",
                          d->path, from != NULL ? from : "nothing", r->how.from);
    free(wanted);
    json_decref(first);
    return rc;
}

static int find(struct bl_run *r, struct choice *out, struct bl_checkpoint_reader **reader,
                struct bl_error *err)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    int rc = -1;
    char *folder = bl_format("%s/checkpoints", r->directory.path);
    char *ring = bl_format("%s/checkpoints/ring", r->directory.path);
    if (folder == NULL || ring == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        goto done;
    }
    bl_checkpoint_recover(folder);
    bl_checkpoint_recover(ring);
    if (bl_checkpoint_steps(folder, &steps, &count, err) < 0)
        goto done;
    if (count > 0)
        rc = find_own(r, folder, steps, count, out, reader, err);
    else if (check_beginning(r, err) < 0)
        rc = -1;
    else if (r->how.from == NULL)
        rc = r->how.skip_samples == 0
                 ? 0
                 : bl_error_set(err, BL_EXIT_USAGE,
                                "%s: --skip-samples moves a run on, and there is no checkpoint yet",
                                r->directory.path);
    else
        rc = examine(r, r->how.from, UINT64_MAX, 1, reader, err) == GOOD
                 ? choose(out, r->how.from, 1, err)
                 : -1;
    if (rc == 0 && count > 0 && r->how.from != NULL)
        rc = check_fork(r, out->path, *reader, err);
done:
    free(steps);
    free(folder);
    free(ring);
    return rc;
}

/* ---- loading --------------------------------------------------------------------------------- */

static int keep_fork(struct bl_run *r, const struct choice *c,
                     const struct bl_checkpoint_reader *reader, struct bl_error *err)
{
    const char *before = bl_checkpoint_from(reader);
    free(r->saving.from);
    r->saving.from = c->forked ? canonical(c->path) : before != NULL ? strdup(before) : NULL;
    if (r->saving.from == NULL && (c->forked || before != NULL))
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
    return 0;
}

/* The position is a number of samples, whatever the batch was until here. */
static int take_position(struct bl_run *r, const struct choice *c,
                         const struct bl_checkpoint_info *i, struct bl_error *err)
{
    uint64_t steps = r->s->info.steps, sample = i->sample + r->how.skip_samples;
    if (sample > INT64_MAX)
        return bl_error_set(err, BL_EXIT_USAGE, "--skip-samples %llu: beyond 2^63 samples",
                            (unsigned long long)r->how.skip_samples);
    if (i->step > steps || (i->step == steps && c->forked))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s is the state after step %llu, and run.steps = %llu leaves nothing "
                            "to do: raise run.steps",
                            c->path, (unsigned long long)i->step, (unsigned long long)steps);
    r->step = i->step;
    r->origin = sample - i->step * r->s->info.sequences;
    bl_update_set_steps(r->update, i->updates);
    if (r->how.skip_samples > 0)
        bl_log(BL_LOG_INFO, "the data goes on at sample %llu instead of %llu",
               (unsigned long long)sample, (unsigned long long)i->sample);
    return 0;
}

static int load(struct bl_run *r, const struct choice *c, struct bl_checkpoint_reader *reader,
                struct bl_error *err)
{
    struct bl_run_views v = {0};
    struct load_context context = {reader, r->how.replan || c->forked};
    int rc = -1;
    if (targets(r, &v, err) < 0)
        return -1;
    struct bl_checkpoint_tensors to = states_of(&v);
    if (bl_checkpoint_read(reader, &to, err) < 0 || check_no_orphans(r, &context, err) < 0 ||
        bl_run_each_instance(r, load_instance, &context, err) < 0 ||
        load_alarms(r, reader, err) < 0 || take_position(r, c, bl_checkpoint_info(reader), err) < 0)
        goto done;
    bl_model_refresh(r->model, 0, r->s->params.floats);
    rc = 0;
done:
    bl_run_views_free(&v);
    return rc;
}

int bl_run_resume(struct bl_run *r, struct bl_error *err)
{
    struct bl_checkpoint_reader *reader = NULL;
    struct choice *c = calloc(1, sizeof *c);
    int rc = c == NULL ? bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory") : 0;
    if (rc == 0 && r->process == 0)
        rc = find(r, c, &reader, err);
    if (bl_world_agree(r->world, rc, err) < 0 ||
        bl_world_broadcast(r->world, 0, c, sizeof *c, err) < 0)
        goto fail;
    if (c->found && r->process > 0)
        rc = examine(r, c->path, UINT64_MAX, r->how.replan || c->forked, &reader, err) == GOOD ? 0
                                                                                               : -1;
    if (bl_world_agree(r->world, rc, err) < 0)
        goto fail;
    if (c->found) {
        bl_log(BL_LOG_INFO, "%s from %s", c->forked ? "forking" : "resuming", c->path);
        /* A fork that goes on left its samples out when it began. */
        if (!c->forked && r->how.from != NULL)
            r->how.skip_samples = 0;
        rc = keep_fork(r, c, reader, err);
        if (rc == 0)
            rc = bl_run_note_plan(r, reader, c->forked ? r->saving.from : NULL, err);
        if (rc == 0)
            rc = load(r, c, reader, err);
    }
    rc = bl_world_agree(r->world, rc, err);
    bl_checkpoint_close(reader);
    free(c);
    return rc;
fail:
    bl_checkpoint_close(reader);
    free(c);
    return -1;
}
