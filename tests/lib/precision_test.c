/* Precision policies that compute in bf16: the table of their manuals, cell by cell. */
#include "plugin_test.h"

#include <string.h>

void bl_bench_check_policy(const char *name, const struct bl_bench_policy *p)
{
    enum { F = BL_FP32, H = BL_BF16, ANY = 0 /* the dial means nothing for the group */ };
    const struct {
        uint32_t dial, matrix, embedding, norm, head;
    } wanted[] = {
        {BL_DIAL_COMPUTE, H, H, H, H},
        {BL_DIAL_ARITHMETIC, ANY, ANY, F, ANY},
        {BL_DIAL_ATTENTION_OUTPUT, H, ANY, ANY, ANY},
        {BL_DIAL_LOGITS, ANY, ANY, ANY, H},
        {BL_DIAL_DLOGITS, ANY, ANY, ANY, H},
        {BL_DIAL_GRADIENT, p->gradient, p->gradient, p->gradient, p->gradient},
        {BL_DIAL_ACCUMULATE, p->accumulate, p->accumulate, p->accumulate, p->accumulate},
        {BL_DIAL_WIRE, p->wire, p->wire, p->wire, p->wire},
        {BL_DIAL_SUM, p->sum, p->sum, p->sum, p->sum},
        {BL_DIAL_MASTER, p->master, p->master, p->master, p->master},
        {BL_DIAL_MOMENTS, p->moments, p->moments, p->moments, p->moments},
    };
    struct bl_bench b;
    struct bl_precision table;
    memset(&table, 0xee, sizeof(table));
    table.size = sizeof(table);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_PRECISION, name, "");
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
            if (cells[g] != ANY ? got != cells[g] : got != F && got != H)
                fail_msg("group %u, dial %u: %u, wanted %u", g, wanted[i].dial, got, cells[g]);
        }
    }
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        assert_int_equal(table.dial[g][BL_DIAL_AVERAGE], p->average);
        assert_int_equal(table.dial[g][BL_DIAL_ALGORITHM], p->algorithm);
        assert_int_equal(table.dial[g][BL_DIAL_COLLECTIVE], p->collective);
        assert_int_equal(table.dial[g][BL_DIAL_ROUNDING], BL_ROUND_NEAREST);
        assert_int_equal(table.dial[g][BL_DIAL_SUM_ROUNDING], BL_ROUND_NEAREST);
        for (uint32_t d = BL_DIAL_COUNT; d < 32; d++)
            assert_int_equal(table.dial[g][d], 0xeeeeeeeeu);
    }
    bl_bench_stop(&b);
}
