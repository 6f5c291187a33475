/* A model's parameters and dials as the buffers of a sum over ranks. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "reduce.h"
#include "sum_reference.h"

/* Two groups, padding between them, more than one block of work. */
enum { FLOATS = 40000, GAP = 20000, AFTER = 20016, MOST = 512 };

static struct bl_param items[3] = {
    {.name = "a.weight", .group = BL_GROUP_MATRIX, .count = 100, .offset = 0},
    {.name = "b.weight", .group = BL_GROUP_MATRIX, .count = GAP - 100, .offset = 100},
    {.name = "head.weight", .group = BL_GROUP_HEAD, .count = FLOATS - AFTER, .offset = AFTER},
};
static const struct bl_params params = {.items = items, .count = 3, .floats = FLOATS};

static struct bl_precision plain(void)
{
    struct bl_precision p;
    memset(&p, 0, sizeof p);
    p.size = sizeof p;
    for (int g = 0; g < BL_GROUP_COUNT; g++) {
        p.dial[g][BL_DIAL_WIRE] = p.dial[g][BL_DIAL_SUM] = BL_FP32;
        p.dial[g][BL_DIAL_AVERAGE] = BL_AVERAGE_DIVIDE;
        p.dial[g][BL_DIAL_ALGORITHM] = BL_ALGORITHM_ALLTOALL;
    }
    return p;
}

static void set(struct bl_precision *p, uint32_t dial, uint32_t value)
{
    for (int g = 0; g < BL_GROUP_COUNT; g++)
        p->dial[g][dial] = value;
}

/* The sum of what `contribute` gives for W ranks. */
static void reduce(const struct bl_reduce_setup *setup, bl_sum_contribute_f *contribute,
                   void *context, float *out, float *part)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    if (bl_reduce_make(setup, &s, &err) < 0)
        fail_msg("%s", err.text);
    struct bl_sum_run run = {
        .contribute = contribute, .context = context, .out = out, .part_out = part};
    if (bl_sum_run(s, &run, &err) < 0)
        fail_msg("%s", err.text);
    bl_sum_free(s);
}

static int same(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                struct bl_error *err)
{
    (void)rank, (void)again, (void)err;
    out->array = context;
    return 0;
}

static void test_two_plain_ranks(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = 2, .head = 2};
    struct gradients g;
    float *out = calloc(FLOATS, sizeof *out), *part = calloc(FLOATS - AFTER, sizeof *part);
    assert_true(out && part);
    gradients_make(&g, 2, FLOATS, AFTER, FLOATS - AFTER);
    reduce(&setup, gradients_contribute, &g, out, part);
    for (int i = 0; i < FLOATS; i++)
        assert_true(out[i] == (g.array[0][i] + g.array[1][i]) * 0.5f);
    for (int i = 0; i < FLOATS - AFTER; i++)
        assert_true(part[i] == (g.part[0][i] + g.part[1][i]) * 0.5f);
    free(part);
    free(out);
    gradients_free(&g);
}

static void test_one_rank_is_nothing(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = 1, .head = -1};
    float *g = calloc(FLOATS, sizeof *g), *copy = calloc(FLOATS, sizeof *copy);
    assert_true(g && copy);
    for (uint64_t i = 0; i < FLOATS; i++)
        copy[i] = (float)bl_random_normal(1, 0, i);
    copy[5] = -0.0f;
    for (uint32_t average = 0; average < 4; average++)
        for (uint32_t algorithm = 0; algorithm < 6; algorithm++) {
            if (average == BL_AVERAGE_PREMULTIPLY && algorithm == BL_ALGORITHM_NVLS)
                continue;
            set(&p, BL_DIAL_AVERAGE, average);
            set(&p, BL_DIAL_ALGORITHM, algorithm);
            memcpy(g, copy, FLOATS * sizeof *g);
            reduce(&setup, same, g, g, NULL);
            assert_memory_equal(g, copy, FLOATS * sizeof *g);
        }
    /* A bf16 wire rounds even then, that of its own group. */
    p = plain();
    p.dial[BL_GROUP_HEAD][BL_DIAL_WIRE] = BL_BF16;
    reduce(&setup, same, g, g, NULL);
    assert_memory_equal(g, copy, GAP * sizeof *g);
    for (int i = AFTER; i < FLOATS; i++)
        assert_true(g[i] == reference_round(BL_BF16, copy[i]));
    free(copy);
    free(g);
}

