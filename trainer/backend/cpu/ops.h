/* The ops of one instruction set, as ops.c puts them into the table. */
#ifndef BL_BACKEND_CPU_OPS_H
#define BL_BACKEND_CPU_OPS_H

#include "backend/cpu/cpu.h"

extern const struct bl_backend_ops bl_cpu_ops_scalar;
extern const struct bl_backend_ops bl_cpu_ops_avx2;
extern const struct bl_backend_ops bl_cpu_ops_avx512;

#ifdef BL_ISA
void BL_CPU(linear)(struct bl_backend *b, const struct bl_linear *a);
void BL_CPU(linear_grad)(struct bl_backend *b, const struct bl_linear_grad *a);
void BL_CPU(norm)(struct bl_backend *b, const struct bl_norm *a);
void BL_CPU(norm_grad)(struct bl_backend *b, const struct bl_norm_grad *a);
void BL_CPU(rope)(struct bl_backend *b, const struct bl_rope *a);
void BL_CPU(attention)(struct bl_backend *b, const struct bl_attention *a);
void BL_CPU(attention_grad)(struct bl_backend *b, const struct bl_attention_grad *a);
void BL_CPU(embedding)(struct bl_backend *b, const struct bl_embedding *a);
void BL_CPU(embedding_grad)(struct bl_backend *b, const struct bl_embedding_grad *a);
void BL_CPU(gelu)(struct bl_backend *b, uint64_t n, const void *x, void *y, uint32_t act);
void BL_CPU(gelu_grad)(struct bl_backend *b, uint64_t n, const void *x, const void *dy, void *dx,
                       uint32_t act);
void BL_CPU(swiglu)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                    void *y, uint32_t act);
void BL_CPU(swiglu_grad)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                         const void *dy, void *dgate_up, uint32_t act);
void BL_CPU(add)(struct bl_backend *b, uint64_t n, const void *a, const void *c, void *y,
                 uint32_t act);
void BL_CPU(logit_stats)(struct bl_backend *b, const struct bl_logit_stats *a);
void BL_CPU(logit_grad)(struct bl_backend *b, const struct bl_logit_grad *a);
void BL_CPU(softcap)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride, float c,
                     void *z, uint32_t act);
void BL_CPU(softcap_grad)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                          float c, const void *z, void *dz, uint32_t act);
void BL_CPU(row_scale)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                       const double *scale, void *z, uint32_t act);
void BL_CPU(row_scale_grad)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                            const double *scale, const double *d_mean, const double *d_m2,
                            const double *mean, const void *z, void *dz, uint32_t act);
void BL_CPU(round)(struct bl_backend *b, uint64_t n, const float *x, float *y, uint32_t dtype);
void BL_CPU(accumulate)(struct bl_backend *b, uint64_t n, const float *x, float *sum,
                        uint32_t dtype);
double BL_CPU(sum_squares)(struct bl_backend *b, uint64_t n, const float *x);
void BL_CPU(block_squares)(struct bl_backend *b, uint64_t n, const float *x, double *sums);
double BL_CPU(dot)(struct bl_backend *b, uint64_t n, const float *x, const float *y);
#endif

#endif
