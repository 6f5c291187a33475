/* The reduction over emulated ranks, against a scalar reference that rounds by arithmetic in fp64
 * instead of by bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"
#include "reduce.h"

/* Two groups, a gap of padding between them, more than one block of work. */
enum { FLOATS = 40000, GAP = 20000, AFTER = 20016 };

static struct bl_param items[3] = {
    {.name = "a.weight", .group = BL_GROUP_MATRIX, .count = 100, .offset = 0},
    {.name = "b.weight", .group = BL_GROUP_MATRIX, .count = GAP - 100, .offset = 100},
    {.name = "head.weight", .group = BL_GROUP_HEAD, .count = FLOATS - AFTER, .offset = AFTER},
};
static const struct bl_params params = {.items = items, .count = 3, .floats = FLOATS};

static struct bl_precision plain(void)
{
    struct bl_precision p;
    memset(&p, 0, sizeof(p));
    p.size = sizeof(p);
    for (int g = 0; g < BL_GROUP_COUNT; g++) {
        p.dial[g][BL_DIAL_WIRE] = p.dial[g][BL_DIAL_SUM] = BL_FP32;
        p.dial[g][BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE;
        p.dial[g][BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL;
    }
    return p;
}

static float *arena(void)
{
    float *x = calloc(FLOATS, sizeof(float));
    assert_non_null(x);
    return x;
}

static void fill(float *x, uint64_t rank)
{
    for (uint64_t i = 0; i < FLOATS; i++)
        x[i] = (float)bl_random_normal(1, rank, i);
}

/* bf16 has 8 significant bits. rint rounds halves to even; fp64 holds x / unit exactly. */
static double bf16(double x)
{
    int exponent;
    if (x == 0.0 || !isfinite(x))
        return x;
    frexp(x, &exponent);
    double unit = ldexp(1.0, exponent - 8);
    return rint(x / unit) * unit;
}

static double to(uint32_t dtype, double x)
{
    return dtype == BL_BF16 ? bf16(x) : (double)(float)x;
}

/* One element: arithmetic in fp32, then rounded to the format. */
static double reference(const uint32_t *dial, const double *g, uint64_t ranks)
{
    uint32_t wire = dial[BL_DIAL_WIRE], sum = dial[BL_DIAL_SUM];
    double f = 1.0, total = 0.0, w = (double)ranks;
    if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREDIVIDE)
        while (fmod(w, f) == 0.0 && w / f > f)
            f *= 2.0;
    for (uint64_t r = 0; r < ranks; r++) {
        double x = to(wire, g[r]);
        switch (dial[BL_DIAL_AVERAGE]) {
        case BL_AVERAGE_DIVIDE_FIRST:
            x = to(wire, (double)((float)x / (float)w));
            break;
        case BL_AVERAGE_PREMULTIPLY:
            x = to(wire, (double)((float)x * (float)to(wire, (double)(1.0f / (float)w))));
            break;
        case BL_AVERAGE_PREDIVIDE:
            x = to(wire, (double)((float)x / (float)f));
            break;
        default:
            break;
        }
        total = to(sum, r == 0 ? x : (double)((float)total + (float)x));
    }
    if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_DIVIDE)
        total = to(sum, (double)((float)total / (float)w));
    if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREDIVIDE)
        total = to(sum, (double)((float)total / (float)(w / f)));
    return total;
}

static void test_two_plain_ranks(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_reduce r = {NULL, &params, &p, 2};
    float *g0 = arena(), *g1 = arena(), *sum = arena();
    fill(g0, 0);
    fill(g1, 1);
    sum[GAP + 3] = 7.0f;
    assert_int_equal(bl_reduce_check(&r, NULL), 0);
    bl_reduce_add(&r, sum, g0, 0);
    bl_reduce_add(&r, sum, g1, 1);
    bl_reduce_finish(&r, sum, g1 /* free by now */);
    fill(sum, 1);
    for (int i = 0; i < FLOATS; i++)
        if (i < GAP || i >= AFTER)
            assert_true(g1[i] == (g0[i] + sum[i]) * 0.5f);
        else
            assert_true(g1[i] == sum[i]); /* padding is nobody's */
    free(sum);
    free(g1);
    free(g0);
}

