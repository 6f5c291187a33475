/* schedule cosine: half a cosine from the peak down to a final fraction of it.
 *
 *     factor(u) = final + (1 - final) (1 + cos(pi (u - w) / (T - w))) / 2     for w <= u < T
 *     factor(u) = final                                                       for u >= T
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 * final  fraction of the peak at u = T, default 0.1 (Hoffmann et al. 2022, arXiv:2203.15556: a
 *        cosine should end with the run, at a tenth of the peak)
 *
 * Source: Loshchilov and Hutter 2016, arXiv:1608.03983, without restarts.
 *
 * The last update of the plan is u = T - 1, one step before the formula reaches `final`. A plan
 * that is all warmup (T <= w) has no update on the curve.
 *
 * What it cannot do: restart, or be prolonged. T is part of the curve, so a run with more updates
 * differs from its first update after the warmup on.
 */
#include <math.h>

#include <ballast/schedule.h>

struct options {
    double final;
};

static const struct bl_option options[] = {{"final", BL_OPTION_FLOAT, 0, "0.1", "[0,1]",
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
    double part =
        (double)(point->update - point->warmup) / (double)(point->updates - point->warmup);
    return o->final + (1.0 - o->final) * (1.0 + cos(acos(-1.0) * part)) / 2.0;
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "cosine", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
