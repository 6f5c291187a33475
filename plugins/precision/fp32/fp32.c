/* precision fp32: every dial fp32, the reference that other policies are measured against.
 *
 *     compute, gradient, accumulate, wire, sum, master, moments, logits, dlogits,
 *     attention_output, arithmetic = fp32       rounding, sum_rounding = nearest
 *     average = divide      algorithm = alltoall (ranks in ascending order)
 *     collective = all_reduce
 *
 * The same for all groups of tensors (matrix, embedding, norm, head). No options: a dial that the
 * configuration writes under `precision` wins over this table.
 *
 * What it cannot do: be exact. Sums of many terms are still fp32 sums; reduce/error shows how much.
 */
#include <ballast/precision.h>

static const uint32_t formats[] = {
    BL_DIAL_COMPUTE, BL_DIAL_GRADIENT,   BL_DIAL_ACCUMULATE,      BL_DIAL_WIRE,
    BL_DIAL_SUM,     BL_DIAL_MASTER,     BL_DIAL_MOMENTS,         BL_DIAL_LOGITS,
    BL_DIAL_DLOGITS, BL_DIAL_ARITHMETIC, BL_DIAL_ATTENTION_OUTPUT};

static void fill(const void *self, struct bl_precision *table)
{
    (void)self;
    for (uint32_t group = 0; group < BL_GROUP_COUNT; group++) {
        uint32_t *dial = table->dial[group];
        for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++)
            dial[formats[i]] = BL_FP32;
        dial[BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE;
        dial[BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL;
        dial[BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_ALL_REDUCE;
        dial[BL_DIAL_ROUNDING] = BL_ROUND_NEAREST;
        dial[BL_DIAL_SUM_ROUNDING] = BL_ROUND_NEAREST;
    }
}

static const struct bl_option options[] = {{0}};

static const struct bl_precision_ops ops = {.fill = fill};

BL_PLUGIN(BL_KIND_PRECISION, "fp32", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options, 0, NULL);
