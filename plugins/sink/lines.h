/* A text file of rows in the run's directory, for sinks: made of whole lines whatever happens.
 *
 * A row is one write(), so a killed run leaves one cut line at most; the next start cuts it off,
 * and so does a failed write. Only rank 0 of a run with a directory has a file.
 */
#ifndef BL_SINK_LINES_H
#define BL_SINK_LINES_H

#include <ballast/sink.h>

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct lines {
    const struct bl_host *host;
    char *path;
    int fd;     /* -1: this instance writes nothing */
    char *text; /* the row being made */
    size_t length, capacity;
    int no_memory; /* some of the row is missing */
    locale_t c;    /* numbers have a '.' whatever the program's locale is */
};

static inline void lines_add(struct lines *l, const char *bytes, size_t n)
{
    if (l->no_memory)
        return;
    if (l->length + n > l->capacity) {
        size_t capacity = 2 * (l->length + n) + 1024;
        char *text = realloc(l->text, capacity);
        if (!text) {
            l->no_memory = 1;
            return;
        }
        l->text = text;
        l->capacity = capacity;
    }
    memcpy(l->text + l->length, bytes, n);
    l->length += n;
}

static inline void lines_text(struct lines *l, const char *text)
{
    lines_add(l, text, strlen(text));
}

/* The shortest of 15, 16, 17 digits that reads back to the same double; value is finite. %g drops
 * zeros at the end, so 15 are as short as it gets unless the number is subnormal. */
static inline void lines_number(struct lines *l, double value)
{
    char text[40];

    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    lines_text(l, text);
}

/* Cuts off what follows the last newline. */
static inline int lines_repair(int fd, off_t size, off_t *end)
{
    char piece[65536];
    off_t at = size;

    while (at > 0) {
        size_t n = at < (off_t)sizeof(piece) ? (size_t)at : sizeof(piece);
        ssize_t got = pread(fd, piece, n, at - (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)n) {
            if (got >= 0)
                errno = EIO;
            return -1;
        }
        for (size_t i = n; i > 0; i--) {
            if (piece[i - 1] == '\n') {
                at = at - (off_t)n + (off_t)i;
                goto found;
            }
        }
        at -= (off_t)n;
    }
found:
    *end = at;
    return at == size ? 0 : ftruncate(fd, at);
}

static inline int32_t lines_open_file(struct lines *l, const char *name, struct bl_error *err)
{
    const struct bl_host *host = l->host;
    const char *directory = host->info->directory;
    size_t size = strlen(directory) + 1 + strlen(name) + 1;
    struct stat st;
    off_t end;

    l->path = host->allocate(host, size);
    if (!l->path)
        return host->fail(host, err, "no memory");
    snprintf(l->path, size, "%s/%s", directory, name);
    /* O_NONBLOCK: opening a FIFO must not wait for its other side. */
    l->fd = open(l->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (l->fd < 0 || fstat(l->fd, &st) != 0)
        return host->fail(host, err, "%s: %s", l->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return host->fail(host, err, "%s: not a regular file: move it away", l->path);
    if (lines_repair(l->fd, st.st_size, &end) != 0)
        return host->fail(host, err, "%s: cutting off an incomplete last line: %s", l->path,
                          strerror(errno));
    if (end != st.st_size)
        host->log(host, BL_LOG_WARNING, "%s: cut off an incomplete last line of %lld bytes",
                  l->path, (long long)(st.st_size - end));
    return 0;
}

static inline void lines_close(struct lines *l)
{
    if (l->fd >= 0)
        close(l->fd);
    if (l->c)
        freelocale(l->c);
    free(l->text);
    l->host->release(l->host, l->path);
}

/* Opens `name` in the run's directory and repairs its end. lines_close is due after a failure too.
 */
static inline int32_t lines_open(struct lines *l, const struct bl_host *host, const char *name,
                                 struct bl_error *err)
{
    l->host = host;
    l->fd = -1;
    l->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!l->c)
        return host->fail(host, err, "no C locale: %s", strerror(errno));
    if (host->rank != 0 || !host->info->directory || host->info->directory[0] == '\0')
        return 0;
    return lines_open_file(l, name, err);
}

/* Appends what was made of a record, one whole line or nothing. */
static inline int32_t lines_write(struct lines *l, uint64_t step, struct bl_error *err)
{
    const struct bl_host *host = l->host;
    ssize_t wrote;
    int cause;

    if (l->no_memory)
        return host->fail(host, err, "no memory for the row of step %llu",
                          (unsigned long long)step);
    do
        wrote = write(l->fd, l->text, l->length);
    while (wrote < 0 && errno == EINTR);
    if (wrote == (ssize_t)l->length)
        return 0;
    cause = wrote < 0 ? errno : ENOSPC;
    /* The part that was written must not run into the next row. */
    if (wrote > 0) {
        off_t at = lseek(l->fd, 0, SEEK_CUR);
        if (at < wrote || ftruncate(l->fd, at - wrote) != 0)
            cause = errno;
    }
    return host->fail(host, err, "%s: step %llu not written: %s", l->path, (unsigned long long)step,
                      strerror(cause));
}

static inline int32_t lines_finish(struct lines *l, struct bl_error *err)
{
    if (l->fd >= 0 && fsync(l->fd) != 0)
        return l->host->fail(l->host, err, "%s: %s", l->path, strerror(errno));
    return 0;
}

#endif
