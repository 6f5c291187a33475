/* A run: the step loop. */
#ifndef BL_RUN_H
#define BL_RUN_H

#include "collectives/world.h"
#include "setup.h"

/* Collective over the processes of `world`. Trains as `s` says and frees it, resuming from the
 * newest checkpoint of the run directory unless `fresh`. 0 when the plan is complete. -1 with code
 * 75 or 130 when a signal (stop.h) stopped it after a checkpoint or before the first step, 7 when
 * it diverged, another code when it failed. */
int bl_run_train(struct bl_setup *s, struct bl_world *world, int fresh, struct bl_error *err);

#endif
