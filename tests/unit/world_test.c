/* Processes of one job, forked here, that meet in a folder. Each test names what every process
 * does; what came of it is in memory that all share.
 *
 * As `world_test join` it is one process of a job that something else started (srun); as
 * `world_test hold` it waits for the last process, which never sends. */
#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/strings.h"
#include "collectives/world.h"

enum { MOST = 16 };

#define MIB ((size_t)1 << 20)

struct outcome {
    int ready; /* set by a process when others may act on it */
    int rc, code;
    double seconds, cpu;
    char text[1016];
};

/* The shared page, made once. */
struct job {
    double timeout;
    uint32_t processes;
    pid_t pids[MOST];
    struct outcome outcomes[MOST];
};

typedef int role_f(struct bl_world *w, struct job *job, struct bl_error *err);

static void nap(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds,
                         .tv_nsec = (long)(1e9 * (seconds - (double)(time_t)seconds))};
    while (nanosleep(&t, &t) != 0 && errno == EINTR)
        ;
}

static struct outcome *own(const struct bl_world *w, struct job *job)
{
    return &job->outcomes[bl_world_process(w)];
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void play(struct job *job, const char *folder, uint32_t process, role_f *role)
{
    char number[16], count[16];
    struct bl_error err = BL_ERROR_INIT;
    struct bl_world *w = NULL;
    struct outcome *o = &job->outcomes[process];
    snprintf(number, sizeof number, "%u", process);
    snprintf(count, sizeof count, "%u", job->processes);
    setenv("BALLAST_PROCESS", number, 1);
    setenv("BALLAST_PROCESSES", count, 1);
    setenv("BALLAST_MEET", folder, 1);
    o->rc = bl_world_make(job->timeout, &w, &err);
    if (o->rc == 0) {
        double begin = bl_clock(), cpu = cpu_seconds();
        o->rc = role(w, job, &err);
        o->seconds = bl_clock() - begin;
        o->cpu = cpu_seconds() - cpu;
    }
    o->code = err.code;
    memcpy(o->text, err.text, sizeof o->text);
    bl_world_free(w);
    _exit(o->rc == 0 ? 0 : 1);
}

static struct job *start(const char *folder, uint32_t processes, double timeout, role_f *role)
{
    struct job *job =
        mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job != MAP_FAILED);
    job->processes = processes;
    job->timeout = timeout;
    fflush(NULL);
    for (uint32_t p = 0; p < processes; p++) {
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0)
            play(job, folder, p, role);
        job->pids[p] = pid;
    }
    return job;
}

/* Waits for all; the wait status of each in `status`. */
static void finish(struct job *job, int *status)
{
    for (uint32_t p = 0; p < job->processes; p++)
        assert_int_equal(waitpid(job->pids[p], &status[p], 0), job->pids[p]);
}

static void end(struct job *job)
{
    munmap(job, sizeof *job);
}

static char folder[64];

static int make_folder(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ballast-world-XXXXXX");
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0;
}

static void expect_success(uint32_t processes, double timeout, role_f *role)
{
    int status[MOST];
    struct job *job = start(folder, processes, timeout, role);
    finish(job, status);
    for (uint32_t p = 0; p < processes; p++) {
        if (job->outcomes[p].rc != 0)
            print_error("process %u: %s\n", p, job->outcomes[p].text);
        assert_int_equal(status[p], 0);
    }
    end(job);
}

/* ---- what goes well ---------------------------------------------------------------------------*/

