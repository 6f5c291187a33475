/* label_smoothing: cross-entropy against a target distribution mixed with the uniform one.
 *
 *     q     = (1 - alpha) onehot(y) + alpha / V
 *     CE_q  = lse - (1 - alpha) z_y - alpha mean = (lse - z_y) + alpha (z_y - mean)
 *     value = z_y - mean        d value / d z_v = 1[v = y] - 1/V        coefficient = alpha
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary); y the target
 *     lse   log sum_v exp z_v, so lse - z_y is the plain cross-entropy
 *     mean  (1/V) sum_v z_v
 *
 * The plain cross-entropy stays in loss/ce; the additional term is what this plugin adds, so
 * loss/total is CE_q. Default alpha 0.1.
 *
 * Why: with alpha > 0 the optimum is at a finite margin, z_y - z_k = log((1 - alpha + alpha/V) /
 * (alpha/V)), instead of at infinity. Source: Szegedy et al. 2016, arXiv:1512.00567, alpha 0.1.
 *
 * What it cannot do: hold the common offset of the logits. The derivative sums to zero over v, so
 * adding a constant to all logits changes neither value nor loss. That makes it the negative
 * control of experiments on logit drift: it acts on the spread and leaves the drift alone.
 * loss/total is then no estimate of the data's entropy; compare loss/ce.
 *
 * Null setting: alpha = 0 (the value is still logged).
 */
#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double alpha;
};

static const struct bl_option table[] = {
    {"alpha", BL_OPTION_FLOAT, 0, "0.1", "[0,1)", "share of the uniform distribution in the target",
     offsetof(struct options, alpha)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    const double *target, *mean;
    double *value, *d_target, *d_mean;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->target[i] - a->mean[i];
    a->d_target[i] = 1;
    a->d_mean[i] = -1;
}

BL_MAP(margin, element, struct args)

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)options;
    return 0;
}

static double coefficient(const void *self, uint64_t step)
{
    (void)step;
    return ((const struct options *)self)->alpha;
}

static void rows(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    (void)self;
    struct args a = {stats->target, stats->mean, out->value, out->d_target, out->d_mean};
    margin_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "label_smoothing", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), "alpha=0");
