/* optimizer sgd: stochastic gradient descent with momentum.
 *
 *     x  = gradient_scale * gradient               [+ wd w with decay = "l2"]
 *     b  = momentum b + x                          state "momentum", only with momentum > 0
 *     d  = b, or x + momentum b with nesterov, or x with momentum = 0
 *     c  = -( lr d + lr wd w )                     lr wd w only with decay = "decoupled"
 *     w  = w + update_scale * c
 *
 * lr  schedule x optimizer.lr x the rule's lr_scale      wd  optimizer.weight_decay or the rule's
 * momentum  default 0        nesterov  default false, needs momentum > 0
 * decay     "decoupled" (default) or "l2". Without momentum both are the same but for rounding;
 *           with momentum "l2", which is what PyTorch's SGD does, sends the decay through the
 *           buffer, where it grows to wd / (1 - momentum).
 *
 * Dampening is 0: the buffer starts as the first gradient. Sources: Polyak 1964; Sutskever et al.
 * 2013 (the form with lr outside of the buffer); Loshchilov and Hutter 2017, arXiv:1711.05101, for
 * the decay.
 *
 * Rounding. Coefficients are computed in fp64 and rounded to fp32 once; one fp32 operation each in
 * the order written, no fused multiply-adds: the same bits on every instruction set. With
 * e = 2^-24 an update's change is within 10 e of fp64, relative to the sum of its absolute terms.
 *
 * What it cannot do: adapt to the scale of a parameter, or keep its buffer in another format.
 */
#include <math.h>

#include <ballast/optimizer.h>

#include "../isa.h"

enum { DECOUPLED, L2 };

struct options {
    double momentum;
    int32_t nesterov, decay;
};

static const struct bl_option options[] = {
    {"momentum", BL_OPTION_FLOAT, 0, "0.0", "[0,1)", "decay rate of the buffer; 0 = no buffer",
     offsetof(struct options, momentum)},
    {"nesterov", BL_OPTION_BOOL, 0, "false", NULL, "look one step ahead along the buffer",
     offsetof(struct options, nesterov)},
    {"decay", BL_OPTION_CHOICE, 0, "decoupled", "decoupled|l2",
     "where the weight decay goes: into the update, or into the gradient",
     offsetof(struct options, decay)},
    {0}};

struct sgd {
    const struct bl_host *host;
    const struct options *options;
    int avx2;
};

struct coefficients {
    float gradient_scale, l2, momentum, step, decay, update_scale;
    int buffer, nesterov;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->nesterov && o->momentum == 0.0)
        return host->fail(host, err,
                          "nesterov = true needs a momentum above 0: write momentum = 0.9, or "
                          "leave nesterov out");
    struct sgd *s = host->allocate(host, sizeof(*s));
    if (s == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*s));
    s->host = host;
    s->options = o;
    s->avx2 = bl_use_avx2();
    *self = s;
    return 0;
}

static void destroy(void *self)
{
    struct sgd *s = self;
    if (s != NULL)
        s->host->release(s->host, s);
}

static uint32_t states(const void *self)
{
    const struct sgd *s = self;
    return s->options->momentum > 0.0 ? 1 : 0;
}

static const char *state_name(const void *self, uint32_t i)
{
    return i < states(self) ? "momentum" : NULL;
}

static struct coefficients coefficients(const struct sgd *s, const struct bl_update *u)
{
    const struct options *o = s->options;
    struct coefficients c = {
        .gradient_scale = (float)u->gradient_scale,
        .l2 = o->decay == L2 ? (float)u->weight_decay : 0.0f,
        .momentum = (float)o->momentum,
        .step = (float)u->learning_rate,
        .decay = o->decay == DECOUPLED ? (float)(u->learning_rate * u->weight_decay) : 0.0f,
        .update_scale = (float)u->update_scale,
        .buffer = o->momentum > 0.0,
        .nesterov = o->nesterov,
    };
    return c;
}

/* c of the manual; *b becomes the new buffer. */
BL_LOOP float change(const struct coefficients *c, float w, float gradient, float *b)
{
    float x = gradient * c->gradient_scale + c->l2 * w;
    float d = x;
    if (c->buffer) {
        *b = c->momentum * *b + x;
        d = c->nesterov ? x + c->momentum * *b : *b;
    }
    return -(c->step * d + c->decay * w);
}

/* b is not touched, and may be NULL, when there is no buffer. */
BL_LOOP void apply_loop(const struct coefficients *by_address, uint64_t n, float *restrict w,
                        const float *restrict g, float *restrict b)
{
    const struct coefficients c = *by_address;
    if (c.buffer) {
        BL_SIMD
        for (uint64_t i = 0; i < n; i++) {
            float bi = b[i];
            float ci = change(&c, w[i], g[i], &bi);
            b[i] = bi;
            w[i] = w[i] + c.update_scale * ci;
        }
    } else {
        BL_SIMD
        for (uint64_t i = 0; i < n; i++) {
            float none = 0.0f;
            w[i] = w[i] + c.update_scale * change(&c, w[i], g[i], &none);
        }
    }
}

BL_TWICE(void, apply,
         (const struct coefficients *c, uint64_t n, float *restrict w, const float *restrict g,
          float *restrict b),
         (c, n, w, g, b))

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct sgd *s = self;
    const struct coefficients c = coefficients(s, u);
    (s->avx2 ? apply_avx2 : apply_scalar)(&c, end - begin, u->weight + begin, u->gradient + begin,
                                          c.buffer ? u->state[0] + begin : NULL);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct coefficients c = coefficients(self, u);
    double sum = 0.0;
    for (uint64_t i = begin; i < end; i++) {
        float b = c.buffer ? u->state[0][i] : 0.0f;
        float w_new = u->weight[i] + change(&c, u->weight[i], u->gradient[i], &b);
        double d = (double)w_new - (double)u->weight[i];
        sum += d * d;
    }
    return sum;
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply};

BL_PLUGIN(BL_KIND_OPTIMIZER, "sgd", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
