/* schedule rex: holds the rate longer than a straight line and falls faster at the end.
 *
 *     s = (u - w) / (T - w)
 *     factor(u) = final + (1 - final) (1 - s) / (1/2 + (1 - s) / 2)     for w <= u < T
 *     factor(u) = final                                                 for u >= T
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 * final  fraction of the peak at u = T, default 0.0
 *
 * At s = 1/2 two thirds of the height are left; the slope goes from -1/2 at the start to -2.
 *
 * Source: Chen et al. 2021, arXiv:2107.04197 (REX: reflected exponential).
 *
 * What it cannot do: be prolonged, T is part of the curve.
 */
#include <ballast/schedule.h>

struct options {
    double final;
};

static const struct bl_option options[] = {{"final", BL_OPTION_FLOAT, 0, "0.0", "[0,1]",
                                            "learning rate at the end, fraction of the peak",
                                            offsetof(struct options, final)},
                                           {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)values;
    return 0;
}

static double factor(const void *self, const struct bl_schedule_point *point)
{
    const struct options *o = self;
    if (point->update >= point->updates)
        return o->final;
    if (point->update <= point->warmup)
        return 1.0;
    double s = (double)(point->update - point->warmup) / (double)(point->updates - point->warmup);
    return o->final + (1.0 - o->final) * (1.0 - s) / (0.5 + (1.0 - s) / 2.0);
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "rex", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
