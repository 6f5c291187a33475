/* ballast plugins: what can be loaded, and the option table of one, straight from its descriptor.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/strings.h"
#include "cmd.h"
#include "config/options.h"
#include "plugin/host.h"

/* ---- what there is ----------------------------------------------------------------------------*/

struct entry {
    uint32_t kind;
    size_t folder; /* index: lower ones win */
    char *name, *path;
};

struct listing {
    char **folders;
    size_t folder_count;
    struct entry *entries;
    size_t count, capacity;
};

static int in_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    int names = strcmp(x->name, y->name);
    if (x->kind != y->kind)
        return x->kind < y->kind ? -1 : 1;
    if (names != 0)
        return names;
    return (x->folder > y->folder) - (x->folder < y->folder);
}

/* The kind that a file <kind>_<name>.so says, and the length of the name; 0: no plugin's name. */
static uint32_t kind_of_file(const char *file, size_t *name, size_t *length)
{
    size_t all = strlen(file);
    for (uint32_t kind = 1; kind < BL_KIND_COUNT; kind++) {
        size_t prefix = strlen(bl_kind_name(kind));
        if (all > prefix + 4 && strncmp(file, bl_kind_name(kind), prefix) == 0 &&
            file[prefix] == '_' && strcmp(file + all - 3, ".so") == 0) {
            *name = prefix + 1;
            *length = all - prefix - 4;
            return kind;
        }
    }
    return 0;
}

static int add(struct listing *l, size_t folder, const char *file)
{
    size_t name, length;
    uint32_t kind = kind_of_file(file, &name, &length);
    if (kind == 0)
        return 0;
    if (l->count == l->capacity) {
        size_t capacity = l->capacity > 0 ? 2 * l->capacity : 64;
        struct entry *more = realloc(l->entries, capacity * sizeof *more);
        if (more == NULL)
            return -1;
        l->entries = more;
        l->capacity = capacity;
    }
    struct entry *e = &l->entries[l->count];
    *e = (struct entry){kind, folder, strndup(file + name, length),
                        bl_format("%s/%s", l->folders[folder], file)};
    l->count++;
    return e->name != NULL && e->path != NULL ? 0 : -1;
}

/* Whether folder i is one of those before it under another name. */
static int seen_before(const struct listing *l, size_t i)
{
    struct stat own, other;
    if (stat(l->folders[i], &own) != 0)
        return 1;
    for (size_t k = 0; k < i; k++)
        if (stat(l->folders[k], &other) == 0 && other.st_dev == own.st_dev &&
            other.st_ino == own.st_ino)
            return 1;
    return 0;
}

static int collect(struct listing *l, struct bl_error *err)
{
    if (bl_plugin_folders(NULL, &l->folders, &l->folder_count, err) < 0)
        return -1;
    for (size_t i = 0; i < l->folder_count; i++) {
        DIR *dir = seen_before(l, i) ? NULL : opendir(l->folders[i]);
        int rc = 0;
        for (struct dirent *d = dir != NULL ? readdir(dir) : NULL; d != NULL && rc == 0;
             d = readdir(dir))
            rc = add(l, i, d->d_name);
        if (dir != NULL)
            closedir(dir);
        if (rc != 0)
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    }
    if (l->count > 0)
        qsort(l->entries, l->count, sizeof *l->entries, in_order);
    return 0;
}

static void free_listing(struct listing *l)
{
    for (size_t i = 0; i < l->count; i++) {
        free(l->entries[i].name);
        free(l->entries[i].path);
    }
    for (size_t i = 0; i < l->folder_count; i++)
        free(l->folders[i]);
    free(l->entries);
    free(l->folders);
}

