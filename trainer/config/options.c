#include "config/options.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/internal.h"
#include "config/range.h"

#define OPTION_ROWS 1024 /* a table without an end stops here */

/* One link of bl_options.pool. */
struct link {
    struct link *next;
    max_align_t data[];
};

static void *pool_alloc(void **pool, size_t bytes)
{
    struct link *l = calloc(1, sizeof *l + (bytes ? bytes : 1));
    if (!l)
        return NULL;
    l->next = *pool;
    *pool = l;
    return l->data;
}

static void pool_free(void *pool)
{
    for (struct link *l = pool, *next; l; l = next) {
        next = l->next;
        free(l);
    }
}

static const char *pool_text(void **pool, const char *text, size_t n)
{
    char *copy = pool_alloc(pool, n + 1);
    if (copy)
        memcpy(copy, text, n);
    return copy;
}

static const char *type_name(uint32_t type)
{
    static const char *const name[] = {
        "",       "integer",          "float",          "boolean",        "string",
        "choice", "list of integers", "list of floats", "list of strings"};
    return type >= 1 && type <= 8 ? name[type] : "unknown type";
}

static size_t type_size(uint32_t type)
{
    switch (type) {
    case BL_OPTION_INT:
        return sizeof(int64_t);
    case BL_OPTION_FLOAT:
        return sizeof(double);
    case BL_OPTION_BOOL:
    case BL_OPTION_CHOICE:
        return sizeof(int32_t);
    case BL_OPTION_STRING:
        return sizeof(const char *);
    case BL_OPTION_INTS:
    case BL_OPTION_FLOATS:
    case BL_OPTION_STRINGS:
        return sizeof(struct bl_ints); /* the three vectors have one layout */
    default:
        return 0;
    }
}

static size_t type_alignment(uint32_t type)
{
    return type == BL_OPTION_BOOL || type == BL_OPTION_CHOICE ? 4 : 8;
}

static int is_vector(uint32_t type)
{
    return type == BL_OPTION_INTS || type == BL_OPTION_FLOATS || type == BL_OPTION_STRINGS;
}

static uint32_t element_type(uint32_t type)
{
    return type == BL_OPTION_INTS     ? BL_OPTION_INT
           : type == BL_OPTION_FLOATS ? BL_OPTION_FLOAT
                                      : BL_OPTION_STRING;
}

