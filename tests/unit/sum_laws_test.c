/* What sums over many ranks do to numbers: errors that follow the laws of rounding, sums that
 * stall, memory that does not grow with the ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "collectives/sum.h"
#include "sum_reference.h"

enum { MOST = 16384 };

/* Contributions that are made when they are asked for. */
struct terms {
    uint64_t count, calls;
    double spread; /* > 0: lognormal(0, spread); 0: ones; < 0: normal */
    float array[MOST];
};

static int contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                      struct bl_error *err)
{
    struct terms *t = context;
    (void)again, (void)err;
    t->calls++;
    for (uint64_t i = 0; i < t->count; i++) {
        double z = t->spread != 0 ? bl_random_normal(9, rank, i) : 0;
        t->array[i] = (float)(t->spread > 0 ? exp(t->spread * z) : t->spread == 0 ? 1 : z);
    }
    out->array = t->array;
    return 0;
}

static struct bl_sum_setup setup_of(const struct bl_sum_buffer *buffer, uint32_t ranks,
                                    const struct bl_cluster_options *cluster, uint64_t keep)
{
    return (struct bl_sum_setup){.ranks = ranks,
                                 .cluster = cluster,
                                 .buffers = buffer,
                                 .buffer_count = 1,
                                 .elements = buffer->end,
                                 .keep = keep,
                                 .seed = 11};
}

static struct bl_sum_statistics measure(struct bl_sum_format format, uint32_t ranks, uint64_t n,
                                        double spread, uint64_t step, float *out)
{
    static struct terms terms;
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_sum_buffer buffer = {.end = n, .format = format};
    struct bl_sum_setup setup = setup_of(&buffer, ranks, &cluster, 1 << 30);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    struct bl_sum_statistics result;
    terms.count = n;
    terms.spread = spread;
    cluster.channels = 2;
    if (bl_sum_make(&setup, &s, &err) < 0)
        fail_msg("%s", err.text);
    struct bl_sum_run run = {
        .step = step, .contribute = contribute, .context = &terms, .out = out, .measure = 1};
    if (bl_sum_run(s, &run, &err) < 0)
        fail_msg("%s", err.text);
    bl_sum_measured(s, 0, &result);
    bl_sum_free(s);
    return result;
}

static const struct bl_sum_format bf16_ring = {
    .wire = BL_BF16, .sum = BL_BF16, .algorithm = BL_ALGORITHM_RING};

/* Sum over the adds of a program of (ranks in the partial sum) / W; both trees alike. */
static double weight(uint32_t algorithm, uint32_t ranks)
{
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_sum_buffer buffer = {.end = MOST, .format = {.wire = BL_BF16}};
    uint32_t size[64], top = 0;
    double total = 0;
    buffer.format.algorithm = algorithm;
    struct bl_order *o = reference_order(&buffer, ranks, &cluster);
    for (uint32_t i = 0; i < bl_order_length(o, 0); i++) {
        struct bl_order_step step;
        bl_order_step(o, 0, i, &step);
        if (step.op == BL_ORDER_SET) {
            size[top++] = 1;
            continue;
        }
        if (step.op == BL_ORDER_MERGE)
            top--;
        size[top - 1] += step.op == BL_ORDER_MERGE ? size[top] : 1;
        total += size[top - 1];
    }
    bl_order_free(o);
    return total / ranks;
}

/* A rounding to bf16 has a relative error of 1.67e-3 rms over an octave; a partial sum of m of W
 * ranks has m / W of the result's variance. */
static void test_laws(void **state)
{
    static float out[MOST];
    (void)state;
    for (uint32_t ranks = 8; ranks <= 128; ranks *= 4) {
        double w = ranks;
        struct {
            const char *name;
            uint32_t algorithm, sum;
            double law;
        } cases[] = {
            {"ring", BL_ALGORITHM_RING, BL_BF16, 1.67e-3 * sqrt(w / 2 + 1.5 - 1 / w)},
            {"tree", BL_ALGORITHM_TREE, BL_BF16,
             1.67e-3 * sqrt(weight(BL_ALGORITHM_TREE, ranks) + 1)},
            {"pairwise", BL_ALGORITHM_PAIRWISE, BL_BF16, 1.67e-3 * sqrt(log2(w) + 1)},
            {"alltoall", BL_ALGORITHM_ALLTOALL, BL_FP32, 2.4e-3},
        };
        assert_true(fabs(weight(BL_ALGORITHM_PAIRWISE, ranks) - log2(w)) < 1e-12);
        assert_true(fabs(weight(BL_ALGORITHM_RING, ranks) - (w / 2 + 0.5 - 1 / w)) < 1e-12);
        for (int i = 0; i < 4; i++) {
            struct bl_sum_format f = bf16_ring;
            f.algorithm = cases[i].algorithm;
            f.sum = cases[i].sum;
            struct bl_sum_statistics m = measure(f, ranks, MOST, -1, 0, out);
            print_message("%-8s W %3u: error %.3e = %.3f of the law, bias %+.1e, lost %.4f\n",
                          cases[i].name, ranks, m.error, m.error / cases[i].law, m.bias, m.lost);
            assert_true(fabs(m.error / cases[i].law - 1) < 0.1);
        }
    }
}

/* Terms of one sign in a ring: partial sums outgrow the terms, which then vanish. */
static void test_bias(void **state)
{
    static float out[MOST];
    (void)state;
    double b512 = measure(bf16_ring, 512, 1024, 0.5, 0, out).bias;
    struct bl_sum_statistics m = measure(bf16_ring, 1024, 1024, 0.5, 0, out);
    print_message("lognormal(0, 0.5): bias %+.3f over 512 ranks, %+.3f over 1024, lost %.3f\n",
                  b512, m.bias, m.lost);
    assert_true(fabs(b512 + 0.09) < 0.01);
    assert_true(fabs(m.bias + 0.40) < 0.02);
    assert_true(m.lost > 0.2);
}

