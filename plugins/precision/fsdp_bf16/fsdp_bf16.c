/* precision fsdp_bf16: PyTorch's first FSDP with MixedPrecision(param_dtype = bf16, reduce_dtype =
 * bf16): every hop of the gradient's ring rounds its partial sum to bf16.
 *
 *                      all groups
 *     compute          bf16      and logits, dlogits, attention_output; norm arithmetic fp32
 *     gradient         bf16      a bf16 backward leaves bf16 weight gradients
 *     accumulate       fp32      over micro-batches
 *     wire             bf16
 *     sum              bf16      one rounding a hop, W - 1 in all
 *     average          predivide   / f, sum, / (W / f), f a power of two near sqrt(W)
 *     algorithm        ring
 *     collective       reduce_scatter
 *     master, moments  fp32
 *
 * No options: a dial that the configuration writes under `precision` wins over this table; `ballast
 * check` and the run's log show what came out.
 *
 * Division by f is exact in bf16, so it changes the range and not the rounding; W / f rounds where
 * W is no power of two. FSDP reduces after every micro-batch and adds the shards in the format of
 * its weights, fp32; here a rank's micro-batches are added in fp32 before one reduction. With one
 * micro-batch a step the two are the same.
 *
 * Source: PyTorch, torch/distributed/algorithms/_comm_hooks/default_hooks.py (the factor f); the
 * question that it raises: allenai/OLMo issue 514 (growth of the output logits' norm over many
 * nodes). Error of the ring, relative: 1.67e-3 sqrt(W / 2 + 1.5 - 1 / W), docs/reductions.md.
 *
 * What it cannot do: reduce once a micro-batch. The ring is NCCL's, in the order of the ranks or
 * that of cluster.ring_order.
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
        dial[BL_DIAL_AVERAGE] = BL_AVERAGE_PREDIVIDE;
        dial[BL_DIAL_ALGORITHM] = BL_ALGORITHM_RING;
        dial[BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_REDUCE_SCATTER;
    }
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "fsdp_bf16", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0,
          NULL);
