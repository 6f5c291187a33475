/* optimizer adamw: Adam with decoupled weight decay.
 *
 *     x  = gradient_scale * gradient
 *     m  = beta1 m + (1 - beta1) x                 state "moment1"
 *     v  = beta2 v + (1 - beta2) x^2               state "moment2"
 *     c  = -( lr wd w + (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps) )
 *     w  = w + update_scale * c
 *
 * t      1-based count of the parameter's updates
 * lr     schedule x optimizer.lr x the rule's lr_scale
 * wd     optimizer.weight_decay or the rule's
 * betas  default 0.9, 0.95
 * eps    default 1e-8; a rule may set another
 * decay  default "times_lr"; see below
 *
 * Source: Loshchilov and Hutter 2017, arXiv:1711.05101; Kingma and Ba 2014, arXiv:1412.6980. As in
 * PyTorch, the decay is multiplied by lr: a schedule that ends at zero ends the decay too.
 *
 * Rounding. Coefficients are computed in fp64 and rounded to fp32 once; each operation on an
 * element is one fp32 operation in the order written, without fused multiply-adds; square root and
 * division are IEEE. The same bits come out on every instruction set. Decay and step are added to
 * each other before they are added to w, so that w is rounded once. With e = 2^-24 one update is
 * within 5 e of fp64 in m and 8 e in v, relative to the sums of their absolute terms, and within
 * 17 e in c, relative to lr wd |w| + the second term with m's absolute terms in place of m
 * (adamw_test.c counts the roundings and checks all three).
 *
 * An element whose gradient is below about 1e-23 has v = 0 by underflow of its square; its step is
 * then lr m / eps.
 *
 * decay = "times_lr" (the default) is the formula above. With "independent" the term is f wd w,
 * where f = lr / peak lr is the schedule's factor: another peak, or a rule's lr_scale, then leaves
 * the decay alone (Wortsman et al. 2023, arXiv:2309.14322, with wd = 1e-4 in place of 0.1 at lr
 * 1e-3).
 *
 * What it cannot do: round its moments (precision.moments does).
 * With eps = 1e-8 an element with a gradient that is pure rounding noise moves by lr all the same.
 */
#include "../adam.h"

enum decay { DECAY_TIMES_LR, DECAY_INDEPENDENT };

struct options {
    struct bl_adam_options adam;
    int32_t decay;
};

static const struct bl_option options[] = {
    BL_ADAM_OPTIONS,
    {"decay", BL_OPTION_CHOICE, 0, "times_lr", "times_lr|independent",
     "weight decay is multiplied by lr, or by the schedule's factor alone",
     offsetof(struct options, decay)},
    {0}};

struct adamw {
    struct bl_adam adam;
    int independent;
};

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    const struct options *o = values;
    if (bl_adam_create(host, &o->adam, sizeof(struct adamw), self, err) != 0)
        return -1;
    ((struct adamw *)*self)->independent = o->decay == DECAY_INDEPENDENT;
    return 0;
}

static struct bl_adam_coefficients coefficients(const struct adamw *a, const struct bl_update *u)
{
    double rate = u->learning_rate;
    if (a->independent) /* a peak of 0 is a rate of 0 */
        rate = u->peak_learning_rate > 0 ? rate / u->peak_learning_rate : 0;
    return bl_adam_coefficients(&a->adam, u, u->learning_rate, rate * u->weight_decay);
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

BL_PLUGIN(BL_KIND_OPTIMIZER, "adamw", "1.0", BL_DEVICE_CPU, ops, options, sizeof(struct options),
          NULL);
