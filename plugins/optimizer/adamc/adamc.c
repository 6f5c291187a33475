/* optimizer adamc: AdamW whose decay follows the schedule twice where a norm follows the layer.
 *
 *     as adamw, with the decay term   lr_t c_t wd w
 *     c_t = lr_t / peak lr     hidden matrices (group matrix, two dimensions)
 *     c_t = 1                  everything else: embeddings, output matrix, norms, biases
 *
 * betas, eps   as adamw
 *
 * Why: the gradient of a layer that is followed by a norm is orthogonal to its weights, so |w| is
 * set by the balance of decay and steps, and |g| / |w| settles: at sqrt(2 wd / lr) for plain SGD.
 * With a schedule that ends at zero the ratio, and the gradient norm, rise at the end. Scaling the
 * decay with lr_t keeps the ratio where it was at the peak.
 *
 * Source: Defazio 2025, arXiv:2506.02285 (AdamC).
 *
 * Roundings and bits: those of adamw; at the peak rate it is adamw, bit for bit. A rule's lr_scale
 * cancels in c_t.
 *
 * What it cannot do: know which layers a norm follows. In the pre-norm models of this trainer
 * hidden matrices are taken as such, as in the paper, and the output matrix is not; v, o and down
 * are followed by one only through the residual stream.
 */
#include "../adam.h"

static const struct bl_option options[] = {BL_ADAM_OPTIONS, {0}};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    return bl_adam_create(host, values, sizeof(struct bl_adam), self, err);
}

static struct bl_adam_coefficients coefficients(const struct bl_adam *a, const struct bl_update *u)
{
    double rate = u->learning_rate, decay = rate * u->weight_decay;
    if (u->group == BL_GROUP_MATRIX && u->ndim == 2) /* a peak of 0 is a rate of 0 */
        decay *= u->peak_learning_rate > 0 ? rate / u->peak_learning_rate : 0;
    return bl_adam_coefficients(a, u, rate, decay);
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
                                            .apply = apply};

BL_PLUGIN(BL_KIND_OPTIMIZER, "adamc", "1.0", BL_DEVICE_CPU, ops, options,
          sizeof(struct bl_adam_options), NULL);
