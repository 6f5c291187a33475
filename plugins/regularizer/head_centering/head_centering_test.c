#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "head_centering", "");
}

static void project(const struct bl_bench *b, uint64_t rows, uint64_t cols, float *g)
{
    struct bl_tensor gradient = bl_bench_view("head.weight", BL_GROUP_HEAD, rows, cols, g);
    struct bl_error err = BL_ERROR_INIT;
    if (b->ops->regularizer.project_grad(b->self, b->host, &gradient, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "head_centering", "");
    float g[] = {1, 2, 3, 4, 5, 9};
    const float expected[] = {-2, -3, 0, -1, 2, 4};
    project(&b, 3, 2, g);
    assert_memory_equal(g, expected, sizeof g);
    bl_bench_stop(&b);
}

enum { V = 1000, C = 13, PADDING = 2 * C };

static void fill(float *g)
{
    for (int i = 0; i < V * C + PADDING; i++)
        g[i] = (float)(0.01 + bl_bench_normal(9, (uint64_t)i));
}

/* Columns sum to zero, what lies behind stays, once more changes next to nothing, and any order of
 * the blocks gives the same bits. */
static void test_projection(void **state)
{
    static float g[V * C + PADDING], before[V * C + PADDING], twice[V * C + PADDING];
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "head_centering", "");
    fill(g);
    fill(before);
    project(&b, V, C, g);
    for (int c = 0; c < C; c++) {
        double sum = 0;
        for (int v = 0; v < V; v++)
            sum += (double)g[v * C + c];
        /* Each element was rounded once, to half an ulp of numbers below 8. */
        assert_true(fabs(sum / V) < 0x1p-22);
    }
    assert_memory_equal(g + V * C, before + V * C, PADDING * sizeof(float));
    memcpy(twice, g, sizeof g);
    project(&b, V, C, twice);
    for (int i = 0; i < V * C; i++)
        assert_true(fabsf(twice[i] - g[i]) <= 0x1p-21f);
    b.reversed = 1;
    project(&b, V, C, before);
    assert_memory_equal(g, before, V * C * sizeof(float));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_hand),
        cmocka_unit_test(test_projection),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
