/* job: facts from the environment, the time limit and the comment through stand-ins for Slurm's
 * programs, and the status file. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "job.h"

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* A stand-in: a shell script in the only folder of PATH. */
static void program(const char *name, const char *text)
{
    char script[512];
    snprintf(script, sizeof script, "#!/bin/sh\ncd %s || exit\n%s\n", folder, text);
    assert_int_equal(bl_write_file(in_folder(name), script, strlen(script), NULL), 0);
    assert_int_equal(chmod(in_folder(name), 0755), 0);
}

static int contains(const char *name, const char *text)
{
    char *got = NULL;
    size_t n = 0;
    int found = bl_read_file(in_folder(name), 4096, &got, &n, NULL) == 0 && !strcmp(got, text);
    free(got);
    return found;
}

static int setup(void **state)
{
    (void)state;
    strcpy(folder, "/tmp/ballast-job-XXXXXX");
    static const char *const slurm[] = {
        "SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT",
        "SLURM_PROCID", "BALLAST_STATUS",     "BALLAST_PROCESS"};
    for (size_t i = 0; i < sizeof slurm / sizeof *slurm; i++)
        unsetenv(slurm[i]);
    return mkdtemp(folder) && setenv("PATH", folder, 1) == 0 ? 0 : -1;
}

static int teardown(void **state)
{
    char command[128];
    (void)state;
    setenv("PATH", "/usr/bin:/bin", 1);
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) == 0 ? 0 : -1;
}

static void facts(void **state)
{
    (void)state;
    struct bl_job_facts f;
    char id[64];
    assert_int_equal(bl_job_facts(&f, id), 0);
    assert_string_equal(f.id, "");
    assert_int_equal(f.restarts, 0);
    setenv("SLURM_JOB_ID", "812", 1);
    setenv("SLURM_RESTART_COUNT", "2", 1);
    assert_int_equal(bl_job_facts(&f, id), 1);
    assert_string_equal(f.id, "812");
    assert_int_equal(f.restarts, 2);
    setenv("SLURM_ARRAY_JOB_ID", "810", 1);
    setenv("SLURM_ARRAY_TASK_ID", "3", 1);
    setenv("SLURM_RESTART_COUNT", "many", 1);
    assert_int_equal(bl_job_facts(&f, id), 1);
    assert_string_equal(f.id, "810_3");
    assert_int_equal(f.restarts, 0);
}

static void seconds(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        double value;
    } rows[] = {
        {"9", 9},           {"0:00", 0},           {"1:09", 69},           {"2:00:01", 7201},
        {"3:04:05", 11045}, {"1-00:00:07", 86407}, {"10-01:00:00", 867600}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_true(bl_job_seconds(rows[i].text) == rows[i].value);
    assert_true(isinf(bl_job_seconds("UNLIMITED")));
    static const char *const bad[] = {"",   "INVALID", "NOT_SET", "-5",  "1:",   ":1",
                                      "1-", "1:2:3:4", "1:2x",    "1 2", "1--2", "-"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_true(isnan(bl_job_seconds(bad[i])));
}

static void outside(void **state)
{
    (void)state;
    program("squeue", ": >called");
    program("scontrol", ": >called");
    assert_null(bl_job_make());
    assert_true(isnan(bl_job_remaining(NULL)));
    bl_job_progress(NULL, 1, 2, 3.0, 1.0);
    bl_job_free(NULL);
    assert_int_not_equal(access(in_folder("called"), F_OK), 0);
}

/* Waits as a step loop would, ten seconds at most. */
static double known_limit(struct bl_job *j)
{
    double left = NAN, end = bl_clock() + 10;
    while (isnan(left = bl_job_remaining(j)) && bl_clock() < end)
        usleep(1000);
    return left;
}

static void limit(void **state)
{
    (void)state;
    setenv("SLURM_JOB_ID", "7", 1);
    program("squeue", "echo \"$@\" >asked; echo 1:40");
    struct bl_job *j = bl_job_make();
    assert_non_null(j);
    double left = known_limit(j);
    assert_true(left > 85 && left <= 100); /* ten seconds at most were waited */
    assert_true(bl_job_remaining(j) <= left);
    assert_true(contains("asked", "--noheader --format=%L --jobs=7\n"));
    bl_job_free(j);

    program("squeue", "echo UNLIMITED");
    j = bl_job_make();
    assert_true(isinf(known_limit(j)));
    bl_job_free(j);
}

static void comment(void **state)
{
    (void)state;
    setenv("SLURM_JOB_ID", "7", 1);
    program("scontrol", "echo \"$#: $*\" >>comments");
    struct bl_job *j = bl_job_make();
    double end = bl_clock() + 10;
    for (uint64_t step = 1200; access(in_folder("comments"), F_OK) != 0 && bl_clock() < end;
         step++) {
        bl_job_progress(j, step, 5000, 3.2099, 0.65);
        usleep(1000);
    }
    /* Not again within the minute. */
    for (int i = 0; i < 100; i++) {
        bl_job_progress(j, 1300, 5000, 3.2, 0.65);
        usleep(1000);
    }
    bl_job_free(j);
    assert_true(
        contains("comments", "3: update jobid=7 comment=step 1200/5000 loss 3.21 eta 0:41:10\n"));
}

/* Programs that are missing, fail, or never end: unknown, and no call waits. */
static void without_answers(void **state)
{
    (void)state;
    setenv("SLURM_JOB_ID", "7", 1);
    static const char *const faults[] = {NULL, "exit 3", "echo nonsense", "while :; do :; done"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        if (faults[i] != NULL) {
            program("squeue", faults[i]);
            program("scontrol", faults[i]);
        }
        double start = bl_clock();
        struct bl_job *j = bl_job_make();
        for (uint64_t step = 1; step <= 50; step++) {
            bl_job_progress(j, step, 50, NAN, NAN);
            assert_true(isnan(bl_job_remaining(j)));
            usleep(1000);
        }
        bl_job_free(j);
        assert_true(bl_clock() - start < 5);
    }
}

static void status(void **state)
{
    (void)state;
    bl_job_status(75, "nobody asked");
    setenv("BALLAST_STATUS", in_folder("status"), 1);
    bl_job_status(75, "stopped by SIGUSR1 after step 3 of 6");
    assert_true(contains("status", "75 stopped by SIGUSR1 after step 3 of 6\n"));
    bl_job_saved(3);
    assert_true(contains("status.saved", "3\n"));
    setenv("SLURM_PROCID", "1", 1);
    bl_job_saved(4);
    assert_true(contains("status.saved", "3\n"));
    bl_job_status(6, "process 0 (n1) is lost");
    assert_true(contains("status", "75 stopped by SIGUSR1 after step 3 of 6\n"));
    setenv("SLURM_PROCID", "0", 1);
    bl_job_status(0, "done");
    assert_true(contains("status", "0 done\n"));
    setenv("BALLAST_PROCESS", "2", 1); /* processes that srun did not start */
    bl_job_status(1, "not this one");
    assert_true(contains("status", "0 done\n"));
    setenv("BALLAST_STATUS", in_folder("no/such/folder"), 1);
    bl_job_status(0, "done");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(facts, setup, teardown),
        cmocka_unit_test_setup_teardown(seconds, setup, teardown),
        cmocka_unit_test_setup_teardown(outside, setup, teardown),
        cmocka_unit_test_setup_teardown(limit, setup, teardown),
        cmocka_unit_test_setup_teardown(comment, setup, teardown),
        cmocka_unit_test_setup_teardown(without_answers, setup, teardown),
        cmocka_unit_test_setup_teardown(status, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
