/* Plain fp64 twins of the ops: the formulas of backend.h written as they stand, one loop each. */
#ifndef BL_TESTS_BACKEND_REF_H
#define BL_TESTS_BACKEND_REF_H

#include <stdint.h>

/* The nearest bf16 value (ties to even) of x, computed in fp64. */
double ref_bf16(double x);

/* y = x w^T + bias + residual (either may be NULL); size = sum of |terms|. */
void ref_linear(uint64_t rows, uint64_t in, uint64_t out, const double *x, const double *w,
                const double *bias, const double *residual, double *y, double *size);
/* dx = dy w, dw = dy^T x, dbias = column sums; each with the sum of |terms| (NULL = not wanted). */
void ref_linear_grad(uint64_t rows, uint64_t in, uint64_t out, const double *dy, const double *x,
                     const double *w, double *dx, double *dx_size, double *dw, double *dw_size,
                     double *dbias, double *dbias_size);

/* n vectors of `width`, one after the other. layer = 0: RMSNorm. bias may be NULL. */
void ref_norm(uint64_t n, uint64_t width, int layer, int bf16, double eps, const double *x,
              const double *weight, const double *bias, double *y, double *mean, double *rstd);
/* dx_size: rstd times the sum of the magnitudes that dx is made of. */
void ref_norm_grad(uint64_t n, uint64_t width, int layer, double eps, const double *dy,
                   const double *x, const double *weight, double *dx, double *dx_size,
                   double *dweight, double *dweight_size, double *dbias, double *dbias_size);

/* One vector of D at `position`, in place. */
void ref_rope(uint64_t head_dim, uint64_t position, double theta, int direction, double *x);

double ref_gelu(double x);
double ref_gelu_slope(double x);
double ref_silu(double x);
double ref_silu_slope(double x);

/* Largest |df/dx_i - gradient_i| by central differences over all n coordinates, relative to
 * 1 + the largest |gradient|. x is restored. */
double ref_difference(uint64_t n, double *x, double (*f)(void *context), void *context,
                      const double *gradient);

#endif
