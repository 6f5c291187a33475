#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "max_z", "");
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
    bl_bench_open(&b, BL_KIND_REGULARIZER, "max_z", "");
    check_row(&b, (const double[]){1, 3, -5}, 9, (const double[]){0, 6, 0});
    check_row(&b, (const double[]){-2, -4, -5}, 4, (const double[]){-4, 0, 0});
    /* of equal ones the first */
    check_row(&b, (const double[]){-1, 2, 2}, 4, (const double[]){0, 4, 0});
    check_row(&b, (const double[]){7, 7, 7}, 49, (const double[]){14, 0, 0});
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "max_z", "");
    bl_bench_check_rows(&b);
    bl_bench_check_shift(&b, 1);
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "max_z", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 2e-4);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "max_z", "coefficient = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == 0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "max_z", "coefficient = 0.0;");
    assert_true(b.instance->null);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "max_z", "coefficient = -1;", BL_EXIT_USAGE,
                     "coefficient");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_coefficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