static size_t rows(const struct bl_option *table)
{
    size_t n = 0;
    if (table)
        while (n < OPTION_ROWS && table[n].key)
            n++;
    return n;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Text -> one scalar at `to`. 0, -1: not such a value or out of range, -2: no memory. */
static int scalar_from_text(uint32_t type, const char *range, const char *text, void *to,
                            void **pool)
{
    struct bl_range r;
    int64_t whole;
    double real;
    switch (type) {
    case BL_OPTION_INT:
        if (bl_parse_int(text, &whole) != 0 || bl_range_parse(range, &r) != 0 ||
            !bl_range_has_int(&r, whole))
            return -1;
        *(int64_t *)to = whole;
        return 0;
    case BL_OPTION_FLOAT:
        if (bl_parse_double(text, &real) != 0 || bl_range_parse(range, &r) != 0 ||
            !bl_range_has_double(&r, real))
            return -1;
        *(double *)to = real;
        return 0;
    case BL_OPTION_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return -1;
        *(int32_t *)to = text[0] == 't';
        return 0;
    case BL_OPTION_CHOICE:
        whole = bl_words_find(range, text);
        if (whole < 0)
            return -1;
        *(int32_t *)to = (int32_t)whole;
        return 0;
    default: {
        const char *copy = pool_text(pool, text, strlen(text));
        if (!copy)
            return -2;
        *(const char **)to = copy;
        return 0;
    }
    }
}

/* "a,b,c" -> a vector at `to`. */
static int vector_from_text(const struct bl_option *o, const char *text, void *to, void **pool)
{
    uint32_t type = element_type(o->type);
    size_t count = 0;
    if (text && *text)
        for (const char *p = text; p; p = strchr(p + 1, ','))
            count++;
    char *values = pool_alloc(pool, count * 8); /* int64_t, double and pointers have 8 bytes */
    if (!values)
        return -2;
    for (size_t i = 0; i < count; i++) {
        size_t n = strcspn(text, ",");
        char *piece = strndup(text, n);
        if (!piece)
            return -2;
        int rc = scalar_from_text(type, o->range, piece, values + 8 * i, pool);
        free(piece);
        if (rc != 0)
            return rc;
        text += n + 1;
    }
    *(struct bl_ints *)to = (struct bl_ints){count, (const int64_t *)(void *)values};
    return 0;
}

static int value_from_text(const struct bl_option *o, const char *text, void *to, void **pool)
{
    if (is_vector(o->type))
        return vector_from_text(o, text, to, pool);
    if (!text) {
        if (o->type != BL_OPTION_STRING)
            return -1;
        text = "";
    }
    return scalar_from_text(o->type, o->range, text, to, pool);
}

/* ---- a table --------------------------------------------------------------------------------- */

static int table_error(struct bl_error *err, const struct bl_option *o, const char *why)
{
    return bl_error_set(err, BL_EXIT_PLUGIN, "option table: \"%s\": %s", o->key, why);
}

static int check_row(const struct bl_option *table, size_t i, uint64_t size, struct bl_error *err)
{
    const struct bl_option *o = &table[i];
    struct bl_range range;
    size_t bytes = type_size(o->type);
    uint32_t scalar = is_vector(o->type) ? element_type(o->type) : o->type;
    if (!bl_is_key(o->key, strlen(o->key)))
        return table_error(err, o, "the key is no name that a configuration can hold");
    if (bytes == 0)
        return table_error(err, o, "unknown type");
    if (o->flags & ~(uint32_t)BL_OPTION_REQUIRED)
        return table_error(err, o, "unknown flag");
    if (o->offset > size || size - o->offset < bytes)
        return table_error(err, o, "its member ends outside of the options struct");
    if (o->offset % type_alignment(o->type) != 0)
        return table_error(err, o, "its member is not aligned");
    for (size_t j = 0; j < i; j++) {
        if (strcmp(table[j].key, o->key) == 0)
            return table_error(err, o, "the key is there twice");
        if (o->offset < table[j].offset + type_size(table[j].type) &&
            table[j].offset < o->offset + bytes)
            return table_error(err, o, "its member overlaps another one");
    }
    if ((scalar == BL_OPTION_INT || scalar == BL_OPTION_FLOAT) &&
        bl_range_parse(o->range, &range) != 0)
        return table_error(err, o, "the range is no interval such as \"[0,inf)\"");
    if (scalar == BL_OPTION_CHOICE) {
        int n = bl_words_count(o->range);
        if (n == 0)
            return table_error(err, o, "a choice needs its words in range, as in \"ring|tree\"");
        for (int k = 0; k < n; k++) {
            int length;
            const char *w = bl_words_get(o->range, k, &length);
            char *copy = strndup(w, (size_t)length);
            int twice = copy && (length == 0 || bl_words_find(o->range, copy) != k);
            free(copy);
            if (twice)
                return table_error(err, o, "a word of its choice is empty or there twice");
        }
    }
    if (o->flags & BL_OPTION_REQUIRED) {
        if (o->default_text)
            return table_error(err, o, "a required option has no default");
        return 0;
    }
    void *pool = NULL;
    struct bl_ints room;
    int rc = value_from_text(o, o->default_text, &room, &pool);
    pool_free(pool);
    if (rc == -1)
        return table_error(err, o, "the default is missing, no such value or out of range");
    return rc == 0 ? 0 : table_error(err, o, "out of memory");
}

int bl_options_check(const struct bl_option *table, uint64_t size, struct bl_error *err)
{
    size_t n = rows(table);
    if (n == OPTION_ROWS)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "option table: %d rows and no end: the last row needs a NULL key",
                            OPTION_ROWS);
    if (size > (uint64_t)1 << 20)
        return bl_error_set(err, BL_EXIT_PLUGIN, "option table: an options struct of %llu bytes",
                            (unsigned long long)size);
    for (size_t i = 0; i < n; i++)
        if (check_row(table, i, size, err) != 0)
            return -1;
    return 0;
}

/* ---- filling --------------------------------------------------------------------------------- */

struct fill {
    struct bl_options *out;
    const char *what;
    struct bl_error *err;
};

/* "FILE:LINE: what: " before the message; takes the message. */
static int refuse(const struct fill *f, const struct bl_node *at, char *message)
{
    char where[300] = "configuration";
    if (at)
        bl_node_where(at, where);
    int named = f->what && f->what[0];
    bl_error_set(f->err, BL_EXIT_USAGE, "%s: %s%s%s", where, named ? f->what : "",
                 named ? ": " : "", message ? message : "out of memory");
    free(message);
    return -1;
}

