#include "config/node.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

const char bl_command_line[] = "command line";

const char *bl_file_table_add(struct bl_file_table *t, const char *name)
{
    for (size_t i = 0; i < t->count; i++)
        if (strcmp(t->names[i], name) == 0)
            return t->names[i];
    char **names = realloc(t->names, (t->count + 1) * sizeof *names);
    if (!names)
        return NULL;
    t->names = names;
    names[t->count] = strdup(name);
    return names[t->count] ? names[t->count++] : NULL;
}

void bl_file_table_free(struct bl_file_table *t)
{
    for (size_t i = 0; i < t->count; i++)
        free(t->names[i]);
    free(t->names);
    *t = (struct bl_file_table){0};
}

struct bl_node *bl_node_new(enum bl_node_type type, const char *name)
{
    struct bl_node *n = calloc(1, sizeof *n);
    if (!n)
        return NULL;
    n->type = type;
    if (name && !(n->name = strdup(name))) {
        free(n);
        return NULL;
    }
    return n;
}

int bl_node_add(struct bl_node *parent, struct bl_node *child)
{
    /* Grows when count is a power of two: no capacity has to be stored. */
    size_t n = parent->count;
    if ((n & (n - 1)) == 0) {
        struct bl_node **children =
            realloc(parent->children, (n ? 2 * n : 1) * sizeof(struct bl_node *));
        if (!children)
            return -1;
        parent->children = children;
    }
    parent->children[parent->count++] = child;
    return 0;
}

static void clear(struct bl_node *node)
{
    for (size_t i = 0; i < node->count; i++)
        bl_node_drop(node->children[i]);
    free(node->children);
    free(node->name);
    free(node->string);
}

void bl_node_drop(struct bl_node *node)
{
    if (!node)
        return;
    clear(node);
    free(node);
}

void bl_node_free(struct bl_node *root)
{
    if (!root)
        return;
    struct bl_root *r = (struct bl_root *)root;
    clear(root);
    bl_file_table_free(&r->files);
    free(r);
}

struct bl_node *bl_node_find(const struct bl_node *group, const char *name)
{
    if (!group || group->type != BL_NODE_GROUP)
        return NULL;
    for (size_t i = 0; i < group->count; i++)
        if (strcmp(group->children[i]->name, name) == 0)
            return group->children[i];
    return NULL;
}

const char *bl_node_where(const struct bl_node *node, char *buffer)
{
    const char *file = node->file ? node->file : "configuration";
    size_t n = strlen(file);
    /* The end of a long path says more than its beginning. */
    const char *cut = n > 280 ? "..." : "";
    if (n > 280)
        file += n - 280;
    if (node->line > 0)
        snprintf(buffer, 300, "%s%s:%d", cut, file, node->line);
    else
        snprintf(buffer, 300, "%s%s", cut, file);
    return buffer;
}

int bl_node_is_override(const struct bl_node *node)
{
    return node->line == 0 && node->file &&
           strncmp(node->file, bl_command_line, sizeof bl_command_line - 1) == 0;
}

const char *bl_node_type_name(const struct bl_node *node)
{
    switch (node->type) {
    case BL_NODE_GROUP:
        return "a group";
    case BL_NODE_LIST:
        return "a list";
    case BL_NODE_INT:
        return "an integer";
    case BL_NODE_FLOAT:
        return "a float";
    case BL_NODE_BOOL:
        return "a boolean";
    default:
        return "a string";
    }
}

const char *bl_node_describe(const struct bl_node *node, char *buffer)
{
    char number[32];
    switch (node->type) {
    case BL_NODE_INT:
        snprintf(buffer, 128, "the integer %lld", (long long)node->integer);
        break;
    case BL_NODE_FLOAT:
        snprintf(buffer, 128, "the float %s", bl_double_text(node->real, number));
        break;
    case BL_NODE_BOOL:
        snprintf(buffer, 128, "the boolean %s", node->integer ? "true" : "false");
        break;
    case BL_NODE_STRING:
        snprintf(buffer, 128, "the string \"%.80s%s\"", node->string,
                 strlen(node->string) > 80 ? "..." : "");
        break;
    case BL_NODE_LIST:
        snprintf(buffer, 128, "a list of %zu", node->count);
        break;
    default:
        snprintf(buffer, 128, "a group { }");
        break;
    }
    return buffer;
}

int bl_is_key(const char *text, size_t n)
{
    if (n == 0 || !(isalpha((unsigned char)text[0]) || text[0] == '*'))
        return 0;
    for (size_t i = 1; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("-_*", text[i]))
            return 0;
    return 1;
}

void bl_text_quote(struct bl_text *out, const char *text)
{
    bl_text_add(out, "\"");
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\')
            bl_text_add(out, "\\%c", c);
        else if (c == '\n')
            bl_text_add(out, "\\n");
        else if (c == '\t')
            bl_text_add(out, "\\t");
        else if (c < 0x20 || c == 0x7f)
            bl_text_add(out, "\\x%02x", c);
        else
            bl_text_add(out, "%c", c);
    }
    bl_text_add(out, "\"");
}

void bl_text_int(struct bl_text *out, int64_t value)
{
    bl_text_add(out, "%lld%s", (long long)value, value < INT32_MIN || value > INT32_MAX ? "L" : "");
}

void bl_text_float(struct bl_text *out, double value)
{
    char number[32];
    if (isinf(value))
        bl_text_add(out, value > 0 ? "1e999" : "-1e999");
    else
        bl_text_add(out, "%s", bl_double_text(value, number));
}

static void dump_value(const struct bl_node *node, int indent, struct bl_text *out)
{
    switch (node->type) {
    case BL_NODE_GROUP:
        bl_text_add(out, "{\n");
        for (size_t i = 0; i < node->count; i++)
            bl_node_dump(node->children[i], indent + 4, out);
        bl_text_add(out, "%*s}", indent, "");
        break;
    case BL_NODE_LIST:
        bl_text_add(out, "(");
        for (size_t i = 0; i < node->count; i++) {
            bl_text_add(out, i ? ", " : " ");
            dump_value(node->children[i], indent, out);
        }
        bl_text_add(out, " )");
        break;
    case BL_NODE_INT:
        bl_text_int(out, node->integer);
        break;
    case BL_NODE_FLOAT:
        bl_text_float(out, node->real);
        break;
    case BL_NODE_BOOL:
        bl_text_add(out, node->integer ? "true" : "false");
        break;
    case BL_NODE_STRING:
        bl_text_quote(out, node->string);
        break;
    }
}

void bl_node_dump(const struct bl_node *node, int indent, struct bl_text *out)
{
    bl_text_add(out, "%*s%s = ", indent, "", node->name);
    dump_value(node, indent, out);
    bl_text_add(out, ";\n");
}
