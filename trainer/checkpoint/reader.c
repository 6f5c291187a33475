#include "checkpoint/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/merged.h"
#include "checkpoint/safetensors.h"

enum { STATE_LIMIT = 16 << 20, SHARD_LIMIT = 1 << 16 };

struct plugin_state {
    char *key;
    unsigned char *bytes;
    uint64_t count;
};

struct bl_checkpoint_reader {
    char *path;
    struct bl_checkpoint_info info;
    uint32_t shards;
    char *config, *from; /* NULL: not there */
    char self[24];       /* checksum of state.json */
    struct bl_safetensors *model, *plugin_file;
    struct bl_merged *optimizer;
    struct plugin_state *plugins;
    size_t plugin_count;
    struct bl_checkpoint_loaded *loaded;
    size_t loaded_count;
};

static int get_integer(const json_t *object, const char *key, uint64_t limit, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);

    if (!json_is_integer(value) || json_integer_value(value) < 0 ||
        (uint64_t)json_integer_value(value) > limit)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

static int get_decimal(const char *text, uint64_t *out)
{
    char *end;

    if (!text || text[0] < '0' || text[0] > '9')
        return -1;
    errno = 0;
    *out = strtoull(text, &end, 10);
    return errno || *end ? -1 : 0;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_info(struct bl_checkpoint_reader *r, const json_t *root, struct bl_error *err)
{
    const json_t *layout = json_object_get(root, "layout");
    uint64_t format, attempt, ranks, shards = 1;

    if (get_integer(root, "format", INT64_MAX, &format) != 0)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/state.json: no \"format\"", r->path);
    if (format != BL_CHECKPOINT_FORMAT)
        return bl_error_set(err, BL_EXIT_CHECKPOINT,
                            "%s/state.json: format %" PRIu64 ", this program reads %d", r->path,
                            format, BL_CHECKPOINT_FORMAT);
    if (get_integer(root, "step", INT64_MAX, &r->info.step) != 0 ||
        get_integer(root, "updates", INT64_MAX, &r->info.updates) != 0 ||
        get_integer(root, "sample", INT64_MAX, &r->info.sample) != 0 ||
        get_decimal(json_string_value(json_object_get(root, "seed")), &r->info.seed) != 0 ||
        get_integer(root, "attempt", UINT32_MAX, &attempt) != 0 ||
        get_integer(layout, "ranks", UINT32_MAX, &ranks) != 0 ||
        get_integer(layout, "micro", INT64_MAX, &r->info.micro) != 0 ||
        (json_object_get(root, "shards") &&
         (get_integer(root, "shards", SHARD_LIMIT, &shards) != 0 || shards == 0)))
        return bl_error_set(
            err, BL_EXIT_CHECKPOINT,
            "%s/state.json: step, updates, sample, seed, attempt, layout or shards is missing or "
            "out of range",
            r->path);
    r->info.attempt = (uint32_t)attempt;
    r->info.ranks = (uint32_t)ranks;
    r->shards = (uint32_t)shards;
    return 0;
}

/* Exactly 16 lower-case digits. */
static int get_hex(const json_t *value, uint64_t *out)
{
    const char *text = json_string_value(value);
    uint64_t sum = 0;

    if (!text || strlen(text) != 16)
        return -1;
    for (int i = 0; i < 16; i++) {
        int digit = hex_value(text[i]);
        if (digit < 0)
            return -1;
        sum = sum << 4 | (uint64_t)digit;
    }
    *out = sum;
    return 0;
}

/* A key that may be absent: 0, and *out NULL then. */
static int read_text(const struct bl_checkpoint_reader *r, const json_t *root, const char *key,
                     char **out, struct bl_error *err)
{
    const json_t *value = json_object_get(root, key);

    if (!value)
        return 0;
    if (!json_is_string(value))
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/state.json: \"%s\" is no text", r->path,
                            key);
    *out = strdup(json_string_value(value));
    return *out ? 0 : bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
}

