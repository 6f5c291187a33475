/* ballast doctor: what is wrong with the place where a run is to start, and what to do about it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/strings.h"
#include "cmd.h"
#include "collectives/world.h"
#include "doctor/doctor.h"

#define TIMEOUT  60.0 /* seconds until a silent process is lost */
#define PATIENCE 10.0 /* seconds until a file that another node wrote has to be there */

struct doctor {
    struct bl_world *world; /* NULL: this process looks alone */
    struct bl_setup *setup; /* NULL: no config, or it failed here */
    struct bl_doctor_facts mine, *all;
    struct bl_doctor_run run;
    char world_error[sizeof(struct bl_error)], directory_error[sizeof(struct bl_error)];
};

/* Tasks of a Slurm step that know nothing of each other. bl_world_make refuses that; here it is a
 * finding like others. */
static int tasks_are_apart(void)
{
    return bl_environment_number("SLURM_STEP_NUM_TASKS") > 1 &&
           getenv("BALLAST_PROCESSES") == NULL &&
           (getenv("PMI_FD") == NULL || bl_environment_number("PMI_SIZE") == 1);
}

/* 1: another process does the work. */
static int meet(struct doctor *d, struct bl_error *err)
{
    struct bl_error cause = BL_ERROR_INIT;
    d->run.method = d->run.transport = "";
    d->run.world_error = d->world_error;
    if (tasks_are_apart()) {
        if (bl_environment_number("SLURM_PROCID") != 0)
            return 1;
        snprintf(d->world_error, sizeof d->world_error,
                 "each of the %lld tasks of this step is alone: srun was called without "
                 "--mpi=pmi2",
                 (long long)bl_environment_number("SLURM_STEP_NUM_TASKS"));
    } else if (bl_world_make(TIMEOUT, &d->world, &cause) < 0) {
        d->world = NULL;
        if (bl_environment_number("SLURM_PROCID") != 0 ||
            bl_environment_number("BALLAST_PROCESS") != 0)
            return bl_error_set(err, cause.code, "%s", cause.text);
        snprintf(d->world_error, sizeof d->world_error, "%s", cause.text);
    } else {
        d->run.method = bl_world_method(d->world);
        d->run.transport = bl_world_transport(d->world);
    }
    return 0;
}

static int is_first(const struct doctor *d)
{
    return d->world == NULL || bl_world_process(d->world) == 0;
}

static uint32_t processes(const struct doctor *d)
{
    return d->world != NULL ? bl_world_processes(d->world) : 1;
}

/* What the run will want, as `ballast check` predicts it. */
static int look_at_run(struct doctor *d, const struct bl_budget *b, struct bl_error *err)
{
    struct bl_doctor_run *r = &d->run;
    const struct bl_run_options *o = &d->setup->config->run;
    char *metrics = bl_format("%s/metrics.jsonl", d->setup->directory);
    char *checkpoints = bl_format("%s/checkpoints", d->setup->directory);
    if (metrics == NULL || checkpoints == NULL) {
        free(metrics);
        free(checkpoints);
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    }
    r->has_config = 1;
    r->uses_cpu = o->backend == 1; /* "cpu" */
    r->directory = d->setup->directory;
    r->checkpoint = b->checkpoint;
    r->copies = (uint64_t)(o->keep + 1 + o->ring + (o->keep_every ? o->steps / o->keep_every : 0));
    r->checkpoint_every = o->checkpoint_every;
    r->steps = o->steps;
    if (is_first(d)) {
        r->present = bl_doctor_folder_bytes(checkpoints);
        r->step_seconds = bl_doctor_step_seconds(metrics);
    }
    free(metrics);
    free(checkpoints);
    return 0;
}

/* A config that only some processes can use is a finding; `err` is what it met here. */
static void set_up(struct doctor *d, int argc, char **argv, struct bl_error *err)
{
    struct bl_budget b = {0};
    if (argc == 0)
        return;
    int rc = bl_setup_make(argv[0], argc - 1, argv + 1, processes(d), &d->setup, err);
    if (rc == 0) {
        /* Nothing is written, so no plugin may think that there is a directory. */
        d->setup->info.directory = "";
        if (bl_setup_create(d->setup, err) < 0 ||
            bl_doctor_look_setup(d->setup, processes(d), &d->mine, &b, err) < 0 ||
            look_at_run(d, &b, err) < 0)
            rc = -1;
    }
    bl_budget_free(&b);
    if (rc == 0)
        return;
    if (d->setup != NULL)
        bl_setup_free(d->setup);
    d->setup = NULL;
    d->mine.setup_code = err->code > 0 ? err->code : BL_EXIT_FAILED;
    snprintf(d->mine.setup_error, sizeof d->mine.setup_error, "%.*s",
             (int)sizeof d->mine.setup_error - 1, err->text);
}

/* Collective: afterwards process 0 knows the facts of all. */
static int look_together(struct doctor *d, struct bl_error *err)
{
    d->all = calloc(processes(d), sizeof *d->all);
    if (d->all == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the facts of %u processes",
                            processes(d));
    if (bl_doctor_try_folder(d->world, d->setup != NULL ? d->setup->directory : NULL, PATIENCE,
                             &d->mine, is_first(d) ? &d->run : NULL, d->directory_error,
                             sizeof d->directory_error, err) < 0)
        return -1;
    if (d->world == NULL) {
        *d->all = d->mine;
        return 0;
    }
    if (bl_world_gather(d->world, &d->mine, sizeof d->mine, d->all, err) < 0)
        return -1;
    return bl_doctor_compare_clocks(d->world, d->all, err);
}

