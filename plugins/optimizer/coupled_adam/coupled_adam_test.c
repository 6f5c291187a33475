#include "../matrix_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "coupled_adam", "");
}

static void mean_row(const float *w, double *mu)
{
    for (int c = 0; c < C; c++) {
        mu[c] = 0;
        for (int v = 0; v < V; v++)
            mu[c] += (double)w[v * C + c] / V;
    }
}

/* Gradients whose columns sum to zero, as those of cross-entropy: the mean row stays, under adamw
 * it does not. One rounding of 2^-24 of weights below 4 an update and element is left of it. */
static void test_keeps_the_mean_row(void **state)
{
    (void)state;
    static struct arrays a;
    float *s[2];
    double moved[2], mu[C], now[C];
    for (int coupled = 0; coupled < 2; coupled++) {
        struct bl_bench b;
        bl_bench_start(&b);
        bl_bench_open(&b, BL_KIND_OPTIMIZER, coupled ? "coupled_adam" : "adamw", "");
        fill(&a, 1);
        mean_row(a.w, mu);
        struct bl_update u = update(&a, s, b.info.head);
        u.weight_decay = 0;
        for (u.step = 1; u.step <= 50; u.step++) {
            /* rows of very different size, mostly of one sign */
            for (uint64_t i = 0; i < N; i++)
                a.g[i] = (float)((0.5 + bl_bench_normal(60 + u.step, i)) *
                                 pow(10, -(double)(i / C % 4)));
            double mean[C];
            mean_row(a.g, mean);
            for (int i = 0; i < N; i++)
                a.g[i] = (float)((double)a.g[i] - mean[i % C]);
            if (coupled)
                step(&b, &u);
            else
                b.ops->optimizer.apply(b.self, &u, 0, N);
        }
        mean_row(a.w, now);
        moved[coupled] = 0;
        for (int c = 0; c < C; c++)
            moved[coupled] += (now[c] - mu[c]) * (now[c] - mu[c]);
        moved[coupled] = sqrt(moved[coupled]);
        bl_bench_stop(&b);
    }
    assert_true(moved[1] < 50 * 0x1p-22 && moved[0] > 1e4 * moved[1]);
}

/* Two rows, one column: squares 1 and 9, mean 5. v = 0.05 * 5, corrected 5: steps of lr x / sqrt 5.
 */
static void test_by_hand(void **state)
{
    (void)state;
    static struct arrays a;
    float *s[2];
    struct bl_bench b;
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "coupled_adam", "");
    memset(&a, 0, sizeof a);
    struct bl_update u = update(&a, s, b.info.head);
    u.rows = u.count = 2;
    u.columns = 1;
    u.weight_decay = 0;
    u.learning_rate = 1;
    a.g[0] = 1;
    a.g[1] = -3;
    assert_int_equal(b.ops->optimizer.survey(b.self, b.host, &u, &u.surveyed, &err), 0);
    double promised = b.ops->optimizer.prepare(b.self, &u, 0, 2);
    b.ops->optimizer.apply(b.self, &u, 0, 2);
    assert_true(fabs((double)a.w[0] + 1 / sqrt(5)) < 1e-6);
    assert_true(fabs((double)a.w[1] - 3 / sqrt(5)) < 1e-6);
    assert_true(a.v[0] == a.v[1] && fabs((double)a.v[0] - 0.25) < 1e-7);
    assert_true(fabs(promised - 2) < 1e-5);
    bl_bench_stop(&b);
}

/* Every other parameter is adamw's, bit for bit. */
static void test_elsewhere(void **state)
{
    (void)state;
    static struct arrays a, twin;
    float *s[2], *s2[2];
    struct bl_bench b, w;
    bl_bench_start(&b);
    bl_bench_start(&w);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "coupled_adam", "");
    bl_bench_open(&w, BL_KIND_OPTIMIZER, "adamw", "");
    fill(&a, 1);
    fill(&twin, 1);
    struct bl_update u = update(&a, s, "layers.0.attn.q.weight"), t = update(&twin, s2, "x");
    step(&b, &u);
    w.ops->optimizer.apply(w.self, &t, 0, N);
    assert_memory_equal(&a, &twin, sizeof a);
    bl_bench_stop(&w);
    bl_bench_stop(&b);
}

static void test_order(void **state)
{
    (void)state;
    static struct arrays a, twin;
    float *s[2];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "coupled_adam", "");
    for (int reversed = 0; reversed < 2; reversed++) {
        b.reversed = reversed;
        fill(reversed ? &twin : &a, 1);
        struct bl_update u = update(reversed ? &twin : &a, s, b.info.head);
        step(&b, &u);
    }
    assert_memory_equal(&a, &twin, sizeof a);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_keeps_the_mean_row),
        cmocka_unit_test(test_elsewhere),
        cmocka_unit_test(test_order),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
