#include "tests/lib/plugin_test.h"

#include <math.h>

static struct bl_verdict judge(const struct bl_bench *b, double norm)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = 1, .norm = norm};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    struct bl_error err = BL_ERROR_INIT;
    uint32_t changed = 0;
    assert_int_equal(b->ops->guard.gradient(b->self, b->host, &in, &out, &changed, &err), 0);
    assert_int_equal(changed, 0);
    assert_int_equal(out.skip, 0);
    return out;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "clip_norm", "");
}

static void test_scales(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_norm", "");
    assert_null(b.ops->guard.update); /* an update hook would cost the optimizer a pass */
    assert_true(judge(&b, 4.0).scale == 0.25);
    assert_true(judge(&b, 1.0).scale == 1.0);
    assert_true(judge(&b, 0.5).scale == 1.0);
    assert_true(judge(&b, 0.0).scale == 1.0);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_norm", "max = 0.2;");
    assert_true(judge(&b, 0.8).scale == 0.25);
    for (double norm = 0.21; norm < 1e30; norm *= 3.7)
        assert_true(fabs(judge(&b, norm).scale * norm - 0.2) <= 0.2 * 2.3e-16);
    bl_bench_stop(&b);
}

static void test_left_alone(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_norm", "");
    assert_true(judge(&b, INFINITY).scale == 1.0);
    assert_true(judge(&b, NAN).scale == 1.0);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_norm", "max = 0;");
    assert_true(b.instance->null);
    assert_true(judge(&b, 1e6).scale == 1.0);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_scales),
                                       cmocka_unit_test(test_left_alone)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
