#include "tests/lib/plugin_test.h"

#include <math.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "z_loss", "");
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
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "");
    /* lse = log 2, value = log^2 2, each derivative 2 log 2 * 1/2. */
    check_pair(&b, 0, 0, 0, log(2) * log(2), log(2), log(2));
    /* lse = log(e^log 3 + e^0) = log 4, p = 3/4, 1/4. */
    check_pair(&b, log(3), 0, 1, log(4) * log(4), 1.5 * log(4), 0.5 * log(4));
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "");
    bl_bench_check_rows(&b);
    bl_bench_stop(&b);
}

static void test_shift(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "");
    bl_bench_check_shift(&b, 1);
    bl_bench_stop(&b);
}

static void test_grows_with_offset(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "");
    double last = 0;
    for (double offset = 1; offset <= 1e8; offset *= 10) {
        double z[3] = {offset, offset + 1, offset - 1};
        double value = bl_bench_row_value(&b, 3, z, 0);
        /* lse is offset + 1.4076, so the value is above offset^2. */
        assert_true(value > last && value > offset * offset);
        last = value;
    }
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 1e-4);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "coefficient = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 0.25);
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == 0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "z_loss", "coefficient = 0.0;");
    assert_true(b.instance->null);
    assert_true(bl_bench_row_value(&b, 2, (const double[]){3, 1}, 0) != 0);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "z_loss", "coefficient = -1;", BL_EXIT_USAGE,
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
        cmocka_unit_test(test_grows_with_offset),
        cmocka_unit_test(test_coefficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
