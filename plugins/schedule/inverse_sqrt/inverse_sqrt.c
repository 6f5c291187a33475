/* schedule inverse_sqrt: the learning rate falls with the square root of the step.
 *
 *     factor(u) = floor + (1 - floor) sqrt(s / max(s, u + 1))
 *
 * u  0-based index of the update, so u + 1 is the step as rows of metrics count it
 * s  time scale: `timescale`, or with timescale = 0 (default) the updates of warmup, at least 1
 * floor  fraction of the peak that is never left, default 0: the pure law
 *
 * With s = warmup the curve joins the warmup at the peak. With s > warmup the peak is held until
 * step s. With 0 < s < warmup the rate drops at the end of the warmup from the peak to
 * sqrt(s / warmup).
 *
 * T5 holds the peak for 10,000 steps: timescale = 10000.
 *
 * Sources: Vaswani et al. 2017, arXiv:1706.03762 (there scaled by width^-1/2); with floor = 0 this
 * is the inverse square root of OLMo v1, with floor = 0.1 that of OLMo-core.
 *
 * What it cannot do: end at a low rate. At step 100 s it is still a tenth of the peak; it knows
 * nothing of the plan's length, which is its use: a longer run begins with the rates of a shorter.
 * A floor makes it no inverse square root at all in the long run: norm growth under a pure 1/sqrt
 * is logarithmic, under a floor it is that of a constant rate.
 */
#include <math.h>

#include <ballast/schedule.h>

struct options {
    double floor;
    int64_t timescale;
};

static const struct bl_option options[] = {
    {"floor", BL_OPTION_FLOAT, 0, "0.0", "[0,1]", "lowest learning rate, fraction of the peak",
     offsetof(struct options, floor)},
    {"timescale", BL_OPTION_INT, 0, "0", "[0,inf)",
     "step from which the rate falls, updates; 0 = those of the warmup",
     offsetof(struct options, timescale)},
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
    double scale = o->timescale > 0 ? (double)o->timescale : (double)point->warmup;
    if (scale < 1.0)
        scale = 1.0;
    double step = (double)point->update + 1.0;
    double root = step > scale ? sqrt(scale / step) : 1.0;
    return o->floor + (1.0 - o->floor) * root;
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "inverse_sqrt", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