static void test_one_rank_is_nothing(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_reduce r = {NULL, &params, &p, 1};
    float *g = arena(), *copy = arena();
    for (int average = 0; average < 4; average++) {
        for (int group = 0; group < BL_GROUP_COUNT; group++)
            p.dial[group][BL_DIAL_AVERAGE] = (uint32_t)average;
        fill(g, 0);
        g[5] = -0.0f;
        memcpy(copy, g, sizeof(float) * FLOATS);
        bl_reduce_add(&r, g, g, 0);
        bl_reduce_finish(&r, g, g);
        assert_memory_equal(g, copy, sizeof(float) * FLOATS);
    }
    /* A bf16 wire rounds even then. */
    p.dial[BL_GROUP_HEAD][BL_DIAL_WIRE] = BL_BF16;
    bl_reduce_add(&r, g, g, 0);
    bl_reduce_finish(&r, g, g);
    assert_memory_equal(g, copy, sizeof(float) * GAP);
    for (int i = AFTER; i < FLOATS; i++)
        assert_true((double)g[i] == bf16((double)copy[i]));
    free(copy);
    free(g);
}

/* Every combination of dials, a different one for the head, several W, odd ones too. */
static void test_reference(void **state)
{
    (void)state;
    static const uint64_t worlds[] = {2, 3, 6, 8, 12};
    enum { MOST = 12, STEP = 37 };
    float *g[MOST], *sum = arena(), *out = arena();
    for (uint64_t k = 0; k < MOST; k++) {
        g[k] = arena();
        fill(g[k], k);
    }
    for (size_t n = 0; n < sizeof(worlds) / sizeof(worlds[0]); n++)
        for (uint32_t c = 0; c < 16; c++) {
            struct bl_precision p = plain();
            struct bl_reduce r = {NULL, &params, &p, worlds[n]};
            for (int group = 0; group < BL_GROUP_COUNT; group++) {
                uint32_t mine = group == BL_GROUP_HEAD ? c ^ 5u : c;
                p.dial[group][BL_DIAL_WIRE] = mine & 1 ? BL_BF16 : BL_FP32;
                p.dial[group][BL_DIAL_SUM] = mine & 2 ? BL_BF16 : BL_FP32;
                p.dial[group][BL_DIAL_AVERAGE] = mine >> 2;
            }
            assert_int_equal(bl_reduce_check(&r, NULL), 0);
            for (uint64_t k = 0; k < worlds[n]; k++)
                bl_reduce_add(&r, sum, g[k], k);
            bl_reduce_finish(&r, sum, out);
            for (uint64_t i = 0; i < FLOATS; i += STEP) {
                double one[MOST];
                if (i >= GAP && i < AFTER)
                    continue;
                for (uint64_t k = 0; k < worlds[n]; k++)
                    one[k] = (double)g[k][i];
                uint32_t group = i < GAP ? BL_GROUP_MATRIX : BL_GROUP_HEAD;
                double wanted = reference(p.dial[group], one, worlds[n]);
                if ((double)out[i] != wanted)
                    fail_msg("W %d, case %u, element %d: %.9g, wanted %.9g", (int)worlds[n], c,
                             (int)i, (double)out[i], wanted);
            }
        }
    for (uint64_t k = 0; k < MOST; k++)
        free(g[k]);
    free(out);
    free(sum);
}

/* A bf16 partial sum of equal ones stops at 256, where the spacing is 2 and halves go to even. */
static void test_stall(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_reduce r = {NULL, &params, &p, 512};
    float *one = arena(), *sum = arena();
    for (int i = 0; i < FLOATS; i++)
        one[i] = 1.0f;
    p.dial[BL_GROUP_MATRIX][BL_DIAL_SUM] = BL_BF16;
    for (uint64_t k = 0; k < 512; k++)
        bl_reduce_add(&r, sum, one, k);
    assert_true(sum[0] == 256.0f && sum[GAP - 1] == 256.0f);
    assert_true(sum[AFTER] == 512.0f); /* the head's own dial */
    bl_reduce_finish(&r, sum, sum);
    assert_true(sum[0] == 0.5f && sum[AFTER] == 1.0f);
    free(sum);
    free(one);
}

