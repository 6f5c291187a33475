/* Checks of the run directory and of the job's time. */
#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/strings.h"
#include "doctor/say.h"

enum { FILES = 16 }; /* of a checkpoint, generously, with its folder */

static int is_blind(const struct bl_doctor_facts *f, const void *context)
{
    (void)context;
    return f->sight == BL_SIGHT_MISSING;
}

static int cannot_write(const struct bl_doctor_facts *f, const void *context)
{
    (void)context;
    return f->write_error != 0;
}

void bl_check_directory(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_run *r = c->run;
    char hosts[256];
    if (!r->has_config) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
    } else if (*r->directory_error != '\0') {
        bl_say(out, BL_DOCTOR_FAILED, "%s", r->directory_error);
        bl_say_fix(out, "run.dir = \"FOLDER\": one that you may write and all nodes see");
    } else if (bl_doctor_hosts_where(c, is_blind, NULL, hosts, sizeof hosts) > 0) {
        bl_say(out, BL_DOCTOR_FAILED, "%s: what %s writes there is not seen by %s", r->directory,
               c->facts[0].host, hosts);
        bl_say_fix(out, "run.dir = \"FOLDER\": one on a file system that all nodes share (not "
                        "/tmp, not a local disk)");
    } else if (bl_doctor_hosts_where(c, cannot_write, NULL, hosts, sizeof hosts) > 0) {
        int code = 0;
        for (uint32_t p = 0; p < c->count && code == 0; p++)
            code = c->facts[p].write_error;
        bl_say(out, BL_DOCTOR_FAILED, "%s: cannot be written from %s: %s", r->directory, hosts,
               strerror(code));
        bl_say_fix(out, "mount it for writing there, or choose another run.dir");
    } else {
        bl_say(out, BL_DOCTOR_OK, "%s%s", r->directory,
               bl_doctor_hosts(c) > 1 ? ": all hosts see what process 0 writes"
                                      : ": can be written");
    }
}

static int locks_alone(const struct bl_doctor_facts *f, const void *context)
{
    (void)context;
    return f->lock == BL_LOCK_LOCAL;
}

void bl_check_locks(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    char hosts[256];
    if (c->facts[0].lock == BL_LOCK_UNKNOWN) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s",
               c->run->has_config ? "no run directory to look at" : bl_doctor_no_config(c));
        return;
    }
    if (c->facts[0].lock == BL_LOCK_NONE)
        bl_say(out, BL_DOCTOR_WARNING,
               "%s: the file system has no locks: two jobs could write "
               "one run",
               c->run->directory);
    else if (bl_doctor_hosts_where(c, locks_alone, NULL, hosts, sizeof hosts) > 0)
        bl_say(out, BL_DOCTOR_WARNING,
               "%s: a lock of %s does not keep out %s: two jobs could write one run",
               c->run->directory, c->facts[0].host, hosts);
    else {
        bl_say(out, BL_DOCTOR_OK, "a second job in the same run will be refused");
        return;
    }
    bl_say_fix(out, "start a run once at a time (sbatch --dependency=singleton), or have it "
                    "mounted with locks (Lustre: flock; NFS: without local_lock)");
}

void bl_check_disk(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_run *r = c->run;
    char a[32], b[32], each[32];
    if (!r->has_config || r->checkpoint == 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s",
               r->has_config ? "the run writes nothing" : bl_doctor_no_config(c));
        return;
    }
    if (r->disk_free == BL_DOCTOR_NO_LIMIT) {
        bl_say(out, BL_DOCTOR_ABSENT, "no run directory to look at");
        return;
    }
    uint64_t all = r->copies * r->checkpoint, need = all > r->present ? all - r->present : 0;
    if (r->disk_free < need) {
        uint64_t fit = (r->disk_free + r->present) / r->checkpoint;
        bl_say(out, BL_DOCTOR_FAILED, "%sB are free, %llu checkpoints of %sB still need %sB",
               bl_human((double)r->disk_free, a), (unsigned long long)r->copies,
               bl_human((double)r->checkpoint, each), bl_human((double)need, b));
        if (fit >= 2)
            bl_say_fix(out,
                       "run.keep = %llu (with run.ring = 0, run.keep_every = 0), or run.dir "
                       "on a larger disk",
                       (unsigned long long)(fit - 1));
        else
            bl_say_fix(out, "run.dir on a disk with more room");
    } else if (r->inodes_free < r->copies * FILES) {
        bl_say(out, BL_DOCTOR_FAILED, "%llu more files may be made there, up to %llu are needed",
               (unsigned long long)r->inodes_free, (unsigned long long)(r->copies * FILES));
        bl_say_fix(out, "remove files there, or run.dir on another file system");
    } else {
        bl_say(out, BL_DOCTOR_OK, "%sB are free, %llu checkpoints of %sB take %sB",
               bl_human((double)r->disk_free, a), (unsigned long long)r->copies,
               bl_human((double)r->checkpoint, each), bl_human((double)all, b));
    }
}

