/* What of a run a checkpoint holds: for run_checkpoint.c, which saves it, and run_resume.c. */
#ifndef BL_RUN_STATE_H
#define BL_RUN_STATE_H

#include "checkpoint/checkpoint.h"
#include "run_internal.h"

extern const char bl_run_alarms_key[];

/* Views of the run's arrays; names of states are owned here. What is stored as weights are the
 * working weights; they and the master differ only by the rounding that bl_model_refresh repeats,
 * so the master alone determines both. */
struct bl_run_views {
    struct bl_tensor *weights, *states; /* states: what is here of elements [from, to) */
    struct bl_checkpoint_slice *slices; /* (state_count) which elements of which tensor */
    size_t weight_count, state_count;
};
int bl_run_views_make(struct bl_run *r, uint64_t from, uint64_t to, struct bl_run_views *out,
                      struct bl_error *err);
void bl_run_views_free(struct bl_run_views *v);
/* Every state is here as a whole: it gets the shape of its tensor. */
void bl_run_views_whole(struct bl_run_views *v);
void bl_run_views_drop_empty(struct bl_run_views *v);

/* Calls f for every instance of the run that may have state. */
int bl_run_each_instance(struct bl_run *r,
                         int (*f)(struct bl_plugin_instance *i, void *context,
                                  struct bl_error *err),
                         void *context, struct bl_error *err);
struct bl_checkpoint_info bl_run_info(const struct bl_run *r);

#endif
