/* Which checkpoints there are; publishing and removing whole ones. */
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "checkpoint/internal.h"

int bl_checkpoint_remove(const char *path)
{
    DIR *folder = opendir(path);
    struct dirent *entry;
    int cause = 0;

    if (!folder && errno == ENOTDIR)
        return unlink(path);
    if (!folder)
        return errno == ENOENT ? 0 : -1;
    while ((entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            unlinkat(dirfd(folder), entry->d_name, 0) != 0 && errno != ENOENT)
            cause = errno;
    closedir(folder);
    if (cause) {
        errno = cause;
        return -1;
    }
    return rmdir(path);
}

int bl_checkpoint_sync_folder(const char *path)
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

/* ---- steps ----------------------------------------------------------------------------------- */

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

/* -1: no memory. */
static int add_step(uint64_t **steps, size_t *count, size_t *capacity, uint64_t step)
{
    if (*count == *capacity) {
        uint64_t *larger = realloc(*steps, (2 * *capacity + 16) * sizeof(*larger));
        if (!larger)
            return -1;
        *steps = larger;
        *capacity = 2 * *capacity + 16;
    }
    (*steps)[(*count)++] = step;
    return 0;
}

/* Whether there is a state.json: it is written last, so the rest was there once. */
static int is_whole(DIR *folder, const char *name)
{
    char *state = bl_format("%s/state.json", name);
    int whole = state && faccessat(dirfd(folder), state, F_OK, 0) == 0;

    free(state);
    return whole;
}

static int list_steps(const char *directory, int whole, uint64_t **out, size_t *count,
                      struct bl_error *err)
{
    DIR *folder = opendir(directory);
    uint64_t *steps = NULL, step;
    size_t n = 0, capacity = 0;
    struct dirent *entry;
    int answer = 0;

    if (!folder && errno != ENOENT)
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "%s: %s", directory, strerror(errno));
    while (folder && answer == 0 && (entry = readdir(folder)))
        if (parse_step(entry->d_name, &step) == 0 && (!whole || is_whole(folder, entry->d_name)))
            answer = add_step(&steps, &n, &capacity, step);
    if (folder)
        closedir(folder);
    if (answer != 0) {
        free(steps);
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the list of checkpoints");
    }
    if (n > 0)
        qsort(steps, n, sizeof(*steps), by_step);
    *out = steps;
    *count = n;
    return 0;
}

int bl_checkpoint_steps(const char *directory, uint64_t **out, size_t *count, struct bl_error *err)
{
    return list_steps(directory, 0, out, count, err);
}

/* ---- leftovers -------------------------------------------------------------------------------
 *
 *     .tmp-<attempt>-<step>  being written
 *     .old-<attempt>-<step>  put aside for a new one of the same step
 *     .out-<attempt>-<step>  being removed
 */

enum { TMP, OLD, OUT, KINDS };

static const char *const kinds[KINDS] = {".tmp-", ".old-", ".out-"};

static char *leftover_path(const char *directory, int kind, uint32_t attempt, uint64_t step)
{
    return bl_format("%s/%s%" PRIu32 "-%" PRIu64, directory, kinds[kind], attempt, step);
}

/* The kind of a name, -1 for any other; attempt saturates. */
static int parse_leftover(const char *name, uint64_t *attempt, uint64_t *step)
{
    int kind = 0;

    while (kind < KINDS && strncmp(name, kinds[kind], 5) != 0)
        kind++;
    if (kind == KINDS)
        return -1;
    *attempt = 0;
    for (name += 5; isdigit((unsigned char)*name) && *attempt < UINT32_MAX; name++)
        *attempt = *attempt * 10 + (uint64_t)(*name - '0');
    if (*attempt == 0 || *name != '-')
        return -1;
    if (parse_step(name + 1, step) != 0)
        *step = UINT64_MAX;
    return kind;
}

void bl_checkpoint_recover(const char *directory)
{
    DIR *folder = opendir(directory);
    struct dirent *entry;
    uint64_t attempt, step;

    while (folder && (entry = readdir(folder))) {
        char *aside, *path;
        if (parse_leftover(entry->d_name, &attempt, &step) != OLD || step == UINT64_MAX)
            continue;
        aside = bl_format("%s/%s", directory, entry->d_name);
        path = bl_format("%s/%" PRIu64, directory, step);
        if (aside && path && access(path, F_OK) != 0 && errno == ENOENT)
            (void)rename(aside, path);
        free(aside);
        free(path);
    }
    if (folder)
        closedir(folder);
}

/* A folder is renamed first: a half removed one never looks complete, and a later attempt removes
 * the rest. */
static void remove_step(const char *directory, uint64_t step, uint32_t attempt)
{
    char *path = bl_format("%s/%" PRIu64, directory, step);
    char *aside = leftover_path(directory, OUT, attempt, step);

    if (path && aside && bl_checkpoint_remove(aside) == 0 && rename(path, aside) == 0)
        bl_checkpoint_remove(aside);
    free(path);
    free(aside);
}

