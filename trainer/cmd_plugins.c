/* ballast plugins: what can be loaded, and the option table of one, straight from its descriptor.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "config/options.h"
#include "plugin/loader.h"

/* "regularizer/z_loss", "z_loss" or a path to a .so. Kind 0: every kind is tried. */
static int find_plugin(const char *name, char **path, struct bl_error *err)
{
    const struct bl_strings none = {0, NULL};
    const char *slash = strchr(name, '/');
    size_t length = slash != NULL ? (size_t)(slash - name) : 0;
    char kind_name[32];
    if (slash != NULL && length < sizeof kind_name) {
        memcpy(kind_name, name, length);
        kind_name[length] = '\0';
        uint32_t kind = bl_kind_from_name(kind_name);
        if (kind != 0)
            return bl_plugin_find(kind, slash + 1, &none, path, err);
    }
    if (slash != NULL) {
        *path = strdup(name);
        return *path != NULL ? 0 : bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    }
    char *found = NULL;
    for (uint32_t kind = 1; kind < BL_KIND_COUNT; kind++) {
        char *candidate;
        if (bl_plugin_find(kind, name, &none, &candidate, NULL) < 0)
            continue;
        if (found != NULL) {
            bl_error_set(err, BL_EXIT_USAGE,
                         "several kinds have a plugin \"%s\" (%s, %s); say KIND/%s", name, found,
                         candidate, name);
            free(found);
            free(candidate);
            return -1;
        }
        found = candidate;
    }
    if (found == NULL)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "no plugin \"%s\" of any kind; `ballast plugins` lists what there is",
                            name);
    *path = found;
    return 0;
}

static int show(const char *name, struct bl_error *err)
{
    char *path;
    struct bl_library *library;
    if (find_plugin(name, &path, err) < 0)
        return -1;
    int rc = bl_library_open(path, 0, &library, err);
    if (rc == 0) {
        const struct bl_plugin *p = bl_library_plugin(library);
        printf("%s %s %s\n  file   %s\n  built  %s (ABI %u.%u)\n", bl_kind_name(p->kind), p->name,
               p->version, path, p->build, (unsigned)p->abi_major, (unsigned)p->abi_minor);
        if (p->null_setting != NULL)
            printf("  does nothing at  %s\n", p->null_setting);
        printf("\n");
        bl_options_help(p->options, stdout);
        bl_library_close(library);
    }
    free(path);
    return rc;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

/* Prints "kind  name" for each <kind>_<name>.so in a folder; nothing is loaded. Their number. */
static size_t list_folder(const char *folder)
{
    struct dirent **entries;
    size_t found = 0;
    int n = scandir(folder, &entries, NULL, by_name);
    if (n < 0)
        return 0;
    printf("%s\n", folder);
    for (uint32_t kind = 1; kind < BL_KIND_COUNT; kind++) {
        const char *kind_name = bl_kind_name(kind);
        size_t prefix = strlen(kind_name);
        int first = 1;
        for (int i = 0; i < n; i++) {
            const char *file = entries[i]->d_name;
            size_t length = strlen(file);
            if (length <= prefix + 4 || strncmp(file, kind_name, prefix) != 0 ||
                file[prefix] != '_' || strcmp(file + length - 3, ".so") != 0)
                continue;
            if (first)
                printf("  %-12s", kind_name);
            printf(" %.*s", (int)(length - prefix - 4), file + prefix + 1);
            first = 0;
            found++;
        }
        if (!first)
            printf("\n");
    }
    for (int i = 0; i < n; i++)
        free(entries[i]);
    free(entries);
    return found;
}

static int list(struct bl_error *err)
{
    char **folders = NULL;
    size_t count = 0, found = 0;
    if (bl_plugin_folders(NULL, &folders, &count, err) < 0)
        return -1;
    for (size_t i = 0; i < count; i++) {
        found += list_folder(folders[i]);
        free(folders[i]);
    }
    free(folders);
    if (found == 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "no plugins anywhere in the search path; install them, or name their "
                            "folder in BALLAST_PLUGIN_PATH");
    return 0;
}

int bl_cmd_plugins(int argc, char **argv, struct bl_error *err)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: ballast plugins [NAME...]\n\n"
             "Without a name: every plugin in the search path, by kind. NAME is a plugin's name,\n"
             "KIND/NAME, or the path of a .so file; its option table is printed.\n"
             "Search path: BALLAST_PLUGIN_PATH (colons), then the installed folder.");
        return 0;
    }
    if (argc == 1)
        return list(err);
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return bl_error_set(err, BL_EXIT_USAGE,
                                "plugins: unknown option %s; usage: ballast plugins [NAME...]",
                                argv[i]);
        if (show(argv[i], err) < 0)
            return -1;
    }
    return 0;
}
