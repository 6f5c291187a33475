/* guard agc: adaptive gradient clipping, each row of a matrix against its own weights.
 *
 *     |G_i| > lambda max(|W_i|, floor):   G_i = G_i lambda max(|W_i|, floor) / |G_i|
 *
 * G_i, W_i   gradient and weights of output unit i: row i of a matrix (out, in), the whole of a
 *            vector
 * lambda     default 0.01; 0 = off (the null setting)
 * floor      smallest norm of weights, default 1e-3: rows near zero can still grow
 * head       1: the output matrix too; default 0, as in the source
 *
 * It works on the reduced gradient as it is stored, before the scales of guards that come earlier
 * in the list: put it before those. Norms are fp64 sums in index order; a row is scaled in place,
 * each element rounded once, and the host measures the norm anew. A row whose gradient is not
 * finite stays: whether such a step is skipped is skip_step's to say, else the run ends as
 * diverged.
 *
 * Metric: guard/<instance>/share, the share of rows that were scaled.
 *
 * Source: Brock et al. 2021, arXiv:2102.06171.
 *
 * Cost: one pass over gradient and weights, one more over the rows that are scaled, and one for the
 * norm; with a sharded optimizer the whole gradient is gathered.
 *
 * What it cannot do: much under Adam, whose step hardly depends on the gradient's scale: there it
 * acts against single outliers, and lambda = 0.01 clips all of the time where gradients are large
 * against weights. Embedding rows are tokens, not units; they are treated alike. With tied weights
 * the output matrix is the embedding and is clipped.
 */
#include <math.h>

#include <ballast/guard.h>

#include "../blocks.h"

enum { GROUP = 4096 /* rows a call */ };

struct options {
    double lambda, floor;
    int32_t head;
};

static const struct bl_option options[] = {
    {"lambda", BL_OPTION_FLOAT, 0, "0.01", "[0,inf)", "largest |G_i| / |W_i| of a row; 0 = off",
     offsetof(struct options, lambda)},
    {"floor", BL_OPTION_FLOAT, 0, "1e-3", "(0,inf)", "smallest |W_i| that counts",
     offsetof(struct options, floor)},
    {"head", BL_OPTION_BOOL, 0, "false", NULL, "the output matrix too",
     offsetof(struct options, head)},
    {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)values;
    return 0;
}

struct job {
    float *g;
    const float *w;
    uint64_t columns;
    double lambda, floor;
    uint8_t clipped[GROUP];
};

static void clip_row(void *argument, uint64_t row)
{
    struct job *j = argument;
    float *g = j->g + row * j->columns;
    const float *w = j->w + row * j->columns;
    double gg = 0, ww = 0;
    for (uint64_t c = 0; c < j->columns; c++) {
        gg += (double)g[c] * (double)g[c];
        ww += (double)w[c] * (double)w[c];
    }
    double limit = j->lambda * (ww > j->floor * j->floor ? sqrt(ww) : j->floor);
    j->clipped[row] = isfinite(gg) && sqrt(gg) > limit;
    if (!j->clipped[row])
        return;
    float factor = (float)(limit / sqrt(gg));
    for (uint64_t c = 0; c < j->columns; c++)
        g[c] *= factor;
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    const struct options *o = self;
    uint64_t clipped = 0, all = 0;
    (void)in;
    (void)out;
    if (o->lambda == 0.0)
        return 0;
    for (uint64_t t = 0; t < host->tensor_count(host); t++) {
        struct bl_tensor g = {.size = sizeof(g)}, w = {.size = sizeof(w)};
        if (host->tensor(host, t, BL_GRADIENT, &g) < 0 || host->tensor(host, t, BL_WEIGHT, &w) < 0)
            return host->fail(host, err, "tensor %llu has no gradient", (unsigned long long)t);
        if (g.group == BL_GROUP_HEAD && !o->head)
            continue;
        uint64_t rows = g.ndim == 2 ? g.dims[0] : 1, columns = g.count / rows;
        all += rows;
        for (uint64_t at = 0; at < rows; at += GROUP) {
            struct job j = {.g = (float *)g.data + at * columns,
                            .w = (const float *)w.data + at * columns,
                            .columns = columns,
                            .lambda = o->lambda,
                            .floor = o->floor};
            uint64_t n = rows - at < GROUP ? rows - at : GROUP;
            host->parallel_for(host, n, clip_row, &j);
            for (uint64_t i = 0; i < n; i++)
                clipped += j.clipped[i];
        }
    }
    *changed = clipped > 0 ? BL_CHANGED_GRADIENT : 0;
    bl_guard_metric(host, "share", all > 0 ? (double)clipped / (double)all : 0);
    return 0;
}

static const struct bl_guard_ops ops = {.create = create, .gradient = gradient};

BL_PLUGIN(BL_KIND_GUARD, "agc", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          "lambda=0");
