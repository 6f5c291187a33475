#include "tests/lib/plugin_test.h"

#include <math.h>

static void look(struct bl_bench *b)
{
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.observe(b->self, b->host, &in, &err) != 0 ||
        b->ops->monitor.after(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

static void is(const struct bl_bench *b, const char *name, double wanted)
{
    double got = bl_bench_metric(b, name);
    if (!(fabs(got - wanted) <= 1e-15 * fabs(wanted)))
        fail_msg("%s: got %.17g, wanted %.17g", name, got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "norms", "");
}

static float w1[4] = {3, 4, 0, 0}, g1[4] = {1, 0, 1, 0}, w2[2] = {12, 0}, g2[2] = {0, 2};

static void add(struct bl_bench *b)
{
    bl_bench_tensor(b, "a.weight", BL_GROUP_MATRIX, 2, 2, BL_WEIGHT, w1);
    bl_bench_tensor(b, "a.weight", BL_GROUP_MATRIX, 2, 2, BL_GRADIENT, g1)->update_squares = 0.25;
    bl_bench_tensor(b, "b.bias", BL_GROUP_NORM, 2, 0, BL_WEIGHT, w2);
    bl_bench_tensor(b, "b.bias", BL_GROUP_NORM, 2, 0, BL_GRADIENT, g2)->update_squares = 2.0;
}

static void test_totals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    add(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "norms", "");
    assert_int_equal(b.ops->monitor.needs(b.self), BL_MONITOR_UPDATES);
    look(&b);
    is(&b, "optim/param_norm", 13.0);
    is(&b, "optim/update_norm", 1.5);
    assert_int_equal(b.metric_count, 2);
    bl_bench_stop(&b);
}

static void test_per_tensor(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    add(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "norms", "per_tensor = true;");
    look(&b);
    is(&b, "optim/param_norm", 13.0);
    is(&b, "param/a.weight/norm", 5.0);
    is(&b, "param/a.weight/rms", 2.5);
    is(&b, "grad/a.weight/norm", sqrt(2.0));
    is(&b, "grad/a.weight/rms", sqrt(0.5));
    is(&b, "grad/a.weight/share", 2.0 / 6.0);
    is(&b, "grad/a.weight/dot_param", 3.0);
    is(&b, "grad/a.weight/cos_param", 3.0 / (5.0 * sqrt(2.0)));
    is(&b, "update/a.weight/norm", 0.5);
    is(&b, "update/a.weight/ratio", 0.1);
    is(&b, "param/b.bias/norm", 12.0);
    is(&b, "grad/b.bias/share", 4.0 / 6.0);
    is(&b, "grad/b.bias/cos_param", 0.0);
    is(&b, "update/b.bias/ratio", sqrt(2.0) / 12.0);
    assert_int_equal(b.metric_count, 2 + 2 * 9);

    /* No gradient, no weights: no quotients of zero. */
    float zero[4] = {0};
    bl_bench_tensor(&b, "a.weight", BL_GROUP_MATRIX, 2, 2, BL_WEIGHT, zero);
    bl_bench_tensor(&b, "b.bias", BL_GROUP_NORM, 2, 0, BL_GRADIENT, zero);
    look(&b);
    assert_false(bl_bench_has(&b, "update/a.weight/ratio"));
    assert_false(bl_bench_has(&b, "grad/a.weight/cos_param"));
    assert_false(bl_bench_has(&b, "grad/b.bias/cos_param"));
    is(&b, "grad/a.weight/share", 1.0);
    bl_bench_tensor(&b, "a.weight", BL_GROUP_MATRIX, 2, 2, BL_GRADIENT, zero);
    look(&b);
    assert_false(bl_bench_has(&b, "grad/a.weight/share"));
    bl_bench_stop(&b);
}

/* update/<t>/ratio is against the weights before the update. */
static void test_weights_change(void **state)
{
    (void)state;
    float w[1] = {2};
    struct bl_bench b;
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "t", BL_GROUP_MATRIX, 1, 0, BL_WEIGHT, w)->update_squares = 1.0;
    bl_bench_open(&b, BL_KIND_MONITOR, "norms", "per_tensor = true;");
    assert_int_equal(b.ops->monitor.observe(b.self, b.host, &in, &err), 0);
    w[0] = 3;
    assert_int_equal(b.ops->monitor.after(b.self, b.host, &in, &err), 0);
    is(&b, "update/t/ratio", 0.5);
    is(&b, "optim/param_norm", 2.0);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_totals),
                                       cmocka_unit_test(test_per_tensor),
                                       cmocka_unit_test(test_weights_change)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
