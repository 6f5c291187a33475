/* monitor noise_scale: the gradient noise scale, how large a batch the gradient is worth.
 *
 *     b = B / W                                   tokens of one rank's share
 *     square = (B |g|^2 - b s) / (B - b)          without bias: |G|^2 of the true gradient
 *     trace  = (s - |g|^2) / (1 / b - 1 / B)      without bias, in units of a token
 *     noise/square = EMA(square)    noise/trace = EMA(trace)
 *     noise/scale  = EMA(trace) / EMA(square), in tokens
 *
 * B   unmasked targets of the global batch     W   logical ranks
 * g   the reduced gradient                     s   mean over ranks of |g_r|^2, g_r a rank's own
 * beta   of the two averages over the steps in which the monitor looks; default 0.95. The first
 *        value begins them, so the ratio has no start to correct for.
 *
 * A batch well below noise/scale is mostly noise, one well above it wastes tokens. Single steps
 * scatter widely and `square` may even come out negative: noise/scale is then written as it is, for
 * the average to mend.
 *
 * Source: McCandlish et al. 2018, arXiv:1812.06162, appendix A.1. Every (default 1) is the host's.
 *
 * Cost: none to speak of: the norms of the ranks' gradients are there for the rank/ metrics.
 *
 * What it cannot do: say anything with one rank (it warns once; cluster.emulate = 4 gives it four);
 * tell noise of the data from rounding of a bf16 reduction, which is in g and not in g_r; leave out
 * the forces of regularizers on the output matrix, which are added to g after the reduction.
 * Ranks with unequally many unmasked targets are taken as equal. Tokens of one sequence are not
 * independent: trace is that of the gradient of whole sequences, divided by their length, so that
 * noise/scale is a number of sequences times that. A step that makes no update, or whose gradient
 * is not finite, is left out of the averages and counted in noise/rejected.
 */
#include <math.h>
#include <string.h>

#include <ballast/monitor.h>

struct options {
    double beta;
};

static const struct bl_option options[] = {{"beta", BL_OPTION_FLOAT, 0, "0.95", "[0,1)",
                                            "decay of the averages, a look",
                                            offsetof(struct options, beta)},
                                           {0}};

struct state { /* what a checkpoint keeps */
    double square, trace;
    uint64_t looks, rejected;
};

struct noise {
    const struct bl_host *host;
    double beta;
    int warned;
    struct state now;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    struct noise *n = host->allocate(host, sizeof(*n));
    if (n == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*n));
    n->host = host;
    n->beta = o->beta;
    *self = n;
    return 0;
}

static void destroy(void *self)
{
    struct noise *n = self;
    if (n != NULL)
        n->host->release(n->host, n);
}

static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct noise *n = self;
    if (capacity >= sizeof(n->now))
        memcpy(buffer, &n->now, sizeof(n->now));
    return sizeof(n->now);
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct noise *n = self;
    struct state s = {0, 0, 0, 0};
    if (bytes == sizeof(s))
        memcpy(&s, buffer, sizeof(s));
    if (bytes != sizeof(s) || !isfinite(s.square) || !isfinite(s.trace))
        return n->host->fail(n->host, err,
                             "saved averages of %llu bytes are not this monitor's: restore the "
                             "checkpoint, or start without this monitor's state",
                             (unsigned long long)bytes);
    n->now = s;
    return 0;
}

/* Not before the update: a step that a guard rejects enters nothing. */
static int32_t after(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                     struct bl_error *err)
{
    struct noise *n = self;
    struct state *now = &n->now;
    double ranks = (double)in->logical_ranks, all = (double)in->targets;
    (void)err;
    if (in->logical_ranks < 2 || in->targets == 0) {
        if (!n->warned && in->logical_ranks < 2)
            host->log(host, BL_LOG_WARNING,
                      "one rank has no noise to measure: set cluster.emulate to 2 or more");
        n->warned = 1;
        return 0;
    }
    double share = all / ranks, whole = in->gradient_norm * in->gradient_norm;
    double square = (all * whole - share * in->rank_squares) / (all - share);
    double trace = (in->rank_squares - whole) / (1.0 / share - 1.0 / all);
    double beta = now->looks > 0 ? n->beta : 0.0; /* the first begins the averages */
    if (in->skipped || !isfinite(square) || !isfinite(trace)) {
        now->rejected++;
    } else {
        now->looks++;
        now->square = beta * now->square + (1.0 - beta) * square;
        now->trace = beta * now->trace + (1.0 - beta) * trace;
    }
    if (now->looks > 0) {
        host->metric(host, "noise/square", now->square);
        host->metric(host, "noise/trace", now->trace);
        host->metric(host, "noise/scale", now->trace / now->square);
    }
    host->metric(host, "noise/rejected", (double)now->rejected);
    return 0;
}

static const struct bl_monitor_ops ops = {
    .create = create, .destroy = destroy, .save = save, .load = load, .after = after};

BL_PLUGIN(BL_KIND_MONITOR, "noise_scale", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