/* A bf16 partial sum of equal ones stops at 256, where the spacing is 2 and halves go to even. */
static void test_stall(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = 512, .head = -1};
    float *one = calloc(FLOATS, sizeof *one), *out = calloc(FLOATS, sizeof *out);
    assert_true(one && out);
    for (int i = 0; i < FLOATS; i++)
        one[i] = 1.0f;
    p.dial[BL_GROUP_MATRIX][BL_DIAL_SUM] = BL_BF16;
    reduce(&setup, same, one, out, NULL);
    assert_true(out[0] == 0.5f && out[GAP - 1] == 0.5f);
    assert_true(out[AFTER] == 1.0f && out[FLOATS - 1] == 1.0f); /* the head's own dial */
    free(out);
    free(one);
}

/* Powers of two are exact: what predivision changes is the range. W = 4 has f = 2. */
static void test_predivide_range(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_param item = {.name = "a", .group = BL_GROUP_MATRIX, .count = 2};
    struct bl_params two = {.items = &item, .count = 1, .floats = 2};
    struct bl_reduce_setup setup = {
        .params = &two, .dials = &p, .cluster = &cluster, .ranks = 4, .head = -1};
    float g[2] = {1.6e38f, 3e38f}, out[2];
    for (int predivide = 0; predivide < 2; predivide++) {
        set(&p, BL_DIAL_AVERAGE, predivide ? BL_AVERAGE_PREDIVIDE : BL_AVERAGE_DIVIDE);
        reduce(&setup, same, g, out, NULL);
        assert_true(predivide ? out[0] == g[0] : isinf(out[0]));
        assert_true(isinf(out[1])); /* 4 x 1.5e38 */
    }
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
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = 3, .head = -1};
    float *out[2];
    set(&p, BL_DIAL_WIRE, BL_BF16);
    set(&p, BL_DIAL_SUM, BL_BF16);
    set(&p, BL_DIAL_SUM_ROUNDING, BL_ROUND_STOCHASTIC);
    set(&p, BL_DIAL_ALGORITHM, BL_ALGORITHM_RING);
    for (int back = 0; back < 2; back++) {
        struct gradients g;
        gradients_make(&g, 3, FLOATS, 0, 0);
        out[back] = calloc(FLOATS, sizeof *out[back]);
        assert_non_null(out[back]);
        setup.backend = back ? &backend : NULL;
        reduce(&setup, gradients_contribute, &g, out[back], NULL);
        gradients_free(&g);
    }
    assert_memory_equal(out[0], out[1], FLOATS * sizeof(float));
    free(out[1]);
    free(out[0]);
}

/* ---- buckets --------------------------------------------------------------------------------- */

/* Lengths of the buffers, as the log tells them. */
static void check_buckets(const struct bl_precision *p, int64_t bucket, const char *want)
{
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = p, .cluster = &cluster, .ranks = 2, .head = -1};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text text = {0};
    struct bl_sum *s = NULL;
    cluster.bucket = bucket;
    assert_int_equal(bl_reduce_make(&setup, &s, &err), 0);
    bl_sum_text(s, &text);
    if (strncmp(text.text, want, strlen(want)) != 0)
        fail_msg("\"%s\" does not begin with \"%s\"", text.text, want);
    uint64_t bytes = 0;
    assert_int_equal(bl_reduce_describe(&setup, &bytes, NULL, &err), 0);
    assert_true(bytes > 0);
    bl_text_free(&text);
    bl_sum_free(s);
}

