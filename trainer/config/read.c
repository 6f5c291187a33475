#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"
#include "config/schema.h"

/* ---- memory of a configuration ---- */

static struct bl_keep *keep(struct bl_config *c, struct bl_error *err)
{
    struct bl_keep *k = calloc(1, sizeof *k);
    if (!k) {
        bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
        return NULL;
    }
    k->next = c->private_state;
    c->private_state = k;
    return k;
}

struct bl_options *bl_keep_options(struct bl_config *c, struct bl_options *o, struct bl_error *err)
{
    struct bl_keep *k = keep(c, err);
    if (!k) {
        bl_options_free(o);
        return NULL;
    }
    k->options = *o;
    return &k->options;
}

void *bl_keep_block(struct bl_config *c, void *block, struct bl_error *err)
{
    struct bl_keep *k = block ? keep(c, err) : NULL;
    if (!k) {
        if (!block)
            bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
        free(block);
        return NULL;
    }
    k->block = block;
    return block;
}

void bl_config_free(struct bl_config *c)
{
    if (!c)
        return;
    for (struct bl_keep *k = c->private_state, *next; k; k = next) {
        next = k->next;
        bl_options_free(&k->options);
        free(k->block);
        free(k);
    }
    bl_node_free(c->root);
    free(c);
}

/* ---- tools of the steps ---- */

int bl_schema_refuse(const struct bl_node *group, const char *key, const char *what,
                     struct bl_error *err, const char *format, ...)
{
    char where[300] = "configuration";
    const struct bl_node *at = group && key ? bl_node_find(group, key) : NULL;
    if (at || group)
        bl_node_where(at ? at : group, where);
    char *message = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&message, format, args);
    va_end(args);
    bl_error_set(err, BL_EXIT_USAGE, "%s: %s: %s", where, what, n < 0 ? "out of memory" : message);
    if (n >= 0)
        free(message);
    return -1;
}

static const struct bl_node *find_path(const struct bl_node *root, const char *path)
{
    char group[32];
    const char *dot = strchr(path, '.');
    snprintf(group, sizeof group, "%.*s", (int)(dot - path), path);
    return bl_node_find(bl_node_find(root, group), dot + 1);
}

const struct bl_node *bl_schema_cause(const struct bl_config *c, const char *const *paths,
                                      const struct bl_node *otherwise)
{
    const struct bl_node *written = NULL;
    for (; *paths; paths++) {
        const struct bl_node *n = find_path(c->root, *paths);
        if (n && bl_node_is_override(n))
            return n;
        if (!written)
            written = n;
    }
    return written ? written : otherwise;
}

int bl_schema_group(const struct bl_node *parent, const char *name, struct bl_node **out,
                    struct bl_error *err)
{
    char found[128];
    struct bl_node *n = bl_node_find(parent, name);
    if (n && n->type != BL_NODE_GROUP)
        return bl_schema_refuse(n, NULL, name, err, "expects a group { key = value; }, found %s",
                                bl_node_describe(n, found));
    if (n)
        n->used = 1;
    *out = n;
    return 0;
}

int bl_schema_host_keys(struct bl_config *c, enum bl_schema_value s, const char *const **out,
                        struct bl_error *err)
{
    const struct bl_schema *schema = &bl_schema[s];
    size_t rows = 0, also = 0;
    while (schema->table[rows].key)
        rows++;
    while (schema->also && schema->also[also])
        also++;
    const char **keys = bl_keep_block(c, calloc(rows + also + 1, sizeof *keys), err);
    if (!keys)
        return -1;
    for (size_t i = 0; i < rows; i++)
        keys[i] = schema->table[i].key;
    for (size_t i = 0; i < also; i++)
        keys[rows + i] = schema->also[i];
    *out = keys;
    return 0;
}

int bl_schema_fill(struct bl_config *c, enum bl_schema_value s, const struct bl_node *group,
                   int open, const char *what, struct bl_options **out, struct bl_error *err)
{
    const struct bl_schema *schema = &bl_schema[s];
    const char *const *also = schema->also;
    const char **names = NULL;
    if (open && group) { /* whatever is there is somebody's; the plugin's table decides later */
        names = calloc(group->count + 1, sizeof *names);
        if (!names)
            return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", what);
        for (size_t i = 0; i < group->count; i++)
            names[i] = group->children[i]->name;
        also = names;
    }
    struct bl_options o;
    int rc = bl_options_fill(&o, schema->table, schema->size, group, also, what, err);
    free(names);
    if (rc != 0)
        return -1;
    *out = bl_keep_options(c, &o, err);
    return *out ? 0 : -1;
}

/* ---- groups ---- */

static int read_root(struct bl_config *c, struct bl_error *err)
{
    struct bl_options *o;
    if (bl_schema_fill(c, BL_SCHEMA_ROOT, c->root, 0, NULL, &o, err) != 0)
        return -1;
    c->plugin_path = *(const struct bl_strings *)o->values;
    return 0;
}

static int read_run(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "run", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_RUN, group, 0, "run", &o, err) != 0)
        return -1;
    c->run = *(const struct bl_run_options *)o->values;

    const char *name = c->run.name;
    int safe = *name && strlen(name) <= 200 && strcmp(name, ".") != 0 && strcmp(name, "..") != 0;
    for (const char *p = name; *p; p++)
        if (*p == '/' || (unsigned char)*p < 0x20 || *p == 0x7f)
            safe = 0;
    if (!safe)
        return bl_schema_refuse(group, "name", "run", err,
                                "name \"%s\" is no name of a folder: no '/', not empty, not . or "
                                "..; the folder around it is run.dir",
                                name);
    if (!*c->run.dir)
        return bl_schema_refuse(group, "dir", "run", err,
                                "dir is empty; \".\" is the current folder");
    return 0;
}

