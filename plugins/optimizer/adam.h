/* Adam's loops, for all optimizers whose elements are Adam's: see adamw.c for formula and
 * roundings. */
#ifndef BL_OPTIMIZER_ADAM_H
#define BL_OPTIMIZER_ADAM_H

#include <math.h>

#include <ballast/optimizer.h>

#include "isa.h"

struct coefficients {
    float beta1, rest1, beta2, rest2;
    float gradient_scale, step, root, eps, decay, update_scale;
};

/* Coefficients of one update of a parameter; decay, lr times weight decay, is the caller's. */
static inline struct coefficients coefficients_of(const struct bl_update *u, double beta1,
                                                  double beta2, double own_eps,
                                                  double learning_rate, double decay)
{
    double t = (double)u->step;
    double eps = isnan(u->epsilon) ? own_eps : u->epsilon;
    struct coefficients c = {
        .beta1 = (float)beta1,
        .rest1 = (float)(1.0 - beta1),
        .beta2 = (float)beta2,
        .rest2 = (float)(1.0 - beta2),
        .gradient_scale = (float)u->gradient_scale,
        .step = (float)(learning_rate / (1.0 - pow(beta1, t))),
        .root = (float)(1.0 / sqrt(1.0 - pow(beta2, t))),
        .eps = (float)eps,
        .decay = (float)decay,
        .update_scale = (float)u->update_scale,
    };
    return c;
}

/* c of adamw.c; *m and *v become the new moments. */
BL_LOOP float change(const struct coefficients *c, float w, float gradient, float *m, float *v)
{
    float x = gradient * c->gradient_scale;
    *m = c->beta1 * *m + c->rest1 * x;
    *v = c->beta2 * *v + c->rest2 * (x * x);
    return -(c->decay * w + c->step * (*m / (sqrtf(*v) * c->root + c->eps)));
}

BL_LOOP void apply_loop(const struct coefficients *by_address, uint64_t n, float *restrict w,
                        const float *restrict g, float *restrict m, float *restrict v)
{
    const struct coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        float mi = m[i], vi = v[i];
        float ci = change(&c, w[i], g[i], &mi, &vi);
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] + c.update_scale * ci;
    }
}

BL_LOOP void squares_loop(const struct coefficients *by_address, uint64_t n,
                          const float *restrict w, const float *restrict g, const float *restrict m,
                          const float *restrict v, double *restrict squares)
{
    const struct coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        float mi = m[i], vi = v[i];
        float w_new = w[i] + change(&c, w[i], g[i], &mi, &vi);
        double d = (double)w_new - (double)w[i];
        squares[i] = d * d;
    }
}

BL_TWICE(void, apply,
         (const struct coefficients *c, uint64_t n, float *restrict w, const float *restrict g,
          float *restrict m, float *restrict v),
         (c, n, w, g, m, v))
BL_TWICE(void, squares,
         (const struct coefficients *c, uint64_t n, const float *restrict w,
          const float *restrict g, const float *restrict m, const float *restrict v,
          double *restrict out),
         (c, n, w, g, m, v, out))

static inline void adam_apply(int avx2, const struct coefficients *c, const struct bl_update *u,
                              uint64_t begin, uint64_t end)
{
    (avx2 ? apply_avx2 : apply_scalar)(c, end - begin, u->weight + begin, u->gradient + begin,
                                       u->state[0] + begin, u->state[1] + begin);
}

static inline double adam_prepare(int avx2, const struct coefficients *c, const struct bl_update *u,
                                  uint64_t begin, uint64_t end)
{
    enum { PIECE = 512 };
    double buffer[PIECE], sum = 0.0;
    for (uint64_t at = begin; at < end; at += PIECE) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        (avx2 ? squares_avx2 : squares_scalar)(c, n, u->weight + at, u->gradient + at,
                                               u->state[0] + at, u->state[1] + at, buffer);
        for (uint64_t i = 0; i < n; i++)
            sum += buffer[i];
    }
    return sum;
}

#endif