/* Powers of two are exact: what predivision changes is the range. W = 4 has f = 2. */
static void test_predivide_range(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_reduce r = {NULL, &params, &p, 4};
    static const float g[2] = {1.6e38f, 3e38f};
    float sum[2];
    for (int predivide = 0; predivide < 2; predivide++) {
        if (predivide)
            p.dial[BL_GROUP_MATRIX][BL_DIAL_AVERAGE] = BL_AVERAGE_PREDIVIDE;
        for (uint64_t k = 0; k < 4; k++)
            bl_reduce_add_array(&r, BL_GROUP_MATRIX, 2, sum, g, k);
        bl_reduce_finish_array(&r, BL_GROUP_MATRIX, 2, sum, sum);
        assert_true(predivide ? sum[0] == g[0] : isinf(sum[0]));
        assert_true(isinf(sum[1])); /* 4 x 1.5e38 */
    }
}

static void test_rounding(void **state)
{
    (void)state;
    static const float in[8] = {1.00390625f, /* halfway between 1 and the next: to even */
                                1.01171875f, /* halfway, even is above */
                                1.0039064f,  3.4e38f, -3.4e38f, INFINITY, 1e-40f, -0.0f};
    float out[8], nan[1] = {NAN};
    struct bl_precision p = plain();
    struct bl_reduce r = {NULL, &params, &p, 1};
    p.dial[BL_GROUP_NORM][BL_DIAL_WIRE] = BL_BF16;
    bl_reduce_add_array(&r, BL_GROUP_NORM, 8, out, in, 0);
    assert_true(out[0] == 1.0f);
    assert_true(out[1] == 1.015625f);
    assert_true(out[2] == 1.0078125f);
    assert_true(isinf(out[3]) && out[3] > 0); /* beyond the largest bf16 and its half step */
    assert_true(isinf(out[4]) && out[4] < 0);
    assert_true(isinf(out[5]));
    assert_true(fabsf(out[6] - 1e-40f) <= 4.7e-41f); /* half a bf16 subnormal step of 2^-133 */
    assert_true(out[7] == 0.0f && signbit(out[7]));
    bl_reduce_add_array(&r, BL_GROUP_NORM, 1, nan, nan, 0);
    assert_true(isnan(nan[0]));
}

static void reversed(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t),
                     void *argument)
{
    (void)b;
    while (n-- > 0)
        body(argument, n);
}

static void test_order_of_blocks(void **state)
{
    (void)state;
    struct bl_backend_ops ops = {.parallel_for = reversed};
    struct bl_backend backend = {.ops = &ops};
    struct bl_precision p = plain();
    float *g = arena(), *a = arena(), *b = arena();
    p.dial[BL_GROUP_MATRIX][BL_DIAL_WIRE] = BL_BF16;
    for (int back = 0; back < 2; back++) {
        struct bl_reduce r = {back ? &backend : NULL, &params, &p, 3};
        for (uint64_t k = 0; k < 3; k++) {
            fill(g, k);
            bl_reduce_add(&r, back ? b : a, g, k);
        }
        bl_reduce_finish(&r, back ? b : a, back ? b : a);
    }
    assert_memory_equal(a, b, sizeof(float) * FLOATS);
    free(b);
    free(a);
    free(g);
}

static void refused(struct bl_precision p, uint64_t ranks, const char *word)
{
    struct bl_reduce r = {NULL, &params, &p, ranks};
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(bl_reduce_check(&r, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, err.text);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    refused(p, 0, "0 ranks");
    p.dial[BL_GROUP_HEAD][BL_DIAL_WIRE] = BL_FP64;
    refused(p, 2, "precision.head.wire");
    p = plain();
    p.dial[BL_GROUP_NORM][BL_DIAL_SUM] = 0;
    refused(p, 2, "precision.norm.sum");
    p = plain();
    p.dial[BL_GROUP_MATRIX][BL_DIAL_ALGORITHM] = BL_ALGORITHM_RING;
    refused(p, 2, "alltoall");
    p = plain();
    p.dial[BL_GROUP_MATRIX][BL_DIAL_AVERAGE] = 9;
    refused(p, 2, "average");
    p = plain();
    p.dial[BL_GROUP_MATRIX][BL_DIAL_SUM_ROUNDING] = BL_ROUND_STOCHASTIC;
    refused(p, 2, "sum_rounding");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_plain_ranks), cmocka_unit_test(test_one_rank_is_nothing),
        cmocka_unit_test(test_reference),       cmocka_unit_test(test_stall),
        cmocka_unit_test(test_rounding),        cmocka_unit_test(test_predivide_range),
        cmocka_unit_test(test_order_of_blocks), cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
