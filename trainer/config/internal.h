/* What the files of config/ share and nobody else sees. */
#ifndef BL_CONFIG_INTERNAL_H
#define BL_CONFIG_INTERNAL_H

#include "base/strings.h"
#include "config/node.h"

#define BL_CONFIG_BYTES    ((size_t)4 << 20) /* of a file, and of a file with its includes */
#define BL_CONFIG_DEPTH    64                /* of nested groups and lists */
#define BL_CONFIG_INCLUDES 10                /* nested @include */
#define BL_CONFIG_SETTINGS 10000 /* libconfig's duplicate check is quadratic: keep it short */
#define BL_CONFIG_VALUES   200000

extern const char bl_command_line[]; /* bl_node.file of what an override wrote begins so */
int bl_node_is_override(const struct bl_node *node);

/* Names of files, one copy each; the nodes of a tree point into it. */
struct bl_file_table {
    char **names;
    size_t count;
};

/* The root of a tree: bl_node_free gets the address of `node`. */
struct bl_root {
    struct bl_node node;
    struct bl_file_table files;
};

const char *bl_file_table_add(struct bl_file_table *t, const char *name); /* NULL: no memory */
void bl_file_table_free(struct bl_file_table *t);

struct bl_node *bl_node_new(enum bl_node_type type, const char *name); /* NULL: no memory */
int bl_node_add(struct bl_node *parent, struct bl_node *child);        /* -1: no memory */
void bl_node_drop(struct bl_node *node); /* a subtree that is no root; NULL is fine */
const char *bl_node_type_name(const struct bl_node *node); /* "an integer" */
/* For messages: the value as written in short, `the string "x"`. Buffer of at least 128 bytes. */
const char *bl_node_describe(const struct bl_node *node, char *buffer);
int bl_is_key(const char *text, size_t n); /* a name that libconfig accepts */

/* "..." with libconfig's escapes. */
void bl_text_quote(struct bl_text *out, const char *text);
/* A number in libconfig syntax: L beyond 32 bits. */
void bl_text_int(struct bl_text *out, int64_t value);
/* A number in libconfig syntax: infinity as a literal that overflows to it. */
void bl_text_float(struct bl_text *out, double value);
/* `name = value;` with everything below it, as written. */
void bl_node_dump(const struct bl_node *node, int indent, struct bl_text *out);

/* Text with its includes expanded, comments blanked and [ ] turned into ( ); one entry of `lines`
 * for each of its lines says where the line came from. */
struct bl_line {
    const char *file;
    int line;
};
struct bl_scan {
    struct bl_text text;
    struct bl_line *lines;
    size_t count, capacity;
    struct bl_file_table files;
};
/* Exactly one of path and text is given; text has the name `name`. includes = 0 refuses them. */
int bl_scan_config(struct bl_scan *s, const char *path, const char *text, const char *name,
                   int includes, struct bl_error *err);
void bl_scan_free(struct bl_scan *s);
/* bl_node_parse, with includes on request. */
int bl_node_parse_text(const char *text, const char *name, int includes, struct bl_node **root,
                       struct bl_error *err);

#endif
