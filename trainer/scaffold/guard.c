/* guard my_plugin: scales a gradient down that is larger than usual.
 *
 *     usual = exponential mean of the norms that were seen (weight 1/16 for the newest)
 *     scale = factor usual / norm   when norm > factor usual, else 1
 *
 * factor  default 2; 0 = off (the null setting)
 *
 * A guard is asked once per step, after the gradient was reduced over ranks and before the update.
 * It leaves its verdict in *out (scale, or skip = 1). A norm may be 0, infinite or NaN: the scale
 * must be finite and >= 0 all the same. A later guard may reject the step, so what is remembered of
 * it is taken over in settle. It is state: save and load keep it in the checkpoint, or a resumed
 * run would differ from one that went on.
 *
 * The other op, update, judges the change of the weights instead: <ballast/guard.h>. */
#include <math.h>
#include <string.h>

#include <ballast/guard.h>

struct options {
    double factor;
};

static const struct bl_option table[] = {
    {"factor", BL_OPTION_FLOAT, 0, "2.0", "[0,inf)",
     "largest norm that passes, in usual norms; 0 = off", offsetof(struct options, factor)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

struct guard {
    const struct bl_host *host;
    const struct options *options;
    double usual; /* 0: no norm was seen yet */
    double seen;  /* norm of the step that is being judged; NaN: none */
};

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct guard *g = host->allocate(host, sizeof *g); /* zeroed */
    if (g == NULL)
        return host->fail(host, err, "no memory for %u bytes", (unsigned)sizeof *g);
    g->host = host;
    g->options = options;
    g->seen = NAN;
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct guard *g = self;
    g->host->release(g->host, g);
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    struct guard *g = self;
    const double limit = g->options->factor * g->usual;
    (void)host;
    (void)changed;
    (void)err;
    g->seen = NAN;
    if (!isfinite(in->norm) || g->options->factor == 0)
        return 0; /* what to do with such a step is not this guard's business */
    if (g->usual > 0 && in->norm > limit)
        out->scale = limit / in->norm;
    g->seen = in->norm;
    return 0;
}

static void settle(void *self, uint32_t skipped)
{
    struct guard *g = self;
    if (!skipped && isfinite(g->seen))
        g->usual = g->usual > 0 ? g->usual + (g->seen - g->usual) / 16 : g->seen;
    g->seen = NAN;
}

/* Returns the bytes needed; writes only when they fit. */
static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct guard *g = self;
    if (buffer != NULL && capacity >= sizeof g->usual)
        memcpy(buffer, &g->usual, sizeof g->usual);
    return sizeof g->usual;
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct guard *g = self;
    double usual;
    if (bytes != sizeof usual)
        return g->host->fail(g->host, err, "saved state of %llu bytes, expected %u",
                             (unsigned long long)bytes, (unsigned)sizeof usual);
    memcpy(&usual, buffer, sizeof usual);
    if (!isfinite(usual) || usual < 0)
        return g->host->fail(g->host, err, "saved state has the norm %g", usual);
    g->usual = usual;
    return 0;
}

static const struct bl_guard_ops ops = {.create = create,
                                        .destroy = destroy,
                                        .save = save,
                                        .load = load,
                                        .gradient = gradient,
                                        .settle = settle};

BL_PLUGIN(BL_KIND_GUARD, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table,
          sizeof(struct options), "factor=0");
