#include "tests/lib/plugin_test.h"

#include <math.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "mean_logit", "");
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
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "");
    /* Opposite logits have no mean, whatever their size. */
    check_pair(&b, 5, -5, 0, 0, 0, 0);
    /* mean 1, value 1, each derivative 2 * 1 / 2. */
    check_pair(&b, 3, -1, 1, 1, 1, 1);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "");
    bl_bench_check_rows(&b);
    bl_bench_stop(&b);
}

static void test_shift(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "");
    bl_bench_check_shift(&b, 1);
    bl_bench_stop(&b);
}

static void test_acts_on_the_offset_alone(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "");
    struct bl_bench_rows r;
    double dz[100];
    bl_bench_rows_make(&r, 4, 100);
    bl_bench_rows_fill(&r, 7, 3, 2);
    bl_bench_rows_call(&b, &r);
    for (uint64_t i = 0; i < r.rows; i++) {
        bl_bench_rows_dz(&r, i, dz);
        for (int v = 0; v < 100; v++)
            assert_true(dz[v] == dz[0] && dz[v] > 0);
    }
    bl_bench_rows_free(&r);
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 1e-4);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "coefficient = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 0.25);
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == 0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mean_logit", "coefficient = 0.0;");
    assert_true(b.instance->null);
    assert_true(bl_bench_row_value(&b, 2, (const double[]){3, 1}, 0) != 0);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "mean_logit", "coefficient = -1;", BL_EXIT_USAGE,
                     "coefficient");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_shift),
        cmocka_unit_test(test_acts_on_the_offset_alone),
        cmocka_unit_test(test_coefficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
