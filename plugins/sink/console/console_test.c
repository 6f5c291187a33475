/* The console sink, with standard output turned into a pipe, a pseudo terminal, or nothing. */
#include "tests/lib/plugin_test.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

static int saved = -1; /* the test program's own standard output */
static int reading_end = -1;
static char caught[65536];

static void redirect(int fd)
{
    fflush(stdout);
    saved = dup(STDOUT_FILENO);
    assert_true(saved >= 0);
    assert_true(dup2(fd, STDOUT_FILENO) >= 0);
    close(fd);
}

static void to_pipe(void)
{
    int ends[2];

    assert_int_equal(pipe(ends), 0);
    reading_end = ends[0];
    redirect(ends[1]);
}

static void to_terminal(unsigned short width)
{
    struct winsize size = {24, width, 0, 0};
    int master = posix_openpt(O_RDWR | O_NOCTTY), slave;

    assert_true(master >= 0);
    assert_int_equal(grantpt(master), 0);
    assert_int_equal(unlockpt(master), 0);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(slave >= 0);
    assert_int_equal(ioctl(slave, TIOCSWINSZ, &size), 0);
    reading_end = master;
    redirect(slave);
}

/* Gives standard output back; `caught` then has what was written meanwhile. */
static void restore(void)
{
    size_t n = 0;
    ssize_t got;

    fcntl(reading_end, F_SETFL, O_NONBLOCK);
    while (n < sizeof(caught) - 1 &&
           (got = read(reading_end, caught + n, sizeof(caught) - 1 - n)) > 0)
        n += (size_t)got;
    caught[n] = '\0';
    dup2(saved, STDOUT_FILENO);
    close(saved);
    close(reading_end);
}

static int write_row(const struct bl_bench *b, uint64_t step, double loss, double validation,
                     struct bl_error *err)
{
    static const char *const names[] = {"optim/grad_norm", "loss/total", "perf/tokens_per_second",
                                        "perf/step_seconds", "loss/val"};
    const double values[] = {1.03, loss, 12345.0, 0.5, validation};
    struct bl_record r = {.size = sizeof(r),
                          .attempt = 1,
                          .step = step,
                          .time = 1700000000.0 + 0.5 * (double)step,
                          .count = isnan(validation) ? 4 : 5,
                          .names = names,
                          .values = values};

    memset(err, 0, sizeof(*err));
    return b->ops->sink.write(b->self, &r, err);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;

    for (; (text = strstr(text, word)); text += strlen(word))
        n++;
    return n;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SINK, "console", "");
}

