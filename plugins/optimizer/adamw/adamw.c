/* optimizer adamw: Adam with decoupled weight decay.
 *
 *     x  = gradient_scale * gradient
 *     m  = beta1 m + (1 - beta1) x                 state "moment1"
 *     v  = beta2 v + (1 - beta2) x^2               state "moment2"
 *     c  = -( lr wd w + (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) )
 *     w  = w + update_scale * c
 *
 * t   1-based count of the parameter's updates     lr  schedule x optimizer.lr x the rule's
 * lr_scale wd  optimizer.weight_decay or the rule's         betas  default 0.9, 0.95 eps default
 * 1e-8; a rule may set another
 *
 * Source: Loshchilov and Hutter 2017, arXiv:1711.05101; Kingma and Ba 2014, arXiv:1412.6980. As in
 * PyTorch, the decay is multiplied by lr: a schedule that ends at zero ends the decay too.
 *
 * Rounding. Coefficients are computed in fp64 and rounded to fp32 once; each operation on an
 * element is one fp32 operation in the order written, without fused multiply-adds; square root and
 * division are IEEE. The same bits come out on every instruction set. Decay and step are added to
 * each other before they are added to w, so that w is rounded once. With e = 2^-24 one update is
 * within 5 e of fp64 in m and 8 e in v, relative to the sums of their absolute terms, and within
 * 17 e in c, relative to lr wd |w| + the second term with m's absolute terms in place of m
 * (adamw_test.c counts the roundings and checks all three).
 *
 * An element whose gradient is below about 1e-23 has v = 0 by underflow of its square; its step is
 * then lr m / eps.
 *
 * What it cannot do: round its moments (precision.moments does), or decay independently of lr.
 * With eps = 1e-8 an element with a gradient that is pure rounding noise moves by lr all the same.
 */
#include <math.h>

#include <ballast/optimizer.h>

#include "../isa.h"

struct options {
    struct bl_floats betas;
    double eps;
};

static const struct bl_option options[] = {
    {"betas", BL_OPTION_FLOATS, 0, "0.9,0.95", "[0,1)", "decay rates of the two moments",
     offsetof(struct options, betas)},
    {"eps", BL_OPTION_FLOAT, 0, "1e-8", "[1e-30,1]", "added to the root of the second moment",
     offsetof(struct options, eps)},
    {0}};

struct adamw {
    const struct bl_host *host;
    double beta1, beta2, eps;
    int avx2;
};

struct coefficients {
    float beta1, rest1, beta2, rest2;
    float gradient_scale, step, root, eps, decay, update_scale;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->betas.count != 2)
        return host->fail(host, err, "betas has %llu values, wants 2: betas = [ 0.9, 0.95 ]",
                          (unsigned long long)o->betas.count);
    struct adamw *a = host->allocate(host, sizeof(*a));
    if (a == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*a));
    a->host = host;
    a->beta1 = o->betas.values[0];
    a->beta2 = o->betas.values[1];
    a->eps = o->eps;
    a->avx2 = bl_use_avx2();
    *self = a;
    return 0;
}

static void destroy(void *self)
{
    struct adamw *a = self;
    if (a != NULL)
        a->host->release(a->host, a);
}

static uint32_t states(const void *self)
{
    (void)self;
    return 2;
}

static const char *state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "moment1" : i == 1 ? "moment2" : NULL;
}

static struct coefficients coefficients(const struct adamw *a, const struct bl_update *u)
{
    double t = (double)u->step;
    double eps = isnan(u->epsilon) ? a->eps : u->epsilon;
    struct coefficients c = {
        .beta1 = (float)a->beta1,
        .rest1 = (float)(1.0 - a->beta1),
        .beta2 = (float)a->beta2,
        .rest2 = (float)(1.0 - a->beta2),
        .gradient_scale = (float)u->gradient_scale,
        .step = (float)(u->learning_rate / (1.0 - pow(a->beta1, t))),
        .root = (float)(1.0 / sqrt(1.0 - pow(a->beta2, t))),
        .eps = (float)eps,
        .decay = (float)(u->learning_rate * u->weight_decay),
        .update_scale = (float)u->update_scale,
    };
    return c;
}

/* c of the manual; *m and *v become the new moments. */
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

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct adamw *a = self;
    const struct coefficients c = coefficients(a, u);
    (a->avx2 ? apply_avx2 : apply_scalar)(&c, end - begin, u->weight + begin, u->gradient + begin,
                                          u->state[0] + begin, u->state[1] + begin);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    enum { PIECE = 512 };
    const struct adamw *a = self;
    const struct coefficients c = coefficients(a, u);
    double buffer[PIECE], sum = 0.0;
    for (uint64_t at = begin; at < end; at += PIECE) {
        uint64_t n = end - at < PIECE ? end - at : PIECE;
        (a->avx2 ? squares_avx2 : squares_scalar)(&c, n, u->weight + at, u->gradient + at,
                                                  u->state[0] + at, u->state[1] + at, buffer);
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

BL_PLUGIN(BL_KIND_OPTIMIZER, "adamw", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