/* The error for a name that no kind has. */
static int no_such(const char *name, struct bl_error *err)
{
    struct listing l = {0};
    const char *near = NULL;
    if (collect(&l, err) != 0) {
        free_listing(&l);
        return -1;
    }
    const char **names = calloc(l.count + BL_KIND_COUNT, sizeof *names);
    if (names != NULL) {
        for (size_t i = 0; i < l.count; i++)
            names[i] = l.entries[i].name;
        for (uint32_t kind = 1; kind < BL_KIND_COUNT; kind++)
            names[l.count + kind - 1] = bl_kind_name(kind);
        near = bl_nearest(name, names);
    }
    bl_error_set(err, BL_EXIT_PLUGIN,
                 "no plugin \"%s\" of any kind; %s%s%s`ballast plugins` lists what there is", name,
                 near != NULL ? "did you mean " : "", near != NULL ? near : "",
                 near != NULL ? "? " : "");
    free(names);
    free_listing(&l);
    return -1;
}

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
        return no_such(name, err);
    *path = found;
    return 0;
}

/* ---- one plugin -------------------------------------------------------------------------------*/

#define OP(KIND, kind, op)                                                                         \
    {                                                                                              \
        BL_KIND_##KIND, #op, offsetof(struct bl_##kind##_ops, op)                                  \
    }
static const struct {
    uint32_t kind; /* 0: every kind */
    const char *name;
    size_t offset;
} ops[] = {
    {0, "save", offsetof(struct bl_common_ops, save)},
    {0, "load", offsetof(struct bl_common_ops, load)},
    OP(REGULARIZER, regularizer, rows),
    OP(REGULARIZER, regularizer, element),
    OP(REGULARIZER, regularizer, row_scale),
    OP(REGULARIZER, regularizer, weight_grad),
    OP(REGULARIZER, regularizer, project_grad),
    OP(REGULARIZER, regularizer, project_weight),
    OP(PRECISION, precision, fill),
    OP(SCHEDULE, schedule, factor),
    OP(MONITOR, monitor, needs),
    OP(MONITOR, monitor, observe),
    OP(MONITOR, monitor, after),
    OP(OPTIMIZER, optimizer, states),
    OP(OPTIMIZER, optimizer, prepare),
    OP(OPTIMIZER, optimizer, apply),
    OP(GUARD, guard, gradient),
    OP(GUARD, guard, update),
    OP(SINK, sink, write),
    OP(SINK, sink, finish),
    OP(SOURCE, source, open),
    OP(SOURCE, source, describe),
    OP(SOURCE, source, read),
    OP(TOKENIZER, tokenizer, describe),
    OP(TOKENIZER, tokenizer, encode),
    OP(TOKENIZER, tokenizer, decode),
};

/* The plugin's own struct may be an older, shorter one. */
static int has_op(const struct bl_plugin *p, size_t offset)
{
    void *op = NULL;
    if (offset + sizeof op <= p->ops_size)
        memcpy(&op, (const char *)p->ops + offset, sizeof op);
    return op != NULL;
}

static const char *device_text(uint32_t devices)
{
    return devices == BL_DEVICE_CPU ? "cpu" : devices == BL_DEVICE_CUDA ? "cuda" : "cpu cuda";
}

static void print_ops(const struct bl_plugin *p)
{
    printf("  ops      ");
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++)
        if ((ops[i].kind == 0 || ops[i].kind == p->kind) && has_op(p, ops[i].offset))
            printf(" %s", ops[i].name);
    printf("\n");
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
        printf("%s %s %s\n", bl_kind_name(p->kind), p->name, p->version);
        printf("  file      %s\n", path);
        printf("  built     %s, plugin ABI %u.%u\n", p->build, (unsigned)p->abi_major,
               (unsigned)p->abi_minor);
        printf("  devices   %s\n", device_text(p->devices));
        print_ops(p);
        printf("  does nothing at  %s\n\n",
               p->null_setting != NULL ? p->null_setting : "no setting; leave it out");
        bl_options_help(p->options, stdout);
        bl_library_close(library);
    }
    free(path);
    return rc;
}

/* ---- all of them ------------------------------------------------------------------------------*/

