/* Source of token shards in llm.c's .bin format, version 1: 256 little-endian int32 (magic
 * 20240520, version 1, token count, zeros), then one little-endian uint16 a token.
 *
 * A sequence takes context + 1 tokens of one shard and the next one begins `context` tokens later;
 * what is left at a shard's end is not used. */
#include <ballast/source.h>

#include <errno.h>
#include <math.h>
#include <string.h>

#include "shards.h"

enum { HEADER_BYTES = 1024, MAGIC = 20240520, VERSION = 1 };

struct tokens {
    struct shards shards;
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct tokens *t = host->allocate(host, sizeof(*t));

    (void)options;
    if (!t)
        return host->fail(host, err, "no memory");
    t->shards.host = host;
    t->shards.item_bytes = 2;
    t->shards.header_bytes = HEADER_BYTES;
    *self = t;
    return 0;
}

static void destroy(void *self)
{
    struct tokens *t = self;

    if (!t)
        return;
    shards_close(&t->shards);
    t->shards.host->release(t->shards.host, t);
}

static uint32_t little32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static int32_t check_header(const struct bl_host *host, const char *path, int fd, uint64_t size,
                            uint64_t *items, struct bl_error *err)
{
    unsigned char header[12];
    uint32_t magic, version, count;

    if (size < HEADER_BYTES)
        return host->fail(host, err, "%s: %llu bytes, a token shard begins with a header of %d",
                          path, (unsigned long long)size, HEADER_BYTES);
    if (shards_pread(fd, header, sizeof(header), 0) != 0)
        return host->fail(host, err, "%s: reading the header: %s", path,
                          errno ? strerror(errno) : "the file ends before");
    magic = little32(header);
    version = little32(header + 4);
    count = little32(header + 8);
    if (magic != MAGIC)
        return host->fail(host, err,
                          "%s: byte 0: magic number %lu, not %d: no llm.c token shard (make one "
                          "from text with: ballast data pack)",
                          path, (unsigned long)magic, MAGIC);
    if (version != VERSION)
        return host->fail(host, err, "%s: byte 4: version %lu, only version %d (uint16) is read",
                          path, (unsigned long)version, VERSION);
    if ((size - HEADER_BYTES) / 2 != count || (size - HEADER_BYTES) % 2 != 0)
        return host->fail(host, err,
                          "%s: byte 8: the header says %lu tokens, which makes %llu bytes; the "
                          "file has %llu (cut or appended to?)",
                          path, (unsigned long)count,
                          (unsigned long long)HEADER_BYTES + 2 * (unsigned long long)count,
                          (unsigned long long)size);
    *items = count;
    return 0;
}

static int32_t open_files(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct tokens *t = self;
    const struct bl_host *host = t->shards.host;

    if (files->format && strcmp(files->format, "auto") != 0 && strcmp(files->format, "llmc") != 0)
        return host->fail(host, err,
                          "data.format = \"%s\": source tokens reads \"auto\" and \"llmc\"",
                          files->format);
    return shards_open(&t->shards, files, "token shards", check_header, err);
}

static void describe(const void *self, struct bl_source_info *out)
{
    const struct tokens *t = self;

    out->vocab = 0;
    out->sequences = t->shards.sequences;
    out->tokens = t->shards.sequences * t->shards.host->info->context;
    out->entropy = NAN;
}

static int32_t read_sequence(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                             int32_t *targets, struct bl_error *err)
{
    struct tokens *t = self;
    const struct bl_host *host = t->shards.host;
    uint64_t context = host->info->context, offset;
    uint64_t limit = vocab ? vocab : host->info->vocab;
    const struct shard *from;
    /* `targets` has room for the raw items: 2 (context + 1) <= 4 context. */
    unsigned char *raw = (unsigned char *)targets;
    int32_t last;

    if (shards_read(&t->shards, index, raw, &from, &offset, err) != 0)
        return -1;
    for (uint64_t i = 0; i <= context; i++) {
        int32_t id = raw[2 * i] | raw[2 * i + 1] << 8;
        if (limit && (uint64_t)id >= limit)
            return host->fail(
                host, err, "%s: byte %llu: token id %d, the vocabulary has %llu (ids 0 ... %llu)",
                from->path, (unsigned long long)(offset + 2 * i), (int)id,
                (unsigned long long)limit, (unsigned long long)limit - 1);
        if (i < context)
            tokens[i] = id;
    }
    last = raw[2 * context] | raw[2 * context + 1] << 8;
    for (uint64_t i = 0; i + 1 < context; i++)
        targets[i] = tokens[i + 1];
    targets[context - 1] = last;
    return 0;
}

struct tokens_options {
    int64_t reserved;
};

static const struct bl_option options[] = {{NULL, 0, 0, NULL, NULL, NULL, 0}};

static const struct bl_source_ops ops = {create,     destroy,  NULL,         NULL,
                                         open_files, describe, read_sequence};

BL_PLUGIN(BL_KIND_SOURCE, "tokens", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct tokens_options), NULL);