#define WANT(condition)                                                                            \
    do {                                                                                           \
        if (!(condition))                                                                          \
            return bl_error_set(err, BL_EXIT_FAILED, "line %d: %s", __LINE__, #condition);         \
    } while (0)

static void fill(unsigned char *bytes, size_t n, uint32_t seed)
{
    uint32_t x = seed * 2654435761u + 1;
    for (size_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(x >> 24);
    }
}

static int check_messages(struct bl_world *w, struct bl_error *err)
{
    static const size_t sizes[] = {0, 1, 1000, 1024, MIB, 4 * MIB, 17 * MIB};
    uint32_t n = bl_world_processes(w), p = bl_world_process(w);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        size_t bytes = sizes[s];
        unsigned char *out = malloc(bytes + 1), *in = malloc(bytes + 1), *want = malloc(bytes + 1);
        /* The longest to the neighbour only: that is enough, and takes its time. */
        for (uint32_t hop = 0; hop < (bytes > 4 * MIB ? 2 : n); hop++) {
            struct bl_message *m[2] = {NULL, NULL};
            uint32_t to = (p + hop) % n, from = (p + n - hop) % n;
            fill(out, bytes, p);
            fill(want, bytes, from);
            in[bytes] = 77;
            WANT(bl_world_send(w, to, s, out, bytes, &m[0], err) == 0);
            WANT(bl_world_receive(w, from, s, in, bytes, &m[1], err) == 0);
            if (bl_world_wait(w, m, 2, err) != 0)
                return -1;
            WANT(m[0] == NULL && m[1] == NULL);
            WANT(in[bytes] == 77 && memcmp(in, want, bytes) == 0);
        }
        free(out);
        free(in);
        free(want);
    }
    return 0;
}

/* Many at once: tags apart, equal tags in their order, receives started in another order. */
static int check_order(struct bl_world *w, struct bl_error *err)
{
    enum { EACH = 100, TAGS = 4 };
    uint32_t n = bl_world_processes(w), p = bl_world_process(w);
    uint32_t to = (p + 1) % n, from = (p + n - 1) % n;
    uint32_t out[TAGS][EACH], in[TAGS][EACH];
    struct bl_message *m[2 * TAGS * EACH];
    size_t count = 0;
    for (uint32_t i = 0; i < EACH; i++)
        for (uint32_t tag = 0; tag < TAGS; tag++) {
            out[tag][i] = 1000 * tag + i;
            WANT(bl_world_send(w, to, tag, &out[tag][i], sizeof out[tag][i], &m[count++], err) ==
                 0);
        }
    for (uint32_t tag = TAGS; tag-- > 0;)
        for (uint32_t i = 0; i < EACH; i++)
            WANT(bl_world_receive(w, from, tag, &in[tag][i], sizeof in[tag][i], &m[count++], err) ==
                 0);
    if (bl_world_wait(w, m, count, err) != 0)
        return -1;
    WANT(memcmp(in, out, sizeof in) == 0);
    return 0;
}

static int check_collectives(struct bl_world *w, struct bl_error *err)
{
    uint32_t n = bl_world_processes(w), p = bl_world_process(w);
    WANT(bl_world_barrier(w, err) == 0);
    for (uint32_t root = 0; root < n; root++)
        for (size_t bytes = 0; bytes < 3 * MIB; bytes = 7 * bytes + 1) {
            unsigned char *data = malloc(bytes + 1), *want = malloc(bytes + 1);
            fill(want, bytes, root + 100);
            fill(data, bytes, p == root ? root + 100 : 999);
            if (bl_world_broadcast(w, root, data, bytes, err) != 0)
                return -1;
            WANT(memcmp(data, want, bytes) == 0);
            free(data);
            free(want);
        }
    uint64_t mine = 10 + p, all[MOST];
    WANT(bl_world_gather(w, &mine, sizeof mine, all, err) == 0);
    for (uint32_t q = 0; q < n; q++)
        WANT(all[q] == 10 + q);

    /* Parts of very unequal size, one of them empty. */
    uint64_t begin[MOST + 1] = {0};
    for (uint32_t q = 0; q < n; q++)
        begin[q + 1] = begin[q] + (q == 1 ? 0 : q == 2 ? 5 * MIB : 1000 * q + 3);
    unsigned char *parts = calloc(1, begin[n] + 1), *want = malloc(begin[n] + 1);
    for (uint32_t q = 0; q < n; q++)
        fill(want + begin[q], begin[q + 1] - begin[q], q);
    fill(parts + begin[p], begin[p + 1] - begin[p], p);
    if (bl_world_gather_parts(w, parts, begin, err) != 0)
        return -1;
    WANT(memcmp(parts, want, begin[n]) == 0);
    free(parts);
    free(want);
    return 0;
}

