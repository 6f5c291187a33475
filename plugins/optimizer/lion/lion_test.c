#include "../matrix_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "lion", "");
}

/* beta 0.5, 0.75: with m = 1, x = 0.7 -> 0.85 > 0, x = -3 -> -1 < 0, x = -1 -> 0. Decay 0.1 lr w.
 */
static void test_by_hand(void **state)
{
    (void)state;
    static struct arrays a;
    float *s[2];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "lion", "betas = [ 0.5, 0.75 ];");
    assert_int_equal(b.ops->optimizer.states(b.self), 1);
    assert_string_equal(b.ops->optimizer.state_name(b.self, 0), "moment1");
    struct bl_update u = update(&a, s, "x");
    const float x[4] = {0.35f, -1.5f, -0.5f, NAN};
    u.gradient_scale = 2;
    for (int i = 0; i < 4; i++) {
        a.g[i] = x[i];
        a.w[i] = 2;
        a.m[i] = 1;
    }
    b.ops->optimizer.apply(b.self, &u, 0, 4);
    const double decayed = 2 - 2e-3;
    assert_true(fabs((double)a.w[0] - (decayed - 1e-2)) < 3e-7);
    assert_true(fabs((double)a.w[1] - (decayed + 1e-2)) < 3e-7);
    assert_true(fabs((double)a.w[2] - decayed) < 3e-7);
    assert_true(isnan(a.w[3]) && isnan(a.m[3]));
    assert_true(a.m[1] == 0.75f - 0.75f && fabsf(a.m[0] - 0.925f) < 1e-7f);
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "lion", "betas = [ 0.9, 1.0 ];", BL_EXIT_USAGE,
                     "betas");
    assert_int_equal(bl_bench_try(&b, BL_KIND_OPTIMIZER, "lion", "betas = [ 0.9 ];"), -1);
    bl_bench_stop(&b);
}

/* Without decay every element moves by lr, by the sign of an fp64 reference where that is clear. */
static void test_reference(void **state)
{
    (void)state;
    static struct arrays a, old;
    float *s[2];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "lion", "");
    fill(&a, 1);
    struct bl_update u = update(&a, s, "x");
    u.weight_decay = 0;
    double *m = calloc(N, sizeof(double));
    assert_non_null(m);
    for (u.step = 1; u.step <= 20; u.step++) {
        old = a;
        double promised = b.ops->optimizer.prepare(b.self, &u, 0, N), done = 0;
        assert_memory_equal(&a, &old, sizeof a);
        b.ops->optimizer.apply(b.self, &u, 0, N);
        for (int i = 0; i < N; i++) {
            double x = a.g[i], d = 0.9 * m[i] + 0.1 * x, size = 0.9 * fabs(m[i]) + 0.1 * fabs(x);
            double moved = (double)a.w[i] - (double)old.w[i];
            done += moved * moved;
            if (fabs(d) > 1e-5 * size) /* fp32 may see another sign closer to zero */
                assert_true(fabs(moved + (d > 0 ? 1e-2 : -1e-2)) < 5e-7);
            m[i] = 0.99 * m[i] + 0.01 * x;
        }
        assert_true(promised == done);
        for (uint64_t i = 0; i < N; i++)
            a.g[i] = (float)bl_bench_normal(90 + u.step, i);
    }
    free(m);
    bl_bench_stop(&b);
}

static void test_instruction_sets(void **state)
{
    (void)state;
    static struct arrays a, twin;
    float *s[2];
    struct bl_bench b;
    bl_bench_start(&b);
    for (int scalar = 0; scalar < 2; scalar++) {
        if (scalar)
            setenv("BALLAST_ISA", "scalar", 1);
        else
            unsetenv("BALLAST_ISA");
        bl_bench_open(&b, BL_KIND_OPTIMIZER, "lion", "");
        struct bl_update u = update(scalar ? &twin : &a, s, "x");
        fill(scalar ? &twin : &a, 1);
        for (u.step = 1; u.step <= 5; u.step++)
            b.ops->optimizer.apply(b.self, &u, 0, N);
    }
    unsetenv("BALLAST_ISA");
    assert_memory_equal(&a, &twin, sizeof a);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_reference),
        cmocka_unit_test(test_instruction_sets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