/* "key=default ...": what the descriptor says about itself in one line. */
static void print_options(const struct bl_option *o)
{
    size_t used = 0;
    for (; o != NULL && o->key != NULL; o++) {
        const char *value = (o->flags & BL_OPTION_REQUIRED) != 0                  ? "REQUIRED"
                            : o->default_text != NULL && *o->default_text != '\0' ? o->default_text
                                                                                  : "\"\"";
        size_t length = strlen(o->key) + strlen(value) + 2;
        if (used > 0 && used + length > 60) {
            printf(" ...");
            break;
        }
        printf(" %s=%s", o->key, value);
        used += length;
    }
}

/* "  kind  name  version  devices  options"; what cannot be loaded says why. */
static void print_entry(const struct listing *l, size_t i)
{
    const struct entry *e = &l->entries[i], *before = i > 0 ? &l->entries[i - 1] : NULL;
    struct bl_library *library = NULL;
    struct bl_error err = BL_ERROR_INIT;
    printf("  %-11s  %-18s ", bl_kind_name(e->kind), e->name);
    if (before != NULL && before->kind == e->kind && strcmp(before->name, e->name) == 0) {
        printf("%s, hidden by %s\n", e->path, before->path);
    } else if (bl_library_open(e->path, e->kind, &library, &err) != 0) {
        printf("%s\n", err.text);
    } else {
        const struct bl_plugin *p = bl_library_plugin(library);
        int options = p->options != NULL && p->options->key != NULL;
        printf("%-7s %-*s", p->version, options ? 9 : 0, device_text(p->devices));
        print_options(p->options);
        printf("\n");
        bl_library_close(library);
    }
}

static int list(uint32_t kind, struct bl_error *err) /* kind 0: all */
{
    struct listing l = {0};
    size_t found = 0;
    int rc = -1;
    if (collect(&l, err) < 0)
        goto done;
    for (size_t i = 0; i < l.count; i++) {
        if (kind != 0 && l.entries[i].kind != kind)
            continue;
        if (kind == 0 && i > 0 && l.entries[i].kind != l.entries[i - 1].kind)
            printf("\n");
        print_entry(&l, i);
        found++;
    }
    if (found == 0) {
        bl_error_set(err, BL_EXIT_PLUGIN,
                     "no %s%splugins anywhere in the search path; install them, or name their "
                     "folder in BALLAST_PLUGIN_PATH",
                     kind != 0 ? bl_kind_name(kind) : "", kind != 0 ? " " : "");
        goto done;
    }
    printf("\nfrom, in this order:");
    for (size_t f = 0; f < l.folder_count; f++) {
        int any = 0;
        for (size_t i = 0; i < l.count; i++)
            any |= l.entries[i].folder == f;
        if (any)
            printf(" %s", l.folders[f]);
    }
    printf("\n`ballast plugins NAME` explains the options of one.\n");
    rc = 0;
done:
    free_listing(&l);
    return rc;
}

int bl_cmd_plugins(int argc, char **argv, struct bl_error *err)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts(
            "usage: ballast plugins [KIND | NAME]...\n\n"
            "Without an argument: every plugin in the search path, by kind, with its version, the\n"
            "devices it runs on and its options with their defaults. KIND (regularizer, "
            "precision,\n"
            "schedule, monitor, optimizer, guard, sink, source, tokenizer) lists that kind. NAME\n"
            "is a plugin's name, KIND/NAME, or the path of a .so file: file, build, ops, the\n"
            "setting at which it does nothing, and its option table.\n"
            "Search path: BALLAST_PLUGIN_PATH (colons), then the installed folder.");
        return 0;
    }
    for (int i = 1; i < argc; i++)
        if (argv[i][0] == '-')
            return bl_error_set(err, BL_EXIT_USAGE,
                                "plugins: unknown option %s; usage: ballast plugins [KIND | "
                                "NAME]...",
                                argv[i]);
    if (argc == 1)
        return list(0, err);
    for (int i = 1; i < argc; i++) {
        uint32_t kind = bl_kind_from_name(argv[i]);
        if (i > 1)
            printf("\n");
        if ((kind != 0 ? list(kind, err) : show(argv[i], err)) < 0)
            return -1;
    }
    return 0;
}
