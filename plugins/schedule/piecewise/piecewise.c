/* schedule piecewise: any curve, as points and what lies between them.
 *
 *     points (u_0, f_0), (u_1, f_1), ..., (u_n, f_n)          u_0 < u_1 < ... < u_n
 *
 *     factor(u) = f_0                                         for u <= u_0
 *     factor(u) = f_n                                         for u >= u_n
 *     between, for u_i <= u < u_(i+1) and x = (u - u_i) / (u_(i+1) - u_i):
 *               = f_i                                         step
 *               = f_i + (f_(i+1) - f_i) x                     linear
 *               = f_i (f_(i+1) / f_i)^x                       log: a straight line in log(factor)
 *
 * u              0-based index of the update, counted from the start of the run, warmup included
 * updates        u_0, u_1, ...; required
 * factors        f_0, f_1, ..., fractions of optimizer.lr, as many as updates; required. Above 1 is
 *                allowed; log needs them above 0
 * interpolation  default linear
 *
 * At a point the factor is exactly the one written. Example, the peak for 1,000 updates, then a
 * tenth, then a re-warming:
 *
 *     schedule = { plugin = "piecewise"; warmup = 100; interpolation = "linear";
 *                  updates = [ 1000, 1200, 3000, 3100 ]; factors = [ 1.0, 0.1, 0.1, 0.5 ]; };
 *
 * The host's warmup comes first and ends at factor 1: points before schedule.warmup are never
 * reached, and a first factor other than 1 is a jump.
 *
 * What it cannot do: mix interpolations in one curve, or follow the length of the plan. A point
 * beyond the last update is allowed and shapes the way to it.
 */
#include <math.h>

#include <ballast/schedule.h>

enum interpolation { STEP, LINEAR, LOG };

struct options {
    struct bl_ints updates;
    struct bl_floats factors;
    int32_t interpolation;
};

static const struct bl_option options[] = {
    {"updates", BL_OPTION_INTS, BL_OPTION_REQUIRED, NULL, "[0,9007199254740992]",
     "updates at which the factor is given, ascending, 0 = the first of the run",
     offsetof(struct options, updates)},
    {"factors", BL_OPTION_FLOATS, BL_OPTION_REQUIRED, NULL, "[0,inf)",
     "fraction of the peak at each of them", offsetof(struct options, factors)},
    {"interpolation", BL_OPTION_CHOICE, 0, "linear", "step|linear|log", "what lies between points",
     offsetof(struct options, interpolation)},
    {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    const int64_t *u = o->updates.values;
    if (o->updates.count == 0 || o->updates.count != o->factors.count)
        return host->fail(host, err,
                          "updates has %llu elements and factors has %llu: give one factor for "
                          "each update, at least one of both",
                          (unsigned long long)o->updates.count,
                          (unsigned long long)o->factors.count);
    for (uint64_t i = 1; i < o->updates.count; i++) {
        if (u[i] <= u[i - 1])
            return host->fail(host, err,
                              "updates[%llu] = %lld comes after %lld: list the points in ascending "
                              "order, each update once",
                              (unsigned long long)i, (long long)u[i], (long long)u[i - 1]);
    }
    for (uint64_t i = 0; o->interpolation == LOG && i < o->factors.count; i++) {
        if (o->factors.values[i] == 0.0)
            return host->fail(host, err,
                              "factors[%llu] = 0 has no logarithm: use a small factor, or "
                              "interpolation = \"linear\"",
                              (unsigned long long)i);
    }
    *self = (void *)(uintptr_t)values;
    return 0;
}

static double factor(const void *self, const struct bl_schedule_point *point)
{
    const struct options *o = self;
    const int64_t *u = o->updates.values;
    const double *f = o->factors.values;
    uint64_t last = o->updates.count - 1, i = 0;
    if (point->update <= (uint64_t)u[0])
        return f[0];
    if (point->update >= (uint64_t)u[last])
        return f[last];
    while (point->update >= (uint64_t)u[i + 1])
        i++;
    double x = (double)(point->update - (uint64_t)u[i]) / (double)(u[i + 1] - u[i]);
    if (o->interpolation == STEP)
        return f[i];
    return o->interpolation == LOG ? f[i] * pow(f[i + 1] / f[i], x) : f[i] + (f[i + 1] - f[i]) * x;
}

static const struct bl_schedule_ops ops = {.create = create, .factor = factor};

BL_PLUGIN(BL_KIND_SCHEDULE, "piecewise", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
