/* Whether a checkpoint belongs to this run: its plan, and the plugins it was made with. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/strings.h"
#include "checkpoint/checkpoint.h"
#include "config/plan.h"
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
    struct bl_run *r; /* whose notes these are */
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
static int refuse_plan(const struct bl_run *r, const struct bl_checkpoint_reader *reader,
                       const char *path, const char *difference, struct bl_error *err)
{
    static const char advice[] = "give this run another run.name, start over with --fresh, or go "
                                 "on under the new plan with --replan";
    struct plugin_check c = {NULL, reader, NULL};
    if (bl_checkpoint_info(reader)->plan == 0)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s does not say which plan it belongs to, and there is no config.cfg "
                            "that does; %s",
                            path, advice);
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
    if (difference != NULL)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s belongs to another plan: %s; %s", path,
                            difference, advice);
    return bl_error_set(err, BL_EXIT_CHECKPOINT,
                        "%s belongs to another plan (%016llx there, %016llx now): some key of the "
                        "config was changed; %s",
                        path, (unsigned long long)bl_checkpoint_info(reader)->plan,
                        (unsigned long long)r->directory.plan, advice);
}

/* Takes the value. Without memory the note is lost. */
static void note(struct bl_run *r, const char *key, json_t *value)
{
    if (r->notes == NULL)
        r->notes = json_object();
    json_object_set_new(r->notes, key, value);
}

static json_t *note_list(struct bl_run *r, const char *key)
{
    if (json_object_get(r->notes, key) == NULL)
        note(r, key, json_array());
    return json_object_get(r->notes, key);
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
    json_t *changed = note_list(c->r, "changed");
    json_array_append_new(
        changed, json_pack("{s:s, s:s, s:s}", "plugin", key, "was", was_text, "is", now_text));
    return 0;
}

int bl_run_check_plan(const struct bl_run *r, const struct bl_checkpoint_reader *reader,
                      const char *path, struct bl_error *err)
{
    const char *there = bl_checkpoint_config(reader);
    uint64_t plan = bl_checkpoint_info(reader)->plan;
    struct bl_text difference = {0};
    int rc = 0;
    if (plan == r->directory.plan)
        return 0;
    if (there != NULL) {
        rc = bl_plan_compare(there, path, r->directory.config, &difference, err);
        if (rc > 0)
            rc = refuse_plan(r, reader, path, difference.text, err);
        else if (rc < 0 && err != NULL)
            err->code = BL_EXIT_CHECKPOINT;
        bl_text_free(&difference);
        return rc;
    }
    /* An older program wrote it, and its plans had other keys: where config.cfg is there, that was
     * compared key by key. */
    if (!r->directory.planned)
        return refuse_plan(r, reader, path, NULL, err);
    if (plan == 0)
        bl_log(BL_LOG_WARNING,
               "%s does not say which plan it belongs to, an older program wrote it; it is taken "
               "for this one, as config.cfg says",
               path);
    return 0;
}

/* Each line of `lines` to the log and to the notes. */
static void note_differences(struct bl_run *r, char *lines)
{
    json_t *list = note_list(r, "replan");
    for (char *line = lines, *end; *line != '\0'; line = end + 1) {
        end = strchr(line, '\n');
        *end = '\0';
        bl_log(BL_LOG_INFO, "replan: %s", line);
        json_array_append_new(list, json_string(line));
    }
}

int bl_run_note_plan(struct bl_run *r, const struct bl_checkpoint_reader *reader, const char *from,
                     struct bl_error *err)
{
    struct plugin_check c = {r, reader, NULL};
    const char *there = bl_checkpoint_config(reader);
    struct bl_text lines = {0};
    int rc = 0;
    if (r->process > 0)
        return 0;
    if (there != NULL && bl_checkpoint_info(reader)->plan != r->directory.plan)
        rc =
            bl_plan_differences(there, "the checkpoint's config", r->directory.config, &lines, err);
    else if (there == NULL && (from != NULL || r->how.replan))
        bl_log(BL_LOG_WARNING, "the checkpoint does not say its plan, an older program wrote it: "
                               "what differs from this one is not known");
    if (rc == 0 && lines.text != NULL)
        note_differences(r, lines.text);
    bl_text_free(&lines);
    if (rc < 0)
        return -1;
    if (from != NULL)
        note(r, "from",
             json_pack("{s:s, s:I, s:s}", "state", from, "step",
                       (json_int_t)bl_checkpoint_info(reader)->step, "checksum",
                       bl_checkpoint_self(reader)));
    if (r->how.skip_samples > 0)
        note(r, "skip_samples", json_integer((json_int_t)r->how.skip_samples));
    return bl_attempts_each_plugin(r->s, note_change, &c);
}
