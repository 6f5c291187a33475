/* Guards: decide, in config order, how much of a gradient or an update goes through. */
#ifndef BALLAST_GUARD_H
#define BALLAST_GUARD_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bl_guard_input {
    uint32_t size;
    uint32_t reserved;
    uint64_t step; /* 1-based */
    double loss;   /* loss/total of the step */
    double norm;   /* L2 norm over all parameters of what comes in, earlier scales included */
    double learning_rate;
};

struct bl_verdict { /* arrives as skip = 0, scale = 1 */
    uint32_t size;
    uint32_t skip; /* 1: no update, later guards are not asked; moments and weights stay */
    double scale;  /* multiplies the gradient or the update; from 0 to FLT_MAX, as must be the
                    * product of those of all guards */
};

/* What a guard has changed in place, through host->tensor. */
enum bl_guard_change {
    BL_CHANGED_GRADIENT = 1, /* the host measures the norm anew */
    BL_CHANGED_WEIGHT = 2    /* the host makes the working copy of the weights anew */
};

struct bl_guard_ops {
    BL_COMMON_OPS;
    /* The reduced gradient. *changed arrives as 0: bits of enum bl_guard_change. */
    int32_t (*gradient)(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                        struct bl_verdict *out, uint32_t *changed, struct bl_error *err);
    /* The update w_new - w_old before it is written: costs the optimizer a second pass. */
    int32_t (*update)(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                      struct bl_verdict *out, struct bl_error *err);
    /* After all guards have spoken, once a step that does not end the run, asked or not: skipped =
     * 1 when the step made no update, by whose verdict ever. What a guard remembers of accepted
     * steps it takes over here, or a step that a later guard rejects stays in its history. NULL:
     * nothing to remember. */
    void (*settle)(void *self, uint32_t skipped);
};

#ifdef __cplusplus
}
#endif
#endif