static void test_buckets(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    check_buckets(&p, 4 * FLOATS, "1 buffer, 40000 elements: all_reduce, wire fp32, sum fp32");
    check_buckets(&p, 4 * FLOATS - 1, "2 buffers, 39984 elements"); /* the head does not fit */
    check_buckets(&p, 4 * GAP - 1, "3 buffers, 39984 elements");
    check_buckets(&p, 1, "3 buffers"); /* no tensor is cut */
    set(&p, BL_DIAL_WIRE, BL_BF16);
    check_buckets(&p, 2 * FLOATS, "1 buffer, 40000 elements: all_reduce, wire bf16");
    p.dial[BL_GROUP_HEAD][BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_REDUCE_SCATTER;
    check_buckets(&p, 2 * FLOATS, "1 buffer, 20000 elements"); /* and one of other dials */
    p.dial[BL_GROUP_HEAD][BL_DIAL_COLLECTIVE] = BL_COLLECTIVE_ALL_REDUCE;
    p.dial[BL_GROUP_HEAD][BL_DIAL_COMPUTE] = BL_BF16; /* no dial of a reduction */
    check_buckets(&p, 2 * FLOATS, "1 buffer, 40000 elements");
}

/* Statistics are those of groups, also where they share a buffer. */
static void test_groups(void **state)
{
    (void)state;
    struct bl_precision p = plain();
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = 2, .head = -1};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    struct bl_sum_statistics head, matrix, all, none;
    struct gradients g;
    float *out = calloc(FLOATS, sizeof *out);
    double squares = 0;
    assert_non_null(out);
    gradients_make(&g, 2, FLOATS, 0, 0);
    for (uint32_t r = 0; r < 2; r++)
        memset(g.array[r] + GAP, 0, (AFTER - GAP) * sizeof(float));
    assert_int_equal(bl_reduce_make(&setup, &s, &err), 0);
    struct bl_sum_run run = {
        .contribute = gradients_contribute, .context = &g, .out = out, .measure = 1};
    assert_int_equal(bl_sum_run(s, &run, &err), 0);
    for (int i = AFTER; i < FLOATS; i++)
        squares += pow(((double)g.array[0][i] + (double)g.array[1][i]) / 2, 2);
    bl_sum_measured(s, BL_GROUP_HEAD, &head);
    bl_sum_measured(s, BL_GROUP_MATRIX, &matrix);
    bl_sum_measured(s, BL_GROUP_NORM, &none);
    bl_sum_measured(s, BL_GROUP_COUNT, &all);
    assert_true(fabs(head.squares / squares - 1) < 1e-12);
    assert_true(fabs((head.squares + matrix.squares) / all.squares - 1) < 1e-12);
    assert_true(none.squares == 0 && isnan(none.error) && isnan(none.lost));
    bl_sum_free(s);
    gradients_free(&g);
    free(out);
}

/* ---- refusals -------------------------------------------------------------------------------- */

static void refused(struct bl_precision p, uint32_t ranks, const char *word)
{
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_reduce_setup setup = {
        .params = &params, .dials = &p, .cluster = &cluster, .ranks = ranks, .head = -1};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    assert_int_equal(bl_reduce_make(&setup, &s, &err), -1);
    assert_null(s);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, err.text);
    uint64_t bytes;
    assert_int_equal(bl_reduce_describe(&setup, &bytes, NULL, &err), -1);
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
    p.dial[BL_GROUP_MATRIX][BL_DIAL_AVERAGE] = 9;
    refused(p, 2, "precision.matrix.average");
    p = plain();
    p.dial[BL_GROUP_MATRIX][BL_DIAL_SUM_ROUNDING] = BL_ROUND_KAHAN;
    refused(p, 2, "precision.matrix.sum_rounding");
    p = plain();
    set(&p, BL_DIAL_ALGORITHM, BL_ALGORITHM_TREE);
    refused(p, 12,
            "12 ranks are no whole number of nodes of 8: set cluster.ranks_per_node to 6 "
            "or 12");
    set(&p, BL_DIAL_COLLECTIVE, BL_COLLECTIVE_REDUCE_SCATTER);
    refused(p, 8, "reduce_scatter");
    p = plain();
    set(&p, BL_DIAL_ALGORITHM, BL_ALGORITHM_NVLS);
    set(&p, BL_DIAL_AVERAGE, BL_AVERAGE_PREMULTIPLY);
    refused(p, 8, "premultiply");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_plain_ranks), cmocka_unit_test(test_one_rank_is_nothing),
        cmocka_unit_test(test_stall),           cmocka_unit_test(test_predivide_range),
        cmocka_unit_test(test_order_of_blocks), cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_groups),          cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
