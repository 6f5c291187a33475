#include "tests/lib/plugin_test.h"

#include <math.h>

static double at(const struct bl_bench *b, uint64_t u, uint64_t warmup, uint64_t updates)
{
    struct bl_schedule_point p = {sizeof(p), 0, u, warmup, updates};
    return b->ops->schedule.factor(b->self, &p);
}

/* Values of order 1 from a handful of fp64 operations. */
static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 2e-15))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SCHEDULE, "wsd_s", "");
}

static void test_values(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    b.info.steps = 0; /* plans of many lengths follow */
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 2; share = 0.25; final = 0.5;");
    near(at(&b, 20, 20, 100), 1.0);
    near(at(&b, 50, 20, 100), 1.0); /* y = 30 of 40 */
    near(at(&b, 51, 20, 100), 1 / 1.1);
    near(at(&b, 55, 20, 100), 2.0 / 3); /* x = 1/2: 1 / (1/2 + 1) */
    near(at(&b, 59, 20, 100), 1 / 1.9);
    near(at(&b, 60, 20, 100), 1.0); /* back at the peak */
    near(at(&b, 90, 20, 100), 1.0);
    near(at(&b, 95, 20, 100), 2.0 / 3);
    near(at(&b, 99, 20, 100), 1 / 1.9);
    near(at(&b, 100, 20, 100), 0.5);
    near(at(&b, 1000, 20, 100), 0.5);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "");
    near(at(&b, 0, 0, 300), 1.0);
    near(at(&b, 90, 0, 300), 1.0);
    near(at(&b, 95, 0, 300), 1 / 5.5); /* x = 1/2: 1/2 + 5 */
    near(at(&b, 100, 0, 300), 1.0);
    near(at(&b, 195, 0, 300), 1 / 5.5);
    near(at(&b, 300, 0, 300), 0.1);
    near(at(&b, 0, 0, 1), 1.0);
    near(at(&b, 150, 150, 100), 0.1);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "share = 0.0;");
    near(at(&b, 99, 0, 300), 1.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 1; share = 1.0; final = 0.5;");
    near(at(&b, 50, 0, 100), 2.0 / 3);
    /* Cycles that do not divide the plan: each border is at the peak, the update before it is not.
     */
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 6;");
    assert_true(at(&b, 50000, 0, 100000) == 1.0);
    assert_true(at(&b, 49999, 0, 100000) < 0.11);
    assert_true(at(&b, 50001, 0, 100000) == 1.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 12;");
    for (uint64_t u = 2500; u < 10000; u += 2500)
        assert_true(at(&b, u, 0, 10000) == 1.0 && at(&b, u - 1, 0, 10000) < 0.2);
    b.info.steps = 100;
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 20;", BL_EXIT_USAGE, "lower cycles");
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd_s", "cycles = 10;", BL_EXIT_USAGE, "lower cycles");
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd_s", "final = 0.0;", BL_EXIT_USAGE, "final");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