/* What cannot be removed stays: the new checkpoint itself is safe. */
void bl_checkpoint_prune(const char *directory, uint64_t keep, uint64_t keep_every, uint64_t newest,
                         uint32_t attempt)
{
    uint64_t *steps = NULL, of, step;
    size_t count = 0;
    struct dirent *entry;
    DIR *folder;

    if (keep > 0 && list_steps(directory, 1, &steps, &count, NULL) == 0) {
        while (count > 0 && steps[count - 1] > newest)
            count--;
        for (size_t i = 0; i + keep < count; i++)
            if (keep_every == 0 || steps[i] % keep_every != 0)
                remove_step(directory, steps[i], attempt);
        free(steps);
    }
    folder = opendir(directory);
    while (folder && (entry = readdir(folder))) {
        char *path;
        if (parse_leftover(entry->d_name, &of, &step) < 0 || of > attempt)
            continue;
        path = bl_format("%s/%s", directory, entry->d_name);
        if (path)
            bl_checkpoint_remove(path);
        free(path);
    }
    if (folder)
        closedir(folder);
}

/* ---- publishing ------------------------------------------------------------------------------ */

/* There is no moment in which a reader finds half of each; one in which it finds none is repaired
 * by bl_checkpoint_recover. */
int bl_checkpoint_publish(const char *directory, const char *temporary, uint32_t attempt,
                          uint64_t step, struct bl_error *err)
{
    char *path = bl_format("%s/%" PRIu64, directory, step);
    char *aside = leftover_path(directory, OLD, attempt, step);
    int moved = 0, answer = -1;

    if (!path || !aside) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", directory);
        goto done;
    }
    if (bl_checkpoint_remove(aside) == 0 && rename(path, aside) == 0)
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
    if (bl_checkpoint_sync_folder(directory) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", directory, strerror(errno));
        goto done;
    }
    if (moved)
        bl_checkpoint_remove(aside);
    answer = 0;
done:
    free(path);
    free(aside);
    return answer;
}

/* 0, or -1 with errno. */
static int copy_file(int from_folder, int to_folder, const char *name)
{
    enum { BYTES = 1 << 20 };
    char *buffer = malloc(BYTES);
    int from = openat(from_folder, name, O_RDONLY | O_CLOEXEC), to = -1, answer = -1, cause;
    ssize_t got = -1;

    if (from >= 0)
        to = openat(to_folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    while (buffer && to >= 0 && (got = read(from, buffer, BYTES)) != 0) {
        ssize_t done = 0, wrote = 0;
        if (got < 0 && errno == EINTR)
            continue;
        while (done < got && wrote >= 0) {
            wrote = write(to, buffer + done, (size_t)(got - done));
            if (wrote < 0 && errno == EINTR)
                wrote = 0;
            done += wrote > 0 ? wrote : 0;
        }
        if (got < 0 || done < got) {
            got = -1;
            break;
        }
    }
    if (got == 0 && fsync(to) == 0)
        answer = 0;
    cause = errno;
    if (to >= 0)
        close(to);
    if (from >= 0)
        close(from);
    free(buffer);
    errno = cause;
    return answer;
}

/* A second name, or where the file system has no such thing, a second file. */
static int link_file(int from, int to, const char *name)
{
    if (linkat(from, name, to, name, 0) == 0)
        return 0;
    return errno == EPERM || errno == EOPNOTSUPP || errno == ENOSYS || errno == EMLINK
               ? copy_file(from, to, name)
               : -1;
}

static int link_files(const char *from, const char *to, struct bl_error *err)
{
    DIR *folder = opendir(from);
    struct dirent *entry;
    int target = open(to, O_RDONLY | O_DIRECTORY | O_CLOEXEC), answer = 0;

    if (!folder || target < 0)
        answer = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", folder ? to : from, strerror(errno));
    while (answer == 0 && (entry = readdir(folder)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            link_file(dirfd(folder), target, entry->d_name) != 0)
            answer = bl_error_set(err, BL_EXIT_FAILED, "%s/%s: not in %s too: %s", from,
                                  entry->d_name, to, strerror(errno));
    if (answer == 0 && bl_checkpoint_sync_folder(to) != 0)
        answer = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", to, strerror(errno));
    if (folder)
        closedir(folder);
    if (target >= 0)
        close(target);
    return answer;
}

int bl_checkpoint_link(const char *from, const char *to, uint32_t attempt, uint64_t step,
                       struct bl_error *err)
{
    char *source = bl_format("%s/%" PRIu64, from, step);
    char *temporary = leftover_path(to, TMP, attempt, step);
    int answer = -1, made = 0;

    if (!source || !temporary) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", to);
        goto done;
    }
    if (bl_make_directories(to, err) != 0)
        goto done;
    if (bl_checkpoint_remove(temporary) != 0 || mkdir(temporary, 0777) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", temporary, strerror(errno));
        goto done;
    }
    made = 1;
    if (link_files(source, temporary, err) != 0 ||
        bl_checkpoint_publish(to, temporary, attempt, step, err) != 0)
        goto done;
    made = 0;
    answer = 0;
done:
    if (made)
        bl_checkpoint_remove(temporary);
    free(source);
    free(temporary);
    return answer;
}
