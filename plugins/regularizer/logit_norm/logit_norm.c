/* logit_norm: cross-entropy of logits of fixed length.
 *
 *     z' = z / (tau max(|z|, epsilon)),  |z|^2 = sum_v z_v^2
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary)
 *     tau   temperature, default 0.04: |z'| = 25
 *     epsilon   smallest length divided by, default 1e-6; below it the scale is constant
 *
 * A transform: loss, loss/ce and logits/... see z'; logits/pre/... are z.
 *
 * Why: cross-entropy rewards longer logits without end once the order is right. On the sphere there
 * is nothing to gain from length.
 *
 * Source: Wei et al. 2022, arXiv:2205.09310 (for classifiers; tau 0.04 there with ten classes).
 *
 * Cost: one more pass over the logits, for mean and spread before the transform.
 *
 * What it cannot do: reach a low loss over a large vocabulary with a large tau: with |z'| = 1/tau
 * the best p_y is about exp(1/tau) / (exp(1/tau) + V). Fix the length of z itself: the loss does
 * not see it any more, so nothing does. norm_softmax divides by the spread instead and does not see
 * a common offset; here an offset shrinks the rest, so that the loss feels it: gauge_leak measures
 * that force, and head_centering is refused.
 */
#include <math.h>

#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double tau, epsilon;
};

static const struct bl_option table[] = {
    {"tau", BL_OPTION_FLOAT, 0, "0.04", "[1e-6,inf)", "temperature: logits get the length 1/tau",
     offsetof(struct options, tau)},
    {"epsilon", BL_OPTION_FLOAT, 0, "1e-6", "[1e-30,inf)", "smallest length, in logits",
     offsetof(struct options, epsilon)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    double tau, epsilon, vocab;
    const double *mean, *m2;
    double *scale, *d_mean, *d_m2;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    double squares = a->m2[i] + a->vocab * a->mean[i] * a->mean[i], length = sqrt(squares);
    int fixed = length < a->epsilon;
    a->scale[i] = 1 / (a->tau * (fixed ? a->epsilon : length));
    a->d_mean[i] = fixed ? 0 : -a->scale[i] * a->vocab * a->mean[i] / squares;
    a->d_m2[i] = fixed ? 0 : -a->scale[i] / (2 * squares);
}

BL_MAP(unit_length, element, struct args)

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)options;
    return 0;
}

static void row_scale(const void *self, const struct bl_row_stats *before,
                      const struct bl_row_scale *out, uint64_t begin, uint64_t end)
{
    const struct options *o = self;
    struct args a = {o->tau,     o->epsilon, (double)before->vocab, before->mean,
                     before->m2, out->scale, out->d_mean,           out->d_m2};
    unit_length_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .row_scale = row_scale,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "logit_norm", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), NULL);
