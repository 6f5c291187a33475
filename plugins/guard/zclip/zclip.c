/* guard zclip: clips a gradient norm that stands out of its own moving average.
 *
 *     z = (norm - mean) / (deviation + 1e-6)
 *     z > threshold:  norm is clipped to mean + threshold deviation / (z / threshold)
 *     mean = alpha mean + (1 - alpha) x
 *     var  = alpha var + (1 - alpha) (x - mean)^2      with the new mean; deviation = sqrt(var)
 *
 * norm       L2 norm of the gradient as it comes to this guard
 * x          the norm after this clipping: an outlier enters the averages as what it became
 * alpha      default 0.97
 * threshold  default 2.5 deviations; 0 = off, `max` too (the null setting)
 * warmup     norms collected before it judges, default 25; they give the first mean and variance
 *            (divisor n)
 * max        an upper limit beside it, as clip_norm has, also during warmup; default 1.0, 0 = none.
 *            It does not change x.
 *
 * The larger the outlier, the harder it is clipped: down to the mean in the limit. What another
 * guard skips enters nothing. A norm that is not finite neither: whether that step is skipped is
 * skip_step's to say, else the run ends as diverged. The averages are in the checkpoint.
 *
 * Metrics: guard/<instance>/score (z; absent during warmup), .../mean, .../clipped (0 or 1).
 *
 * Source: Kumar et al. 2025, arXiv:2504.02507, with its defaults.
 *
 * Cost: none to speak of; the host measures the norm anyway.
 *
 * What it cannot do: clip a fall; recognise a slow rise (the mean follows it); act on one tensor
 * alone (adagc does). A bad start poisons the mean for some 1 / (1 - alpha) steps.
 */
#include <math.h>
#include <string.h>

#include <ballast/guard.h>

#include "../blocks.h"

struct options {
    double alpha, threshold, max;
    int64_t warmup;
};

static const struct bl_option options[] = {
    {"alpha", BL_OPTION_FLOAT, 0, "0.97", "[0,1)", "decay of mean and variance, a step",
     offsetof(struct options, alpha)},
    {"threshold", BL_OPTION_FLOAT, 0, "2.5", "[0,inf)",
     "deviations above the mean that pass; 0 = off", offsetof(struct options, threshold)},
    {"warmup", BL_OPTION_INT, 0, "25", "[1,65536]", "norms collected before it judges",
     offsetof(struct options, warmup)},
    {"max", BL_OPTION_FLOAT, 0, "1.0", "[0,inf)", "largest norm in any case; 0 = no limit",
     offsetof(struct options, max)},
    {0}};

struct history { /* what a checkpoint keeps */
    uint64_t count;
    double mean, variance; /* during warmup: of the norms so far */
};

struct zclip {
    const struct bl_host *host;
    const struct options *options;
    struct history now, next; /* next: with this step, if it is settled as an update */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    struct zclip *g = host->allocate(host, sizeof(*g));
    if (g == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*g));
    g->host = host;
    g->options = values;
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct zclip *g = self;
    if (g != NULL)
        g->host->release(g->host, g);
}

static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct zclip *g = self;
    if (capacity >= sizeof(g->now))
        memcpy(buffer, &g->now, sizeof(g->now));
    return sizeof(g->now);
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct zclip *g = self;
    struct history h = {0, 0, 0};
    if (bytes == sizeof(h))
        memcpy(&h, buffer, sizeof(h));
    if (bytes != sizeof(h) || !isfinite(h.mean) || !(h.variance >= 0) || isinf(h.variance))
        return g->host->fail(g->host, err,
                             "saved averages of %llu bytes are not this guard's: restore the "
                             "checkpoint, or start without this guard's state",
                             (unsigned long long)bytes);
    g->now = g->next = h;
    return 0;
}

static void remember(struct zclip *g, double x)
{
    struct history *h = &g->next;
    double alpha = g->options->alpha, old = h->mean;
    if (h->count < (uint64_t)g->options->warmup) { /* mean and variance of all so far, Welford */
        double n = (double)++h->count;
        h->mean += (x - old) / n;
        h->variance += ((x - old) * (x - h->mean) - h->variance) / n;
        return;
    }
    h->mean = alpha * old + (1.0 - alpha) * x;
    h->variance = alpha * h->variance + (1.0 - alpha) * (x - h->mean) * (x - h->mean);
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    struct zclip *g = self;
    const struct options *o = g->options;
    double x = in->norm, clipped = 0;
    (void)changed;
    (void)err;
    if (o->threshold == 0.0)
        return 0;
    g->next = g->now;
    if (!isfinite(x))
        return 0;
    if (g->now.count >= (uint64_t)o->warmup) {
        double deviation = sqrt(g->now.variance), z = (x - g->now.mean) / (deviation + 1e-6);
        bl_guard_metric(host, "score", z);
        if (z > o->threshold) {
            x = g->now.mean + o->threshold * deviation / (z / o->threshold);
            clipped = 1;
        }
    }
    remember(g, x);
    if (o->max > 0.0 && x > o->max)
        x = o->max;
    if (x < in->norm)
        out->scale = x / in->norm;
    bl_guard_metric(host, "mean", g->next.mean);
    bl_guard_metric(host, "clipped", clipped);
    return 0;
}

static void settle(void *self, uint32_t skipped)
{
    struct zclip *g = self;
    if (!skipped)
        g->now = g->next;
    g->next = g->now;
}

static const struct bl_guard_ops ops = {.create = create,
                                        .destroy = destroy,
                                        .save = save,
                                        .load = load,
                                        .gradient = gradient,
                                        .settle = settle};

BL_PLUGIN(BL_KIND_GUARD, "zclip", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), "threshold=0");
