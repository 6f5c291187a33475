#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "data/pack_internal.h"
#include "data/shard_format.h"

struct file {
    char *final, *temporary;
    int exists; /* the temporary one */
};

/* The shards of one part. */
struct part {
    struct file *files;
    size_t count;
    int fd;          /* of the last file; -1: complete */
    uint64_t tokens; /* of the last file */
    uint64_t total;
};

struct bl_writer {
    const char *prefix;
    uint64_t vocab, limit; /* tokens a file */
    unsigned width;
    int numbered, split;
    int lock;         /* holds the lock of the first file until the end */
    char *folder;     /* of the outputs */
    const char *base; /* the rest of the prefix */
    char **old;       /* outputs that are there already */
    size_t old_count;
    struct part parts[2]; /* training, validation */
};

char *bl_pack_name(const char *prefix, int validation, int numbered, uint64_t shard)
{
    const char *part = validation ? "val" : "train";

    return numbered ? bl_format("%s-%s-%06llu.bin", prefix, part, (unsigned long long)shard)
                    : bl_format("%s-%s.bin", prefix, part);
}

static int failed(const char *path, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_DATA, "%s: not written: %s", path, strerror(errno));
}

static int no_memory(struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_FAILED, "no memory for the list of outputs");
}

/* ---- what is there ----------------------------------------------------------------------------*/

/* Whether a name in the folder is an output of this prefix (1) or the temporary file of one (2). */
static int is_output(const struct bl_writer *w, const char *name)
{
    size_t n = strlen(w->base);

    if (strncmp(name, w->base, n) != 0)
        return 0;
    name += n;
    if (strncmp(name, "-train", 6) == 0)
        name += 6;
    else if (strncmp(name, "-val", 4) == 0)
        name += 4;
    else
        return 0;
    if (*name == '-') {
        size_t digits = strspn(++name, "0123456789");
        if (digits < 6)
            return 0;
        name += digits;
    }
    return strcmp(name, ".bin") == 0 ? 1 : strcmp(name, ".bin.tmp") == 0 ? 2 : 0;
}

static int check_output(const char *path, const struct bl_pack *pack, const struct bl_reader *r,
                        struct bl_error *err)
{
    struct stat st;

    if (stat(path, &st) != 0)
        return errno == ENOENT ? 0 /* gone meanwhile, or a symbolic link to nothing */
                               : bl_error_set(err, BL_EXIT_DATA, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return bl_error_set(err, BL_EXIT_DATA, "%s: is there and no regular file", path);
    for (size_t i = 0; i < pack->count; i++)
        if (r->inputs[i].device == st.st_dev && r->inputs[i].inode == st.st_ino)
            return bl_error_set(err, BL_EXIT_DATA, "%s: is an input and an output (%s)",
                                pack->inputs[i], path);
    return 0;
}

static int add_name(char ***list, size_t *count, char *name, struct bl_error *err)
{
    char **longer = name ? realloc(*list, (*count + 1) * sizeof(*longer)) : NULL;

    if (!longer) {
        free(name);
        return no_memory(err);
    }
    *list = longer;
    longer[(*count)++] = name;
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Fills w->old, and *left with the temporary files of a process that was killed. */
static int look(struct bl_writer *w, char ***left, size_t *left_count, struct bl_error *err)
{
    DIR *folder = opendir(w->folder[0] ? w->folder : ".");
    const struct dirent *entry;
    int rc = 0;

    if (!folder)
        return bl_error_set(err, BL_EXIT_DATA, "%s: the folder of the outputs: %s",
                            w->folder[0] ? w->folder : ".", strerror(errno));
    while (rc == 0 && (entry = readdir(folder)) != NULL) {
        int kind = is_output(w, entry->d_name);
        if (kind != 0)
            rc = add_name(kind == 1 ? &w->old : left, kind == 1 ? &w->old_count : left_count,
                          bl_format("%s%s", w->folder, entry->d_name), err);
    }
    closedir(folder);
    if (w->old_count > 1)
        qsort(w->old, w->old_count, sizeof(*w->old), by_name);
    /* The one that a living process has locked comes first; unnumbered ones are few. */
    if (*left_count > 1)
        qsort(*left, *left_count, sizeof(**left), by_name);
    return rc;
}

/* Takes the lock that says that a process is making this file. Some file systems have none. */
static int lock(int fd, const char *path, struct bl_error *err)
{
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK)
        return 0;
    return bl_error_set(err, BL_EXIT_DATA, "%s: another process is making this; wait for it", path);
}

/* Removes the temporary files unless a living process owns one of them. */
static int remove_left(char **left, size_t count, struct bl_error *err)
{
    int *fds = calloc(count + 1, sizeof(*fds)), rc = 0;
    size_t opened = 0;

    if (!fds)
        return no_memory(err);
    for (; rc == 0 && opened < count; opened++) {
        fds[opened] = open(left[opened], O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (fds[opened] >= 0)
            rc = lock(fds[opened], left[opened], err);
        else if (errno == EMFILE)
            break;
    }
    for (size_t i = 0; rc == 0 && i < count; i++)
        if (unlink(left[i]) != 0 && errno != ENOENT)
            rc = failed(left[i], err);
    while (opened > 0)
        if (fds[--opened] >= 0)
            close(fds[opened]);
    free(fds);
    return rc;
}

static int check_folder(struct bl_writer *w, const struct bl_pack *pack, const struct bl_reader *r,
                        struct bl_error *err)
{
    char **left = NULL;
    size_t count = 0;
    int rc = look(w, &left, &count, err);

    for (size_t i = 0; rc == 0 && i < w->old_count; i++)
        rc = check_output(w->old[i], pack, r, err);
    for (size_t i = 0; rc == 0 && i < count; i++)
        rc = check_output(left[i], pack, r, err);
    if (rc == 0 && w->old_count > 0 && !pack->force)
        rc = bl_error_set(err, BL_EXIT_DATA,
                          "%s: is there already; --force replaces all outputs of this prefix, or "
                          "choose another OUT_PREFIX",
                          w->old[0]);
    if (rc == 0)
        rc = remove_left(left, count, err);
    for (size_t i = 0; i < count; i++)
        free(left[i]);
    free(left);
    return rc;
}

/* ---- writing ----------------------------------------------------------------------------------*/

static int write_all(int fd, const unsigned char *bytes, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, bytes, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0) {
            if (done == 0)
                errno = ENOSPC;
            return -1;
        }
        bytes += done;
        n -= (size_t)done;
    }
    return 0;
}

