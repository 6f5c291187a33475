#include "shards.h"

#include <errno.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

/* Descriptors kept open; a process may have 1024 by default and others need some. */
enum { KEPT_OPEN = 256 };

/* One width and one vocabulary for all files; *f was looked at, the ones before it agree. */
static int32_t check_alike(struct shards *s, const struct shard *f,
                           const struct bl_shard_layout *layout, struct bl_error *err)
{
    const struct bl_host *host = s->host;

    if (s->width && s->width != layout->width)
        return host->fail(
            host, err,
            "%s: ids of %u bits, those of %s have %u; the files of one split have one "
            "width (data.format says how to read files without a header)",
            f->path, 8 * layout->width, s->list[0].path, 8 * (unsigned)s->width);
    s->width = layout->width;
    if (s->vocab && layout->vocab && s->vocab != layout->vocab)
        return host->fail(host, err,
                          "%s: its header says a vocabulary of %llu, a file before it says %llu: "
                          "they were made with different tokenizers",
                          f->path, (unsigned long long)layout->vocab, (unsigned long long)s->vocab);
    if (layout->vocab)
        s->vocab = layout->vocab;
    return 0;
}

static int32_t open_one(struct shards *s, struct shard *f, const char *path, int keep,
                        enum bl_shard_format wanted, shard_look_f *look, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    size_t length = strlen(path) + 1;
    struct bl_shard_layout layout;
    char why[BL_SHARD_WHY];
    struct stat st;
    int fd = bl_shard_open(path, &st, why);

    if (fd < 0)
        return host->fail(host, err, "%s: %s", path, why);
    f->fd = fd; /* closed by shards_close from here on */
    f->path = host->allocate(host, length);
    if (!f->path)
        return host->fail(host, err, "no memory for the list of files");
    memcpy(f->path, path, length);
    f->size = (uint64_t)st.st_size;
    f->device = (uint64_t)st.st_dev;
    f->inode = (uint64_t)st.st_ino;
    f->modified = st.st_mtim;
    if (look(fd, f->size, wanted, &layout, why) != 0)
        return host->fail(host, err, "%s: %s", path, why);
    if (check_alike(s, f, &layout, err) != 0)
        return -1;
    f->start = layout.start;
    f->items = layout.items;
    f->first = s->sequences;
    if (f->items > 0)
        s->sequences += (f->items - 1) / host->info->context;
    if (!keep) {
        close(fd);
        f->fd = -1;
    }
    return 0;
}

/* No sequence at all is an error; a short file among others (a data set's last shard, often) is
 * only told. */
static int32_t check_lengths(const struct shards *s, const char *split, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    uint64_t needed = host->info->context + 1, unused = 0;
    const struct shard *first = NULL;

    for (uint64_t i = 0; i < s->count; i++) {
        if (s->list[i].items < needed) {
            first = first ? first : &s->list[i];
            unused++;
        }
    }
    if (s->sequences == 0)
        return host->fail(host, err,
                          "%s: no file has the %llu tokens that a sequence needs (model.context + "
                          "1); first file: %s with %llu",
                          split, (unsigned long long)needed, s->list[0].path,
                          (unsigned long long)s->list[0].items);
    if (first)
        host->log(host, BL_LOG_WARNING,
                  "%s: %llu of %llu files are not used, they have fewer than the %llu tokens of a "
                  "sequence (model.context + 1); first: %s with %llu",
                  split, (unsigned long long)unused, (unsigned long long)s->count,
                  (unsigned long long)needed, first->path, (unsigned long long)first->items);
    return 0;
}

int32_t shards_open(struct shards *s, const struct bl_source_files *files, const char *what,
                    enum bl_shard_format wanted, shard_look_f *look, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    const char *split = files->validation ? "data.validation" : "data.train";

    if (files->count == 0)
        return host->fail(host, err, "%s is empty: name %s there, for example [ \"data/*\" ]",
                          split, what);
    if (host->info->context == 0)
        return host->fail(host, err, "model.context is 0");
    s->width = s->vocab = s->sequences = s->count = 0;
    s->list = host->allocate(host, files->count * sizeof(*s->list));
    if (!s->list)
        return host->fail(host, err, "no memory for a list of %llu files",
                          (unsigned long long)files->count);
    for (uint64_t i = 0; i < files->count; i++) {
        s->list[i].fd = -1;
        s->count = i + 1;
        if (open_one(s, &s->list[i], files->paths[i], i < KEPT_OPEN, wanted, look, err) != 0)
            goto fail;
    }
    if (check_lengths(s, split, err) != 0)
        goto fail;
    return 0;
fail:
    shards_close(s);
    return -1;
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
    if (st->st_nlink == 0) /* kept open: its old content is still there, but a resume fails */
        return host->fail(host, err,
                          "%s: changed while in use: removed or replaced since the start", f->path);
    if ((uint64_t)st->st_dev != f->device || (uint64_t)st->st_ino != f->inode ||
        st->st_mtim.tv_sec != f->modified.tv_sec || st->st_mtim.tv_nsec != f->modified.tv_nsec)
        return host->fail(host, err,
                          "%s: changed while in use: written or replaced since the start", f->path);
    return 0;
}

/* A sequence in one call; what a signal or a file system cut short is read again. */
static int read_items(int fd, void *raw, size_t bytes, void *last, size_t width, uint64_t at)
{
    const struct iovec parts[2] = {{raw, bytes}, {last, width}};

    if (preadv(fd, parts, 2, (off_t)at) == (ssize_t)(bytes + width))
        return 0;
    return bl_shard_pread(fd, raw, bytes, at) == 0 ? bl_shard_pread(fd, last, width, at + bytes)
                                                   : -1;
}

int32_t shards_read(const struct shards *s, uint64_t index, void *raw, void *last,
                    const struct shard **from, uint64_t *offset, struct bl_error *err)
{
    const struct bl_host *host = s->host;
    uint64_t context = host->info->context;
    const struct shard *f;
    char why[BL_SHARD_WHY];
    uint64_t at;
    struct stat st;
    int fd, answer = -1;

    if (index >= s->sequences)
        return host->fail(host, err, "sequence %llu asked for, there are %llu",
                          (unsigned long long)index, (unsigned long long)s->sequences);
    f = find(s, index);
    at = f->start + (index - f->first) * context * s->width;
    fd = f->fd;
    if (fd >= 0) {
        if (fstat(fd, &st) != 0)
            return host->fail(host, err, "%s: %s", f->path, strerror(errno));
    } else {
        fd = bl_shard_open(f->path, &st, why);
        if (fd < 0)
            return host->fail(host, err, "%s: changed while in use: %s", f->path, why);
    }
    if (check_unchanged(host, f, &st, err) != 0)
        goto done;
    if (read_items(fd, raw, context * s->width, last, s->width, at) != 0) {
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
