/* What the processes of a run tell each other about the run itself: signals, times, faults. */
#include <signal.h>

#include "base/log.h"
#include "replicas.h"
#include "run_internal.h"
#include "stop.h"

/* The signal that came, or USR1 when the time limit of the job leaves no more than the last save
 * takes: half as long again as the one before, two steps, and seconds for what Slurm does late. */
static int signal_to_stop(struct bl_run *r)
{
    const double slack = 5;
    int number = bl_stop_signal();
    double remaining = bl_job_remaining(r->job);
    if (number == 0 && remaining < 1.5 * r->saving.seconds + 2 * (r->seconds + r->peers) + slack) {
        bl_log(BL_LOG_INFO, "the time limit of the job is %.0f s away: the run stops here",
               remaining);
        number = SIGUSR1;
    }
    return number;
}

void bl_run_tell_job(struct bl_run *r, double loss)
{
    bl_job_progress(r->job, r->step, r->s->info.steps, loss, r->seconds + r->peers);
}

int bl_run_exchange(struct bl_run *r, int got, struct bl_error *err)
{
    struct bl_process_news mine = {r->seconds, r->peers, signal_to_stop(r), got};
    int failed = 0;
    if (bl_world_gather(r->world, &mine, sizeof mine, r->news, err) < 0)
        return -1;
    for (uint32_t p = 0; p < r->processes; p++) {
        failed |= r->news[p].stop < 0;
        if (r->news[p].signal == SIGINT || r->signal == 0)
            r->signal = r->news[p].signal;
    }
    if (failed)
        return bl_world_agree(r->world, got < 0 ? -1 : 0, err);
    return r->signal != 0;
}

static void emit(void *context, const char *name, double value)
{
    bl_metrics_set(context, name, value);
}

/* Losses and gradient norms of this step, times of the one before: those of this one are not over.
 */
void bl_run_record_ranks(struct bl_run *r)
{
    const struct bl_setup *s = r->s;
    uint32_t ranks = (uint32_t)s->ranks;
    struct bl_straggler late;
    double *loss = r->columns, *norm = loss + ranks, *seconds = norm + ranks,
           *waited = seconds + r->processes;
    if (ranks == 1)
        return;
    for (uint32_t i = 0; i < ranks; i++) {
        loss[i] = r->shares[i * r->share + BL_SHARE_CE] * ranks / (double)r->batch.valid;
        norm[i] = r->shares[i * r->share + BL_SHARE_NORM];
    }
    for (uint32_t p = 0; p < r->processes; p++) {
        seconds[p] = r->news[p].seconds;
        waited[p] = r->news[p].waited;
    }
    struct bl_rank_columns columns = {loss, norm, seconds, waited};
    if (bl_rank_rows_add(r->rank_rows, &columns, emit, r->metrics, &late) && r->process == 0)
        bl_rank_rows_warn(&late, bl_world_host(r->world, late.process), r->step);
}

/* Weights that differ cannot go into a checkpoint: before each one, and every cluster.check_every
 * steps, they are compared. */
int bl_run_compare(struct bl_run *r, struct bl_error *err)
{
    struct bl_replicas_when when = {r->step, r->equal};
    if (r->processes == 1 || r->equal == r->step)
        return 0;
    if (bl_replicas_check(r->world, r->backend, bl_model_weights(r->model), r->s->params.floats,
                          &when, err) < 0)
        return -1;
    r->equal = r->step;
    return 0;
}
