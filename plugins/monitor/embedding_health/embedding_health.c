/* monitor embedding_health: embeddings that shrink, and the early layers' part of the gradient.
 *
 *     embed/rms          ||E|| / sqrt(n)
 *     embed/gain         ||a|| / sqrt(C)
 *     embed/early_share  sum over early tensors of ||g||^2 / sum over all tensors of ||g||^2
 *
 * E   embed.weight, n elements, before the update of the step
 * a   gain of the first norm on the way from the embedding, C elements: embed_norm.weight, or else
 *     layers.0.norm1.weight; absent, and said once, in a model that has neither
 * g   a tensor's reduced gradient, before guards scale it
 * early tensors  embed.weight, position.weight, embed_norm.* and layers.<l>.* with
 *                l < early_layers
 *
 * With norm_placement "reordered" or "post", norm1 is not on that way: it is the first norm of a
 * branch, and embed/gain is that one's.
 *
 * early_layers  default 1, in [0, 1000000]
 *
 * A norm's Jacobian grows as one over its input's size: when decay makes the embedding small, the
 * gradients of the early layers grow, until single steps spike. That is a falling embed/rms with a
 * rising early_share. The gain says whether the norm makes up for it.
 * Source: Merrill, blog of Ai2 on OLMo 7B 0724, 2 Oct 2024 (shrinking embeddings, outliers in early
 * layers); Team OLMo, "2 OLMo 2 Furious", 2024, arXiv 2501.00656 (no decay of embeddings); Takase
 * et al., "Spike No More", 2023, arXiv 2312.16903. Tied weights are one tensor, counted as early.
 *
 * A share whose denominator is zero is absent. NaN and Inf are reported as they come.
 *
 * Cost: one pass over all gradients and over the embedding a look, fp64 sums over fixed blocks of
 * 4096 elements in index order; nothing in a step without a look. With a sharded optimizer the
 * gradients are fetched from the other processes.
 *
 * Measured (tests/bench/plugins.sh, 4.5M parameters, 1024 tokens a step): a look costs 2 percent
 * of a step or less; the measurement resolves no less.
 *
 * What it cannot do: see outliers in single rows of the embedding, or in tokens of a batch; with
 * tied weights tell the head's part of the gradient from the embedding's.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <ballast/monitor.h>

struct options {
    int64_t early_layers;
};

static const struct bl_option options[] = {{"early_layers", BL_OPTION_INT, 0, "1", "[0,1000000]",
                                            "layers that count as early beside the embedding",
                                            offsetof(struct options, early_layers)},
                                           {0}};

struct health {
    const struct bl_host *host;
    const struct options *options;
    int told; /* that embed/gain is absent */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    struct health *h = host->allocate(host, sizeof(*h));
    if (h == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*h));
    h->host = host;
    h->options = values;
    *self = h;
    return 0;
}

static void destroy(void *self)
{
    struct health *h = self;
    if (h != NULL)
        h->host->release(h->host, h);
}

static int is_early(const struct health *h, const char *name)
{
    if (strcmp(name, "embed.weight") == 0 || strcmp(name, "position.weight") == 0 ||
        strncmp(name, "embed_norm.", 11) == 0)
        return 1;
    return strncmp(name, "layers.", 7) == 0 &&
           strtoll(name + 7, NULL, 10) < h->options->early_layers;
}

static double rms(const struct bl_host *host, const struct bl_tensor *t)
{
    return sqrt(host->sum_squares(host, t) / (double)t->count);
}

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    struct health *h = self;
    struct bl_tensor t = {.size = sizeof(t)};
    double early = 0.0, total = 0.0;
    (void)in;
    (void)err;
    if (host->find(host, "embed.weight", BL_WEIGHT, &t) == 0)
        host->metric(host, "embed/rms", rms(host, &t));
    if (host->find(host, "embed_norm.weight", BL_WEIGHT, &t) == 0 ||
        host->find(host, "layers.0.norm1.weight", BL_WEIGHT, &t) == 0)
        host->metric(host, "embed/gain", rms(host, &t));
    else if (!h->told) {
        h->told = 1;
        host->log(host, BL_LOG_INFO,
                  "embed/gain is absent: no norm with a gain follows the embedding");
    }
    for (uint64_t i = 0; i < host->tensor_count(host); i++) {
        if (host->tensor(host, i, BL_GRADIENT, &t) != 0)
            continue;
        double squares = host->sum_squares(host, &t);
        total += squares;
        if (is_early(h, t.name))
            early += squares;
    }
    if (total != 0.0)
        host->metric(host, "embed/early_share", early / total);
    return 0;
}

static const struct bl_monitor_ops ops = {.create = create, .destroy = destroy, .observe = observe};

BL_PLUGIN(BL_KIND_MONITOR, "embedding_health", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct options), NULL);
