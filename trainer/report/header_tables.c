#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "report/tables.h"

enum { TEXT = 64, MOST_GROUPS = 12 };

static void add_pair(struct bl_document *d, const char *name, const char *value)
{
    const char *cells[] = {name, value};
    bl_document_row(d, "ll", cells);
}

/* 918656 (919k) */
static void add_count(struct bl_document *d, const char *name, double v)
{
    char short_text[TEXT], text[2 * TEXT];
    if (v < 10000)
        snprintf(text, sizeof text, "%.0f", v);
    else
        snprintf(text, sizeof text, "%.0f (%s)", v, bl_human(v, short_text));
    add_pair(d, name, text);
}

static double get(const json_t *j, const char *key)
{
    return json_number_value(json_object_get(j, key));
}

static void add_world(struct bl_document *d, const json_t *world)
{
    char text[4 * TEXT];
    double ranks = get(world, "ranks"), processes = get(world, "processes");
    double nodes = get(world, "nodes");
    snprintf(text, sizeof text,
             "%.0f %s%s on %.0f %s of %.0f %s, micro-batches of up to %.0f sequences", ranks,
             ranks == 1 ? "rank" : "ranks",
             json_number_value(json_object_get(world, "emulated")) != 0 ? ", emulated," : "",
             processes, processes == 1 ? "process" : "processes", nodes > 0 ? nodes : 1,
             nodes > 1 ? "nodes" : "node", get(world, "micro"));
    add_pair(d, "world", text);
}

/* Keys that this file knows have their words; scalars that it does not know stand as they are. */
static void add_facts(struct bl_document *d, const struct bl_input *in)
{
    static const struct {
        const char *key, *words;
        int count;
    } known[] = {{"program", "program", 0},
                 {"abi", "plugin ABI", 0},
                 {"compiler", "compiler", 0},
                 {"host", "host", 0},
                 {"device", "device", 0},
                 {"seed", "seed", 0},
                 {"steps", "steps planned", 1},
                 {"parameters", "parameters", 1},
                 {"vocab", "vocabulary", 1},
                 {"padded_vocab", "vocabulary, padded", 1},
                 {"tokens_per_update", "tokens per update", 1},
                 {"flops_per_token", "FLOPs per token", 1},
                 {"flops_formula", "FLOPs formula", 0},
                 {"reduction_rules", "order of that sum", 0},
                 {"warmup_convention", "warmup convention", 0},
                 {"source_entropy", "entropy of the source", 0}};
    static const char *const head[] = {"", ""};
    const char *key;
    json_t *value;
    const json_t *world = json_object_get(in->header, "world");
    bl_document_heading(d, "What ran");
    bl_document_table(d, "ll", head);
    json_object_foreach(in->header, key, value)
    {
        const char *words = key;
        int count = 0;
        for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
            if (strcmp(key, known[i].key) == 0) {
                words = known[i].words;
                count = known[i].count;
            }
        }
        if (strcmp(key, "run") == 0)
            continue;
        if (strcmp(key, "world") == 0 && json_is_object(value)) {
            add_world(d, value);
        } else if (strcmp(key, "reduction") == 0 && json_is_array(value)) {
            for (size_t i = 0; i < json_array_size(value) && get(world, "ranks") > 1; i++)
                add_pair(d, "sum over ranks", json_string_value(json_array_get(value, i)));
        } else if (strcmp(key, "reduction_rules") == 0 && get(world, "ranks") == 1) {
            continue; /* nothing is summed */
        } else if (count && json_is_number(value)) {
            add_count(d, words, json_number_value(value));
        } else if (!json_is_object(value) && !json_is_array(value)) {
            const char *text = bl_facts_find(&in->facts, key);
            add_pair(d, words, text != NULL ? text : "");
        }
    }
    if (get(in->header, "steps") > 0 && get(in->header, "tokens_per_update") > 0)
        add_count(d, "tokens planned",
                  get(in->header, "steps") * get(in->header, "tokens_per_update"));
    bl_document_table_end(d);
}

/* Dials down, groups across. */
static void add_precision(struct bl_document *d, const json_t *precision)
{
    const char *group, *dial, *head[MOST_GROUPS + 1] = {"dial"}, *dials[64];
    char align[MOST_GROUPS + 2];
    json_t *table, *value, *groups[MOST_GROUPS];
    size_t columns = 0, rows = 0;
    if (!json_is_object(precision))
        return;
    json_t *object = (json_t *)precision; /* the macro wants no const */
    json_object_foreach(object, group, table)
    {
        if (!json_is_object(table) || columns == MOST_GROUPS)
            continue;
        head[columns + 1] = group;
        groups[columns++] = table;
        json_object_foreach(table, dial, value)
        {
            size_t i = 0;
            while (i < rows && strcmp(dials[i], dial) != 0)
                i++;
            if (i == rows && rows < sizeof dials / sizeof *dials)
                dials[rows++] = dial;
        }
    }
    if (columns == 0)
        return;
    memset(align, 'l', columns + 1);
    align[columns + 1] = '\0';
    bl_document_heading(d, "Precision");
    bl_document_paragraph(d,
                          "Effective dials of each group of tensors; – where a group has no such "
                          "dial.");
    bl_document_table(d, align, head);
    for (size_t r = 0; r < rows; r++) {
        const char *cells[MOST_GROUPS + 1] = {dials[r]};
        for (size_t c = 0; c < columns; c++) {
            const char *text = json_string_value(json_object_get(groups[c], dials[r]));
            cells[c + 1] = text != NULL ? text : "–";
        }
        bl_document_row(d, align, cells);
    }
    bl_document_table_end(d);
}

