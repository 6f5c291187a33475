#include "checkpoint/checkpoint.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <xxhash.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "checkpoint/safetensors.h"

const char *const bl_checkpoint_files[BL_FILE_COUNT] = {
    "model.safetensors", "optimizer-1-of-1.safetensors", "plugins.safetensors"};

/* ---- folders --------------------------------------------------------------------------------- */

/* Removes a folder of plain files; folders inside it are left and make this fail. */
static int remove_folder(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int cause = 0;

    if (!folder)
        return errno == ENOENT ? 0 : -1;
    while ((entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0)
            cause = errno;
    closedir(folder);
    if (cause) {
        errno = cause;
        return -1;
    }
    return rmdir(path);
}

static int sync_folder(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), answer;

    if (fd < 0)
        return -1;
    answer = fsync(fd);
    if (answer != 0 && (errno == EINVAL || errno == ENOTSUP)) /* some network file systems */
        answer = 0;
    close(fd);
    return answer;
}

/* "500" -> 500; a name with anything but digits, or a leading zero, is no step. */
static int parse_step(const char *name, uint64_t *out)
{
    uint64_t value = 0;

    if (!isdigit((unsigned char)name[0]) || (name[0] == '0' && name[1] != '\0'))
        return -1;
    for (; *name; name++)
        if (!isdigit((unsigned char)*name) || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *name - '0', &value))
            return -1;
    *out = value;
    return 0;
}

static int by_step(const void *left, const void *right)
{
    const uint64_t *l = left, *r = right;

    return *l < *r ? -1 : *l > *r;
}

/* Steps of the complete checkpoints, ascending, malloc'd. */
static int list_steps(const char *directory, uint64_t **out, size_t *count, struct bl_error *err)
{
    DIR *folder = opendir(directory);
    uint64_t *steps = NULL, step;
    size_t n = 0, capacity = 0;
    struct dirent *entry;

    if (!folder) {
        if (errno != ENOENT)
            return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", directory, strerror(errno));
        *out = NULL;
        *count = 0;
        return 0;
    }
    while ((entry = readdir(folder))) {
        char *state;
        int complete;
        if (parse_step(entry->d_name, &step) != 0)
            continue;
        state = bl_format("%s/state.json", entry->d_name);
        complete = state && faccessat(dirfd(folder), state, F_OK, 0) == 0;
        free(state);
        if (!complete)
            continue;
        if (n == capacity) {
            uint64_t *larger = realloc(steps, (capacity = 2 * capacity + 16) * sizeof(*steps));
            if (!larger) {
                free(steps);
                closedir(folder);
                return bl_error_set(err, BL_EXIT_FAILED, "no memory for the list of checkpoints");
            }
            steps = larger;
        }
        steps[n++] = step;
    }
    closedir(folder);
    if (n > 0)
        qsort(steps, n, sizeof(*steps), by_step);
    *out = steps;
    *count = n;
    return 0;
}

int bl_checkpoint_latest(const char *directory, uint64_t *step, struct bl_error *err)
{
    uint64_t *steps;
    size_t count;

    if (list_steps(directory, &steps, &count, err) != 0)
        return -1;
    if (count > 0)
        *step = steps[count - 1];
    free(steps);
    return count > 0;
}

/* ".tmp-<attempt>-..." and ".old-<attempt>-...": the attempt, 0 for any other name. */
static uint64_t leftover_attempt(const char *name)
{
    uint64_t attempt = 0;

    if (strncmp(name, ".tmp-", 5) != 0 && strncmp(name, ".old-", 5) != 0)
        return 0;
    for (name += 5; isdigit((unsigned char)*name) && attempt < UINT32_MAX; name++)
        attempt = attempt * 10 + (uint64_t)(*name - '0');
    return *name == '-' ? attempt : 0;
}

/* Room for the next ones; what cannot be removed stays, the checkpoint itself is safe. A folder is
 * renamed first: a half removed one never looks complete, and a later attempt removes the rest. */
static void prune(const char *directory, uint64_t keep, uint32_t attempt)
{
    uint64_t *steps = NULL;
    size_t count = 0;
    struct dirent *entry;
    DIR *folder;

    if (keep > 0 && list_steps(directory, &steps, &count, NULL) == 0) {
        for (size_t i = 0; i + keep < count; i++) {
            char *path = bl_format("%s/%" PRIu64, directory, steps[i]);
            char *aside = bl_format("%s/.old-%" PRIu32 "-%" PRIu64, directory, attempt, steps[i]);
            if (path && aside && remove_folder(aside) == 0 && rename(path, aside) == 0)
                remove_folder(aside);
            free(path);
            free(aside);
        }
        free(steps);
    }
    folder = opendir(directory);
    while (folder && (entry = readdir(folder))) {
        uint64_t of = leftover_attempt(entry->d_name);
        char *path = of && of <= attempt ? bl_format("%s/%s", directory, entry->d_name) : NULL;
        if (path)
            remove_folder(path);
        free(path);
    }
    if (folder)
        closedir(folder);
}

