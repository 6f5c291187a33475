/* monitor norms: L2 norms of parameters, gradients and updates, whole and by tensor.
 *
 *     optim/param_norm           ||w|| over all parameters, before the update of the step
 *     optim/update_norm          ||w_new - w_old|| over all parameters; 0 for a skipped update
 *
 * and with per_tensor = true, for each tensor t of n elements, w its weights before the update, g
 * its reduced gradient before guards scale it, u its update:
 *
 *     param/<t>/norm   ||w||          param/<t>/rms   ||w|| / sqrt(n)
 *     grad/<t>/norm    ||g||          grad/<t>/rms    ||g|| / sqrt(n)
 *     grad/<t>/share   ||g||^2 / sum over tensors of ||g||^2
 *     grad/<t>/dot_param   <w, g>     grad/<t>/cos_param   <w, g> / (||w|| ||g||)
 *     update/<t>/norm  ||u||          update/<t>/ratio     ||u|| / ||w||
 *
 * per_tensor  default false: nine numbers a tensor fill a metrics file quickly
 *
 * By Euler's theorem <w, g> = k L for a loss that is homogeneous of degree k in w: weights that a
 * norm follows have k = 0, so that cos_param is 0 but for rounding and ||g|| falls as 1 / ||w||.
 * The share tells which tensor owns a rising total gradient norm. A quotient whose denominator is
 * zero is absent. optim/grad_norm, optim/grad_norm_clipped and optim/lr are the host's.
 *
 * Sums are fp64 over fixed blocks of 4096 elements in index order; tied weights are one tensor and
 * count once. Each look reads the weights once, per_tensor the gradient and both again.
 *
 * What it cannot do: say what a norm means. Only a study with a changed schedule or decay does.
 */
#include <math.h>
#include <stdio.h>

#include <ballast/monitor.h>

struct options {
    int32_t per_tensor;
};

static const struct bl_option options[] = {{"per_tensor", BL_OPTION_BOOL, 0, "false", NULL,
                                            "the norms of every tensor as well",
                                            offsetof(struct options, per_tensor)},
                                           {0}};

struct norms {
    const struct bl_host *host;
    const struct options *options;
    double *weight, *gradient; /* (count,) squared norms, NaN = no such array */
    uint64_t count;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    struct norms *n = host->allocate(host, sizeof(*n));
    if (n == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*n));
    n->host = host;
    n->options = values;
    *self = n;
    return 0;
}

static void destroy(void *self)
{
    struct norms *n = self;
    if (n == NULL)
        return;
    const struct bl_host *host = n->host;
    host->release(host, n->weight);
    host->release(host, n->gradient);
    host->release(host, n);
}

static uint32_t needs(const void *self)
{
    (void)self;
    return BL_MONITOR_UPDATES;
}

static int make_room(struct norms *n, struct bl_error *err)
{
    const struct bl_host *host = n->host;
    uint64_t count = host->tensor_count(host);
    if (n->count == count && n->weight != NULL)
        return 0;
    host->release(host, n->weight);
    host->release(host, n->gradient);
    n->count = 0;
    n->weight = host->allocate(host, (count + 1) * sizeof(double));
    n->gradient = host->allocate(host, (count + 1) * sizeof(double));
    if (n->weight == NULL || n->gradient == NULL)
        return host->fail(host, err, "no memory for the norms of %llu tensors",
                          (unsigned long long)count);
    n->count = count;
    return 0;
}

static void metric(const struct bl_host *host, const char *kind, const char *tensor,
                   const char *what, double value)
{
    char name[160];
    snprintf(name, sizeof(name), "%s/%s/%s", kind, tensor, what);
    host->metric(host, name, value);
}

static double squares_of(const struct bl_host *host, uint64_t i, uint32_t which,
                         struct bl_tensor *out)
{
    out->size = sizeof(*out);
    return host->tensor(host, i, which, out) == 0 ? host->sum_squares(host, out) : NAN;
}

static void report_tensor(const struct norms *n, uint64_t i, double total)
{
    const struct bl_host *host = n->host;
    struct bl_tensor w = {.size = sizeof(w)}, g = {.size = sizeof(g)};
    if (host->tensor(host, i, BL_WEIGHT, &w) != 0)
        return;
    double elements = (double)w.count, ww = n->weight[i], gg = n->gradient[i];
    metric(host, "param", w.name, "norm", sqrt(ww));
    metric(host, "param", w.name, "rms", sqrt(ww / elements));
    if (host->tensor(host, i, BL_GRADIENT, &g) != 0)
        return;
    metric(host, "grad", w.name, "norm", sqrt(gg));
    metric(host, "grad", w.name, "rms", sqrt(gg / elements));
    if (total != 0.0)
        metric(host, "grad", w.name, "share", gg / total);
    double dot = host->dot(host, &w, &g);
    metric(host, "grad", w.name, "dot_param", dot);
    if (ww != 0.0 && gg != 0.0)
        metric(host, "grad", w.name, "cos_param", dot / (sqrt(ww) * sqrt(gg)));
}

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    struct norms *n = self;
    struct bl_tensor view;
    double weight = 0.0, gradient = 0.0;
    (void)in;
    if (make_room(n, err) != 0)
        return -1;
    for (uint64_t i = 0; i < n->count; i++) {
        n->weight[i] = squares_of(host, i, BL_WEIGHT, &view);
        weight += n->weight[i];
        if (!n->options->per_tensor)
            continue;
        n->gradient[i] = squares_of(host, i, BL_GRADIENT, &view);
        gradient += n->gradient[i];
    }
    host->metric(host, "optim/param_norm", sqrt(weight));
    for (uint64_t i = 0; n->options->per_tensor && i < n->count; i++)
        report_tensor(n, i, gradient);
    return 0;
}

static int32_t after(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                     struct bl_error *err)
{
    const struct norms *n = self;
    double total = 0.0;
    (void)in;
    (void)err;
    for (uint64_t i = 0; i < n->count; i++) {
        struct bl_tensor w = {.size = sizeof(w)};
        double squares = host->update_squares(host, i);
        total += squares;
        if (!n->options->per_tensor || host->tensor(host, i, BL_WEIGHT, &w) != 0)
            continue;
        metric(host, "update", w.name, "norm", sqrt(squares));
        if (n->weight[i] != 0.0)
            metric(host, "update", w.name, "ratio", sqrt(squares) / sqrt(n->weight[i]));
    }
    host->metric(host, "optim/update_norm", sqrt(total));
    return 0;
}

static const struct bl_monitor_ops ops = {
    .create = create, .destroy = destroy, .needs = needs, .observe = observe, .after = after};

BL_PLUGIN(BL_KIND_MONITOR, "norms", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
