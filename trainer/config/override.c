#include "config/node.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"

static void mark(struct bl_node *n, const char *where)
{
    n->file = where;
    n->line = 0;
    for (size_t i = 0; i < n->count; i++)
        mark(n->children[i], where);
}

/* The place that errors name, one line: "command line: " and the assignment, cut where it is long.
 */
static const char *place_name(struct bl_node *root, const char *assignment)
{
    char name[128];
    int n = snprintf(name, sizeof name, "%s: %.80s%s", bl_command_line, assignment,
                     strlen(assignment) > 80 ? "..." : "");
    for (int i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20)
            name[i] = ' ';
    return bl_file_table_add(&((struct bl_root *)root)->files, name);
}

/* Text that is meant as a number, a list, a group or a quoted string, and is none when it does not
 * parse. "[ab]*.bin" is a pattern, so a bracket says nothing. */
static int looks_like_value(const char *text)
{
    text += strspn(text, " \t");
    if (*text && strchr("({\"", *text))
        return 1;
    text += *text == '+' || *text == '-';
    size_t digits = strspn(text, "0123456789");
    if (digits && (text[digits] == '\0' || text[digits] == 'L'))
        return 1;
    return text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

/* The value of an assignment as a node without a name. What is no libconfig value is a string. */
static int parse_value(const char *text, const char *where, struct bl_node **out,
                       struct bl_error *err)
{
    struct bl_node *root = NULL, *value = NULL;
    struct bl_error why = BL_ERROR_INIT;
    char *setting = bl_format("value = %s\n;", text);
    if (!setting)
        return bl_error_set(err, BL_EXIT_FAILED, "command line: out of memory");
    int rc = bl_node_parse_text(setting, bl_command_line, 0, &root, &why);
    free(setting);
    /* "1; b = 2" would be two settings: then it is a string like any other. */
    if (rc == 0 && root->count == 1) {
        value = root->children[0];
        root->count = 0;
        free(value->name);
        value->name = NULL;
    }
    bl_node_free(root);
    if (!value) {
        if (rc != 0 && looks_like_value(text)) {
            const char *reason = strstr(why.text, ": ");
            return bl_error_set(err, BL_EXIT_USAGE, "%s: %s", where,
                                reason ? reason + 2 : why.text);
        }
        value = bl_node_new(BL_NODE_STRING, NULL);
        if (!value || !(value->string = strdup(text))) {
            bl_node_drop(value);
            return bl_error_set(err, BL_EXIT_FAILED, "command line: out of memory");
        }
    }
    mark(value, where);
    *out = value;
    return 0;
}

/* One step of a path: .name or [index]. */
struct step {
    const char *name;
    size_t length; /* of the name; 0: an index */
    size_t index;
};

/* Reads a step at *p; first: no dot before a name. 0, or -1 when the text is no path. */
static int next_step(const char **p, const char *end, int first, struct step *s)
{
    const char *t = *p;
    if (*t == '[' && !first) {
        size_t index = 0, digits = 0;
        for (t++; t < end && *t >= '0' && *t <= '9' && digits < 7; t++, digits++)
            index = index * 10 + (size_t)(*t - '0');
        if (digits == 0 || t >= end || *t != ']')
            return -1;
        *s = (struct step){NULL, 0, index};
        *p = t + 1;
        return 0;
    }
    if (!first && *t++ != '.')
        return -1;
    size_t n = 0;
    while (t + n < end && t[n] != '.' && t[n] != '[')
        n++;
    if (!bl_is_key(t, n))
        return -1;
    *s = (struct step){t, n, 0};
    *p = t + n;
    return 0;
}

/* The place in `parent` that a step names; SIZE_MAX when a name is not there yet. */
static int locate(const struct bl_node *parent, const struct step *s, int shown, const char *path,
                  size_t *place, struct bl_error *err)
{
    if (s->length) {
        if (parent->type != BL_NODE_GROUP)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "command line: %.*s is %s: it has no key \"%.*s\"%s", shown, path,
                                bl_node_type_name(parent), (int)s->length, s->name,
                                parent->type == BL_NODE_LIST ? "; name an element as in [0]" : "");
        *place = SIZE_MAX;
        for (size_t i = 0; i < parent->count; i++)
            if (strlen(parent->children[i]->name) == s->length &&
                memcmp(parent->children[i]->name, s->name, s->length) == 0)
                *place = i;
        return 0;
    }
    if (parent->type != BL_NODE_LIST)
        return bl_error_set(err, BL_EXIT_USAGE, "command line: %.*s is %s, not a list: no [%zu]",
                            shown, path, bl_node_type_name(parent), s->index);
    if (s->index > parent->count)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "command line: %.*s has %zu elements: no [%zu]; [%zu] appends one",
                            shown, path, parent->count, s->index, parent->count);
    *place = s->index < parent->count ? s->index : SIZE_MAX;
    return 0;
}