#define REFUSE(f, at, ...) refuse(f, at, bl_format(__VA_ARGS__))

static char *choice_text(const char *words)
{
    struct bl_text t = {0};
    int n = bl_words_count(words);
    for (int i = 0; i < n; i++) {
        int length;
        const char *w = bl_words_get(words, i, &length);
        bl_text_add(&t, "%s\"%.*s\"", i == 0 ? "" : i + 1 == n ? " or " : ", ", length, w);
    }
    return t.text;
}

static int wrong_type(const struct fill *f, const struct bl_option *o, uint32_t type,
                      const struct bl_node *n)
{
    char found[128];
    const char *article = type == BL_OPTION_INT ? "an" : "a";
    bl_node_describe(n, found);
    if (type == BL_OPTION_CHOICE) {
        char *words = choice_text(o->range);
        int rc = REFUSE(f, n, "%s expects %s, found %s", o->key, words ? words : "a word", found);
        free(words);
        return rc;
    }
    if (type == BL_OPTION_BOOL)
        return REFUSE(f, n, "%s expects true or false, found %s", o->key, found);
    if (type == BL_OPTION_INT && n->type == BL_NODE_FLOAT && n->real == floor(n->real) &&
        fabs(n->real) < 1e15)
        return REFUSE(f, n, "%s expects an integer, found %s; write %.0f%s", o->key, found, n->real,
                      fabs(n->real) > INT32_MAX ? "L" : "");
    if (type == BL_OPTION_STRING && n->type != BL_NODE_LIST && n->type != BL_NODE_GROUP)
        return REFUSE(f, n, "%s expects a string, found %s; put it in quotes", o->key, found);
    if (is_vector(type)) {
        const char *example = type == BL_OPTION_STRINGS ? "( \"a\", \"b\" )" : "( 1, 2 )";
        return REFUSE(f, n, "%s expects a %s such as %s, found %s", o->key, type_name(type),
                      example, found);
    }
    return REFUSE(f, n, "%s expects %s %s, found %s", o->key, article, type_name(type), found);
}

static int out_of_range(const struct fill *f, const struct bl_option *o, const struct bl_node *n)
{
    char found[128];
    bl_node_describe(n, found);
    const char *range = o->range ? o->range : "(-inf,inf)";
    return REFUSE(f, n, "%s is %s, outside of %s", o->key, strchr(found + 4, ' ') + 1, range);
}

static int scalar_from_node(const struct fill *f, const struct bl_option *o, uint32_t type,
                            const struct bl_node *n, void *to)
{
    struct bl_range r;
    switch (type) {
    case BL_OPTION_INT:
        if (n->type != BL_NODE_INT)
            return wrong_type(f, o, type, n);
        if (bl_range_parse(o->range, &r) != 0 || !bl_range_has_int(&r, n->integer))
            return out_of_range(f, o, n);
        *(int64_t *)to = n->integer;
        return 0;
    case BL_OPTION_FLOAT:
        if (n->type != BL_NODE_INT && n->type != BL_NODE_FLOAT)
            return wrong_type(f, o, type, n);
        if (bl_range_parse(o->range, &r) != 0 || !bl_range_has_double(&r, n->real))
            return out_of_range(f, o, n);
        *(double *)to = n->real;
        return 0;
    case BL_OPTION_BOOL:
        if (n->type != BL_NODE_BOOL)
            return wrong_type(f, o, type, n);
        *(int32_t *)to = n->integer != 0;
        return 0;
    case BL_OPTION_CHOICE: {
        int i = n->type == BL_NODE_STRING ? bl_words_find(o->range, n->string) : -1;
        if (i < 0)
            return wrong_type(f, o, type, n);
        *(int32_t *)to = i;
        return 0;
    }
    default:
        if (n->type != BL_NODE_STRING)
            return wrong_type(f, o, type, n);
        *(const char **)to = pool_text(&f->out->pool, n->string, strlen(n->string));
        return *(const char **)to ? 0 : REFUSE(f, n, "out of memory");
    }
}

static int value_from_node(const struct fill *f, const struct bl_option *o, struct bl_node *n,
                           void *to)
{
    n->used = 1;
    if (!is_vector(o->type))
        return scalar_from_node(f, o, o->type, n, to);
    if (n->type != BL_NODE_LIST)
        return wrong_type(f, o, o->type, n);
    char *values = pool_alloc(&f->out->pool, n->count * 8);
    if (!values)
        return REFUSE(f, n, "out of memory");
    for (size_t i = 0; i < n->count; i++) {
        n->children[i]->used = 1;
        if (scalar_from_node(f, o, element_type(o->type), n->children[i], values + 8 * i) != 0)
            return -1;
    }
    *(struct bl_ints *)to = (struct bl_ints){n->count, (const int64_t *)(void *)values};
    return 0;
}

