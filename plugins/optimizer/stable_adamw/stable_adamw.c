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

static const struct bl_option options[] = {BL_ADAM_OPTIONS, {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    return bl_adam_create(host, values, sizeof(struct bl_adam), self, err);
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
    const struct bl_adam *a = self;
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

static struct bl_adam_coefficients coefficients(const struct bl_adam *a, const struct bl_update *u)
{
    double rate = u->surveyed <= 1 ? u->learning_rate : u->learning_rate / u->surveyed;
    return bl_adam_coefficients(a, u, rate, rate * u->weight_decay);
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct bl_adam_coefficients c = coefficients(self, u);
    bl_adam_update(self, &c, u, begin, end);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct bl_adam_coefficients c = coefficients(self, u);
    return bl_adam_measure(self, &c, u, begin, end);
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = bl_adam_destroy,
                                            .states = bl_adam_states,
                                            .state_name = bl_adam_state_name,
                                            .prepare = prepare,
                                            .apply = apply,
                                            .survey = survey};

BL_PLUGIN(BL_KIND_OPTIMIZER, "stable_adamw", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct bl_adam_options), NULL);
