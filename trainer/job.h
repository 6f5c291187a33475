/* What Slurm says about this job, and what this run tells Slurm. All of it is optional: no call
 * blocks or fails a run, and outside of a job, or where Slurm's programs are missing, each is
 * nothing. Made and used by process 0, in one thread.
 *
 * The time limit is asked with `squeue`, the job's comment is set with `scontrol`, each in a child
 * process, at most once a minute. Not through libslurm: its calls wait for the controller without a
 * limit of ours, and it ends the process when it finds no configuration (measured with 22.05). */
#ifndef BL_JOB_H
#define BL_JOB_H

#include <stdint.h>

/* From the environment, whose string the id is; "" and 0 for what is not there. */
struct bl_job_facts {
    const char *id;    /* "812"; of a task of an array "812_3" */
    uint32_t restarts; /* how often the job was requeued */
};
/* id_text of at least 64 bytes holds the id of a task of an array. 1 inside a job, else 0. */
int bl_job_facts(struct bl_job_facts *out, char *id_text);

struct bl_job;

/* NULL outside of a job; the others accept that. The time limit is asked for at once. */
struct bl_job *bl_job_make(void);
void bl_job_free(struct bl_job *j);

/* Seconds until the time limit, as last heard: INFINITY without a limit, NAN while unknown. */
double bl_job_remaining(struct bl_job *j);

/* Once a step. The comment becomes "step 1200/5000 loss 3.21 eta 0:41:10". */
void bl_job_progress(struct bl_job *j, uint64_t step, uint64_t total, double loss,
                     double seconds_per_step);

/* Seconds of Slurm's "[days-][[hours:]minutes:]seconds", INFINITY of "UNLIMITED", else NAN. */
double bl_job_seconds(const char *text);

/* For job scripts, in files that are whole or not there; only process 0 of a job writes them, and
 * only where BALLAST_STATUS names one. srun does not tell the code of a step in which it killed
 * processes: at the end of the program the file gets its exit code and why, as one line "75 stopped
 * by SIGUSR1 after ...". */
void bl_job_status(int code, const char *text);
/* The step of a checkpoint that is on disk, in the file of that name with ".saved" after it: by it
 * a script tells attempts that come on from those that do not. */
void bl_job_saved(uint64_t step);

#endif
