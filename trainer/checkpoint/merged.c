#include "checkpoint/merged.h"

#include <dirent.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/safetensors.h"

struct part { /* of a tensor, in one file */
    uint64_t begin, end;
    const char *data;
    uint32_t shard;
};

struct entry {
    struct bl_tensor t;
    struct part *parts; /* ascending, without gaps */
    size_t count;
};

struct bl_merged {
    char *folder;
    struct bl_safetensors **files; /* (shards) */
    uint32_t shards;
    struct entry *entries;
    size_t count, capacity;
};

static int no_memory(const struct bl_merged *m, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", m->folder);
}

static int refuse(const struct bl_merged *m, uint32_t shard, const char *tensor, const char *what,
                  struct bl_error *err)
{
    char name[BL_SHARD_NAME];

    return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s/%s: tensor %.200s: %s", m->folder,
                        bl_checkpoint_shard_name(shard, m->shards, name), tensor, what);
}

static int get_unsigned(const json_t *value, uint64_t *out)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return -1;
    *out = (uint64_t)json_integer_value(value);
    return 0;
}

/* The whole tensor that `t`, of a file of slices, is a part of. */
static int parse_slice(const char *text, const struct bl_tensor *t, struct bl_tensor *whole,
                       struct part *part)
{
    json_t *root = text ? json_loads(text, JSON_REJECT_DUPLICATES, NULL) : NULL;
    const json_t *shape = json_object_get(root, "shape");
    size_t ndim = json_array_size(shape);
    int bad = !json_is_array(shape) || ndim > 4 || t->ndim != 1 ||
              get_unsigned(json_object_get(root, "begin"), &part->begin) != 0 ||
              get_unsigned(json_object_get(root, "end"), &part->end) != 0;

    *whole = *t;
    whole->ndim = (uint32_t)ndim;
    whole->count = 1;
    for (size_t d = 0; !bad && d < ndim; d++)
        bad = get_unsigned(json_array_get(shape, d), &whole->dims[d]) != 0 ||
              __builtin_mul_overflow(whole->count, whole->dims[d], &whole->count);
    json_decref(root);
    return bad || part->begin > part->end || part->end > whole->count ||
                   part->end - part->begin != t->count
               ? -1
               : 0;
}

static struct entry *find_entry(const struct bl_merged *m, const char *name)
{
    for (size_t i = 0; i < m->count; i++)
        if (strcmp(m->entries[i].t.name, name) == 0)
            return &m->entries[i];
    return NULL;
}

static struct entry *add_entry(struct bl_merged *m, const struct bl_tensor *whole)
{
    if (m->count == m->capacity) {
        size_t capacity = 2 * m->capacity + 64;
        struct entry *larger = realloc(m->entries, capacity * sizeof(*larger));
        if (!larger)
            return NULL;
        m->entries = larger;
        m->capacity = capacity;
    }
    m->entries[m->count] = (struct entry){.t = *whole};
    m->entries[m->count].t.data = NULL;
    return &m->entries[m->count++];
}

static int same_tensor(const struct bl_tensor *a, const struct bl_tensor *b)
{
    int same = a->dtype == b->dtype && a->ndim == b->ndim;

    for (uint32_t d = 0; same && d < a->ndim; d++)
        same = a->dims[d] == b->dims[d];
    return same;
}

static int add_part(struct bl_merged *m, uint32_t shard, const struct bl_tensor *t,
                    struct bl_error *err)
{
    struct part part = {0, t->count, t->data, shard}, *larger;
    struct bl_tensor whole = *t;
    struct entry *e;

    if (m->shards > 1 &&
        parse_slice(bl_safetensors_metadata(m->files[shard], t->name), t, &whole, &part) != 0)
        return refuse(m, shard, t->name,
                      "its metadata does not say which elements of which shape it holds", err);
    e = find_entry(m, t->name);
    if (e && !same_tensor(&e->t, &whole))
        return refuse(m, shard, t->name, "another shard has it in another shape or dtype", err);
    if (!e)
        e = add_entry(m, &whole);
    larger = e ? realloc(e->parts, (e->count + 1) * sizeof(*larger)) : NULL;
    if (!larger)
        return no_memory(m, err);
    e->parts = larger;
    e->parts[e->count++] = part;
    return 0;
}