static int check_agreement(struct bl_world *w, struct bl_error *err)
{
    uint32_t n = bl_world_processes(w), p = bl_world_process(w);
    struct bl_error mine = BL_ERROR_INIT;
    WANT(bl_world_agree(w, 0, &mine) == 0 && mine.code == 0);
    /* The last two fail; the lower one's error counts. */
    uint32_t first = n >= 2 ? n - 2 : 0;
    int rc = 0;
    if (p >= first)
        rc = bl_error_set(&mine, BL_EXIT_DATA, "shard %u is cut", p);
    WANT(bl_world_agree(w, rc, &mine) == -1 && mine.code == BL_EXIT_DATA);
    char text[400];
    if (p == first)
        snprintf(text, sizeof text, "shard %u is cut", p);
    else
        snprintf(text, sizeof text, "process %u (%s): shard %u is cut", first,
                 bl_world_host(w, first), first);
    WANT(strcmp(mine.text, p == 0 ? text : "") == 0); /* process 0 says it */
    WANT(bl_world_agree(w, 0, err) == 0);
    return 0;
}

static int everything(struct bl_world *w, struct job *job, struct bl_error *err)
{
    (void)job;
    uint64_t before = bl_world_sent(w);
    if (check_messages(w, err) != 0 || check_order(w, err) != 0 || check_collectives(w, err) != 0 ||
        check_agreement(w, err) != 0)
        return -1;
    /* At least 5 MiB to each other process and 17 to one. */
    if (bl_world_processes(w) > 1)
        WANT(bl_world_sent(w) - before >= (5 * (bl_world_processes(w) - 1) + 17) * MIB);
    WANT(bl_world_waited(w) >= 0);
    return bl_world_barrier(w, err);
}

static int everything_here(struct bl_world *w, struct job *job, struct bl_error *err)
{
    WANT(strcmp(bl_world_method(w), "environment") == 0);
    for (uint32_t p = 0; p < bl_world_processes(w); p++)
        WANT(bl_world_node(w, p) == 0 && bl_world_local(w, p) == p &&
             strcmp(bl_world_host(w, p), bl_world_host(w, 0)) == 0);
    return everything(w, job, err);
}

static void test_everything(void **state)
{
    (void)state;
    /* All in one folder: files of earlier meetings lie there. */
    for (uint32_t n = 1; n <= 5; n++)
        expect_success(n, 20, everything_here);
}

static void test_alone(void **state)
{
    struct bl_world *w;
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    assert_int_equal(bl_world_make(5, &w, &err), 0);
    assert_string_equal(bl_world_method(w), "alone");
    assert_string_equal(bl_world_transport(w), "");
    assert_int_equal(bl_world_process(w), 0);
    assert_int_equal(bl_world_processes(w), 1);
    if (everything(w, NULL, &err) != 0)
        fail_msg("%s", err.text);
    /* Messages to oneself that cannot end, or do not fit. */
    int x = 0, y = 0;
    struct bl_message *m[2] = {NULL, NULL};
    assert_int_equal(bl_world_send(w, 0, 1, &x, sizeof x, &m[0], &err), 0);
    assert_int_equal(bl_world_wait(w, m, 1, &err), -1);
    assert_int_equal(bl_world_send(w, 0, 1, &x, sizeof x, &m[0], &err), 0);
    assert_int_equal(bl_world_receive(w, 0, 1, &y, 1, &m[1], &err), 0);
    assert_int_equal(bl_world_wait(w, m, 2, &err), -1);
    assert_int_equal(err.code, BL_EXIT_PEER);
    assert_int_equal(bl_world_send(w, 1, 1, &x, sizeof x, &m[0], &err), -1);
    assert_int_equal(bl_world_send(w, 0, (uint64_t)1 << 40, &x, sizeof x, &m[0], &err), -1);
    bl_world_abort(w, "nobody hears this");
    bl_world_free(w);
}

/* ---- what does not ----------------------------------------------------------------------------*/

