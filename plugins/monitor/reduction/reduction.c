/* monitor reduction: what the sum over ranks did to the gradients.
 *
 * g_r is the gradient of rank r before any rounding of the reduction, W the number of ranks,
 *
 *     g   = (1/W) sum_r g_r     in fp64, summed beside the real one in the steps looked at
 *     out = what the reduction made: rounded to `wire`, added in the order of `algorithm` with
 *           partial sums in `sum`, averaged as `average` says
 *
 *     reduce/error       || out - g || / || g ||
 *     reduce/bias        < out - g, g > / < g, g >   -0.09: the sum came out 9% short
 *     reduce/lost_share  share of the non-zero addends that left a partial sum as it was
 *
 * over all gradients together, and over the tensors of one role as reduce/matrix/error,
 * reduce/embedding/..., reduce/norm/..., reduce/head/... Norms of differences are over all elements
 * of the role at once, before guards.
 *
 * What to expect for independent gradients of mean zero (docs/reductions.md, `ballast reduce`):
 *
 *     error = c sqrt(1 + K),   K = sum over rounded adds of (ranks in the partial sum) / W
 *
 * with c = 1.67e-3 for bf16: the rms relative error of rounding a normal number once. A ring has
 * K = W/2 + 1/2 - 1/W. A bias says that addends are lost: partial sums so large that a term is less
 * than half a unit of their last place. Higham (SIAM J. Sci. Comput. 14, 1993) has the bounds.
 *
 * The cost, in the steps looked at alone: one more sum over the ranks, in fp64, and eight bytes an
 * element to hold it. No options of its own; `every` says how often.
 *
 * What it cannot do: see rounding before the reduction (in the micro-batches' own gradients or
 * their accumulation), or after it (guards, the optimizer). reduce/lost_share is absent where ranks
 * are several processes. A value that is not a number is absent, as is a role without gradients:
 * what is not finite in the gradient itself is for guards and alarms. The rounding that leaks into
 * the mean row of the output matrix is monitor gauge's logits/gauge_leak.
 */
#include <math.h>
#include <stdio.h>

#include <ballast/monitor.h>

static const struct bl_option options[] = {{0}};

static uint32_t needs(const void *self)
{
    (void)self;
    return BL_MONITOR_REDUCTION;
}

static void report(const struct bl_host *host, const char *role, const char *what, double value)
{
    char name[64];
    if (isnan(value))
        return;
    snprintf(name, sizeof name, "reduce/%s%s", role, what);
    host->metric(host, name, value);
}

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    static const char *const role[BL_GROUP_COUNT + 1] = {[BL_GROUP_MATRIX] = "matrix/",
                                                         [BL_GROUP_EMBEDDING] = "embedding/",
                                                         [BL_GROUP_NORM] = "norm/",
                                                         [BL_GROUP_HEAD] = "head/",
                                                         [BL_GROUP_COUNT] = ""};
    (void)self;
    (void)in;
    (void)err;
    for (uint32_t group = 0; group <= BL_GROUP_COUNT; group++) {
        struct bl_reduction r = {.size = sizeof r};
        if (host->reduction(host, group, &r) != 0)
            continue;
        report(host, role[group], "error", r.error);
        report(host, role[group], "bias", r.bias);
        report(host, role[group], "lost_share", r.lost_share);
    }
    return 0;
}

static const struct bl_monitor_ops ops = {.needs = needs, .observe = observe};

BL_PLUGIN(BL_KIND_MONITOR, "reduction", "1.0", BL_DEVICE_CPU, ops, options, 0, NULL);
