/* Files cut into sequences of context + 1 items: what the sources `tokens` and `text` share. */
#ifndef BL_SOURCE_SHARDS_H
#define BL_SOURCE_SHARDS_H

#include <ballast/source.h>

#include <time.h>

struct shard {
    char *path;
    int fd;         /* -1: opened for each read */
    uint64_t size;  /* bytes at open */
    uint64_t items; /* tokens after the header */
    uint64_t first; /* index of its first sequence */
    uint64_t device, inode;
    struct timespec modified;
};

struct shards {
    const struct bl_host *host;
    struct shard *list;
    uint64_t count;
    uint64_t item_bytes;   /* 1 or 2 */
    uint64_t header_bytes; /* before the first item */
    uint64_t sequences;    /* over all files; none crosses from one file into the next */
};

/* Looks at an open file's header: `size` is the file's. Sets *items or fails. */
typedef int32_t shard_check_f(const struct bl_host *host, const char *path, int fd, uint64_t size,
                              uint64_t *items, struct bl_error *err);

/* Opens every file and counts sequences. s->host, item_bytes and header_bytes are set by the
 * caller. 0, or -1 with nothing left open. */
int32_t shards_open(struct shards *s, const struct bl_source_files *files, const char *what,
                    shard_check_f *check, struct bl_error *err);
void shards_close(struct shards *s);
/* Reads the context + 1 items of a sequence into raw; *offset is the byte offset of the first. A
 * file that changed since shards_open is an error. Thread-safe. */
int32_t shards_read(const struct shards *s, uint64_t index, void *raw, const struct shard **from,
                    uint64_t *offset, struct bl_error *err);
/* Exactly n bytes at offset, or -1 with errno (0: the file ends before). */
int shards_pread(int fd, void *buffer, uint64_t n, uint64_t offset);

#endif
