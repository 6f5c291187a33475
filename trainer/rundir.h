/* The directory of a run: who owns it, which attempt this is, what is already there. */
#ifndef BL_RUNDIR_H
#define BL_RUNDIR_H

#include "setup.h"

struct bl_rundir {
    char *path;
    int lock;         /* file descriptor, -1 = none */
    uint32_t attempt; /* 1-based */
};

/* Makes the directory, takes its lock (another running process is refused), with `fresh` removes
 * what an earlier run left (only files that runs write), otherwise refuses a stored config.cfg
 * that describes another plan. Then writes config.cfg and claims the next attempt. */
int bl_rundir_open(const struct bl_setup *s, int fresh, struct bl_rundir *out,
                   struct bl_error *err);
void bl_rundir_close(struct bl_rundir *d);

#endif
