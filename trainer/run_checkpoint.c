/* A run's state to and from checkpoints/<step>/. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/strings.h"
#include "checkpoint/checkpoint.h"
#include "run_internal.h"

/* Views of everything a checkpoint holds; names of states are owned here. */
struct views {
    struct bl_tensor *weights, *states;
    size_t weight_count, state_count;
};

static void views_free(struct views *v)
{
    for (size_t i = 0; i < v->state_count; i++)
        free((char *)(uintptr_t)v->states[i].name);
    bl_free(v->states);
    bl_free(v->weights);
    memset(v, 0, sizeof *v);
}

static int add_state(struct bl_run *r, struct views *v, uint64_t i, uint32_t which,
                     const char *suffix)
{
    struct bl_tensor *t = &v->states[v->state_count];
    if (bl_run_tensor(r, i, which, t) < 0)
        return -1;
    t->name = bl_format("%s.%s", t->name, suffix);
    if (t->name == NULL)
        return -1;
    v->state_count++;
    return 0;
}

/* What is stored as weights are the working weights; they and the master differ only by the
 * rounding that bl_model_refresh repeats, so the master alone determines both. */
static int views_make(struct bl_run *r, struct views *v, float *working, struct bl_error *err)
{
    uint64_t n = r->s->params.count;
    uint32_t states = bl_update_states(r->update);
    v->weights = bl_alloc(n, sizeof *v->weights);
    v->states = bl_alloc(n * (1 + states), sizeof *v->states);
    if (v->weights == NULL || v->states == NULL)
        goto fail;
    for (uint64_t i = 0; i < n; i++) {
        if (bl_run_tensor(r, i, BL_WEIGHT, &v->weights[i]) < 0)
            goto fail;
        if (working != NULL)
            v->weights[i].data = working + r->s->params.items[i].offset;
        v->weight_count++;
        if (add_state(r, v, i, BL_WEIGHT, "master") < 0)
            goto fail;
        for (uint32_t k = 0; k < states; k++) {
            if (add_state(r, v, i, BL_STATE0 + k, bl_update_state_name(r->update, k)) < 0)
                goto fail;
        }
    }
    return 0;
fail:
    views_free(v);
    return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
}

/* Calls f for every instance of the run that may have state. */
static int each_instance(struct bl_run *r,
                         int (*f)(struct bl_plugin_instance *i, void *context,
                                  struct bl_error *err),
                         void *context, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    const struct bl_plugin_list *lists[] = {&s->regularizers, &s->guards, &s->monitors, &s->sinks};
    struct bl_plugin_instance *single[] = {s->precision, s->schedule, s->optimizer};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (f(single[i], context, err) < 0)
            return -1;
    }
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            if (f(lists[l]->items[i], context, err) < 0)
                return -1;
        }
    }
    return 0;
}

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

/* "host." is no kind of plugin. */
static const char alarms_key[] = "host.alarms";