/* "layers.3.attn.q.weight" -> "layers.*.attn.q.weight": numbers between dots. */
static char *pattern(const char *name)
{
    struct bl_text t = {0};
    bl_text_add(&t, "%s", "");
    while (*name) {
        size_t n = strcspn(name, "."), digits = strspn(name, "0123456789");
        if (n == digits && n > 0)
            bl_text_add(&t, "*");
        else
            bl_text_add(&t, "%.*s", (int)n, name);
        name += n;
        if (*name == '.')
            bl_text_add(&t, "%c", *name++);
    }
    return t.text;
}

/* Names, one for all layers, in order of first appearance. */
static char *compress(const json_t *names)
{
    struct bl_text t = {0};
    json_t *done = json_object(), *name;
    size_t i;
    const char *key;
    bl_text_add(&t, "%s", "");
    json_array_foreach(names, i, name)
    {
        char *p = json_is_string(name) ? pattern(json_string_value(name)) : NULL;
        if (p != NULL)
            json_object_set_new(done, p,
                                json_integer(json_integer_value(json_object_get(done, p)) + 1));
        free(p);
    }
    json_object_foreach(done, key, name)
    {
        json_int_t n = json_integer_value(name);
        bl_text_add(&t, "%s%s", t.length ? ", " : "", key);
        if (n > 1)
            bl_text_add(&t, " (%lld)", (long long)n);
    }
    json_decref(done);
    return t.text;
}

static void add_decay_groups(struct bl_document *d, const struct bl_input *in)
{
    static const char align[] = "lrrrl";
    static const char *const head[] = {"rule", "weight decay", "lr scale", "eps", "tensors"};
    const json_t *groups = json_object_get(in->header, "decay_groups"), *g;
    size_t i;
    if (json_array_size(groups) == 0)
        return;
    bl_document_heading(d, "Decay groups");
    bl_document_table(d, align, head);
    json_array_foreach(groups, i, g)
    {
        char rule[TEXT], decay[TEXT], scale[TEXT], eps[TEXT] = "";
        json_int_t number = json_integer_value(json_object_get(g, "rule"));
        char *names = compress(json_object_get(g, "parameters"));
        char key[TEXT];
        snprintf(key, sizeof key, "optimizer.rules[%lld].match", (long long)number);
        const char *match = bl_facts_find(&in->config, key);
        snprintf(rule, sizeof rule, "%lld", (long long)number);
        snprintf(decay, sizeof decay, "%g", get(g, "weight_decay"));
        snprintf(scale, sizeof scale, "%g", get(g, "lr_scale"));
        if (json_object_get(g, "eps") != NULL)
            snprintf(eps, sizeof eps, "%g", get(g, "eps"));
        const char *cells[] = {number < 0      ? "none"
                               : match != NULL ? match
                                               : rule,
                               decay, scale, eps, names};
        bl_document_row(d, align, cells);
        free(names);
    }
    bl_document_table_end(d);
}

static void add_plugins(struct bl_document *d, const json_t *plugins)
{
    static const char align[] = "llllll";
    static const char *const head[] = {"kind", "instance", "plugin", "version", "xxh64", ""};
    static const char *const keys[] = {"kind", "name", "plugin", "version", "xxh64"};
    const json_t *p;
    size_t i;
    if (json_array_size(plugins) == 0)
        return;
    bl_document_heading(d, "Plugins");
    bl_document_table(d, align, head);
    json_array_foreach(plugins, i, p)
    {
        const char *cells[6];
        for (size_t k = 0; k < 5; k++)
            cells[k] = json_string_value(json_object_get(p, keys[k]));
        cells[5] = json_is_true(json_object_get(p, "null")) ? "null: no effect" : "";
        bl_document_row(d, align, cells);
    }
    bl_document_table_end(d);
}

void bl_table_header(struct bl_document *d, const struct bl_input *in)
{
    if (in->header == NULL)
        return;
    add_facts(d, in);
    add_precision(d, json_object_get(in->header, "precision"));
    add_decay_groups(d, in);
    add_plugins(d, json_object_get(in->header, "plugins"));
}
