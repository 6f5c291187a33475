#include "tests/lib/plugin_test.h"

#include <math.h>

static double at(const struct bl_bench *b, uint64_t u, uint64_t warmup, uint64_t updates)
{
    struct bl_schedule_point p = {sizeof(p), 0, u, warmup, updates};
    return b->ops->schedule.factor(b->self, &p);
}

/* Values of order 1 from a handful of fp64 operations and one call of libm. */
static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 4e-16))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SCHEDULE, "wsd", "");
}

/* T = 1000, w = 100, a fifth: 1 up to update 800, then x = (u - 800) / 200. */
static void test_shapes(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double at[3]; /* x = 1/4, 1/2, 199/200 */
        double end;
    } cases[] = {
        {"", {0.5, 0.29289321881345254, 0.0025031328369998773}, 0.0}, /* 1 - sqrt(x) */
        {"shape = \"linear\";", {0.75, 0.5, 0.005}, 0.0},
        {"shape = \"linear\"; final = 0.2;", {0.8, 0.6, 0.204}, 0.2},
        {"shape = \"one_minus_sqrt\"; final = 0.1;",
         {0.55, 0.36360389693210726, 0.1022528195532999},
         0.1},
        {"shape = \"exponential\"; final = 0.0625;", {0.5, 0.25, 0.063372467486876832}, 0.0625},
        {"shape = \"cosine\";", {0.8535533905932737, 0.5, 6.168375916970614e-05}, 0.0},
        {"shape = \"cosine\"; final = 0.5;", {0.9267766952966369, 0.75, 0.5000308418795848}, 0.5},
    };
    struct bl_bench b;
    bl_bench_start(&b);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd", cases[i].config);
        for (uint64_t u = 100; u <= 800; u += 50)
            assert_true(at(&b, u, 100, 1000) == 1.0);
        assert_true(at(&b, 801, 100, 1000) < 1.0);
        near(at(&b, 850, 100, 1000), cases[i].at[0]);
        near(at(&b, 900, 100, 1000), cases[i].at[1]);
        near(at(&b, 999, 100, 1000), cases[i].at[2]);
        assert_true(at(&b, 1000, 100, 1000) == cases[i].end);
        assert_true(at(&b, 5000, 100, 1000) == cases[i].end);
        for (uint64_t u = 801; u <= 1000; u++)
            assert_true(at(&b, u, 100, 1000) < at(&b, u - 1, 100, 1000));
        assert_true(at(&b, 850, 100, 1000) == at(&b, 850, 100, 1000));
    }
    bl_bench_stop(&b);
}

static void test_where_it_begins(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    /* 0.25 of 10 is 2.5 updates, which is 3: from 7 on. */
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd", "decay_share = 0.25; shape = \"linear\";");
    assert_true(at(&b, 7, 0, 10) == 1.0);
    near(at(&b, 8, 0, 10), 2.0 / 3.0);
    near(at(&b, 9, 0, 10), 1.0 / 3.0);
    /* A longer plan is the same run until the shorter one decays. */
    for (uint64_t u = 0; u <= 7; u++)
        assert_true(at(&b, u, 0, 10) == at(&b, u, 0, 1000));
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd", "decay_share = 0.0;");
    assert_true(at(&b, 9, 0, 10) == 1.0 && at(&b, 10, 0, 10) == 1.0);
    /* All of it, and more than the warmup leaves: from the end of the warmup on. */
    bl_bench_open(&b, BL_KIND_SCHEDULE, "wsd", "decay_share = 1; shape = \"linear\";");
    assert_true(at(&b, 0, 0, 8) == 1.0);
    near(at(&b, 2, 0, 8), 0.75);
    assert_true(at(&b, 4, 4, 8) == 1.0);
    near(at(&b, 6, 4, 8), 0.5);
    /* No room for a curve. */
    assert_true(at(&b, 8, 8, 8) == 0.0 && at(&b, 12, 12, 8) == 0.0);
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd", "decay_share = 1.5;", BL_EXIT_USAGE,
                     "decay_share");
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd", "shape = \"sqrt\";", BL_EXIT_USAGE,
                     "one_minus_sqrt");
    bl_bench_refuses(&b, BL_KIND_SCHEDULE, "wsd", "shape = \"exponential\";", BL_EXIT_USAGE,
                     "final = 0");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_shapes),
                                       cmocka_unit_test(test_where_it_begins),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
