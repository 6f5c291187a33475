/* Regularizers: terms on the output logits or the output matrix, transforms, projections.
 *
 * Symbols: V true vocabulary (padding excluded), z_v logits of one token, y its target,
 * p = softmax(z), Z = sum_v exp z_v, N unmasked targets of the global batch.
 *
 * loss/total = loss/ce + sum over instances of coefficient * value. The host multiplies by the
 * coefficient; ops return the plain value and its plain derivatives.
 */
#ifndef BALLAST_REGULARIZER_H
#define BALLAST_REGULARIZER_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Bits of bl_regularizer_ops.needs and of what bl_row_stats carries. */
enum bl_row_need {
    BL_NEED_PZ = 1 /* pz: one more pass over the logits */
};

/* Statistics of n rows of logits, one array each, fp64 (n,). A pointer is NULL when nobody asked
 * for it. Computed in blocks merged by Chan's formula, so that the spread survives a large mean. */
struct bl_row_stats {
    uint32_t size;
    uint32_t reserved;
    uint64_t count;        /* n */
    uint64_t vocab;        /* V */
    const double *lse;     /* log sum_v exp z_v */
    const double *target;  /* z_y; unspecified where masked */
    const double *mean;    /* (1/V) sum z_v */
    const double *m2;      /* sum (z_v - mean)^2 */
    const double *max;     /* max_v z_v */
    const int32_t *argmax; /* first index that attains it */
    const double *pz;      /* sum_v p_v z_v (BL_NEED_PZ) */
    const uint8_t *valid;  /* 0: masked; the host gives such a row no weight */
};

/* What a row contributes: value and partial derivatives by the statistics, each (n,), zeroed by
 * the host; write at index i only. The host forms
 *   dz_v = d_lse p_v + d_target 1[v=y] + d_mean / V + 2 d_m2 (z_v - mean) + d_max 1[v=argmax]
 *          + d_pz p_v (1 + z_v - pz). */
struct bl_row_grads {
    uint32_t size;
    uint32_t reserved;
    double *value;
    double *d_lse, *d_target, *d_mean, *d_m2, *d_max, *d_pz;
};

/* Row scale of a transform, each (n,): z' = scale * z, with scale a function of the row's mean and
 * m2 before the transform. */
struct bl_row_scale {
    uint32_t size;
    uint32_t reserved;
    double *scale, *d_mean, *d_m2; /* d scale / d mean, d scale / d m2 */
};

struct bl_regularizer_ops {
    BL_COMMON_OPS;
    uint32_t needs; /* bl_row_need bits */
    uint32_t reserved;

    /* Weight of the term at update `step` (1-based). Required with rows or weight_grad. */
    double (*coefficient)(const void *self, uint64_t step);
    /* Maps statistics to value and derivatives, rows [begin, end). Called from several threads. */
    void (*rows)(const void *self, const struct bl_row_stats *stats, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end);

    /* Transforms, in config order, before the loss sees the logits; at most one of the two.
     * element: y = f(x), dy = f'(x), n contiguous values; y or dy may be NULL, y may be x.
     * row_scale: rows [begin, end). Both from several threads. */
    void (*element)(const void *self, uint64_t n, const float *x, float *y, float *dy);
    void (*row_scale)(const void *self, const struct bl_row_stats *before,
                      const struct bl_row_scale *out, uint64_t begin, uint64_t end);

    /* Once per update, on the reduced gradient, before guards. head (V, C) fp32.
     * weight_grad: returns the plain value; unless gradient is NULL adds
     * coefficient * d value / d head to gradient (V, C). */
    double (*weight_grad)(void *self, const struct bl_host *host, const struct bl_tensor *head,
                          struct bl_tensor *gradient, double coefficient);
    /* Changes the reduced gradient of the output matrix (its cross-entropy part) in place. */
    int32_t (*project_grad)(void *self, const struct bl_host *host, struct bl_tensor *gradient,
                            struct bl_error *err);
    /* Changes the output matrix in place after the update; the working copy follows. */
    int32_t (*project_weight)(void *self, const struct bl_host *host, struct bl_tensor *head,
                              struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
