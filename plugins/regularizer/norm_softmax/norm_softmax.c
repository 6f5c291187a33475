/* norm_softmax: divides each token's logits by their standard deviation before the softmax.
 *
 *     std   = sqrt(m2 / V)
 *     width = min(std, tau) if tau > 0, else std; never below epsilon
 *     z'_v  = (temperature / width) z_v
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary)
 *     m2    sum_v (z_v - mean)^2, mean = (1/V) sum_v z_v
 *
 * Derivative of scale = temperature / width by m2: -scale / (2 m2) where width = std, else 0.
 * Defaults: temperature 1, tau 0 (none), epsilon 1e-6. temperature is a factor on the normalised
 * logits: larger is sharper.
 *
 * Why: the softmax then sees logits of one spread whatever the size of the output matrix, so that
 * growth of the logits neither saturates it nor changes the loss. With tau > 0 spreads above tau
 * are divided by tau only, a constant. Source: the NormSoftmax of Jiang, Gu and Pan 2023
 * (IEEE COINS), softmax(z / min(std, tau)).
 *
 * What it cannot do: with tau = 0 the loss is blind to the size of the logits, so nothing holds it:
 * a second flat direction besides the common offset, which stays flat too. Logits of unit spread
 * reach probabilities of about e^s / (e^s + V) at most, s = temperature sqrt V: a small vocabulary
 * needs a temperature above 1. A row of equal logits is scaled by temperature / epsilon.
 *
 * It is a transform: loss/ce and logits/ are those of z', logits/pre/ those of z. No null setting.
 */
#include <math.h>

#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double temperature, tau, epsilon;
};

static const struct bl_option table[] = {
    {"temperature", BL_OPTION_FLOAT, 0, "1", "(0,inf)",
     "factor on the normalised logits, larger is sharper", offsetof(struct options, temperature)},
    {"tau", BL_OPTION_FLOAT, 0, "0", "[0,inf)", "largest divisor, in logits; 0 = no limit",
     offsetof(struct options, tau)},
    {"epsilon", BL_OPTION_FLOAT, 0, "1e-6", "(0,inf)", "smallest divisor, in logits",
     offsetof(struct options, epsilon)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    double temperature, tau, epsilon, vocab;
    const double *m2;
    double *scale, *d_mean, *d_m2;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    double width = sqrt(a->m2[i] / a->vocab);
    int fixed = 0;
    if (a->tau > 0 && width > a->tau) {
        width = a->tau;
        fixed = 1;
    }
    if (width < a->epsilon) {
        width = a->epsilon;
        fixed = 1;
    }
    a->scale[i] = a->temperature / width;
    a->d_mean[i] = 0;
    a->d_m2[i] = fixed ? 0 : -a->scale[i] / (2 * a->m2[i]);
}

BL_MAP(unit_spread, element, struct args)

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    const struct options *o = options;
    if (o->tau > 0 && o->tau <= o->epsilon)
        return host->fail(host, err,
                          "tau = %g is not above epsilon = %g; set tau = 0 for no "
                          "limit or make epsilon smaller",
                          o->tau, o->epsilon);
    *self = (void *)options;
    return 0;
}

static void row_scale(const void *self, const struct bl_row_stats *before,
                      const struct bl_row_scale *out, uint64_t begin, uint64_t end)
{
    const struct options *o = self;
    struct args a = {o->temperature, o->tau,     o->epsilon,  (double)before->vocab,
                     before->m2,     out->scale, out->d_mean, out->d_m2};
    unit_spread_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .row_scale = row_scale,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "norm_softmax", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), NULL);
