/* precision fsdp2_bf16: PyTorch's fully_shard (FSDP2) with reduce_dtype = bf16: NCCL's AVG, which
 * multiplies each rank's gradient by 1/W rounded to bf16 before a ring of bf16 sums.
 *
 *                      all groups
 *     compute          bf16      and logits, dlogits, attention_output; norm arithmetic fp32
 *     gradient         bf16      a bf16 backward leaves bf16 weight gradients
 *     accumulate       fp32      over micro-batches
 *     wire             bf16
 *     sum              bf16      one rounding a hop, W - 1 in all
 *     average          premultiply   each rank * bf16(1 / W), then sum
 *     algorithm        ring
 *     collective       reduce_scatter
 *     master, moments  fp32
 *
 * No options: a dial that the configuration writes under `precision` wins over this table; `ballast
 * check` and the run's log show what came out.
 *
 * Where W is no power of two, bf16(1 / W) is off by up to 2^-8 and so is the scale of every
 * gradient
 * (+0.195 percent at W = 24, 48, 96; +0.388 at 255), and each product is rounded once more.
 *
 * Source: PyTorch, torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (no division of its own
 * for bf16, ReduceOp.AVG); NVIDIA NCCL, src/device/reduce_kernel.h, FuncPreMulSum.
 *
 * What it cannot do: reduce once a micro-batch, see precision/fsdp_bf16.
 */
#include "../mixed_table.h"

static void fill(const void *self, struct bl_precision *table)
{
    (void)self;
    bl_precision_fill_mixed(table);
    for (uint32_t group = 0; group < BL_GROUP_COUNT; group++) {
        uint32_t *dial = table->dial[group];
        dial[BL_DIAL_GRADIENT] = BL_BF16;
        dial[BL_DIAL_WIRE] = BL_BF16;
        dial[BL_DIAL_SUM] = BL_BF16;
        dial[BL_DIAL_AVERAGE] = BL_AVERAGE_PREMULTIPLY;
        dial[BL_DIAL_ALGORITHM] = BL_ALGORITHM_RING;
        dial[BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_REDUCE_SCATTER;
    }
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "fsdp2_bf16", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0,
          NULL);