/* Everybody waits for the last process. */
static int wait_for_last(struct bl_world *w, struct job *job, struct bl_error *err)
{
    char byte;
    struct bl_message *m = NULL;
    uint32_t last = bl_world_processes(w) - 1;
    own(w, job)->ready = 1;
    if (bl_world_process(w) == last) {
        nap(60);
        return bl_error_set(err, BL_EXIT_FAILED, "the test did not end this process");
    }
    if (bl_world_receive(w, last, 5, &byte, 1, &m, err) != 0)
        return -1;
    return bl_world_wait(w, &m, 1, err);
}

static void await_ready(const struct job *job)
{
    for (uint32_t p = 0; p < job->processes; p++)
        for (int i = 0; *(volatile const int *)&job->outcomes[p].ready == 0; i++) {
            assert_true(i < 500);
            nap(0.01);
        }
}

/* All but the last one ended with BL_EXIT_PEER within `most` seconds, and their line names it. */
static void expect_loss(const struct job *job, const int *status, double least, double most)
{
    char name[32];
    uint32_t last = job->processes - 1;
    snprintf(name, sizeof name, "process %u (", last);
    for (uint32_t p = 0; p < last; p++) {
        const struct outcome *o = &job->outcomes[p];
        if (o->code != BL_EXIT_PEER || strstr(o->text, name) == NULL || o->seconds > most ||
            o->seconds < least)
            print_error("process %u: code %d after %.2f s: %s\n", p, o->code, o->seconds, o->text);
        assert_true(WIFEXITED(status[p]));
        assert_int_equal(o->code, BL_EXIT_PEER);
        assert_non_null(strstr(o->text, name));
        assert_true(o->seconds >= least && o->seconds <= most);
    }
}

static void test_killed(void **state)
{
    int status[MOST];
    (void)state;
    struct job *job = start(folder, 4, 30, wait_for_last);
    await_ready(job);
    kill(job->pids[3], SIGKILL);
    finish(job, status);
    expect_loss(job, status, 0, 5); /* its connections end: no need to wait for the 30 s */
    end(job);
}

static void test_stopped(void **state)
{
    int status[MOST];
    (void)state;
    struct job *job = start(folder, 3, 1.5, wait_for_last);
    await_ready(job);
    kill(job->pids[2], SIGSTOP);
    for (uint32_t p = 0; p < 2; p++)
        assert_int_equal(waitpid(job->pids[p], &status[p], 0), job->pids[p]);
    kill(job->pids[2], SIGKILL);
    assert_int_equal(waitpid(job->pids[2], &status[2], 0), job->pids[2]);
    /* Signs of life come every fifth of the timeout; the end of a lost world takes a second. */
    expect_loss(job, status, 1, 1.5 + 2.5);
    end(job);
}

static int abort_or_wait(struct bl_world *w, struct job *job, struct bl_error *err)
{
    if (bl_world_process(w) == 3) {
        bl_world_abort(w, "the loss is not finite at step 7");
        return 0;
    }
    return wait_for_last(w, job, err);
}

static void test_abort(void **state)
{
    int status[MOST];
    (void)state;
    struct job *job = start(folder, 4, 30, abort_or_wait);
    finish(job, status);
    expect_loss(job, status, 0, 5);
    for (uint32_t p = 0; p < 3; p++)
        assert_non_null(strstr(job->outcomes[p].text, "): the loss is not finite at step 7"));
    assert_int_equal(status[3], 0);
    end(job);
}

static int leave_or_wait(struct bl_world *w, struct job *job, struct bl_error *err)
{
    return bl_world_process(w) == 2 ? 0 : wait_for_last(w, job, err);
}

static void test_leaves_early(void **state)
{
    int status[MOST];
    (void)state;
    struct job *job = start(folder, 3, 30, leave_or_wait);
    finish(job, status);
    expect_loss(job, status, 0, 5);
    assert_int_equal(status[2], 0);
    end(job);
}

