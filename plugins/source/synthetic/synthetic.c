/* Source without files: a Markov chain of low rank with Zipf-like rows (process.h). The entropy
 * rate is computed exactly, so loss/ce - entropy is what the model has still to learn. */
#include <ballast/source.h>

#include "process.h"

struct synthetic_options {
    int64_t vocab, rank, seed, sequences, validation_sequences;
    double exponent;
};

struct synthetic {
    const struct bl_host *host;
    const struct synthetic_options *options;
    struct process process;
    uint64_t stream;    /* of sequence 0 */
    uint64_t sequences; /* of this split */
    int opened;
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct synthetic *s = host->allocate(host, sizeof(*s));

    if (!s)
        return host->fail(host, err, "no memory");
    s->host = host;
    s->options = options;
    *self = s;
    return 0;
}

static void destroy(void *self)
{
    struct synthetic *s = self;

    if (!s)
        return;
    process_free(&s->process);
    s->host->release(s->host, s);
}

static int32_t open_files(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct synthetic *s = self;
    const struct synthetic_options *o = s->options;
    uint64_t key = o->seed ? (uint64_t)o->seed : s->host->info->seed;

    if (s->opened)
        return s->host->fail(s->host, err, "opened twice");
    if (process_make(&s->process, s->host, key, (uint64_t)o->vocab, (uint64_t)o->rank, o->exponent,
                     err) != 0)
        return -1;
    /* The two splits are the same process, never the same sequence. */
    s->sequences = (uint64_t)(files->validation ? o->validation_sequences : o->sequences);
    s->stream = files->validation ? (uint64_t)2 << 62 : (uint64_t)1 << 62;
    s->opened = 1;
    return 0;
}

static void describe(const void *self, struct bl_source_info *out)
{
    const struct synthetic *s = self;

    out->vocab = (uint64_t)s->options->vocab;
    out->sequences = s->sequences;
    out->tokens = out->sequences * s->host->info->context;
    out->entropy = s->process.entropy;
}

static int32_t read_sequence(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                             int32_t *targets, struct bl_error *err)
{
    struct synthetic *s = self;
    const struct bl_host *host = s->host;
    uint64_t context = host->info->context;
    uint64_t limit = vocab ? vocab : host->info->vocab;

    if (!s->opened)
        return host->fail(host, err, "read before open");
    if (index >= s->sequences)
        return host->fail(host, err, "sequence %llu asked for, there are %llu",
                          (unsigned long long)index, (unsigned long long)s->sequences);
    if (limit && limit < s->process.vocab)
        return host->fail(host, err,
                          "the process has %llu tokens, the model's vocabulary %llu: set "
                          "data.vocab or model.vocab",
                          (unsigned long long)s->process.vocab, (unsigned long long)limit);
    process_draw(&s->process, s->stream + index, context, tokens, &targets[context - 1]);
    for (uint64_t t = 0; t + 1 < context; t++)
        targets[t] = tokens[t + 1];
    return 0;
}

#define OPTION(key, type, default_text, range, doc)                                                \
    {                                                                                              \
#key, type, 0, default_text, range, doc, offsetof(struct synthetic_options, key)           \
    }
static const struct bl_option options[] = {
    OPTION(vocab, BL_OPTION_INT, "512", "[2,16384]", "tokens of the process"),
    OPTION(rank, BL_OPTION_INT, "8", "[1,64]", "components of the mixture that a row of P is"),
    OPTION(exponent, BL_OPTION_FLOAT, "1.0", "[0,8]", "Zipf exponent of a component; 0 = uniform"),
    OPTION(seed, BL_OPTION_INT, "0", "[0,inf)", "seed of process and sequences; 0 = run.seed"),
    OPTION(sequences, BL_OPTION_INT, "1048576", "[1,4611686018427387903]", "sequences in an epoch"),
    OPTION(validation_sequences, BL_OPTION_INT, "256", "[1,4611686018427387903]",
           "sequences of the held-out split"),
    {NULL, 0, 0, NULL, NULL, NULL, 0}};

static const struct bl_source_ops ops = {create,     destroy,  NULL,         NULL,
                                         open_files, describe, read_sequence};

BL_PLUGIN(BL_KIND_SOURCE, "synthetic", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct synthetic_options), NULL);
