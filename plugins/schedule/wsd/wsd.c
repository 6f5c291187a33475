/* schedule wsd: warmup, stable, decay. The peak is held until the last `decay_share` of the plan.
 *
 *     n = round(decay_share T)        s = max(w, T - n)        x = (u - s) / (T - s)
 *
 *     factor(u) = 1                                                 for w <= u <= s
 *               = 1 - (1 - final) x                                 linear
 *               = final + (1 - final) (1 - sqrt(x))                 one_minus_sqrt
 *               = final^x                                           exponential
 *               = final + (1 - final) (1 + cos(pi x)) / 2           cosine
 *     factor(u) = final                                             for u >= T
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 * decay_share  share of ALL updates that decay, default 0.2; 0 = none, the peak to the end
 * shape        of the decay, default one_minus_sqrt
 * final        fraction of the peak at u = T, default 0.0; exponential needs it above 0
 *
 * Source: Hu et al. 2024, arXiv:2404.06395 (MiniCPM: the schedule, an exponential decay over about
 * a tenth of the run); Haegele et al. 2024, arXiv:2405.18392 (1 - sqrt to zero over 20% matches a
 * tuned cosine).
 *
 * Update s is the last one at the peak, the first lower one is s + 1. The last update of the plan
 * is u = T - 1, one step before the formula reaches `final`. A decay longer than what the warmup
 * leaves begins at its end. A plan that is all warmup (T <= w) has no update on the curve.
 *
 * What it is good for: a longer plan has the same weights up to the shorter one's s. What it cannot
 * do: show the loss that a decay would reach while it is at the peak; the decay has to be run.
 */
#include <math.h>

#include <ballast/schedule.h>

enum shape { LINEAR, ONE_MINUS_SQRT, EXPONENTIAL, COSINE };

struct options {
    double decay_share, final;
    int32_t shape;
};

static const struct bl_option options[] = {
    {"decay_share", BL_OPTION_FLOAT, 0, "0.2", "[0,1]",
     "share of all updates, at the end, in which the rate decays; 0 = none",
     offsetof(struct options, decay_share)},
    {"shape", BL_OPTION_CHOICE, 0, "one_minus_sqrt", "linear|one_minus_sqrt|exponential|cosine",
     "curve of the decay", offsetof(struct options, shape)},
    {"final", BL_OPTION_FLOAT, 0, "0.0", "[0,1]",
     "learning rate at the end, fraction of the peak; above 0 for exponential",
     offsetof(struct options, final)},
    {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->shape == EXPONENTIAL && o->final == 0.0)
        return host->fail(host, err,
                          "an exponential decay never reaches final = 0: set final, for example to "
                          "0.1, or take another shape");
    *self = (void *)(uintptr_t)values;
    return 0;
}

static double factor(const void *self, const struct bl_schedule_point *point)
{
    const struct options *o = self;
    double all = (double)point->updates, n = floor(o->decay_share * all + 0.5);
    double start = fmax((double)point->warmup, all - n), u = (double)point->update;
    if (n == 0.0)
        return 1.0;
    if (point->update >= point->updates)
        return o->final;
    if (u <= start)
        return 1.0;
    double x = (u - start) / (all - start), height = 1.0 - o->final;
    switch (o->shape) {
    case LINEAR:
        return 1.0 - height * x;
    case EXPONENTIAL:
        return pow(o->final, x);
    case COSINE:
        return o->final + height * (1.0 + cos(acos(-1.0) * x)) / 2.0;
    default:
        return o->final + height * (1.0 - sqrt(x));
    }
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "wsd", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
