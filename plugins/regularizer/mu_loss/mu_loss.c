/* mu_loss: pulls the mean row of the output matrix to zero.
 *
 *     value = |mu|^2,  mu = (1/V) sum_v W[v]          d value / d W[v] = (2/V) mu
 *
 *     W   output matrix (V, C), V true vocabulary
 *
 * loss/total gets coefficient * value, once per update. Default coefficient 1e-4.
 *
 * Why: adding one vector to all rows of W changes no probability, so nothing in cross-entropy keeps
 * mu where it is, and the mean logit mu . h goes where optimizer and rounding push it. The force
 * acts on that direction alone: rows relative to each other are not touched.
 *
 * Source: Stollenwerk et al. 2026, arXiv:2601.02031 (output embedding centering); coefficients of
 * 1e-4 to 1e-1 gave equal results there.
 *
 * Cost: one pass over W, and one over its gradient, per update.
 *
 * What it cannot do: act on log Z where mu is zero already. The force is 2 coefficient mu / V an
 * element; under Adam it competes with gradients of any size, and where a row's gradient is large
 * it is lost among them: mu_centering projects instead. With tied weights W is the embedding and mu
 * is no free direction (a warning says so).
 *
 * Null setting: coefficient = 0 (the value is still logged).
 */
#include <math.h>

#include <ballast/regularizer.h>

#include "../columns.h"

struct options {
    double coefficient;
};

static const struct bl_option table[] = {
    {"coefficient", BL_OPTION_FLOAT, 0, "1e-4", "[0,inf)", "weight of |mu|^2 in the loss",
     offsetof(struct options, coefficient)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct self {
    const struct bl_host *host;
    const struct options *options;
    struct bl_columns columns;
};

static void destroy(void *self)
{
    struct self *s = self;
    if (s == NULL)
        return;
    s->host->release(s->host, s->columns.mean);
    s->host->release(s->host, s);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct self *s = host->allocate(host, sizeof *s);
    if (s == NULL)
        return host->fail(host, err, "no memory");
    s->host = s->columns.host = host;
    s->options = options;
    if (host->info != NULL && host->info->tied)
        host->log(
            host, BL_LOG_WARNING,
            "the weights are tied, so the output matrix is the embedding too: the mean row is "
            "no free direction; set model.tied = false for a neutral force");
    *self = s;
    return 0;
}

static double coefficient(const void *self, uint64_t step)
{
    (void)step;
    return ((const struct self *)self)->options->coefficient;
}

/* NaN where there is no memory: the run ends and names the term. */
static double weight_grad(void *self, const struct bl_host *host, const struct bl_tensor *head,
                          struct bl_tensor *gradient, double weight)
{
    struct self *s = self;
    if (!bl_columns_fits(head) || bl_columns_mean(&s->columns, head) != 0) {
        host->log(host, BL_LOG_ERROR, "%s: no fp32 matrix in host memory, or no memory",
                  head->name);
        return NAN;
    }
    double value = 0;
    for (uint64_t c = 0; c < head->dims[1]; c++)
        value += s->columns.mean[c] * s->columns.mean[c];
    if (gradient != NULL)
        bl_columns_subtract(&s->columns, gradient, -2 * weight / (double)head->dims[0]);
    return value;
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .destroy = destroy,
    .coefficient = coefficient,
    .weight_grad = weight_grad,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "mu_loss", "1.0", BL_DEVICE_CPU, ops, table, sizeof(struct options),
          "coefficient=0");
