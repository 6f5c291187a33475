#include <math.h>
#include <string.h>

#include <ballast/precision.h>

#include "config/internal.h"
#include "config/schema.h"

struct dump {
    const struct bl_config *c;
    bl_instance_dump_f *plugin_keys;
    void *context;
    struct bl_text *out;
};

/* The keys of a host table from the struct that holds them now. */
static void dump_values(const struct dump *d, enum bl_schema_value s, const void *values)
{
    union {
        const void *in;
        void *out;
    } cast = {values}; /* bl_options_dump only reads */
    struct bl_options o = {cast.out, bl_schema[s].size, bl_schema[s].table, NULL, NULL};
    bl_options_dump(&o, 4, d->out);
}

static int is_host_key(const struct bl_instance *i, const char *key)
{
    for (const char *const *k = i->host_keys; k && *k; k++)
        if (strcmp(*k, key) == 0)
            return 1;
    return 0;
}

static void dump_plugin_keys(const struct dump *d, const struct bl_instance *i, int indent)
{
    if (d->plugin_keys) {
        d->plugin_keys(d->context, i, indent, d->out);
        return;
    }
    for (size_t k = 0; i->node && k < i->node->count; k++)
        if (!is_host_key(i, i->node->children[k]->name))
            bl_node_dump(i->node->children[k], indent, d->out);
}

static void open_group(const struct dump *d, const char *name)
{
    bl_text_add(d->out, "\n%s = {\n", name);
}

static void close_group(const struct dump *d)
{
    bl_text_add(d->out, "};\n");
}

static void dump_group(const struct dump *d, enum bl_schema_value s, const void *values,
                       const struct bl_instance *plugin)
{
    open_group(d, bl_schema[s].name);
    dump_values(d, s, values);
    if (plugin)
        dump_plugin_keys(d, plugin, 4);
    close_group(d);
}

static void dump_rule(const struct dump *d, const struct bl_rule *r)
{
    const struct {
        const char *key;
        double value;
    } part[] = {{"lr_scale", r->lr_scale}, {"weight_decay", r->weight_decay}, {"eps", r->eps}};
    bl_text_add(d->out, "        { match = ");
    bl_text_quote(d->out, r->match);
    bl_text_add(d->out, ";");
    for (size_t i = 0; i < sizeof part / sizeof part[0]; i++) {
        if (isnan(part[i].value))
            continue;
        bl_text_add(d->out, " %s = ", part[i].key);
        bl_text_float(d->out, part[i].value);
        bl_text_add(d->out, ";");
    }
    bl_text_add(d->out, " }");
}

static void dump_optimizer(const struct dump *d)
{
    const struct bl_config *c = d->c;
    struct bl_optimizer_keys keys = {c->optimizer, c->optimizer_plugin.plugin};
    open_group(d, "optimizer");
    dump_values(d, BL_SCHEMA_OPTIMIZER, &keys);
    bl_text_add(d->out, "    rules = (");
    for (size_t i = 0; i < c->rule_count; i++) {
        bl_text_add(d->out, i ? ",\n" : "\n");
        dump_rule(d, &c->rules[i]);
    }
    bl_text_add(d->out, c->rule_count ? "\n    );\n" : " );\n");
    dump_plugin_keys(d, &c->optimizer_plugin, 4);
    close_group(d);
}

/* The words of a dial's choice are in the table of the top level. */
static void dump_dial(const struct dump *d, const struct bl_dial_info *dial, uint32_t value,
                      int indent)
{
    const struct bl_option *row = bl_schema[BL_SCHEMA_PRECISION].table;
    while (strcmp(row->key, dial->key) != 0)
        row++;
    uint32_t word = value;
    if (dial->is_dtype) /* "fp32|bf16|fp16", as far as the dial has them */
        word = value == BL_BF16 ? 1 : value == BL_FP16 ? 2 : 0;
    const char *w = row->range;
    for (; word > 0 && strchr(w, '|'); word--)
        w = strchr(w, '|') + 1;
    bl_text_add(d->out, "%*s%s = \"%.*s\";\n", indent, "", dial->key, (int)strcspn(w, "|"), w);
}

/* 1 when every group that has the dial has the same written value: it stands at the top then. */
static int is_common(const struct bl_config *c, const struct bl_dial_info *dial, uint32_t *value)
{
    uint32_t common = BL_DIAL_UNSET;
    int first = 1;
    for (unsigned g = 0; g < BL_GROUP_COUNT; g++) {
        if (!(dial->groups & 1u << g))
            continue;
        if (!first && c->dials[g][dial->dial] != common)
            return 0;
        common = c->dials[g][dial->dial];
        first = 0;
    }
    *value = common;
    return common != BL_DIAL_UNSET;
}

