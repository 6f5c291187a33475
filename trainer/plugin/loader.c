#include "plugin/loader.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

#include "base/strings.h"
#include "config/options.h"
#include "plugin/elf.h"

#ifndef BL_PLUGINDIR
#define BL_PLUGINDIR "/usr/local/lib/ballast/plugins"
#endif

#define FILE_LIMIT  ((uint64_t)4 << 30)
#define PREFIX_SIZE offsetof(struct bl_plugin, name) /* integers alone: readable in the file */

struct bl_library {
    char *path;
    void *handle;
    const struct bl_plugin *plugin;
    uint64_t checksum;
};

static const char *const kind_names[BL_KIND_COUNT] = {
    [BL_KIND_REGULARIZER] = "regularizer",
    [BL_KIND_PRECISION] = "precision",
    [BL_KIND_SCHEDULE] = "schedule",
    [BL_KIND_MONITOR] = "monitor",
    [BL_KIND_OPTIMIZER] = "optimizer",
    [BL_KIND_GUARD] = "guard",
    [BL_KIND_SINK] = "sink",
    [BL_KIND_SOURCE] = "source",
    [BL_KIND_TOKENIZER] = "tokenizer",
};

const char *bl_kind_name(uint32_t kind)
{
    return kind < BL_KIND_COUNT && kind_names[kind] != NULL ? kind_names[kind] : "unknown";
}

uint32_t bl_kind_from_name(const char *name)
{
    for (uint32_t k = 1; name != NULL && k < BL_KIND_COUNT; k++)
        if (strcmp(name, kind_names[k]) == 0)
            return k;
    return 0;
}

/* ---- the file ---------------------------------------------------------------------------------*/

/* Reads the file into memory: a map would raise SIGBUS when somebody cuts the file meanwhile.
 * O_NONBLOCK keeps a FIFO from blocking the open. */
static int read_file(const char *path, unsigned char **out, size_t *size, struct bl_error *err)
{
    unsigned char *bytes = NULL;
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (fd < 0)
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        bl_error_set(err, BL_EXIT_PLUGIN, "%s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: not a regular file", path);
        goto fail;
    }
    if (st.st_size <= 0 || (uint64_t)st.st_size > FILE_LIMIT) {
        bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: %lld bytes, not a shared object", path,
                     (long long)st.st_size);
        goto fail;
    }
    size_t want = (size_t)st.st_size, got = 0;
    bytes = malloc(want);
    if (bytes == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for %zu bytes", path, want);
        goto fail;
    }
    while (got < want) {
        ssize_t n = pread(fd, bytes + got, want - got, (off_t)got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            bl_error_set(err, BL_EXIT_PLUGIN, "%s: read stopped at byte %zu of %zu: %s", path, got,
                         want, n < 0 ? strerror(errno) : "the file became shorter");
            goto fail;
        }
        got += (size_t)n;
    }
    close(fd);
    *out = bytes;
    *size = want;
    return 0;
fail:
    free(bytes);
    close(fd);
    return -1;
}

/* What the file says, compared with what this program can load. */
static int check_descriptor(const char *path, const struct bl_plugin *d, uint64_t symbol_size,
                            uint32_t kind, struct bl_error *err)
{
    if (d->magic != BL_PLUGIN_MAGIC)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: magic 0x%08" PRIx32 ", expected 0x%08" PRIx32
                            "; use the BL_PLUGIN macro",
                            path, d->magic, BL_PLUGIN_MAGIC);
    if (d->abi_major != BL_ABI_MAJOR || d->abi_minor > BL_ABI_MINOR)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: plugin ABI %u.%u, this program has %d.%d; rebuild the "
                            "plugin with this program's headers",
                            path, d->abi_major, d->abi_minor, BL_ABI_MAJOR, BL_ABI_MINOR);
    /* 1.0 had every member that there is now. */
    if (d->size != sizeof *d || symbol_size < d->size)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: descriptor of %" PRIu32 " bytes in a symbol of %" PRIu64
                            ", expected %zu",
                            path, d->size, symbol_size, sizeof *d);
    if (d->kind == 0 || d->kind >= BL_KIND_COUNT)
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: unknown kind %" PRIu32, path,
                            d->kind);
    if (kind != 0 && d->kind != kind)
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: a %s plugin, expected a %s", path,
                            bl_kind_name(d->kind), bl_kind_name(kind));
    if (d->ops_size < sizeof(struct bl_common_ops) || d->ops_size > 4096 || d->ops_size % 8 != 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: ops_size %" PRIu32 ", expected struct bl_%s_ops", path,
                            d->ops_size, bl_kind_name(d->kind));
    if (d->devices == 0 || (d->devices & ~(uint32_t)(BL_DEVICE_CPU | BL_DEVICE_CUDA)) != 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: devices 0x%" PRIx32
                            ", expected BL_DEVICE_CPU, BL_DEVICE_CUDA or both",
                            path, d->devices);
    return 0;
}

