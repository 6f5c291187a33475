/* mu_centering: after each update, takes the mean row out of the output matrix.
 *
 *     mu_c = (1/V) sum_v W_vc        W_vc <- W_vc - mu_c
 *
 *     W     output matrix (V, C), true vocabulary only; z = W h
 *     mu    its mean row (C,)
 *
 * Every update is followed by one projection; there are no options.
 *
 * Why: with an untied output matrix W and W + 1 a^T give the same softmax for every a, so the mean
 * row is a direction without any gradient, in which optimizer and rounding errors push freely:
 * it shifts the mean logit by mu . h. Removing it leaves every probability as it was.
 * Source: output embedding centering, arXiv:2601.02031 (mu-centering).
 *
 * Sums are fp64 over blocks of 256 rows, added in block order: the same bits with any number of
 * threads.
 *
 * What it cannot do: bound the spread of the logits. With tied weights the matrix is the embedding
 * too, where the mean row matters, so the projection changes the loss; a warning says so once.
 * Moments in the optimizer are left alone.
 *
 * No null setting: leave it out.
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
    if (host->info != NULL && host->info->tied)
        host->log(host, BL_LOG_WARNING,
                  "the weights are tied, so the output matrix is the embedding too: "
                  "centering changes the loss; set model.tied = false for a neutral projection");
    *self = s;
    return 0;
}

static int32_t project_weight(void *self, const struct bl_host *host, struct bl_tensor *head,
                              struct bl_error *err)
{
    struct self *s = self;
    if (!bl_columns_fits(head))
        return host->fail(host, err, "%s is no fp32 matrix in host memory", head->name);
    if (bl_columns_mean(&s->columns, head) != 0)
        return host->fail(host, err, "no memory for the column sums of %s", head->name);
    bl_columns_subtract(&s->columns, head, 1);
    return 0;
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .destroy = destroy,
    .project_weight = project_weight,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "mu_centering", "1.0", BL_DEVICE_CPU, ops, table, 0, NULL);
