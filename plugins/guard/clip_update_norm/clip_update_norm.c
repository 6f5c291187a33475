/* guard clip_update_norm: scales an update down to a threshold made from its own history.
 *
 *     threshold = mean + sigmas * deviation   over the update norms of the last `window` updates
 *     scale     = threshold / norm            when norm > threshold, else 1
 *
 * norm       L2 norm over all parameters of w_new - w_old as the optimizer would write it
 * deviation  sample standard deviation (divisor n - 1) of the same history
 * window     default 128; 0 = off (the null setting)
 * sigmas     default 3.0
 * minimum    norms that must be in the history before anything is scaled, default 64, at least 2
 *
 * The statistics leave out the update that they judge. The history then gets the norm as it came,
 * not the scaled one, so that a lasting change of scale becomes normal after a while. A norm that
 * is not finite is never judged and never enters the history. The history is in the checkpoint;
 * loaded into a smaller window it keeps the newest norms.
 *
 * Metrics: optim/clip_update/norm, optim/clip_update/threshold (absent until `minimum` is
 * reached), optim/clip_update/scale.
 *
 * Source: the guard of the same name in the Levanter trainer, window 128 and 3 deviations; used
 * with 2 deviations in the Marin 32B run.
 *
 * What it cannot do: see a slow drift, or act in the first `minimum` updates. It costs the
 * optimizer a second pass over the parameters. The moments advance as if nothing had been scaled.
 */
#include <math.h>
#include <string.h>

#include <ballast/guard.h>

struct options {
    int64_t window, minimum;
    double sigmas;
};

static const struct bl_option options[] = {
    {"window", BL_OPTION_INT, 0, "128", "[0,65536]", "length of the history, updates; 0 = off",
     offsetof(struct options, window)},
    {"sigmas", BL_OPTION_FLOAT, 0, "3.0", "[0,inf)", "standard deviations above the mean that pass",
     offsetof(struct options, sigmas)},
    {"minimum", BL_OPTION_INT, 0, "64", "[2,65536]", "history needed before it acts, updates",
     offsetof(struct options, minimum)},
    {0}};

struct guard {
    const struct bl_host *host;
    const struct options *options;
    uint64_t count; /* norms in the history, <= window */
    uint64_t next;  /* where the next one goes; with a full window that is the oldest */
    double seen;    /* the norm of this step, until it is settled; NaN: none */
    double *norms;  /* (window,) */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->window > 0 && o->minimum > o->window)
        return host->fail(host, err,
                          "minimum = %lld is more than window = %lld holds: it would never act; "
                          "lower minimum or raise window",
                          (long long)o->minimum, (long long)o->window);
    struct guard *g = host->allocate(host, sizeof(*g));
    if (g == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*g));
    g->host = host;
    g->options = o;
    g->seen = NAN;
    if (o->window > 0) {
        g->norms = host->allocate(host, (uint64_t)o->window * sizeof(double));
        if (g->norms == NULL) {
            host->release(host, g);
            return host->fail(host, err, "no memory for a window of %lld norms",
                              (long long)o->window);
        }
    }
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct guard *g = self;
    if (g == NULL)
        return;
    const struct bl_host *host = g->host;
    host->release(host, g->norms);
    host->release(host, g);
}

static double norm_at(const struct guard *g, uint64_t i) /* i = 0 is the oldest */
{
    uint64_t window = (uint64_t)g->options->window;
    return g->norms[(g->next + window - g->count + i) % window];
}

static void push(struct guard *g, double norm)
{
    uint64_t window = (uint64_t)g->options->window;
    g->norms[g->next] = norm;
    g->next = (g->next + 1) % window;
    if (g->count < window)
        g->count++;
}

static double threshold(const struct guard *g)
{
    double n = (double)g->count, sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < g->count; i++)
        sum += norm_at(g, i);
    double mean = sum / n;
    for (uint64_t i = 0; i < g->count; i++) {
        double d = norm_at(g, i) - mean;
        squares += d * d;
    }
    return mean + g->options->sigmas * sqrt(squares / (n - 1.0));
}

static int32_t update(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                      struct bl_verdict *out, struct bl_error *err)
{
    struct guard *g = self;
    (void)err;
    if (g->norms == NULL)
        return 0;
    host->metric(host, "optim/clip_update/norm", in->norm);
    double scale = 1.0;
    if (g->count >= (uint64_t)g->options->minimum) {
        double limit = threshold(g);
        host->metric(host, "optim/clip_update/threshold", limit);
        if (isfinite(in->norm) && in->norm > limit)
            scale = limit / in->norm;
    }
    host->metric(host, "optim/clip_update/scale", scale);
    out->scale = scale;
    g->seen = in->norm;
    return 0;
}

static void settle(void *self, uint32_t skipped)
{
    struct guard *g = self;
    if (g->norms != NULL && !skipped && isfinite(g->seen))
        push(g, g->seen);
    g->seen = NAN;
}

/* State: version, number of norms (u64 each), the norms from the oldest on (f64). */
#define STATE_VERSION 1u

static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct guard *g = self;
    uint64_t need = (2 + g->count) * 8;
    if (buffer == NULL || capacity < need)
        return need;
    uint64_t head[2] = {STATE_VERSION, g->count};
    memcpy(buffer, head, sizeof(head));
    for (uint64_t i = 0; i < g->count; i++) {
        double norm = norm_at(g, i);
        memcpy((char *)buffer + sizeof(head) + i * 8, &norm, 8);
    }
    return need;
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct guard *g = self;
    uint64_t head[2] = {0, 0};
    if (bytes >= sizeof(head))
        memcpy(head, buffer, sizeof(head));
    if (bytes < sizeof(head) || head[0] != STATE_VERSION || head[1] > 65536 ||
        bytes != (2 + head[1]) * 8)
        return g->host->fail(g->host, err,
                             "saved history of %llu bytes is not one of version %u: restore the "
                             "checkpoint, or start without this guard's state",
                             (unsigned long long)bytes, STATE_VERSION);
    const char *norms = (const char *)buffer + sizeof(head);
    for (uint64_t i = 0; i < head[1]; i++) {
        double norm;
        memcpy(&norm, norms + i * 8, 8);
        if (!isfinite(norm) || norm < 0.0)
            return g->host->fail(g->host, err,
                                 "saved history has the norm %g at index %llu: the checkpoint is "
                                 "damaged",
                                 norm, (unsigned long long)i);
    }
    g->count = 0;
    g->next = 0;
    for (uint64_t i = 0; g->norms != NULL && i < head[1]; i++) {
        double norm;
        memcpy(&norm, norms + i * 8, 8);
        push(g, norm);
    }
    return 0;
}

static const struct bl_guard_ops ops = {.create = create,
                                        .destroy = destroy,
                                        .save = save,
                                        .load = load,
                                        .update = update,
                                        .settle = settle};

BL_PLUGIN(BL_KIND_GUARD, "clip_update_norm", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), "window=0");