static int save_alarms(const struct bl_run *r, struct saved *saved, struct bl_error *err)
{
    char *text;
    if (r->s->config->alarm_count == 0)
        return 0;
    if (bl_alarms_save(r->alarms, &text, err) < 0)
        return -1;
    return keep(saved, strdup(alarms_key), text, strlen(text), err);
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

static struct bl_checkpoint_info info_of(const struct bl_run *r)
{
    const struct bl_setup *s = r->s;
    return (struct bl_checkpoint_info){
        .step = r->step,
        .updates = bl_update_steps(r->update),
        .sample = r->step * s->info.sequences,
        .seed = s->info.seed,
        .attempt = r->directory.attempt,
        .ranks = (uint32_t)s->ranks,
        .micro = (uint64_t)s->config->batch.micro,
        .plan = r->directory.plan,
    };
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

int bl_run_save(struct bl_run *r, struct bl_error *err)
{
    if (check_finite(r, err) < 0)
        return -1;
    struct views v = {0};
    struct saved saved = {0};
    struct loaded loaded = {0};
    int rc = -1;
    char *folder = bl_format("%s/checkpoints", r->directory.path);
    if (folder == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        goto done;
    }
    if (views_make(r, &v, bl_model_working(r->model), err) < 0 ||
        each_instance(r, save_instance, &saved, err) < 0 || save_alarms(r, &saved, err) < 0 ||
        loaded_make(r, &loaded, err) < 0)
        goto done;
    struct bl_checkpoint c = {
        .info = info_of(r),
        .weights = v.weights,
        .weight_count = v.weight_count,
        .states = v.states,
        .state_count = v.state_count,
        .plugins = saved.items,
        .plugin_count = saved.count,
        .loaded = loaded.items,
        .loaded_count = loaded.count,
    };
    rc = bl_checkpoint_write(folder, &c, (uint64_t)r->s->config->run.keep, err);
    if (rc == 0)
        bl_log(BL_LOG_INFO, "checkpoint %s/%llu", folder, (unsigned long long)r->step);
done:
    loaded_free(&loaded);
    saved_free(&saved);
    views_free(&v);
    free(folder);
    return rc;
}

static int load_instance(struct bl_plugin_instance *i, void *context, struct bl_error *err)
{
    const struct bl_checkpoint_reader *reader = context;
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
    else if (data == NULL)
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
static int check_no_orphans(struct bl_run *r, const struct bl_checkpoint_reader *reader,
                            struct bl_error *err)
{
    for (size_t i = 0; i < bl_checkpoint_plugin_count(reader); i++) {
        struct key_search k = {bl_checkpoint_plugin_key(reader, i), 0};
        each_instance(r, match_key, &k, NULL);
        if (!k.found && strcmp(k.key, alarms_key) != 0 && strncmp(k.key, "sink.", 5) != 0)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "the checkpoint holds state of %s, which this config does not load",
                                k.key);
    }
    return 0;
}

static int check_layout(const struct bl_run *r, const struct bl_checkpoint_info *i,
                        const char *path, struct bl_error *err)
{
    struct bl_checkpoint_info now = info_of(r);
    if (i->seed != now.seed || i->ranks != now.ranks || i->micro != now.micro)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s was made with seed %llu, %u ranks, micro %llu; this run has seed "
                            "%llu, %u ranks, micro %llu",
                            path, (unsigned long long)i->seed, i->ranks,
                            (unsigned long long)i->micro, (unsigned long long)now.seed, now.ranks,
                            (unsigned long long)now.micro);
    return 0;
}

static int load_alarms(struct bl_run *r, const struct bl_checkpoint_reader *reader,
                       struct bl_error *err)
{
    uint64_t bytes;
    const void *text = bl_checkpoint_plugin(reader, alarms_key, &bytes);
    return text != NULL ? bl_alarms_load(r->alarms, text, bytes, err) : 0;
}

int bl_run_resume(struct bl_run *r, struct bl_error *err)
{
    struct views v = {0};
    struct bl_checkpoint_reader *reader = NULL;
    uint64_t step = 0;
    int rc = -1;
    char *folder = bl_format("%s/checkpoints", r->directory.path), *path = NULL;
    if (folder == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        goto done;
    }
    int found = bl_checkpoint_latest(folder, &step, err);
    if (found <= 0) {
        rc = found;
        goto done;
    }
    path = bl_format("%s/%llu", folder, (unsigned long long)step);
    if (path == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
        goto done;
    }
    if (bl_checkpoint_open(path, &reader, err) < 0) {
        bl_error_set(err, err->code, "%s; remove %s to go on from an older checkpoint", err->text,
                     path);
        goto done;
    }
    if (check_layout(r, bl_checkpoint_info(reader), path, err) < 0 ||
        bl_run_check_plan(r, reader, path, err) < 0 || views_make(r, &v, NULL, err) < 0 ||
        bl_checkpoint_read(reader, NULL, 0, v.states, v.state_count, err) < 0 ||
        check_no_orphans(r, reader, err) < 0 || each_instance(r, load_instance, reader, err) < 0 ||
        load_alarms(r, reader, err) < 0)
        goto done;
    bl_model_refresh(r->model, 0, r->s->params.floats);
    r->step = bl_checkpoint_info(reader)->step;
    bl_update_set_steps(r->update, bl_checkpoint_info(reader)->updates);
    bl_log(BL_LOG_INFO, "resuming from %s", path);
    rc = 0;
done:
    bl_checkpoint_close(reader);
    views_free(&v);
    free(path);
    free(folder);
    return rc;
}
