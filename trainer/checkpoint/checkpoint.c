/* The files of one checkpoint. */
#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>
#include <xxhash.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/safetensors.h"

const char bl_checkpoint_model[] = "model.safetensors";
const char bl_checkpoint_plugins[] = "plugins.safetensors";

const char *bl_checkpoint_shard_name(uint32_t shard, uint32_t shards, char out[BL_SHARD_NAME])
{
    snprintf(out, BL_SHARD_NAME, "optimizer-%" PRIu32 "-of-%" PRIu32 ".safetensors", shard + 1,
             shards);
    return out;
}

static char *to_hex(const unsigned char *bytes, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *text = n < SIZE_MAX / 2 ? malloc(2 * n + 1) : NULL;

    if (!text)
        return NULL;
    for (uint64_t i = 0; i < n; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * n] = '\0';
    return text;
}

static int write_plugins(const char *path, const struct bl_checkpoint *c, uint64_t *sum,
                         struct bl_error *err)
{
    const char **table = calloc(2 * c->plugin_count + 1, sizeof(*table));
    int answer = -1;

    for (size_t i = 0; table && i < c->plugin_count; i++) {
        table[2 * i] = c->plugins[i].key;
        table[2 * i + 1] = to_hex(c->plugins[i].bytes, c->plugins[i].count);
        if (!table[2 * i + 1]) {
            bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for the state of %s", path,
                         c->plugins[i].key);
            goto done;
        }
    }
    if (!table)
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    else
        answer = bl_safetensors_write(path, NULL, 0, table, sum, err);
done:
    for (size_t i = 0; table && i < c->plugin_count; i++)
        free((void *)(uintptr_t)table[2 * i + 1]);
    free(table);
    return answer;
}

int bl_checkpoint_state_sum(json_t *root, char hex[24])
{
    json_t *rest = json_copy(root);
    json_object_del(rest, "self");
    char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text)
        snprintf(hex, 24, "%016" PRIx64, (uint64_t)XXH64(text, strlen(text), 0));
    json_decref(rest);
    free(text);
    return text ? 0 : -1;
}

/* Which elements of which shape a slice holds, per tensor, as JSON: any reader of the format gets
 * at it. */
static int write_slices(const char *path, const struct bl_checkpoint *c, uint64_t *sum,
                        struct bl_error *err)
{
    const char **table = calloc(2 * c->state_count + 1, sizeof(*table));
    int answer = -1;

    for (size_t i = 0; table && i < c->state_count; i++) {
        const struct bl_checkpoint_slice *s = &c->slices[i];
        struct bl_text text = {0};
        bl_text_add(&text, "{\"begin\":%" PRIu64 ",\"end\":%" PRIu64 ",\"shape\":[", s->begin,
                    s->end);
        for (uint32_t d = 0; d < s->ndim; d++)
            bl_text_add(&text, "%s%" PRIu64, d ? "," : "", s->dims[d]);
        bl_text_add(&text, "]}");
        if (text.failed) {
            bl_text_free(&text);
            goto done;
        }
        table[2 * i] = c->states[i].name;
        table[2 * i + 1] = text.text;
    }
    if (table)
        answer = bl_safetensors_write(path, c->states, c->state_count, table, sum, err);
done:
    if (answer != 0 && (!err || err->text[0] == '\0'))
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    for (size_t i = 0; table && i < c->state_count; i++)
        free((void *)(uintptr_t)table[2 * i + 1]);
    free(table);
    return answer;
}

int bl_checkpoint_write_files(const char *folder, const struct bl_checkpoint *c,
                              struct bl_checkpoint_sums *out, struct bl_error *err)
{
    char name[BL_SHARD_NAME];
    char *model = bl_format("%s/%s", folder, bl_checkpoint_model);
    char *plugins = bl_format("%s/%s", folder, bl_checkpoint_plugins);
    char *optimizer = bl_format(
        "%s/%s", folder, bl_checkpoint_shard_name(c->shard, c->shards ? c->shards : 1, name));
    struct bl_checkpoint_sums sums = {0};
    int answer = -1;

