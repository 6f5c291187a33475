/* regularizer my_plugin: the mean square of a token's logits, (1/V) sum_v z_v^2.
 *
 * Say here what it is, its symbols, its default, its source, and what it cannot do.
 *
 * ---- How a term on the logits is written ------------------------------------------------------
 * The trainer never shows you the (tokens, V) logits; it gives STATISTICS of each row (a token),
 * in fp64:
 *
 *     lse     log sum_v exp z_v          mean    (1/V) sum_v z_v
 *     target  z_y, y the target          m2      sum_v (z_v - mean)^2
 *     max     max_v z_v (and argmax)     pz      sum_v p_v z_v, only with .needs = BL_NEED_PZ
 *
 * You return the row's value f and its partial derivative by each statistic that you used. The
 * trainer makes d f / d z_v from them:
 *
 *     d_lse p_v + d_target 1[v = y] + d_mean / V + 2 d_m2 (z_v - mean) + d_max 1[v = argmax]
 *         + d_pz p_v (1 + z_v - pz)
 *
 * Here f = m2 / V + mean^2, so d f / d m2 = 1 / V and d f / d mean = 2 mean. (Check: with these,
 * d f / d z_v = 2 mean / V + 2 (z_v - mean) / V = 2 z_v / V.)
 *
 * Members that you do not write stay 0. Masked rows (valid[i] == 0) may hold anything: the trainer
 * gives them no weight. The trainer multiplies by coefficient() and takes the mean over tokens.
 *
 * A regularizer may also have a transform of the logits (element or row_scale), a term on the
 * output matrix (weight_grad) or a projection: <ballast/regularizer.h>. */
#include <ballast/regularizer.h>

struct options {
    double coefficient;
};

/* One row an option: key, type, flags, default, range, what it does, where it goes. */
static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "1e-4", "[0,inf)", "weight of the term in loss/total",
     offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

/* The options outlive the instance, so an instance without other state is its options. */
static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)options;
    return 0;
}

static double coefficient(const void *self, uint64_t step)
{
    const struct options *o = self;
    (void)step; /* 1-based update: a term may be phased in */
    return o->coefficient;
}

/* Rows [begin, end), from several threads at once: write at these indices only. */
static void rows(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    const double v = (double)stats->vocab;
    (void)self;
    for (uint64_t i = begin; i < end; i++) {
        const double mean = stats->mean[i];
        out->value[i] = stats->m2[i] / v + mean * mean;
        out->d_m2[i] = 1.0 / v;
        out->d_mean[i] = 2.0 * mean;
    }
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .coefficient = coefficient,
    .rows = rows,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "my_plugin", "0.1", BL_DEVICE_CPU, ops, table,
          sizeof(struct options), "coefficient=0");
