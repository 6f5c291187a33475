#include "tests/lib/plugin_test.h"

#include <math.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "label_smoothing", "");
}

/* One row of two logits, worked by hand: value and derivative. */
static void check_pair(const struct bl_bench *b, double z0, double z1, int32_t target, double value,
                       double dz0, double dz1)
{
    struct bl_bench_rows r;
    double dz[2];
    bl_bench_rows_make(&r, 1, 2);
    r.z[0] = z0;
    r.z[1] = z1;
    r.target[0] = target;
    bl_bench_rows_stats(&r);
    bl_bench_rows_call(b, &r);
    bl_bench_rows_dz(&r, 0, dz);
    /* A handful of fp64 operations on numbers of order 1 to 10. */
    assert_true(fabs(r.value[0] - value) < 1e-14);
    assert_true(fabs(dz[0] - dz0) < 1e-14 && fabs(dz[1] - dz1) < 1e-14);
    bl_bench_rows_free(&r);
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "");
    check_pair(&b, 0, 0, 0, 0, 0.5, -0.5);
    /* z_y - mean = 2 - 1; with the other target 0 - 1. */
    check_pair(&b, 2, 0, 0, 1, 0.5, -0.5);
    check_pair(&b, 2, 0, 1, -1, -0.5, 0.5);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "");
    bl_bench_check_rows(&b);
    bl_bench_stop(&b);
}

static void test_shift(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "");
    bl_bench_check_shift(&b, 0);
    bl_bench_stop(&b);
}

static void test_is_cross_entropy_of_smoothed_targets(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = 0.3;");
    enum { V = 50 };
    struct bl_bench_rows r;
    double dz[V], alpha = b.ops->regularizer.coefficient(b.self, 1);
    bl_bench_rows_make(&r, 8, V);
    bl_bench_rows_fill(&r, 11, 2, 3);
    bl_bench_rows_call(&b, &r);
    for (uint64_t i = 0; i < r.rows; i++) {
        if (!r.valid[i])
            continue;
        double expected = 0, sum = 0;
        for (int v = 0; v < V; v++) {
            double q = alpha / V + (v == r.target[i] ? 1 - alpha : 0);
            expected -= q * (r.z[i * V + (uint64_t)v] - r.lse[i]);
        }
        double total = r.lse[i] - r.target_logit[i] + alpha * r.value[i];
        /* Sums of 50 terms of order 10. */
        assert_true(fabs(total - expected) < 1e-12);
        bl_bench_rows_dz(&r, i, dz);
        for (int v = 0; v < V; v++)
            sum += dz[v];
        assert_true(fabs(sum) < 1e-14);
    }
    bl_bench_rows_free(&r);
    bl_bench_stop(&b);
}

static void test_optimum_is_finite(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = 0.1;");
    /* z_y - z_k = log((1 - a + a/V) / (a/V)) for every other k: the derivative of the whole loss,
     * p - onehot + alpha dz, is zero there. */
    enum { V = 4 };
    struct bl_bench_rows r;
    double dz[V], alpha = 0.1;
    bl_bench_rows_make(&r, 1, V);
    r.z[2] = log((1 - alpha + alpha / V) / (alpha / V));
    r.target[0] = 2;
    bl_bench_rows_stats(&r);
    bl_bench_rows_call(&b, &r);
    bl_bench_rows_dz(&r, 0, dz);
    for (int v = 0; v < V; v++)
        assert_true(fabs(exp(r.z[v] - r.lse[0]) - (v == 2) + alpha * dz[v]) < 1e-15);
    bl_bench_rows_free(&r);
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 0.1);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 0.25);
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == 0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = 0.0;");
    assert_true(b.instance->null);
    assert_true(bl_bench_row_value(&b, 2, (const double[]){3, 1}, 0) != 0);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = -1;", BL_EXIT_USAGE,
                     "alpha");
    bl_bench_stop(&b);
}

static void test_refuses_all_uniform(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "label_smoothing", "alpha = 1.0;", BL_EXIT_USAGE,
                     "alpha");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_is_cross_entropy_of_smoothed_targets),
        cmocka_unit_test(test_optimum_is_finite),
        cmocka_unit_test(test_coefficient),
        cmocka_unit_test(test_refuses_all_uniform),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
