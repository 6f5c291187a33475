/* The batches of a run, read by one thread while the step before computes. */
#ifndef BL_DATA_PREFETCH_H
#define BL_DATA_PREFETCH_H

#include "plugin/host.h"

/* What the batches are made of. The batch of step s (1-based) begins with sample
 * origin + (s - 1) sequences of the run; sample -> sequence of the source: bl_sample_index. */
struct bl_batches {
    struct bl_plugin_instance *source; /* open; its `read` is thread-safe */
    uint64_t seed, context, vocab;
    uint64_t sequences; /* a step, over all ranks */
    uint64_t origin;    /* modulo 2^64: a run that forked may have had another batch before */
    uint64_t available; /* training sees the first so many sequences of the source */
};

struct bl_batch {
    int32_t *tokens, *targets; /* (sequences, context) */
    uint64_t valid;            /* targets that are not masked, >= 1 */
};

/* Sequence `index` into one row of a batch. */
int bl_sequence_read(struct bl_plugin_instance *source, uint64_t index, uint64_t vocab,
                     int32_t *tokens, int32_t *targets, struct bl_error *err);

struct bl_prefetch;

/* Starts the thread, which reads the batches of first ... last, at most one ahead of the one that
 * is in use: two batches of memory. Signals are blocked in it. */
int bl_prefetch_make(const struct bl_batches *from, uint64_t first, uint64_t last,
                     struct bl_prefetch **out, struct bl_error *err);
/* The batch of `step`: first, first + 1, ... in turn. Its arrays are the caller's until the next
 * call. 1 when it is not there yet and `stopped` (may be NULL) answers something else than 0: ask
 * again or give up. -1 when it cannot be read: the error of this step, whenever it happened. */
int bl_prefetch_next(struct bl_prefetch *p, uint64_t step, int (*stopped)(void),
                     struct bl_batch *out, struct bl_error *err);
/* Waits for the sequence that is being read, not for the batch. */
void bl_prefetch_free(struct bl_prefetch *p);
/* Bytes that a bl_prefetch of this size holds. */
uint64_t bl_prefetch_bytes(uint64_t sequences, uint64_t context);

#endif
