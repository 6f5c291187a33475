#include "data/data.h"

#include <errno.h>
#include <glob.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct paths {
    char **items;
    size_t count, capacity;
};

static void free_paths(struct paths *p)
{
    for (size_t i = 0; i < p->count; i++)
        free(p->items[i]);
    free(p->items);
}

static int add(struct paths *p, const char *path)
{
    if (p->count == p->capacity) {
        size_t capacity = 2 * p->capacity + 64;
        char **items = realloc(p->items, capacity * sizeof(*items));
        if (!items)
            return -1;
        p->items = items;
        p->capacity = capacity;
    }
    p->items[p->count] = strdup(path);
    return p->items[p->count] ? (p->count++, 0) : -1;
}

static int expand(const char *split, const char *pattern, struct paths *p, struct bl_error *err)
{
    glob_t found;
    int answer, saved;

    errno = 0;
    answer = glob(pattern, GLOB_ERR | GLOB_NOSORT | GLOB_BRACE | GLOB_TILDE, NULL, &found);
    saved = errno;
    /* A missing folder in front of a wildcard is "aborted" to glob. */
    if (answer == GLOB_NOMATCH || (answer == GLOB_ABORTED && (saved == ENOENT || saved == ENOTDIR)))
        bl_error_set(err, BL_EXIT_DATA, "%s: \"%s\" matches no file", split, pattern);
    else if (answer != 0)
        bl_error_set(err, BL_EXIT_DATA, "%s: \"%s\": %s", split, pattern,
                     answer == GLOB_NOSPACE ? "no memory"
                     : saved                ? strerror(saved)
                                            : "a folder cannot be read");
    for (size_t i = 0; answer == 0 && i < found.gl_pathc; i++)
        if (add(p, found.gl_pathv[i]) != 0)
            answer =
                bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for the list of files", split);
    globfree(&found);
    return answer == 0 ? 0 : -1;
}

/* By bytes: the order must not depend on the locale. */
static int by_name(const void *left, const void *right)
{
    return strcmp(*(char *const *)left, *(char *const *)right);
}

static void sort_unique(struct paths *p)
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

int bl_data_open(struct bl_plugin_instance *source, const struct bl_data_options *data,
                 int validation, struct bl_source_info *info, struct bl_error *err)
{
    const char *split = validation ? "data.validation" : "data.train";
    const struct bl_strings *patterns = validation ? &data->validation : &data->train;
    struct bl_source_files files = {.size = sizeof(files), .validation = validation ? 1 : 0};
    struct bl_source_info told = {.size = sizeof(told), .entropy = NAN};
    struct paths paths = {NULL, 0, 0};
    struct bl_error cause = BL_ERROR_INIT;
    int answer = -1;

    for (uint64_t i = 0; i < patterns->count; i++)
        if (expand(split, patterns->values[i], &paths, err) != 0)
            goto done;
    sort_unique(&paths);
    files.count = paths.count;
    files.paths = (const char *const *)paths.items;
    files.format = data->format ? data->format : "auto";
    if (source->ops.source.open(source->self, &files, &cause) != 0) {
        bl_error_set(err, cause.code > BL_EXIT_FAILED ? cause.code : BL_EXIT_DATA, "%s",
                     cause.text[0] ? cause.text : "the source failed without saying why");
        goto done;
    }
    source->ops.source.describe(source->self, &told);
    if (told.sequences < 1) {
        bl_error_set(err, BL_EXIT_DATA, "%s: source %s has no sequence", split,
                     source->plugin->name);
        goto done;
    }
    *info = told;
    answer = 0;
done:
    free_paths(&paths);
    return answer;
}
