/* The directory of a run: who owns it, which attempt this is, what is already there. */
#ifndef BL_RUNDIR_H
#define BL_RUNDIR_H

#include "run.h"

struct bl_rundir {
    char *path;
    int folder, lock; /* file descriptors: the folder, <folder>/.lock; -1 = none */
    int claim;        /* attempts/<attempt>, which stays the same file; -1 = none */
    uint32_t attempt; /* 1-based */
    int planned;      /* there was a config.cfg, of this plan or with --replan */
    uint64_t plan;    /* its hash: config/plan.h */
    char *config;     /* the effective configuration as text */
    double looked;    /* bl_clock() of the last bl_rundir_check that looked for later attempts */
};

enum { BL_RUNDIR_LOOK = 10 }; /* seconds between such looks */

/* Makes the directory, takes its lock (another running process is refused), with --fresh removes
 * what an earlier run left (only files that runs write), otherwise refuses a stored config.cfg
 * that describes another plan (but with --replan). Then claims the attempt after the newest. An
 * attempt of the same job before Slurm requeued it is not refused but waited for, half a minute at
 * most: it ends because of the claim. */
int bl_rundir_open(const struct bl_setup *s, const struct bl_start *how, struct bl_rundir *out,
                   struct bl_error *err);
/* Writes config.cfg: only once the checkpoint was accepted too, as the file speaks for it. Refused
 * when a later attempt was claimed meanwhile. */
int bl_rundir_keep_config(const struct bl_rundir *d, struct bl_error *err);
/* Whether the directory is still the one that was opened (one that was removed, moved or replaced
 * takes no checkpoint, and another run may be in the new one) and this attempt still the newest:
 * one that somebody takes for dead, as its node was cut off, must publish nothing more. */
int bl_rundir_owns(const struct bl_rundir *d, struct bl_error *err);
/* For every step: the same, but looks for later attempts every BL_RUNDIR_LOOK seconds only. */
int bl_rundir_check(struct bl_rundir *d, struct bl_error *err);
/* An attempt that bl_attempts_write never filled is taken back. */
void bl_rundir_close(struct bl_rundir *d);

#endif
