/* precision bf16_wire_fp32_sum: bf16 gradients on the wire, one local sum in fp32: the remedy that
 * Megatron-LM calls reduce_scatter_with_fp32_accumulation.
 *
 *                      all groups
 *     compute          bf16      and logits, dlogits, attention_output; norm arithmetic fp32
 *     gradient         bf16      a bf16 backward leaves bf16 weight gradients
 *     accumulate       bf16      over micro-batches
 *     wire             bf16
 *     sum              fp32      in ascending rank order, rounded to bf16 once at the end
 *     average          divide_first   each rank / W, then sum
 *     algorithm        alltoall
 *     collective       reduce_scatter
 *     master, moments  fp32
 *
 * No options: a dial that the configuration writes under `precision` wins over this table; `ballast
 * check` and the run's log show what came out.
 *
 * The bytes sent are those of a bf16 ring, the error does not grow with W: 2.3e-3 relative where W
 * is a power of two, 2.8e-3 elsewhere, where each rank's division rounds too (`ballast reduce
 * --algorithm alltoall --average divide_first --ranks 8,24,96,128`).
 *
 * Source: NVIDIA Megatron-LM, megatron/core/distributed (reduce_scatter_with_fp32_accumulation,
 * grad_reduce_in_fp32 = False: the gradient buffer that micro-batches are added into is bf16).
 *
 * What it cannot do: keep the buffer of micro-batches in fp32 by itself; precision.accumulate =
 * "fp32" does.
 */
#include "../mixed_table.h"

static void fill(const void *self, struct bl_precision *table)
{
    (void)self;
    bl_precision_fill_mixed(table);
    for (uint32_t group = 0; group < BL_GROUP_COUNT; group++) {
        uint32_t *dial = table->dial[group];
        dial[BL_DIAL_GRADIENT] = BL_BF16;
        dial[BL_DIAL_ACCUMULATE] = BL_BF16;
        dial[BL_DIAL_WIRE] = BL_BF16;
        dial[BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE_FIRST;
        dial[BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL;
        dial[BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_REDUCE_SCATTER;
    }
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "bf16_wire_fp32_sum", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops,
          options, 0, NULL);
