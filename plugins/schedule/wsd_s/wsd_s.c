/* schedule wsd_s: several decays in one plan, each followed by the peak again.
 *
 *     L = (T - w) / cycles                 updates of a cycle, not always a whole number
 *     y = (u - w) mod L                    place in the cycle
 *     x = (y - (1 - share) L) / (share L)
 *     factor(u) = 1                        for x <= 0
 *     factor(u) = 1 / (1 - x + x / final)  for x > 0, u < T
 *     factor(u) = final                    for u >= T
 *
 * u       0-based index of the update
 * w, T    updates of warmup, and in the whole plan
 * cycles  default 3
 * share   of each cycle that decays, default 0.1; share steps / cycles must be above 1, or no
 *         update of a cycle decays
 * final   fraction of the peak at the end of each cycle, default 0.1
 *
 * In the decay the reciprocal of the rate goes in a straight line from 1 to 1 / final. The last
 * update of a cycle is one step short of `final`, the next one is at the peak.
 *
 * Why: one run gives models of several budgets. The weights go on from the decayed ones, no second
 * trunk is kept.
 *
 * Source: Wen et al. 2024, arXiv:2410.05192 (WSD-S, with this curve).
 *
 * What it cannot do: save at the ends of its cycles, after updates w + k L. run.checkpoint_every
 * hits them where w is a multiple of it, for example without warmup. Cycles of unequal length:
 * schedule piecewise.
 */
#include <ballast/schedule.h>

struct options {
    int64_t cycles;
    double share, final;
};

static const struct bl_option options[] = {
    {"cycles", BL_OPTION_INT, 0, "3", "[1,1000000]", "decays in the plan",
     offsetof(struct options, cycles)},
    {"share", BL_OPTION_FLOAT, 0, "0.1", "[0,1]", "share of a cycle in which the rate decays",
     offsetof(struct options, share)},
    {"final", BL_OPTION_FLOAT, 0, "0.1", "(0,1]",
     "learning rate at the end of a cycle, fraction of the peak", offsetof(struct options, final)},
    {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    double decay = o->share * (double)host->info->steps / (double)o->cycles;
    if (host->info->steps > 0 && o->share > 0 && decay <= 1)
        return host->fail(
            host, err,
            "%lld cycles in %llu updates have decays of %.2g updates, in which none has a "
            "lower rate: lower cycles, or raise share",
            (long long)o->cycles, (unsigned long long)host->info->steps, decay);
    *self = (void *)(uintptr_t)values;
    return 0;
}

static double factor(const void *self, const struct bl_schedule_point *point)
{
    const struct options *o = self;
    if (point->update >= point->updates)
        return o->final;
    /* In whole numbers: a length that is rounded would miss the borders of cycles. */
    uint64_t all = point->updates - point->warmup, u = point->update - point->warmup;
    double y = (double)(u * (uint64_t)o->cycles % all) / (double)all, start = 1.0 - o->share;
    if (y <= start)
        return 1.0;
    double x = (y - start) / o->share;
    return 1.0 / (1.0 - x + x / o->final);
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "wsd_s", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
