/* schedule one_cycle: up to the peak and far down, in one plan.
 *
 *     s = (u - w) / (T - w),  r = rise
 *     rising,  s < r:   factor goes from start to 1,     at x = s / r
 *     falling, s >= r:  factor goes from 1 to final,     at x = (s - r) / (1 - r)
 *     cosine:  a + (b - a) (1 - cos(pi x)) / 2           linear:  a + (b - a) x
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 * rise   share of the updates after the warmup, default 0.3
 * start  fraction of the peak at the start, default 0.04 (1/25)
 * final  fraction of the peak at u = T, default 4e-6 (start / 10^4)
 * shape  cosine (default) or linear
 *
 * The rise is the warmup: set schedule.warmup = 0, or the rate drops to `start` after the warmup.
 *
 * Source: Smith and Topin 2017, arXiv:1708.07120; the defaults are those of PyTorch's OneCycleLR.
 *
 * `final` is reached at u = T, one update after the last; OneCycleLR reaches it with the last.
 *
 * What it cannot do: cycle the momentum against the rate, which the paper does too.
 */
#include <math.h>

#include <ballast/schedule.h>

enum shape { COSINE, LINEAR };

struct options {
    double rise, start, final;
    int32_t shape;
};

static const struct bl_option options[] = {
    {"rise", BL_OPTION_FLOAT, 0, "0.3", "[0,1]", "share of the updates in which the rate rises",
     offsetof(struct options, rise)},
    {"start", BL_OPTION_FLOAT, 0, "0.04", "[0,1]",
     "learning rate at the start, fraction of the peak", offsetof(struct options, start)},
    {"final", BL_OPTION_FLOAT, 0, "4e-6", "[0,1]", "learning rate at the end, fraction of the peak",
     offsetof(struct options, final)},
    {"shape", BL_OPTION_CHOICE, 0, "cosine", "cosine|linear", "curve of both parts",
     offsetof(struct options, shape)},
    {0}};

/* From a at x = 0 to b at x = 1. */
static double between(const struct options *o, double a, double b, double x)
{
    return a + (b - a) * (o->shape == COSINE ? (1.0 - cos(acos(-1.0) * x)) / 2.0 : x);
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
    if (point->update >= point->updates)
        return o->final;
    double s = (double)(point->update - point->warmup) / (double)(point->updates - point->warmup);
    if (s < o->rise)
        return between(o, o->start, 1.0, s / o->rise);
    return between(o, 1.0, o->final, (s - o->rise) / (1.0 - o->rise));
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "one_cycle", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
