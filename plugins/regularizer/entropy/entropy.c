/* entropy: rewards predictions that are less certain, or more.
 *
 *     value = H = -sum_v p_v log p_v = lse - sum_v p_v z_v
 *     d H / d z_v = -p_v (log p_v + H)
 *
 *     p = softmax(z) over the true vocabulary, lse = log sum_v exp z_v
 *
 * loss/total gets -coefficient * mean over targets of H: a positive coefficient rewards entropy (a
 * confidence penalty), a negative one punishes it. Default coefficient 1e-3, a small one: the
 * source used 0.1 and more for classifiers. loss/entropy is H in nats.
 *
 * Source: Pereyra et al. 2017, arXiv:1701.06548 (confidence penalty).
 *
 * Cost: one more pass over the logits (pz).
 *
 * What it cannot do: fix the gauge. H does not change when a constant is added to all logits, so
 * like label_smoothing it is a negative control for drifts of log Z. It bounds the spread of the
 * logits only indirectly.
 *
 * Null setting: coefficient = 0 (the value is still logged).
 */
#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double coefficient;
};

static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "1e-3", NULL,
     "reward for a nat of entropy; negative: a penalty", offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    const double *lse, *pz;
    double *value, *d_lse, *d_pz;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->lse[i] - a->pz[i];
    a->d_lse[i] = 1;
    a->d_pz[i] = -1;
}

BL_MAP(entropy_of, element, struct args)

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
    return -((const struct options *)self)->coefficient;
}

static void rows(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    (void)self;
    struct args a = {stats->lse, stats->pz, out->value, out->d_lse, out->d_pz};
    entropy_of_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .needs = BL_NEED_PZ,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "entropy", "1.0", BL_DEVICE_CPU, ops, table, sizeof(struct options),
          "coefficient=0");
