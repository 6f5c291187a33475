/* schedule my_plugin: a straight line from the peak down to a final fraction of it.
 *
 *     factor(u) = 1 - (1 - final) (u - w) / (T - w)     for w <= u < T,     final from T on
 *
 * u 0-based update, w updates of warmup, T updates in the plan. The trainer owns the peak
 * (optimizer.lr) and the warmup; a schedule gives the curve after it, as a factor of the peak.
 *
 * It must be PURE: the same point gives the same factor on every rank and after every resume, in
 * whatever order points are asked for. So there is no state, no clock and no random number. */
#include <ballast/schedule.h>

struct options {
    double final;
};

static const struct bl_option table[] = {
    {"final", BL_OPTION_FLOAT, 0, "0.1", "[0,1]", "learning rate at the end, fraction of the peak",
     offsetof(struct options, final)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

/* The options outlive the instance, so an instance without other state is its options. */
static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)host;
    (void)err;
    *self = (void *)(uintptr_t)options;
    return 0;
}

static double factor(const void *self, const struct bl_schedule_point *point)
{
    const struct options *o = self;
    if (point->update >= point->updates) /* after the plan, and plans that are all warmup */
        return o->final;
    const double length = (double)(point->updates - point->warmup);
    return 1.0 - (1.0 - o->final) * (double)(point->update - point->warmup) / length;
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table,
          sizeof(struct options), NULL);
