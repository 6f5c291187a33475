/* guard clip_norm: scales the whole gradient down to a largest L2 norm.
 *
 *     scale = max / norm   when norm > max,   else 1
 *
 * norm  L2 norm over all parameters of the reduced gradient, scales of earlier guards included
 * max   largest norm that passes, default 1.0; 0 = off (the null setting)
 *
 * Source: Pascanu et al. 2012, arXiv:1211.5063. The quotient is exact: no small constant in the
 * denominator (PyTorch's clip_grad_norm_ adds 1e-6, a relative difference of 1e-6 / norm).
 *
 * A norm of zero or one that is not finite is left alone: clipping would turn an infinite gradient
 * into NaN silently. What to do with such a step is the host's or another guard's decision.
 *
 * What it cannot do: protect Adam from one huge gradient. Adam divides by its own second moment, so
 * a constant scale on all gradients cancels; clipping only limits how far ONE step exceeds the
 * history. clip_update_norm looks at what is written instead.
 */
#include <math.h>

#include <ballast/guard.h>

struct options {
    double max;
};

static const struct bl_option options[] = {{"max", BL_OPTION_FLOAT, 0, "1.0", "[0,inf)",
                                            "largest L2 norm of the whole gradient; 0 = off",
                                            offsetof(struct options, max)},
                                           {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)values;
    return 0;
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    const struct options *o = self;
    (void)host;
    (void)changed;
    (void)err;
    if (o->max > 0.0 && isfinite(in->norm) && in->norm > o->max)
        out->scale = o->max / in->norm;
    return 0;
}

static const struct bl_guard_ops ops = {.create = create, .gradient = gradient};

BL_PLUGIN(BL_KIND_GUARD, "clip_norm", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), "max=0");
