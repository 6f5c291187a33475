/* A run: the step loop. */
#ifndef BL_RUN_H
#define BL_RUN_H

#include "collectives/world.h"
#include "setup.h"

/* How a run starts. */
struct bl_start {
    int fresh;  /* removes what is in the run directory */
    int replan; /* a checkpoint of another plan, or layout, is taken; differences are logged */
    const char *from; /* checkpoint folder of any run: a run without checkpoints starts from it */
    uint64_t skip_samples; /* the data goes on so many sequences later than the checkpoint says */
};

/* Collective over the processes of `world`. Trains as `s` says and frees it, resuming from the
 * newest checkpoint of the run directory or as `how` says. 0 when the plan is complete. -1 with
 * code 75 or 130 when a signal (stop.h) stopped it after a checkpoint or before the first step, 7
 * when it diverged, another code when it failed. */
int bl_run_train(struct bl_setup *s, struct bl_world *world, const struct bl_start *how,
                 struct bl_error *err);

/* Whether a run ends with this code in all processes at once, so that one of them says it. */
int bl_run_ends_everywhere(int code);

#endif
