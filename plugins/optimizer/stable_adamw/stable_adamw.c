/* optimizer stable_adamw: AdamW that takes smaller steps where its second moment lags behind.
 *
 *     as adamw, with lr / max(1, RMS) in place of lr, per parameter tensor
 *     RMS^2 = mean over elements of x^2 / max(v_hat, eps^2)
 *     v_hat = (beta2 v + (1 - beta2) x^2) / (1 - beta2^t)
 *
 * x   the scaled gradient     betas, eps   as adamw     lr   of the step and of the decay
 *
 * Why: a second moment that has not seen a gradient grow yet lets one update through that is much
 * too large; RMS is above 1 in just these updates. Spikes of the loss follow 1 to 8 updates after.
 *
 * Source: Wortsman et al. 2023, arXiv:2304.13013, section 3 (update clipping of AdaFactor, Shazeer
 * and Stern 2018, arXiv:1804.04235, with threshold 1).
 *
 * Cost: one more pass over gradient and second moment. RMS is an fp64 sum over fixed blocks in
 * index order; roundings and bits are else those of adamw, and where RMS <= 1 it is adamw, bit for
 * bit.
 *
 * What it cannot do: spread its state over processes (cluster.shard = "optimizer" is refused), as
 * every update needs the tensor as a whole; clip one row of the embedding alone.
 */
#include "../adam.h"

enum { BLOCK = 4096, GROUP = 1024 /* blocks a call of the threads */ };

struct options {
    struct bl_floats betas;
    double eps;
};

static const struct bl_option options[] = {
    {"betas", BL_OPTION_FLOATS, 0, "0.9,0.95", "[0,1)", "decay rates of the two moments",
     offsetof(struct options, betas)},
    {"eps", BL_OPTION_FLOAT, 0, "1e-8", "[1e-30,1]", "added to the root of the second moment",
     offsetof(struct options, eps)},
    {0}};

struct stable_adamw {
    const struct bl_host *host;
    double beta1, beta2, eps;
    int avx2;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (o->betas.count != 2)
        return host->fail(host, err, "betas has %llu values, wants 2: betas = [ 0.9, 0.95 ]",
                          (unsigned long long)o->betas.count);
    struct stable_adamw *a = host->allocate(host, sizeof(*a));
    if (a == NULL)
        return host->fail(host, err, "no memory for %zu bytes", sizeof(*a));
    a->host = host;
    a->beta1 = o->betas.values[0];
    a->beta2 = o->betas.values[1];
    a->eps = o->eps;
    a->avx2 = bl_use_avx2();
    *self = a;
    return 0;
}

static void destroy(void *self)
{
    struct stable_adamw *a = self;
    if (a != NULL)
        a->host->release(a->host, a);
}

static uint32_t states(const void *self)
{
    (void)self;
    return 2;
}

static const char *state_name(const void *self, uint32_t i)
{
    (void)self;
    return i == 0 ? "moment1" : i == 1 ? "moment2" : NULL;
}

struct job {
    const struct bl_update *u;
    uint64_t begin;
    double beta2, floor, correction;
    double sums[GROUP];
};

static void sum_block(void *argument, uint64_t block)
{
    struct job *j = argument;
    const struct bl_update *u = j->u;
    uint64_t begin = j->begin + block * BLOCK;
    uint64_t end = begin + BLOCK < u->count ? begin + BLOCK : u->count;
    double sum = 0;
    for (uint64_t i = begin; i < end; i++) {
        double x = (double)u->gradient[i] * u->gradient_scale, squares = x * x;
        double v = (j->beta2 * (double)u->state[1][i] + (1.0 - j->beta2) * squares) * j->correction;
        sum += squares / (v > j->floor ? v : j->floor);
    }
    j->sums[block] = sum;
}

static int32_t survey(void *self, const struct bl_host *host, const struct bl_update *u,
                      double *out, struct bl_error *err)
{
    const struct stable_adamw *a = self;
    double eps = isnan(u->epsilon) ? a->eps : u->epsilon, sum = 0;
    struct job j = {.u = u,
                    .beta2 = a->beta2,
                    .floor = eps * eps,
                    .correction = 1.0 / (1.0 - pow(a->beta2, (double)u->step))};
    (void)err;
    for (; j.begin < u->count; j.begin += (uint64_t)GROUP * BLOCK) {
        uint64_t blocks = (u->count - j.begin + BLOCK - 1) / BLOCK;
        blocks = blocks < GROUP ? blocks : GROUP;
        host->parallel_for(host, blocks, sum_block, &j);
        for (uint64_t b = 0; b < blocks; b++)
            sum += j.sums[b];
    }
    *out = sqrt(sum / (double)u->count); /* RMS; NaN stays NaN */
    return 0;
}

static struct coefficients coefficients(const struct stable_adamw *a, const struct bl_update *u)
{
    double rate = u->surveyed <= 1 ? u->learning_rate : u->learning_rate / u->surveyed;
    return coefficients_of(u, a->beta1, a->beta2, a->eps, rate, rate * u->weight_decay);
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct stable_adamw *a = self;
    const struct coefficients c = coefficients(a, u);
    adam_apply(a->avx2, &c, u, begin, end);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct stable_adamw *a = self;
    const struct coefficients c = coefficients(a, u);
    return adam_prepare(a->avx2, &c, u, begin, end);
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply,
                                            .survey = survey};

BL_PLUGIN(BL_KIND_OPTIMIZER, "stable_adamw", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct options), NULL);
