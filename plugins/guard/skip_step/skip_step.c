/* guard skip_step: skips the update of a step whose loss or gradient norm stands out of the recent
 * past. Weights, moments and the optimizer's count stay; the data moves on.
 *
 *     score(x) = (x - mean) / deviation      over the last `window` accepted steps
 *     skip when score > sigmas for a watched x, or when a watched x is not finite
 *
 * x          loss/total of the step, and the L2 norm of the gradient as it comes to this guard: put
 *            skip_step before clip_norm, or it sees the clipped norm
 * deviation  sample standard deviation (divisor n - 1; torch.std's default)
 * window     accepted steps that are remembered, default 128
 * minimum    accepted steps needed before anything finite is judged, default 64, at least 2
 * sigmas     default 6.0; 0 = off (the null setting)
 * on         what is watched: both (default), loss, norm
 * patience   skips in a row at which the run ends as diverged (exit code 7), default 20: 19 pass,
 *            the 20th is the end; 0 = never
 *
 * One-sided: a fall is no spike. The step that is judged is not in the statistics, and a skipped
 * one, by this guard or another, never enters them. So neither one spike nor a NaN blinds the
 * guard, and a lasting jump does not become normal: it ends the run after `patience` steps with the
 * numbers in the message. A history of equal values has deviation 0; then any value above them
 * stands out, and an equal one does not. The history and the count of skips in a row are in the
 * checkpoint: a resumed run judges as one that never stopped. A smaller window keeps the newest.
 *
 * Metrics: spike/score, the larger of the watched scores (absent while the history is short), and
 * spike/flag, 1 where this guard skips. Each skip is a warning with the numbers; the trainer counts
 * warnings and shows the 1st, 2nd, 4th, 8th, ... of a kind.
 *
 * The names are fixed: of two instances the later one that is asked has them.
 *
 * Source: SkipStepOptimizer of OLMo-core, 128 steps and 6 deviations. The test is the same one
 * (torch.std_mean over the window without the latest step, unbiased, one-sided). Different here:
 * that window takes rejected and NaN values in, is lost at a resume, and judges once half of it has
 * been seen, rejected steps counted.
 *
 * What it cannot do: see a slow drift, undo the step that led to the spike, or tell a bad batch
 * from bad weights: a norm that jumps because the weights went wrong is skipped until patience
 * ends.
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <ballast/guard.h>

enum on { ON_BOTH, ON_LOSS, ON_NORM };
enum { LOSS, NORM, SERIES };

struct options {
    int64_t window, minimum, patience;
    double sigmas;
    int32_t on;
};

static const struct bl_option options[] = {
    {"window", BL_OPTION_INT, 0, "128", "[2,65536]", "accepted steps that are remembered",
     offsetof(struct options, window)},
    {"minimum", BL_OPTION_INT, 0, "64", "[2,65536]", "accepted steps needed before it judges",
     offsetof(struct options, minimum)},
    {"sigmas", BL_OPTION_FLOAT, 0, "6.0", "[0,inf)",
     "standard deviations above the mean that pass; 0 = off", offsetof(struct options, sigmas)},
    {"on", BL_OPTION_CHOICE, 0, "both", "both|loss|norm", "what is watched",
     offsetof(struct options, on)},
    {"patience", BL_OPTION_INT, 0, "20", "[0,inf)",
     "skips in a row that end the run as diverged; 0 = never", offsetof(struct options, patience)},
    {0}};

struct guard {
    const struct bl_host *host;
    const struct options *options;
    uint64_t count;            /* steps in the history, <= window */
    uint64_t next;             /* where the next one goes; with a full window that is the oldest */
    uint64_t skipped;          /* in a row, up to now */
    double seen[SERIES];       /* of this step, until it is settled; NaN: nothing to remember */
    double (*history)[SERIES]; /* (window, SERIES) */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->minimum > o->window)
        return host->fail(host, err,
                          "minimum = %lld is more than window = %lld holds: it would never act; "
                          "lower minimum or raise window",
                          (long long)o->minimum, (long long)o->window);
    struct guard *g = host->allocate(host, sizeof(*g));
    if (g == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*g));
    g->host = host;
    g->options = o;
    g->seen[LOSS] = g->seen[NORM] = NAN;
    g->history = host->allocate(host, (uint64_t)o->window * sizeof(*g->history));
    if (g->history == NULL) {
        host->release(host, g);
        return host->fail(host, err, "no memory for a window of %lld steps", (long long)o->window);
    }
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct guard *g = self;
    if (g == NULL)
        return;
    const struct bl_host *host = g->host;
    host->release(host, g->history);
    host->release(host, g);
}

static const double *accepted(const struct guard *g, uint64_t i) /* i = 0 is the oldest */
{
    uint64_t window = (uint64_t)g->options->window;
    return g->history[(g->next + window - g->count + i) % window];
}

static void push(struct guard *g, const double *x)
{
    uint64_t window = (uint64_t)g->options->window;
    memcpy(g->history[g->next], x, sizeof(*g->history));
    g->next = (g->next + 1) % window;
    if (g->count < window)
        g->count++;
}

struct verdict {
    double value, mean, deviation, score;
};

/* Sums run over distances from the oldest value: equal values give their own mean and 0 exactly. */
static struct verdict judge(const struct guard *g, int series, double x)
{
    double n = (double)g->count, origin = accepted(g, 0)[series], sum = 0.0, squares = 0.0;
    for (uint64_t i = 0; i < g->count; i++)
        sum += accepted(g, i)[series] - origin;
    for (uint64_t i = 0; i < g->count; i++) {
        double d = accepted(g, i)[series] - origin - sum / n;
        squares += d * d;
    }
    struct verdict v = {x, origin + sum / n, sqrt(squares / (n - 1.0)), 0.0};
    if (x != v.mean)
        v.score = (x - v.mean) / v.deviation; /* infinite where the deviation is 0 */
    return v;
}

