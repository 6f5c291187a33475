/* What a run will take, worked out from its setup: nothing of it is allocated. */
#ifndef BL_BUDGET_H
#define BL_BUDGET_H

#include "setup.h"

/* Bytes. */
struct bl_budget {
    struct bl_model_bytes model;
    uint64_t optimizer;  /* its state arrays */
    uint64_t ranks;      /* sums over emulated ranks; 0 for one rank */
    uint64_t batch;      /* two batches, statistics and regularizer values of every row of one */
    uint64_t total;      /* of the above; code, libraries and plugins' own memory come on top */
    uint64_t checkpoint; /* on disk: the tensors of one, without the files' headers */
};

/* For a setup whose plugins are created (bl_setup_create). */
int bl_budget_make(const struct bl_setup *s, struct bl_backend *backend, struct bl_budget *out,
                   struct bl_error *err);

#endif
