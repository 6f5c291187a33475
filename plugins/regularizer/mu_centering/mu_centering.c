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

enum { BLOCK = 256 };

static const struct bl_option table[] = {
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct self {
    const struct bl_host *host;
    double *sums;      /* (blocks, C), then mu in the first row */
    uint64_t capacity; /* doubles in sums */
};

/* One projection, cut in blocks of rows. */
struct job {
    float *w; /* (rows, cols) */
    uint64_t rows, cols;
    double *sums;
};

static uint64_t block_end(const struct job *j, uint64_t block)
{
    uint64_t end = (block + 1) * BLOCK;
    return end < j->rows ? end : j->rows;
}

static void sum_block(void *argument, uint64_t block)
{
    const struct job *j = argument;
    double *sum = j->sums + block * j->cols;
    for (uint64_t c = 0; c < j->cols; c++)
        sum[c] = 0;
    for (uint64_t v = block * BLOCK; v < block_end(j, block); v++)
        for (uint64_t c = 0; c < j->cols; c++)
            sum[c] += (double)j->w[v * j->cols + c];
}

static void subtract_block(void *argument, uint64_t block)
{
    const struct job *j = argument;
    for (uint64_t v = block * BLOCK; v < block_end(j, block); v++)
        for (uint64_t c = 0; c < j->cols; c++)
            j->w[v * j->cols + c] = (float)((double)j->w[v * j->cols + c] - j->sums[c]);
}

static void destroy(void *self)
{
    struct self *s = self;
    if (s == NULL)
        return;
    s->host->release(s->host, s->sums);
    s->host->release(s->host, s);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)options;
    struct self *s = host->allocate(host, sizeof *s);
    if (s == NULL)
        return host->fail(host, err, "no memory");
    s->host = host;
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
    if (head->ndim != 2 || head->dtype != BL_FP32 || head->device != BL_DEVICE_CPU)
        return host->fail(host, err, "%s is no fp32 matrix in host memory", head->name);
    struct job j = {head->data, head->dims[0], head->dims[1], NULL};
    uint64_t blocks = (j.rows + BLOCK - 1) / BLOCK, need = blocks * j.cols;
    if (need > s->capacity) {
        double *sums = host->allocate(host, need * sizeof *sums);
        if (sums == NULL)
            return host->fail(host, err, "no memory for %llu column sums",
                              (unsigned long long)need);
        host->release(host, s->sums);
        s->sums = sums;
        s->capacity = need;
    }
    j.sums = s->sums;
    host->parallel_for(host, blocks, sum_block, &j);
    for (uint64_t c = 0; blocks > 0 && c < j.cols; c++) {
        double sum = j.sums[c];
        for (uint64_t b = 1; b < blocks; b++)
            sum += j.sums[b * j.cols + c];
        j.sums[c] = sum / (double)j.rows;
    }
    host->parallel_for(host, blocks, subtract_block, &j);
    return 0;
}

static const struct bl_regularizer_ops ops = {
    .create = create,
    .destroy = destroy,
    .project_weight = project_weight,
};

BL_PLUGIN(BL_KIND_REGULARIZER, "mu_centering", "1.0", BL_DEVICE_CPU, ops, table, 0, NULL);
