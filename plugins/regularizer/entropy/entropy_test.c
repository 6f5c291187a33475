#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "entropy", "");
}

/* One row of three logits, worked by hand: value and derivatives. */
static void check_row(const struct bl_bench *b, const double z[3], double value, const double d[3])
{
    struct bl_bench_rows r;
    double dz[3];
    bl_bench_rows_make(&r, 1, 3);
    memcpy(r.z, z, 3 * sizeof(double));
    r.target[0] = 1;
    bl_bench_rows_stats(&r);
    bl_bench_rows_call(b, &r);
    bl_bench_rows_dz(&r, 0, dz);
    /* A handful of fp64 operations on numbers of order 1 to 10. */
    assert_true(fabs(r.value[0] - value) < 1e-14);
    for (int v = 0; v < 3; v++)
        assert_true(fabs(dz[v] - d[v]) < 1e-14);
    bl_bench_rows_free(&r);
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "");
    /* all equal: log 3, and a maximum */
    check_row(&b, (const double[]){2, 2, 2}, log(3), (const double[]){0, 0, 0});
    /* p = 1/2, 1/4, 1/4: H = 1.5 log 2; -p (log p + H) = -(1/2)(log 2 / 2), (1/4)(log 2 / 2) twice
     */
    const double l = log(2);
    check_row(&b, (const double[]){l, 0, 0}, 1.5 * l, (const double[]){-l / 4, l / 8, l / 8});
    bl_bench_stop(&b);
}

/* A certain prediction has no entropy left; all are between 0 and log V. */
static void test_bounds(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "");
    double certain = bl_bench_row_value(&b, 3, (const double[]){60, 0, 0}, 0);
    assert_true(certain >= 0 && certain < 1e-20);
    assert_true(bl_bench_row_value(&b, 1, (const double[]){5}, 0) == 0);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "");
    bl_bench_check_rows(&b);
    bl_bench_check_shift(&b, 0);
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == -1e-3);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "coefficient = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == -0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "entropy", "coefficient = 0.0;");
    assert_true(b.instance->null);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),      cmocka_unit_test(test_hand),
        cmocka_unit_test(test_bounds),      cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_coefficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
