/* schedule power: a power of the step, then a straight line to the end.
 *
 *     p(t) = min(1, (t / s)^-exponent)
 *     d = max(T - round(decay_share T), w) + 1
 *     factor(u) = p(u + 1)                                          up to step d
 *     factor(u) = p(d) + (final - p(d)) (u + 1 - d) / (T + 1 - d)   from step d on
 *     factor(u) = final                                             for u >= T
 *     without a decay (decay_share = 0): p(u + 1) for every u
 *
 * u            0-based index of the update; u + 1 is the step
 * w, T         updates of warmup, and in the whole plan
 * s            time scale: `timescale`, or with timescale = 0 (default) the updates of warmup, at
 *              least 1
 * exponent     default 0.51
 * decay_share  share of all updates, at the end; default 0.1
 * final        fraction of the peak at u = T, default 0.0; above p(d) the line rises
 *
 * With 0 < s < w the rate drops at the end of the warmup from the peak to (w / s)^-exponent.
 *
 * Why: the best rate falls with a power of the tokens seen, whatever the plan's length, so that the
 * part before the decay is common to plans of all lengths.
 *
 * Source: Shen et al. 2024, arXiv:2408.13359, where peak and s follow from the batch:
 * min(peak, batch a tokens^-0.51); a peak and a time scale written here are that law's.
 *
 * What it cannot do: derive peak and time scale from the batch size by itself.
 */
#include <math.h>

#include <ballast/schedule.h>

struct options {
    double exponent, decay_share, final;
    int64_t timescale;
};

static const struct bl_option options[] = {
    {"exponent", BL_OPTION_FLOAT, 0, "0.51", "(0,10]", "power of the step that the rate falls with",
     offsetof(struct options, exponent)},
    {"timescale", BL_OPTION_INT, 0, "0", "[0,inf)",
     "step from which the rate falls, updates; 0 = those of the warmup",
     offsetof(struct options, timescale)},
    {"decay_share", BL_OPTION_FLOAT, 0, "0.1", "[0,1]",
     "share of all updates, at the end, in which the rate goes to final; 0 = none",
     offsetof(struct options, decay_share)},
    {"final", BL_OPTION_FLOAT, 0, "0.0", "[0,1]", "learning rate at the end, fraction of the peak",
     offsetof(struct options, final)},
    {0}};

static double power(const struct options *o, const struct bl_schedule_point *point, double step)
{
    double scale = o->timescale > 0 ? (double)o->timescale : (double)point->warmup;
    scale = scale < 1.0 ? 1.0 : scale;
    return step <= scale ? 1.0 : pow(step / scale, -o->exponent);
}

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
    double all = (double)point->updates, n = floor(o->decay_share * all + 0.5);
    double step = (double)point->update + 1.0;
    double start = fmax(all - n + 1.0, (double)point->warmup + 1.0);
    if (n == 0.0)
        return power(o, point, step);
    if (point->update >= point->updates)
        return o->final;
    if (step <= start)
        return power(o, point, step);
    double from = power(o, point, start);
    return from + (o->final - from) * (step - start) / (all + 1.0 - start);
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "power", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
