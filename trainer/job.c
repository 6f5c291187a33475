#include "job.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"

#define INTERVAL 60.0 /* seconds between two calls of a program */
#define PATIENCE 30.0 /* seconds after which a call is given up */

extern char **environ;

/* One of Slurm's programs. */
struct call {
    pid_t child; /* 0: none runs */
    int output;  /* its standard output, -1: not wanted */
    int missing; /* there is no such program */
    double begun;
    char text[64]; /* what it printed so far */
    size_t length;
};

struct bl_job {
    char id[64];
    struct call limit, comment;
    double end; /* on the clock of bl_clock: the time limit; NAN unknown */
};

static const char *variable(const char *name)
{
    const char *text = getenv(name);
    return text != NULL ? text : "";
}

int bl_job_facts(struct bl_job_facts *out, char *id_text)
{
    const char *array = variable("SLURM_ARRAY_JOB_ID"), *task = variable("SLURM_ARRAY_TASK_ID");
    int64_t restarts = bl_environment_number("SLURM_RESTART_COUNT");
    *out = (struct bl_job_facts){
        .id = variable("SLURM_JOB_ID"),
        .restarts = restarts <= UINT32_MAX ? (uint32_t)restarts : 0,
    };
    /* The number of the last task of an array is also that of the whole array. */
    if (*out->id != '\0' && *array != '\0' && *task != '\0') {
        snprintf(id_text, 64, "%.31s_%.31s", array, task);
        out->id = id_text;
    }
    return *out->id != '\0';
}

/* Reads a number; where it ends, NULL without one or for NULL. */
static const char *field(const char *p, double *out)
{
    char *end = NULL;
    if (p == NULL || *p < '0' || *p > '9')
        return NULL;
    *out = (double)strtoul(p, &end, 10);
    return end;
}

double bl_job_seconds(const char *text)
{
    double n = 0, days = 0;
    if (strcmp(text, "UNLIMITED") == 0)
        return INFINITY;
    const char *p = field(text, &n);
    if (p != NULL && *p == '-') {
        days = n;
        p = field(p + 1, &n);
    }
    double seconds = n;
    for (int parts = 1; p != NULL && *p == ':' && parts < 3; parts++) {
        p = field(p + 1, &n);
        seconds = 60 * seconds + n;
    }
    return p != NULL && *p == '\0' ? seconds + 86400 * days : NAN;
}

/* ---- child processes */

/* 0 or an errno. */
static int spawn(pid_t *child, int output, char *const *arguments)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    sigset_t none, ignored;
    if (posix_spawn_file_actions_init(&files) != 0)
        return ENOMEM;
    if (posix_spawnattr_init(&attributes) != 0) {
        posix_spawn_file_actions_destroy(&files);
        return ENOMEM;
    }
    sigemptyset(&none);
    sigemptyset(&ignored);
    sigaddset(&ignored, SIGPIPE);
    sigaddset(&ignored, SIGXFSZ);
    int rc = posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    rc |= posix_spawnattr_setsigmask(&attributes, &none);
    rc |= posix_spawnattr_setsigdefault(&attributes, &ignored);
    rc |= posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    rc |= posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    rc |= output >= 0
              ? posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO)
              : posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
#if defined(__GLIBC_PREREQ)
#if __GLIBC_PREREQ(2, 34) /* the descriptor of PMI2 is none of theirs */
    rc |= posix_spawn_file_actions_addclosefrom_np(&files, STDERR_FILENO + 1);
#endif
#endif
    if (rc == 0)
        rc = posix_spawnp(child, arguments[0], &files, &attributes, arguments, environ);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
    return rc;
}

/* Whether the program may be called (again) now. */
static int is_due(const struct call *c, double now)
{
    return c->child == 0 && !c->missing && (c->begun == 0 || now - c->begun >= INTERVAL);
}