/* ---- writing --------------------------------------------------------------------------------- */

int bl_checkpoint_checksum(const char *path, uint64_t *out)
{
    XXH64_state_t *state = XXH64_createState();
    char *buffer = malloc(1 << 20);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK), answer = -1;
    struct stat st;
    ssize_t got;

    if (!state || !buffer || fd < 0 || fstat(fd, &st) != 0)
        goto done;
    if (!S_ISREG(st.st_mode)) {
        errno = EINVAL;
        goto done;
    }
    XXH64_reset(state, 0);
    while ((got = read(fd, buffer, 1 << 20)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            goto done;
        XXH64_update(state, buffer, (size_t)got);
    }
    *out = XXH64_digest(state);
    answer = 0;
done:
    if (fd >= 0)
        close(fd);
    free(buffer);
    XXH64_freeState(state);
    return answer;
}

static char *to_hex(const unsigned char *bytes, uint64_t n)
{
    static const char digits[] = "0123456789abcdef";
    char *text = n < SIZE_MAX / 2 ? malloc(2 * n + 1) : NULL;

    if (!text)
        return NULL;
    for (uint64_t i = 0; i < n; i++) {
        text[2 * i] = digits[bytes[i] >> 4];
        text[2 * i + 1] = digits[bytes[i] & 15];
    }
    text[2 * n] = '\0';
    return text;
}

static int write_plugins(const char *path, const struct bl_checkpoint *c, struct bl_error *err)
{
    const char **table = calloc(2 * c->plugin_count + 1, sizeof(*table));
    int answer = -1;

    for (size_t i = 0; table && i < c->plugin_count; i++) {
        table[2 * i] = c->plugins[i].key;
        table[2 * i + 1] = to_hex(c->plugins[i].bytes, c->plugins[i].count);
        if (!table[2 * i + 1]) {
            bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for the state of %s", path,
                         c->plugins[i].key);
            goto done;
        }
    }
    if (!table)
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    else
        answer = bl_safetensors_write(path, NULL, 0, table, err);
done:
    for (size_t i = 0; table && i < c->plugin_count; i++)
        free((void *)(uintptr_t)table[2 * i + 1]);
    free(table);
    return answer;
}

