#include "base/cgroup.h"

#include <stdio.h>
#include <string.h>

enum { PATH_SIZE = 4096, LINE_SIZE = 4096 };

/* What a version calls its files, and the line of memory.stat that counts droppable pages. */
struct version {
    const char *folder, *limit, *used, *droppable;
};
static const struct version versions[] = {
    {"", "memory.max", "memory.current", "inactive_file "},
    {"/unified", "memory.max", "memory.current", "inactive_file "},
    {"/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file "},
};

/* The number after `key` in a file; 0 and *out, or -1: no such file, line or number ("max"). */
static int read_number(const char *folder, const char *file, const char *key, uint64_t *out)
{
    char path[PATH_SIZE + 64], line[256];
    size_t n = strlen(key);
    unsigned long long value;
    int rc = -1;
    snprintf(path, sizeof path, "%s/%s", folder, file);
    FILE *f = fopen(path, "re");
    while (f != NULL && rc != 0 && fgets(line, sizeof line, f) != NULL)
        if (strncmp(line, key, n) == 0 && sscanf(line + n, "%llu", &value) == 1) {
            *out = value;
            rc = 0;
        }
    if (f != NULL)
        fclose(f);
    return rc;
}

static uint64_t left_in(const struct version *v, const char *folder)
{
    uint64_t limit, used, droppable = 0;
    if (read_number(folder, v->limit, "", &limit) != 0 ||
        read_number(folder, v->used, "", &used) != 0)
        return UINT64_MAX;
    if (limit >= UINT64_MAX / 4) /* version 1 says so that there is none */
        return UINT64_MAX;
    read_number(folder, "memory.stat", v->droppable, &droppable);
    used -= droppable < used ? droppable : used;
    return used < limit ? limit - used : 0;
}

/* Of the group and all above it: each has its own limit. */
static uint64_t left_from(const struct version *v, const char *root, const char *group)
{
    char folder[PATH_SIZE];
    size_t base = strlen(root) + strlen(v->folder);
    uint64_t left = UINT64_MAX;
    if (base + strlen(group) + 1 > sizeof folder)
        return left;
    snprintf(folder, sizeof folder, "%s%s%s", root, v->folder, group);
    for (;;) {
        uint64_t here = left_in(v, folder);
        left = here < left ? here : left;
        char *slash = strrchr(folder + base, '/');
        if (slash == NULL)
            return left;
        *slash = '\0';
    }
}

/* "memory" among the names between commas. */
static int has_memory(const char *names, size_t n)
{
    static const char word[] = "memory";
    for (size_t at = 0; at < n;) {
        size_t length = strcspn(names + at, ",:");
        if (length == sizeof word - 1 && memcmp(names + at, word, length) == 0)
            return 1;
        at += length + 1;
    }
    return 0;
}

uint64_t bl_cgroup_memory_left(const char *groups, const char *root)
{
    char line[LINE_SIZE];
    uint64_t left = UINT64_MAX;
    FILE *f = fopen(groups, "re");
    while (f != NULL && fgets(line, sizeof line, f) != NULL) { /* hierarchy:names:group */
        line[strcspn(line, "\n")] = '\0';
        const char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (group == NULL || group[1] != '/')
            continue;
        size_t length = (size_t)(group - names) - 1;
        int old = has_memory(names + 1, length);
        if (!old && length > 0)
            continue;
        for (size_t i = old ? 2 : 0; i < (old ? 3 : 2); i++) {
            uint64_t here = left_from(&versions[i], root, group[2] == '\0' ? "" : group + 1);
            left = here < left ? here : left;
        }
    }
    if (f != NULL)
        fclose(f);
    return left;
}
