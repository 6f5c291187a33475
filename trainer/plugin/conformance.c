#include "plugin/conformance.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "plugin/trial.h"

/* What a child tells its parent. */
struct answer {
    uint32_t outcome, kind;
    char title[160], reason[600];
};

struct tally {
    unsigned ok, failed, skipped;
};

/* Signals that end the program wait until the scratch folder is gone. */
struct stops {
    sigset_t before; /* the mask outside of the checks */
    int fd;          /* readable when one waits; -1: they are not held back */
};

static const struct bl_check *checks_of(uint32_t kind)
{
    static const struct bl_check *const tables[BL_KIND_COUNT] = {
        [BL_KIND_REGULARIZER] = bl_checks_regularizer,
        [BL_KIND_PRECISION] = bl_checks_precision,
        [BL_KIND_SCHEDULE] = bl_checks_schedule,
        [BL_KIND_MONITOR] = bl_checks_monitor,
        [BL_KIND_OPTIMIZER] = bl_checks_optimizer,
        [BL_KIND_GUARD] = bl_checks_guard,
        [BL_KIND_SINK] = bl_checks_sink,
        [BL_KIND_SOURCE] = bl_checks_source,
        [BL_KIND_TOKENIZER] = bl_checks_tokenizer};
    return tables[kind];
}

/* ---- signals ----------------------------------------------------------------------------------*/

static void hold_stops(struct stops *s)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    sigset_t held;
    sigemptyset(&held);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct sigaction a;
        if (sigaction(numbers[i], NULL, &a) == 0 && a.sa_handler != SIG_IGN)
            sigaddset(&held, numbers[i]);
    }
    sigprocmask(SIG_BLOCK, &held, &s->before);
    s->fd = signalfd(-1, &held, SFD_CLOEXEC);
    if (s->fd < 0)
        sigprocmask(SIG_SETMASK, &s->before, NULL);
}

