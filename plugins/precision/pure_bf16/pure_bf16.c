/* precision pure_bf16: everything that is stored or sent is bf16; there is no fp32 copy of the
 * weights.
 *
 *                      matrix   embedding   norm   head
 *     compute          bf16     bf16        bf16   bf16    working weights, activations
 *     arithmetic       -        -           fp32   -       inside a norm: mean, variance, gain
 *     attention_output bf16     -           -      -
 *     logits, dlogits  -        -           -      bf16
 *     gradient         bf16     bf16        bf16   bf16    one micro-batch's weight gradient
 *     accumulate       bf16     bf16        bf16   bf16    over micro-batches
 *     wire, sum        bf16     bf16        bf16   bf16    over ranks
 *     master           bf16     bf16        bf16   bf16    the only weights there are
 *     moments          bf16     bf16        bf16   bf16    state of the optimizer
 *
 *     average = divide, algorithm = alltoall, collective = all_reduce, roundings = nearest
 *
 * The optimizer computes one update of an element in fp32, from bf16 weight, gradient and moments;
 * then the new moments are rounded to nearest, and the new weight by the dial
 *
 *     precision.rounding = "nearest"      ties to even, the default
 *                        = "stochastic"   up with probability (w - low) / (high - low), where low
 *                                         and high are the bf16 numbers around w: the mean is w
 *                        = "kahan"        to nearest, and what that took off is kept, in bf16, and
 *                                         added before the next update: w = bf16(x),
 *                                         c = bf16(x - w) with x = (w + c) + update
 *
 * Random bits are a function of (run.seed, update, parameter, element). Initial weights are rounded
 * in the same way. No options of its own: a dial that the configuration writes under `precision`
 * wins over this table, for one group (precision.norm.master = "fp32") or for all.
 *
 * Why: a bf16 number has 8 significant bits. An update smaller than 2^-9 to 2^-8 of its weight is
 * lost entirely under nearest, at each step anew; stochastic rounding keeps it in expectation, at
 * the price of noise; Kahan's sum keeps it without noise, at the price of one more state array
 * ("kahan"). A thousand updates of 1e-3 on 1.0: nearest stays at 1.0, stochastic ends at 2.0 with a
 * standard deviation of 0.08, kahan at 2.0 within 0.012 (tests/unit/pure_bf16_test.c).
 *
 * Source: Gupta et al. 2015, arXiv:1502.02551 (stochastic rounding); Zamirai et al. 2020,
 * arXiv:2010.06192 (training with bf16 only, why nearest stalls, Kahan's sum of updates).
 *
 * What it cannot do: change to kahan, or away from it, in a run that has begun: the state array is
 * part of its checkpoints. Save memory on CPUs, where bf16 numbers live in fp32 storage. Help a
 * slow second moment: with beta2 = 0.999 a moment that should move by less than 2^-9 of itself
 * stays, whatever precision.rounding says (that is the weights'); precision.moments = "fp32" does.
 */
#include "../mixed_table.h"

static void fill(const void *self, struct bl_precision *table)
{
    static const uint32_t bf16[] = {BL_DIAL_GRADIENT, BL_DIAL_ACCUMULATE, BL_DIAL_WIRE,
                                    BL_DIAL_SUM,      BL_DIAL_MASTER,     BL_DIAL_MOMENTS};
    (void)self;
    bl_precision_fill_mixed(table);
    for (uint32_t group = 0; group < BL_GROUP_COUNT; group++)
        for (size_t i = 0; i < sizeof(bf16) / sizeof(bf16[0]); i++)
            table->dial[group][bf16[i]] = BL_BF16;
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "pure_bf16", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0,
          NULL);
