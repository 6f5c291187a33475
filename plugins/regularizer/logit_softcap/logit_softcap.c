/* logit_softcap: squeezes each logit into (-cap, cap).
 *
 *     z' = cap tanh(z / cap)          d z' / d z = 1 - tanh^2(z / cap)
 *
 *     cap   default 30, in logits
 *
 * A transform: loss, loss/ce and logits/... see z'; logits/pre/... are z. model.logit_softcap is
 * the same function as a part of the model, which exports and sampling then have too; as a plugin
 * it can be switched on and off for one run without another model. With both the model's comes
 * first.
 *
 * Why: no logit that the loss sees can leave the range, whatever drifts before it; far outside the
 * gradient vanishes, so drifting further pays nothing.
 *
 * Source: Gemma 2, arXiv:2408.00118, section 2 (30 for the final logits).
 *
 * Cost: a tanh of the C library per logit, forward and backward, one thread a row: 30 percent of a
 * step of a small model with 4096 logits (tests/bench/plugins.sh). model.logit_softcap has vector
 * code.
 *
 * What it cannot do: hold logits/pre/..., which may drift on along the flat part. It is no linear
 * map, so a common offset of z changes the probabilities: cross-entropy itself becomes a weak force
 * on the gauge, and gauge_leak measures that force and not rounding.
 */
#include <math.h>

#include <ballast/regularizer.h>

struct options {
    double cap;
};

static const struct bl_option table[] = {
    {"cap", BL_OPTION_FLOAT, 0, "30", "(0,1e30]", "largest logit that can come out",
     offsetof(struct options, cap)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)options;
    return 0;
}

static void element(const void *self, uint64_t n, const float *x, float *y, float *dy)
{
    const float cap = (float)((const struct options *)self)->cap;
    for (uint64_t i = 0; i < n; i++) {
        float t = tanhf(x[i] / cap);
        if (y != NULL)
            y[i] = cap * t;
        if (dy != NULL)
            dy[i] = 1 - t * t;
    }
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .element = element,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "logit_softcap", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), NULL);
