/* mean_logit: the squared mean of a token's logits.
 *
 *     value = mean^2        d value / d z_v = 2 mean / V, the same for every v
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary)
 *     mean  (1/V) sum_v z_v
 *
 * loss/total gets coefficient * mean over targets of value. Default coefficient 1e-4; there is no
 * published one, it is z_loss's.
 *
 * Why: cross-entropy is blind to a constant added to all logits of a token. This term acts on that
 * constant and on nothing else: softmax probabilities, and with them the best reachable
 * cross-entropy, stay what they are. It follows from the shift invariance itself and is the
 * per-token relative of mu-loss (arXiv:2601.02031), which penalises the mean row of the output
 * matrix.
 *
 * What it cannot do: bound the spread of the logits or their maximum; a model that grows confident
 * without limit is not held. It acts through h, the last hidden state, as well as through the
 * output matrix, so a small mean logit does not prove a small mean row.
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
     "weight of the squared mean logit in the loss", offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    const double *mean;
    double *value, *d_mean;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->mean[i] * a->mean[i];
    a->d_mean[i] = 2 * a->mean[i];
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
    struct args a = {stats->mean, out->value, out->d_mean};
    square_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "mean_logit", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), "coefficient=0");
