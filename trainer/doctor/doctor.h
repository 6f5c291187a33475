/* What can be wrong before a run starts: facts of every process, checks over them, findings.
 *
 * A check looks only at the facts it is given, so that a test can make up those of any cluster. */
#ifndef BL_DOCTOR_DOCTOR_H
#define BL_DOCTOR_DOCTOR_H

#include "budget.h"

enum { BL_DOCTOR_PLUGINS = 64, BL_DOCTOR_CPUS = 4096 };
#define BL_DOCTOR_NO_LIMIT UINT64_MAX

struct bl_doctor_plugin {
    char name[56]; /* "guard.clip_norm"; the last entry may stand for all that did not fit */
    uint64_t checksum;
};

enum bl_doctor_sight { BL_SIGHT_UNKNOWN, BL_SIGHT_SEEN, BL_SIGHT_MISSING };
/* Whether a lock that process 0 holds on the file keeps this process out. */
enum bl_doctor_lock { BL_LOCK_UNKNOWN, BL_LOCK_HOLDS, BL_LOCK_LOCAL, BL_LOCK_NONE };

/* Of one process. Plain bytes: it is gathered as it is. */
struct bl_doctor_facts {
    char host[64];
    char version[32], isa[256]; /* "avx2, OpenBLAS 0.3.21"; "" when no backend was made */
    uint64_t program, config;   /* XXH64; 0 = unknown */
    int32_t setup_code;         /* exit code of what the config met here, 0 = fine */
    char setup_error[400];
    struct bl_doctor_plugin plugins[BL_DOCTOR_PLUGINS];
    uint32_t plugin_count;

    int32_t has_clock;
    double clock, clock_error; /* seconds ahead of process 0, and how well that is known */

    uint64_t cpus[BL_DOCTOR_CPUS / 64]; /* bit set of the processors it may use */
    int64_t cpus_of_job;                /* SLURM_CPUS_ON_NODE; 0 = not said */
    int64_t threads;                    /* wanted; 0 = as many as it may use */

    uint64_t memory_needed; /* bytes; 0 = unknown */
    uint64_t memory_free;   /* of the node; 0 = unknown */
    uint64_t memory_left;   /* under the limits of its control groups */

    uint64_t gpus, gpus_usable; /* bit sets of /dev/nvidia<n>; those that may be opened */
    int32_t gpus_visible_set;   /* CUDA_VISIBLE_DEVICES is there */
    int32_t gpus_of_job;        /* Slurm gave the job GPUs here */
    char gpus_visible[256];

    uint64_t file_size, open_files, locked_memory; /* soft limits */
    int32_t rdma;                                  /* the node has such a device */

    int32_t sight, lock; /* of the file in the run directory */
    int32_t write_error; /* errno of writing there; 0 = possible */
};

/* Of the run, as process 0 knows it. NaN and negative numbers: unknown. */
struct bl_doctor_run {
    int has_config, uses_cpu;        /* uses_cpu: run.backend = "cpu" */
    const char *directory;           /* run.dir/run.name */
    uint64_t checkpoint;             /* bytes of one */
    uint64_t copies;                 /* that lie there at once, with the one being written */
    uint64_t present;                /* bytes of checkpoints that are there already */
    uint64_t disk_free, inodes_free; /* NO_LIMIT: the file system does not say */
    const char *directory_error;     /* "" = it can be made and written */
    int64_t checkpoint_every, steps;
    double step_seconds; /* median of the run so far */

    const char *method, *transport; /* bl_world_method ...; method "" = there is no world */
    const char *world_error;        /* why not; "" = there is one */
    int64_t step_tasks, job_tasks;  /* SLURM_STEP_NUM_TASKS, SLURM_NTASKS; 0 = not said */
    int64_t job;                    /* 0 = outside a job */
    double remaining;               /* seconds until its time limit; infinite = it has none */
    int requeue, batch;             /* of the job; -1 = unknown */
    double kill_wait;               /* seconds from TERM to KILL */
};

struct bl_doctor_case {
    const struct bl_doctor_facts *facts; /* (count) by process */
    uint32_t count;
    const struct bl_doctor_run *run;
};

enum bl_doctor_state { BL_DOCTOR_OK, BL_DOCTOR_WARNING, BL_DOCTOR_FAILED, BL_DOCTOR_ABSENT };

struct bl_doctor_finding {
    int state;
    char seen[640]; /* of what is not applicable: why */
    char fix[320];  /* for a warning or a failure: what to type or to change */
};

struct bl_doctor_check {
    const char *name;
    void (*look)(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
};
extern const struct bl_doctor_check bl_doctor_checks[];
extern const size_t bl_doctor_check_count;

/* ---- checks */
void bl_check_processes(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_setup(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_program(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_config(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_plugins(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_clock(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_cpus(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_memory(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_gpus(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_limits(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_directory(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_locks(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_disk(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_time(const struct bl_doctor_case *c, struct bl_doctor_finding *out);
void bl_check_requeue(const struct bl_doctor_case *c, struct bl_doctor_finding *out);

/* ---- facts */
/* Everything of this process that needs no config and no other process. dev: "/dev". */
void bl_doctor_look(const char *dev, struct bl_doctor_facts *out);
/* The bit sets of GPUs in the folder. */
void bl_doctor_look_gpus(const char *dev, uint64_t *there, uint64_t *usable);
/* What a made setup says: checksums, memory, threads. b: its budget. */
int bl_doctor_look_setup(const struct bl_setup *s, uint32_t processes, struct bl_doctor_facts *out,
                         struct bl_budget *b, struct bl_error *err);
/* Median of perf/step_seconds in the newest rows of a metrics.jsonl; NaN when there are none. */
double bl_doctor_step_seconds(const char *path);
/* Bytes of all files below a folder; 0 when there is none. */
uint64_t bl_doctor_folder_bytes(const char *path);
/* The value of KEY=value among blanks in what scontrol prints; 0, or -1 when it is not there. */
int bl_doctor_scontrol(const char *text, const char *key, char *out, size_t size);
/* Job id, tasks and, where Slurm's commands answer, the rest about the job. */
void bl_doctor_look_job(struct bl_doctor_run *out);

struct bl_world;
/* Collective, w NULL = alone. Process 0 writes and locks a file in `folder`, which it makes if need
 * be, every process looks for it for up to `seconds`; all is removed afterwards. Fills sight, lock,
 * write_error of `mine`; in process 0 disk_free, inodes_free and directory_error of `run` too (NULL
 * elsewhere). `text` (size) is what directory_error then points to. Other processes' `folder` is
 * not looked at; NULL in process 0: there is none. */
int bl_doctor_try_folder(struct bl_world *w, const char *folder, double seconds,
                         struct bl_doctor_facts *mine, struct bl_doctor_run *run, char *text,
                         size_t size, struct bl_error *err);
/* Collective: process 0 fills clock and clock_error of `all` (processes), one process a host. */
int bl_doctor_compare_clocks(struct bl_world *w, struct bl_doctor_facts *all, struct bl_error *err);

#endif
