/* What a run will take, worked out from its setup: nothing of it is allocated. */
#ifndef BL_BUDGET_H
#define BL_BUDGET_H

#include "setup.h"

/* Bytes of one process, where processes differ of the one with the largest shard. */
struct bl_budget {
    struct bl_model_bytes model;
    uint64_t optimizer;  /* its state arrays, of the own shard */
    uint64_t ranks;      /* sums over ranks and what is kept apart of them; 0 where there is none */
    uint64_t snapshot;   /* the copy that a save is written from; 0: none is made */
    uint64_t batch;      /* two batches, statistics and regularizer values of every row of one */
    uint64_t total;      /* of the above; code, libraries and plugins' own memory come on top */
    uint64_t checkpoint; /* on disk: the tensors of one, without the files' headers */
    /* A process sends so much in a step at least, whatever the order of the sum: a piece of its
     * gradient to each other process, and its own piece of the result to each. */
    uint64_t sent;
    struct bl_text order; /* of the sum over ranks, as bl_sum_text says it */
};

/* For a setup whose plugins are created (bl_setup_create); processes as it was made for. */
int bl_budget_make(const struct bl_setup *s, struct bl_backend *backend, uint32_t processes,
                   struct bl_budget *out, struct bl_error *err);
/* Whether some save is written from a copy, while the training goes on. */
int bl_budget_copies(const struct bl_setup *s);
void bl_budget_free(struct bl_budget *b);

#endif