/* The next file of a part, with room for the header, which is filled in last: a shard without it
 * is refused by every reader. */
static int open_file(struct bl_writer *w, int validation, struct bl_error *err)
{
    static const unsigned char header[BL_SHARD_HEADER];
    struct part *p = &w->parts[validation];
    struct file *f, *files = realloc(p->files, (p->count + 1) * sizeof(*files));
    struct stat mine, there;

    if (!files)
        return no_memory(err);
    p->files = files;
    f = &files[p->count++];
    *f = (struct file){.final = bl_pack_name(w->prefix, validation, w->numbered, p->count - 1)};
    f->temporary = f->final ? bl_format("%s.tmp", f->final) : NULL;
    if (!f->temporary)
        return no_memory(err);
    p->tokens = 0;
    p->fd = open(f->temporary, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (p->fd < 0)
        return errno == EEXIST
                   ? bl_error_set(err, BL_EXIT_DATA,
                                  "%s: another process is making this; wait for it", f->temporary)
                   : failed(f->final, err);
    f->exists = 1;
    if (w->lock < 0) {
        if (lock(p->fd, f->temporary, err) != 0)
            return -1;
        /* Before it was locked another process may have taken it for an abandoned one. */
        if (fstat(p->fd, &mine) != 0 || stat(f->temporary, &there) != 0 ||
            mine.st_ino != there.st_ino || mine.st_dev != there.st_dev) {
            f->exists = 0;
            return bl_error_set(err, BL_EXIT_DATA,
                                "%s: another process is making this; wait for it", f->temporary);
        }
        w->lock = dup(p->fd);
    }
    return write_all(p->fd, header, sizeof(header)) == 0 ? 0 : failed(f->final, err);
}

static int close_file(const struct bl_writer *w, struct part *p, struct bl_error *err)
{
    const char *path = p->files[p->count - 1].final;
    const uint32_t words[] = {w->width == 2 ? BL_PACK_MAGIC16 : BL_PACK_MAGIC32,
                              w->width == 2 ? BL_PACK_VERSION16 : BL_PACK_VERSION32,
                              (uint32_t)p->tokens, (uint32_t)w->vocab, BL_SHARD_VOCAB_TAG};
    unsigned char bytes[sizeof(words)];
    int fd = p->fd;

    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (unsigned char)(words[i / 4] >> 8 * (i % 4));
    if (pwrite(fd, bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes) || fsync(fd) != 0)
        return failed(path, err);
    p->fd = -1;
    return close(fd) == 0 ? 0 : failed(path, err);
}

int bl_writer_start(struct bl_writer **out, const struct bl_pack *pack,
                    const struct bl_reader *reader, const struct bl_encoder *encoder,
                    struct bl_error *err)
{
    struct bl_writer *w = calloc(1, sizeof(*w));
    const char *slash = strrchr(pack->prefix, '/');

    if (!w)
        return no_memory(err);
    w->prefix = pack->prefix;
    w->vocab = encoder->vocab;
    w->width = encoder->width;
    w->numbered = pack->shard_tokens > 0;
    w->limit = w->numbered ? pack->shard_tokens : INT32_MAX;
    w->split = pack->validation > 0;
    w->lock = -1;
    w->parts[0].fd = w->parts[1].fd = -1;
    w->base = slash ? slash + 1 : pack->prefix;
    w->folder = strndup(pack->prefix, (size_t)(w->base - pack->prefix));
    if (!w->folder)
        no_memory(err);
    else if (check_folder(w, pack, reader, err) == 0 && open_file(w, 0, err) == 0) {
        *out = w;
        return 0;
    }
    bl_writer_free(w);
    return -1;
}

int bl_writer_add(struct bl_writer *w, int validation, const unsigned char *packed, uint64_t tokens,
                  struct bl_error *err)
{
    struct part *p = &w->parts[validation];

    while (tokens > 0) {
        if (p->count > 0 && p->tokens == w->limit) {
            if (!w->numbered)
                return bl_error_set(err, BL_EXIT_DATA,
                                    "%s: more than %d tokens, which its header cannot count; add "
                                    "--shard-tokens 100000000, for one",
                                    p->files[0].final, INT32_MAX);
            if (close_file(w, p, err) != 0)
                return -1;
        }
        if (p->fd < 0 && open_file(w, validation, err) != 0)
            return -1;
        uint64_t n = w->limit - p->tokens < tokens ? w->limit - p->tokens : tokens;
        if (write_all(p->fd, packed, n * w->width) != 0)
            return failed(p->files[p->count - 1].final, err);
        p->tokens += n;
        p->total += n;
        packed += n * w->width;
        tokens -= n;
    }
    return 0;
}

/* The renames are durable once the folder is; file systems without this have no more to offer. */
static void sync_folder(const struct bl_writer *w)
{
    int fd = open(w->folder[0] ? w->folder : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0)
        return;
    fsync(fd);
    close(fd);
}

/* Gives the files of both parts their names; -1 after removing them again, as a part of the shards
 * would look like all of them. */
static int rename_all(struct bl_writer *w, struct bl_error *err)
{
    for (int k = 1; k >= 0; k--) {
        for (size_t i = 0; i < w->parts[k].count; i++) {
            struct file *f = &w->parts[k].files[i];
            if (rename(f->temporary, f->final) == 0) {
                f->exists = 0;
                continue;
            }
            failed(f->final, err);
            for (int j = 1; j >= k; j--)
                for (size_t n = 0; n < w->parts[j].count; n++)
                    if (!w->parts[j].files[n].exists)
                        unlink(w->parts[j].files[n].final);
            return -1;
        }
    }
    return 0;
}

int bl_writer_publish(struct bl_writer *w, struct bl_pack_part *train,
                      struct bl_pack_part *validation, struct bl_error *err)
{
    if (w->parts[0].total == 0)
        return bl_error_set(err, BL_EXIT_DATA, "the input has no text: no token came of it");
    if (w->split && w->parts[1].total == 0)
        return bl_error_set(err, BL_EXIT_DATA,
                            "the last part of the input has no line to cut off as validation part; "
                            "use a larger --validation, or 0 for none");
    for (int k = 0; k < 2; k++)
        if (w->parts[k].fd >= 0 && close_file(w, &w->parts[k], err) != 0)
            return -1;
    /* First all old ones go: old and new shards side by side would be one wrong set. */
    for (size_t i = 0; i < w->old_count; i++)
        if (unlink(w->old[i]) != 0 && errno != ENOENT)
            return bl_error_set(err, BL_EXIT_DATA, "%s: the old file cannot be removed: %s",
                                w->old[i], strerror(errno));
    if (rename_all(w, err) != 0)
        return -1;
    sync_folder(w);
    *train = (struct bl_pack_part){w->parts[0].total, w->parts[0].count};
    *validation = (struct bl_pack_part){w->parts[1].total, w->parts[1].count};
    return 0;
}

void bl_writer_free(struct bl_writer *w)
{
    if (!w)
        return;
    for (int k = 0; k < 2; k++) {
        struct part *p = &w->parts[k];
        if (p->fd >= 0)
            close(p->fd);
        for (size_t i = 0; i < p->count; i++) {
            if (p->files[i].exists)
                unlink(p->files[i].temporary);
            free(p->files[i].final);
            free(p->files[i].temporary);
        }
        free(p->files);
    }
    if (w->lock >= 0)
        close(w->lock);
    for (size_t i = 0; i < w->old_count; i++)
        free(w->old[i]);
    free(w->old);
    free(w->folder);
    free(w);
}
