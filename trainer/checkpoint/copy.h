/* The copy of a checkpoint's content that is written while the original changes. */
#ifndef BL_CHECKPOINT_COPY_H
#define BL_CHECKPOINT_COPY_H

#include "checkpoint/checkpoint.h"

struct bl_copy;

/* parallel_for: as in saver.h. NULL: no memory. */
struct bl_copy *bl_copy_make(void (*parallel_for)(void *context, uint64_t n,
                                                  void (*body)(void *, uint64_t), void *argument),
                             void *context);
void bl_copy_free(struct bl_copy *copy); /* NULL is fine */

/* Takes and touches the memory for the numbers of `c`, whose data is not read: the first take then
 * costs no more than later ones. -1: there is none. */
int bl_copy_reserve(struct bl_copy *copy, const struct bl_checkpoint *c);
/* *out: a checkpoint that owns its names and states, until the next take. numbers = 1: the tensors'
 * numbers too, in memory that is taken when it is not there yet; *aside: 1 when it was there, 0
 * when *out points to the caller's numbers. Tensors with the same numbers share one copy. */
int bl_copy_take(struct bl_copy *copy, const struct bl_checkpoint *c, int numbers,
                 const struct bl_checkpoint **out, int *aside, struct bl_error *err);
/* Bytes of all tensors of the last take, as they are written. */
uint64_t bl_copy_bytes(const struct bl_copy *copy);

#endif
