/* Source of token shards: llm.c's .bin (uint16 and uint32), numpy's .npy, and raw uint16 or uint32
 * without a header (nanoGPT, OLMo). data/shard_format.h has the formats and how they are told
 * apart; data.format = "llmc", "npy", "raw16" or "raw32" says it instead.
 *
 * A sequence takes context + 1 tokens of one shard and the next one begins `context` tokens later;
 * what is left at a shard's end is not used. */
#include <ballast/source.h>

#include <math.h>
#include <string.h>

#include "shards.h"

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

static int32_t open_files(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct tokens *t = self;
    const struct bl_host *host = t->shards.host;

    enum bl_shard_format wanted = BL_SHARD_AUTO;

    if (files->format && bl_shard_format_parse(files->format, &wanted) != 0) {
        host->fail(host, err,
                   "data.format = \"%s\": source tokens reads \"auto\", \"llmc\", "
                   "\"npy\", \"raw16\" and \"raw32\"",
                   files->format);
        err->code = 2; /* a wrong config, not wrong data */
        return -1;
    }
    return shards_open(&t->shards, files, "token shards", wanted, bl_shard_inspect, err);
}

static void describe(const void *self, struct bl_source_info *out)
{
    const struct tokens *t = self;

    out->vocab = t->shards.vocab;
    out->sequences = t->shards.sequences;
    out->tokens = t->shards.sequences * t->shards.host->info->context;
    out->entropy = NAN;
}

/* Little-endian ids, in place where both have 32 bits: raw may be `out`. */
static void widen(const unsigned char *raw, uint64_t width, uint64_t n, uint32_t *out)
{
    if (width == 2)
        for (uint64_t i = 0; i < n; i++)
            out[i] = bl_little16(raw + 2 * i);
    else
        for (uint64_t i = 0; i < n; i++)
            out[i] = bl_little32(raw + 4 * i);
}

static int32_t read_sequence(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                             int32_t *targets, struct bl_error *err)
{
    struct tokens *t = self;
    const struct bl_host *host = t->shards.host;
    uint64_t context = host->info->context, width = t->shards.width, offset;
    uint64_t limit = vocab ? vocab : host->info->vocab;
    const struct shard *from;
    uint32_t *ids = (uint32_t *)tokens, last, largest;
    unsigned char raw_last[4];
    /* Ids of 16 bits are read into the other array and widened from there. */
    unsigned char *raw = (unsigned char *)(width == 2 ? targets : tokens);

    if (shards_read(&t->shards, index, raw, raw_last, &from, &offset, err) != 0)
        return -1;
    widen(raw, width, context, ids);
    widen(raw_last, width, 1, &last);
    largest = last;
    for (uint64_t i = 0; i < context; i++)
        largest = ids[i] > largest ? ids[i] : largest;
    if (!limit || limit > (uint64_t)INT32_MAX + 1)
        limit = (uint64_t)INT32_MAX + 1;
    if (largest >= limit) {
        uint64_t i = 0;
        while (i < context && ids[i] < limit)
            i++;
        return host->fail(host, err,
                          "%s: byte %llu: token id %lu, the vocabulary has %llu (ids 0 ... %llu)",
                          from->path, (unsigned long long)(offset + width * i),
                          (unsigned long)(i < context ? ids[i] : last), (unsigned long long)limit,
                          (unsigned long long)limit - 1);
    }
    memcpy(targets, tokens + 1, (context - 1) * sizeof(*targets));
    targets[context - 1] = (int32_t)last;
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