static void begin(struct call *c, int wants_output, double now, char *const *arguments)
{
    int ends[2] = {-1, -1};
    c->begun = now;
    c->length = 0;
    if (wants_output && pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
        return;
    int rc = spawn(&c->child, ends[1], arguments);
    if (ends[1] >= 0)
        close(ends[1]);
    c->output = ends[0];
    if (rc != 0) {
        c->child = 0;
        c->missing = rc == ENOENT || rc == EACCES;
        if (c->output >= 0)
            close(c->output);
        c->output = -1;
    }
}

static void read_output(struct call *c)
{
    ssize_t n = 1;
    while (c->output >= 0 && n > 0 && c->length < sizeof c->text - 1) {
        n = read(c->output, c->text + c->length, sizeof c->text - 1 - c->length);
        c->length += n > 0 ? (size_t)n : 0;
    }
    c->text[c->length] = '\0';
}

/* 1 once, when the program has ended well; its output is then in `text`. */
static int has_ended(struct call *c, double now)
{
    int status = 0;
    if (c->child == 0)
        return 0;
    if (now - c->begun > PATIENCE)
        kill(c->child, SIGKILL);
    pid_t got = waitpid(c->child, &status, WNOHANG);
    if (got == 0)
        return 0;
    read_output(c);
    if (c->output >= 0)
        close(c->output);
    c->output = -1;
    c->child = 0;
    return got > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static void give_up(struct call *c)
{
    if (c->child > 0) {
        kill(c->child, SIGKILL);
        waitpid(c->child, NULL, 0);
    }
    if (c->output >= 0)
        close(c->output);
}

/* ---- the job */

static void ask_limit(struct bl_job *j)
{
    double now = bl_clock();
    if (has_ended(&j->limit, now)) {
        j->limit.text[strcspn(j->limit.text, " \n")] = '\0';
        j->end = j->limit.begun + bl_job_seconds(j->limit.text);
    }
    if (is_due(&j->limit, now)) {
        char program[] = "squeue", header[] = "--noheader", format[] = "--format=%L", jobs[80];
        char *arguments[] = {program, header, format, jobs, NULL};
        snprintf(jobs, sizeof jobs, "--jobs=%s", j->id);
        begin(&j->limit, 1, now, arguments);
    }
}

struct bl_job *bl_job_make(void)
{
    struct bl_job_facts facts;
    char id_text[64];
    if (!bl_job_facts(&facts, id_text))
        return NULL;
    struct bl_job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return NULL;
    snprintf(j->id, sizeof j->id, "%s", facts.id);
    j->limit.output = j->comment.output = -1;
    j->end = NAN;
    ask_limit(j);
    return j;
}

void bl_job_free(struct bl_job *j)
{
    if (j == NULL)
        return;
    give_up(&j->limit);
    give_up(&j->comment);
    free(j);
}

double bl_job_remaining(struct bl_job *j)
{
    if (j == NULL)
        return NAN;
    ask_limit(j);
    return j->end - bl_clock();
}

void bl_job_progress(struct bl_job *j, uint64_t step, uint64_t total, double loss,
                     double seconds_per_step)
{
    if (j == NULL)
        return;
    double now = bl_clock();
    has_ended(&j->comment, now);
    if (!is_due(&j->comment, now))
        return;
    char program[] = "scontrol", update[] = "update", job[80], comment[160];
    char *arguments[] = {program, update, job, comment, NULL};
    snprintf(job, sizeof job, "jobid=%s", j->id);
    int n = snprintf(comment, sizeof comment, "comment=step %llu/%llu loss %.3g",
                     (unsigned long long)step, (unsigned long long)total, loss);
    double left = (double)(total > step ? total - step : 0) * seconds_per_step;
    if (left >= 0 && left < 1e9) {
        unsigned eta = (unsigned)left;
        snprintf(comment + n, sizeof comment - (size_t)n, " eta %u:%02u:%02u", eta / 3600,
                 eta / 60 % 60, eta % 60);
    }
    begin(&j->comment, 0, now, arguments);
}

static void leave_word(const char *ending, const char *line)
{
    const char *name = variable("BALLAST_STATUS"), *process = getenv("BALLAST_PROCESS");
    if (process == NULL)
        process = variable("SLURM_PROCID");
    if (*name == '\0' || (*process != '\0' && strcmp(process, "0") != 0))
        return;
    struct bl_error err = BL_ERROR_INIT;
    char *path = bl_format("%s%s", name, ending);
    if (line == NULL || path == NULL)
        bl_error_set(&err, BL_EXIT_FAILED, "out of memory");
    else if (bl_check_target(path, &err) == 0)
        bl_write_file(path, line, strlen(line), &err);
    if (err.code != 0)
        bl_log(BL_LOG_WARNING, "BALLAST_STATUS: %s", err.text);
    free(path);
}

void bl_job_status(int code, const char *text)
{
    char *line = bl_format("%d %s\n", code, text);
    leave_word("", line);
    free(line);
}

void bl_job_saved(uint64_t step)
{
    char *line = bl_format("%llu\n", (unsigned long long)step);
    leave_word(".saved", line);
    free(line);
}
