/* Whether a checkpoint belongs to this run: its plan, and the plugins it was made with. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "run_internal.h"

static const struct bl_checkpoint_loaded *find_loaded(const struct bl_checkpoint_reader *reader,
                                                      const char *key)
{
    for (size_t i = 0; i < bl_checkpoint_loaded_count(reader); i++) {
        const struct bl_checkpoint_loaded *l = bl_checkpoint_loaded(reader, i);
        if (strcmp(l->key, key) == 0)
            return l;
    }
    return NULL;
}

struct plugin_check {
    struct bl_run *r;
    const struct bl_checkpoint_reader *reader;
    char *stranger; /* loaded now, not when the checkpoint was made */
};

static int is_key(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    (void)plugin;
    return strcmp(*(const char *const *)context, key) == 0;
}

static int find_stranger(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    struct plugin_check *c = context;
    if (plugin->plugin->kind == BL_KIND_SINK || find_loaded(c->reader, key) != NULL)
        return 0;
    c->stranger = strdup(key);
    return 1;
}

/* The plan is another one: says so, with the plugin that differs if there is one. */
static int refuse_plan(struct bl_run *r, const struct bl_checkpoint_reader *reader,
                       const char *path, struct bl_error *err)
{
    static const char advice[] = "give this run another run.name, or start over with --fresh";
    struct plugin_check c = {r, reader, NULL};
    for (size_t i = 0; i < bl_checkpoint_loaded_count(reader); i++) {
        const char *key = bl_checkpoint_loaded(reader, i)->key;
        if (strncmp(key, "sink.", 5) != 0 && !bl_attempts_each_plugin(r->s, is_key, &key))
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s belongs to another plan: it was made with %s, which this "
                                "config does not load; %s",
                                path, key, advice);
    }
    if (bl_attempts_each_plugin(r->s, find_stranger, &c)) {
        bl_error_set(err, BL_EXIT_CHECKPOINT,
                     "%s belongs to another plan: it was made without %s, which this config loads; "
                     "%s",
                     path, c.stranger != NULL ? c.stranger : "a plugin", advice);
        free(c.stranger);
        return -1;
    }
    return bl_error_set(err, BL_EXIT_CHECKPOINT,
                        "%s belongs to another plan (%016llx there, %016llx now): some key of the "
                        "config was changed; %s",
                        path, (unsigned long long)bl_checkpoint_info(reader)->plan,
                        (unsigned long long)r->directory.plan, advice);
}

/* A repaired plugin is no other plan, but nobody should have to guess that it changed. */
static int note_change(void *context, const char *key, const struct bl_plugin_instance *plugin)
{
    const struct plugin_check *c = context;
    const struct bl_checkpoint_loaded *l = find_loaded(c->reader, key);
    uint64_t now = bl_library_checksum(plugin->library);
    char was_text[24], now_text[24];
    if (l == NULL || l->checksum == now)
        return 0;
    snprintf(was_text, sizeof was_text, "%016llx", (unsigned long long)l->checksum);
    snprintf(now_text, sizeof now_text, "%016llx", (unsigned long long)now);
    bl_log_by(BL_LOG_WARNING, key,
              "%s is not the file that the checkpoint was made with: XXH64 %s then, %s now",
              bl_library_path(plugin->library), was_text, now_text);
    if (c->r->changed == NULL)
        c->r->changed = json_array();
    json_array_append_new(c->r->changed, json_pack("{s:s, s:s, s:s}", "plugin", key, "was",
                                                   was_text, "is", now_text));
    return 0;
}

int bl_run_check_plan(struct bl_run *r, const struct bl_checkpoint_reader *reader, const char *path,
                      struct bl_error *err)
{
    struct plugin_check c = {r, reader, NULL};
    uint64_t plan = bl_checkpoint_info(reader)->plan;
    if (plan == 0)
        bl_log(BL_LOG_WARNING,
               "%s does not say which plan it belongs to, an older program wrote it; it is taken "
               "for this one",
               path);
    else if (plan != r->directory.plan)
        return refuse_plan(r, reader, path, err);
    return bl_attempts_each_plugin(r->s, note_change, &c);
}