static void run(struct bl_bench *b, const char *config, uint64_t first, uint64_t last)
{
    struct bl_error err = {.size = sizeof(err)};

    bl_bench_open(b, BL_KIND_SINK, "console", config);
    for (uint64_t s = first; s <= last; s++)
        if (write_row(b, s, 10.0 / (double)s, s == 50 ? 2.5 : NAN, &err) != 0)
            fail_msg("%s", err.text);
    if (b->ops->sink.finish(b->self, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_plain_lines(void **state)
{
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b); /* 100 steps: step 1 and each fifth */
    to_pipe();
    run(&b, "", 1, 100);
    restore();
    assert_int_equal(count(caught, "\n"), 22);
    assert_int_equal(count(caught, "\r") + count(caught, "\033"), 0);
    assert_ptr_equal(strstr(caught, "step 1/100  loss 10.00  grad 1.03  12.3k tok/s  left 50s\n"),
                     caught);
    assert_non_null(strstr(caught, "\nstep 60/100  loss 0.167  val 2.500 @50  grad 1.03  12.3k "
                                   "tok/s  left 20s\n"));
    assert_non_null(strstr(caught, "\nstep 45/100  loss 0.222  grad 1.03"));
    assert_non_null(strstr(caught, "\nstep 50/100  loss 0.200  val 2.500  grad 1.03"));
    assert_non_null(strstr(caught, "\nstep 100/100  loss 0.100  val 2.500 @50  grad 1.03"));
    /* 8 x 16 tokens in half a second */
    assert_non_null(strstr(caught, "\nfinished 100 steps  loss 0.100  val 2.500 @50  time 50s  "
                                   "256 tok/s\n"));
    bl_bench_stop(&b);
}

static void test_every(void **state)
{
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    to_pipe();
    run(&b, "every = 40;", 31, 90); /* resumed at 31, stopped at 90: 31, 40, 80 */
    restore();
    assert_int_equal(count(caught, "\n"), 4);
    assert_int_equal(count(caught, "step 31/"), 1);
    assert_int_equal(count(caught, "step 40/"), 1);
    assert_int_equal(count(caught, "step 80/"), 1);
    assert_non_null(strstr(caught, "\nended at step 90 of 100  loss 0.111"));
    bl_bench_stop(&b);
}

static void test_terminal(void **state)
{
    struct bl_bench b;

    (void)state;
    setenv("TERM", "xterm", 1);
    unsetenv("NO_COLOR");
    bl_bench_start(&b);
    to_terminal(120);
    run(&b, "", 1, 100);
    restore();
    /* All rows come within a few milliseconds: the first, the last, perhaps one more. */
    assert_in_range(count(caught, "step "), 2, 10);
    assert_int_equal(count(caught, "\n"), 1);
    assert_int_equal(count(caught, "\033[32m") > 0, 1);
    assert_non_null(strstr(caught, "step 1/100"));
    assert_non_null(strstr(caught, "step 100/100"));
    assert_non_null(strstr(caught, "[\033[32m========================\033[0m]"));
    assert_non_null(strstr(caught, "\r\033[Kfinished 100 steps"));
    bl_bench_stop(&b);
}

static void test_no_color(void **state)
{
    struct bl_bench b;

    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    bl_bench_start(&b);
    to_terminal(120);
    run(&b, "", 1, 3);
    restore();
    assert_int_equal(count(caught, "\033["), count(caught, "\033[K"));
    unsetenv("NO_COLOR");
    bl_bench_stop(&b);
}

/* No line is wider than the terminal: it would wrap and could not be redrawn. */
static void test_narrow_terminal(void **state)
{
    struct bl_bench b;
    size_t longest = 0;

    (void)state;
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", "1", 1);
    for (unsigned short width = 5; width < 100; width += 9) {
        bl_bench_start(&b);
        to_terminal(width);
        bl_bench_open(&b, BL_KIND_SINK, "console", "");
        write_row(&b, 1, 3.0, 3.0, &b.err);
        restore();
        longest = strcspn(caught + 1, "\033");
        assert_int_equal(caught[0], '\r');
        if (longest >= width)
            fail_msg("%zu columns on a terminal of %u", longest, width);
        bl_bench_stop(&b);
    }
    unsetenv("NO_COLOR");
}

static void test_dumb_terminal(void **state)
{
    struct bl_bench b;

    (void)state;
    setenv("TERM", "dumb", 1);
    bl_bench_start(&b);
    to_terminal(80);
    run(&b, "", 1, 100);
    restore();
    assert_int_equal(count(caught, "\033"), 0);
    assert_int_equal(count(caught, "\n"), 22);
    bl_bench_stop(&b);
}

static void test_not_finite(void **state)
{
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    to_pipe();
    bl_bench_open(&b, BL_KIND_SINK, "console", "every = 1;");
    write_row(&b, 1, NAN, INFINITY, &err);
    restore();
    assert_ptr_equal(strstr(caught, "step 1/100  loss nan  val inf"), caught);
    bl_bench_stop(&b);
}

/* Nobody reads any more: an error, not the end of the process. */
static void test_closed_output(void **state)
{
    struct bl_error err, end = {.size = sizeof(end)};
    struct bl_bench b;
    int answer, finished;

    (void)state;
    signal(SIGPIPE, SIG_IGN); /* as the trainer does */
    bl_bench_start(&b);
    to_pipe();
    bl_bench_open(&b, BL_KIND_SINK, "console", "every = 1;");
    close(reading_end);
    reading_end = open("/dev/null", O_RDONLY);
    answer = write_row(&b, 1, 1.0, NAN, &err);
    finished = b.ops->sink.finish(b.self, &end);
    restore();
    assert_int_equal(answer, -1);
    assert_int_equal(finished, -1);
    assert_non_null(strstr(err.text, "standard output: Broken pipe"));
    bl_bench_stop(&b);
}

static void test_full_device(void **state)
{
    struct bl_error err;
    struct bl_bench b;
    int answer, fd = open("/dev/full", O_WRONLY);

    (void)state;
    if (fd < 0)
        skip();
    bl_bench_start(&b);
    redirect(fd);
    reading_end = open("/dev/null", O_RDONLY);
    bl_bench_open(&b, BL_KIND_SINK, "console", "every = 1;");
    answer = write_row(&b, 1, 1.0, NAN, &err);
    restore();
    assert_int_equal(answer, -1);
    assert_non_null(strstr(err.text, "No space left"));
    bl_bench_stop(&b);
}

/* A pipe that nobody empties must not hold the run for ever when it is non-blocking. */
static void test_blocked_pipe(void **state)
{
    struct bl_error err;
    struct bl_bench b;
    int answer = 0;

    (void)state;
    bl_bench_start(&b);
    to_pipe();
    fcntl(STDOUT_FILENO, F_SETFL, O_NONBLOCK);
    bl_bench_open(&b, BL_KIND_SINK, "console", "every = 1;");
    for (uint64_t s = 1; s < 100 && answer == 0; s++) {
        static char filler[4096];
        while (write(STDOUT_FILENO, filler, sizeof(filler)) > 0)
            continue;
        answer = write_row(&b, s, 1.0, NAN, &err);
    }
    restore();
    assert_int_equal(answer, -1);
    assert_non_null(strstr(err.text, "nobody reads it"));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),        cmocka_unit_test(test_plain_lines),
        cmocka_unit_test(test_every),         cmocka_unit_test(test_terminal),
        cmocka_unit_test(test_no_color),      cmocka_unit_test(test_narrow_terminal),
        cmocka_unit_test(test_dumb_terminal), cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_closed_output), cmocka_unit_test(test_full_device),
        cmocka_unit_test(test_blocked_pipe),
    };
    return cmocka_run_group_tests_name("sink console", tests, NULL, NULL);
}
