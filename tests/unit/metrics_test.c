/* Rows of metrics on their way to sinks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "metrics/metrics.h"

struct probe {
    int calls, finishes, fail; /* fail: 1 every call, 2 every second call */
    uint64_t step, count;
    uint32_t attempt;
    double time, sum;
    char names[256];
};

static int32_t probe_write(void *self, const struct bl_record *r, struct bl_error *err)
{
    struct probe *p = self;

    assert_int_equal(r->size, sizeof(*r));
    p->calls++;
    p->step = r->step;
    p->attempt = r->attempt;
    p->time = r->time;
    p->count = r->count;
    p->names[0] = '\0';
    p->sum = 0.0;
    for (uint64_t i = 0; i < r->count; i++) {
        if (i < 5) {
            strcat(p->names, r->names[i]);
            strcat(p->names, " ");
        }
        p->sum += r->values[i];
    }
    if (p->fail == 1 || (p->fail == 2 && p->calls % 2 == 0))
        return bl_error_set(err, 0, "broken sink");
    return 0;
}

static int32_t probe_finish(void *self, struct bl_error *err)
{
    (void)err;
    ((struct probe *)self)->finishes++;
    return 0;
}

static struct bl_plugin_instance make_sink(struct probe *p)
{
    static char name[] = "probe";
    struct bl_plugin_instance i = {.self = p, .name = name};

    i.ops.sink.write = probe_write;
    i.ops.sink.finish = probe_finish;
    return i;
}

static struct bl_metrics *make(struct bl_plugin_instance *const *sinks, size_t count)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_metrics *m = NULL;

    assert_int_equal(bl_metrics_make(sinks, count, &m, &err), 0);
    return m;
}

static void test_rows(void **state)
{
    struct probe p = {0}, q = {0};
    struct bl_plugin_instance a = make_sink(&p), b = make_sink(&q);
    struct bl_plugin_instance *const sinks[2] = {&a, &b};
    struct bl_metrics *m = make(sinks, 2);
    char name[8] = "b";

    (void)state;
    bl_metrics_set(m, name, 1.0);
    name[0] = 'a'; /* the name was copied */
    bl_metrics_set(m, name, 2.0);
    bl_metrics_set(m, "b", 4.0); /* replaced, in its place */
    bl_metrics_emit(m, 9, 3);
    assert_string_equal(p.names, "b a ");
    assert_true(p.sum == 6.0);
    assert_int_equal(p.step, 9);
    assert_int_equal(p.attempt, 3);
    assert_true(p.time > 1.5e9);
    assert_string_equal(q.names, "b a ");
    bl_metrics_set(m, "a", NAN); /* a new row: only what was set since, in its own order */
    bl_metrics_set(m, "c", 1.0);
    bl_metrics_emit(m, 10, 3);
    assert_string_equal(p.names, "a c ");
    assert_true(isnan(p.sum));
    bl_metrics_emit(m, 11, 3);
    assert_int_equal(p.count, 0);
    bl_metrics_finish(m);
    assert_int_equal(p.finishes, 1);
    assert_int_equal(q.finishes, 1);
    assert_int_equal(bl_metrics_failures(m), 0);
    bl_metrics_free(m);
    bl_metrics_free(NULL);
}

/* What alarms look at: the row as it stands; an id means the same name in every row. */
static void test_row(void **state)
{
    struct bl_metrics *m = make(NULL, 0);
    struct bl_metrics_row row;
    uint32_t a, b;

    (void)state;
    bl_metrics_set(m, "a", 1.0);
    bl_metrics_set(m, "b", 2.0);
    bl_metrics_row(m, &row);
    assert_int_equal(row.count, 2);
    assert_string_equal(row.names[1], "b");
    assert_true(row.values[1] == 2.0);
    a = row.ids[0];
    b = row.ids[1];
    assert_true(a != b && a < 2 && b < 2);
    bl_metrics_emit(m, 1, 1);
    bl_metrics_row(m, &row);
    assert_int_equal(row.count, 0);
    for (int i = 0; i < 1000; i++) { /* the table grows in the middle of the row */
        char name[16];
        snprintf(name, sizeof(name), "n%d", i);
        bl_metrics_set(m, name, 0.0);
    }
    bl_metrics_set(m, "b", 3.0);
    bl_metrics_set(m, "a", 4.0);
    bl_metrics_row(m, &row);
    assert_int_equal(row.count, 1002);
    assert_int_equal(row.ids[1000], b);
    assert_int_equal(row.ids[1001], a);
    assert_int_equal(row.ids[999], 1001);
    bl_metrics_free(m);
}