struct facts {                   /* everything that the file alone can tell */
    struct bl_plugin descriptor; /* the members before `name` */
    uint64_t checksum;
    int device_code;
};

static int inspect(const char *path, uint32_t kind, struct facts *out, struct bl_error *err)
{
    struct bl_plugin d = {0};
    struct bl_elf elf;
    unsigned char *bytes = NULL;
    const unsigned char *data;
    size_t size = 0;
    uint64_t symbol_size;
    int rc = -1;

    if (read_file(path, &bytes, &size, err) != 0)
        return -1;
    if (bl_elf_open(&elf, path, bytes, size, err) != 0 ||
        bl_elf_symbol(&elf, BL_PLUGIN_SYMBOL, PREFIX_SIZE, &data, &symbol_size, err) != 0)
        goto done;
    memcpy(&d, data, PREFIX_SIZE);
    if (check_descriptor(path, &d, symbol_size, kind, err) != 0)
        goto done;
    /* nvcc's constructors register device code; nothing tells them from others. */
    int device_code = (d.devices & BL_DEVICE_CUDA) != 0 && bl_elf_device_code(&elf);
    if (!device_code && bl_elf_constructors(&elf, err) != 0)
        goto done;
    *out = (struct facts){d, XXH64(bytes, size, 0), device_code};
    rc = 0;
done:
    free(bytes);
    return rc;
}

int bl_plugin_precheck(const char *path, uint32_t kind, struct bl_error *err)
{
    struct facts file;
    return inspect(path, kind, &file, err);
}

/* ---- the loaded object ------------------------------------------------------------------------*/

/* Rounding, flush-to-zero and exception masks of this thread; not the sticky exception flags. */
static uint64_t float_mode(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & 0xffc0u;
#elif defined(__aarch64__)
    uint64_t v;
    __asm__ volatile("mrs %0, fpcr" : "=r"(v));
    return v;
#else
    return 0;
#endif
}

static void set_float_mode(uint64_t mode)
{
#if defined(__x86_64__)
    _mm_setcsr((_mm_getcsr() & ~0xffc0u) | (unsigned)mode);
#elif defined(__aarch64__)
    __asm__ volatile("msr fpcr, %0" : : "r"(mode));
#else
    (void)mode;
#endif
}

static int valid_name(const char *name)
{
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    return n > 0 && n < 128 && name[n] == '\0';
}

/* "key=value,key=value": every key is a row of the table. */
static int check_null_setting(const char *path, const struct bl_plugin *p, struct bl_error *err)
{
    const char *at = p->null_setting;
    while (at != NULL && *at != '\0') {
        size_t n = strcspn(at, ","), key = strcspn(at, "=,");
        const struct bl_option *row = p->options;
        while (row != NULL && row->key != NULL &&
               (strlen(row->key) != key || strncmp(row->key, at, key) != 0))
            row++;
        if (key == n || row == NULL || row->key == NULL)
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "%s: refused: null_setting \"%s\": '%.*s' is not an option=value "
                                "of this plugin",
                                path, p->null_setting, (int)(n < 80 ? n : 80), at);
        at += n;
        if (*at == ',')
            at++;
    }
    return 0;
}

static int check_loaded(const char *path, const struct bl_plugin *p, const struct bl_plugin *file,
                        struct bl_error *err)
{
    if (memcmp(p, file, PREFIX_SIZE) != 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: the loaded descriptor differs from the file's; was the "
                            "file replaced meanwhile? Try again",
                            path);
    if (p->name == NULL || p->version == NULL || p->build == NULL || p->ops == NULL)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: name, version, build and ops must not be NULL", path);
    if (!valid_name(p->name))
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: plugin name \"%.80s\"; use a-z, 0-9 and _", path,
                            p->name);
    if (p->options == NULL && p->options_size != 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: options of %" PRIu64 " bytes without an option table",
                            path, p->options_size);
    if (p->options != NULL && bl_options_check(p->options, p->options_size, err) != 0) {
        bl_error_prefix(err, "%s: refused", path);
        if (err != NULL)
            err->code = BL_EXIT_PLUGIN;
        return -1;
    }
    const struct bl_common_ops *ops = p->ops;
    if ((ops->save == NULL) != (ops->load == NULL))
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: it has only one of save and load",
                            path);
    return check_null_setting(path, p, err);
}

