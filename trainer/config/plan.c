#include "config/plan.h"

#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "config/internal.h"
#include "config/schema.h"

static const char *const free_groups[] = {"sinks", "alarms", "plugin_path", NULL};
static const char *const free_run_keys[] = {
    "name",       "dir",        "threads", "backend",    "keep",        "checkpoint_every",
    "eval_every", "keep_every", "ring",    "ring_every", "eval_tokens", "save",
    NULL};
/* Who does the work, not what comes out of it. */
static const char *const free_cluster_keys[] = {"keep", "shard", "timeout", "check_every", NULL};

static int contains(const char *const *list, const char *word)
{
    for (; *list; list++)
        if (strcmp(*list, word) == 0)
            return 1;
    return 0;
}

static void drop(struct bl_node *group, const char *const *names)
{
    size_t kept = 0;
    for (size_t i = 0; i < group->count; i++) {
        if (contains(names, group->children[i]->name))
            bl_node_drop(group->children[i]);
        else
            group->children[kept++] = group->children[i];
    }
    group->count = kept;
}

static int read_plan(const char *text, const char *name, struct bl_node **out, struct bl_error *err)
{
    if (bl_node_parse_text(text, name, 0, out, err) != 0)
        return -1;
    struct bl_node *run = bl_node_find(*out, "run");
    struct bl_node *cluster = bl_node_find(*out, "cluster");
    drop(*out, free_groups);
    if (run != NULL && run->type == BL_NODE_GROUP)
        drop(run, free_run_keys);
    if (cluster != NULL && cluster->type == BL_NODE_GROUP)
        drop(cluster, free_cluster_keys);
    return 0;
}

int bl_plan_hash(const char *config, uint64_t *out, struct bl_error *err)
{
    struct bl_node *plan;
    struct bl_text text = {0};
    if (read_plan(config, "configuration", &plan, err) != 0)
        return -1;
    for (size_t i = 0; i < plan->count; i++)
        bl_node_dump(plan->children[i], 0, &text);
    bl_node_free(plan);
    int rc = text.failed ? bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory") : 0;
    if (rc == 0) {
        *out = bl_hash(text.text != NULL ? text.text : "");
        if (*out == 0)
            *out = 1;
    }
    bl_text_free(&text);
    return rc;
}

/* ---- where two plans differ ------------------------------------------------------------------ */

/* From a node up to the root, so that a path is written only where it is needed. */
struct path {
    const struct path *parent;
    const char *name; /* NULL: element `index` */
    size_t index;
};

static void add_path(const struct path *p, struct bl_text *out)
{
    if (p->parent == NULL)
        return;
    add_path(p->parent, out);
    if (p->name == NULL)
        bl_text_add(out, "[%zu]", p->index);
    else
        bl_text_add(out, "%s%s", p->parent->parent != NULL ? "." : "", p->name);
}

/* The value as it is written; of what holds others, how much there is. */
static void add_value(const struct bl_node *n, struct bl_text *out)
{
    char text[128];
    if (n == NULL)
        bl_text_add(out, "absent");
    else if (n->type == BL_NODE_GROUP)
        bl_text_add(out, "a group");
    else /* without "the integer ", "the string " */
        bl_text_add(out, "%s",
                    n->type == BL_NODE_LIST ? bl_node_describe(n, text)
                                            : strchr(bl_node_describe(n, text) + 4, ' ') + 1);
}

/* Calls `found` at every difference, as long as it answers 0. */
struct walk {
    int (*found)(void *context, const struct path *p, const struct bl_node *there,
                 const struct bl_node *now);
    void *context;
};

/* What is written only when it is set: there, to have a key or not is a difference. Elsewhere a
 * configuration is complete, and a key that only one of them has is one that the program which
 * wrote the other did not know. */
static int is_optional(const struct path *p)
{
    for (; p->parent != NULL; p = p->parent)
        if (p->name != NULL && (strcmp(p->name, "rules") == 0 || strcmp(p->name, "precision") == 0))
            return 1;
    return 0;
}