static void test_many_names(void **state)
{
    enum { N = 5000 };
    struct probe p = {0};
    struct bl_plugin_instance a = make_sink(&p);
    struct bl_plugin_instance *const sinks[1] = {&a};
    struct bl_metrics *m = make(sinks, 1);

    (void)state;
    for (int row = 0; row < 3; row++) {
        for (int i = 0; i < N; i++) {
            char name[32];
            snprintf(name, sizeof(name), "grad/layers.%d.weight/norm", i);
            bl_metrics_set(m, name, (double)i);
        }
        bl_metrics_set(m, "grad/layers.7.weight/norm", 8.0); /* 7 before */
        bl_metrics_emit(m, 1, 1);
        assert_int_equal(p.count, N);
        assert_true(p.sum == (double)N * (N - 1) / 2 + 1.0);
    }
    bl_metrics_free(m);
}

/* A sink that always fails is tried less and less often; the other one gets all rows. */
static void test_failing_sink(void **state)
{
    struct probe p = {.fail = 1}, q = {0};
    struct bl_plugin_instance a = make_sink(&p), b = make_sink(&q);
    struct bl_plugin_instance *const sinks[2] = {&a, &b};
    struct bl_metrics *m = make(sinks, 2);

    (void)state;
    bl_log_level(-1);
    for (uint64_t s = 1; s <= 50; s++) {
        bl_metrics_set(m, "x", 1.0);
        bl_metrics_emit(m, s, 1);
    }
    assert_int_equal(p.calls, 12); /* 1 to 10, 21, 42 */
    assert_int_equal(p.step, 42);
    for (uint64_t s = 51; s <= 10000; s++)
        bl_metrics_emit(m, s, 1);
    assert_true(p.calls > 12 + 6 && p.step > 10000 - 1025); /* a pause has an end */
    assert_int_equal(bl_metrics_failures(m), 10000);        /* lost rows, not calls */
    bl_metrics_finish(m);
    bl_log_level(BL_LOG_INFO);
    assert_int_equal(p.finishes, 1); /* what it has may still be made durable */
    assert_int_equal(q.calls, 10000);
    bl_metrics_free(m);
}

/* A disk that was full for a while costs the rows of that time and of one pause. */
static void test_sink_comes_back(void **state)
{
    struct probe p = {.fail = 1};
    struct bl_plugin_instance a = make_sink(&p);
    struct bl_plugin_instance *const sinks[1] = {&a};
    struct bl_metrics *m = make(sinks, 1);

    (void)state;
    bl_log_level(-1);
    for (uint64_t s = 1; s <= 40; s++) {
        p.fail = s <= 15;
        bl_metrics_emit(m, s, 1);
    }
    bl_log_level(BL_LOG_INFO);
    assert_int_equal(p.calls, 10 + 20); /* from 21 on every one */
    assert_int_equal(bl_metrics_failures(m), 20);
    bl_metrics_free(m);
}

/* Failures that are not in a row are counted, and the sink stays in use. */
static void test_flaky_sink(void **state)
{
    struct probe p = {.fail = 2};
    struct bl_plugin_instance a = make_sink(&p);
    struct bl_plugin_instance *const sinks[1] = {&a};
    struct bl_metrics *m = make(sinks, 1);

    (void)state;
    bl_log_level(-1);
    for (uint64_t s = 1; s <= 60; s++)
        bl_metrics_emit(m, s, 1);
    bl_log_level(BL_LOG_INFO);
    assert_int_equal(p.calls, 60);
    assert_int_equal(bl_metrics_failures(m), 30);
    bl_metrics_free(m);
}

static void test_no_sinks(void **state)
{
    struct bl_metrics *m = make(NULL, 0);

    (void)state;
    bl_metrics_set(m, "x", 1.0);
    bl_metrics_emit(m, 1, 1);
    bl_metrics_finish(m);
    bl_metrics_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_row),
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_many_names),
        cmocka_unit_test(test_failing_sink),
        cmocka_unit_test(test_sink_comes_back),
        cmocka_unit_test(test_flaky_sink),
        cmocka_unit_test(test_no_sinks),
    };
    return cmocka_run_group_tests_name("metrics", tests, NULL, NULL);
}
