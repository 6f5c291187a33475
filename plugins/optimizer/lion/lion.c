/* optimizer lion: steps of one size, in the direction of the momentum's sign.
 *
 *     x = gradient_scale * gradient
 *     c = -( lr wd w + lr sign(beta1 m + (1 - beta1) x) )     sign(0) = 0
 *     w = w + update_scale * c
 *     m = beta2 m + (1 - beta2) x                             state "moment1"
 *
 * lr   schedule x optimizer.lr x the rule's lr_scale     wd   optimizer.weight_decay or the rule's
 * betas   default 0.9, 0.99
 *
 * Source: Chen et al. 2023, arXiv:2302.06675, which advises a learning rate 3 to 10 times smaller
 * than AdamW's and a weight decay as much larger.
 *
 * Rounding. Coefficients are rounded to fp32 once, each operation on an element is one fp32
 * operation in the order written: the same bits on every instruction set. An element that is not a
 * number stays one.
 *
 * What it cannot do: make a small step where the gradient is small: every element moves by lr or
 * not at all, also where its gradient is rounding noise. A rule's eps is refused, there is none.
 */
#include <math.h>

#include <ballast/optimizer.h>

#include "../isa.h"

struct options {
    struct bl_floats betas;
};

static const struct bl_option options[] = {{"betas", BL_OPTION_FLOATS, 0, "0.9,0.99", "[0,1)",
                                            "weight of the momentum in the step, and its decay",
                                            offsetof(struct options, betas)},
                                           {0}};

struct lion {
    const struct bl_host *host;
    double beta1, beta2;
    int avx2;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->betas.count != 2)
        return host->fail(host, err, "betas has %llu values, wants 2: betas = [ 0.9, 0.99 ]",
                          (unsigned long long)o->betas.count);
    struct lion *a = host->allocate(host, sizeof(*a));
    if (a == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*a));
    a->host = host;
    a->beta1 = o->betas.values[0];
    a->beta2 = o->betas.values[1];
    a->avx2 = bl_use_avx2();
    *self = a;
    return 0;
}

static void destroy(void *self)
{
    struct lion *a = self;
    if (a != NULL)
        a->host->release(a->host, a);
}

static uint32_t states(const void *self)
{
    (void)self;
    return 1;
}

static const char *state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "moment1" : NULL;
}

struct coefficients {
    float beta1, rest1, beta2, rest2, gradient_scale, rate, decay, update_scale;
};

static struct coefficients coefficients(const struct lion *a, const struct bl_update *u)
{
    return (struct coefficients){
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .gradient_scale = (float)u->gradient_scale,
        .rate = (float)u->learning_rate,
        .decay = (float)(u->learning_rate * u->weight_decay),
        .update_scale = (float)u->update_scale,
    };
}

/* c of the manual. */
BL_LOOP float change(const struct coefficients *c, float w, float gradient, float m)
{
    float x = gradient * c->gradient_scale, d = c->beta1 * m + c->rest1 * x;
    float step = d > 0 ? c->rate : d < 0 ? -c->rate : d; /* 0 or not a number */
    return -(c->decay * w + step);
}

BL_LOOP void apply_loop(const struct coefficients *by_address, uint64_t n, float *restrict w,
                        const float *restrict g, float *restrict m)
{
    const struct coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        w[i] = w[i] + c.update_scale * change(&c, w[i], g[i], m[i]);
        m[i] = c.beta2 * m[i] + c.rest2 * (g[i] * c.gradient_scale);
    }
}

BL_LOOP void squares_loop(const struct coefficients *by_address, uint64_t n,
                          const float *restrict w, const float *restrict g, const float *restrict m,
                          double *restrict squares)
{
    const struct coefficients c = *by_address;
    BL_SIMD
    for (uint64_t i = 0; i < n; i++) {
        float w_new = w[i] + change(&c, w[i], g[i], m[i]);
        double d = (double)w_new - (double)w[i];
        squares[i] = d * d;
    }
}

BL_TWICE(void, apply,
         (const struct coefficients *c, uint64_t n, float *restrict w, const float *restrict g,
          float *restrict m),
         (c, n, w, g, m))
BL_TWICE(void, squares,
         (const struct coefficients *c, uint64_t n, const float *restrict w,
          const float *restrict g, const float *restrict m, double *restrict out),
         (c, n, w, g, m, out))

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct lion *a = self;
    const struct coefficients c = coefficients(a, u);
    (a->avx2 ? apply_avx2 : apply_scalar)(&c, end - begin, u->weight + begin, u->gradient + begin,
                                          u->state[0] + begin);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    enum { PIECE = 512 };
    const struct lion *a = self;
    const struct coefficients c = coefficients(a, u);
    double buffer[PIECE], sum = 0.0;
    for (uint64_t at = begin; at < end; at += PIECE) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        (a->avx2 ? squares_avx2 : squares_scalar)(&c, n, u->weight + at, u->gradient + at,
                                                  u->state[0] + at, buffer);
        for (uint64_t i = 0; i < n; i++)
            sum += buffer[i];
    }
    return sum;
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply};

BL_PLUGIN(BL_KIND_OPTIMIZER, "lion", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
