/* Monitors: read what a step made, add numbers to its row of metrics. They change nothing. */
#ifndef BALLAST_MONITOR_H
#define BALLAST_MONITOR_H

#include <ballast/plugin.h>
#include <ballast/regularizer.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What must be computed in the steps a monitor looks at; needs(self). */
enum bl_monitor_need {
    BL_MONITOR_PZ = 1,          /* bl_row_stats.pz */
    BL_MONITOR_UPDATES = 2,     /* host->update_squares */
    BL_MONITOR_CE_GRADIENT = 4, /* BL_CE_GRADIENT of the output matrix, where weights are untied */
    BL_MONITOR_REDUCTION = 8    /* host->reduction: a shadow sum of the gradients in fp64 */
};

struct bl_monitor_input {
    uint32_t size;
    uint32_t skipped;                  /* in `after`: 1 when the step made no update */
    uint64_t step;                     /* 1-based */
    const struct bl_row_stats *rows;   /* of the whole batch, what the loss saw; ranks in turn */
    const struct bl_row_stats *before; /* the same before transforms; NULL when there are none */
    uint64_t targets;                  /* unmasked targets of the GLOBAL batch */
    double learning_rate;
    double loss;          /* loss/total */
    double gradient_norm; /* L2, over all parameters, of the reduced gradient: optim/grad_norm */
    double rank_squares; /* mean over the logical ranks of the squared norm of a rank's own gradient
                          * (each the mean over its share of the batch); NaN with one rank */
    uint64_t logical_ranks;
};

struct bl_monitor_ops {
    BL_COMMON_OPS;
    uint32_t (*needs)(const void *self); /* NULL: nothing */
    /* Gradients are reduced, guards have not run, weights are those before the update. */
    int32_t (*observe)(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                       struct bl_error *err);
    /* After the update (skipped updates too). */
    int32_t (*after)(void *self, const struct bl_host *host, const struct bl_monitor_input *in,
                     struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
