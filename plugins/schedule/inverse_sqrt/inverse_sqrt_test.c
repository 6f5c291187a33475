#include "tests/lib/plugin_test.h"

#include <math.h>

static double at(const struct bl_bench *b, uint64_t u, uint64_t warmup)
{
    struct bl_schedule_point p = {sizeof(p), 0, u, warmup, 100000};
    return b->ops->schedule.factor(b->self, &p);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 3e-16))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SCHEDULE, "inverse_sqrt", "");
}

static void test_pure(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "inverse_sqrt", "");
    near(at(&b, 99, 100), 1.0);
    near(at(&b, 100, 100), sqrt(100.0 / 101.0));
    near(at(&b, 399, 100), 0.5);
    near(at(&b, 9999, 100), 0.1);
    near(at(&b, 0, 0), 1.0);
    near(at(&b, 3, 0), 0.5);
    /* The law itself, far out: no floor hides in it. */
    for (uint64_t u = 100; u < 4000000000u; u = u * 3 + 1)
        near(at(&b, u, 100) * sqrt(((double)u + 1.0) / 100.0), 1.0);
    bl_bench_stop(&b);
}

static void test_floor_and_timescale(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "inverse_sqrt", "floor = 0.1;");
    near(at(&b, 99, 100), 1.0);
    near(at(&b, 399, 100), 0.55);
    assert_true(at(&b, 4000000000u, 100) > 0.1 && at(&b, 4000000000u, 100) < 0.1002);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "inverse_sqrt", "timescale = 400;");
    near(at(&b, 100, 100), 1.0);
    near(at(&b, 399, 100), 1.0);
    near(at(&b, 1599, 100), 0.5);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "inverse_sqrt", "timescale = 25;");
    near(at(&b, 99, 100), 0.5);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_pure),
                                       cmocka_unit_test(test_floor_and_timescale)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