static int watches(const struct guard *g, int series)
{
    return g->options->on == ON_BOTH || (g->options->on == ON_LOSS) == (series == LOSS);
}

/* One line about what was skipped and why; returns it as the error where patience has ended. */
static int32_t report(struct guard *g, const struct bl_guard_input *in, const char *name,
                      const struct verdict *v, struct bl_error *err)
{
    const struct bl_host *host = g->host;
    const struct options *o = g->options;
    char why[200];
    if (isfinite(v->value))
        snprintf(why, sizeof(why),
                 "%s %.6g is %.3g deviations above the mean %.6g of the last %llu accepted steps "
                 "(deviation %.3g)",
                 name, v->value, v->score, v->mean, (unsigned long long)g->count, v->deviation);
    else
        snprintf(why, sizeof(why), "%s is %s", name,
                 isnan(v->value) ? "nan"
                 : v->value > 0  ? "inf"
                                 : "-inf");
    if (o->patience > 0 && g->skipped >= (uint64_t)o->patience) {
        host->fail(
            host, err,
            "step %llu: %s; skip %llu in a row, and patience = %lld: go on from a checkpoint "
            "with other settings, or raise patience",
            (unsigned long long)in->step, why, (unsigned long long)g->skipped,
            (long long)o->patience);
        err->code = 7; /* diverged */
        return -1;
    }
    host->log(host, BL_LOG_WARNING, "step %llu: update skipped, %llu in a row: %s",
              (unsigned long long)in->step, (unsigned long long)g->skipped, why);
    return 0;
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    static const char *const names[SERIES] = {"loss/total", "the gradient norm"};
    struct guard *g = self;
    const double x[SERIES] = {in->loss, in->norm};
    int judged = g->count >= (uint64_t)g->options->minimum, worst = -1;
    double score = -INFINITY;
    struct verdict why = {0};
    (void)changed;
    if (g->options->sigmas == 0.0)
        return 0;
    for (int s = 0; s < SERIES; s++) {
        struct verdict v = {x[s], NAN, NAN, NAN};
        if (!watches(g, s))
            continue;
        if (judged && isfinite(x[s]))
            v = judge(g, s, x[s]);
        int outlier = !isfinite(x[s]) || v.score > g->options->sigmas;
        score = v.score > score ? v.score : score;
        /* The first watched value that is not finite is the reason, else the larger score. */
        if (outlier && (worst < 0 || (isfinite(why.value) && !(v.score <= why.score)))) {
            worst = s;
            why = v;
        }
    }
    if (score > -INFINITY)
        host->metric(host, "spike/score", score);
    host->metric(host, "spike/flag", worst >= 0);
    if (worst < 0) {
        g->skipped = 0;
        memcpy(g->seen, x, sizeof(g->seen));
        return 0;
    }
    out->skip = 1;
    g->skipped++;
    return report(g, in, names[worst], &why, err);
}

static void settle(void *self, uint32_t skipped)
{
    struct guard *g = self;
    if (!skipped && isfinite(g->seen[LOSS]) && isfinite(g->seen[NORM]))
        push(g, g->seen);
    g->seen[LOSS] = g->seen[NORM] = NAN;
}

/* State: version, number of steps, skips in a row (u64 each); loss and norm of each step from the
 * oldest on (f64). */
#define STATE_VERSION 1u

static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct guard *g = self;
    uint64_t head[3] = {STATE_VERSION, g->count, g->skipped};
    uint64_t need = sizeof(head) + g->count * sizeof(*g->history);
    if (buffer == NULL || capacity < need)
        return need;
    memcpy(buffer, head, sizeof(head));
    for (uint64_t i = 0; i < g->count; i++)
        memcpy((char *)buffer + sizeof(head) + i * sizeof(*g->history), accepted(g, i),
               sizeof(*g->history));
    return need;
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct guard *g = self;
    uint64_t head[3] = {0, 0, 0};
    if (bytes >= sizeof(head))
        memcpy(head, buffer, sizeof(head));
    if (bytes < sizeof(head) || head[0] != STATE_VERSION || head[1] > 65536 ||
        bytes != sizeof(head) + head[1] * sizeof(*g->history))
        return g->host->fail(g->host, err,
                             "saved history of %llu bytes is not one of version %u: restore the "
                             "checkpoint, or start without this guard's state",
                             (unsigned long long)bytes, STATE_VERSION);
    const char *steps = (const char *)buffer + sizeof(head);
    double x[SERIES];
    for (uint64_t i = 0; i < head[1]; i++) {
        memcpy(x, steps + i * sizeof(x), sizeof(x));
        if (!isfinite(x[LOSS]) || !isfinite(x[NORM]) || x[NORM] < 0.0)
            return g->host->fail(g->host, err,
                                 "saved history has loss %g and norm %g at index %llu: the "
                                 "checkpoint is damaged",
                                 x[LOSS], x[NORM], (unsigned long long)i);
    }
    g->count = 0;
    g->next = 0;
    g->skipped = head[2];
    for (uint64_t i = 0; i < head[1]; i++) {
        memcpy(x, steps + i * sizeof(x), sizeof(x));
        push(g, x);
    }
    return 0;
}

static const struct bl_guard_ops ops = {.create = create,
                                        .destroy = destroy,
                                        .save = save,
                                        .load = load,
                                        .gradient = gradient,
                                        .settle = settle};

BL_PLUGIN(BL_KIND_GUARD, "skip_step", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), "sigmas=0");
