/* Lists of data files from names and globs. */
#ifndef BL_DATA_PATHS_H
#define BL_DATA_PATHS_H

#include <stddef.h>

#include "base/error.h"

struct bl_paths {
    char **items;
    size_t count, capacity;
};

/* Adds what a pattern stands for: the file of exactly that name, else what the glob matches
 * (wildcards, {a,b}, ~). No match is an error that begins with `what`; code BL_EXIT_DATA. */
int bl_paths_add(struct bl_paths *p, const char *what, const char *pattern, struct bl_error *err);
/* Sorts by bytes, so that the order is the same in every locale, and drops duplicates. */
void bl_paths_sort(struct bl_paths *p);
void bl_paths_free(struct bl_paths *p);

#endif
