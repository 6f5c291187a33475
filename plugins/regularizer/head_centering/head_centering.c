/* head_centering: takes the rounding leak out of the gradient of the output matrix.
 *
 *     G_ce[v] -= (1/V) sum_u G_ce[u]        so that 1^T G_ce = 0
 *
 *     G_ce  cross-entropy part of the reduced gradient of the output matrix, (V, C)
 *     V     true vocabulary, C width
 *
 * Once per update, after the reduction over ranks, before the guards. No options.
 *
 * Why: cross-entropy does not change when one vector a is added to every row of the output matrix,
 * so in exact arithmetic the columns of G_ce sum to zero: sum_v (p_v - y_v) = 0. Rounding breaks
 * that. A reduction whose partial sums are bf16 loses the many small terms against the few large
 * ones, with a sign, and what it loses is a force along 1 a^T that no loss can see or undo: the
 * mean logit and log Z move. The projection restores the exact property.
 *
 * Other regularizers keep their force along 1 a^T: the cross-entropy part and the rest are added up
 * over the ranks apart, the first is projected, then they are joined. (Projecting a part of a
 * rounded sum would leave the rounding of the sum.) What the rounding of the rest itself leaks
 * stays. Measured over a ring of 32 ranks, V = 4096, with z_loss at 1e-4, 1e-2 and 1: a bf16 wire
 * and sum under fp32 gradients leave 1e-4 of z_loss's force at each; fsdp_bf16, where each
 * micro-batch's whole and part are rounded to bf16, 1.3, 0.3 and 0.2 percent. The leak without
 * centering was 9.4 times the force at 1e-4.
 *
 * Source: derived from the softmax's shift invariance; that the sum is zero, and that SGD then
 * conserves the mean row, is proved in Stollenwerk and Stollenwerk 2025, arXiv:2502.08441.
 *
 * Cost: the gradient of the output matrix is kept twice, (V, C) fp32 more. With another regularizer
 * beside it the head's backward pass forms the gradient of the logits and its product with the
 * activations a second time: beside z_loss 11 percent of a step of a small model with V = 4096
 * (tests/bench/README.md). With a sharded optimizer the whole gradient is gathered.
 *
 * What it cannot do: stop Adam's own drift, which comes from second moments that differ by token
 * (optimizer coupled_adam does); undo a drift that is there already; separate the two parts of a
 * gradient that was rounded as a whole (bf16 dlogits, gradient or accumulate): what that rounding
 * leaks stays in the rest. Where cross-entropy feels a common offset its column sums are a force
 * and not a leak: refused with tied weights, model.logit_softcap, and transforms like logit_softcap
 * and logit_norm. logits/gauge_leak is that of the cross-entropy part after the projection. Monitor
 * reduction sees the cross-entropy part of the head before it, in the head's group and in the
 * total.
 */
#include <ballast/regularizer.h>

#include "../columns.h"

static const struct bl_option table[] = {
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct self {
    const struct bl_host *host;
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
    (void)options;
    struct self *s = host->allocate(host, sizeof *s);
    if (s == NULL)
        return host->fail(host, err, "no memory");
    s->host = s->columns.host = host;
    *self = s;
    return 0;
}

static int32_t project_grad(void *self, const struct bl_host *host, struct bl_tensor *gradient,
                            struct bl_error *err)
{
    struct self *s = self;
    if (!bl_columns_fits(gradient))
        return host->fail(host, err, "%s is no fp32 matrix in host memory", gradient->name);
    if (bl_columns_mean(&s->columns, gradient) != 0)
        return host->fail(host, err, "no memory for the column sums of %s", gradient->name);
    bl_columns_subtract(&s->columns, gradient, 1);
    return 0;
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .destroy = destroy,
    .project_grad = project_grad,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "head_centering", "1.0", BL_DEVICE_CPU, ops, table, 0, NULL);
