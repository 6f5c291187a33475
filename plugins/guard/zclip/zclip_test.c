#include "tests/lib/plugin_test.h"

#include <math.h>

static uint64_t now; /* step of the series */

/* The scale; -1 = skipped. */
static double judge(struct bl_bench *b, double norm)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = ++now, .loss = 1, .norm = norm};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    uint32_t changed = 0;
    bl_bench_forget(b);
    assert_int_equal(b->ops->guard.gradient(b->self, b->host, &in, &out, &changed, &b->err), 0);
    b->ops->guard.settle(b->self, out.skip);
    assert_int_equal(changed, 0);
    return out.skip ? -1 : out.scale;
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-13 * fabs(wanted)))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "zclip", "");
}

/* Warmup 1, 3: mean 2, variance 1. Then 6: z = 4 / 1.000001, clipped to 2 + 2 / (z / 2), which is
 * what enters: mean 0.5 (2 + x), variance 0.5 + 0.5 (x - mean)^2. */
static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    now = 0;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "zclip",
                  "alpha = 0.5; threshold = 2.0; warmup = 2; max = 0.0;");
    assert_true(judge(&b, 1) == 1);
    assert_false(bl_bench_has(&b, "guard/zclip/score"));
    assert_true(judge(&b, 3) == 1);
    near(bl_bench_metric(&b, "guard/zclip/mean"), 2);
    double z = 4 / (1 + 1e-6), x = 2 + 2 / (z / 2), mean = 0.5 * (2 + x);
    near(judge(&b, 6), x / 6);
    near(bl_bench_metric(&b, "guard/zclip/score"), z);
    near(bl_bench_metric(&b, "guard/zclip/mean"), mean);
    assert_true(bl_bench_metric(&b, "guard/zclip/clipped") == 1);
    double deviation = sqrt(0.5 + 0.5 * (x - mean) * (x - mean));
    assert_true(judge(&b, 1) == 1); /* a fall passes */
    near(bl_bench_metric(&b, "guard/zclip/score"), (1 - mean) / (deviation + 1e-6));
    bl_bench_stop(&b);
}

/* What another guard rejects leaves no trace either. */
static void test_rejected_by_another(void **state)
{
    (void)state;
    struct bl_bench a, b;
    bl_bench_start(&a);
    bl_bench_start(&b);
    bl_bench_open(&a, BL_KIND_GUARD, "zclip", "warmup = 5; max = 0.0;");
    bl_bench_open(&b, BL_KIND_GUARD, "zclip", "warmup = 5; max = 0.0;");
    for (uint64_t i = 0; i < 30; i++) {
        struct bl_guard_input in = {.size = sizeof(in), .step = i, .loss = 1, .norm = 40};
        struct bl_verdict out = {sizeof(out), 0, 1.0};
        uint32_t changed = 0;
        b.ops->guard.gradient(b.self, b.host, &in, &out, &changed, &b.err);
        b.ops->guard.settle(b.self, 1);
        double norm = 1 + 0.3 * sin(1.7 * (double)i);
        assert_true(judge(&a, norm) == judge(&b, norm));
    }
    bl_bench_stop(&b);
    bl_bench_stop(&a);
}

static void test_limit(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "zclip", "warmup = 2;");
    near(judge(&b, 4), 0.25); /* max = 1, also during warmup, where 4 is remembered */
    near(bl_bench_metric(&b, "guard/zclip/mean"), 4);
    assert_true(judge(&b, 0.5) == 1);
    bl_bench_stop(&b);
}

/* Neither NaN nor infinity enters the averages: the series goes on as if they had not been. */
static void test_not_finite_and_resume(void **state)
{
    (void)state;
    struct bl_bench a, b;
    bl_bench_start(&a);
    bl_bench_start(&b);
    bl_bench_open(&a, BL_KIND_GUARD, "zclip", "warmup = 5; max = 0.0;");
    bl_bench_open(&b, BL_KIND_GUARD, "zclip", "warmup = 5; max = 0.0;");
    for (uint64_t i = 0; i < 60; i++) {
        double norm = (i % 17 == 16 ? 9 : 1) + 0.1 * sin(1.7 * (double)i);
        double scale = judge(&a, norm);
        if (i % 7 == 3) {
            assert_true(judge(&b, i % 2 ? NAN : INFINITY) == 1); /* is not its business */
            bl_bench_reload(&b);
        }
        assert_true(judge(&b, norm) == scale);
        assert_int_equal(scale < 1, i % 17 == 16);
    }
    bl_bench_stop(&b);
    bl_bench_stop(&a);
}

static void test_refuses(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_GUARD, "zclip", "alpha = 1.0;", BL_EXIT_USAGE, "alpha");
    bl_bench_refuses(&b, BL_KIND_GUARD, "zclip", "warmup = 0;", BL_EXIT_USAGE, "warmup");
    bl_bench_open(&b, BL_KIND_GUARD, "zclip", "threshold = 0.0;");
    assert_true(b.instance->null);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_limit),
                                       cmocka_unit_test(test_rejected_by_another),
                                       cmocka_unit_test(test_not_finite_and_resume),

                                       cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
