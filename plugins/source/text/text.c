/* Source of plain files: every byte is a token, the vocabulary is 256. */
#include <ballast/source.h>

#include <math.h>
#include <string.h>

#include "../tokens/shards.h"

struct text {
    struct shards shards;
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct text *t = host->allocate(host, sizeof(*t));

    (void)options;
    if (!t)
        return host->fail(host, err, "no memory");
    t->shards.host = host;
    *self = t;
    return 0;
}

static void destroy(void *self)
{
    struct text *t = self;

    if (!t)
        return;
    shards_close(&t->shards);
    t->shards.host->release(t->shards.host, t);
}

static int look(int fd, uint64_t size, enum bl_shard_format wanted, struct bl_shard_layout *out,
                char why[BL_SHARD_WHY])
{
    (void)fd;
    (void)wanted;
    if (size == 0) {
        strcpy(why, "the file is empty");
        return -1;
    }
    *out = (struct bl_shard_layout){.format = BL_SHARD_TEXT, .width = 1, .items = size};
    return 0;
}

static int32_t open_files(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct text *t = self;
    const struct bl_host *host = t->shards.host;

    if (files->format && strcmp(files->format, "auto") != 0 && strcmp(files->format, "text") != 0) {
        host->fail(host, err, "data.format = \"%s\": source text reads \"auto\" and \"text\"",
                   files->format);
        err->code = 2; /* a wrong config, not wrong data */
        return -1;
    }
    return shards_open(&t->shards, files, "text files", BL_SHARD_TEXT, look, err);
}

static void describe(const void *self, struct bl_source_info *out)
{
    const struct text *t = self;

    out->vocab = 256;
    out->sequences = t->shards.sequences;
    out->tokens = t->shards.sequences * t->shards.host->info->context;
    out->entropy = NAN;
}

static int32_t read_sequence(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                             int32_t *targets, struct bl_error *err)
{
    struct text *t = self;
    const struct bl_host *host = t->shards.host;
    uint64_t context = host->info->context, offset;
    uint64_t limit = vocab ? vocab : host->info->vocab;
    const struct shard *from;
    unsigned char *raw = (unsigned char *)targets, last; /* context <= 4 context bytes */

    if (shards_read(&t->shards, index, raw, &last, &from, &offset, err) != 0)
        return -1;
    if (limit && limit < 256)
        for (uint64_t i = 0; i <= context; i++) {
            unsigned char id = i < context ? raw[i] : last;
            if (id >= limit)
                return host->fail(host, err,
                                  "%s: byte %llu: value %d, the vocabulary has %llu (source text "
                                  "needs model.vocab >= 256)",
                                  from->path, (unsigned long long)(offset + i), id,
                                  (unsigned long long)limit);
        }
    for (uint64_t i = 0; i < context; i++)
        tokens[i] = raw[i];
    for (uint64_t i = 0; i + 1 < context; i++)
        targets[i] = tokens[i + 1];
    targets[context - 1] = last;
    return 0;
}

struct text_options {
    int64_t reserved;
};

static const struct bl_option options[] = {{NULL, 0, 0, NULL, NULL, NULL, 0}};

static const struct bl_source_ops ops = {create,     destroy,  NULL,         NULL,
                                         open_files, describe, read_sequence};

BL_PLUGIN(BL_KIND_SOURCE, "text", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct text_options), NULL);