static int read_data(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "data", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_DATA, group, 1, "data", &o, err) != 0)
        return -1;
    c->data = *(const struct bl_data_options *)o->values;
    if (c->data.holdout > 0 && c->data.validation.count > 0)
        return bl_schema_refuse(group, "holdout", "data", err,
                                "holdout and validation both name held-out data; leave one out");
    return bl_instance_fill(c, &c->source, BL_KIND_SOURCE, c->data.source, NULL, group,
                            BL_SCHEMA_DATA, "data", err);
}

static int read_rules(struct bl_config *c, const struct bl_node *group, struct bl_error *err)
{
    char what[64], found[128];
    struct bl_node *list = bl_node_find(group, "rules");
    if (!list)
        return 0;
    if (list->type != BL_NODE_LIST)
        return bl_schema_refuse(list, NULL, "optimizer.rules", err,
                                "expects a list ( { match = \"...\"; } ), found %s",
                                bl_node_describe(list, found));
    list->used = 1;
    struct bl_rule *rules = bl_keep_block(c, calloc(list->count + 1, sizeof *rules), err);
    if (!rules)
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        struct bl_node *node = list->children[i];
        struct bl_options *o;
        snprintf(what, sizeof what, "optimizer.rules[%zu]", i);
        if (node->type != BL_NODE_GROUP)
            return bl_schema_refuse(node, NULL, what, err,
                                    "expects a group { match = \"...\"; }, found %s",
                                    bl_node_describe(node, found));
        node->used = 1;
        if (bl_schema_fill(c, BL_SCHEMA_RULE, node, 0, what, &o, err) != 0)
            return -1;
        rules[i] = *(const struct bl_rule *)o->values;
        if (!*rules[i].match)
            return bl_schema_refuse(node, "match", what, err,
                                    "match is empty; \"*\" matches every tensor");
        if (!bl_node_find(node, "lr_scale"))
            rules[i].lr_scale = NAN;
        if (!bl_node_find(node, "weight_decay"))
            rules[i].weight_decay = NAN;
        if (!bl_node_find(node, "eps"))
            rules[i].eps = NAN;
    }
    c->rules = rules;
    c->rule_count = list->count;
    return 0;
}

static int read_optimizer(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "optimizer", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_OPTIMIZER, group, 1, "optimizer", &o, err) != 0)
        return -1;
    const struct bl_optimizer_keys *k = o->values;
    c->optimizer = k->options;
    if (read_rules(c, group, err) != 0)
        return -1;
    return bl_instance_fill(c, &c->optimizer_plugin, BL_KIND_OPTIMIZER, k->plugin, NULL, group,
                            BL_SCHEMA_OPTIMIZER, "optimizer", err);
}

static int read_schedule(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "schedule", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_SCHEDULE, group, 1, "schedule", &o, err) != 0)
        return -1;
    const struct bl_schedule_keys *k = o->values;
    c->schedule = k->options;
    return bl_instance_fill(c, &c->schedule_plugin, BL_KIND_SCHEDULE, k->plugin, NULL, group,
                            BL_SCHEMA_SCHEDULE, "schedule", err);
}

static int read_precision(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "precision", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_PRECISION, group, 1, "precision", &o, err) != 0 ||
        bl_config_dials(c, group, err) != 0)
        return -1;
    const struct bl_precision_keys *k = o->values;
    return bl_instance_fill(c, &c->precision_plugin, BL_KIND_PRECISION, k->plugin, NULL, group,
                            BL_SCHEMA_PRECISION, "precision", err);
}

static int read_cluster(struct bl_config *c, uint32_t processes, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "cluster", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_CLUSTER, group, 0, "cluster", &o, err) != 0)
        return -1;
    c->cluster = *(const struct bl_cluster_options *)o->values;
    c->ranks = c->cluster.emulate > 0 ? (uint32_t)c->cluster.emulate : processes;
    if (c->ranks % processes != 0) {
        uint32_t less = processes < c->ranks ? processes : c->ranks, more = less;
        while (c->ranks % less != 0)
            less--;
        while (c->ranks % more != 0)
            more++;
        char start[32];
        if (less < more)
            snprintf(start, sizeof start, "%u or %u", less, more);
        else
            snprintf(start, sizeof start, "%u", less);
        return bl_schema_refuse(group, "emulate", "cluster", err,
                                "%u ranks cannot be spread over %u processes; start %s, or another "
                                "number that divides %u, or leave cluster.emulate out",
                                c->ranks, processes, start, c->ranks);
    }
    return bl_config_ring_order(c, group, err);
}

int bl_config_read(const char *path, int overrides, char *const *override, uint32_t processes,
                   struct bl_config **out, struct bl_error *err)
{
    struct bl_config *c = calloc(1, sizeof *c);
    if (!c)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
    if (bl_node_read(path, &c->root, err) != 0)
        goto fail;
    for (int i = 0; i < overrides; i++)
        if (bl_node_override(c->root, override[i], err) != 0)
            goto fail;
    /* bl_config_batch needs what model and cluster say. */
    if (read_root(c, err) != 0 || read_run(c, err) != 0 || bl_config_model(c, err) != 0 ||
        read_data(c, err) != 0 || read_cluster(c, processes, err) != 0 ||
        bl_config_batch(c, err) != 0 || read_optimizer(c, err) != 0 || read_schedule(c, err) != 0 ||
        read_precision(c, err) != 0 || bl_config_lists(c, err) != 0 ||
        bl_config_alarms(c, err) != 0)
        goto fail;
    *out = c;
    return 0;

fail:
    bl_config_free(c);
    return -1;
}
