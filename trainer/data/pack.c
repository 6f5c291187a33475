#include "data/data.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"

enum { HEADER_BYTES = 1024, MAGIC = 20240520, VERSION = 1, PIECE = 1 << 16 };

/* One shard being written: beside its final name until it is complete. */
struct shard {
    const char *path;
    char *temporary;
    int fd;
    int created;
    uint64_t tokens;
    size_t used; /* of buffer */
    unsigned char buffer[2 * PIECE];
};

struct packer {
    struct shard *train, *validation; /* validation is NULL without a split */
    struct shard *to;                 /* where the next byte goes */
    uint64_t seen;                    /* bytes so far, joining newlines included */
    uint64_t cut; /* the first line end at or after this byte ends the training part */
};

static int little32(int fd, uint64_t at, uint32_t value)
{
    unsigned char b[4] = {(unsigned char)value, (unsigned char)(value >> 8),
                          (unsigned char)(value >> 16), (unsigned char)(value >> 24)};

    return pwrite(fd, b, 4, (off_t)at) == 4 ? 0 : -1;
}

static int failed(const struct shard *s, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_DATA, "%s: not written: %s", s->path, strerror(errno));
}

static int open_shard(struct shard *s, const char *path, struct bl_error *err)
{
    static const unsigned char header[HEADER_BYTES];
    struct stat st;

    s->path = path;
    s->fd = -1;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
        return bl_error_set(err, BL_EXIT_DATA, "%s: is there and no regular file", path);
    s->temporary = bl_format("%s.tmp", path);
    if (!s->temporary)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
    s->fd = open(s->temporary, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return failed(s, err);
    s->created = 1;
    memcpy(s->buffer, header, HEADER_BYTES);
    s->used = HEADER_BYTES;
    return 0;
}

static int flush(struct shard *s, struct bl_error *err)
{
    for (size_t at = 0; at < s->used;) {
        ssize_t wrote = write(s->fd, s->buffer + at, s->used - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0) {
            if (wrote == 0)
                errno = ENOSPC;
            return failed(s, err);
        }
        at += (size_t)wrote;
    }
    s->used = 0;
    return 0;
}

/* The header is filled in last: a shard without it is refused by every reader. */
static int finish_shard(struct shard *s, struct bl_error *err)
{
    if (flush(s, err) != 0)
        return -1;
    if (little32(s->fd, 0, MAGIC) != 0 || little32(s->fd, 4, VERSION) != 0 ||
        little32(s->fd, 8, (uint32_t)s->tokens) != 0 || fsync(s->fd) != 0)
        return failed(s, err);
    if (close(s->fd) != 0) {
        s->fd = -1;
        return failed(s, err);
    }
    s->fd = -1;
    return 0;
}

static int publish(struct shard *s, struct bl_error *err)
{
    const char *slash = strrchr(s->path, '/');
    char *folder;
    int fd;

    if (rename(s->temporary, s->path) != 0)
        return failed(s, err);
    s->created = 0;
    folder = slash ? strndup(s->path, (size_t)(slash - s->path) + 1) : strdup(".");
    fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    free(folder);
    if (fd >= 0) { /* file systems without this have no more to offer */
        fsync(fd);
        close(fd);
    }
    return 0;
}

static void close_shard(struct shard *s)
{
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    if (s->created)
        unlink(s->temporary);
    free(s->temporary);
    free(s);
}

static int put(struct packer *p, unsigned char byte, struct bl_error *err)
{
    struct shard *s = p->to;

    if (s->used + 2 > sizeof(s->buffer) && flush(s, err) != 0)
        return -1;
    s->buffer[s->used++] = byte;
    s->buffer[s->used++] = 0;
    s->tokens++;
    p->seen++;
    if (byte == '\n' && p->seen >= p->cut && p->validation)
        p->to = p->validation;
    return 0;
}

/* Opens an input and checks what can be known before reading; never waits (FIFOs). */
static int open_input(const char *path, struct stat *st, struct bl_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return bl_error_set(err, BL_EXIT_DATA, "%s: %s", path, strerror(errno));
    if (fstat(fd, st) != 0)
        bl_error_set(err, BL_EXIT_DATA, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(st->st_mode))
        bl_error_set(err, BL_EXIT_DATA, "%s: is a directory; name the files in it", path);
    else if (!S_ISREG(st->st_mode))
        bl_error_set(err, BL_EXIT_DATA, "%s: not a regular file", path);
    else if (st->st_size == 0)
        bl_error_set(err, BL_EXIT_DATA, "%s: the file is empty", path);
    else
        return fd;
    close(fd);
    return -1;
}

/* All inputs are opened once before anything is written, so that most errors cost no time. *total
 * is an upper bound: a newline is added only where one is missing. */
static int check_inputs(const char *const *inputs, size_t count, const char *const outputs[2],
                        uint64_t *total, struct bl_error *err)
{
    *total = 0;
    for (size_t i = 0; i < count; i++) {
        struct stat in, out;
        char last = '\n';
        int fd = open_input(inputs[i], &in, err);
        ssize_t got;
        if (fd < 0)
            return -1;
        do
            got = pread(fd, &last, 1, in.st_size - 1);
        while (got < 0 && errno == EINTR);
        close(fd);
        if (got != 1)
            return bl_error_set(err, BL_EXIT_DATA, "%s: reading it: %s", inputs[i],
                                got < 0 ? strerror(errno) : "the file shrank");
        for (int k = 0; k < 2; k++)
            if (outputs[k] && stat(outputs[k], &out) == 0 && in.st_dev == out.st_dev &&
                in.st_ino == out.st_ino)
                return bl_error_set(err, BL_EXIT_DATA, "%s: is an input and an output", inputs[i]);
        *total += (uint64_t)in.st_size + (i + 1 < count && last != '\n');
        if (*total > INT32_MAX)
            return bl_error_set(err, BL_EXIT_DATA,
                                "%s: with this file the shard has more than %d tokens, which its "
                                "header cannot count; pack fewer files at a time",
                                inputs[i], INT32_MAX);
    }
    return 0;
}

static int pack_file(struct packer *p, const char *path, int join, struct bl_error *err)
{
    unsigned char *piece = malloc(PIECE), last = '\n';
    uint64_t bytes = 0;
    struct stat st;
    ssize_t got;
    int fd = open_input(path, &st, err), answer = -1;

    if (fd < 0)
        goto done;
    if (!piece) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no memory", path);
        goto done;
    }
    /* One byte more than there should be is enough to notice a file that grows. */
    while (bytes <= (uint64_t)st.st_size && (got = read(fd, piece, PIECE)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            bl_error_set(err, BL_EXIT_DATA, "%s: reading at byte %llu: %s", path,
                         (unsigned long long)bytes, strerror(errno));
            goto done;
        }
        bytes += (uint64_t)got;
        if (bytes > (uint64_t)st.st_size)
            break;
        for (ssize_t i = 0; i < got; i++)
            if (put(p, piece[i], err) != 0)
                goto done;
        last = piece[got - 1];
    }
    if (bytes != (uint64_t)st.st_size) {
        bl_error_set(err, BL_EXIT_DATA, "%s: changed while it was read", path);
        goto done;
    }
    answer = join && last != '\n' ? put(p, '\n', err) : 0;
done:
    if (fd >= 0)
        close(fd);
    free(piece);
    return answer;
}

