/* Memory limits of control groups, on trees of files as the two versions show them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/cgroup.h"

struct tree {
    char root[64], groups[96];
};

static void put(const struct tree *t, const char *path, const char *text)
{
    char name[300];
    snprintf(name, sizeof name, "%s/%s", t->root, path);
    for (char *slash = name + strlen(t->root) + 1; (slash = strchr(slash, '/')) != NULL; slash++) {
        *slash = '\0';
        assert_true(mkdir(name, 0700) == 0 || errno == EEXIST);
        *slash = '/';
    }
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static int make_tree(void **state)
{
    struct tree *t = calloc(1, sizeof *t);
    assert_non_null(t);
    strcpy(t->root, "/tmp/ballast-cgroup-XXXXXX");
    assert_non_null(mkdtemp(t->root));
    snprintf(t->groups, sizeof t->groups, "%s/groups", t->root);
    *state = t;
    return 0;
}

static int drop(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static int drop_tree(void **state)
{
    struct tree *t = *state;
    nftw(t->root, drop, 16, FTW_DEPTH | FTW_PHYS);
    free(t);
    return 0;
}

static uint64_t left(const struct tree *t)
{
    return bl_cgroup_memory_left(t->groups, t->root);
}

static void test_version_2(void **state)
{
    const struct tree *t = *state;
    put(t, "groups", "0::/slurm/job_7/step_0\n");
    assert_true(left(t) == UINT64_MAX);
    put(t, "slurm/job_7/memory.max", "1000000\n");
    put(t, "slurm/job_7/memory.current", "400000\n");
    assert_int_equal(left(t), 600000);
    put(t, "slurm/job_7/memory.stat", "anon 300000\ninactive_file 90000\nactive_file 5\n");
    assert_int_equal(left(t), 690000);
    put(t, "slurm/job_7/step_0/memory.max", "max\n"); /* the job's limit holds */
    put(t, "slurm/job_7/step_0/memory.current", "1\n");
    assert_int_equal(left(t), 690000);
    put(t, "slurm/job_7/step_0/memory.max", "5000\n");
    assert_int_equal(left(t), 4999);
    put(t, "slurm/job_7/memory.current", "2000000\n");
    assert_int_equal(left(t), 0);
}

static void test_version_1(void **state)
{
    const struct tree *t = *state;
    put(t, "groups", "9:name=systemd:/\n5:cpuacct,memory:/docker/abc\n2:cpu:/x\n0::/\n");
    assert_true(left(t) == UINT64_MAX);
    /* within a container its own group is the root that it sees */
    put(t, "memory/memory.limit_in_bytes", "9223372036854771712\n");
    put(t, "memory/memory.usage_in_bytes", "123\n");
    assert_true(left(t) == UINT64_MAX);
    put(t, "memory/memory.limit_in_bytes", "1000\n");
    put(t, "memory/memory.stat", "inactive_file 7\ntotal_inactive_file 23\n");
    assert_int_equal(left(t), 900);
    put(t, "memory/docker/abc/memory.limit_in_bytes", "100\n");
    put(t, "memory/docker/abc/memory.usage_in_bytes", "90\n");
    assert_int_equal(left(t), 10);
    put(t, "unified/memory.max", "50\n"); /* hybrid: the nearest limit counts */
    put(t, "unified/memory.current", "45\n");
    assert_int_equal(left(t), 5);
}

static void test_odd_lines(void **state)
{
    const struct tree *t = *state;
    put(t, "memory.max", "10\n");
    put(t, "memory.current", "1\n");
    put(t, "groups", "");
    assert_true(left(t) == UINT64_MAX);
    put(t, "groups", "garbage\n:\n1:memoryless:/\n0::relative\n\n");
    assert_true(left(t) == UINT64_MAX);
    put(t, "groups", "0::/a:b/c\n"); /* a group's name may have a colon */
    assert_int_equal(left(t), 9);
    put(t, "memory.max", "-\n");
    assert_true(left(t) == UINT64_MAX);
    assert_true(bl_cgroup_memory_left("/nonexistent", t->root) == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_version_2, make_tree, drop_tree),
        cmocka_unit_test_setup_teardown(test_version_1, make_tree, drop_tree),
        cmocka_unit_test_setup_teardown(test_odd_lines, make_tree, drop_tree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
