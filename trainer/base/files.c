#include "base/strings.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

static int make_one(const char *path, struct bl_error *err)
{
    struct stat st;
    if (mkdir(path, 0777) == 0)
        return 0;
    int code = errno;
    if (code == EEXIST) {
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            return 0;
        return bl_error_set(err, BL_EXIT_FAILED, "cannot make the folder %s: a file has that name",
                            path);
    }
    return bl_error_set(err, BL_EXIT_FAILED, "cannot make the folder %s: %s", path, strerror(code));
}

int bl_make_directories(const char *path, struct bl_error *err)
{
    if (!*path)
        return bl_error_set(err, BL_EXIT_FAILED, "cannot make a folder without a name");
    char *copy = strdup(path);
    if (!copy)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
    int rc = 0;
    for (char *p = copy + 1; rc == 0 && *p; p++) {
        if (*p == '/' && p[-1] != '/') {
            *p = '\0';
            rc = make_one(copy, err);
            *p = '/';
        }
    }
    if (rc == 0)
        rc = make_one(copy, err);
    free(copy);
    return rc;
}

int bl_write_all(int fd, const void *bytes, size_t n)
{
    const char *from = bytes;
    while (n > 0) {
        ssize_t done = write(fd, from, n > (size_t)1 << 30 ? (size_t)1 << 30 : n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            if (done == 0)
                errno = ENOSPC;
            return -1;
        }
        from += done;
        n -= (size_t)done;
    }
    return 0;
}

/* The rename itself is durable only once the folder is. */
static int sync_folder(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return -1;
    char *slash = strrchr(copy, '/');
    if (slash == copy)
        slash[1] = '\0';
    else if (slash)
        *slash = '\0';
    int fd = open(slash ? copy : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    if (fd < 0)
        return -1;
    int rc = fsync(fd);
    /* Some network file systems have no fsync for folders. */
    if (rc != 0 && (errno == EINVAL || errno == ENOTSUP))
        rc = 0;
    int code = errno;
    close(fd);
    errno = code;
    return rc;
}

int bl_check_target(const char *path, struct bl_error *err)
{
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISREG(st.st_mode)) /* what else is wrong, writing finds */
        return 0;
    return bl_error_set(err, BL_EXIT_FAILED,
                        "cannot write %s: it is %s, which would be replaced; name a regular file",
                        path,
                        S_ISDIR(st.st_mode)   ? "a folder"
                        : S_ISLNK(st.st_mode) ? "a symbolic link"
                                              : "a device or pipe");
}

int bl_write_file(const char *path, const void *bytes, size_t n, struct bl_error *err)
{
    struct stat st;
    /* A link is replaced here: in a folder of our own it is somebody's way of keeping a copy. */
    if (lstat(path, &st) == 0 && !S_ISLNK(st.st_mode) && bl_check_target(path, err) != 0)
        return -1;
    char *temporary = NULL;
    int fd = -1, code;
    for (unsigned attempt = 0; fd < 0 && attempt < 1000; attempt++) {
        free(temporary);
        temporary = bl_format("%s.tmp-%ld-%u", path, (long)getpid(), attempt);
        if (!temporary)
            return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
        fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        bl_error_set(err, BL_EXIT_FAILED, "cannot write %s: %s", path, strerror(errno));
        free(temporary);
        return -1;
    }
    if (bl_write_all(fd, bytes, n) != 0 || fsync(fd) != 0) {
        code = errno;
        close(fd);
        goto fail;
    }
    if (close(fd) != 0 || rename(temporary, path) != 0) {
        code = errno;
        goto fail;
    }
    free(temporary);
    if (sync_folder(path) != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: written, but its folder cannot be synced: %s",
                            path, strerror(errno));
    return 0;

fail:
    unlink(temporary);
    free(temporary);
    return bl_error_set(err, BL_EXIT_FAILED, "cannot write %s: %s", path, strerror(code));
}

int bl_read_file(const char *path, size_t limit, char **out, size_t *n, struct bl_error *err)
{
    struct stat st;
    char *text = NULL;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
        goto fail;
    }
    if (!S_ISREG(st.st_mode)) {
        bl_error_set(err, BL_EXIT_FAILED, "cannot read %s: it is %s, not a regular file", path,
                     S_ISDIR(st.st_mode) ? "a folder" : "a device or pipe");
        goto fail;
    }

    size_t used = 0, capacity = 0;
    if (st.st_size > 0 && (uintmax_t)st.st_size <= limit)
        capacity = (size_t)st.st_size + 1;
    for (;;) {
        /* The size may be a lie (/proc) or change while we read: the limit is what counts. */
        if (!text || used + 1 >= capacity) {
            if (text)
                capacity = capacity * 2;
            if (capacity < 4096)
                capacity = 4096;
            char *bigger = realloc(text, capacity);
            if (!bigger) {
                bl_error_set(err, BL_EXIT_FAILED, "cannot read %s: out of memory", path);
                goto fail;
            }
            text = bigger;
        }
        ssize_t got = read(fd, text + used, capacity - used - 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            bl_error_set(err, BL_EXIT_FAILED, "cannot read %s: %s", path, strerror(errno));
            goto fail;
        }
        if (got == 0)
            break;
        used += (size_t)got;
        if (used > limit) {
            bl_error_set(err, BL_EXIT_FAILED, "cannot read %s: larger than %zu bytes", path, limit);
            goto fail;
        }
    }
    close(fd);
    text[used] = '\0';
    *out = text;
    *n = used;
    return 0;

fail:
    free(text);
    close(fd);
    return -1;
}

int bl_checksum_file(const char *path, uint64_t *out)
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
