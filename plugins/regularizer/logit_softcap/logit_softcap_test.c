#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "logit_softcap", "");
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_softcap", "cap = 2;");
    const float x[5] = {0, 2, -2, 1000, -1000};
    float y[5], dy[5];
    b.ops->regularizer.element(b.self, 5, x, y, dy);
    /* tanh 1 = 0.761594..., 1 - tanh^2 1 = 0.419974...; a few roundings of 2^-24 */
    const float e = 3e-7f;
    assert_true(y[0] == 0 && dy[0] == 1);
    assert_true(fabsf(y[1] - 1.5231883f) < e && fabsf(y[2] + 1.5231883f) < e);
    assert_true(fabsf(dy[1] - 0.4199743f) < e && fabsf(dy[2] - 0.4199743f) < e);
    assert_true(y[3] == 2 && y[4] == -2 && dy[3] == 0 && dy[4] == 0);
    float z[5];
    memcpy(z, x, sizeof z);
    b.ops->regularizer.element(b.self, 5, z, z, NULL); /* in place, without the derivative */
    assert_memory_equal(z, y, sizeof y);
    b.ops->regularizer.element(b.self, 5, x, NULL, z);
    assert_memory_equal(z, dy, sizeof dy);
    bl_bench_stop(&b);
}

static void test_not_a_number(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_softcap", "");
    const float x[3] = {NAN, INFINITY, -INFINITY};
    float y[3];
    b.ops->regularizer.element(b.self, 3, x, y, NULL);
    assert_true(isnan(y[0]) && y[1] == 30 && y[2] == -30);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_softcap", "");
    bl_bench_check_transform(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_softcap", "cap = 3.0;");
    bl_bench_check_transform(&b);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "logit_softcap", "cap = 0.0;", BL_EXIT_USAGE, "cap");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_not_a_number),
        cmocka_unit_test(test_derivatives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
