#include "tests/lib/plugin_test.h"

#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_PRECISION, "fp32", "");
}

static void test_table(void **state)
{
    (void)state;
    static const uint32_t wanted[BL_DIAL_COUNT] = {
        [BL_DIAL_COMPUTE] = BL_FP32,
        [BL_DIAL_GRADIENT] = BL_FP32,
        [BL_DIAL_ACCUMULATE] = BL_FP32,
        [BL_DIAL_WIRE] = BL_FP32,
        [BL_DIAL_SUM] = BL_FP32,
        [BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE,
        [BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL,
        [BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_ALL_REDUCE,
        [BL_DIAL_MASTER] = BL_FP32,
        [BL_DIAL_MOMENTS] = BL_FP32,
        [BL_DIAL_ROUNDING] = BL_ROUND_NEAREST,
        [BL_DIAL_SUM_ROUNDING] = BL_ROUND_NEAREST,
        [BL_DIAL_LOGITS] = BL_FP32,
        [BL_DIAL_DLOGITS] = BL_FP32,
        [BL_DIAL_ATTENTION_OUTPUT] = BL_FP32,
        [BL_DIAL_ARITHMETIC] = BL_FP32,
    };
    struct bl_bench b;
    struct bl_precision table;
    memset(&table, 0xee, sizeof(table));
    table.size = sizeof(table);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_PRECISION, "fp32", "");
    b.ops->precision.fill(b.self, &table);
    for (uint32_t g = 0; g < 8; g++)
        for (uint32_t d = 0; d < 32; d++) {
            uint32_t value = g < BL_GROUP_COUNT && d < BL_DIAL_COUNT ? wanted[d] : 0xeeeeeeeeu;
            if (table.dial[g][d] != value)
                fail_msg("group %u, dial %u: %u, wanted %u", g, d, table.dial[g][d], value);
        }
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