static void dump_precision(const struct dump *d)
{
    const struct bl_config *c = d->c;
    uint32_t value;
    open_group(d, "precision");
    bl_text_add(d->out, "    plugin = ");
    bl_text_quote(d->out, c->precision_plugin.plugin);
    bl_text_add(d->out, ";\n");
    for (unsigned i = 0; i < bl_dial_count; i++)
        if (is_common(c, &bl_dials[i], &value))
            dump_dial(d, &bl_dials[i], value, 4);
    for (unsigned g = 0; g < BL_GROUP_COUNT; g++) {
        int open = 0;
        for (unsigned i = 0; i < bl_dial_count; i++) {
            uint32_t own = c->dials[g][bl_dials[i].dial];
            if (own == BL_DIAL_UNSET || is_common(c, &bl_dials[i], &value))
                continue;
            if (!open)
                bl_text_add(d->out, "    %s = {\n", bl_group_name(g));
            open = 1;
            dump_dial(d, &bl_dials[i], own, 8);
        }
        if (open)
            bl_text_add(d->out, "    };\n");
    }
    dump_plugin_keys(d, &c->precision_plugin, 4);
    close_group(d);
}

static void dump_bound(const struct dump *d, const char *key, double value)
{
    if (isnan(value))
        return;
    bl_text_add(d->out, " %s = ", key);
    bl_text_float(d->out, value);
    bl_text_add(d->out, ";");
}

static void dump_alarms(const struct dump *d)
{
    bl_text_add(d->out, "\nalarms = (");
    for (size_t i = 0; i < d->c->alarm_count; i++) {
        const struct bl_alarm *a = &d->c->alarms[i];
        bl_text_add(d->out, "%s    { metric = ", i ? ",\n" : "\n");
        bl_text_quote(d->out, a->metric);
        bl_text_add(d->out, ";");
        dump_bound(d, "above", a->above);
        dump_bound(d, "below", a->below);
        bl_text_add(d->out, " for = ");
        bl_text_int(d->out, a->in_a_row);
        bl_text_add(d->out, "; from = ");
        bl_text_int(d->out, a->from);
        bl_text_add(d->out, "; action = \"%s\"; }", bl_alarm_action_name(a->action));
    }
    bl_text_add(d->out, d->c->alarm_count ? "\n);\n" : " );\n");
}

static void dump_list(const struct dump *d, const struct bl_list_info *info)
{
    const char *base = (const char *)d->c;
    const struct bl_instance *list =
        *(struct bl_instance *const *)(const void *)(base + info->list);
    size_t count = *(const size_t *)(const void *)(base + info->count);
    bl_text_add(d->out, "\n%s = (", info->group);
    for (size_t i = 0; i < count; i++) {
        bl_text_add(d->out, "%s    {\n        plugin = ", i ? ",\n" : "\n");
        bl_text_quote(d->out, list[i].plugin);
        bl_text_add(d->out, ";\n        name = ");
        bl_text_quote(d->out, list[i].name);
        bl_text_add(d->out, ";\n");
        if (info->schema == BL_SCHEMA_MONITOR) {
            bl_text_add(d->out, "        every = ");
            bl_text_int(d->out, list[i].every);
            bl_text_add(d->out, ";\n");
        }
        dump_plugin_keys(d, &list[i], 8);
        bl_text_add(d->out, "    }");
    }
    bl_text_add(d->out, count ? "\n);\n" : " );\n");
}

int bl_config_dump(const struct bl_config *c, bl_instance_dump_f *instance_dump, void *context,
                   struct bl_text *out, struct bl_error *err)
{
    const struct dump d = {c, instance_dump, context, out};
    struct bl_batch_options batch = c->batch;
    struct bl_schedule_keys schedule = {c->schedule, c->schedule_plugin.plugin};
    struct bl_cluster_options cluster = c->cluster;
    batch.tokens = 0;           /* a configuration gives one of the two */
    cluster.emulate = c->ranks; /* the same bits on any number of processes */

    bl_text_add(out, "# ballast: the effective configuration, complete and re-runnable\n");
    dump_group(&d, BL_SCHEMA_RUN, &c->run, NULL);
    dump_group(&d, BL_SCHEMA_MODEL, &c->model, NULL);
    dump_group(&d, BL_SCHEMA_DATA, &c->data, &c->source);
    dump_group(&d, BL_SCHEMA_BATCH, &batch, NULL);
    dump_optimizer(&d);
    dump_group(&d, BL_SCHEMA_SCHEDULE, &schedule, &c->schedule_plugin);
    dump_precision(&d);
    open_group(&d, bl_schema[BL_SCHEMA_CLUSTER].name);
    dump_values(&d, BL_SCHEMA_CLUSTER, &cluster);
    bl_ring_order_dump(&cluster, out);
    close_group(&d);
    for (size_t i = 0; i < sizeof bl_lists / sizeof bl_lists[0]; i++)
        dump_list(&d, &bl_lists[i]);
    dump_alarms(&d);

    bl_text_add(out, "\nplugin_path = (");
    for (uint64_t i = 0; i < c->plugin_path.count; i++) {
        bl_text_add(out, i ? ", " : " ");
        bl_text_quote(out, c->plugin_path.values[i]);
    }
    bl_text_add(out, " );\n");
    if (out->failed)
        return bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
    return 0;
}