static void test_ones(void **state)
{
    static float out[MOST];
    (void)state;
    struct bl_sum_format f = bf16_ring;
    struct bl_sum_statistics m = measure(f, 512, 64, 0, 0, out);
    for (int i = 0; i < 64; i++)
        assert_true(out[i] * 512 == 256);
    assert_true(fabs(m.lost - 256.0 / 511) < 1e-12 && m.bias == -0.5);
    f.algorithm = BL_ALGORITHM_PAIRWISE;
    m = measure(f, 512, 64, 0, 0, out);
    assert_true(out[0] == 1 && m.error == 0 && m.lost == 0);
}

/* The mean stays where a stochastic rounding is; 16 is the deviation of 256 adds at a step of 2. */
static void test_stochastic(void **state)
{
    static float out[MOST], again[MOST], other[MOST];
    (void)state;
    for (int fp16 = 0; fp16 < 2; fp16++) {
        struct bl_sum_format f = bf16_ring;
        uint32_t ranks = fp16 ? 4096 : 512; /* fp16 has steps of 4 above 4096 */
        double total = 0;
        f.sum_rounding = BL_ROUND_STOCHASTIC;
        if (fp16)
            f.wire = f.sum = BL_FP16;
        measure(f, ranks, 512, 0, 1, out);
        measure(f, ranks, 512, 0, 1, again);
        measure(f, ranks, 512, 0, 2, other);
        assert_memory_equal(out, again, 512 * sizeof *out);
        assert_true(memcmp(out, other, 512 * sizeof *out) != 0);
        for (int i = 0; i < 512; i++)
            total += (double)out[i];
        assert_true(fabs(total / 512 - 1) < 5 * 16.0 / 512 / sqrt(512));
    }
}

/* 1/W in bf16 is too large by 1/512 at W = 3 * 2^k. The products are rounded too: the same 128
 * significands each time, whose errors leave 1.67e-3 / sqrt(128) of bias. */
static void test_premultiply(void **state)
{
    static const uint32_t worlds[] = {24, 48, 96, 16, 64};
    static float out[MOST];
    (void)state;
    for (int i = 0; i < 5; i++) {
        struct bl_sum_format f = {
            .wire = BL_BF16, .sum = BL_FP32, .average = BL_AVERAGE_PREMULTIPLY};
        double bias = measure(f, worlds[i], MOST, -1, 0, out).bias;
        print_message("premultiply, W %u: bias %+.3e\n", worlds[i], bias);
        assert_true(fabs(bias - (i < 3 ? 1.953e-3 : 0)) < 1.95e-4);
    }
}

static void test_many_ranks(void **state)
{
    enum { FEW = 48 };
    struct bl_cluster_options cluster = plain_cluster();
    float out[FEW];
    (void)state;
    cluster.channels = 2;
    for (uint32_t algorithm = 0; algorithm < 6; algorithm++) {
        struct bl_sum_buffer buffer = {.end = 100000, .format = bf16_ring};
        buffer.format.algorithm = algorithm;
        struct bl_sum_setup setup = setup_of(&buffer, 64, &cluster, 0);
        uint64_t small, large;
        assert_int_equal(bl_sum_describe(&setup, &small, NULL, NULL), 0);
        setup.ranks = 4096;
        assert_int_equal(bl_sum_describe(&setup, &large, NULL, NULL), 0);
        /* Trees need a partial sum more for each doubling of the nodes; tables take less than 64
         * bytes a rank. */
        struct bl_sum_buffer of[1] = {buffer};
        struct bl_order *a = reference_order(of, 64, &cluster);
        struct bl_order *b = reference_order(of, 4096, &cluster);
        uint64_t deeper = bl_order_depth(b) - bl_order_depth(a);
        assert_true(deeper <= 6);
        assert_true(large - small <= deeper * 400000 + 64 * 4096);
        bl_order_free(a);
        bl_order_free(b);

        struct gradients g;
        struct bl_error err = BL_ERROR_INIT;
        struct bl_sum *s = NULL;
        buffer.end = FEW;
        setup.elements = FEW;
        gradients_make(&g, 4096, FEW, 0, 0);
        assert_int_equal(bl_sum_make(&setup, &s, &err), 0);
        struct bl_sum_run run = {.contribute = gradients_contribute, .context = &g, .out = out};
        assert_int_equal(bl_sum_run(s, &run, &err), 0);
        double most = algorithm == BL_ALGORITHM_HYBRID ? 4
                      : algorithm == BL_ALGORITHM_PAIRWISE || algorithm == BL_ALGORITHM_ALLTOALL
                          ? 1
                          : 2;
        assert_true(bl_sum_visits(s) <= most);
        assert_true((double)g.calls == bl_sum_visits(s) * 4096);
        struct bl_order *o = reference_order(&buffer, 4096, &cluster);
        for (uint64_t i = 0; i < FEW; i++)
            assert_true(out[i] == reference_sum(&buffer, o, 4096, g.array, 0, i));
        bl_order_free(o);
        bl_sum_free(s);
        gradients_free(&g);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_laws),        cmocka_unit_test(test_bias),
        cmocka_unit_test(test_ones),        cmocka_unit_test(test_stochastic),
        cmocka_unit_test(test_premultiply), cmocka_unit_test(test_many_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
