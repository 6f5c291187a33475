/* source my_plugin: sequences that count upwards, sequence i from id i mod ids on.
 *
 * A source answers "give me sequence i" and must give the same tokens each time, from several
 * threads at once; in which order sequences come is the trainer's business. targets[t] is the token
 * that follows tokens[t]; -1 masks a target.
 *
 * This one needs no files. One that does gets the sorted paths of data.train or data.validation in
 * open, checks every file there, and names file and offset in its errors. */
#include <math.h>

#include <ballast/source.h>

struct options {
    int64_t ids, sequences;
};

static const struct bl_option table[] = {
    {"ids", BL_OPTION_INT, 0, "64", "[2,1048576]", "different tokens",
     offsetof(struct options, ids)},
    {"sequences", BL_OPTION_INT, 0, "1000", "[1,1000000000]", "sequences in an epoch",
     offsetof(struct options, sequences)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct source {
    const struct bl_host *host;
    const struct options *options;
    uint64_t first; /* of the split: the held-out one begins elsewhere */
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct source *s = host->allocate(host, sizeof *s); /* zeroed */
    if (s == NULL)
        return host->fail(host, err, "no memory for %u bytes", (unsigned)sizeof *s);
    s->host = host;
    s->options = options;
    *self = s;
    return 0;
}

static void destroy(void *self)
{
    struct source *s = self;
    s->host->release(s->host, s);
}

static int32_t open_files(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct source *s = self;
    if (files->count > 0)
        return s->host->fail(s->host, err, "%s: source my_plugin reads no files", files->paths[0]);
    s->first = files->validation ? 1 : 0;
    return 0;
}

static void describe(const void *self, struct bl_source_info *out)
{
    const struct source *s = self;
    out->vocab = (uint64_t)s->options->ids;
    out->sequences = (uint64_t)s->options->sequences;
    out->tokens = out->sequences * s->host->info->context;
    out->entropy = NAN; /* nats per token of the true process, where it is known */
}

static int32_t read_sequence(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                             int32_t *targets, struct bl_error *err)
{
    const struct source *s = self;
    const uint64_t ids = (uint64_t)s->options->ids, start = index + s->first;
    const uint64_t limit = vocab > 0 ? vocab : s->host->info->vocab; /* 0: not known yet */
    if (limit > 0 && limit < ids)
        return s->host->fail(s->host, err, "%llu ids, the model's vocabulary is %llu: set data.ids",
                             (unsigned long long)ids, (unsigned long long)limit);
    for (uint64_t t = 0; t < s->host->info->context; t++) {
        tokens[t] = (int32_t)((start + t) % ids);
        targets[t] = (int32_t)((start + t + 1) % ids);
    }
    return 0;
}

static const struct bl_source_ops ops = {.create = create,
                                         .destroy = destroy,
                                         .open = open_files,
                                         .describe = describe,
                                         .read = read_sequence};

BL_PLUGIN(BL_KIND_SOURCE, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table,
          sizeof(struct options), NULL);
