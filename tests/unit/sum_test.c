/* Sums over ranks in one process against the definition, bit by bit. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "base/strings.h"
#include "collectives/sum.h"
#include "sum_reference.h"

static struct bl_sum *make(const struct bl_sum_setup *setup)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    if (bl_sum_make(setup, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void run(struct bl_sum *s, const struct bl_sum_run *r)
{
    struct bl_error err = BL_ERROR_INIT;
    if (bl_sum_run(s, r, &err) < 0)
        fail_msg("%s", err.text);
}

/* Combinations that NCCL has. */
static int exists(const struct bl_sum_format *f)
{
    if (f->algorithm == BL_ALGORITHM_TREE && f->collective == BL_COLLECTIVE_REDUCE_SCATTER)
        return 0;
    return f->algorithm != BL_ALGORITHM_NVLS || f->average != BL_AVERAGE_PREMULTIPLY;
}

/* ---- against the definition ------------------------------------------------------------------ */

enum { ELEMENTS = 467, GAP = 5, PART_BEGIN = 150, PART_COUNT = 200 };

/* Two buffers with a gap, the second in another format; a part that meets both. */
static void compare(struct gradients *g, const struct bl_cluster_options *cluster,
                    const struct bl_sum_format *format, const struct bl_sum_format *other,
                    uint64_t keep)
{
    struct bl_sum_buffer buffers[2] = {
        {.begin = 3, .end = 203, .format = *format},
        {.begin = 203 + GAP, .end = ELEMENTS, .format = *other, .group = BL_GROUP_HEAD},
    };
    struct bl_sum_setup setup = {
        .ranks = g->ranks,
        .cluster = cluster,
        .buffers = buffers,
        .buffer_count = 2,
        .elements = ELEMENTS,
        .part_begin = PART_BEGIN,
        .part_count = PART_COUNT,
        .keep = keep,
    };
    float out[ELEMENTS], part[PART_COUNT];
    struct bl_sum *s = make(&setup);
    for (int i = 0; i < ELEMENTS; i++)
        out[i] = 7;
    for (int i = 0; i < PART_COUNT; i++)
        part[i] = 7;
    struct bl_sum_run r = {
        .contribute = gradients_contribute, .context = g, .out = out, .part_out = part};
    g->calls = g->again = 0;
    memset(g->seen, 0, g->ranks);
    run(s, &r);
    assert_true((double)g->calls == bl_sum_visits(s) * g->ranks);
    assert_true(keep == 0 || g->again == 0);
    for (int b = 0; b < 2; b++) {
        struct bl_order *order = reference_order(&buffers[b], g->ranks, cluster);
        for (uint64_t i = buffers[b].begin; i < buffers[b].end; i++) {
            float want = reference_sum(&buffers[b], order, g->ranks, g->array, 0, i);
            if (memcmp(&want, &out[i], sizeof want) != 0)
                fail_msg("W %u, algorithm %u, collective %u, average %u, wire %u, sum %u, keep "
                         "%llu: element %llu is %.9g, not %.9g",
                         g->ranks, format->algorithm, format->collective, format->average,
                         buffers[b].format.wire, buffers[b].format.sum, (unsigned long long)keep,
                         (unsigned long long)i, (double)out[i], (double)want);
            if (i < PART_BEGIN || i >= PART_BEGIN + PART_COUNT)
                continue;
            want = reference_sum(&buffers[b], order, g->ranks, g->part, PART_BEGIN, i);
            assert_memory_equal(&want, &part[i - PART_BEGIN], sizeof want);
        }
        bl_order_free(order);
    }
    for (int i = 0; i < GAP; i++)
        assert_true(out[203 + i] == 7 && part[203 + i - PART_BEGIN] == 7);
    assert_true(out[0] == 7);
    bl_sum_free(s);
}

static void test_definition(void **state)
{
    static const uint32_t worlds[] = {1, 2, 3, 5, 6, 8, 12, 16, 24};
    static const uint32_t per_node[] = {8, 1, 3, 1, 2, 4, 3, 8, 4};
    static const uint32_t dtypes[] = {BL_FP32, BL_BF16, BL_FP16};
    (void)state;
    for (size_t w = 0; w < sizeof worlds / sizeof *worlds; w++) {
        struct gradients g;
        uint32_t n = 0;
        gradients_make(&g, worlds[w], ELEMENTS, PART_BEGIN, PART_COUNT);
        for (uint32_t c = 0; c < 6 * 2 * 4 * 9; c++) {
            struct bl_sum_format f = {.algorithm = c % 6,
                                      .collective = c / 6 % 2,
                                      .average = c / 12 % 4,
                                      .wire = dtypes[c / 48 % 3],
                                      .sum = dtypes[c / 144]};
            struct bl_sum_format other = f;
            if (!exists(&f))
                continue;
            other.algorithm = n % 4 == 0 ? BL_ALGORITHM_RING : f.algorithm;
            other.sum = dtypes[n % 3];
            struct bl_cluster_options cluster = plain_cluster();
            cluster.ranks_per_node = per_node[w];
            cluster.tree_pattern = 1 + n % 3;
            cluster.channels = n % 5;
            cluster.chunk = n % 7 == 0 ? 10 : 0;
            cluster.protocol = (int32_t)(n % 2);
            compare(&g, &cluster, &f, &other, n % 2 == 0 ? 0 : 1 << 20);
            n++;
        }
        gradients_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_definition),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
