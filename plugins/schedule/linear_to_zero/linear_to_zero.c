/* schedule linear_to_zero: a straight line from the peak to zero.
 *
 *     factor(u) = (T - u) / (T - w)     for w <= u < T,  0 for u >= T
 *
 * u  0-based index of the update      w  updates of warmup      T  updates in the whole plan
 *
 * No options. It is schedule linear with final = 0, under the name that the literature uses (D2Z),
 * so that a study says what it means.
 *
 * Source: Bergsma et al. 2025, arXiv:2502.15938 (beats a cosine to a tenth once a run is long).
 *
 * The last update of the plan is u = T - 1 and still moves, by 1 / (T - w) of the peak.
 *
 * What it cannot do: be prolonged. Under weight decay multiplied by the rate the decay ends with
 * it, and the gradient norm of normalised layers rises at the end (see optimizer adamc).
 */
#include <ballast/schedule.h>

static const struct bl_option options[] = {{0}};

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
    (void)self;
    if (point->update >= point->updates)
        return 0.0;
    if (point->update <= point->warmup)
        return 1.0;
    return (double)(point->updates - point->update) / (double)(point->updates - point->warmup);
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "linear_to_zero", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          0, NULL);
