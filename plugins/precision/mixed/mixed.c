/* precision mixed: bf16 compute over fp32 master weights, as data-parallel training under bf16
 * autocast has it.
 *
 *                      matrix   embedding   norm   head
 *     compute          bf16     bf16        bf16   bf16    working weights, activations
 *     arithmetic       -        -           fp32   -       inside a norm: mean, variance, gain
 *     attention_output bf16     -           -      -
 *     logits           -        -           -      bf16    as the head's product leaves them
 *     dlogits          -        -           -      bf16    into the head's two products
 *     gradient         fp32     fp32        fp32   fp32    one micro-batch's weight gradient
 *     accumulate       fp32     fp32        fp32   fp32    over micro-batches
 *     wire, sum        fp32     fp32        fp32   fp32    over ranks
 *     master, moments  fp32     fp32        fp32   fp32
 *
 *     average = divide, algorithm = alltoall, collective = all_reduce, roundings = nearest
 *
 * The loss itself (log-sum-exp, softmax) is computed in fp32 or better from the bf16 logits. No
 * options: a dial that the configuration writes under `precision` wins over this table, for one
 * group (precision.head.wire = "bf16") or for all (precision.wire = "bf16").
 *
 * Source: Micikevicius et al. 2017, arXiv:1710.03740 (fp32 master weights); bf16 needs no loss
 * scale: Kalamkar et al. 2019, arXiv:1905.12322.
 *
 * What it cannot do: change what is reduced over ranks. A bf16 reduction is precision.wire and
 * precision.sum, on purpose apart from compute.
 */
#include "../mixed_table.h"

static void fill(const void *self, struct bl_precision *table)
{
    (void)self;
    bl_precision_fill_mixed(table);
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "mixed", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0, NULL);
