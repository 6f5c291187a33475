#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "data/pack_internal.h"

void bl_chunk_free(struct bl_chunk *c)
{
    free(c->text);
    free(c->ids);
    free(c->packed);
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

static int read_at(const char *path, int fd, char *to, size_t n, uint64_t offset,
                   struct bl_error *err)
{
    while (n > 0) {
        ssize_t got = pread(fd, to, n, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return bl_error_set(err, BL_EXIT_DATA, "%s: reading at byte %llu: %s", path,
                                (unsigned long long)offset, strerror(errno));
        if (got == 0)
            return bl_error_set(err, BL_EXIT_DATA, "%s: changed while it was read", path);
        to += got;
        n -= (size_t)got;
        offset += (uint64_t)got;
    }
    return 0;
}

int bl_reader_start(struct bl_reader *r, const struct bl_pack *pack, int join, struct bl_error *err)
{
    *r = (struct bl_reader){.pack = pack, .join = join, .cut = UINT64_MAX, .fd = -1};
    r->inputs = calloc(pack->count, sizeof(*r->inputs));
    if (!r->inputs)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for a list of %zu files", pack->count);
    for (size_t i = 0; i < pack->count; i++) {
        const char *path = pack->inputs[i];
        char last = '\n';
        struct stat st;
        int fd = open_input(path, &st, err);
        if (fd < 0)
            goto fail;
        r->inputs[i] = (struct bl_input){(uint64_t)st.st_size, st.st_dev, st.st_ino};
        int rc = read_at(path, fd, &last, 1, (uint64_t)st.st_size - 1, err);
        close(fd);
        if (rc != 0)
            goto fail;
        r->total += (uint64_t)st.st_size + (join && i + 1 < pack->count && last != '\n');
    }
    if (pack->validation > 0)
        r->cut = r->total - (uint64_t)((double)r->total * pack->validation);
    return 0;
fail:
    free(r->inputs);
    r->inputs = NULL;
    return -1;
}

void bl_reader_end(struct bl_reader *r)
{
    if (r->fd >= 0)
        close(r->fd);
    r->fd = -1;
    free(r->inputs);
    r->inputs = NULL;
}

/* n without a UTF-8 character that is begun at its end. Other bytes may stand anywhere. */
static size_t whole_characters(const char *text, size_t n)
{
    size_t back = 1;

    while (back < 4 && back < n && ((unsigned char)text[n - back] & 0xc0) == 0x80)
        back++;
    unsigned c = (unsigned char)text[n - back];
    size_t length = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    return length > back && n > back ? n - back : n;
}

size_t bl_pack_piece(const char *text, size_t bytes)
{
    const char *end;

    if (bytes <= BL_PACK_PIECE)
        return bytes;
    end = memrchr(text, '\n', BL_PACK_PIECE);
    if (!end)
        end = memrchr(text, ' ', BL_PACK_PIECE);
    return end ? (size_t)(end - text) + 1 : whole_characters(text, BL_PACK_PIECE);
}

/* Where the training part ends in the n bytes at the reader's position; 0: not there. */
static size_t part_end(const struct bl_reader *r, const char *text, size_t n)
{
    size_t from = r->cut > r->position ? (size_t)(r->cut - r->position - 1) : 0;
    const char *end;

    if (r->cut == UINT64_MAX || r->cut > r->position + n)
        return 0;
    end = memchr(text + from, '\n', n - from);
    return end ? (size_t)(end - text) + 1 : 0;
}

/* Bytes of the chunk that begins the n read ones; 0: a line does not end there. `more`: the file
 * goes on after them. */
static size_t chunk_end(const struct bl_reader *r, const char *text, size_t n, int more)
{
    size_t end = part_end(r, text, n);
    const char *line;

    if (end > 0 || !more)
        return end > 0 ? end : n;
    if (r->pack->documents == BL_DOCUMENTS_FILES)
        return bl_pack_piece(text, n);
    line = memrchr(text, '\n', n);
    return line ? (size_t)(line - text) + 1 : 0;
}

static int reserve(struct bl_chunk *c, size_t bytes, const char *path, struct bl_error *err)
{
    char *text;

    if (bytes <= c->capacity)
        return 0;
    text = realloc(c->text, bytes);
    if (!text)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no memory for %zu bytes of it", path, bytes);
    c->text = text;
    c->capacity = bytes;
    return 0;
}

static int open_next(struct bl_reader *r, struct bl_error *err)
{
    const char *path = r->pack->inputs[r->current];
    const struct bl_input *in = &r->inputs[r->current];
    struct stat st;

    r->fd = open_input(path, &st, err);
    r->offset = 0;
    if (r->fd < 0)
        return -1;
    if ((uint64_t)st.st_size != in->size || st.st_ino != in->inode || st.st_dev != in->device)
        return bl_error_set(err, BL_EXIT_DATA, "%s: changed while it was read", path);
    return 0;
}

/* After the last chunk of a file. */
static int close_current(struct bl_reader *r, struct bl_chunk *c, struct bl_error *err)
{
    struct stat st;
    int grown = fstat(r->fd, &st) != 0 || (uint64_t)st.st_size != r->inputs[r->current].size;

    close(r->fd);
    r->fd = -1;
    if (grown)
        return bl_error_set(err, BL_EXIT_DATA, "%s: changed while it was read", c->path);
    c->ends = 1;
    r->current++;
    if (r->join && r->current < r->pack->count && c->text[c->bytes - 1] != '\n') {
        c->text[c->bytes++] = '\n';
        r->position++;
    }
    return 0;
}

int bl_reader_next(struct bl_reader *r, struct bl_chunk *c, struct bl_error *err)
{
    size_t n = 0, end = 0, want = BL_PACK_PIECE + 1;

    if (r->current == r->pack->count)
        return 0;
    if (r->fd < 0 && open_next(r, err) != 0)
        return -1;
    c->path = r->pack->inputs[r->current];
    c->offset = r->offset;
    c->validation = r->validation;
    c->ends = 0;
    for (uint64_t left = r->inputs[r->current].size - r->offset; end == 0; want *= 2) {
        if (want / 2 > BL_PACK_LINE_LIMIT)
            return bl_error_set(err, BL_EXIT_DATA,
                                "%s: the line at byte %llu is longer than %d MiB, too much for one "
                                "document; use --documents files",
                                c->path, (unsigned long long)r->offset, BL_PACK_LINE_LIMIT >> 20);
        n = want < left ? want : (size_t)left;
        if (reserve(c, n + 1, c->path, err) != 0 ||
            read_at(c->path, r->fd, c->text, n, r->offset, err) != 0)
            return -1;
        end = chunk_end(r, c->text, n, n < left);
    }
    c->bytes = end;
    c->read = end;
    r->offset += end;
    r->position += end;
    if (r->offset == r->inputs[r->current].size && close_current(r, c, err) != 0)
        return -1;
    if (r->position >= r->cut && (c->ends || c->text[c->bytes - 1] == '\n')) {
        r->validation = 1;
        r->cut = UINT64_MAX;
    }
    return 1;
}
