/* logit_penalty: the mean square logit.
 *
 *     value = (1/V) sum_v z_v^2 = mean^2 + m2 / V        d value / d z_v = 2 z_v / V
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary)
 *     mean  (1/V) sum_v z_v
 *     m2    sum_v (z_v - mean)^2
 *
 * loss/total gets coefficient * mean over targets of value. Default coefficient 1e-4; there is no
 * published one, it is z_loss's.
 *
 * Why: the plainest bound on logits. It holds the common offset of a token's logits (which
 * cross-entropy cannot see) and their spread.
 *
 * What it cannot do: separate the two. The m2 part pulls predictions towards uniform, so the best
 * cross-entropy is no longer the optimum; where only the offset is unwanted, mean_logit or z_loss
 * disturb less. The sum is dominated by the V - 1 tokens that are not the target.
 *
 * Null setting: coefficient = 0 (the value is still logged).
 */
#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double coefficient;
};

static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "1e-4", "[0,inf)",
     "weight of the mean square logit in the loss", offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    double vocab;
    const double *mean, *m2;
    double *value, *d_mean, *d_m2;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->mean[i] * a->mean[i] + a->m2[i] / a->vocab;
    a->d_mean[i] = 2 * a->mean[i];
    a->d_m2[i] = 1 / a->vocab;
}

BL_MAP(mean_square, element, struct args)

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
    struct args a = {(double)stats->vocab, stats->mean, stats->m2,
                     out->value,           out->d_mean, out->d_m2};
    mean_square_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "logit_penalty", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), "coefficient=0");