/* A signal that waits is not read from the descriptor: it does here what it would have done. */
static void release_stops(struct stops *s)
{
    if (s->fd < 0)
        return;
    close(s->fd);
    s->fd = -1;
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

/* ---- one check in a child ---------------------------------------------------------------------*/

/* The child's own life. It leaves by _exit: nothing of the parent's is flushed or run twice. */
static void live(struct bl_trial *t, const struct bl_check *check, const struct stops *stops,
                 int fd)
{
    struct answer a = {0};
    struct bl_error err = BL_ERROR_INIT;
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    sigprocmask(SIG_SETMASK, &stops->before, NULL);
    int null = open("/dev/null", O_RDWR);
    if (null >= 0 && !t->conformance->verbose)
        dup2(null, STDERR_FILENO);
    if (null >= 0)
        dup2(t->conformance->verbose ? STDERR_FILENO : null, STDOUT_FILENO);
    if (bl_trial_open(t, &err) != 0)
        a.outcome = (uint32_t)bl_trial_fail(t, "%s", err.text);
    else
        a.outcome = (uint32_t)check->run(t);
    a.kind = t->kind;
    memcpy(a.title, t->title, sizeof a.title);
    memcpy(a.reason, t->reason, sizeof a.reason);
    (void)bl_write_all(fd, &a, sizeof a); /* the parent sees an answer that is cut */
    fflush(NULL); /* what the plugin printed, where somebody asked to see it */
    _exit(0);
}

enum ending { ENDED, LATE, STOPPED };

/* Bytes of the answer that arrived before the pipe closed, the time was up or a signal came. */
static size_t read_answer(int fd, const struct stops *stops, double until, struct answer *a,
                          enum ending *how)
{
    size_t got = 0;
    while (got < sizeof *a) {
        double left = until - bl_clock();
        struct pollfd p[] = {{.fd = fd, .events = POLLIN}, {.fd = stops->fd, .events = POLLIN}};
        int ready = left > 0 ? poll(p, 2, (int)(left * 1000) + 1) : 0;
        if (ready < 0 && errno == EINTR)
            continue;
        if (ready <= 0 || p[1].revents != 0) {
            *how = ready <= 0 ? LATE : STOPPED;
            break;
        }
        ssize_t n = read(fd, (char *)a + got, sizeof *a - got);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    return got;
}

static int run_check(struct bl_trial *t, const struct bl_check *check, const struct stops *stops,
                     struct answer *a, struct bl_error *err)
{
    enum ending how = ENDED;
    int ends[2], status = 0;
    double seconds = t->conformance->seconds;
    memset(a, 0, sizeof *a);
    if (pipe2(ends, O_CLOEXEC) != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "no pipe: %s", strerror(errno));
    pid_t child = fork();
    if (child < 0) {
        close(ends[0]);
        close(ends[1]);
        return bl_error_set(err, BL_EXIT_FAILED, "no child process: %s", strerror(errno));
    }
    if (child == 0) {
        close(ends[0]);
        live(t, check, stops, ends[1]);
    }
    close(ends[1]);
    size_t got = read_answer(ends[0], stops, bl_clock() + seconds, a, &how);
    close(ends[0]);
    if (got < sizeof *a)
        kill(child, SIGKILL); /* late, or dead already */
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (got == sizeof *a)
        return 0;
    if (how == STOPPED)
        return bl_error_set(err, BL_EXIT_INTERRUPTED, "stopped by a signal");
    a->outcome = BL_CHECK_FAILED;
    if (how == LATE)
        snprintf(a->reason, sizeof a->reason,
                 "still running after %g seconds (--seconds N allows more)", seconds);
    else if (WIFSIGNALED(status))
        snprintf(a->reason, sizeof a->reason, "crashed with signal %d (%s) in check \"%s\"",
                 WTERMSIG(status), strsignal(WTERMSIG(status)), check->name);
    else
        snprintf(a->reason, sizeof a->reason,
                 "the plugin ended the process with exit code %d in check \"%s\"",
                 WEXITSTATUS(status), check->name);
    return 0;
}

/* ---- scratch folder ---------------------------------------------------------------------------*/

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
    (void)st, (void)type, (void)where;
    return remove(path);
}

static void remove_folder(const char *path)
{
    nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static char *make_folder(struct bl_error *err)
{
    const char *base = getenv("TMPDIR");
    char *path = bl_format("%s/ballast-plugin-test-XXXXXX", base != NULL && *base ? base : "/tmp");
    if (path == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
    } else if (mkdtemp(path) == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s; TMPDIR names another folder", path,
                     strerror(errno));
        free(path);
        path = NULL;
    }
    return path;
}

/* ---- all of them ------------------------------------------------------------------------------*/

static void print_line(FILE *out, const struct bl_check *check, const struct answer *a,
                       struct tally *tally)
{
    static const char *const words[] = {"ok", "FAILED", "not applicable"};
    uint32_t outcome = a->outcome <= BL_CHECK_SKIPPED ? a->outcome : BL_CHECK_FAILED;
    unsigned *counts[] = {&tally->ok, &tally->failed, &tally->skipped};
    ++*counts[outcome];
    fprintf(out, "  %-14s  %s%s%s\n", words[outcome], check->name, a->reason[0] ? ": " : "",
            a->reason);
    fflush(out);
}

static int run_table(struct bl_trial *t, const struct bl_check *table, const struct stops *stops,
                     FILE *out, struct tally *tally, struct bl_error *err)
{
    for (; table->name != NULL; table++) {
        struct answer a;
        fflush(out); /* a child must not hold lines of its parent */
        if (run_check(t, table, stops, &a, err) != 0)
            return -1;
        if (t->title[0] == '\0' && a.title[0] != '\0') {
            memcpy(t->title, a.title, sizeof t->title);
            t->kind = a.kind;
            fprintf(out, "%s (%s)\n", t->title, t->path);
        } else if (t->title[0] == '\0') {
            fprintf(out, "%s\n", t->path);
        }
        if (a.outcome == BL_CHECK_USAGE)
            return bl_error_set(err, BL_EXIT_USAGE, "%s", a.reason);
        print_line(out, table, &a, tally);
        if (table->needed && a.outcome == BL_CHECK_FAILED) {
            fprintf(out, "  the other checks were not run\n");
            return 1;
        }
    }
    return 0;
}

static int parse_assignments(const struct bl_conformance *c, struct bl_node **out,
                             struct bl_error *err)
{
    struct bl_node *root = NULL;
    if (bl_node_parse("", "command line", &root, err) != 0)
        return -1;
    for (int i = 0; i < c->assignments; i++)
        if (bl_node_override(root, c->assignment[i], err) != 0) {
            bl_node_free(root);
            return -1;
        }
    *out = root;
    return 0;
}

int bl_conformance_run(const struct bl_conformance *c, FILE *out, struct bl_error *err)
{
    struct tally tally = {0};
    struct stops stops = {.fd = -1};
    struct bl_node *config = NULL;
    struct bl_trial *t = NULL;
    int rc = -1;
    char *folder = NULL;
    char *path = bl_format("%s%s", strchr(c->path, '/') != NULL ? "" : "./", c->path);
    if (path == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory");
    if (access(path, R_OK) != 0) {
        bl_error_set(err, BL_EXIT_USAGE, "%s: %s", c->path, strerror(errno));
        goto done;
    }
    if (parse_assignments(c, &config, err) != 0)
        goto done;
    hold_stops(&stops);
    folder = make_folder(err);
    if (folder == NULL)
        goto done;
    t = bl_alloc(1, sizeof *t);
    if (t == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
        goto done;
    }
    bl_trial_start(t, c, path, folder, config);
    rc = run_table(t, bl_checks_common, &stops, out, &tally, err);
    if (rc == 0)
        rc = run_table(t, checks_of(t->kind), &stops, out, &tally, err);
    if (rc < 0)
        goto done;
    fprintf(out, "%u ok, %u failed, %u not applicable\n", tally.ok, tally.failed, tally.skipped);
    rc = tally.failed == 0 ? 0
                           : bl_error_set(err, BL_EXIT_PLUGIN, "%s: %u of %u checks failed",
                                          c->path, tally.failed, tally.ok + tally.failed);
done:
    if (folder != NULL)
        remove_folder(folder);
    release_stops(&stops);
    free(folder);
    bl_node_free(config);
    bl_free(t);
    free(path);
    return rc;
}
