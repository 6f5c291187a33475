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
    bl_bench_common(BL_KIND_GUARD, "clip_value", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    float a[6] = {0.5f, -0.5f, 2, -3, NAN, -INFINITY}, c[2] = {0.25f, 7};
    const float a2[6] = {0.5f, -0.5f, 0.5f, -0.5f, NAN, -INFINITY}, c2[2] = {0.25f, 0.5f};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, 3, 2, BL_GRADIENT, a);
    bl_bench_tensor(&b, "c", BL_GROUP_NORM, 2, 0, BL_GRADIENT, c);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_value", "max = 0.5;");
    assert_int_equal(clip(&b), 1);
    assert_memory_equal(a, a2, sizeof a);
    assert_memory_equal(c, c2, sizeof c);
    assert_true(bl_bench_metric(&b, "guard/clip_value/share") == 3.0 / 8);
    assert_int_equal(clip(&b), 0); /* nothing is left to cut: the norm stands */
    bl_bench_refuses(&b, BL_KIND_GUARD, "clip_value", "max = 1e-300;", BL_EXIT_USAGE, "max");
    bl_bench_stop(&b);
}

/* More elements than one call of the threads takes, in any order of the blocks. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 1024 * 4096 + 5000 };
    static float g[N];
    struct bl_bench b;
    bl_bench_start(&b);
    b.reversed = 1;
    for (uint64_t i = 0; i < N; i++)
        g[i] = i % 1000 == 999 ? -2 : 0.5f;
    bl_bench_tensor(&b, "a", BL_GROUP_MATRIX, N, 1, BL_GRADIENT, g);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_value", "");
    assert_int_equal(clip(&b), 1);
    for (uint64_t i = 0; i < N; i++)
        assert_true(g[i] == (i % 1000 == 999 ? -1 : 0.5f));
    assert_true(bl_bench_metric(&b, "guard/clip_value/share") == (double)(N / 1000) / N);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
