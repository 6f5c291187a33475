/* schedule constant: the learning rate stays at its peak after the warmup.
 *
 *     factor(u) = 1
 *
 * u is the 0-based index of the update. No options.
 *
 * What it cannot do: end lower than it began. A loss measured at its end is that of a run still at
 * full learning rate; compare it with runs that decayed only after a decay of its own.
 */
#include <ballast/schedule.h>

static double factor(const void *self, const struct bl_schedule_point *point)
{
    (void)self;
    (void)point;
    return 1.0;
}

static const struct bl_option options[] = {{0}};

static const struct bl_schedule_ops ops = {.factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "constant", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0,
          NULL);
