#include "../matrix_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "stable_adamw", "");
}

/* At the first step v_hat = x^2, so that RMS is 1 and it is adamw. Then, with a gradient ten times
 * as large in every element: v_hat = x^2 (beta2 (1 - beta2) / 100 + (1 - beta2)) / (1 - beta2^2).
 */
static void test_by_hand(void **state)
{
    (void)state;
    static struct arrays a, twin;
    float *s[2], *s2[2];
    struct bl_bench b, w;
    bl_bench_start(&b);
    bl_bench_start(&w);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "stable_adamw", "betas = [ 0.9, 0.75 ]; eps = 1e-20;");
    bl_bench_open(&w, BL_KIND_OPTIMIZER, "adamw", "betas = [ 0.9, 0.75 ]; eps = 1e-20;");
    fill(&a, 1);
    fill(&twin, 1);
    struct bl_update u = update(&a, s, "x"), t = update(&twin, s2, "x");
    step(&b, &u);
    w.ops->optimizer.apply(w.self, &t, 0, N);
    assert_true(fabs(u.surveyed - 1) < 1e-6); /* v is stored with 2^-24 */
    for (int i = 0; i < N; i++)
        a.g[i] *= 10;
    u.step = 2;
    step(&b, &u);
    double v = (0.75 * 0.25 / 100 + 0.25) / (1 - 0.5625), rms = sqrt(1 / v);
    assert_true(fabs(u.surveyed - rms) < 1e-6);
    /* The step is adamw's with lr / RMS, decay included. */
    for (int i = 0; i < N; i++)
        twin.g[i] *= 10;
    t.step = 2;
    t.learning_rate /= u.surveyed;
    static struct arrays first;
    first = twin;
    w.ops->optimizer.apply(w.self, &t, 0, N);
    for (int i = 0; i < N; i++) /* after one step of lr / RMS(1), which is 1 to 1e-6 */
        assert_true(fabsf(a.w[i] - twin.w[i]) <= 1e-6f * (fabsf(first.w[i]) + 1e-2f));
    bl_bench_stop(&w);
    bl_bench_stop(&b);
}

/* Below RMS = 1 it is adamw, bit for bit; the order of blocks does not matter. */
static void test_below_one(void **state)
{
    (void)state;
    static struct arrays a, twin;
    float *s[2], *s2[2];
    struct bl_bench b, w;
    bl_bench_start(&b);
    bl_bench_start(&w);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "stable_adamw", "");
    bl_bench_open(&w, BL_KIND_OPTIMIZER, "adamw", "");
    fill(&a, 1);
    for (int i = 0; i < N; i++) {
        a.v[i] = 4 * a.g[i] * a.g[i];
        a.m[i] = a.g[i];
    }
    twin = a;
    struct bl_update u = update(&a, s, "x"), t = update(&twin, s2, "x");
    u.step = t.step = 1000;
    b.reversed = 1;
    step(&b, &u);
    w.ops->optimizer.apply(w.self, &t, 0, N);
    assert_true(u.surveyed > 0.4 && u.surveyed < 0.6);
    assert_memory_equal(&a, &twin, sizeof a);
    a.g[3] = NAN;
    step(&b, &u);
    assert_true(isnan(u.surveyed) && isnan(a.w[3])); /* and is seen in all of the tensor */
    bl_bench_stop(&w);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_below_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
