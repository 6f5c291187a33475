#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static uint32_t clip(struct bl_bench *b)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = 1, .loss = 1, .norm = 1};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    uint32_t changed = 0;
    bl_bench_forget(b);
    assert_int_equal(b->ops->guard.gradient(b->self, b->host, &in, &out, &changed, &b->err), 0);
    assert_true(out.skip == 0 && out.scale == 1);
    return changed;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "agc", "");
}

/* lambda 0.5, floor 1. Row 0: |W| 5, |G| 5 -> 2.5, so halved. Row 1: |W| 0 counts as 1, |G| 5 ->
 * 0.5, a tenth. Row 2 is small enough. The vector: |W| 4, |G| 4 -> 2. The output matrix is left
 * alone. */
static void test_by_hand(void **state)
{
    (void)state;
    float w[6] = {3, 4, 0, 0, 6, 8}, g[6] = {4, -3, 3, 4, 3, 4}, v[1] = {4}, vg[1] = {-4};
    float h[2] = {1, 1}, hg[2] = {100, 100};
    const float expected[6] = {2, -1.5f, 3 * 0.1f, 4 * 0.1f, 3, 4};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, 3, 2, BL_WEIGHT, w);
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, 3, 2, BL_GRADIENT, g);
    bl_bench_tensor(&b, "v", BL_GROUP_NORM, 1, 0, BL_WEIGHT, v);
    bl_bench_tensor(&b, "v", BL_GROUP_NORM, 1, 0, BL_GRADIENT, vg);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, 1, 2, BL_WEIGHT, h);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, 1, 2, BL_GRADIENT, hg);
    bl_bench_open(&b, BL_KIND_GUARD, "agc", "lambda = 0.5; floor = 1.0;");
    assert_int_equal(clip(&b), 1);
    assert_memory_equal(g, expected, sizeof g);
    assert_true(vg[0] == -2 && hg[0] == 100);
    assert_true(bl_bench_metric(&b, "guard/agc/share") == 3.0 / 4);
    bl_bench_open(&b, BL_KIND_GUARD, "agc", "lambda = 0.5; floor = 1.0; head = true;");
    clip(&b);
    assert_true(fabsf(hg[0] - 0.5f) < 1e-7f); /* sqrt 2 / 2 in two equal parts */
    bl_bench_stop(&b);
}

static void test_not_finite(void **state)
{
    (void)state;
    float w[4] = {3, 4, 3, 4}, g[4] = {NAN, 1, 30, 40};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, 2, 2, BL_WEIGHT, w);
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, 2, 2, BL_GRADIENT, g);
    bl_bench_open(&b, BL_KIND_GUARD, "agc", "lambda = 0.1;");
    assert_int_equal(clip(&b), 1);
    assert_true(isnan(g[0]) && g[1] == 1 && fabsf(g[2] - 0.3f) < 1e-7f); /* others go on */
    assert_true(bl_bench_metric(&b, "guard/agc/share") == 0.5);
    assert_int_equal(clip(&b), 0);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_not_finite)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