static int unknown_key(const struct fill *f, const struct bl_option *table, const char *const *also,
                       const struct bl_node *n)
{
    size_t count = rows(table), extra = 0;
    while (also && also[extra])
        extra++;
    const char **keys = calloc(count + extra + 1, sizeof *keys);
    if (!keys)
        return REFUSE(f, n, "out of memory");
    for (size_t i = 0; i < count; i++)
        keys[i] = table[i].key;
    for (size_t i = 0; i < extra; i++)
        keys[count + i] = also[i];

    int rc;
    const char *near = bl_nearest(n->name, keys);
    if (near) {
        rc = REFUSE(f, n, "unknown key \"%s\"; did you mean \"%s\"?", n->name, near);
    } else {
        struct bl_text list = {0};
        for (size_t i = 0; i < count + extra; i++)
            bl_text_add(&list, "%s%s", i ? ", " : "", keys[i]);
        rc = REFUSE(f, n, "unknown key \"%s\"; %s%s", n->name, list.text ? "valid keys: " : "",
                    list.text ? list.text : "there are none here");
        bl_text_free(&list);
    }
    free(keys);
    return rc;
}

static int contains(const char *const *list, const char *word)
{
    for (; list && *list; list++)
        if (strcmp(*list, word) == 0)
            return 1;
    return 0;
}

static int fill_row(const struct fill *f, size_t i, const struct bl_node *group)
{
    const struct bl_option *o = &f->out->table[i];
    struct bl_node *n = group ? bl_node_find(group, o->key) : NULL;
    char *to = (char *)f->out->values + o->offset;
    if (n) {
        f->out->written[i] = 1;
        return value_from_node(f, o, n, to);
    }
    if (o->flags & BL_OPTION_REQUIRED)
        return REFUSE(f, group, "the key \"%s\" is required%s%s", o->key,
                      o->doc && *o->doc ? ": " : "", o->doc ? o->doc : "");
    int rc = value_from_text(o, o->default_text, to, &f->out->pool);
    return rc == 0 ? 0 : REFUSE(f, group, "the default of \"%s\" cannot be used", o->key);
}

int bl_options_fill(struct bl_options *out, const struct bl_option *table, uint64_t size,
                    const struct bl_node *group, const char *const *also, const char *what,
                    struct bl_error *err)
{
    struct bl_options o = {.size = size, .table = table};
    struct fill f = {&o, what, err};
    size_t n = rows(table);
    char found[128];
    if (group && group->type != BL_NODE_GROUP)
        return REFUSE(&f, group, "expects a group { key = value; }, found %s",
                      bl_node_describe(group, found));
    for (size_t i = 0; group && i < group->count; i++) {
        const struct bl_node *child = group->children[i];
        size_t row = 0;
        while (row < n && strcmp(table[row].key, child->name) != 0)
            row++;
        if (row == n && !contains(also, child->name))
            return unknown_key(&f, table, also, child);
    }

    o.values = calloc(1, size ? size : 1);
    o.written = calloc(1, n ? n : 1);
    if (!o.values || !o.written) {
        REFUSE(&f, group, "out of memory");
        goto fail;
    }
    for (size_t i = 0; i < n; i++)
        if (fill_row(&f, i, group) != 0)
            goto fail;
    *out = o;
    return 0;

fail:
    bl_options_free(&o);
    return -1;
}

void bl_options_free(struct bl_options *o)
{
    if (!o)
        return;
    pool_free(o->pool);
    free(o->values);
    free(o->written);
    *o = (struct bl_options){0};
}

/* ---- reading back ---------------------------------------------------------------------------- */

static int equal(const struct bl_option *o, const void *a, const void *b)
{
    switch (o->type) {
    case BL_OPTION_INT:
        return *(const int64_t *)a == *(const int64_t *)b;
    case BL_OPTION_FLOAT:
        return *(const double *)a == *(const double *)b;
    case BL_OPTION_BOOL:
    case BL_OPTION_CHOICE:
        return *(const int32_t *)a == *(const int32_t *)b;
    case BL_OPTION_STRING:
        return strcmp(*(const char *const *)a, *(const char *const *)b) == 0;
    default:
        break;
    }
    const struct bl_ints *x = a, *y = b;
    struct bl_option scalar = *o;
    scalar.type = element_type(o->type);
    if (x->count != y->count)
        return 0;
    for (uint64_t i = 0; i < x->count; i++)
        if (!equal(&scalar, x->values + i, y->values + i))
            return 0;
    return 1;
}

