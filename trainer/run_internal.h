/* What the files of a run share and nobody else sees. */
#ifndef BL_RUN_INTERNAL_H
#define BL_RUN_INTERNAL_H

#include "data/prefetch.h"
#include "alarms.h"
#include "attempts.h"
#include "job.h"
#include "metrics/metrics.h"
#include "reduce.h"
#include "regularizers.h"
#include "run.h"
#include "rundir.h"
#include "rank_rows.h"
#include "shard.h"
#include "update.h"

/* What every process has to know of one rank's share of a step, then of one process's. */
enum { BL_SHARE_CE, BL_SHARE_NORM, BL_SHARE_TERMS }; /* then the sums of the regularizers */
struct bl_process_news {
    double seconds; /* of its own work in the step before: data, forward, backward, update */
    double waited;  /* in that step, for other processes */
    int32_t signal; /* that it was sent, or 0 */
    int32_t stop;   /* 1: it cannot begin the next step */
};

/* Checkpoints on their way to the disk. */
struct bl_run_saving {
    struct bl_saver *saver;
    uint64_t *parts;       /* (processes + 1) elements of the arena: who writes what */
    char *from;            /* the state that this run was forked from, or NULL */
    uint64_t failed;       /* saves */
    double began, seconds; /* when the newest began; what the newest on disk took */
};

struct bl_run {
    struct bl_setup *s;
    struct bl_start how;
    struct bl_world *world; /* alone: one process */
    uint32_t process, processes;
    struct bl_rundir directory; /* process 0's; the others know its name, attempt and plan */
    struct bl_backend *backend;
    struct bl_model *model;
    struct bl_regularizers *regularizers;
    struct bl_update_state *update;
    struct bl_metrics *metrics; /* without sinks elsewhere than in process 0 */
    struct bl_alarms *alarms;
    struct bl_job *job; /* process 0's; NULL outside of a Slurm job */
    json_t *notes;      /* what is not as in the checkpoint: for attempts.h; NULL: nothing */
    struct bl_run_saving saving;
    struct bl_sum *sum;
    struct bl_rows rows, eval_rows; /* rows: of all ranks, at their place */

    struct bl_prefetch *prefetch;
    struct bl_batch batch; /* of the step, and free for other use until the next; the prefetch's */

    struct bl_shards
        shards;           /* cluster.shard = "optimizer"; begin NULL: every process updates all */
    uint64_t *border;     /* (processes + 1) theirs */
    int scattered;        /* `gradient` is valid in the own shard only */
    struct bl_error lost; /* what host->tensor met when it gathered it: no answer tells */
    uint64_t equal;       /* step at which all processes had the same weights last; 0 = none */
    struct bl_rank_rows *rank_rows;

    float *gradient;    /* (params.floats) reduced; the model's arena itself when W = 1 */
    float *ce_gradient; /* the same for the CE part of the output matrix; made when first wanted */
    double *shares;     /* (W, share) sums of each rank's rows, its gradient's norm */
    uint64_t share;
    struct bl_process_news *news; /* (processes) */
    double *columns;              /* (2 W + 2 processes) of rank_rows */

    int64_t head;                  /* index of the output matrix */
    uint64_t step;                 /* updates done, skipped ones counted */
    uint64_t saved;                /* step of the newest checkpoint on disk; 0 = none */
    uint64_t origin;               /* sample of the first step, modulo 2^64 */
    double waited;                 /* seconds for the batch */
    double seconds, peers;         /* of the last step: own work, waits for other processes */
    int signal;                    /* that ends the run, agreed by all processes; 0 = none */
    int measured;                  /* the sum over ranks of this step was */
    int gradients_ready, ce_ready; /* what host->tensor may give now */
};

/* run_services.c: the host table over this run. */
void bl_run_services(struct bl_run *r);
int bl_run_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out);

/* run_checkpoint.c. Saves are collective over the processes. */
int bl_run_make_saver(struct bl_run *r, struct bl_error *err);
void bl_run_free_saver(struct bl_run *r); /* waits for its thread */
/* After each step: looks after the save that is under way and begins the one that is due, also if
 * `wanted`. A save that fails is a warning and counted. -1: the run is another attempt's by now, or
 * its weights are not finite. */