int bl_library_open(const char *path, uint32_t kind, struct bl_library **out, struct bl_error *err)
{
    struct bl_library *l = calloc(1, sizeof *l);
    struct facts file;
    if (l == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    if (inspect(path, kind, &file, err) != 0)
        goto fail;
    l->checksum = file.checksum;
    /* Without a slash dlopen would search the system's library folders. */
    l->path = bl_format("%s%s", strchr(path, '/') != NULL ? "" : "./", path);
    if (l->path == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
        goto fail;
    }

    /* The CUDA runtime keeps pointers into an object that registered device code. */
    int flags = RTLD_NOW | RTLD_LOCAL | (file.device_code ? RTLD_NODELETE : 0);
    uint64_t mode = float_mode();
    l->handle = dlopen(l->path, flags);
    uint64_t after = float_mode();
    set_float_mode(mode);
    if (l->handle == NULL) {
        const char *why = dlerror();
        size_t n = strlen(l->path);
        if (why != NULL && strncmp(why, l->path, n) == 0 && why[n] == ':')
            why += n + 1; /* the path is in front already */
        bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused by the dynamic linker: %s", path,
                     why != NULL ? why + strspn(why, " ") : "no reason given");
        goto fail;
    }
    if (after != mode) {
        bl_error_set(err, BL_EXIT_PLUGIN,
                     "%s: refused: loading it changed the floating-point mode from 0x%" PRIx64
                     " to 0x%" PRIx64 " (put back), as -ffast-math does; build it and the "
                     "libraries it needs without -ffast-math",
                     path, mode, after);
        goto fail;
    }
    l->plugin = dlsym(l->handle, BL_PLUGIN_SYMBOL);
    if (l->plugin == NULL) {
        bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: dlsym does not find %s", path,
                     BL_PLUGIN_SYMBOL);
        goto fail;
    }
    if (check_loaded(path, l->plugin, &file.descriptor, err) != 0)
        goto fail;
    *out = l;
    return 0;
fail:
    bl_library_close(l);
    return -1;
}

void bl_library_close(struct bl_library *l)
{
    if (l == NULL)
        return;
    if (l->handle != NULL)
        dlclose(l->handle);
    free(l->path);
    free(l);
}

const struct bl_plugin *bl_library_plugin(const struct bl_library *l)
{
    return l->plugin;
}

const char *bl_library_path(const struct bl_library *l)
{
    return l->path;
}

uint64_t bl_library_checksum(const struct bl_library *l)
{
    return l->checksum;
}

/* ---- search -----------------------------------------------------------------------------------*/

struct folders {
    char **names;
    size_t count, capacity;
    int failed;
};

static void add(struct folders *f, char *owned) /* takes a malloc'd string; NULL = no memory */
{
    if (owned != NULL && f->count == f->capacity) {
        size_t capacity = f->capacity == 0 ? 8 : 2 * f->capacity;
        char **names = realloc(f->names, capacity * sizeof *names);
        if (names != NULL) {
            f->names = names;
            f->capacity = capacity;
        }
    }
    if (owned == NULL || f->count == f->capacity) {
        f->failed = 1;
        free(owned);
        return;
    }
    f->names[f->count++] = owned;
}

static void free_folders(struct folders *f)
{
    for (size_t i = 0; i < f->count; i++)
        free(f->names[i]);
    free(f->names);
}

/* Plugins built beside a program that was not installed. */
static void add_build_tree(struct folders *f)
{
    static const char *const relative[] = {"../plugins/.libs", "plugins/.libs"};
    char exe[4096];
    struct stat st;
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0)
        return;
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash == NULL)
        return;
    *slash = '\0';
    for (size_t i = 0; i < sizeof relative / sizeof *relative; i++) {
        char *path = bl_format("%s/%s", exe, relative[i]);
        if (path == NULL)
            f->failed = 1;
        else if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            add(f, path);
        else
            free(path);
    }
}

