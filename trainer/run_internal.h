/* What the files of a run share and nobody else sees. */
#ifndef BL_RUN_INTERNAL_H
#define BL_RUN_INTERNAL_H

#include "metrics/metrics.h"
#include "reduce.h"
#include "regularizers.h"
#include "run.h"
#include "rundir.h"
#include "update.h"

struct bl_run {
    struct bl_setup *s;
    struct bl_rundir directory;
    struct bl_backend *backend;
    struct bl_model *model;
    struct bl_regularizers *regularizers;
    struct bl_update_state *update;
    struct bl_metrics *metrics;
    struct bl_reduce reduce;
    struct bl_rows rows, eval_rows;

    /* One step's global batch, (sequences, context). */
    int32_t *tokens, *targets;
    uint64_t target_count; /* unmasked */

    float *sum; /* (params.floats) partial sum over ranks; the gradient arena itself when W = 1 */
    float *ce_sum; /* the same for the CE part of the output matrix's gradient */

    int64_t head;                  /* index of the output matrix */
    uint64_t step;                 /* updates done, skipped ones counted */
    int gradients_ready, ce_ready; /* what host->tensor may give now */
};

/* run_services.c: the host table over this run. */
void bl_run_services(struct bl_run *r);
int bl_run_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out);

/* run_checkpoint.c */
int bl_run_save(struct bl_run *r, struct bl_error *err);
/* Loads the newest checkpoint, if there is one: weights, optimizer, plugin states, r->step. */
int bl_run_resume(struct bl_run *r, struct bl_error *err);

/* run_step.c: batch, forward, backward, reduction, guards, update, monitors; one row of metrics. */
int bl_run_step(struct bl_run *r, struct bl_error *err);
/* Held-out loss into the current row of metrics. */
int bl_run_evaluate(struct bl_run *r, struct bl_error *err);

#endif