int bl_run_save(struct bl_run *r, int wanted, struct bl_error *err);
/* Returns when the state after step r->step is on disk, -1 when it cannot be: before the run ends
 * as planned, by a signal or an alarm. */
int bl_run_save_last(struct bl_run *r, struct bl_error *err);
/* Before the run ends with the error `err`: the save under way is finished. */
void bl_run_save_end(struct bl_run *r, const struct bl_error *err);

/* run_resume.c. Loads the newest good checkpoint of the run, or r->how.from when there are none:
 * weights, optimizer, plugin states, r->step, r->origin. Those that are damaged are warned of. */
int bl_run_resume(struct bl_run *r, struct bl_error *err);

/* run_identity.c: refuses a checkpoint (in the folder `path`) of another plan. */
struct bl_checkpoint_reader;
int bl_run_check_plan(const struct bl_run *r, const struct bl_checkpoint_reader *reader,
                      const char *path, struct bl_error *err);
/* Logs in which keys the plan differs and which plugin files changed, and keeps it in r->notes.
 * from: the folder of the checkpoint when it is another run's; NULL: it is this one's. */
int bl_run_note_plan(struct bl_run *r, const struct bl_checkpoint_reader *reader, const char *from,
                     struct bl_error *err);

/* run_gradient.c. Arrays for it: before the first step. */
int bl_run_make_gradient(struct bl_run *r, struct bl_error *err);
void bl_run_free_gradient(struct bl_run *r);
/* Forward and backward of this process's ranks, the sum over all ranks: r->gradient. `needs` of the
 * monitors (enum bl_monitor_need); rows_wanted: 1 = the row statistics of all ranks are needed.
 * Afterwards r->shares has every rank's, everywhere. */
int bl_run_gradient(struct bl_run *r, uint32_t needs, int rows_wanted, struct bl_error *err);
/* Whether somebody looks at pz in a step in which monitors have these needs. */
int bl_run_wants_pz(const struct bl_run *r, uint32_t needs);
/* The shards of r->gradient to all, where it is scattered: whoever reads it whole asks first. */
int bl_run_whole_gradient(struct bl_run *r, struct bl_error *err);
/* Where a plugin projects the CE part of the head's gradient, that part and the rest are added up
 * over the ranks apart, as the rounding of their sum would be no part's: until bl_run_join_gradient
 * the head of r->gradient is the CE part and r->ce_gradient the rest, then the whole and the CE
 * part. */
void bl_run_join_gradient(struct bl_run *r);
/* L2 norm of r->gradient over all parameters, tied ones once. */
int bl_run_norm(struct bl_run *r, double *out, struct bl_error *err);
/* After each process updated its shard: the weights to all, and the working copy. */
int bl_run_gather_weights(struct bl_run *r, struct bl_error *err);
/* Sum of lse - z_y over the unmasked rows from `first` on, one fp64 add a row. */
double bl_run_cross_entropy(const struct bl_rows *rows, uint64_t first, uint64_t count);

/* run_world.c. One exchange a step, before it: who cannot go on, who was sent a signal, how long
 * each took. All processes stop at the same step, whichever of them got the signal. got: 0, 1
 * stopped, -1 with the error; the answer is that of all. */
int bl_run_exchange(struct bl_run *r, int got, struct bl_error *err);
/* Tells Slurm how far the run is. */
void bl_run_tell_job(struct bl_run *r, double loss);
/* Spread over ranks and processes into the row; names a slow process. */
void bl_run_record_ranks(struct bl_run *r);
/* The weights of all processes, or -1 with the process whose weights deviate. */
int bl_run_compare(struct bl_run *r, struct bl_error *err);

/* run_evaluate.c. Held-out loss into the current row of metrics. Before the last step a signal cuts
 * it off: no value then. */
int bl_run_evaluate(struct bl_run *r, struct bl_error *err);

/* run_step.c. The batch of the next step; 1 when a signal, to any process, came before it did. */
int bl_run_read(struct bl_run *r, struct bl_error *err);
/* Forward, backward, reduction, guards, update, monitors; one row of metrics. */
int bl_run_step(struct bl_run *r, struct bl_error *err);
int bl_run_is_due(const struct bl_plugin_instance *monitor, uint64_t step);

#endif
