/* optimizer adamc: AdamW whose decay follows the schedule twice where a norm follows the layer.
 *
 *     as adamw, with the decay term   lr_t c_t wd w
 *     c_t = lr_t / peak lr     hidden matrices (group matrix, two dimensions)
 *     c_t = 1                  everything else: embeddings, output matrix, norms, biases
 *
 * betas, eps   as adamw
 *
 * Why: the gradient of a layer that is followed by a norm is orthogonal to its weights, so |w| is
 * set by the balance of decay and steps, and |g| / |w| settles at sqrt(2 wd / lr). With a schedule
 * that ends at zero the ratio, and the gradient norm, rise at the end. Scaling the decay with lr_t
 * keeps the ratio where it was at the peak: sqrt(2 wd / peak lr).
 *
 * Source: Defazio 2025, arXiv:2506.02285 (AdamC).
 *
 * Roundings and bits: those of adamw; with a constant schedule it is adamw, bit for bit. A rule's
 * lr_scale cancels in c_t.
 *
 * What it cannot do: know which layers a norm follows. In the pre-norm models of this trainer
 * hidden matrices are taken as such, as in the paper, and the output matrix is not; v, o and down
 * are followed by one only through the residual stream.
 */
#include "../adam.h"

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

struct adamc {
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
    struct adamc *a = host->allocate(host, sizeof(*a));
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
    struct adamc *a = self;
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

static struct coefficients coefficients(const struct adamc *a, const struct bl_update *u)
{
    double rate = u->learning_rate, decay = rate * u->weight_decay;
    if (u->group == BL_GROUP_MATRIX && u->ndim == 2) /* a peak of 0 is a rate of 0 */
        decay *= u->peak_learning_rate > 0 ? rate / u->peak_learning_rate : 0;
    return coefficients_of(u, a->beta1, a->beta2, a->eps, rate, decay);
}

static void apply(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct adamc *a = self;
    const struct coefficients c = coefficients(a, u);
    adam_apply(a->avx2, &c, u, begin, end);
}

static double prepare(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end)
{
    const struct adamc *a = self;
    const struct coefficients c = coefficients(a, u);
    return adam_prepare(a->avx2, &c, u, begin, end);
}

static const struct bl_optimizer_ops ops = {.create = create,
                                            .destroy = destroy,
                                            .states = states,
                                            .state_name = state_name,
                                            .prepare = prepare,
                                            .apply = apply};

BL_PLUGIN(BL_KIND_OPTIMIZER, "adamc", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