/* One leaves; the others, who need nothing of it, go on. What it sent before is still there. */
static int go_on_without(struct bl_world *w, struct job *job, struct bl_error *err)
{
    uint32_t p = bl_world_process(w);
    struct bl_message *m = NULL;
    unsigned char byte = 9;
    (void)job;
    if (p == 2) {
        WANT(bl_world_send(w, 0, 5, &byte, 1, &m, err) == 0);
        return bl_world_wait(w, &m, 1, err);
    }
    for (int i = 0; i < 100; i++) {
        WANT(bl_world_send(w, 1 - p, 1, &byte, 1, &m, err) == 0);
        if (bl_world_wait(w, &m, 1, err) != 0)
            return -1;
        WANT(bl_world_receive(w, 1 - p, 1, &byte, 1, &m, err) == 0);
        if (bl_world_wait(w, &m, 1, err) != 0)
            return -1;
        nap(0.01);
    }
    if (p == 1)
        return 0;
    byte = 0;
    WANT(bl_world_receive(w, 2, 5, &byte, 1, &m, err) == 0);
    if (bl_world_wait(w, &m, 1, err) != 0)
        return -1;
    WANT(byte == 9);
    return 0;
}

static void test_goes_on(void **state)
{
    (void)state;
    expect_success(3, 10, go_on_without);
}

/* Three times the timeout outside of any call, while the others wait. */
static int busy_or_wait(struct bl_world *w, struct job *job, struct bl_error *err)
{
    if (bl_world_process(w) == 1) {
        double until = bl_clock() + 3 * job->timeout;
        volatile double x = 1;
        while (bl_clock() < until)
            x = x * 1.0000001;
    }
    return bl_world_barrier(w, err);
}

static void test_busy(void **state)
{
    (void)state;
    expect_success(3, 1, busy_or_wait);
}

static int send_wrong(struct bl_world *w, struct job *job, struct bl_error *err, size_t sent,
                      size_t expected)
{
    struct bl_message *m = NULL;
    char *data = calloc(1, (sent > expected ? sent : expected) + 1);
    (void)job;
    int rc = bl_world_process(w) == 1 ? bl_world_send(w, 0, 3, data, sent, &m, err)
                                      : bl_world_receive(w, 1, 3, data, expected, &m, err);
    if (rc == 0)
        rc = bl_world_wait(w, &m, 1, err);
    if (rc == 0)
        rc = bl_world_barrier(w, err);
    free(data);
    return rc;
}

static int send_more(struct bl_world *w, struct job *job, struct bl_error *err)
{
    return send_wrong(w, job, err, 1001, 1000);
}

static int send_less(struct bl_world *w, struct job *job, struct bl_error *err)
{
    return send_wrong(w, job, err, 0, 1);
}

static int send_piece_more(struct bl_world *w, struct job *job, struct bl_error *err)
{
    return send_wrong(w, job, err, 8 * MIB, 4 * MIB);
}

static int send_piece_less(struct bl_world *w, struct job *job, struct bl_error *err)
{
    return send_wrong(w, job, err, 4 * MIB, 9 * MIB);
}

static void test_wrong_size(void **state)
{
    static role_f *const roles[] = {send_more, send_less, send_piece_more, send_piece_less};
    (void)state;
    for (size_t i = 0; i < sizeof roles / sizeof *roles; i++) {
        int status[MOST];
        struct job *job = start(folder, 2, 20, roles[i]);
        finish(job, status);
        if (job->outcomes[0].code != BL_EXIT_PEER)
            print_error("case %zu: code %d: %s\n", i, job->outcomes[0].code, job->outcomes[0].text);
        assert_int_equal(job->outcomes[0].code, BL_EXIT_PEER);
        assert_non_null(strstr(job->outcomes[0].text, "process 1 ("));
        assert_non_null(strstr(job->outcomes[0].text, "another size"));
        assert_int_equal(job->outcomes[1].code, BL_EXIT_PEER); /* is told */
        assert_true(job->outcomes[1].seconds < 5);
        end(job);
    }
}