static int by_begin(const void *left, const void *right)
{
    const struct part *l = left, *r = right;

    if (l->begin != r->begin)
        return l->begin < r->begin ? -1 : 1;
    return l->end < r->end ? -1 : l->end > r->end;
}

static int check_cover(const struct bl_merged *m, struct entry *e, struct bl_error *err)
{
    uint64_t at = 0;

    qsort(e->parts, e->count, sizeof(*e->parts), by_begin);
    for (size_t i = 0; i < e->count; i++) {
        if (e->parts[i].begin != at)
            return refuse(m, e->parts[i].shard, e->t.name,
                          e->parts[i].begin < at ? "some of its elements are in another shard too"
                                                 : "elements before these are in no shard",
                          err);
        at = e->parts[i].end;
    }
    if (at != e->t.count)
        return refuse(m, e->parts[e->count - 1].shard, e->t.name,
                      "elements after these are in no shard", err);
    if (e->count == 1)
        e->t.data = (void *)(uintptr_t)e->parts[0].data;
    return 0;
}

int bl_merged_open(const char *folder, uint32_t shards, struct bl_merged **out,
                   struct bl_error *err)
{
    struct bl_merged *m = calloc(1, sizeof(*m));

    if (!m || !(m->folder = strdup(folder)) || !(m->files = calloc(shards, sizeof(*m->files)))) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", folder);
        goto failed;
    }
    m->shards = shards;
    for (uint32_t s = 0; s < shards; s++) {
        char name[BL_SHARD_NAME];
        char *path = bl_format("%s/%s", folder, bl_checkpoint_shard_name(s, shards, name));
        int opened = path ? bl_safetensors_open(path, &m->files[s], err) : no_memory(m, err);
        free(path);
        if (opened != 0)
            goto failed;
        for (size_t i = 0; i < bl_safetensors_count(m->files[s]); i++)
            if (add_part(m, s, bl_safetensors_tensor(m->files[s], i), err) != 0)
                goto failed;
    }
    for (size_t i = 0; i < m->count; i++)
        if (check_cover(m, &m->entries[i], err) != 0)
            goto failed;
    *out = m;
    return 0;
failed:
    bl_merged_close(m);
    return -1;
}

void bl_merged_close(struct bl_merged *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->count; i++)
        free(m->entries[i].parts);
    free(m->entries);
    for (uint32_t s = 0; s < m->shards; s++)
        bl_safetensors_close(m->files[s]);
    free(m->files);
    free(m->folder);
    free(m);
}

size_t bl_merged_count(const struct bl_merged *m)
{
    return m->count;
}

const struct bl_tensor *bl_merged_tensor(const struct bl_merged *m, size_t i)
{
    return i < m->count ? &m->entries[i].t : NULL;
}

const struct bl_tensor *bl_merged_find(const struct bl_merged *m, const char *name)
{
    const struct entry *e = find_entry(m, name);

    return e ? &e->t : NULL;
}

void bl_merged_read(const struct bl_merged *m, const struct bl_tensor *t, uint64_t begin,
                    uint64_t end, void *to)
{
    const struct entry *e = find_entry(m, t->name);
    uint64_t bytes = bl_checkpoint_element_bytes(t->dtype);

    for (size_t i = 0; e && i < e->count; i++) {
        const struct part *p = &e->parts[i];
        uint64_t first = p->begin > begin ? p->begin : begin, last = p->end < end ? p->end : end;
        if (first < last)
            memcpy((char *)to + (first - begin) * bytes, p->data + (first - p->begin) * bytes,
                   (last - first) * bytes);
    }
}

uint32_t bl_merged_shards(const char *folder)
{
    DIR *d = opendir(folder);
    struct dirent *entry;
    uint32_t shards = 0;

    while (d && shards == 0 && (entry = readdir(d))) {
        char name[BL_SHARD_NAME];
        uint32_t shard, of;
        if (sscanf(entry->d_name, "optimizer-%" SCNu32 "-of-%" SCNu32, &shard, &of) == 2 &&
            shard >= 1 && shard <= of &&
            strcmp(bl_checkpoint_shard_name(shard - 1, of, name), entry->d_name) == 0)
            shards = of;
    }
    if (d)
        closedir(d);
    return shards;
}