/* These keys came later than format 1: a checkpoint without them is fine. */
static int read_identity(struct bl_checkpoint_reader *r, json_t *root, struct bl_error *err)
{
    const json_t *plan = json_object_get(root, "plan");
    json_t *loaded = json_object_get(root, "loaded"), *sum;
    const char *key;

    if (plan && get_hex(plan, &r->info.plan) != 0)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/state.json: \"plan\" is no checksum",
                            r->path);
    if (read_text(r, root, "config", &r->config, err) != 0 ||
        read_text(r, root, "from", &r->from, err) != 0)
        return -1;
    r->loaded = calloc(json_object_size(loaded) + 1, sizeof(*r->loaded));
    if (!r->loaded)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    json_object_foreach(loaded, key, sum)
    {
        struct bl_checkpoint_loaded *l = &r->loaded[r->loaded_count];
        if (get_hex(sum, &l->checksum) != 0)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s/state.json: the checksum of plugin %.100s is none", r->path,
                                key);
        l->key = strdup(key);
        r->loaded_count++;
        if (!l->key)
            return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    }
    return 0;
}

static int check_file(const struct bl_checkpoint_reader *r, const json_t *root, const char *name,
                      struct bl_error *err)
{
    const char *wanted = json_string_value(json_object_get(json_object_get(root, "xxh64"), name));
    char *path = bl_format("%s/%s", r->path, name), hex[24];
    uint64_t sum;
    int answer = -1;

    if (!path)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    if (!wanted) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/state.json: no checksum of %s", r->path, name);
    } else if (bl_checksum_file(path, &sum) != 0) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", path, strerror(errno));
    } else {
        snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
        if (strcmp(hex, wanted) != 0)
            bl_error_set(err, BL_EXIT_CHECKPOINT,
                         "%s: damaged: its XXH64 is %s, state.json says %.32s", path, hex, wanted);
        else
            answer = 0;
    }
    free(path);
    return answer;
}

static int read_plugin(struct bl_checkpoint_reader *r, const char *key, struct bl_error *err)
{
    struct plugin_state *p = &r->plugins[r->plugin_count];
    const char *hex = key ? bl_safetensors_metadata(r->plugin_file, key) : NULL;
    size_t length = hex ? strlen(hex) : 1;

    if (length % 2 != 0)
        goto bad;
    p->key = strdup(key);
    p->bytes = malloc(length / 2 + 1);
    r->plugin_count++;
    if (!p->key || !p->bytes)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    for (size_t i = 0; i < length / 2; i++) {
        int high = hex_value(hex[2 * i]), low = hex_value(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            goto bad;
        p->bytes[i] = (unsigned char)(high << 4 | low);
    }
    p->count = length / 2;
    return 0;
bad:
    return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/%s: the state of %.200s is missing or no hex",
                        r->path, bl_checkpoint_plugins, key ? key : "(no name)");
}

static int open_file(struct bl_checkpoint_reader *r, const json_t *root, const char *name,
                     struct bl_safetensors **out, struct bl_error *err)
{
    char *path;
    int opened;

    if (check_file(r, root, name, err) != 0)
        return -1;
    path = bl_format("%s/%s", r->path, name);
    opened = path ? bl_safetensors_open(path, out, err)
                  : bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    free(path);
    return opened;
}

static int read_files(struct bl_checkpoint_reader *r, const json_t *root, struct bl_error *err)
{
    const json_t *keys = json_object_get(root, "plugins");
    char name[BL_SHARD_NAME];

    if (open_file(r, root, bl_checkpoint_model, &r->model, err) != 0)
        return -1;
    for (uint32_t s = 0; s < r->shards; s++)
        if (check_file(r, root, bl_checkpoint_shard_name(s, r->shards, name), err) != 0)
            return -1;
    if (bl_merged_open(r->path, r->shards, &r->optimizer, err) != 0 ||
        open_file(r, root, bl_checkpoint_plugins, &r->plugin_file, err) != 0)
        return -1;
    if (!json_is_array(keys))
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/state.json: no list \"plugins\"", r->path);
    r->plugins = calloc(json_array_size(keys) + 1, sizeof(*r->plugins));
    if (!r->plugins)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    for (size_t i = 0; i < json_array_size(keys); i++)
        if (read_plugin(r, json_string_value(json_array_get(keys, i)), err) != 0)
            return -1;
    return 0;
}

