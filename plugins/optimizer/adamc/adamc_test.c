#include "../matrix_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "adamc", "");
}

/* Without a gradient the decay alone: lr wd = 1e-3, times lr / peak = 1/4 for a hidden matrix. */
static void test_decay(void **state)
{
    (void)state;
    static const struct {
        uint32_t group, ndim;
        double wanted;
    } cases[] = {{BL_GROUP_MATRIX, 2, 1 - 2.5e-4},
                 {BL_GROUP_MATRIX, 1, 1 - 1e-3},
                 {BL_GROUP_EMBEDDING, 2, 1 - 1e-3},
                 {BL_GROUP_NORM, 1, 1 - 1e-3},
                 {BL_GROUP_HEAD, 2, 1 - 1e-3}};
    static struct arrays a;
    float *s[2];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamc", "");
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bl_update u = update(&a, s, "x");
        u.group = cases[i].group;
        u.ndim = cases[i].ndim;
        a.w[0] = 1;
        b.ops->optimizer.apply(b.self, &u, 0, 1);
        assert_true(fabs((double)a.w[0] - cases[i].wanted) < 6e-8);
        u.learning_rate = u.peak_learning_rate = 0;
        a.w[0] = 1;
        b.ops->optimizer.apply(b.self, &u, 0, 1);
        assert_true(a.w[0] == 1);
    }
    bl_bench_stop(&b);
}

/* At the peak it is adamw, bit for bit; prepare promises what apply does. */
static void test_at_the_peak(void **state)
{
    (void)state;
    static struct arrays a, twin, old;
    float *s[2], *s2[2];
    struct bl_bench b, w;
    bl_bench_start(&b);
    bl_bench_start(&w);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamc", "");
    bl_bench_open(&w, BL_KIND_OPTIMIZER, "adamw", "");
    fill(&a, 1);
    fill(&twin, 1);
    struct bl_update u = update(&a, s, "x"), t = update(&twin, s2, "x");
    u.peak_learning_rate = u.learning_rate;
    for (u.step = t.step = 1; u.step < 4; u.step++, t.step++) {
        b.ops->optimizer.apply(b.self, &u, 0, N);
        w.ops->optimizer.apply(w.self, &t, 0, N);
    }
    assert_memory_equal(&a, &twin, sizeof a);
    old = a;
    u.peak_learning_rate = 1;
    double promised = b.ops->optimizer.prepare(b.self, &u, 0, N), done = 0;
    assert_memory_equal(&a, &old, sizeof a);
    b.ops->optimizer.apply(b.self, &u, 0, N);
    for (int i = 0; i < N; i++) {
        double d = (double)a.w[i] - (double)old.w[i];
        done += d * d;
    }
    assert_true(promised == done && done > 0);
    bl_bench_stop(&w);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_decay),
        cmocka_unit_test(test_at_the_peak),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
