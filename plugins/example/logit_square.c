/* logit_square: the mean square of a token's logits, (1/V) sum_v z_v^2, averaged over tokens.
 *
 * With the row's mean m and m2 = sum_v (z_v - m)^2 the value is m2 / V + m^2, so no pass over the
 * logits is needed: d value / d m2 = 1 / V and d value / d m = 2 m, from which the trainer forms
 * d value / d z_v = 2 z_v / V. */
#include <ballast/regularizer.h>

#include <stdlib.h>

struct options {
    double coefficient;
};

static const struct bl_option table[] = {{"coefficient", BL_OPTION_FLOAT, 0, "1e-4", "[0,inf)",
                                          "weight of the term in loss/total",
                                          offsetof(struct options, coefficient)},
                                         {NULL, 0, 0, NULL, NULL, NULL, 0}};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct options *o = malloc(sizeof *o);
    if (o == NULL)
        return host->fail(host, err, "no memory for %u bytes", (unsigned)sizeof *o);
    *o = *(const struct options *)options;
    *self = o;
    return 0;
}

static void destroy(void *self)
{
    free(self);
}

static double coefficient(const void *self, uint64_t step)
{
    (void)step; /* constant */
    return ((const struct options *)self)->coefficient;
}

/* Rows [begin, end); called from several threads, so it writes at these indices only. */
static void rows(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    const double v = (double)stats->vocab;
    (void)self;
    for (uint64_t i = begin; i < end; i++) {
        const double mean = stats->mean[i];
        out->value[i] = stats->m2[i] / v + mean * mean;
        out->d_mean[i] = 2.0 * mean;
        out->d_m2[i] = 1.0 / v;
    }
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .destroy = destroy,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "logit_square", "1.0", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), "coefficient=0");
