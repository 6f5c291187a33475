/* Precision policies: a plugin fills a table of dials; a dial written in the config wins. */
#ifndef BALLAST_PRECISION_H
#define BALLAST_PRECISION_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Dials, each set per group of tensors (enum bl_group_value). */
enum bl_dial_value {
    BL_DIAL_COMPUTE = 0,       /* dtype of working weights, activations and their gradients */
    BL_DIAL_GRADIENT = 1,      /* dtype in which one micro-batch's weight gradient is stored */
    BL_DIAL_ACCUMULATE = 2,    /* dtype of the sum over a rank's micro-batches */
    BL_DIAL_WIRE = 3,          /* dtype each rank's gradient is rounded to before it is sent */
    BL_DIAL_SUM = 4,           /* dtype of the partial sums over ranks */
    BL_DIAL_AVERAGE = 5,       /* enum bl_average_value */
    BL_DIAL_ALGORITHM = 6,     /* enum bl_algorithm_value */
    BL_DIAL_COLLECTIVE = 7,    /* enum bl_collective_value */
    BL_DIAL_MASTER = 8,        /* dtype of the weights the optimizer updates */
    BL_DIAL_MOMENTS = 9,       /* dtype of the optimizer's state */
    BL_DIAL_ROUNDING = 10,     /* weight store: enum bl_rounding_value */
    BL_DIAL_SUM_ROUNDING = 11, /* each add over ranks */
    BL_DIAL_LOGITS = 12,       /* dtype logits are rounded to before the loss; head group only */
    BL_DIAL_DLOGITS = 13,      /* dtype of d loss / d logits before the head's GEMMs; head only */
    BL_DIAL_ATTENTION_OUTPUT = 14, /* matrix group only */
    BL_DIAL_ARITHMETIC = 15,       /* norm group only: dtype inside the norm */
    BL_DIAL_COUNT = 16
};

enum bl_average_value {
    BL_AVERAGE_DIVIDE = 0,       /* sum, then / W */
    BL_AVERAGE_DIVIDE_FIRST = 1, /* each rank / W, then sum */
    BL_AVERAGE_PREMULTIPLY = 2, /* each rank * (1/W rounded to the wire dtype), then sum: ncclAvg */
    BL_AVERAGE_PREDIVIDE = 3    /* / f, sum, / (W/f), f a power of two near sqrt(W): FSDP */
};
enum bl_algorithm_value {
    BL_ALGORITHM_ALLTOALL = 0, /* wire format on the wire, one sum in ascending rank order */
    BL_ALGORITHM_RING = 1,     /* NCCL's ring: every partial sum is rounded */
    BL_ALGORITHM_TREE = 2,     /* NCCL's: chains inside nodes, a double binary tree over them */
    BL_ALGORITHM_NVLS = 3,     /* a model: fp32 inside a node, one rounding, the tree over nodes */
    BL_ALGORITHM_PAIRWISE = 4, /* log2 W levels of pairs: a reference, no NCCL algorithm */
    BL_ALGORITHM_HYBRID = 5    /* reduce-scatter in the node, then all-reduce across nodes */
};
enum bl_collective_value { BL_COLLECTIVE_ALL_REDUCE = 0, BL_COLLECTIVE_REDUCE_SCATTER = 1 };
enum bl_rounding_value { BL_ROUND_NEAREST = 0, BL_ROUND_STOCHASTIC = 1, BL_ROUND_KAHAN = 2 };

/* dial[group][dial]; room for growth without a change of layout. */
struct bl_precision {
    uint32_t size;
    uint32_t reserved;
    uint32_t dial[8][32];
};

struct bl_precision_ops {
    BL_COMMON_OPS;
    /* table arrives with every dial fp32, nearest, divide, all_reduce, alltoall. */
    void (*fill)(const void *self, struct bl_precision *table);
};

#ifdef __cplusplus
}
#endif
#endif
