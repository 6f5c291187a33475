/* z_loss: pulls the logarithm of the softmax normaliser to zero.
 *
 *     value = lse^2            d value / d z_v = 2 lse p_v
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary)
 *     lse   log sum_v exp z_v, also written log Z
 *     p_v   exp(z_v - lse)
 *
 * loss/total gets coefficient * mean over targets of value. Default coefficient 1e-4.
 *
 * Why: cross-entropy does not change when a constant is added to all logits of a token, so nothing
 * in it stops them from drifting away together. lse moves one to one with such a constant; the
 * penalty gives that direction a restoring force, 2 lse in sum over v.
 *
 * Source: the coefficient 1e-4 as in PaLM, studied in Wortsman et al. 2023, arXiv:2309.14322.
 * Values from 1e-5 (Chameleon, arXiv:2405.09818) to 1e-4 are in use.
 *
 * What it cannot do: it does not centre the logits. It moves their mean to where log Z is near 0,
 * which is about -log V and lower, and leaves the mean row of the output matrix as large as it was.
 * A raw logit norm can therefore grow under it.
 *
 * Null setting: coefficient = 0 (the value is still logged).
 */
#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double coefficient;
};

static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "1e-4", "[0,inf)", "weight of lse^2 in the loss",
     offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    const double *lse;
    double *value, *d_lse;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->lse[i] * a->lse[i];
    a->d_lse[i] = 2 * a->lse[i];
}

BL_MAP(square, element, struct args)

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
    return ((const struct options *)self)->coefficient;
}

static void rows(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    (void)self;
    struct args a = {stats->lse, out->value, out->d_lse};
    square_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "z_loss", "1.0", BL_DEVICE_CPU, ops, table, sizeof(struct options),
          "coefficient=0");
