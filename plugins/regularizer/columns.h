/* The mean row of a matrix (rows, columns), and taking it away: what mu_loss, mu_centering and
 * head_centering share. fp64 sums of fixed blocks of rows, combined in order: the same bits for any
 * number of threads. */
#ifndef BL_REGULARIZER_COLUMNS_H
#define BL_REGULARIZER_COLUMNS_H

#include <ballast/plugin.h>

enum { BL_COLUMNS_BLOCK = 256 }; /* rows */

struct bl_columns {
    const struct bl_host *host;
    double *mean;      /* (columns,) of the last bl_columns_mean; the blocks' sums follow it */
    uint64_t capacity; /* doubles there */
};

struct bl_columns_job {
    float *w; /* (rows, columns) */
    uint64_t rows, columns;
    double *sums; /* (blocks, columns), or what to subtract (columns,) */
    double factor;
};

static inline uint64_t bl_columns_end(const struct bl_columns_job *j, uint64_t block)
{
    uint64_t end = (block + 1) * BL_COLUMNS_BLOCK;
    return end < j->rows ? end : j->rows;
}

static inline void bl_columns_sum_block(void *argument, uint64_t block)
{
    const struct bl_columns_job *j = argument;
    double *sum = j->sums + block * j->columns;
    for (uint64_t c = 0; c < j->columns; c++)
        sum[c] = 0;
    for (uint64_t v = block * BL_COLUMNS_BLOCK; v < bl_columns_end(j, block); v++)
        for (uint64_t c = 0; c < j->columns; c++)
            sum[c] += (double)j->w[v * j->columns + c];
}

static inline void bl_columns_subtract_block(void *argument, uint64_t block)
{
    const struct bl_columns_job *j = argument;
    for (uint64_t v = block * BL_COLUMNS_BLOCK; v < bl_columns_end(j, block); v++)
        for (uint64_t c = 0; c < j->columns; c++)
            j->w[v * j->columns + c] =
                (float)((double)j->w[v * j->columns + c] - j->factor * j->sums[c]);
}

/* c->mean := mean over the rows. -1: no memory, c is as it was. */
static inline int bl_columns_mean(struct bl_columns *c, const struct bl_tensor *matrix)
{
    struct bl_columns_job j = {matrix->data, matrix->dims[0], matrix->dims[1], NULL, 0};
    uint64_t blocks = (j.rows + BL_COLUMNS_BLOCK - 1) / BL_COLUMNS_BLOCK;
    uint64_t need = blocks * j.columns;
    if (need > c->capacity) {
        double *mean = c->host->allocate(c->host, need * sizeof *mean);
        if (mean == NULL)
            return -1;
        c->host->release(c->host, c->mean);
        c->mean = mean;
        c->capacity = need;
    }
    j.sums = c->mean;
    c->host->parallel_for(c->host, blocks, bl_columns_sum_block, &j);
    for (uint64_t i = 0; blocks > 0 && i < j.columns; i++) {
        double sum = c->mean[i];
        for (uint64_t b = 1; b < blocks; b++)
            sum += c->mean[b * j.columns + i];
        c->mean[i] = sum / (double)j.rows;
    }
    return 0;
}

/* Every row -= factor * c->mean; each element is rounded once. */
static inline void bl_columns_subtract(const struct bl_columns *c, struct bl_tensor *matrix,
                                       double factor)
{
    struct bl_columns_job j = {matrix->data, matrix->dims[0], matrix->dims[1], c->mean, factor};
    uint64_t blocks = (j.rows + BL_COLUMNS_BLOCK - 1) / BL_COLUMNS_BLOCK;
    c->host->parallel_for(c->host, blocks, bl_columns_subtract_block, &j);
}

static inline int bl_columns_fits(const struct bl_tensor *matrix)
{
    return matrix->ndim == 2 && matrix->dtype == BL_FP32 && matrix->device == BL_DEVICE_CPU;
}

#endif