/* Builds what is missing below the deepest node that exists, so that a path that turns out bad
 * leaves the tree as it was. */
static int attach(struct bl_node *parent, const struct step *steps, size_t n, size_t place,
                  struct bl_node *value, const char *where, struct bl_error *err)
{
    for (size_t i = n; i-- > 0;) {
        if (steps[i].length) {
            value->name = strndup(steps[i].name, steps[i].length);
            if (!value->name)
                goto memory;
        }
        if (i == 0)
            break;
        if (!steps[i].length && steps[i].index != 0) {
            bl_node_drop(value);
            return bl_error_set(err, BL_EXIT_USAGE,
                                "command line: [%zu] of an empty list; [0] appends one",
                                steps[i].index);
        }
        struct bl_node *outer = bl_node_new(steps[i].length ? BL_NODE_GROUP : BL_NODE_LIST, NULL);
        if (!outer)
            goto memory;
        outer->file = where;
        if (bl_node_add(outer, value) != 0) {
            bl_node_drop(outer);
            goto memory;
        }
        value = outer;
    }
    if (place != SIZE_MAX) {
        bl_node_drop(parent->children[place]);
        parent->children[place] = value;
        return 0;
    }
    if (bl_node_add(parent, value) == 0)
        return 0;
memory:
    bl_node_drop(value);
    return bl_error_set(err, BL_EXIT_FAILED, "command line: out of memory");
}

int bl_node_override(struct bl_node *root, const char *assignment, struct bl_error *err)
{
    struct step steps[BL_CONFIG_DEPTH];
    size_t count = 0;
    const char *equals = strchr(assignment, '=');
    if (!equals || equals == assignment)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "command line: \"%s\" is no override; write key.path=value",
                            assignment);
    const char *p = assignment;
    while (p < equals) {
        if (count == BL_CONFIG_DEPTH || next_step(&p, equals, count == 0, &steps[count]) != 0)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "command line: \"%.*s\" is no key path such as run.seed or "
                                "regularizers[0].coefficient",
                                (int)(equals - assignment), assignment);
        count++;
    }

    struct bl_node *parent = root, *value = NULL;
    size_t depth = 0, place = SIZE_MAX;
    int shown = 0;
    for (;; depth++) {
        if (locate(parent, &steps[depth], shown, assignment, &place, err) != 0)
            return -1;
        if (place == SIZE_MAX || depth + 1 == count)
            break;
        parent = parent->children[place];
        const struct step *s = &steps[depth];
        shown = s->length ? (int)(s->name + s->length - assignment)
                          : (int)(strchr(assignment + shown, ']') + 1 - assignment);
    }
    const char *where = place_name(root, assignment);
    if (!where)
        return bl_error_set(err, BL_EXIT_FAILED, "command line: out of memory");
    if (parse_value(equals + 1, where, &value, err) != 0)
        return -1;
    return attach(parent, steps + depth, count - depth, place, value, where, err);
}
