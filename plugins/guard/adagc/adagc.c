/* guard adagc: each tensor's gradient norm against its own moving average.
 *
 *     h = min(1, relative gamma / |g|)          g = h g
 *     gamma = beta gamma + (1 - beta) |h g|
 *
 *     in the first `warmup` steps, and while a tensor has had no gradient but 0, instead
 *     h = min(1, absolute / |all gradients|),  gamma = min(gamma, |h g|) over norms above 0
 *
 * g          reduced gradient of one tensor, L2 norms
 * gamma      one number a tensor
 * relative   default 1.05; 0 = off (the null setting)
 * beta       default 0.98
 * absolute   default 1.0, as clip_norm
 * warmup     default 100 steps
 *
 * What was clipped enters gamma as what it became. What another guard skips enters nothing. A step
 * in which a norm is not finite neither: whether it is skipped is skip_step's to say, else the run
 * ends as diverged. gamma and the count of steps are in the checkpoint. It works on the reduced
 * gradient as it is stored, before the scales of guards that come earlier in the list: put it
 * before those. The host measures the norm anew.
 *
 * Metrics: guard/<instance>/clipped, the number of tensors that were scaled, and .../scale, the
 * smallest h.
 *
 * Source: Wang et al. 2025, arXiv:2502.11034 (AdaGC). The defaults are those of
 * public implementations.
 *
 * Cost: one pass over the gradient for norms, one over what is scaled, one for the norm; with a
 * sharded optimizer the whole gradient is gathered.
 *
 * What it cannot do: let a norm rise faster than (1 - beta)(relative - 1), 0.1 percent a step: a
 * real and lasting jump, as after a change of data, is clipped for hundreds of steps. A tensor
 * whose gradient is zero for long comes back clipped hard, its average having faded.
 */
#include <math.h>
#include <string.h>

#include <ballast/guard.h>

#include "../blocks.h"

struct options {
    double relative, beta, absolute;
    int64_t warmup;
};

static const struct bl_option options[] = {
    {"relative", BL_OPTION_FLOAT, 0, "1.05", "[0,inf)", "largest norm over its average; 0 = off",
     offsetof(struct options, relative)},
    {"beta", BL_OPTION_FLOAT, 0, "0.98", "[0,1)", "decay of the average, a step",
     offsetof(struct options, beta)},
    {"absolute", BL_OPTION_FLOAT, 0, "1.0", "[1e-30,inf)",
     "largest norm of the whole gradient during warmup", offsetof(struct options, absolute)},
    {"warmup", BL_OPTION_INT, 0, "100", "[1,inf)", "steps that begin the averages",
     offsetof(struct options, warmup)},
    {0}};

struct adagc {
    const struct bl_host *host;
    const struct options *options;
    uint64_t steps, tensors;
    double *gamma, *next, *norm; /* (tensors,); one allocation */
    int pending;                 /* next is gamma with this step, until it is settled */
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    struct adagc *g = host->allocate(host, sizeof(*g));
    if (g == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*g));
    g->host = host;
    g->options = values;
    *self = g;
    return 0;
}

static void destroy(void *self)
{
    struct adagc *g = self;
    if (g == NULL)
        return;
    g->host->release(g->host, g->gamma);
    g->host->release(g->host, g);
}

static int make_room(struct adagc *g, uint64_t tensors)
{
    if (g->tensors == tensors)
        return 0;
    double *room = g->host->allocate(g->host, 3 * tensors * sizeof(double));
    if (room == NULL)
        return -1;
    g->host->release(g->host, g->gamma);
    g->gamma = room;
    g->next = room + tensors;
    g->norm = room + 2 * tensors;
    g->tensors = tensors;
    return 0;
}

/* Norms of all tensors into g->norm; the norm of the whole. */
static double measure(struct adagc *g, const struct bl_host *host)
{
    double squares = 0;
    for (uint64_t t = 0; t < g->tensors; t++) {
        struct bl_tensor x = {.size = sizeof(x)};
        double s = host->tensor(host, t, BL_GRADIENT, &x) < 0 ? NAN : host->sum_squares(host, &x);
        g->norm[t] = sqrt(s);
        squares += s;
    }
    return sqrt(squares);
}

