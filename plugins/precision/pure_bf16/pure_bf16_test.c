#include "tests/lib/plugin_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_PRECISION, "pure_bf16", "");
}

static void test_table(void **state)
{
    (void)state;
    const struct bl_bench_policy wanted = {
        .gradient = BL_BF16,
        .accumulate = BL_BF16,
        .wire = BL_BF16,
        .sum = BL_BF16,
        .master = BL_BF16,
        .moments = BL_BF16,
        .average = BL_AVERAGE_DIVIDE,
        .algorithm = BL_ALGORITHM_ALLTOALL,
        .collective = BL_COLLECTIVE_ALL_REDUCE,
    };
    bl_bench_check_policy("pure_bf16", &wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
