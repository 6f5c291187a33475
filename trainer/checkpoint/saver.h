/* Checkpoints that are written while the training goes on.
 *
 *     begin    copies what is to be saved, then a thread writes it
 *     poll     once a step: whether it is on disk by now
 *     wait     until it is
 *
 * Over several processes each writes its own shard. Calls are collective: every process makes them
 * in the same order, and poll and wait send messages only while a save is under way. Process 0
 * publishes: once all files of all processes are on disk, state.json with their checksums, then
 * the claim is looked at again, then the folder gets its name.
 *
 * A save that fails leaves the older checkpoints as they were. */
#ifndef BL_CHECKPOINT_SAVER_H
#define BL_CHECKPOINT_SAVER_H

#include "checkpoint/checkpoint.h"
#include "collectives/world.h"

/* Where to: a checkpoint to resume from, a state of the ring, or both at once. BL_SAVE_STILL:
 * nothing changes before wait, so no copy is made and begin returns when the files are written. */
enum { BL_SAVE_CHECKPOINT = 1, BL_SAVE_RING = 2, BL_SAVE_STILL = 4 };

struct bl_saver_setup {
    const char *directory;  /* <run>/checkpoints; the ring is in <directory>/ring */
    struct bl_world *world; /* NULL: one process */
    int copy;               /* 0: every save is BL_SAVE_STILL */
    uint64_t keep, keep_every;
    uint64_t ring; /* states that stay in it */
    /* Whether this attempt still owns the run: asked by process 0 before a folder gets its name,
     * from the writing thread. NULL: nobody asks. */
    int (*owns)(void *context, struct bl_error *err);
    void *context;
    /* Threads that copy; NULL: the calling one. */
    void (*parallel_for)(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument);
    void *parallel_context;
};

enum bl_saver_event {
    BL_SAVER_NOTHING, /* nothing was under way, or it still is */
    BL_SAVER_SAVED,
    BL_SAVER_FAILED
};

struct bl_saver_report {
    int event;
    uint64_t step;
    uint32_t published;    /* what is there now: a part of `where`, or all of it */
    double seconds;        /* from begin to the disk */
    uint64_t bytes;        /* that this process wrote */
    struct bl_error error; /* of BL_SAVER_FAILED */
};

struct bl_saver;

int bl_saver_make(const struct bl_saver_setup *setup, struct bl_saver **out, struct bl_error *err);
/* Takes the memory of the copies of what is like `c`, whose data is not read. -1: there is none,
 * and as long as that is so, saves are written by begin itself. */
int bl_saver_reserve(struct bl_saver *s, const struct bl_checkpoint *c);
/* Waits for the own thread, not for other processes. NULL is fine. */
void bl_saver_free(struct bl_saver *s);

/* 1 from begin until a poll or a wait reports the end. */
int bl_saver_busy(const struct bl_saver *s);
/* The saver is not busy. What `c` points to may change when this returns. A file that cannot be
 * written is no error here: it is reported as all failures are. */
int bl_saver_begin(struct bl_saver *s, const struct bl_checkpoint *c, uint32_t where,
                   struct bl_error *err);
/* -1: the run is no longer this attempt's, or a peer was lost; a failed save is an event. */
int bl_saver_poll(struct bl_saver *s, struct bl_saver_report *out, struct bl_error *err);
int bl_saver_wait(struct bl_saver *s, struct bl_saver_report *out, struct bl_error *err);

#endif