int bl_checkpoint_state_sum(json_t *root, char hex[24])
{
    json_t *rest = json_copy(root);
    json_object_del(rest, "self");
    char *text = rest ? json_dumps(rest, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    if (text)
        snprintf(hex, 24, "%016" PRIx64, (uint64_t)XXH64(text, strlen(text), 0));
    json_decref(rest);
    free(text);
    return text ? 0 : -1;
}

static int write_state(const char *folder, const struct bl_checkpoint *c, struct bl_error *err)
{
    const struct bl_checkpoint_info *i = &c->info;
    char seed[32], plan[24], sum_text[24], self[24], *path = bl_format("%s/state.json", folder),
                                                     *text = NULL;
    json_t *files = json_object(), *plugins = json_array(), *loaded = json_object(), *root = NULL;
    int answer = -1;

    for (int f = 0; f < BL_FILE_COUNT; f++) {
        char *name = bl_format("%s/%s", folder, bl_checkpoint_files[f]), hex[24];
        uint64_t sum = 0;
        int read = name ? bl_checkpoint_checksum(name, &sum) : -1;
        free(name);
        if (read != 0) {
            bl_error_set(err, BL_EXIT_FAILED, "%s/%s: reading it back: %s", folder,
                         bl_checkpoint_files[f], strerror(errno));
            goto done;
        }
        snprintf(hex, sizeof(hex), "%016" PRIx64, sum);
        json_object_set_new(files, bl_checkpoint_files[f], json_string(hex));
    }
    for (size_t p = 0; p < c->plugin_count; p++)
        json_array_append_new(plugins, json_string(c->plugins[p].key));
    for (size_t p = 0; p < c->loaded_count; p++) {
        snprintf(sum_text, sizeof(sum_text), "%016" PRIx64, c->loaded[p].checksum);
        json_object_set_new(loaded, c->loaded[p].key, json_string(sum_text));
    }
    snprintf(plan, sizeof(plan), "%016" PRIx64, i->plan);
    /* As text: JSON readers may hold numbers as doubles, which end at 2^53. */
    snprintf(seed, sizeof(seed), "%" PRIu64, i->seed);
    root = json_pack("{s:i, s:I, s:I, s:I, s:s, s:I, s:{s:I, s:I}, s:s, s:O, s:O, s:O}", "format",
                     (int)BL_CHECKPOINT_FORMAT, "step", (json_int_t)i->step, "updates",
                     (json_int_t)i->updates, "sample", (json_int_t)i->sample, "seed", seed,
                     "attempt", (json_int_t)i->attempt, "layout", "ranks", (json_int_t)i->ranks,
                     "micro", (json_int_t)i->micro, "plan", plan, "loaded", loaded, "plugins",
                     plugins, "xxh64", files);
    if (root && bl_checkpoint_state_sum(root, self) == 0 &&
        json_object_set_new(root, "self", json_string(self)) == 0)
        text = json_dumps(root, JSON_INDENT(2));
    if (!path || !text || json_object_size(files) != BL_FILE_COUNT ||
        json_array_size(plugins) != c->plugin_count || json_object_size(loaded) != c->loaded_count)
        bl_error_set(err, BL_EXIT_FAILED, "%s/state.json: no memory", folder);
    else
        answer = bl_write_file(path, text, strlen(text), err);
done:
    json_decref(root);
    json_decref(files);
    json_decref(plugins);
    json_decref(loaded);
    free(text);
    free(path);
    return answer;
}

/* The new folder takes the place of one of the same step, which is put aside first: there is no
 * moment in which a reader finds half of each. */
static int publish(const char *directory, const char *temporary, const struct bl_checkpoint *c,
                   struct bl_error *err)
{
    char *path = bl_format("%s/%" PRIu64, directory, c->info.step);
    char *aside =
        bl_format("%s/.old-%" PRIu32 "-%" PRIu64, directory, c->info.attempt, c->info.step);
    int moved = 0, answer = -1;

    if (!path || !aside) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", directory);
        goto done;
    }
    if (remove_folder(aside) == 0 && rename(path, aside) == 0)
        moved = 1;
    else if (errno != ENOENT && access(path, F_OK) == 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: cannot be replaced: %s", path, strerror(errno));
        goto done;
    }
    if (rename(temporary, path) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
        if (moved && rename(aside, path) != 0)
            bl_error_set(err, BL_EXIT_FAILED, "%s: %s; the one before is in %s", path,
                         strerror(errno), aside);
        goto done;
    }
    if (sync_folder(directory) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", directory, strerror(errno));
        goto done;
    }
    if (moved)
        remove_folder(aside);
    answer = 0;
done:
    free(path);
    free(aside);
    return answer;
}

int bl_checkpoint_write(const char *directory, const struct bl_checkpoint *c, uint64_t keep,
                        struct bl_error *err)
{
    const struct bl_checkpoint_info *i = &c->info;
    char *temporary = bl_format("%s/.tmp-%" PRIu32 "-%" PRIu64, directory, i->attempt, i->step);
    char *paths[BL_FILE_COUNT] = {NULL};
    int answer = -1, made = 0;

    if (i->step > INT64_MAX || i->sample > INT64_MAX || i->micro > INT64_MAX) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: step, sample or micro is beyond 2^63", directory);
        goto done;
    }
    for (int f = 0; f < BL_FILE_COUNT; f++)
        paths[f] = temporary ? bl_format("%s/%s", temporary, bl_checkpoint_files[f]) : NULL;
    if (!paths[0] || !paths[1] || !paths[2]) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", directory);
        goto done;
    }
    if (bl_make_directories(directory, err) != 0)
        goto done;
    if (remove_folder(temporary) != 0 || mkdir(temporary, 0777) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", temporary, strerror(errno));
        goto done;
    }
    made = 1;
    if (bl_safetensors_write(paths[0], c->weights, c->weight_count, NULL, err) != 0 ||
        bl_safetensors_write(paths[1], c->states, c->state_count, NULL, err) != 0 ||
        write_plugins(paths[2], c, err) != 0 || write_state(temporary, c, err) != 0)
        goto done;
    if (sync_folder(temporary) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", temporary, strerror(errno));
        goto done;
    }
    if (publish(directory, temporary, c, err) != 0)
        goto done;
    made = 0;
    prune(directory, keep, i->attempt);
    answer = 0;
done:
    if (made)
        remove_folder(temporary);
    for (int f = 0; f < BL_FILE_COUNT; f++)
        free(paths[f]);
    free(temporary);
    return answer;
}
