/* What the files of a run share and nobody else sees. */
#ifndef BL_RUN_INTERNAL_H
#define BL_RUN_INTERNAL_H

#include "data/prefetch.h"
#include "alarms.h"
#include "attempts.h"
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
    struct bl_alarms *alarms;
    json_t *changed; /* plugins that are not those of the checkpoint (attempts.h), or NULL */
    struct bl_reduce reduce;
    struct bl_rows rows, eval_rows;

    struct bl_prefetch *prefetch;
    struct bl_batch batch; /* of the step, and free for other use until the next; the prefetch's */

    float *sum; /* (params.floats) partial sum over ranks; the gradient arena itself when W = 1 */
    float *ce_sum; /* the same for the CE part of the output matrix's gradient */

    int64_t head;                  /* index of the output matrix */
    uint64_t step;                 /* updates done, skipped ones counted */
    uint64_t saved;                /* step of the newest checkpoint; 0 = none */
    double waited;                 /* seconds for the batch */
    int gradients_ready, ce_ready; /* what host->tensor may give now */
};

/* run_services.c: the host table over this run. */
void bl_run_services(struct bl_run *r);
int bl_run_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out);

/* run_checkpoint.c */
int bl_run_save(struct bl_run *r, struct bl_error *err);
/* Loads the newest checkpoint, if there is one: weights, optimizer, plugin states, r->step. */
int bl_run_resume(struct bl_run *r, struct bl_error *err);

/* run_identity.c: refuses a checkpoint (in the folder `path`) of another plan; warns of plugins
 * whose file changed since, and notes them in r->changed. */
struct bl_checkpoint_reader;
int bl_run_check_plan(struct bl_run *r, const struct bl_checkpoint_reader *reader, const char *path,
                      struct bl_error *err);

/* run_step.c. The batch of the next step; 1 when a signal came before it did. */
int bl_run_read(struct bl_run *r, struct bl_error *err);
/* Forward, backward, reduction, guards, update, monitors; one row of metrics. */
int bl_run_step(struct bl_run *r, struct bl_error *err);
int bl_run_is_due(const struct bl_plugin_instance *monitor, uint64_t step);
/* Held-out loss into the current row of metrics. Before the last step a signal cuts it off: no
 * value then. */
int bl_run_evaluate(struct bl_run *r, struct bl_error *err);

#endif
