#include "data/paths.h"

#include <errno.h>
#include <glob.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static int add(struct bl_paths *p, const char *what, const char *path, struct bl_error *err)
{
    if (p->count == p->capacity) {
        size_t capacity = 2 * p->capacity + 64;
        char **items = realloc(p->items, capacity * sizeof(*items));
        if (!items)
            goto no_memory;
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count] = strdup(path);
    if (!p->items[p->count])
        goto no_memory;
    p->count++;
    return 0;
no_memory:
    return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for the list of files", what);
}

int bl_paths_add(struct bl_paths *p, const char *what, const char *pattern, struct bl_error *err)
{
    struct stat st;
    glob_t found;
    int answer, saved;

    if (lstat(pattern, &st) == 0) /* brackets and braces may stand in a file's own name */
        return add(p, what, pattern, err);
    errno = 0;
    answer = glob(pattern, GLOB_ERR | GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, NULL, &found);
    saved = errno;
    /* A missing folder in front of a wildcard is "aborted" to glob. */
    if (answer == GLOB_NOMATCH || (answer == GLOB_ABORTED && (saved == ENOENT || saved == ENOTDIR)))
        bl_error_set(err, BL_EXIT_DATA, "%s: \"%s\" matches no file", what, pattern);
    else if (answer != 0)
        bl_error_set(err, BL_EXIT_DATA, "%s: \"%s\": %s", what, pattern,
                     answer == GLOB_NOSPACE ? "no memory"
                     : saved                ? strerror(saved)
                                            : "a folder cannot be read");
    for (size_t i = 0; answer == 0 && i < found.gl_pathc; i++)
        answer = add(p, what, found.gl_pathv[i], err);
    globfree(&found);
    return answer == 0 ? 0 : -1;
}

static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

void bl_paths_sort(struct bl_paths *p)
{
    size_t kept = 0;

    if (p->count == 0)
        return;
    qsort(p->items, p->count, sizeof(*p->items), by_name);
    for (size_t i = 1; i < p->count; i++) {
        if (strcmp(p->items[i], p->items[kept]) == 0)
            free(p->items[i]);
        else
            p->items[++kept] = p->items[i];
    }
    p->count = kept + 1;
}

void bl_paths_free(struct bl_paths *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->items[i]);
    free(p->items);
    *p = (struct bl_paths){NULL, 0, 0};
}
