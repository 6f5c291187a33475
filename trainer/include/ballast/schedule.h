/* Schedules: the learning rate's factor as a pure function of the update and the stored plan.
 *
 * The host owns the peak (optimizer.lr) and the warmup; a plugin gives the curve after it. */
#ifndef BALLAST_SCHEDULE_H
#define BALLAST_SCHEDULE_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bl_schedule_point {
    uint32_t size;
    uint32_t reserved;
    uint64_t update;  /* 0-based index of the update, >= warmup */
    uint64_t warmup;  /* updates of linear warmup */
    uint64_t updates; /* in the whole plan */
};

struct bl_schedule_ops {
    BL_COMMON_OPS;
    /* lr(update) / peak lr. Pure: no state, same answer on every rank and at every resume. */
    double (*factor)(const void *self, const struct bl_schedule_point *point);
};

#ifdef __cplusplus
}
#endif
#endif
