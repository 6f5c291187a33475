#include "tests/lib/plugin_test.h"

#include <math.h>

static double at(const struct bl_bench *b, uint64_t u, uint64_t warmup, uint64_t updates)
{
    struct bl_schedule_point p = {sizeof(p), 0, u, warmup, updates};
    return b->ops->schedule.factor(b->self, &p);
}

/* A handful of fp64 operations, and a power of at most 1 ulp. */
static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 6e-16 * wanted))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

#define POINTS "updates = [ 100, 200, 400 ]; factors = [ 1.0, 0.25, 0.5 ]; "

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SCHEDULE, "piecewise", "updates = [ 10, 20 ]; factors = [ 1, 0.1 ];");
}

static void test_values(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        double at125, at150, at199, at300; /* updates between the points */
    } cases[] = {
        {POINTS, 0.8125, 0.625, 0.2575, 0.375},
        {POINTS "interpolation = \"step\";", 1.0, 1.0, 1.0, 0.25},
        /* 4^(-x), then 2^(x - 2): halves and quarters of the way */
        {POINTS "interpolation = \"log\";", 0.7071067811865476, 0.5, 0.25348986994750733,
         0.3535533905932738},
    };
    struct bl_bench b;
    bl_bench_start(&b);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        bl_bench_open(&b, BL_KIND_SCHEDULE, "piecewise", cases[i].config);
        /* Exact at each point, constant outside. */
        assert_true(at(&b, 0, 0, 1000) == 1.0 && at(&b, 100, 0, 1000) == 1.0);
        assert_true(at(&b, 200, 0, 1000) == 0.25);
        assert_true(at(&b, 400, 0, 1000) == 0.5 && at(&b, 5000, 0, 1000) == 0.5);
        near(at(&b, 125, 0, 1000), cases[i].at125);
        near(at(&b, 150, 0, 1000), cases[i].at150);
        near(at(&b, 199, 0, 1000), cases[i].at199);
        near(at(&b, 300, 0, 1000), cases[i].at300);
        /* Neither warmup nor plan is part of the curve. */
        assert_true(at(&b, 150, 50, 300) == at(&b, 150, 0, 1000));
        for (uint64_t u = 101; u <= 400; u++)
            assert_true(u <= 200 ? at(&b, u, 0, 1000) <= at(&b, u - 1, 0, 1000)
                                 : at(&b, u, 0, 1000) >= at(&b, u - 1, 0, 1000));
    }
    bl_bench_open(&b, BL_KIND_SCHEDULE, "piecewise", "updates = [ 7 ]; factors = [ 2 ];");
    assert_true(at(&b, 0, 0, 10) == 2.0 && at(&b, 9, 0, 10) == 2.0);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "piecewise",
                  "updates = [ 0, 10 ]; factors = [ 1, 0 ]; interpolation = \"linear\";");
    near(at(&b, 9, 0, 10), 0.1);
    assert_true(at(&b, 10, 0, 10) == 0.0);
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *config, *word;
    } cases[] = {
        {"", "updates"},
        {"updates = [ 1 ];", "factors"},
        {"updates = [ 1, 2 ]; factors = [ 1.0 ];", "updates has 2 elements and factors has 1"},
        {"updates = [ ]; factors = [ ];", "at least one"},
        {"updates = [ 1, 3, 2 ]; factors = [ 1, 1, 1 ];", "updates[2] = 2 comes after 3"},
        {"updates = [ 1, 1 ]; factors = [ 1, 1 ];", "updates[1] = 1 comes after 1"},
        {"updates = [ -1 ]; factors = [ 1 ];", "updates"},
        {"updates = [ 1 ]; factors = [ -1 ];", "factors"},
        {"updates = [ 1, 2 ]; factors = [ 1, 0 ]; interpolation = \"log\";", "factors[1] = 0"},
        {"updates = [ 1 ]; factors = [ 1 ]; interpolation = \"cubic\";", "interpolation"},
    };
    struct bl_bench b;
    bl_bench_start(&b);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        bl_bench_refuses(&b, BL_KIND_SCHEDULE, "piecewise", cases[i].config, BL_EXIT_USAGE,
                         cases[i].word);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
