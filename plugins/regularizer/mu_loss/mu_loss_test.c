#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_REGULARIZER, "mu_loss", "");
}

static void test_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "");
    /* mu = (3, 5): value 34; gradient + 0.5 * 2/3 * mu = (1, 5/3) a row */
    float w[] = {1, 2, 3, 4, 5, 9}, g[] = {0, 0, 1, 1, -2, 0};
    const float expected[] = {1, (float)(5.0 / 3), 2, (float)(1 + 5.0 / 3), -1, (float)(5.0 / 3)};
    struct bl_tensor head = bl_bench_view("head.weight", BL_GROUP_HEAD, 3, 2, w);
    struct bl_tensor gradient = bl_bench_view("head.weight", BL_GROUP_HEAD, 3, 2, g);
    assert_true(b.ops->regularizer.weight_grad(b.self, b.host, &head, &gradient, 0.5) == 34);
    for (int i = 0; i < 6; i++)
        assert_true(fabsf(g[i] - expected[i]) <= 0x1p-23f * fabsf(expected[i]));
    bl_bench_stop(&b);
}

/* Rows relative to each other feel nothing: the same vector is added to all. */
static void test_pure_gauge(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "");
    enum { V = 700, C = 5 };
    static float w[V * C], g[V * C];
    for (int i = 0; i < V * C; i++)
        w[i] = (float)bl_bench_normal(4, (uint64_t)i);
    struct bl_tensor head = bl_bench_view("head.weight", BL_GROUP_HEAD, V, C, w);
    struct bl_tensor gradient = bl_bench_view("head.weight", BL_GROUP_HEAD, V, C, g);
    b.ops->regularizer.weight_grad(b.self, b.host, &head, &gradient, 10);
    for (int i = 0; i < V * C; i++)
        assert_true(g[i] == g[i % C]);
    bl_bench_stop(&b);
}

static void test_derivatives(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "");
    bl_bench_check_weight_grad(&b, 1, 3);
    bl_bench_check_weight_grad(&b, 40, 5);
    bl_bench_check_weight_grad(&b, 600, 3);
    bl_bench_stop(&b);
}

static void test_tied(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    b.info.tied = 1;
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "");
    assert_int_equal(bl_bench_logged(&b, "model.tied = false"), 1);
    bl_bench_stop(&b);
}

static void test_coefficient(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "");
    assert_true(b.ops->regularizer.coefficient(b.self, 1) == 1e-4);
    assert_false(b.instance->null);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "coefficient = 0.25;");
    assert_true(b.ops->regularizer.coefficient(b.self, 1000) == 0.25);
    bl_bench_open(&b, BL_KIND_REGULARIZER, "mu_loss", "coefficient = 0.0;");
    assert_true(b.instance->null);
    bl_bench_refuses(&b, BL_KIND_REGULARIZER, "mu_loss", "coefficient = -1;", BL_EXIT_USAGE,
                     "coefficient");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),     cmocka_unit_test(test_hand),
        cmocka_unit_test(test_pure_gauge), cmocka_unit_test(test_derivatives),
        cmocka_unit_test(test_tied),       cmocka_unit_test(test_coefficient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