int bl_data_pack(const char *const *inputs, size_t count, const char *train_path,
                 const char *validation_path, double validation_share, struct bl_error *err)
{
    const int split = validation_share > 0.0;
    const char *const outputs[2] = {train_path, split ? validation_path : NULL};
    struct packer p = {NULL, NULL, NULL, 0, 0};
    uint64_t total;
    int answer = -1;

    if (!(validation_share >= 0.0 && validation_share <= 0.5))
        return bl_error_set(err, BL_EXIT_USAGE, "validation share %g: not in 0 ... 0.5",
                            validation_share);
    if (count == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "no input file");
    if (split && (!validation_path || strcmp(train_path, validation_path) == 0))
        return bl_error_set(err, BL_EXIT_USAGE, "%s: both parts would go there", train_path);
    if (check_inputs(inputs, count, outputs, &total, err) != 0)
        return -1;
    p.train = calloc(1, sizeof(*p.train));
    p.validation = split ? calloc(1, sizeof(*p.validation)) : NULL;
    if (!p.train || (split && !p.validation)) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
        free(p.train);
        free(p.validation);
        return -1;
    }
    p.train->fd = -1;
    if (split)
        p.validation->fd = -1;
    if (open_shard(p.train, train_path, err) != 0 ||
        (split && open_shard(p.validation, validation_path, err) != 0))
        goto done;
    p.to = p.train;
    p.cut = total - (uint64_t)((double)total * validation_share);
    for (size_t i = 0; i < count; i++)
        if (pack_file(&p, inputs[i], i + 1 < count, err) != 0)
            goto done;
    if (p.seen != total) {
        bl_error_set(err, BL_EXIT_DATA, "an input changed while it was read");
        goto done;
    }
    if (split && p.validation->tokens == 0) {
        bl_error_set(err, BL_EXIT_DATA,
                     "the last %g of the input has no line to cut off as validation part; use a "
                     "larger share, or 0 for none",
                     validation_share);
        goto done;
    }
    if (finish_shard(p.train, err) != 0 || (split && finish_shard(p.validation, err) != 0) ||
        publish(p.train, err) != 0)
        goto done;
    if (split && publish(p.validation, err) != 0) {
        unlink(train_path); /* half a pair would look like a whole one */
        goto done;
    }
    answer = 0;
done:
    close_shard(p.train);
    close_shard(p.validation);
    return answer;
}
