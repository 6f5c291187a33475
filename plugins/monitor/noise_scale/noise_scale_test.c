#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static uint32_t skipped;

static void look(struct bl_bench *b, uint64_t ranks, double norm, double rank_squares)
{
    struct bl_monitor_input in = {.size = sizeof(in),
                                  .skipped = skipped,
                                  .step = 1,
                                  .targets = 128,
                                  .gradient_norm = norm,
                                  .rank_squares = rank_squares,
                                  .logical_ranks = ranks};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.after(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "noise_scale", "");
}

/* B = 128, W = 4, b = 32, |g|^2 = 4, s = 10: square (512 - 320) / 96 = 2, trace 6 / (3 / 128) =
 * 256. Then |g|^2 = 9, s = 9: square 9, trace 0. beta 0.5: 5.5 and 128. */
static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "noise_scale", "beta = 0.5;");
    look(&b, 4, 2.0, 10.0);
    assert_float_equal(bl_bench_metric(&b, "noise/square"), 2.0, 1e-12);
    assert_float_equal(bl_bench_metric(&b, "noise/trace"), 256.0, 1e-10);
    assert_float_equal(bl_bench_metric(&b, "noise/scale"), 128.0, 1e-10);
    look(&b, 4, 3.0, 9.0);
    assert_float_equal(bl_bench_metric(&b, "noise/square"), 5.5, 1e-12);
    assert_float_equal(bl_bench_metric(&b, "noise/trace"), 128.0, 1e-10);
    look(&b, 4, NAN, 9.0); /* neither it nor infinity enters the averages */
    look(&b, 4, 1.0, INFINITY);
    assert_float_equal(bl_bench_metric(&b, "noise/trace"), 128.0, 1e-10);
    assert_true(bl_bench_metric(&b, "noise/rejected") == 2.0);
    skipped = 1; /* nor does a step without an update */
    look(&b, 4, 100.0, 1e6);
    skipped = 0;
    assert_float_equal(bl_bench_metric(&b, "noise/square"), 5.5, 1e-12);
    assert_true(bl_bench_metric(&b, "noise/rejected") == 3.0);
    bl_bench_stop(&b);
}

/* Ranks whose gradients are m + e with e of variance T / b per direction: by the law of large
 * numbers over steps the scale is T / |m|^2. Errors of the means over 4000 steps of 8 ranks in 16
 * directions are below 2 percent (one deviation), so five of them. */
static void test_recovers_the_truth(void **state)
{
    (void)state;
    enum { W = 8, N = 16, STEPS = 4000 };
    const double share = 128.0 / W, trace = 400.0, mean = 0.5;
    double squares = 0, traces = 0;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "noise_scale", "beta = 0.0;");
    for (uint64_t step = 0; step < STEPS; step++) {
        double sum[N] = {0}, s = 0, g = 0;
        for (uint64_t r = 0; r < W; r++) {
            for (uint64_t i = 0; i < N; i++) {
                double e = bl_bench_normal(step, r * N + i) * sqrt(trace / N / share);
                sum[i] += mean + e;
                s += (mean + e) * (mean + e) / W;
            }
        }
        for (int i = 0; i < N; i++)
            g += sum[i] / W * sum[i] / W;
        look(&b, W, sqrt(g), s);
        squares += bl_bench_metric(&b, "noise/square") / STEPS;
        traces += bl_bench_metric(&b, "noise/trace") / STEPS;
    }
    assert_float_equal(squares, N * mean * mean, 0.1 * N * mean * mean);
    assert_float_equal(traces, trace, 0.1 * trace);
    bl_bench_stop(&b);
}

static void test_one_rank(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "noise_scale", "");
    look(&b, 1, 2.0, NAN);
    assert_int_equal(b.metric_count, 0);
    assert_non_null(strstr(bl_bench_log(&b), "cluster.emulate"));
    bl_bench_stop(&b);
}

static void test_resume(void **state)
{
    (void)state;
    struct bl_bench b, c;
    char kept[64];
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "noise_scale", "");
    look(&b, 4, 2.0, 10.0);
    uint64_t bytes = b.ops->monitor.save(b.self, kept, sizeof(kept));
    assert_true(bytes <= sizeof(kept));
    bl_bench_start(&c);
    bl_bench_open(&c, BL_KIND_MONITOR, "noise_scale", "");
    assert_int_equal(c.ops->monitor.load(c.self, kept, bytes, &err), 0);
    look(&b, 4, 3.0, 11.0);
    look(&c, 4, 3.0, 11.0);
    assert_true(bl_bench_metric(&b, "noise/scale") == bl_bench_metric(&c, "noise/scale"));
    assert_int_equal(c.ops->monitor.load(c.self, kept, bytes - 1, &err), -1);
    bl_bench_stop(&c);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_recovers_the_truth), cmocka_unit_test(test_one_rank),
        cmocka_unit_test(test_resume)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
