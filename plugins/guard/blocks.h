/* What guards share: names of metrics, gradients scaled in place on all threads. */
#ifndef BL_GUARD_BLOCKS_H
#define BL_GUARD_BLOCKS_H

#include <stdio.h>

#include <ballast/plugin.h>

enum { BL_GUARD_BLOCK = 4096 };

struct bl_guard_scaling {
    float *x;
    uint64_t count;
    float factor;
};

static inline void bl_guard_scale_block(void *argument, uint64_t block)
{
    const struct bl_guard_scaling *s = argument;
    uint64_t end = (block + 1) * BL_GUARD_BLOCK;
    for (uint64_t i = block * BL_GUARD_BLOCK; i < end && i < s->count; i++)
        s->x[i] *= s->factor;
}

/* x := factor x, each element rounded once. */
static inline void bl_guard_scale(const struct bl_host *host, const struct bl_tensor *x,
                                  double factor)
{
    struct bl_guard_scaling s = {x->data, x->count, (float)factor};
    host->parallel_for(host, (x->count + BL_GUARD_BLOCK - 1) / BL_GUARD_BLOCK, bl_guard_scale_block,
                       &s);
}

/* guard/<instance>/<what>: two instances of one plugin have metrics of their own. */
static inline void bl_guard_metric(const struct bl_host *host, const char *what, double value)
{
    char name[160];
    snprintf(name, sizeof(name), "guard/%s/%s", host->instance, what);
    host->metric(host, name, value);
}

#endif
