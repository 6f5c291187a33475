/* guard clip_value: each element of the gradient into [-max, max].
 *
 *     g_i = min(max(g_i, -max), max)
 *
 * max   default 1.0; 0 = off (the null setting)
 *
 * It works on the reduced gradient as it is stored, before the scales of guards that come earlier
 * in the list: put it before those (agc and adagc work in the same way, in the order of the list).
 * It changes the gradient in place and the host measures the norm anew. An element that is not
 * finite stays: whether such a step is skipped is skip_step's to say, else the run ends as
 * diverged.
 *
 * Metric: guard/<instance>/share, the share of elements that were cut.
 *
 * Source: gradient clipping by value as in PyTorch's clip_grad_value_ (which keeps NaN).
 *
 * Cost: one pass over the gradient, and one more for the norm in steps where something was cut;
 * with a sharded optimizer the whole gradient is gathered.
 *
 * What it cannot do: keep the direction. Elements differ in scale between tensors by orders of
 * magnitude, so that one limit for all is either idle or a sign function for some.
 */
#include <math.h>

#include <ballast/guard.h>

#include "../blocks.h"

enum { BLOCK = 4096, GROUP = 1024 /* blocks a call */ };

struct options {
    double max;
};

static const struct bl_option options[] = {{"max", BL_OPTION_FLOAT, 0, "1.0", "[0,1e30]",
                                            "largest absolute value of an element; 0 = off",
                                            offsetof(struct options, max)},
                                           {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    double max = ((const struct options *)values)->max;
    if (max > 0 && (float)max == 0)
        return host->fail(host, err, "max = %g is below what fp32 gradients can hold; 0 = off",
                          max);
    *self = (void *)(uintptr_t)values;
    return 0;
}

struct job {
    float *x;
    uint64_t count;
    float max;
    uint32_t cut[GROUP]; /* elements of each block */
};

static void clip_block(void *argument, uint64_t block)
{
    struct job *j = argument;
    uint64_t end = (block + 1) * BLOCK;
    uint32_t cut = 0;
    for (uint64_t i = block * BLOCK; i < end && i < j->count; i++) {
        float x = j->x[i];
        if (isfinite(x) && fabsf(x) > j->max) {
            j->x[i] = copysignf(j->max, x);
            cut++;
        }
    }
    j->cut[block] = cut;
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    const struct options *o = self;
    uint64_t cut = 0, all = 0;
    (void)in;
    (void)out;
    if (o->max == 0.0)
        return 0;
    for (uint64_t t = 0; t < host->tensor_count(host); t++) {
        struct bl_tensor g = {.size = sizeof(g)};
        if (host->tensor(host, t, BL_GRADIENT, &g) < 0)
            return host->fail(host, err, "tensor %llu has no gradient", (unsigned long long)t);
        all += g.count;
        for (uint64_t at = 0; at < g.count; at += (uint64_t)GROUP * BLOCK) {
            struct job j = {(float *)g.data + at, g.count - at, (float)o->max, {0}};
            uint64_t blocks = (j.count + BLOCK - 1) / BLOCK;
            blocks = blocks < GROUP ? blocks : GROUP;
            host->parallel_for(host, blocks, clip_block, &j);
            for (uint64_t b = 0; b < blocks; b++)
                cut += j.cut[b];
        }
    }
    *changed = cut > 0 ? BL_CHANGED_GRADIENT : 0;
    bl_guard_metric(host, "share", all > 0 ? (double)cut / (double)all : 0);
    return 0;
}

static const struct bl_guard_ops ops = {.create = create, .gradient = gradient};

BL_PLUGIN(BL_KIND_GUARD, "clip_value", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          "max=0");
