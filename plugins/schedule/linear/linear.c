/* schedule linear: a straight line from the peak down to a final fraction of it.
 *
 *     factor(u) = 1 - (1 - final) (u - w) / (T - w)     for w <= u < T
 *     factor(u) = final                                 for u >= T
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 * final  fraction of the peak at u = T, default 0.0
 *
 * Source: Bergsma et al. 2025, arXiv:2502.15938 (straight to zero beats a tenth of the peak once a
 * run is long).
 *
 * The last update of the plan is u = T - 1, one step before the formula reaches `final`: with
 * final = 0 it still moves. A plan that is all warmup (T <= w) has no update on the line.
 *
 * What it cannot do: be prolonged. T is part of the line, so a run with more updates differs from
 * its first update after the warmup on; wsd keeps the peak until shortly before the end.
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
    double part =
        (double)(point->update - point->warmup) / (double)(point->updates - point->warmup);
    return 1.0 - (1.0 - o->final) * part;
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "linear", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