static const char *duration(double seconds, char *text, size_t size)
{
    if (seconds < 120)
        snprintf(text, size, "%.3g s", seconds);
    else if (seconds < 7200)
        snprintf(text, size, "%.0f minutes", seconds / 60);
    else
        snprintf(text, size, "%.1f hours", seconds / 3600);
    return text;
}

void bl_check_time(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_run *r = c->run;
    char a[48], b[48];
    double updates = (double)(r->checkpoint_every < r->steps ? r->checkpoint_every : r->steps);
    double between = updates * r->step_seconds;
    if (r->job <= 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "no Slurm job");
    } else if (!r->has_config) {
        bl_say(out, BL_DOCTOR_ABSENT, "%s", bl_doctor_no_config(c));
    } else if (isnan(r->remaining)) {
        bl_say(out, BL_DOCTOR_ABSENT, "Slurm does not say how much time the job has");
    } else if (isinf(r->remaining)) {
        bl_say(out, BL_DOCTOR_OK, "the job has no time limit");
    } else if (r->checkpoint_every <= 0) {
        bl_say(out, BL_DOCTOR_WARNING,
               "%s are left, and run.checkpoint_every = 0: one checkpoint, "
               "at the end",
               duration(r->remaining, a, sizeof a));
        bl_say_fix(out, "run.checkpoint_every = 100, or what a few minutes are");
    } else if (isnan(r->step_seconds)) {
        bl_say(out, BL_DOCTOR_OK,
               "%s are left; unknown until the first steps how long %.0f updates take",
               duration(r->remaining, a, sizeof a), updates);
    } else if (between > r->remaining) {
        double fit = floor(r->remaining / 4 / r->step_seconds);
        bl_say(out, BL_DOCTOR_FAILED, "%s are left, but a checkpoint comes every %s",
               duration(r->remaining, a, sizeof a), duration(between, b, sizeof b));
        bl_say_fix(out, "run.checkpoint_every = %.0f, or a longer #SBATCH --time", fmax(fit, 1));
    } else {
        bl_say(out, BL_DOCTOR_OK, "%s are left, a checkpoint comes every %s",
               duration(r->remaining, a, sizeof a), duration(between, b, sizeof b));
    }
}

void bl_check_requeue(const struct bl_doctor_case *c, struct bl_doctor_finding *out)
{
    const struct bl_doctor_run *r = c->run;
    char a[48], b[48];
    if (r->job <= 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "no Slurm job");
    } else if (r->requeue < 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "Slurm does not say how the job was submitted");
    } else if (r->batch == 0) {
        bl_say(out, BL_DOCTOR_ABSENT, "not a batch job: nothing to start again");
    } else if (r->requeue == 0) {
        bl_say(out, BL_DOCTOR_WARNING,
               "the job is not started again after a lost node, and cannot be requeued");
        bl_say_fix(out, "#SBATCH --requeue   (now: scontrol update jobid=%lld requeue=1)",
                   (long long)r->job);
    } else if (r->step_seconds > r->kill_wait) {
        bl_say(out, BL_DOCTOR_WARNING,
               "Slurm kills %s after TERM, and a step takes %s: no checkpoint in that time",
               duration(r->kill_wait, a, sizeof a), duration(r->step_seconds, b, sizeof b));
        bl_say_fix(out, "#SBATCH --signal=B:USR1@%.0f, with slurm/train.sbatch",
                   ceil(fmax(120, 4 * r->step_seconds)));
    } else {
        bl_say(out, BL_DOCTOR_OK, "on; KillWait %s",
               isnan(r->kill_wait) ? "unknown" : duration(r->kill_wait, a, sizeof a));
    }
}