static int32_t gradient(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    struct adagc *g = self;
    const struct options *o = g->options;
    double smallest = 1;
    uint64_t clipped = 0;
    (void)in;
    (void)out;
    if (o->relative == 0.0)
        return 0;
    if (g->steps > 0 && g->tensors != host->tensor_count(host))
        return host->fail(host, err, "saved averages are of %llu tensors, the model has %llu",
                          (unsigned long long)g->tensors,
                          (unsigned long long)host->tensor_count(host));
    if (make_room(g, host->tensor_count(host)) != 0)
        return host->fail(host, err, "no memory for the averages of %llu tensors",
                          (unsigned long long)host->tensor_count(host));
    double whole = measure(g, host);
    if (!isfinite(whole))
        return 0;
    int warm = g->steps >= (uint64_t)o->warmup;
    for (uint64_t t = 0; t < g->tensors; t++) {
        int begun = g->gamma[t] > 0, judged = warm && begun;
        double limit = judged ? o->relative * g->gamma[t] / g->norm[t] : o->absolute / whole;
        double h = limit < 1 ? limit : 1; /* 0 / 0 passes */
        if (h < 1) {
            struct bl_tensor x = {.size = sizeof(x)};
            host->tensor(host, t, BL_GRADIENT, &x);
            bl_guard_scale(host, &x, h);
            clipped++;
        }
        double became = h * g->norm[t];
        g->next[t] = g->gamma[t];
        if (judged)
            g->next[t] = o->beta * g->gamma[t] + (1.0 - o->beta) * became;
        else if (!begun || (became > 0 && became < g->gamma[t]))
            g->next[t] = became;
        smallest = h < smallest ? h : smallest;
    }
    g->pending = 1;
    *changed = clipped > 0 ? BL_CHANGED_GRADIENT : 0;
    bl_guard_metric(host, "clipped", (double)clipped);
    bl_guard_metric(host, "scale", smallest);
    return 0;
}

static void settle(void *self, uint32_t skipped)
{
    struct adagc *g = self;
    if (g->pending && !skipped) {
        memcpy(g->gamma, g->next, g->tensors * sizeof(double));
        g->steps++;
    }
    g->pending = 0;
}

/* State: steps, number of tensors (u64 each), gamma (f64 each). */
static uint64_t save(const void *self, void *buffer, uint64_t capacity)
{
    const struct adagc *g = self;
    const uint64_t head[2] = {g->steps, g->tensors}, need = sizeof(head) + g->tensors * 8;
    if (capacity < need || buffer == NULL)
        return need;
    memcpy(buffer, head, sizeof(head));
    if (g->tensors > 0)
        memcpy((char *)buffer + sizeof(head), g->gamma, g->tensors * 8);
    return need;
}

static int32_t load(void *self, const void *buffer, uint64_t bytes, struct bl_error *err)
{
    struct adagc *g = self;
    uint64_t head[2] = {0, 0};
    if (bytes >= sizeof(head))
        memcpy(head, buffer, sizeof(head));
    if (bytes < sizeof(head) || (bytes - sizeof(head)) % 8 != 0 ||
        head[1] != (bytes - sizeof(head)) / 8 || (head[1] == 0 && head[0] > 0))
        return g->host->fail(g->host, err,
                             "saved averages of %llu bytes are not this guard's: restore the "
                             "checkpoint, or start without this guard's state",
                             (unsigned long long)bytes);
    for (uint64_t t = 0; t < head[1]; t++) {
        double gamma;
        memcpy(&gamma, (const char *)buffer + sizeof(head) + t * 8, 8);
        if (!(gamma >= 0) || isinf(gamma))
            return g->host->fail(g->host, err,
                                 "saved average %llu is %g: the checkpoint is damaged",
                                 (unsigned long long)t, gamma);
    }
    if (make_room(g, head[1]) != 0)
        return g->host->fail(g->host, err, "no memory for the averages of %llu tensors",
                             (unsigned long long)head[1]);
    if (head[1] > 0)
        memcpy(g->gamma, (const char *)buffer + sizeof(head), head[1] * 8);
    g->steps = head[0];
    return 0;
}

static const struct bl_guard_ops ops = {.create = create,
                                        .destroy = destroy,
                                        .save = save,
                                        .load = load,
                                        .gradient = gradient,
                                        .settle = settle};

BL_PLUGIN(BL_KIND_GUARD, "adagc", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          "relative=0");
