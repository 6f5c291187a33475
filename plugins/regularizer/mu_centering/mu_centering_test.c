#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "mu_centering", "");
}

static int project(const struct bl_bench *b, uint64_t rows, uint64_t cols, float *w,
                   struct bl_error *err)
{
    struct bl_tensor head = bl_bench_view("head.weight", BL_GROUP_HEAD, rows, cols, w);
    return b->ops->regularizer.project_weight(b->self, b->host, &head, err);
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    float w[] = {1, 2, 3, 4, 5, 9};
    const float expected[] = {-2, -3, 0, -1, 2, 4};
    assert_int_equal(project(&b, 3, 2, w, &b.err), 0);
    assert_memory_equal(w, expected, sizeof w);
    float row[] = {1, -7};
    assert_int_equal(project(&b, 1, 2, row, &b.err), 0);
    assert_true(row[0] == 0 && row[1] == 0);
    bl_bench_stop(&b);
}

static void test_centres(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    enum { V = 1000, C = 13, PADDING = 2 * C };
    static float w[V * C + PADDING], before[V * C + PADDING];
    for (int i = 0; i < V * C + PADDING; i++)
        before[i] = w[i] = (float)(1 + 0.5 * bl_bench_normal(9, (uint64_t)i));
    assert_int_equal(project(&b, V, C, w, &b.err), 0);
    for (int c = 0; c < C; c++) {
        double sum = 0;
        for (int v = 0; v < V; v++)
            sum += (double)w[v * C + c];
        /* Each element was rounded once, to half an ulp of numbers below 4: 2^-23 at most. */
        assert_true(fabs(sum / V) < 0x1p-23);
    }
    for (int i = V * C; i < V * C + PADDING; i++)
        assert_true(w[i] == before[i]);
    bl_bench_stop(&b);
}

static void test_keeps_probabilities(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    enum { V = 1000, C = 13, PADDING = 2 * C };
    static float w[V * C + PADDING], before[V * C + PADDING];
    for (int i = 0; i < V * C + PADDING; i++)
        before[i] = w[i] = (float)(1 + 0.5 * bl_bench_normal(9, (uint64_t)i));
    assert_int_equal(project(&b, V, C, w, &b.err), 0);
    for (int v = 1; v < V; v++) {
        double was = 0, is = 0;
        for (int c = 0; c < C; c++) {
            double h = bl_bench_normal(10, (uint64_t)c);
            was += h * ((double)before[v * C + c] - (double)before[c]);
            is += h * ((double)w[v * C + c] - (double)w[c]);
        }
        /* Differences of logits: 2 C roundings of 2^-24 times |h| <= 3. */
        assert_true(fabs(was - is) < 2 * C * 3 * 0x1p-24);
    }
    bl_bench_stop(&b);
}

static void test_same_bits_in_any_order(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    enum { V = 1000, C = 13, PADDING = 2 * C };
    static float w[V * C + PADDING], before[V * C + PADDING];
    for (int i = 0; i < V * C + PADDING; i++)
        before[i] = w[i] = (float)(1 + 0.5 * bl_bench_normal(9, (uint64_t)i));
    assert_int_equal(project(&b, V, C, w, &b.err), 0);
    b.reversed = 1;
    assert_int_equal(project(&b, V, C, before, &b.err), 0);
    assert_memory_equal(w, before, V * C * sizeof *w);
    bl_bench_stop(&b);
}

static void test_twice_is_once(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    enum { V = 1000, C = 13, PADDING = 2 * C };
    static float w[V * C + PADDING], before[V * C + PADDING];
    for (int i = 0; i < V * C + PADDING; i++)
        before[i] = w[i] = (float)(1 + 0.5 * bl_bench_normal(9, (uint64_t)i));
    assert_int_equal(project(&b, V, C, w, &b.err), 0);
    for (int i = 0; i < V * C; i++)
        before[i] = w[i];
    assert_int_equal(project(&b, V, C, w, &b.err), 0);
    for (int i = 0; i < V * C; i++)
        assert_true(fabs((double)w[i] - (double)before[i]) < 0x1p-22);
    bl_bench_stop(&b);
}

static void test_warns_when_tied(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    float w[] = {1, 2, 3, 4};
    assert_int_equal(project(&b, 2, 2, w, &b.err), 0);
    assert_int_equal(bl_bench_logged(&b, "tied"), 0);
    b.info.tied = 1;
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    for (int i = 0; i < 3; i++)
        assert_int_equal(project(&b, 2, 2, w, &b.err), 0);
    assert_int_equal(bl_bench_logged(&b, "weights are tied"), 1);
    bl_bench_stop(&b);
}

static void test_refuses_other_tensors(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_centering", "");
    float w[] = {1, 2, 3, 4};
    assert_int_equal(project(&b, 4, 0, w, &b.err), -1);
    assert_non_null(strstr(b.err.text, "head.weight"));
    assert_true(w[0] == 1 && w[3] == 4);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_centres),
        cmocka_unit_test(test_keeps_probabilities),
        cmocka_unit_test(test_same_bits_in_any_order),
        cmocka_unit_test(test_twice_is_once),
        cmocka_unit_test(test_warns_when_tied),
        cmocka_unit_test(test_refuses_other_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
