#include "shards.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Descriptors kept open; a process may have 1024 by default and others need some. */
enum { KEPT_OPEN = 256 };

int shards_pread(int fd, void *buffer, uint64_t n, uint64_t offset)
{
    char *to = buffer;

    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = 0;
        if (got <= 0)
            return -1;
        to += got;
        n -= (uint64_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

/* Opens a regular file without blocking on a FIFO. */
static int open_regular(const struct bl_host *host, const char *path, struct stat *st,
                        struct bl_error *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);

    if (fd < 0)
        return host->fail(host, err, "%s: %s", path, strerror(errno));
    if (fstat(fd, st) != 0) {
        host->fail(host, err, "%s: %s", path, strerror(errno));
        close(fd);
        return -1;
    }
    if (!S_ISREG(st->st_mode)) {
        host->fail(host, err, "%s: %s, a regular file is needed", path,
                   S_ISDIR(st->st_mode) ? "is a directory" : "not a file");
        close(fd);
        return -1;
    }
    return fd;
}

static int32_t open_one(struct shards *s, struct shard *f, const char *path, int keep,
                        shard_check_f *check, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    size_t length = strlen(path) + 1;
    struct stat st;
    int fd = open_regular(host, path, &st, err);

    if (fd < 0)
        return -1;
    f->fd = fd; /* closed by shards_close from here on */
    f->path = host->allocate(host, length);
    if (!f->path)
        return host->fail(host, err, "no memory for the list of files");
    memcpy(f->path, path, length);
    f->size = (uint64_t)st.st_size;
    f->device = (uint64_t)st.st_dev;
    f->inode = (uint64_t)st.st_ino;
    f->modified = st.st_mtim;
    if (check(host, path, fd, f->size, &f->items, err) != 0)
        return -1;
    f->first = s->sequences;
    if (f->items > 0)
        s->sequences += (f->items - 1) / host->info->context;
    if (!keep) {
        close(fd);
        f->fd = -1;
    }
    return 0;
}

int32_t shards_open(struct shards *s, const struct bl_source_files *files, const char *what,
                    shard_check_f *check, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    const char *split = files->validation ? "data.validation" : "data.train";

    if (files->count == 0)
        return host->fail(host, err, "%s is empty: name %s there, for example [ \"data/*\" ]",
                          split, what);
    if (host->info->context == 0)
        return host->fail(host, err, "model.context is 0");
    s->sequences = 0;
    s->count = 0;
    s->list = host->allocate(host, files->count * sizeof(*s->list));
    if (!s->list)
        return host->fail(host, err, "no memory for a list of %llu files",
                          (unsigned long long)files->count);
    for (uint64_t i = 0; i < files->count; i++) {
        s->list[i].fd = -1;
        s->count = i + 1;
        if (open_one(s, &s->list[i], files->paths[i], i < KEPT_OPEN, check, err) != 0) {
            shards_close(s);
            return -1;
        }
    }
    if (s->sequences == 0) {
        host->fail(host, err,
                   "%s: no file has the %llu tokens that a sequence needs (model.context + 1); "
                   "first file: %s with %llu",
                   split, (unsigned long long)host->info->context + 1, s->list[0].path,
                   (unsigned long long)s->list[0].items);
        shards_close(s);
        return -1;
    }
    return 0;
}

void shards_close(struct shards *s)
{
    if (!s || !s->list)
        return;
    for (uint64_t i = 0; i < s->count; i++) {
        if (s->list[i].fd >= 0)
            close(s->list[i].fd);
        s->host->release(s->host, s->list[i].path);
    }
    s->host->release(s->host, s->list);
    s->list = NULL;
    s->count = 0;
    s->sequences = 0;
}

/* The file that holds sequence `index`. Files without a sequence share `first` with their
 * successor, so the last one with first <= index is wanted. */
static const struct shard *find(const struct shards *s, uint64_t index)
{
    uint64_t low = 0, high = s->count;

    while (high - low > 1) {
        uint64_t middle = low + (high - low) / 2;
        if (s->list[middle].first <= index)
            low = middle;
        else
            high = middle;
    }
    return &s->list[low];
}

static int32_t check_unchanged(const struct bl_host *host, const struct shard *f,
                               const struct stat *st, struct bl_error *err)
{
    if ((uint64_t)st->st_size != f->size)
        return host->fail(host, err, "%s: changed while in use: %llu bytes now, %llu at the start",
                          f->path, (unsigned long long)st->st_size, (unsigned long long)f->size);
    if ((uint64_t)st->st_dev != f->device || (uint64_t)st->st_ino != f->inode ||
        st->st_mtim.tv_sec != f->modified.tv_sec || st->st_mtim.tv_nsec != f->modified.tv_nsec)
        return host->fail(host, err,
                          "%s: changed while in use: written or replaced since the start", f->path);
    return 0;
}

int32_t shards_read(const struct shards *s, uint64_t index, void *raw, const struct shard **from,
                    uint64_t *offset, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    uint64_t context = host->info->context;
    const struct shard *f;
    uint64_t at;
    struct stat st;
    int fd, answer = -1;

    if (index >= s->sequences)
        return host->fail(host, err, "sequence %llu asked for, there are %llu",
                          (unsigned long long)index, (unsigned long long)s->sequences);
    f = find(s, index);
    at = s->header_bytes + (index - f->first) * context * s->item_bytes;
    fd = f->fd;
    if (fd >= 0) {
        if (fstat(fd, &st) != 0)
            return host->fail(host, err, "%s: %s", f->path, strerror(errno));
    } else {
        fd = open_regular(host, f->path, &st, err);
        if (fd < 0)
            return -1;
    }
    if (check_unchanged(host, f, &st, err) != 0)
        goto done;
    if (shards_pread(fd, raw, (context + 1) * s->item_bytes, at) != 0) {
        host->fail(host, err, "%s: reading at byte %llu: %s", f->path, (unsigned long long)at,
                   errno ? strerror(errno) : "the file ends before");
        goto done;
    }
    *from = f;
    *offset = at;
    answer = 0;
done:
    if (f->fd < 0)
        close(fd);
    return answer;
}
