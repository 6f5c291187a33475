/* What the tests of logit ops share: rows of logits with their statistics. */
#ifndef BL_TESTS_LOGITS_SUPPORT_H
#define BL_TESTS_LOGITS_SUPPORT_H

#include "kernel_support.h"

/* Rows of logits with their statistics; padding columns hold NaN, which nobody may read. */
struct rows {
    uint64_t n, vocab, stride;
    float *z;
    int32_t *targets, *argmax;
    double *lse, *target, *mean, *m2, *max, *pz;
};

static inline void *array(uint64_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    assert_non_null(p);
    return p;
}

static inline void rows_make(struct rows *r, uint64_t n, uint64_t vocab, uint64_t pad,
                             double offset, double spread)
{
    r->n = n;
    r->vocab = vocab;
    r->stride = vocab + pad;
    r->z = array(n * r->stride, sizeof *r->z);
    r->targets = array(n, sizeof *r->targets);
    r->argmax = array(n, sizeof *r->argmax);
    r->lse = array(n, sizeof(double));
    r->target = array(n, sizeof(double));
    r->mean = array(n, sizeof(double));
    r->m2 = array(n, sizeof(double));
    r->max = array(n, sizeof(double));
    r->pz = array(n, sizeof(double));
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t v = 0; v < r->stride; v++)
            r->z[i * r->stride + v] = v < vocab ? (float)(offset + spread * uniform()) : NAN;
        r->targets[i] = i % 5 == 4 ? -1 : (int32_t)((i * 7919 + 3) % vocab);
    }
}

static inline void rows_drop(struct rows *r)
{
    free(r->z);
    free(r->targets);
    free(r->argmax);
    free(r->lse);
    free(r->target);
    free(r->mean);
    free(r->m2);
    free(r->max);
    free(r->pz);
}

static inline void stats(struct bl_backend *b, struct rows *r)
{
    struct bl_logit_stats a = {.rows = r->n,
                               .vocab = r->vocab,
                               .stride = r->stride,
                               .act = BL_FP32,
                               .z = r->z,
                               .targets = r->targets,
                               .lse = r->lse,
                               .target = r->target,
                               .mean = r->mean,
                               .m2 = r->m2,
                               .max = r->max,
                               .pz = r->pz,
                               .argmax = r->argmax};
    b->ops->logit_stats(b, &a);
}

#endif
