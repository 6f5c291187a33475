#include "tests/lib/plugin_test.h"

#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_PRECISION, "fsdp_bf16", "");
}

/* The table of the manual, cell by cell; 0 = the dial means nothing for the group. */
static void test_table(void **state)
{
    (void)state;
    enum { F = BL_FP32, H = BL_BF16 };
    static const struct {
        uint32_t dial, matrix, embedding, norm, head;
    } wanted[] = {
        {BL_DIAL_COMPUTE, H, H, H, H},
        {BL_DIAL_ARITHMETIC, 0, 0, F, 0},
        {BL_DIAL_ATTENTION_OUTPUT, H, 0, 0, 0},
        {BL_DIAL_LOGITS, 0, 0, 0, H},
        {BL_DIAL_DLOGITS, 0, 0, 0, H},
        {BL_DIAL_GRADIENT, H, H, H, H},
        {BL_DIAL_ACCUMULATE, F, F, F, F},
        {BL_DIAL_WIRE, H, H, H, H},
        {BL_DIAL_SUM, H, H, H, H},
        {BL_DIAL_MASTER, F, F, F, F},
        {BL_DIAL_MOMENTS, F, F, F, F},
    };
    struct bl_bench b;
    struct bl_precision table;
    memset(&table, 0xee, sizeof(table));
    table.size = sizeof(table);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_PRECISION, "fsdp_bf16", "");
    b.ops->precision.fill(b.self, &table);
    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        const uint32_t cells[BL_GROUP_COUNT] = {
            [BL_GROUP_MATRIX] = wanted[i].matrix,
            [BL_GROUP_EMBEDDING] = wanted[i].embedding,
            [BL_GROUP_NORM] = wanted[i].norm,
            [BL_GROUP_HEAD] = wanted[i].head,
        };
        for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
            uint32_t got = table.dial[g][wanted[i].dial];
            if (cells[g] != 0 ? got != cells[g] : got != F && got != H)
                fail_msg("group %u, dial %u: %u, wanted %u", g, wanted[i].dial, got, cells[g]);
        }
    }
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        assert_int_equal(table.dial[g][BL_DIAL_AVERAGE], BL_AVERAGE_PREDIVIDE);
        assert_int_equal(table.dial[g][BL_DIAL_ALGORITHM], BL_ALGORITHM_RING);
        assert_int_equal(table.dial[g][BL_DIAL_COLLECTIVE], BL_COLLECTIVE_REDUCE_SCATTER);
        assert_int_equal(table.dial[g][BL_DIAL_ROUNDING], BL_ROUND_NEAREST);
        assert_int_equal(table.dial[g][BL_DIAL_SUM_ROUNDING], BL_ROUND_NEAREST);
        for (uint32_t d = BL_DIAL_COUNT; d < 32; d++)
            assert_int_equal(table.dial[g][d], 0xeeeeeeeeu);
    }
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
