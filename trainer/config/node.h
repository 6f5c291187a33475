/* A configuration as a tree that remembers where each value was written.
 *
 * config/parse.c reads libconfig text into it, config/override.c adds key.path=value from the
 * command line, config/options.c turns a group into a struct by an option table. */
#ifndef BL_CONFIG_NODE_H
#define BL_CONFIG_NODE_H

#include <stdint.h>

#include "base/error.h"

enum bl_node_type {
    BL_NODE_GROUP,
    BL_NODE_LIST,
    BL_NODE_INT,
    BL_NODE_FLOAT,
    BL_NODE_BOOL,
    BL_NODE_STRING
};

struct bl_node {
    enum bl_node_type type;
    char *name;                /* NULL for an element of a list */
    int64_t integer;           /* INT, BOOL */
    double real;               /* FLOAT (and INT as a float) */
    char *string;              /* STRING */
    struct bl_node **children; /* GROUP, LIST */
    size_t count;
    const char *file; /* "command line: a.b=1" for overrides; owned by the root's file table */
    int line;         /* 0 = no line */
    int used;         /* set by whoever consumed it */
};

/* Reads a libconfig file with its includes. Before libconfig sees the text it is scanned: an
 * integer beyond 32 bits without L is refused with file:line; [ ] and ( ) are both accepted for
 * every vector, ints and floats mixed. Codes: BL_EXIT_USAGE. */
int bl_node_read(const char *path, struct bl_node **root, struct bl_error *err);
int bl_node_parse(const char *text, const char *name, struct bl_node **root, struct bl_error *err);
/* "a.b[2].c=value". The value is libconfig syntax; a bare word is a string. x[n] with n = length
 * appends; a missing group is made. */
int bl_node_override(struct bl_node *root, const char *assignment, struct bl_error *err);
struct bl_node *bl_node_find(const struct bl_node *group, const char *name); /* NULL when absent */
/* "file:line" or "command line: a.b=1"; buffer of at least 300 bytes. */
const char *bl_node_where(const struct bl_node *node, char *buffer);
void bl_node_free(struct bl_node *root);

#endif
