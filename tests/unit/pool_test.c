/* The thread pool: every task once, nested and concurrent callers, no wake-up is lost. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/cpu/cpu.h"

struct marks {
    struct bl_pool *pool;
    uint64_t n;
    unsigned char *seen; /* plain bytes: a race between two tasks is a bug that TSan names */
    atomic_ullong nested;
};

static void mark(void *argument, uint64_t i)
{
    struct marks *m = argument;
    m->seen[i]++;
}

static struct bl_pool *make(unsigned threads)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_pool *p = NULL;
    if (bl_pool_make(threads, &p, &err) != 0)
        fail_msg("%s", err.text);
    return p;
}

static void test_each_task_once(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {0, 1, 2, 3, 17, 1000};
    for (unsigned threads = 1; threads <= 5; threads++) {
        struct bl_pool *p = make(threads);
        assert_int_equal(bl_pool_threads(p), threads);
        for (int repeat = 0; repeat < 200; repeat++) {
            for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
                struct marks m = {.pool = p, .n = sizes[s]};
                m.seen = calloc(m.n + 1, 1);
                bl_pool_run(p, m.n, mark, &m);
                for (uint64_t i = 0; i < m.n; i++)
                    assert_int_equal(m.seen[i], 1);
                assert_int_equal(m.seen[m.n], 0);
                free(m.seen);
            }
        }
        bl_pool_free(p);
    }
}

static void count(void *argument, uint64_t i)
{
    struct marks *m = argument;
    (void)i;
    atomic_fetch_add(&m->nested, 1);
}

static void nest(void *argument, uint64_t i)
{
    struct marks *m = argument;
    m->seen[i]++;
    bl_pool_run(m->pool, 7, count, m);
}

static void test_nested_runs(void **state)
{
    (void)state;
    struct bl_pool *p = make(3);
    struct marks m = {.pool = p, .n = 50};
    m.seen = calloc(m.n, 1);
    bl_pool_run(p, m.n, nest, &m);
    for (uint64_t i = 0; i < m.n; i++)
        assert_int_equal(m.seen[i], 1);
    assert_int_equal(atomic_load(&m.nested), 7 * m.n);
    free(m.seen);
    bl_pool_free(p);
}

static void *caller(void *argument)
{
    struct marks *m = argument;
    for (int repeat = 0; repeat < 300; repeat++)
        bl_pool_run(m->pool, m->n, mark, m);
    return NULL;
}

/* Two threads use one pool: neither waits for ever, each sees its own tasks done. */
static void test_two_callers(void **state)
{
    (void)state;
    struct bl_pool *p = make(3);
    struct marks m[2] = {{.pool = p, .n = 20}, {.pool = p, .n = 33}};
    pthread_t other;
    for (int k = 0; k < 2; k++)
        m[k].seen = calloc(m[k].n, 1);
    assert_int_equal(pthread_create(&other, NULL, caller, &m[1]), 0);
    caller(&m[0]);
    pthread_join(other, NULL);
    for (int k = 0; k < 2; k++) {
        for (uint64_t i = 0; i < m[k].n; i++)
            assert_int_equal(m[k].seen[i], 300 & 0xff);
        free(m[k].seen);
    }
    bl_pool_free(p);
}

static void use_scratch(void *argument, uint64_t i)
{
    struct marks *m = argument;
    uint64_t bytes = 64 + i * 97 % 4096;
    unsigned char *s = bl_pool_scratch(m->pool, bytes);
    assert_int_equal((uintptr_t)s % 64, 0);
    memset(s, (int)i, bytes);
    for (uint64_t j = 0; j < bytes; j++)
        if (s[j] != (unsigned char)i)
            m->seen[i] = 100;
    m->seen[i]++;
}

static void test_scratch_is_per_thread(void **state)
{
    (void)state;
    struct bl_pool *p = make(4);
    struct marks m = {.pool = p, .n = 400};
    m.seen = calloc(m.n, 1);
    unsigned char *results = bl_pool_results(p, 1000);
    memset(results, 42, 1000);
    bl_pool_run(p, m.n, use_scratch, &m);
    for (uint64_t i = 0; i < m.n; i++)
        assert_int_equal(m.seen[i], 1);
    for (int i = 0; i < 1000; i++) /* tasks in the caller did not move the caller's results */
        assert_int_equal(results[i], 42);
    assert_ptr_equal(bl_pool_results(p, 900), results); /* kept, not made anew */
    free(m.seen);
    bl_pool_free(p);
}

static void test_threads_by_affinity(void **state)
{
    (void)state;
    cpu_set_t all, one;
    CPU_ZERO(&all);
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    struct bl_pool *p = make(0);
    assert_int_equal(bl_pool_threads(p), CPU_COUNT(&all));
    bl_pool_free(p);

    CPU_ZERO(&one);
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, &all)) {
            CPU_SET(i, &one);
            break;
        }
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    p = make(0);
    assert_int_equal(bl_pool_threads(p), 1);
    bl_pool_free(p);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
}

static void test_refuses_too_many(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_pool *p = NULL;
    assert_int_equal(bl_pool_make(1u << 20, &p, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_non_null(strstr(err.text, "threads"));
    assert_null(p);
    bl_pool_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_task_once),      cmocka_unit_test(test_nested_runs),
        cmocka_unit_test(test_two_callers),         cmocka_unit_test(test_scratch_is_per_thread),
        cmocka_unit_test(test_threads_by_affinity), cmocka_unit_test(test_refuses_too_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