/* The host's keys of the groups that are always there, each with its default. */
static int read_defaults(struct bl_node **out, struct bl_error *err)
{
    static const enum bl_schema_value groups[] = {
        BL_SCHEMA_RUN,       BL_SCHEMA_MODEL,    BL_SCHEMA_DATA,   BL_SCHEMA_BATCH,
        BL_SCHEMA_OPTIMIZER, BL_SCHEMA_SCHEDULE, BL_SCHEMA_CLUSTER};
    struct bl_text text = {0};
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < sizeof groups / sizeof *groups; i++) {
        const struct bl_schema *s = &bl_schema[groups[i]];
        struct bl_options o;
        rc = bl_options_fill(&o, s->table, s->size, NULL, NULL, s->name, err);
        if (rc < 0)
            break;
        /* A program without this key knew one rank only. */
        if (groups[i] == BL_SCHEMA_CLUSTER)
            ((struct bl_cluster_options *)o.values)->emulate = 1;
        bl_text_add(&text, "%s = {\n", s->name);
        bl_options_dump(&o, 4, &text);
        bl_text_add(&text, "};\n");
        bl_options_free(&o);
    }
    if (rc == 0 && text.failed)
        rc = bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
    if (rc == 0)
        rc = bl_node_parse_text(text.text, "defaults", 0, out, err);
    bl_text_free(&text);
    return rc;
}

static int same_value(const struct bl_node *a, const struct bl_node *b)
{
    switch (a->type) {
    case BL_NODE_FLOAT:
        return a->real == b->real;
    case BL_NODE_STRING:
        return strcmp(a->string, b->string) == 0;
    default:
        return a->integer == b->integer;
    }
}

static const struct bl_node *child_of(const struct bl_node *group, const char *name)
{
    return group != NULL && group->type == BL_NODE_GROUP ? bl_node_find(group, name) : NULL;
}

static int walk(const struct walk *w, const struct path *p, const struct bl_node *there,
                const struct bl_node *now, const struct bl_node *standard);

/* standard: the group's defaults, as far as they are known. */
static int walk_group(const struct walk *w, const struct path *p, const struct bl_node *there,
                      const struct bl_node *now, const struct bl_node *standard)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < now->count; i++) {
        const struct path child = {p, now->children[i]->name, 0};
        rc = walk(w, &child, bl_node_find(there, child.name), now->children[i],
                  child_of(standard, child.name));
    }
    for (size_t i = 0; rc == 0 && i < there->count; i++) {
        const struct path child = {p, there->children[i]->name, 0};
        if (bl_node_find(now, child.name) == NULL)
            rc = walk(w, &child, there->children[i], NULL, child_of(standard, child.name));
    }
    return rc;
}

static int walk(const struct walk *w, const struct path *p, const struct bl_node *there,
                const struct bl_node *now, const struct bl_node *standard)
{
    if (there == NULL)
        there = standard;
    if (now == NULL)
        now = standard;
    if (there == NULL || now == NULL || there->type != now->type)
        return w->found(w->context, p, there, now);
    if (now->type == BL_NODE_GROUP)
        return walk_group(w, p, there, now, standard);
    if (now->type != BL_NODE_LIST)
        return same_value(there, now) ? 0 : w->found(w->context, p, there, now);
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < there->count && i < now->count; i++) {
        const struct path child = {p, NULL, i};
        rc = walk(w, &child, there->children[i], now->children[i], NULL);
    }
    return rc != 0 || there->count == now->count ? rc : w->found(w->context, p, there, now);
}

static int first_difference(void *context, const struct path *p, const struct bl_node *there,
                            const struct bl_node *now)
{
    struct bl_text *out = context;
    if ((there == NULL || now == NULL) && !is_optional(p))
        return 0;
    add_path(p, out);
    bl_text_add(out, " is ");
    add_value(there, out);
    bl_text_add(out, " there, ");
    add_value(now, out);
    bl_text_add(out, " now");
    return 1;
}

static int every_difference(void *context, const struct path *p, const struct bl_node *there,
                            const struct bl_node *now)
{
    struct bl_text *out = context;
    add_path(p, out);
    bl_text_add(out, ": ");
    add_value(there, out);
    bl_text_add(out, " -> ");
    add_value(now, out);
    bl_text_add(out, "\n");
    return 0;
}

static int compare(const char *there, const char *name, const char *now, const struct walk *w,
                   struct bl_text *out, struct bl_error *err)
{
    const struct path root = {NULL, NULL, 0};
    struct bl_node *a = NULL, *b = NULL, *standard = NULL;
    int rc = -1;
    if (read_plan(there, name, &a, err) == 0 && read_plan(now, "configuration", &b, err) == 0 &&
        read_defaults(&standard, err) == 0)
        rc = walk(w, &root, a, b, standard);
    bl_node_free(a);
    bl_node_free(b);
    bl_node_free(standard);
    if (out->failed)
        rc = bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
    return rc;
}

int bl_plan_compare(const char *there, const char *name, const char *now, struct bl_text *out,
                    struct bl_error *err)
{
    const struct walk w = {first_difference, out};
    return compare(there, name, now, &w, out, err);
}

int bl_plan_differences(const char *there, const char *name, const char *now, struct bl_text *out,
                        struct bl_error *err)
{
    const struct walk w = {every_difference, out};
    return compare(there, name, now, &w, out, err);
}