static void search_folders(const struct bl_strings *config_path, struct folders *f)
{
    for (uint64_t i = 0; config_path != NULL && i < config_path->count; i++)
        if (config_path->values[i][0] != '\0')
            add(f, strdup(config_path->values[i]));
    const char *list = getenv("BALLAST_PLUGIN_PATH");
    while (list != NULL && *list != '\0') {
        size_t n = strcspn(list, ":");
        if (n > 0)
            add(f, strndup(list, n));
        list += n + (list[n] == ':');
    }
    add_build_tree(f);
    add(f, strdup(BL_PLUGINDIR));
}

/* Names of the plugins of a kind in all folders, NULL-terminated in *names. */
static void list_plugins(const struct folders *f, uint32_t kind, struct folders *names)
{
    size_t stem = strlen(bl_kind_name(kind));
    for (size_t i = 0; i < f->count; i++) {
        DIR *dir = opendir(f->names[i]);
        if (dir == NULL)
            continue;
        for (struct dirent *d = readdir(dir); d != NULL; d = readdir(dir)) {
            size_t n = strlen(d->d_name);
            if (n > stem + 4 && strncmp(d->d_name, bl_kind_name(kind), stem) == 0 &&
                d->d_name[stem] == '_' && strcmp(d->d_name + n - 3, ".so") == 0)
                add(names, strndup(d->d_name + stem + 1, n - stem - 4));
        }
        closedir(dir);
    }
}

static char *existing(const struct folders *f, uint32_t kind, const char *name, int *failed)
{
    struct stat st;
    for (size_t i = 0; i < f->count; i++) {
        char *file = bl_format("%s/%s_%s.so", f->names[i], bl_kind_name(kind), name);
        if (file == NULL) {
            *failed = 1;
            return NULL;
        }
        if (stat(file, &st) == 0)
            return file;
        free(file);
    }
    return NULL;
}

static int not_found(const struct folders *f, uint32_t kind, const char *name, struct bl_error *err)
{
    struct folders names = {0};
    struct bl_text text = {0};
    int failed = 0;

    bl_text_add(&text, "no %s plugin '%s' (looked for %s_%s.so in", bl_kind_name(kind), name,
                bl_kind_name(kind), name);
    for (size_t i = 0; i < f->count; i++)
        bl_text_add(&text, "%s %s", i > 0 ? "," : "", f->names[i]);
    bl_text_add(&text, ")");
    for (uint32_t k = 1; k < BL_KIND_COUNT; k++) {
        char *other = k != kind ? existing(f, k, name, &failed) : NULL;
        if (other != NULL)
            bl_text_add(&text, "; '%s' is %s %s", name, k == BL_KIND_OPTIMIZER ? "an" : "a",
                        bl_kind_name(k));
        free(other);
    }
    list_plugins(f, kind, &names);
    add(&names, strdup("")); /* room for the end mark */
    if (!names.failed) {
        free(names.names[names.count - 1]);
        names.names[names.count - 1] = NULL;
        const char *near = bl_nearest(name, (const char *const *)names.names);
        if (near != NULL)
            bl_text_add(&text, "; did you mean '%s'?", near);
        names.count--;
    }
    bl_error_set(err, BL_EXIT_PLUGIN, "%s", text.failed ? "plugin not found" : text.text);
    bl_text_free(&text);
    free_folders(&names);
    return -1;
}

int bl_plugin_find(uint32_t kind, const char *name, const struct bl_strings *config_path,
                   char **path, struct bl_error *err)
{
    struct folders f = {0};
    char *found = NULL;
    int failed = 0;

    if (strchr(name, '/') != NULL) {
        found = strdup(name);
        if (found == NULL)
            return bl_error_set(err, BL_EXIT_FAILED, "no memory");
        *path = found;
        return 0;
    }
    if (!valid_name(name))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%s plugin \"%.80s\": a name has a-z, 0-9 and _; a file needs a path "
                            "with '/'",
                            bl_kind_name(kind), name);
    search_folders(config_path, &f);
    if (!f.failed)
        found = existing(&f, kind, name, &failed);
    if (f.failed || failed)
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
    else if (found == NULL)
        not_found(&f, kind, name, err);
    else
        *path = found;
    free_folders(&f);
    return found != NULL ? 0 : -1;
}

int bl_plugin_folders(const struct bl_strings *config_path, char ***folders, size_t *count,
                      struct bl_error *err)
{
    struct folders f = {0};
    search_folders(config_path, &f);
    if (f.failed) {
        free_folders(&f);
        return bl_error_set(err, BL_EXIT_FAILED, "no memory");
    }
    *folders = f.names;
    *count = f.count;
    return 0;
}
