#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "logit_norm", "");
}

static void scale_of(const struct bl_bench *b, uint64_t vocab, const double *z, double out[3])
{
    struct bl_bench_rows r;
    struct bl_row_scale o = {
        .size = sizeof o, .scale = &out[0], .d_mean = &out[1], .d_m2 = &out[2]};
    bl_bench_rows_make(&r, 1, vocab);
    memcpy(r.z, z, vocab * sizeof(double));
    bl_bench_rows_stats(&r);
    b->ops->regularizer.row_scale(b->self, &r.stats, &o, 0, 1);
    bl_bench_rows_free(&r);
}

static void test_hand(void **state)
{
    double s[3];
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_norm", "tau = 0.5;");
    /* |z| = 5: scale 2/5; mean 3.5, m2 0.5: d_mean = -0.4 * 2 * 3.5 / 25, d_m2 = -0.4 / 50 */
    scale_of(&b, 2, (const double[]){3, 4}, s);
    assert_true(fabs(s[0] - 0.4) < 1e-15 && fabs(s[1] + 0.112) < 1e-15 &&
                fabs(s[2] + 0.008) < 1e-15);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_norm", "tau = 0.5; epsilon = 0.25;");
    scale_of(&b, 3, (const double[]){0, 0, 0}, s);
    assert_true(s[0] == 8 && s[1] == 0 && s[2] == 0);
    scale_of(&b, 1, (const double[]){-8}, s);
    assert_true(s[0] == 0.25 && s[1] == 0.03125);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_norm", "");
    const char *const settings[] = {"", "tau = 1;", "epsilon = 0.1;"};
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        bl_bench_open(&b, BL_KIND_REGULARIZER, "logit_norm", settings[i]);
        bl_bench_check_transform(&b);
    }
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "logit_norm", "tau = 0.0;", BL_EXIT_USAGE, "tau");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_derivatives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
