/* What optimizers of Adam's family share: two options, two moments, the loops over elements.
 * Formula and roundings: adamw.c. */
#ifndef BL_OPTIMIZER_ADAM_H
#define BL_OPTIMIZER_ADAM_H

#include <math.h>

#include <ballast/optimizer.h>

#include "isa.h"

/* At the start of a plugin's options, and of its instance. */
struct bl_adam_options {
    struct bl_floats betas;
    double eps;
};

struct bl_adam {
    const struct bl_host *host;
    double beta1, beta2, eps;
    int avx2;
};

/* Rows of an option table whose struct begins with struct bl_adam_options. */
#define BL_ADAM_OPTIONS                                                                            \
    {"betas",                                                                                      \
     BL_OPTION_FLOATS,                                                                             \
     0,                                                                                            \
     "0.9,0.95",                                                                                   \
     "[0,1)",                                                                                      \
     "decay rates of the two moments",                                                             \
     offsetof(struct bl_adam_options, betas)},                                                     \
    {                                                                                              \
        "eps", BL_OPTION_FLOAT, 0, "1e-8", "[1e-30,1]", "added to the root of the second moment",  \
            offsetof(struct bl_adam_options, eps)                                                  \
    }

/* Allocates an instance of `bytes`, zeroed, that begins with struct bl_adam. */
static inline int32_t bl_adam_create(const struct bl_host *host, const struct bl_adam_options *o,
                                     uint64_t bytes, void **self, struct bl_error *err)
{
    if (o->betas.count != 2)
        return host->fail(host, err, "betas has %llu values, wants 2: betas = [ 0.9, 0.95 ]",
                          (unsigned long long)o->betas.count);
    struct bl_adam *a = host->allocate(host, bytes);
    if (a == NULL)
        return host->fail(host, err, "no memory for %llu bytes", (unsigned long long)bytes);
    a->host = host;
    a->beta1 = o->betas.values[0];
    a->beta2 = o->betas.values[1];
    a->eps = o->eps;
    a->avx2 = bl_use_avx2();
    *self = a;
    return 0;
}

static inline void bl_adam_destroy(void *self)
{
    struct bl_adam *a = self;
    if (a != NULL)
        a->host->release(a->host, a);
}

static inline uint32_t bl_adam_states(const void *self)
{
    (void)self;
    return 2;
}

static inline const char *bl_adam_state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "moment1" : i == 1 ? "moment2" : NULL;
}

struct bl_adam_coefficients {
    float beta1, rest1, beta2, rest2;
    float gradient_scale, step, root, eps, decay, update_scale;
};

/* Of one update of a parameter, with this learning rate and decay (lr times weight decay). */
static inline struct bl_adam_coefficients bl_adam_coefficients(const struct bl_adam *a,
                                                               const struct bl_update *u,
                                                               double learning_rate, double decay)
{
    double t = (double)u->step;
    double eps = isnan(u->epsilon) ? a->eps : u->epsilon;
    struct bl_adam_coefficients c = {
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .gradient_scale = (float)u->gradient_scale,
        .step = (float)(learning_rate / (1.0 - pow(a->beta1, t))),
        .root = (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))),
        .eps = (float)eps,
        .decay = (float)decay,
        .update_scale = (float)u->update_scale,
    };
    return c;
}

/* c of adamw.c from the scaled gradient x and what enters the second moment, x^2 or a mean of it;
 * *m and *v become the new moments. */
BL_LOOP float bl_adam_change(const struct bl_adam_coefficients *c, float w, float x, float squares,
                             float *m, float *v)
{
    *m = c->beta1 * *m + c->rest1 * x;
    *v = c->beta2 * *v + c->rest2 * squares;
    return -(c->decay * w + c->step * (*m / (sqrtf(*v) * c->root + c->eps)));
}

BL_LOOP void bl_adam_apply_loop(const struct bl_adam_coefficients *by_address, uint64_t n,
                                float *restrict w, const float *restrict g, float *restrict m,
                                float *restrict v)
{
    const struct bl_adam_coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        float mi = m[i], vi = v[i];
        float x = g[i] * c.gradient_scale, ci = bl_adam_change(&c, w[i], x, x * x, &mi, &vi);
        m[i] = mi;
        v[i] = vi;
        w[i] = w[i] + c.update_scale * ci;
    }
}

BL_LOOP void bl_adam_squares_loop(const struct bl_adam_coefficients *by_address, uint64_t n,
                                  const float *restrict w, const float *restrict g,
                                  const float *restrict m, const float *restrict v,
                                  double *restrict squares)
{
    const struct bl_adam_coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        float mi = m[i], vi = v[i];
        float x = g[i] * c.gradient_scale;
        float w_new = w[i] + bl_adam_change(&c, w[i], x, x * x, &mi, &vi);
        double d = (double)w_new - (double)w[i];
        squares[i] = d * d;
    }
}

BL_TWICE(void, bl_adam_apply,
         (const struct bl_adam_coefficients *c, uint64_t n, float *restrict w,
          const float *restrict g, float *restrict m, float *restrict v),
         (c, n, w, g, m, v))
BL_TWICE(void, bl_adam_squares,
         (const struct bl_adam_coefficients *c, uint64_t n, const float *restrict w,
          const float *restrict g, const float *restrict m, const float *restrict v,
          double *restrict out),
         (c, n, w, g, m, v, out))

static inline void bl_adam_update(const struct bl_adam *a, const struct bl_adam_coefficients *c,
                                  const struct bl_update *u, uint64_t begin, uint64_t end)
{
    (a->avx2 ? bl_adam_apply_avx2 : bl_adam_apply_scalar)(c, end - begin, u->weight + begin,
                                                          u->gradient + begin, u->state[0] + begin,
                                                          u->state[1] + begin);
}

static inline double bl_adam_measure(const struct bl_adam *a, const struct bl_adam_coefficients *c,
                                     const struct bl_update *u, uint64_t begin, uint64_t end)
{
    enum { PIECE = 512 };
    double buffer[PIECE], sum = 0.0;
    for (uint64_t at = begin; at < end; at += PIECE) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        (a->avx2 ? bl_adam_squares_avx2 : bl_adam_squares_scalar)(
            c, n, u->weight + at, u->gradient + at, u->state[0] + at, u->state[1] + at, buffer);
        for (uint64_t i = 0; i < n; i++)
            sum += buffer[i];
    }
    return sum;
}

#endif