static int match_one(const struct bl_options *o, const char *condition, size_t length)
{
    const char *equals = memchr(condition, '=', length);
    if (!equals)
        return 0;
    size_t key = (size_t)(equals - condition);
    for (size_t i = 0, n = rows(o->table); i < n; i++) {
        const struct bl_option *row = &o->table[i];
        if (strlen(row->key) != key || memcmp(row->key, condition, key) != 0)
            continue;
        void *pool = NULL;
        struct bl_ints room;
        char *text = strndup(equals + 1, length - key - 1);
        int holds = text && value_from_text(row, text, &room, &pool) == 0 &&
                    equal(row, (const char *)o->values + row->offset, &room);
        pool_free(pool);
        free(text);
        return holds;
    }
    return 0;
}

int bl_options_match(const struct bl_options *o, const char *conditions)
{
    if (!conditions || !*conditions)
        return 0;
    for (;;) {
        size_t n = strcspn(conditions, ",");
        if (!match_one(o, conditions, n))
            return 0;
        if (!conditions[n])
            return 1;
        conditions += n + 1;
    }
}

static void dump_scalar(const struct bl_option *o, uint32_t type, const void *from,
                        struct bl_text *out)
{
    int length;
    const char *word;
    switch (type) {
    case BL_OPTION_INT:
        bl_text_int(out, *(const int64_t *)from);
        break;
    case BL_OPTION_FLOAT:
        bl_text_float(out, *(const double *)from);
        break;
    case BL_OPTION_BOOL:
        bl_text_add(out, *(const int32_t *)from ? "true" : "false");
        break;
    case BL_OPTION_CHOICE:
        word = bl_words_get(o->range, *(const int32_t *)from, &length);
        bl_text_add(out, "\"%.*s\"", length, word);
        break;
    default:
        bl_text_quote(out, *(const char *const *)from);
        break;
    }
}

void bl_options_dump(const struct bl_options *o, int indent, struct bl_text *out)
{
    for (size_t i = 0, n = rows(o->table); i < n; i++) {
        const struct bl_option *row = &o->table[i];
        const char *from = (const char *)o->values + row->offset;
        bl_text_add(out, "%*s%s = ", indent, "", row->key);
        if (is_vector(row->type)) {
            const struct bl_ints *v = (const struct bl_ints *)(const void *)from;
            bl_text_add(out, "(");
            for (uint64_t k = 0; k < v->count; k++) {
                bl_text_add(out, k ? ", " : " ");
                dump_scalar(row, element_type(row->type), v->values + k, out);
            }
            bl_text_add(out, " )");
        } else {
            dump_scalar(row, row->type, from, out);
        }
        bl_text_add(out, ";\n");
    }
}

static int width_of(const char *text, int width, int limit)
{
    int n = text ? (int)strlen(text) : 0;
    return n > limit ? (width > limit ? width : limit) : n > width ? n : width;
}

void bl_options_help(const struct bl_option *table, FILE *out)
{
    size_t n = rows(table);
    int key = 3, type = 4, value = 7, range = 5;
    if (n == 0) {
        fprintf(out, "no options\n");
        return;
    }
    for (size_t i = 0; i < n; i++) {
        key = width_of(table[i].key, key, 24);
        type = width_of(type_name(table[i].type), type, 24);
        value = width_of(table[i].default_text, value, 16);
        range = width_of(table[i].range, range, 28);
        if (table[i].flags & BL_OPTION_REQUIRED)
            value = width_of("required", value, 16);
    }
    fprintf(out, "%-*s  %-*s  %-*s  %-*s  %s\n", key, "key", type, "type", value, "default", range,
            "range", "what it does");
    for (size_t i = 0; i < n; i++) {
        const struct bl_option *o = &table[i];
        const char *text = o->flags & BL_OPTION_REQUIRED ? "required"
                           : o->default_text             ? o->default_text
                                                         : "";
        if (!*text)
            text = is_vector(o->type) ? "( )" : "\"\"";
        fprintf(out, "%-*s  %-*s  %-*s  %-*s  %s\n", key, o->key, type, type_name(o->type), value,
                text, range, o->range ? o->range : "", o->doc ? o->doc : "");
    }
}
