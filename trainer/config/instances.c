#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"
#include "config/schema.h"

enum { MAX_NAME = 100 }; /* of an instance: metrics bear it */

static const char *kind_prefix(uint32_t kind)
{
    static const char *const prefix[BL_KIND_COUNT] = {
        "",           "regularizer_", "precision_", "schedule_", "monitor_",
        "optimizer_", "guard_",       "sink_",      "source_",   "tokenizer_"};
    return kind < BL_KIND_COUNT ? prefix[kind] : "";
}

/* "./x/regularizer_foo.so" -> "foo". */
static char *plugin_base(uint32_t kind, const char *plugin)
{
    const char *slash = strrchr(plugin, '/'), *begin = slash ? slash + 1 : plugin;
    const char *prefix = kind_prefix(kind);
    size_t n = strlen(begin);
    if (n > 3 && strcmp(begin + n - 3, ".so") == 0)
        n -= 3;
    size_t p = strlen(prefix);
    if (slash && n > p && strncmp(begin, prefix, p) == 0) {
        begin += p;
        n -= p;
    }
    return strndup(begin, n);
}

/* A regularizer's value is logged as loss/<name>, beside what the host logs there. */
static int is_taken(uint32_t kind, const char *name)
{
    static const char *const taken[] = {"ce", "aux", "total", "val", "val_perplexity"};
    for (size_t i = 0; kind == BL_KIND_REGULARIZER && i < sizeof taken / sizeof *taken; i++)
        if (strcmp(name, taken[i]) == 0)
            return 1;
    return 0;
}

int bl_instance_fill(struct bl_config *c, struct bl_instance *i, uint32_t kind, const char *plugin,
                     const char *name, const struct bl_node *node, enum bl_schema_value s,
                     const char *what, struct bl_error *err)
{
    if (!*plugin)
        return bl_schema_refuse(node, s == BL_SCHEMA_DATA ? "source" : "plugin", what, err,
                                "a plugin's name is due, not an empty string");
    int given = name && *name;
    if (!given) {
        name = bl_keep_block(c, plugin_base(kind, plugin), err);
        if (!name)
            return -1;
    }
    for (const char *p = name; *p || p == name; p++) {
        if (!*p || !(isalnum((unsigned char)*p) || strchr("_-.", *p)))
            return bl_schema_refuse(node, given ? "name" : "plugin", what, err,
                                    "\"%s\" cannot name an instance, its metrics bear the name; "
                                    "use letters, digits, '_', '-' and '.' in name = \"...\"",
                                    name);
    }
    if (strlen(name) > MAX_NAME)
        return bl_schema_refuse(node, given ? "name" : "plugin", what, err,
                                "\"%.20s...\" is longer than %d characters; write a shorter "
                                "name = \"...\"",
                                name, MAX_NAME);
    if (is_taken(kind, name))
        return bl_schema_refuse(node, given ? "name" : "plugin", what, err,
                                "the name \"%s\" is taken: loss/%s is a metric of the trainer; "
                                "write another name = \"...\"",
                                name, name);
    *i = (struct bl_instance){
        .kind = kind, .plugin = plugin, .name = name, .every = 1, .node = node};
    return bl_schema_host_keys(c, s, &i->host_keys, err);
}

static int check_unique(const struct bl_instance *list, size_t n, const char *what,
                        struct bl_error *err)
{
    char where[300], other[128];
    const struct bl_instance *last = &list[n];
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].name, last->name) != 0)
            continue;
        for (int k = 2;; k++) { /* a name that is free */
            size_t j = 0;
            snprintf(other, sizeof other, "%.100s_%d", last->name, k);
            while (j < n && strcmp(list[j].name, other) != 0)
                j++;
            if (j == n)
                break;
        }
        return bl_schema_refuse(last->node, NULL, what, err,
                                "a second instance named \"%s\" (the first: %s); give it its own "
                                "name, as in name = \"%s\"",
                                last->name, bl_node_where(list[i].node, where), other);
    }
    return 0;
}

static int read_list(struct bl_config *c, const struct bl_list_info *info,
                     const struct bl_node *list, struct bl_instance *out, struct bl_error *err)
{
    char what[64], found[128];
    for (size_t i = 0; i < list->count; i++) {
        struct bl_node *node = list->children[i];
        struct bl_options *o;
        snprintf(what, sizeof what, "%s[%zu]", info->group, i);
        if (node->type != BL_NODE_GROUP)
            return bl_schema_refuse(node, NULL, what, err,
                                    "expects a group { plugin = \"...\"; }, found %s",
                                    bl_node_describe(node, found));
        node->used = 1;
        if (bl_schema_fill(c, info->schema, node, 1, what, &o, err) != 0)
            return -1;
        const struct bl_list_keys *k = o->values;
        if (bl_instance_fill(c, &out[i], info->kind, k->plugin, k->name, node, info->schema, what,
                             err) != 0)
            return -1;
        if (info->schema == BL_SCHEMA_MONITOR)
            out[i].every = k->every;
        if (check_unique(out, i, what, err) != 0)
            return -1;
    }
    return 0;
}

/* What runs when a list is not written. */
struct default_instance {
    uint32_t kind;
    const char *plugin;
    int64_t every;
};
static const struct default_instance defaults[] = {
    {BL_KIND_MONITOR, "logits", 10},
    {BL_KIND_MONITOR, "norms", 10},
    {BL_KIND_SINK, "jsonl", 1},
    {BL_KIND_SINK, "console", 1},
};
#define DEFAULTS (sizeof defaults / sizeof defaults[0])

static int default_list(struct bl_config *c, const struct bl_list_info *info,
                        struct bl_instance *out, size_t *count, struct bl_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < DEFAULTS; i++) {
        if (defaults[i].kind != info->kind)
            continue;
        if (bl_instance_fill(c, &out[n], info->kind, defaults[i].plugin, NULL, NULL, info->schema,
                             info->group, err) != 0)
            return -1;
        out[n++].every = defaults[i].every;
    }
    *count = n;
    return 0;
}

int bl_config_lists(struct bl_config *c, struct bl_error *err)
{
    for (size_t l = 0; l < sizeof bl_lists / sizeof bl_lists[0]; l++) {
        const struct bl_list_info *info = &bl_lists[l];
        struct bl_node *list = bl_node_find(c->root, info->group);
        char found[128];
        if (list && list->type != BL_NODE_LIST)
            return bl_schema_refuse(list, NULL, info->group, err,
                                    "expects a list ( { plugin = \"...\"; } ), found %s",
                                    bl_node_describe(list, found));
        size_t count = list ? list->count : DEFAULTS;
        struct bl_instance *out = bl_keep_block(c, calloc(count ? count : 1, sizeof *out), err);
        if (!out)
            return -1;
        if (list)
            list->used = 1;
        if (list ? read_list(c, info, list, out, err) != 0
                 : default_list(c, info, out, &count, err) != 0)
            return -1;
        *(struct bl_instance **)(void *)((char *)c + info->list) = out;
        *(size_t *)(void *)((char *)c + info->count) = count;
    }
    return 0;
}
