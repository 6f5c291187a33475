/* Option tables: text or config group -> struct, with defaults, ranges and good error lines. */
#ifndef BL_CONFIG_OPTIONS_H
#define BL_CONFIG_OPTIONS_H

#include <stdio.h>

#include "base/strings.h"
#include "config/node.h"

/* A filled options struct and the memory that its strings and vectors live in. */
struct bl_options {
    void *values; /* the struct; size bytes */
    size_t size;
    const struct bl_option *table;
    void *pool;             /* private: chain of allocations */
    unsigned char *written; /* (rows,) 1: the config wrote it, 0: default */
};

/* Checks a table itself (plugins bring theirs): known types, offsets inside size and aligned,
 * defaults that parse and lie in range, unique keys. Code BL_EXIT_PLUGIN. */
int bl_options_check(const struct bl_option *table, uint64_t size, struct bl_error *err);
/* Fills *out from defaults and from `group` (NULL: defaults only). Keys in `also` (NULL-terminated
 * list or NULL) belong to somebody else and are left alone; any other unknown key, a wrong type, a
 * value out of range is one line with file:line and the nearest valid key. */
int bl_options_fill(struct bl_options *out, const struct bl_option *table, uint64_t size,
                    const struct bl_node *group, const char *const *also, const char *what,
                    struct bl_error *err);
void bl_options_free(struct bl_options *o);
/* "key=value" conditions joined by ','; 1 when all hold. NULL or "" -> 0. */
int bl_options_match(const struct bl_options *o, const char *conditions);
/* Writes `key = value;` lines in libconfig syntax, each after `indent` spaces. */
void bl_options_dump(const struct bl_options *o, int indent, struct bl_text *out);
/* A table for people: key, type, default, range, doc. */
void bl_options_help(const struct bl_option *table, FILE *out);

#endif
