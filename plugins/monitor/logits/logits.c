/* monitor logits: how large the output logits are, split into shift, spread, maximum and partition
 * function.
 *
 * Over the N unmasked tokens of the global batch, z the logits that the cross-entropy sees, V the
 * true vocabulary, zbar = (1/V) sum_v z_v, m2 = sum_v (z_v - zbar)^2, all of one token:
 *
 *     logits/norm          mean of ||z||_2 = sqrt(m2 + V zbar^2)
 *     logits/mean          mean of zbar
 *     logits/abs_mean      mean of |zbar|
 *     logits/centered_rms  sqrt( sum of m2 / (N V) )
 *     logits/max           largest max_v z_v
 *     logits/log_z         mean of log sum_v exp z_v
 *     logits/log_z_sq      mean of (log sum_v exp z_v)^2
 *
 * When a regularizer transforms the logits (softmax of normalised or capped logits), the same seven
 * before all transforms are logits/pre/norm and so on.
 *
 * The softmax is blind to zbar: a drift of logits/mean, and with it of logits/norm and log_z, shows
 * nowhere in the loss until exp overflows or bf16 logits lose their spread. centered_rms is what
 * the loss sees.
 *
 * Sums are fp64 in token order, added over ranks in rank order. A NaN in a row shows as NaN. No
 * options of its own; the host's `every` sets how often it looks. Costs nothing beside the
 * statistics that the loss needs anyhow.
 *
 * What it cannot do: tell which tokens carry a large value; the means hide rare rows (logits/max
 * does not).
 */
#include <math.h>

#include <ballast/monitor.h>

enum { NORM, MEAN, ABS_MEAN, M2, LOG_Z, LOG_Z_SQ, SUMS };

static const struct bl_option options[] = {{0}};

/* sums (SUMS + ranks,): the ranks' maxima follow the sums, each in its own place, so that one sum
 * over ranks carries them all. */
static void add_rows(const struct bl_row_stats *s, double *sums, double *maximum)
{
    double largest = -INFINITY;
    for (uint64_t i = 0; i < s->count; i++) {
        if (!s->valid[i])
            continue;
        double mean = s->mean[i], lse = s->lse[i];
        sums[NORM] += sqrt(s->m2[i] + (double)s->vocab * (mean * mean));
        sums[MEAN] += mean;
        sums[ABS_MEAN] += fabs(mean);
        sums[M2] += s->m2[i];
        sums[LOG_Z] += lse;
        sums[LOG_Z_SQ] += lse * lse;
        if (isnan(s->max[i]) || s->max[i] > largest)
            largest = isnan(largest) ? largest : s->max[i];
    }
    *maximum = largest;
}

static int report(const struct bl_host *host, const struct bl_row_stats *s, uint64_t targets,
                  const char *const names[7], struct bl_error *err)
{
    uint64_t ranks = host->ranks > 0 ? host->ranks : 1;
    double *sums = host->allocate(host, (SUMS + ranks) * sizeof(double));
    if (sums == NULL)
        return host->fail(host, err, "no memory for the sums of %llu ranks",
                          (unsigned long long)ranks);
    add_rows(s, sums, &sums[SUMS + host->rank]);
    int rc = host->all_reduce(host, sums, SUMS + ranks, err);
    if (rc == 0) {
        double n = (double)targets, largest = sums[SUMS];
        for (uint64_t r = 1; r < ranks; r++) {
            double x = sums[SUMS + r];
            if (isnan(x) || x > largest)
                largest = isnan(largest) ? largest : x;
        }
        host->metric(host, names[0], sums[NORM] / n);
        host->metric(host, names[1], sums[MEAN] / n);
        host->metric(host, names[2], sums[ABS_MEAN] / n);
        host->metric(host, names[3], sqrt(sums[M2] / (n * (double)s->vocab)));
        host->metric(host, names[4], largest);
        host->metric(host, names[5], sums[LOG_Z] / n);
        host->metric(host, names[6], sums[LOG_Z_SQ] / n);
    }
    host->release(host, sums);
    return rc;
}

static int32_t observe(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err)
{
    static const char *const seen[7] = {"logits/norm",         "logits/mean", "logits/abs_mean",
                                        "logits/centered_rms", "logits/max",  "logits/log_z",
                                        "logits/log_z_sq"};
    static const char *const before[7] = {
        "logits/pre/norm", "logits/pre/mean",  "logits/pre/abs_mean", "logits/pre/centered_rms",
        "logits/pre/max",  "logits/pre/log_z", "logits/pre/log_z_sq"};
    (void)self;
    if (in->targets == 0)
        return 0;
    if (report(host, in->rows, in->targets, seen, err) != 0)
        return -1;
    return in->before != NULL ? report(host, in->before, in->targets, before, err) : 0;
}

static const struct bl_monitor_ops ops = {.observe = observe};

BL_PLUGIN(BL_KIND_MONITOR, "logits", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0, NULL);
