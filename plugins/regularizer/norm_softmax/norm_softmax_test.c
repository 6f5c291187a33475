#include "tests/lib/plugin_test.h"

#include <math.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "norm_softmax", "");
}

struct scale {
    double scale, d_mean, d_m2;
};

static struct scale scale_of(const struct bl_bench *b, uint64_t vocab, const double *z)
{
    struct bl_bench_rows r;
    struct scale s = {NAN, NAN, NAN};
    struct bl_row_scale out = {
        .size = sizeof out, .scale = &s.scale, .d_mean = &s.d_mean, .d_m2 = &s.d_m2};
    bl_bench_rows_make(&r, 1, vocab);
    for (uint64_t v = 0; v < vocab; v++)
        r.z[v] = z[v];
    bl_bench_rows_stats(&r);
    b->ops->regularizer.row_scale(b->self, &r.stats, &out, 0, 1);
    bl_bench_rows_free(&r);
    return s;
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", "");
    /* mean 1, m2 8, std 2: scale 1/2, derivative -(1/2) / (2 * 8). */
    struct scale s = scale_of(&b, 2, (const double[]){3, -1});
    assert_true(fabs(s.scale - 0.5) < 1e-15 && fabs(s.d_m2 + 1.0 / 32) < 1e-15 && s.d_mean == 0);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", "temperature = 3;");
    s = scale_of(&b, 2, (const double[]){3, -1});
    assert_true(fabs(s.scale - 1.5) < 1e-15 && fabs(s.d_m2 + 3.0 / 32) < 1e-15);
    bl_bench_stop(&b);
}

static void test_limits(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", "tau = 1.0;");
    struct scale s = scale_of(&b, 2, (const double[]){3, -1}); /* std 2 is above tau */
    assert_true(s.scale == 1 && s.d_m2 == 0);
    s = scale_of(&b, 2, (const double[]){0.5, -0.5}); /* std 1/2 is below */
    assert_true(fabs(s.scale - 2) < 1e-15 && s.d_m2 < 0);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", "epsilon = 0.25;");
    s = scale_of(&b, 3, (const double[]){7, 7, 7});
    assert_true(s.scale == 4 && s.d_m2 == 0);
    bl_bench_stop(&b);
}

static void test_size_does_not_matter(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", "");
    const double small[] = {1, 2, -1, 0.5}, large[] = {1000, 2000, -1000, 500};
    /* 4 operations of fp64 and a square root. */
    assert_true(fabs(scale_of(&b, 4, small).scale - 1000 * scale_of(&b, 4, large).scale) < 1e-14);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    const char *const settings[] = {"", "temperature = 2.5;", "tau = 2;", "tau = 0.5;",
                                    "epsilon = 0.1;"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        bl_bench_open(&b, BL_KIND_REGULARIZER, "norm_softmax", settings[i]);
        bl_bench_check_transform(&b);
    }
    bl_bench_stop(&b);
}

static void test_refuses(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "norm_softmax", "tau = 1e-7;", BL_EXIT_USAGE, "tau");
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "norm_softmax", "temperature = 0.0;", BL_EXIT_USAGE,
                     "temperature");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),      cmocka_unit_test(test_hand),
        cmocka_unit_test(test_limits),      cmocka_unit_test(test_size_does_not_matter),
        cmocka_unit_test(test_derivatives), cmocka_unit_test(test_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
