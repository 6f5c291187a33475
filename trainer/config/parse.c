#include "config/node.h"

#include <ctype.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>

#include <libconfig.h>

#include "config/internal.h"

static struct bl_line origin(const struct bl_scan *s, unsigned line)
{
    if (s->count == 0)
        return (struct bl_line){"configuration", 0};
    return s->lines[line == 0 ? 0 : line > s->count ? s->count - 1 : line - 1];
}

static int convert(struct bl_node *n, const config_setting_t *c, const struct bl_scan *s)
{
    struct bl_line at = origin(s, config_setting_source_line(c));
    n->file = at.file;
    n->line = at.line;
    switch (config_setting_type(c)) {
    case CONFIG_TYPE_INT:
    case CONFIG_TYPE_INT64:
        n->type = BL_NODE_INT;
        n->integer = config_setting_type(c) == CONFIG_TYPE_INT ? config_setting_get_int(c)
                                                               : config_setting_get_int64(c);
        n->real = (double)n->integer;
        return 0;
    case CONFIG_TYPE_FLOAT:
        n->type = BL_NODE_FLOAT;
        n->real = config_setting_get_float(c);
        return 0;
    case CONFIG_TYPE_BOOL:
        n->type = BL_NODE_BOOL;
        n->integer = config_setting_get_bool(c) != 0;
        return 0;
    case CONFIG_TYPE_STRING: {
        const char *text = config_setting_get_string(c);
        n->type = BL_NODE_STRING;
        n->string = strdup(text ? text : "");
        return n->string ? 0 : -1;
    }
    case CONFIG_TYPE_GROUP:
        n->type = BL_NODE_GROUP;
        break;
    default:
        n->type = BL_NODE_LIST;
        break;
    }
    int count = config_setting_length(c);
    for (int i = 0; i < count; i++) {
        config_setting_t *from = config_setting_get_elem(c, (unsigned)i);
        struct bl_node *child = bl_node_new(BL_NODE_INT, config_setting_name(from));
        if (!child)
            return -1;
        if (bl_node_add(n, child) != 0) {
            bl_node_drop(child);
            return -1;
        }
        if (convert(child, from, s) != 0)
            return -1;
    }
    return 0;
}

/* Part of line number `line` of the scanned text, for a message. */
static void quote_line(const struct bl_scan *s, unsigned line, char *buffer, size_t size)
{
    const char *p = s->text.text ? s->text.text : "";
    for (unsigned i = 1; i < line && p; i++)
        if ((p = strchr(p, '\n')))
            p++;
    size_t n = 0;
    if (p) {
        while (*p == ' ')
            p++;
        n = strcspn(p, "\n");
        while (n > 0 && p[n - 1] == ' ')
            n--;
        if (n >= size)
            n = size - 1;
        memcpy(buffer, p, n);
    }
    buffer[n] = '\0';
}

static const char *skip_string(const char *p)
{
    for (p++; *p && *p != '"'; p++)
        if (*p == '\\' && p[1])
            p++;
    return *p ? p + 1 : p;
}

/* The first key of the scanned text that its group has already: libconfig tells the line only. Its
 * length is the answer, 0 when there is none. */
static size_t find_duplicate(const char *p, const char **key)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_*";
    struct name {
        const char *text;
        size_t length;
    } *names = malloc((BL_CONFIG_SETTINGS + 1) * sizeof *names); /* of the groups that are open */
    size_t begin[BL_CONFIG_DEPTH + 1] = {0}, depth = 0, count = 0, found = 0;
    while (names && *p && !found) {
        size_t n = strspn(p, word), blank = strspn(p + n, " \n");
        if (*p == '"') {
            p = skip_string(p);
            continue;
        }
        if (*p == '{' && depth < BL_CONFIG_DEPTH)
            begin[++depth] = count;
        else if (*p == '}' && depth > 0)
            count = begin[depth--];
        if (n > 0 && strchr("=:", p[n + blank]) && p[n + blank] && count <= BL_CONFIG_SETTINGS) {
            for (size_t i = begin[depth]; i < count; i++)
                if (names[i].length == n && memcmp(names[i].text, p, n) == 0)
                    found = n;
            names[count++] = (struct name){p, n};
            *key = p;
        }
        p += n ? n : 1;
    }
    free(names);
    return found;
}

static int refuse(const struct bl_scan *s, const config_t *c, struct bl_error *err)
{
    unsigned line = config_error_line(c) > 0 ? (unsigned)config_error_line(c) : 1;
    struct bl_line at = origin(s, line);
    const char *text = config_error_text(c) ? config_error_text(c) : "syntax error";
    char near[80];
    quote_line(s, line, near, sizeof near);
    if (strstr(text, "duplicate")) {
        const char *key = "";
        size_t n = find_duplicate(s->text.text, &key);
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s:%d: duplicate setting: the key \"%.*s\" is in this group "
                            "already; remove one of them",
                            at.file, at.line, n > 60 ? 60 : (int)n, key);
    }
    return bl_error_set(err, BL_EXIT_USAGE, "%s:%d: %s at or before \"%s\"", at.file, at.line, text,
                        near);
}

static int parse(struct bl_scan *s, struct bl_node **out, struct bl_error *err)
{
    struct bl_root *root = calloc(1, sizeof *root);
    if (!root)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");

    /* libconfig reads floats with the C library: keep a caller's decimal comma out of it. */
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0), old = uselocale(c_locale);
    config_t c;
    config_init(&c);
    int rc = config_read_string(&c, s->text.text ? s->text.text : "") == CONFIG_TRUE ? 0 : -1;
    uselocale(old);
    freelocale(c_locale);

    if (rc != 0) {
        refuse(s, &c, err);
    } else if ((rc = convert(&root->node, config_root_setting(&c), s)) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    }
    config_destroy(&c);
    if (rc != 0) {
        bl_node_free(&root->node);
        return -1;
    }
    root->node.file = s->count ? s->lines[0].file : NULL;
    root->node.line = 0;
    root->files = s->files; /* the nodes point into it */
    s->files = (struct bl_file_table){0};
    *out = &root->node;
    return 0;
}

int bl_node_parse_text(const char *text, const char *name, int includes, struct bl_node **root,
                       struct bl_error *err)
{
    struct bl_scan s;
    if (bl_scan_config(&s, NULL, text, name, includes, err) != 0)
        return -1;
    int rc = parse(&s, root, err);
    bl_scan_free(&s);
    return rc;
}

int bl_node_parse(const char *text, const char *name, struct bl_node **root, struct bl_error *err)
{
    return bl_node_parse_text(text, name, 1, root, err);
}

int bl_node_read(const char *path, struct bl_node **root, struct bl_error *err)
{
    struct bl_scan s;
    struct bl_node *read = NULL;
    if (bl_scan_config(&s, path, NULL, NULL, 1, err) != 0)
        return -1;
    int rc = parse(&s, &read, err);
    bl_scan_free(&s);
    if (rc != 0)
        return -1;
    if (read->count == 0) {
        bl_node_free(read);
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s:1: the file has no settings; see configs/demo.cfg for an example",
                            path);
    }
    *root = read;
    return 0;
}