/* The last one sleeps, 15 wait: a wait that spins would take all of both cores. */
static int idle(struct bl_world *w, struct job *job, struct bl_error *err)
{
    (void)job;
    if (bl_world_process(w) == bl_world_processes(w) - 1)
        nap(2);
    return bl_world_barrier(w, err);
}

static void test_idle(void **state)
{
    int status[MOST];
    double cpu = 0, wall = 0;
    (void)state;
    struct job *job = start(folder, MOST, 10, idle);
    finish(job, status);
    for (uint32_t p = 0; p < job->processes; p++) {
        assert_int_equal(status[p], 0);
        cpu += job->outcomes[p].cpu;
        wall = fmax(wall, job->outcomes[p].seconds);
    }
    print_message("16 processes, %.2f s: %.3f s of CPU together\n", wall, cpu);
    assert_true(wall >= 1.9);
    assert_true(cpu < 0.1 * wall * MOST);
    end(job);
}

/* ---- how they meet ----------------------------------------------------------------------------*/

static void refuse(const char *process, const char *processes, const char *meet, const char *word)
{
    struct bl_world *w = NULL;
    struct bl_error err = BL_ERROR_INIT;
    process != NULL ? setenv("BALLAST_PROCESS", process, 1) : unsetenv("BALLAST_PROCESS");
    processes != NULL ? setenv("BALLAST_PROCESSES", processes, 1) : unsetenv("BALLAST_PROCESSES");
    meet != NULL ? setenv("BALLAST_MEET", meet, 1) : unsetenv("BALLAST_MEET");
    int rc = bl_world_make(1, &w, &err);
    if (rc == 0 || err.code != BL_EXIT_USAGE || strstr(err.text, word) == NULL)
        print_error("%d: %s\n", err.code, err.text);
    assert_int_equal(rc, -1);
    assert_null(w);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_non_null(strstr(err.text, word));
    unsetenv("BALLAST_PROCESS");
    unsetenv("BALLAST_PROCESSES");
    unsetenv("BALLAST_MEET");
}

static void test_refused(void **state)
{
    (void)state;
    refuse("0", NULL, "/tmp", "BALLAST_PROCESSES");
    refuse(NULL, "2", "/tmp", "BALLAST_PROCESS ");
    refuse("2", "2", "/tmp", "0 to 1");
    refuse("-1", "2", "/tmp", "whole number");
    refuse("0", "0", "/tmp", "whole number");
    refuse("1x", "2", "/tmp", "whole number");
    refuse("0", "99999999999999999999", "/tmp", "whole number");
    refuse("0", "2", NULL, "BALLAST_MEET");
    refuse("0", "2", "/no/such/folder", "No such file");
    refuse("0", "2", "/etc/passwd", "not a folder");
    setenv("SLURM_STEP_NUM_TASKS", "4", 1);
    setenv("SLURM_PROCID", "1", 1);
    refuse(NULL, NULL, NULL, "srun --mpi=pmi2");
    setenv("PMI_FD", "17", 1);
    setenv("PMI_SIZE", "1", 1);
    refuse(NULL, NULL, NULL, "srun --mpi=pmi2");
    unsetenv("PMI_FD");
    unsetenv("PMI_SIZE");
    unsetenv("SLURM_STEP_NUM_TASKS");
    unsetenv("SLURM_PROCID");
}

static void test_nobody_comes(void **state)
{
    struct bl_world *w = NULL;
    (void)state;
    for (int process = 0; process < 2; process++) {
        struct bl_error err = BL_ERROR_INIT;
        setenv("BALLAST_PROCESS", process == 0 ? "0" : "1", 1);
        setenv("BALLAST_PROCESSES", "3", 1);
        setenv("BALLAST_MEET", folder, 1);
        double begin = bl_clock();
        assert_int_equal(bl_world_make(0.5, &w, &err), -1);
        assert_true(bl_clock() - begin < 2);
        assert_int_equal(err.code, BL_EXIT_PEER);
        assert_non_null(strstr(err.text, "BALLAST_MEET="));
    }
    unsetenv("BALLAST_PROCESS");
    unsetenv("BALLAST_PROCESSES");
    unsetenv("BALLAST_MEET");
}