/* The numbers in state.json decide how a run goes on, so it has a checksum as the files do. */
static int check_self(struct bl_checkpoint_reader *r, json_t *root, struct bl_error *err)
{
    const char *wanted = json_string_value(json_object_get(root, "self"));
    char hex[24];
    if (bl_checkpoint_state_sum(root, hex) != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", r->path);
    if (!wanted || strcmp(hex, wanted) != 0)
        return bl_error_set(
            err, BL_EXIT_CHECKPOINT,
            "%s/state.json: damaged or edited: its XXH64 is %s, \"self\" says %.32s", r->path, hex,
            wanted ? wanted : "nothing");
    memcpy(r->self, hex, sizeof r->self);
    return 0;
}

int bl_checkpoint_open(const char *path, struct bl_checkpoint_reader **out, struct bl_error *err)
{
    struct bl_checkpoint_reader *r = calloc(1, sizeof(*r));
    char *state = bl_format("%s/state.json", path), *text = NULL;
    json_t *root = NULL;
    json_error_t where;
    size_t length;
    int answer = -1;

    if (!r || !state || !(r->path = strdup(path))) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
        goto done;
    }
    if (bl_read_file(state, STATE_LIMIT, &text, &length, err) != 0) {
        if (err)
            err->code = BL_EXIT_CHECKPOINT;
        goto done;
    }
    root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        bl_error_set(err, BL_EXIT_CHECKPOINT, "%s:%d: %s", state, where.line, where.text);
        goto done;
    }
    if (read_info(r, root, err) != 0 || check_self(r, root, err) != 0 ||
        read_identity(r, root, err) != 0 || read_files(r, root, err) != 0)
        goto done;
    *out = r;
    answer = 0;
done:
    if (answer != 0)
        bl_checkpoint_close(r);
    json_decref(root);
    free(text);
    free(state);
    return answer;
}

void bl_checkpoint_close(struct bl_checkpoint_reader *r)
{
    if (!r)
        return;
    bl_safetensors_close(r->model);
    bl_safetensors_close(r->plugin_file);
    bl_merged_close(r->optimizer);
    free(r->config);
    free(r->from);
    for (size_t i = 0; i < r->plugin_count; i++) {
        free(r->plugins[i].key);
        free(r->plugins[i].bytes);
    }
    free(r->plugins);
    for (size_t i = 0; i < r->loaded_count; i++)
        free((char *)(uintptr_t)r->loaded[i].key);
    free(r->loaded);
    free(r->path);
    free(r);
}

const struct bl_checkpoint_info *bl_checkpoint_info(const struct bl_checkpoint_reader *r)
{
    return &r->info;
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == BL_FP32 ? "F32" : dtype == BL_FP64 ? "F64" : dtype == BL_BF16 ? "BF16" : "?";
}

/* "(50257, 768)"; buffer of at least 100 bytes. */
static const char *shape_text(const struct bl_tensor *t, char *buffer)
{
    size_t n = 0;

    buffer[n++] = '(';
    for (uint32_t i = 0; i < t->ndim && i < 4; i++)
        n += (size_t)sprintf(buffer + n, "%s%" PRIu64, i ? ", " : "", t->dims[i]);
    buffer[n++] = ')';
    buffer[n] = '\0';
    return buffer;
}

/* The tensors of a file or of the merged shards. */
struct stored {
    const struct bl_safetensors *file;
    const struct bl_merged *merged; /* where file is NULL */
    const char *name;
};

static size_t stored_count(const struct stored *s)
{
    return s->file ? bl_safetensors_count(s->file) : bl_merged_count(s->merged);
}

static const struct bl_tensor *stored_tensor(const struct stored *s, size_t i)
{
    return s->file ? bl_safetensors_tensor(s->file, i) : bl_merged_tensor(s->merged, i);
}

static const struct bl_tensor *stored_find(const struct stored *s, const char *name)
{
    return s->file ? bl_safetensors_find(s->file, name) : bl_merged_find(s->merged, name);
}

/* The whole tensor that is wanted, of which `slice` is a part. */
static struct bl_tensor whole_of(const struct bl_tensor *wanted,
                                 const struct bl_checkpoint_slice *slice)
{
    struct bl_tensor t = *wanted;

    if (!slice)
        return t;
    t.ndim = slice->ndim;
    t.count = 1;
    for (uint32_t d = 0; d < t.ndim; d++) {
        t.dims[d] = slice->dims[d];
        t.count *= slice->dims[d];
    }
    return t;
}

