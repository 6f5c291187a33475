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
    bl_bench_common(BL_KIND_SCHEDULE, "power", "");
}

static void test_values(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "power", "exponent = 0.5; decay_share = 0.2;");
    near(at(&b, 24, 25, 100), 1.0);
    near(at(&b, 25, 25, 100), sqrt(25.0 / 26));
    near(at(&b, 35, 25, 100), 5.0 / 6); /* step 36 */
    near(at(&b, 79, 25, 100), sqrt(25.0 / 80));
    near(at(&b, 80, 25, 100), 5.0 / 9); /* step 81 begins the decay */
    near(at(&b, 81, 25, 100), 5.0 / 9 * 19 / 20);
    near(at(&b, 90, 25, 100), 5.0 / 18);
    near(at(&b, 99, 25, 100), 5.0 / 9 / 20); /* the last update still moves */
    near(at(&b, 100, 25, 100), 0.0);
    near(at(&b, 0, 0, 1), 1.0);
    near(at(&b, 150, 150, 100), 0.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "power",
                  "exponent = 0.5; decay_share = 0.0; timescale = 4;");
    near(at(&b, 3, 0, 100), 1.0);
    near(at(&b, 4, 0, 100), sqrt(4.0 / 5));
    near(at(&b, 99, 0, 100), 0.2);
    near(at(&b, 399, 0, 100), 0.1); /* it knows no end */
    bl_bench_open(&b, BL_KIND_SCHEDULE, "power",
                  "exponent = 1.0; decay_share = 0.5; final = 0.01; timescale = 10;");
    near(at(&b, 49, 0, 100), 0.2);
    near(at(&b, 50, 0, 100), 10.0 / 51);
    near(at(&b, 100, 0, 100), 0.01);
    near(at(&b, 75, 0, 100), 10.0 / 51 + (0.01 - 10.0 / 51) / 2);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "power", "exponent = 0.5; decay_share = 0.2;");
    near(at(&b, 90, 90, 100), sqrt(90.0 / 91)); /* all that follows the warmup decays */
    near(at(&b, 95, 90, 100), sqrt(90.0 / 91) / 2);
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "power", "exponent = 0.0;", BL_EXIT_USAGE, "exponent");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