    if (!model || !plugins || !optimizer) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", folder);
        goto done;
    }
    if (c->shard == 0 &&
        (bl_safetensors_write(model, c->weights, c->weight_count, NULL, &sums.model, err) != 0 ||
         write_plugins(plugins, c, &sums.plugins, err) != 0))
        goto done;
    if (c->slices ? write_slices(optimizer, c, &sums.optimizer, err) != 0
                  : bl_safetensors_write(optimizer, c->states, c->state_count, NULL,
                                         &sums.optimizer, err) != 0)
        goto done;
    if (bl_checkpoint_sync_folder(folder) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", folder, strerror(errno));
        goto done;
    }
    *out = sums;
    answer = 0;
done:
    free(model);
    free(plugins);
    free(optimizer);
    return answer;
}

static int add_sum(json_t *files, const char *name, uint64_t sum)
{
    char hex[24];

    snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
    return json_object_set_new(files, name, json_string(hex));
}

int bl_checkpoint_write_state(const char *folder, const struct bl_checkpoint *c,
                              const struct bl_checkpoint_sums *sums, const uint64_t *optimizer,
                              struct bl_error *err)
{
    const struct bl_checkpoint_info *i = &c->info;
    uint32_t shards = c->shards ? c->shards : 1;
    char seed[32], plan[24], name[BL_SHARD_NAME], self[24];
    char *path = bl_format("%s/state.json", folder), *text = NULL;
    json_t *files = json_object(), *plugins = json_array(), *loaded = json_object(), *root = NULL;
    int bad = !path || !plugins || !loaded || add_sum(files, bl_checkpoint_model, sums->model) != 0;
    int answer = -1;

    bad = bad || add_sum(files, bl_checkpoint_plugins, sums->plugins) != 0;
    for (uint32_t s = 0; !bad && s < shards; s++)
        bad = add_sum(files, bl_checkpoint_shard_name(s, shards, name), optimizer[s]) != 0;
    for (size_t p = 0; !bad && p < c->plugin_count; p++)
        bad = json_array_append_new(plugins, json_string(c->plugins[p].key)) != 0;
    for (size_t p = 0; !bad && p < c->loaded_count; p++)
        bad = add_sum(loaded, c->loaded[p].key, c->loaded[p].checksum) != 0;
    if (bad)
        goto done;
    snprintf(plan, sizeof(plan), "%016" PRIx64, i->plan);
    /* As text: JSON readers may hold numbers as doubles, which end at 2^53. */
    snprintf(seed, sizeof(seed), "%" PRIu64, i->seed);
    root = json_pack("{s:i, s:I, s:I, s:I, s:s, s:I, s:{s:I, s:I}, s:I, s:s, s:O, s:O, s:O}",
                     "format", (int)BL_CHECKPOINT_FORMAT, "step", (json_int_t)i->step, "updates",
                     (json_int_t)i->updates, "sample", (json_int_t)i->sample, "seed", seed,
                     "attempt", (json_int_t)i->attempt, "layout", "ranks", (json_int_t)i->ranks,
                     "micro", (json_int_t)i->micro, "shards", (json_int_t)shards, "plan", plan,
                     "loaded", loaded, "plugins", plugins, "xxh64", files);
    if (!root || (c->config && json_object_set_new(root, "config", json_string(c->config)) != 0) ||
        (c->from && json_object_set_new(root, "from", json_string(c->from)) != 0) ||
        bl_checkpoint_state_sum(root, self) != 0 ||
        json_object_set_new(root, "self", json_string(self)) != 0)
        goto done;
    text = json_dumps(root, JSON_INDENT(2));
    if (text)
        answer = bl_write_file(path, text, strlen(text), err);
done:
    if (!text)
        bl_error_set(err, BL_EXIT_FAILED, "%s/state.json: no memory, or a name not in UTF-8",
                     folder);
    json_decref(root);
    json_decref(files);
    json_decref(plugins);
    json_decref(loaded);
    free(text);
    free(path);
    return answer;
}

int bl_checkpoint_check_numbers(const struct bl_checkpoint_info *i, const char *directory,
                                struct bl_error *err)
{
    if (i->step <= INT64_MAX && i->sample <= INT64_MAX && i->micro <= INT64_MAX)
        return 0;
    return bl_error_set(err, BL_EXIT_FAILED, "%s: step, sample or micro is beyond 2^63", directory);
}
