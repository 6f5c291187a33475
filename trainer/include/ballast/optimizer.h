/* Optimizers: element-wise updates over ranges that the host hands out to its threads. */
#ifndef BALLAST_OPTIMIZER_H
#define BALLAST_OPTIMIZER_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One parameter in one update. Arrays are fp32 of `count` elements. */
struct bl_update {
    uint32_t size;
    uint32_t reserved;
    uint64_t step; /* 1-based count of updates that this parameter gets, for bias correction */
    uint64_t count;
    uint64_t key; /* random stream of the parameter */
    float *weight;
    const float *gradient; /* multiply by gradient_scale: guards scale lazily */
    float *const *state;   /* state[i] (count,), zero at the start; like weight and gradient it may
                            * be there only from `begin` to `end` of the call */
    double gradient_scale;
    double learning_rate;      /* schedule x optimizer.lr x the rule's lr_scale */
    double weight_decay;       /* after rules */
    double epsilon;            /* of a rule; NaN: none, use the plugin's own */
    double update_scale;       /* of an update guard; 1 when there is none */
    double peak_learning_rate; /* optimizer.lr x the rule's lr_scale: learning_rate where the
                                * schedule's factor is 1 */
    uint32_t group;            /* BL_GROUP_... of the parameter */
    uint32_t ndim;             /* 1 or 2 */
    uint64_t rows, columns;    /* of a matrix (out, in); (count, 1) of a vector */
    const char *name;          /* "layers.0.attn.q.weight" */
    double surveyed;           /* what survey made of the parameter; 0 without that op */
};

struct bl_optimizer_ops {
    BL_COMMON_OPS;
    /* Number of fp32 state arrays per parameter, at most 8, and their names ("moment1"). */
    uint32_t (*states)(const void *self);
    const char *(*state_name)(const void *self, uint32_t i);
    /* sum over [begin, end) of (w_new - w_old)^2 as apply with update_scale = 1 would make it,
     * in index order, fp64; writes nothing. NULL: refused together with a guard on updates. */
    double (*prepare)(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end);
    /* w_new = w_old + update_scale * (change); states advance as if update_scale were 1.
     * One pass; the same bits on every instruction set. */
    void (*apply)(const void *self, const struct bl_update *u, uint64_t begin, uint64_t end);
    /* Looks at a parameter as a whole, 0 ... count of all arrays, before prepare and apply of any:
     * called in the order of the parameter table, host->parallel_for is fine. Changes neither
     * weights nor states; a weight is as it is stored, without what Kahan's sum keeps of it. *out
     * arrives as 0 and becomes bl_update.surveyed of this parameter;
     * larger results are the instance's own. A sharded optimizer has no whole parameters: a plugin
     * with this op is refused there. NULL: nothing to look at. */
    int32_t (*survey)(void *self, const struct bl_host *host, const struct bl_update *u,
                      double *out, struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
