#include "report/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"

/* Takes key and value over, also when it fails. */
static int add(struct bl_facts *f, char *key, char *value)
{
    if (key == NULL || value == NULL)
        goto failed;
    if (f->count == f->capacity) {
        size_t capacity = f->capacity ? 2 * f->capacity : 64;
        struct bl_fact *grown = realloc(f->items, capacity * sizeof *grown);
        if (grown == NULL)
            goto failed;
        f->items = grown;
        f->capacity = capacity;
    }
    f->items[f->count++] = (struct bl_fact){key, value};
    return 0;
failed:
    free(key);
    free(value);
    return -1;
}

static const char *node_string(const struct bl_node *group, const char *key)
{
    const struct bl_node *n = group->type == BL_NODE_GROUP ? bl_node_find(group, key) : NULL;
    return n != NULL && n->type == BL_NODE_STRING ? n->string : NULL;
}

/* A list of plain values is one fact: [0.9, 0.95]. */
static void add_plain(struct bl_text *t, const struct bl_node *n)
{
    char number[32];
    switch (n->type) {
    case BL_NODE_INT:
        bl_text_add(t, "%lld", (long long)n->integer);
        break;
    case BL_NODE_FLOAT:
        bl_text_add(t, "%s", bl_double_text(n->real, number));
        break;
    case BL_NODE_BOOL:
        bl_text_add(t, "%s", n->integer ? "true" : "false");
        break;
    case BL_NODE_STRING:
        bl_text_add(t, "%s", n->string);
        break;
    default:
        for (size_t i = 0; i < n->count; i++) {
            bl_text_add(t, "%s", i ? ", " : "");
            add_plain(t, n->children[i]);
        }
    }
}

static int has_groups(const struct bl_node *n)
{
    for (size_t i = 0; i < n->count; i++) {
        if (n->children[i]->type == BL_NODE_GROUP)
            return 1;
    }
    return 0;
}

/* An empty list is no fact: another run's members stand against nothing. */
static int add_node(struct bl_facts *f, const struct bl_node *n, const char *prefix)
{
    if (n->type != BL_NODE_GROUP && !has_groups(n)) {
        struct bl_text value = {0};
        if (n->type == BL_NODE_LIST && n->count == 0)
            return 0;
        bl_text_add(&value, "%s", "");
        add_plain(&value, n);
        if (value.failed) {
            bl_text_free(&value);
            return -1;
        }
        return add(f, strdup(prefix), value.text);
    }
    for (size_t i = 0; i < n->count; i++) {
        const struct bl_node *child = n->children[i];
        const char *name = child->name != NULL ? child->name : node_string(child, "name");
        if (name == NULL)
            name = node_string(child, "plugin");
        char *key = name != NULL && *prefix ? bl_format("%s.%s", prefix, name)
                    : name != NULL          ? strdup(name)
                                            : bl_format("%s[%zu]", prefix, i);
        int rc = key == NULL ? -1 : add_node(f, child, key);
        free(key);
        if (rc < 0)
            return -1;
    }
    return 0;
}

int bl_facts_of_config(const struct bl_node *root, struct bl_facts *out)
{
    return add_node(out, root, "");
}

static int add_json(struct bl_facts *f, const json_t *j, const char *prefix)
{
    const char *key;
    const json_t *value;
    size_t i;
    int rc = 0;
    if (json_is_object(j)) {
        /* jansson iterates in insertion order; its macro wants a pointer without const */
        json_t *object = (json_t *)j;
        json_object_foreach(object, key, value)
        {
            char *name = *prefix ? bl_format("%s.%s", prefix, key) : strdup(key);
            rc = name == NULL ? -1 : add_json(f, value, name);
            free(name);
            if (rc < 0)
                return -1;
        }
        return 0;
    }
    if (json_is_array(j)) {
        json_array_foreach(j, i, value)
        {
            const char *kind = json_string_value(json_object_get(value, "kind"));
            const char *label = json_string_value(json_object_get(value, "name"));
            char *name = kind != NULL && label != NULL ? bl_format("%s.%s.%s", prefix, kind, label)
                                                       : bl_format("%s[%zu]", prefix, i);
            rc = name == NULL ? -1 : add_json(f, value, name);
            free(name);
            if (rc < 0)
                return -1;
        }
        return 0;
    }
    return add(f, strdup(prefix),
               json_is_string(j) ? strdup(json_string_value(j))
                                 : json_dumps(j, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9)));
}

int bl_facts_of_json(const json_t *root, struct bl_facts *out)
{
    return add_json(out, root, "");
}

const char *bl_facts_find(const struct bl_facts *f, const char *key)
{
    for (size_t i = 0; i < f->count; i++) {
        if (strcmp(f->items[i].key, key) == 0)
            return f->items[i].value;
    }
    return NULL;
}

void bl_facts_free(struct bl_facts *f)
{
    for (size_t i = 0; i < f->count; i++) {
        free(f->items[i].key);
        free(f->items[i].value);
    }
    free(f->items);
    memset(f, 0, sizeof *f);
}
