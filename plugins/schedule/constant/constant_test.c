#include "tests/lib/plugin_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SCHEDULE, "constant", "");
}

static void test_stays(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SCHEDULE, "constant", "");
    for (uint64_t u = 10; u < 5000000000u; u = u * 7 + 1) {
        struct bl_schedule_point p = {sizeof(p), 0, u, 10, 100};
        assert_true(b.ops->schedule.factor(b.self, &p) == 1.0);
    }
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_stays)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
