/* Files cut into sequences of context + 1 items: what the sources `tokens` and `text` share. */
#ifndef BL_SOURCE_SHARDS_H
#define BL_SOURCE_SHARDS_H

#include <ballast/source.h>

#include <time.h>

#include "data/shard_format.h"

struct shard {
    char *path;
    int fd;         /* -1: opened for each read */
    uint64_t size;  /* bytes at open */
    uint64_t start; /* byte of the first token */
    uint64_t items; /* tokens */
    uint64_t first; /* index of its first sequence */
    uint64_t device, inode;
    struct timespec modified;
};

struct shards {
    const struct bl_host *host;
    struct shard *list;
    uint64_t count;
    uint64_t width;     /* bytes an item: 1, 2 or 4, the same in all files */
    uint64_t vocab;     /* what the files say that their ids are below; 0: they do not say */
    uint64_t sequences; /* over all files; none crosses from one file into the next */
};

/* Where an open file of `size` bytes has its items: 0, or -1 with the reason. */
typedef int shard_look_f(int fd, uint64_t size, enum bl_shard_format wanted,
                         struct bl_shard_layout *out, char why[BL_SHARD_WHY]);

/* Opens every file and counts sequences; s->host is set by the caller. 0, or -1 with nothing left
 * open. `what` names such files in the message about an empty list. */
int32_t shards_open(struct shards *s, const struct bl_source_files *files, const char *what,
                    enum bl_shard_format wanted, shard_look_f *look, struct bl_error *err);
void shards_close(struct shards *s);
/* Reads the first `context` items of a sequence into raw and the one after them into last, at once;
 * *offset is the byte offset of the first. A file that changed since shards_open, or was removed,
 * is an error. Thread-safe. */
int32_t shards_read(const struct shards *s, uint64_t index, void *raw, void *last,
                    const struct shard **from, uint64_t *offset, struct bl_error *err);

#endif
