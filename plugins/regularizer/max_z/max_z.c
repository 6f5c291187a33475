/* max_z: keeps the largest logit small.
 *
 *     value = max_v(z_v)^2          d value / d z_v = 2 max(z) 1[v = argmax]
 *
 *     z_v   logit of token v, v = 1 ... V (true vocabulary); of ties the first v is the argmax
 *
 * loss/total gets coefficient * mean over targets of value. Default coefficient 2e-4.
 *
 * Why: decoders that multiply raw logits (a repetition penalty) depend on their size, which the
 * loss does not fix. Adding a constant to all logits changes the value, so this is a force on that
 * direction too.
 *
 * Source: Baichuan 2, Yang et al. 2023, arXiv:2309.10305 (max-z loss).
 *
 * Cost: none to speak of: the maximum is one of the row statistics.
 *
 * What it cannot do: act on the other logits: one of V gets all of the force. It pulls a negative
 * maximum up to zero just as hard. At ties the value has no derivative; the first index gets it.
 *
 * Null setting: coefficient = 0 (the value is still logged).
 */
#include <ballast/kernel.h>
#include <ballast/regularizer.h>

struct options {
    double coefficient;
};

static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "2e-4", "[0,inf)", "weight of max(z)^2 in the loss",
     offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct args {
    const double *max;
    double *value, *d_max;
};

BL_FN void element(const struct args *a, uint64_t i)
{
    a->value[i] = a->max[i] * a->max[i];
    a->d_max[i] = 2 * a->max[i];
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
    struct args a = {stats->max, out->value, out->d_max};
    square_cpu(&a, begin, end);
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "max_z", "1.0", BL_DEVICE_CPU, ops, table, sizeof(struct options),
          "coefficient=0");
