/* A run in this process alone. */
#ifndef TESTS_LIB_ALONE_H
#define TESTS_LIB_ALONE_H

#include "run.h"

/* Frees s. */
static inline int train_alone(struct bl_setup *s, int fresh, struct bl_error *err)
{
    struct bl_world *world;
    if (bl_world_make(1, &world, err) < 0) {
        bl_setup_free(s);
        return -1;
    }
    const struct bl_start how = {.fresh = fresh};
    int rc = bl_run_train(s, world, &how, err);
    bl_world_free(world);
    return rc;
}

#endif