static int match(const struct bl_checkpoint_reader *r, const struct stored *s,
                 const struct bl_tensor *wanted, const struct bl_checkpoint_slice *slices,
                 size_t count, struct bl_error *err)
{
    char a[100], b[100];

    for (size_t i = 0; i < count; i++) {
        const struct bl_tensor w = whole_of(&wanted[i], slices ? &slices[i] : NULL);
        const struct bl_tensor *t = stored_find(s, w.name);
        int same;
        if (!t)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s/%s: no tensor %s, which this model has; the configuration "
                                "differs from the one that was saved",
                                r->path, s->name, w.name);
        same = t->ndim == w.ndim && t->count == w.count;
        for (uint32_t d = 0; same && d < w.ndim; d++)
            same = t->dims[d] == w.dims[d];
        if (!same)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s/%s: tensor %s is %s, this model needs %s", r->path, s->name,
                                w.name, shape_text(t, a), shape_text(&w, b));
        if (t->dtype != w.dtype)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s/%s: tensor %s is stored as %s, this run keeps it as %s",
                                r->path, s->name, w.name, dtype_name(t->dtype),
                                dtype_name(w.dtype));
    }
    if (stored_count(s) == count)
        return 0;
    for (size_t i = 0; i < stored_count(s); i++) {
        const struct bl_tensor *t = stored_tensor(s, i);
        size_t k = 0;
        while (k < count && strcmp(wanted[k].name, t->name) != 0)
            k++;
        if (k == count)
            return bl_error_set(err, BL_EXIT_CHECKPOINT,
                                "%s/%s: tensor %s, which this model does not have; the "
                                "configuration differs from the one that was saved",
                                r->path, s->name, t->name);
    }
    return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/%s: %zu tensors, %zu asked for", r->path,
                        s->name, stored_count(s), count);
}

int bl_checkpoint_fits(const struct bl_checkpoint_reader *r, const struct bl_checkpoint_tensors *to,
                       struct bl_error *err)
{
    const struct stored model = {r->model, NULL, bl_checkpoint_model};
    const struct stored optimizer = {NULL, r->optimizer, "optimizer"};

    if ((to->weights && match(r, &model, to->weights, NULL, to->weight_count, err) != 0) ||
        (to->states && match(r, &optimizer, to->states, to->slices, to->state_count, err) != 0))
        return -1;
    return 0;
}

int bl_checkpoint_read(const struct bl_checkpoint_reader *r, const struct bl_checkpoint_tensors *to,
                       struct bl_error *err)
{
    if (bl_checkpoint_fits(r, to, err) != 0)
        return -1;
    for (size_t i = 0; i < to->weight_count; i++) {
        const struct bl_tensor *w = &to->weights[i];
        uint64_t bytes = bl_checkpoint_element_bytes(w->dtype);
        if (w->count > 0)
            memcpy(w->data, bl_safetensors_find(r->model, w->name)->data, w->count * bytes);
    }
    for (size_t i = 0; i < to->state_count; i++) {
        const struct bl_tensor *w = &to->states[i];
        uint64_t begin = to->slices ? to->slices[i].begin : 0;
        bl_merged_read(r->optimizer, bl_merged_find(r->optimizer, w->name), begin, begin + w->count,
                       w->data);
    }
    return 0;
}

const char *bl_checkpoint_config(const struct bl_checkpoint_reader *r)
{
    return r->config;
}

const char *bl_checkpoint_from(const struct bl_checkpoint_reader *r)
{
    return r->from;
}

const char *bl_checkpoint_self(const struct bl_checkpoint_reader *r)
{
    return r->self;
}

const void *bl_checkpoint_plugin(const struct bl_checkpoint_reader *r, const char *key,
                                 uint64_t *bytes)
{
    for (size_t i = 0; i < r->plugin_count; i++) {
        if (strcmp(r->plugins[i].key, key) == 0) {
            *bytes = r->plugins[i].count;
            return r->plugins[i].bytes;
        }
    }
    return NULL;
}

size_t bl_checkpoint_plugin_count(const struct bl_checkpoint_reader *r)
{
    return r->plugin_count;
}

const char *bl_checkpoint_plugin_key(const struct bl_checkpoint_reader *r, size_t i)
{
    return i < r->plugin_count ? r->plugins[i].key : NULL;
}

size_t bl_checkpoint_loaded_count(const struct bl_checkpoint_reader *r)
{
    return r->loaded_count;
}

const struct bl_checkpoint_loaded *bl_checkpoint_loaded(const struct bl_checkpoint_reader *r,
                                                        size_t i)
{
    return i < r->loaded_count ? &r->loaded[i] : NULL;
}
