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
    bl_bench_common(BL_KIND_SCHEDULE, "rex", "");
}

static void test_values(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "rex", "");
    near(at(&b, 20, 20, 100), 1.0);
    near(at(&b, 21, 20, 100), (79.0 / 80) / (0.5 + 79.0 / 160));
    near(at(&b, 60, 20, 100), 2.0 / 3);
    near(at(&b, 80, 20, 100), 0.4); /* (1/4) / (5/8) */
    near(at(&b, 99, 20, 100), (1.0 / 80) / (0.5 + 1.0 / 160));
    near(at(&b, 100, 20, 100), 0.0);
    near(at(&b, 1000, 20, 100), 0.0);
    near(at(&b, 0, 0, 1), 1.0);       /* a plan of one update */
    near(at(&b, 100, 100, 100), 0.0); /* all warmup */
    near(at(&b, 150, 150, 100), 0.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "rex", "final = 0.1;");
    near(at(&b, 60, 20, 100), 0.7);
    near(at(&b, 100, 20, 100), 0.1);
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "rex", "final = -0.5;", BL_EXIT_USAGE, "final");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
