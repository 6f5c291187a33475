/* What the policies over fp32 master weights have in common: bf16 compute, all else fp32. */
#ifndef BL_PRECISION_MIXED_TABLE_H
#define BL_PRECISION_MIXED_TABLE_H

#include <ballast/precision.h>

static inline void bl_precision_fill_mixed(struct bl_precision *table)
{
    static const uint32_t fp32[] = {BL_DIAL_GRADIENT,  BL_DIAL_ACCUMULATE, BL_DIAL_WIRE,
                                    BL_DIAL_SUM,       BL_DIAL_MASTER,     BL_DIAL_MOMENTS,
                                    BL_DIAL_ARITHMETIC};
    for (uint32_t group = 0; group < BL_GROUP_COUNT; group++) {
        uint32_t *dial = table->dial[group];
        for (size_t i = 0; i < sizeof(fp32) / sizeof(fp32[0]); i++)
            dial[fp32[i]] = BL_FP32;
        dial[BL_DIAL_COMPUTE] = BL_BF16;
        dial[BL_DIAL_LOGITS] = group == BL_GROUP_HEAD ? BL_BF16 : BL_FP32;
        dial[BL_DIAL_DLOGITS] = group == BL_GROUP_HEAD ? BL_BF16 : BL_FP32;
        dial[BL_DIAL_ATTENTION_OUTPUT] = group == BL_GROUP_MATRIX ? BL_BF16 : BL_FP32;
        dial[BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE;
        dial[BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL;
        dial[BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_ALL_REDUCE;
        dial[BL_DIAL_ROUNDING] = BL_ROUND_NEAREST;
        dial[BL_DIAL_SUM_ROUNDING] = BL_ROUND_NEAREST;
    }
}

#endif
