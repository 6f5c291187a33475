#include "tests/lib/plugin_test.h"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_PRECISION, "fsdp2_bf16", "");
}

static void test_table(void **state)
{
    (void)state;
    const struct bl_bench_policy wanted = {
        .gradient = BL_BF16,
        .accumulate = BL_FP32,
        .wire = BL_BF16,
        .sum = BL_BF16,
        .master = BL_FP32,
        .moments = BL_FP32,
        .average = BL_AVERAGE_PREMULTIPLY,
        .algorithm = BL_ALGORITHM_RING,
        .collective = BL_COLLECTIVE_REDUCE_SCATTER,
    };
    bl_bench_check_policy("fsdp2_bf16", &wanted);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