/* ---- what is printed */

enum { NAME = 14, MOST = 32 };

static void print_finding(const char *name, const struct bl_doctor_finding *f)
{
    static const char *const states[] = {"ok", "warning", "FAILED", "-"};
    printf("%-8s %-*s %s\n", states[f->state], NAME, name, f->seen);
    if (*f->fix != '\0')
        printf("%-8s %-*s fix: %s\n", "", NAME, "", f->fix);
}

/* One line a reason: on a machine of one's own most of what concerns a cluster is of no concern. */
static void print_absent(const struct bl_doctor_finding *findings)
{
    int done[MOST] = {0};
    for (size_t i = 0; i < bl_doctor_check_count; i++) {
        if (findings[i].state != BL_DOCTOR_ABSENT || done[i])
            continue;
        printf("not applicable: %s", bl_doctor_checks[i].name);
        for (size_t j = i + 1; j < bl_doctor_check_count; j++) {
            if (findings[j].state != BL_DOCTOR_ABSENT ||
                strcmp(findings[i].seen, findings[j].seen) != 0)
                continue;
            printf(", %s", bl_doctor_checks[j].name);
            done[j] = 1;
        }
        printf(" (%s)\n", findings[i].seen);
    }
}

static int judge(const struct doctor *d, struct bl_error *err)
{
    struct bl_doctor_case c = {d->all, processes(d), &d->run};
    struct bl_doctor_finding findings[MOST] = {0};
    struct bl_text failed = {0};
    size_t warnings = 0, failures = 0;
    int rc = 0;
    for (size_t i = 0; i < bl_doctor_check_count; i++) {
        bl_doctor_checks[i].look(&c, &findings[i]);
        if (findings[i].state != BL_DOCTOR_ABSENT)
            print_finding(bl_doctor_checks[i].name, &findings[i]);
        warnings += findings[i].state == BL_DOCTOR_WARNING;
        if (findings[i].state == BL_DOCTOR_FAILED)
            bl_text_add(&failed, "%s%s", failures++ > 0 ? ", " : "", bl_doctor_checks[i].name);
    }
    print_absent(findings);
    if (failures > 0)
        rc = bl_error_set(err, BL_EXIT_FAILED, "doctor: %zu of the checks failed: %s", failures,
                          failed.text != NULL ? failed.text : "");
    else if (warnings > 0)
        printf("%zu warning%s; a run can start\n", warnings, warnings == 1 ? "" : "s");
    else
        printf("nothing to complain about\n");
    bl_text_free(&failed);
    return rc;
}

/* Every process has the same trouble: then it is an error like that of `ballast train`. */
static int all_failed(const struct doctor *d)
{
    for (uint32_t p = 0; p < processes(d); p++) {
        if (d->all[p].setup_code == 0)
            return 0;
    }
    return 1;
}

static int examine(struct doctor *d, int argc, char **argv, struct bl_error *err)
{
    struct bl_error cause = BL_ERROR_INIT;
    int met = meet(d, err);
    if (met != 0)
        return met < 0 ? -1 : 0;
    if (!is_first(d))
        bl_log_level(BL_LOG_ERROR); /* process 0 gives the warnings */
    d->run.step_seconds = NAN;
    d->run.directory_error = d->directory_error;
    bl_doctor_look("/dev", &d->mine);
    set_up(d, argc, argv, &cause);
    if (look_together(d, err) < 0) {
        bl_world_abort(d->world, err->text);
        return -1;
    }
    if (!is_first(d))
        return 0;
    if (all_failed(d))
        return bl_error_set(err, d->mine.setup_code, "%s", cause.text);
    bl_doctor_look_job(&d->run);
    return judge(d, err);
}

int bl_cmd_doctor(int argc, char **argv, struct bl_error *err)
{
    static const char usage[] = "usage: ballast doctor [CONFIG [KEY=VALUE...]]";
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf(
            "%s\n\n"
            "Looks for what would stop or slow down a run of CONFIG here, and says what to do\n"
            "about it: processes that do not find each other, GPUs that are shared or hidden, a\n"
            "run directory that not every node sees, too little disk, memory or time, clocks,\n"
            "programs and plugins that differ between nodes. Trains nothing. Without CONFIG\n"
            "only the machine and the job are looked at. In a job, by all of its processes:\n\n"
            "    srun --mpi=pmi2 ballast doctor CONFIG\n\n"
            "Ends with 0 when a run can start (warnings are allowed), 1 when a check failed.\n",
            usage);
        return 0;
    }
    for (int i = 1; i < argc; i++) {
        if (argv[i][0] == '-')
            return bl_error_set(err, BL_EXIT_USAGE, "doctor: unknown option %s; %s", argv[i],
                                usage);
    }
    struct doctor *d = calloc(1, sizeof *d);
    if (d == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    int rc = examine(d, argc - 1, argv + 1, err);
    bl_world_free(d->world);
    if (d->setup != NULL)
        bl_setup_free(d->setup);
    free(d->all);
    free(d);
    return rc;
}
