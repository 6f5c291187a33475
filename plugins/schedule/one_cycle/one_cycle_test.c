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
    bl_bench_common(BL_KIND_SCHEDULE, "one_cycle", "");
}

static void test_values(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "one_cycle", "rise = 0.25; start = 0.2; final = 0.1;");
    near(at(&b, 0, 0, 80), 0.2);
    near(at(&b, 10, 0, 80), 0.6); /* half of the rise */
    near(at(&b, 5, 0, 80), 0.2 + 0.8 * (1 - sqrt(0.5)) / 2);
    near(at(&b, 19, 0, 80), 0.2 + 0.8 * (1 + cos(acos(-1.0) / 20)) / 2);
    near(at(&b, 20, 0, 80), 1.0);
    near(at(&b, 21, 0, 80), 1 - 0.9 * (1 - cos(acos(-1.0) / 60)) / 2);
    near(at(&b, 50, 0, 80), 0.55);
    near(at(&b, 79, 0, 80), 0.1 + 0.9 * (1 - cos(acos(-1.0) / 60)) / 2);
    near(at(&b, 80, 0, 80), 0.1);
    near(at(&b, 500, 0, 80), 0.1);
    near(at(&b, 10, 10, 90), 0.2); /* after a warmup it begins anew */
    near(at(&b, 20, 10, 90), 0.6);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "one_cycle",
                  "rise = 0.25; start = 0.2; final = 0.1; shape = \"linear\";");
    near(at(&b, 5, 0, 80), 0.4);
    near(at(&b, 20, 0, 80), 1.0);
    near(at(&b, 35, 0, 80), 0.775);
    near(at(&b, 80, 0, 80), 0.1);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "one_cycle", "rise = 0.0; start = 0.2;");
    near(at(&b, 0, 0, 80), 1.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "one_cycle",
                  "rise = 1.0; start = 0.2; shape = \"linear\";");
    near(at(&b, 40, 0, 80), 0.6);
    near(at(&b, 79, 0, 80), 0.99);
    near(at(&b, 80, 0, 80), 4e-6);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "one_cycle", "");
    near(at(&b, 0, 0, 1), 0.04);
    near(at(&b, 100, 100, 100), 4e-6);
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "one_cycle", "rise = 1.5;", BL_EXIT_USAGE, "rise");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
