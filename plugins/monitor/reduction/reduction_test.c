#include "tests/lib/plugin_test.h"

#include <math.h>

static void look(struct bl_bench *b)
{
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.observe(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

/* error and bias of a reduction by the formulas of bl_reduction. */
static struct bl_reduction reduced(const double *g, const double *out, int n, double lost)
{
    double difference = 0, product = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        difference += (out[i] - g[i]) * (out[i] - g[i]);
        product += (out[i] - g[i]) * g[i];
        squares += g[i] * g[i];
    }
    return (struct bl_reduction){.size = sizeof(struct bl_reduction),
                                 .error = sqrt(difference / squares),
                                 .bias = product / squares,
                                 .lost_share = lost};
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "reduction", "");
}

/* Two matrix elements and two of the head. By hand, ||g||^2 = 9 + 16, out - g = (0.3, -0.4):
 * error 0.5 / 5, bias (0.9 - 1.6) / 25. Head: g = (6, 8), out - g = (-3, -4): error and bias one
 * half. Together: differences 0.25 + 25 of 25 + 100, products -0.7 - 50. */
static void test_by_hand(void **state)
{
    (void)state;
    const double g[4] = {3, 4, 6, 8}, out[4] = {3.3, 3.6, 3, 4};
    struct bl_bench b;
    bl_bench_start(&b);
    b.reductions[BL_GROUP_MATRIX] = reduced(g, out, 2, 0.0);
    b.reductions[BL_GROUP_HEAD] = reduced(g + 2, out + 2, 2, 0.25);
    b.reductions[BL_GROUP_COUNT] = reduced(g, out, 4, 0.125);
    bl_bench_open(&b, BL_KIND_MONITOR, "reduction", "");
    assert_int_equal(b.ops->monitor.needs(b.self), BL_MONITOR_REDUCTION);
    look(&b);
    assert_float_equal(bl_bench_metric(&b, "reduce/matrix/error"), 0.1, 1e-15);
    assert_float_equal(bl_bench_metric(&b, "reduce/matrix/bias"), -0.028, 1e-15);
    assert_true(bl_bench_metric(&b, "reduce/matrix/lost_share") == 0.0);
    assert_float_equal(bl_bench_metric(&b, "reduce/head/error"), 0.5, 1e-15);
    assert_float_equal(bl_bench_metric(&b, "reduce/head/bias"), -0.5, 1e-15);
    assert_true(bl_bench_metric(&b, "reduce/head/lost_share") == 0.25);
    assert_float_equal(bl_bench_metric(&b, "reduce/error"), sqrt(25.25 / 125), 1e-15);
    assert_float_equal(bl_bench_metric(&b, "reduce/bias"), -50.7 / 125, 1e-15);
    assert_true(bl_bench_metric(&b, "reduce/lost_share") == 0.125);
    assert_int_equal(b.metric_count, 9); /* no embedding, no norm: nothing is said of them */
    bl_bench_stop(&b);
}

/* Several processes count no lost addends; a step without a measured sum has no row at all; an
 * overflow is a number, what is unknown is none. */
static void test_unknown(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "reduction", "");
    look(&b);
    assert_int_equal(b.metric_count, 0);
    b.reductions[BL_GROUP_COUNT] = (struct bl_reduction){
        .size = sizeof(struct bl_reduction), .error = INFINITY, .bias = 0.5, .lost_share = NAN};
    b.reductions[BL_GROUP_NORM] = (struct bl_reduction){
        .size = sizeof(struct bl_reduction), .error = NAN, .bias = NAN, .lost_share = NAN};
    look(&b);
    assert_int_equal(b.metric_count, 2);
    assert_true(bl_bench_metric(&b, "reduce/error") == INFINITY);
    assert_true(bl_bench_metric(&b, "reduce/bias") == 0.5);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_unknown)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