static int nothing(struct bl_world *w, struct job *job, struct bl_error *err)
{
    (void)job;
    return bl_world_barrier(w, err);
}

/* One process without the module: all end at once, with its words. */
static int without_module(void)
{
    return setenv("BALLAST_PLUGIN_PATH", "/no/such/folder", 1);
}

static void test_one_cannot(void **state)
{
    int status[MOST];
    const char *path = getenv("BALLAST_PLUGIN_PATH");
    char *before = path != NULL ? strdup(path) : NULL;
    (void)state;
    struct job *job =
        mmap(NULL, sizeof *job, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(job != MAP_FAILED);
    job->processes = 3;
    job->timeout = 20;
    fflush(NULL);
    for (uint32_t p = 0; p < 3; p++) {
        pid_t pid = fork();
        if (pid == 0) {
            if (p == 1)
                without_module();
            play(job, folder, p, nothing);
        }
        job->pids[p] = pid;
    }
    finish(job, status);
    for (uint32_t p = 0; p < 3; p++) {
        assert_int_equal(job->outcomes[p].rc, -1);
        assert_non_null(strstr(job->outcomes[p].text, "libucx"));
        if (p != 1)
            assert_non_null(strstr(job->outcomes[p].text, "process 1 ("));
    }
    end(job);
    free(before);
}

/* ---- as a part of a job -----------------------------------------------------------------------*/

static int join(int hold)
{
    struct bl_world *w = NULL;
    struct bl_error err = BL_ERROR_INIT;
    const char *text = getenv("WORLD_TEST_TIMEOUT");
    double timeout = text != NULL ? strtod(text, NULL) : 20, begin = bl_clock();
    struct job *job = calloc(1, sizeof *job);
    int rc = bl_world_make(timeout, &w, &err);
    if (rc == 0) {
        uint32_t p = bl_world_process(w);
        printf("process %u of %u on %s: node %u local %u, %s, %s, %.1f ms\n", p,
               bl_world_processes(w), bl_world_host(w, p), bl_world_node(w, p),
               bl_world_local(w, p), bl_world_method(w), bl_world_transport(w),
               1e3 * (bl_clock() - begin));
        fflush(stdout);
        begin = bl_clock();
        rc = hold ? wait_for_last(w, job, &err) : everything(w, job, &err);
    }
    printf("%d after %.2f s: code %d %s\n", rc, bl_clock() - begin, err.code, err.text);
    fflush(stdout);
    if (rc != 0)
        bl_world_abort(w, err.text);
    bl_world_free(w);
    free(job);
    return rc == 0 ? 0 : err.code;
}

/* Where the tests look for it; a build without UCX has none. */
static int have_module(void)
{
    char path[4096];
    const char *folders = getenv("BALLAST_PLUGIN_PATH");
    if (folders == NULL)
        return 0;
    snprintf(path, sizeof path, "%.*s/transport_ucx.so", (int)strcspn(folders, ":"), folders);
    return access(path, R_OK) == 0;
}

int main(int argc, char **argv)
{
    if (argc == 2)
        return join(strcmp(argv[1], "hold") == 0);
    const struct CMUnitTest alone[] = {cmocka_unit_test(test_alone),
                                       cmocka_unit_test(test_refused)};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything),   cmocka_unit_test(test_killed),
        cmocka_unit_test(test_stopped),      cmocka_unit_test(test_abort),
        cmocka_unit_test(test_leaves_early), cmocka_unit_test(test_goes_on),
        cmocka_unit_test(test_busy),         cmocka_unit_test(test_wrong_size),
        cmocka_unit_test(test_idle),         cmocka_unit_test(test_nobody_comes),
        cmocka_unit_test(test_one_cannot)};
    int failed = cmocka_run_group_tests_name("one process", alone, NULL, NULL);
    if (!have_module()) {
        print_message("processes: skipped, no transport_ucx.so (built without UCX)\n");
        return failed != 0 ? failed : 77;
    }
    return failed + cmocka_run_group_tests_name("processes", tests, make_folder, remove_folder);
}
