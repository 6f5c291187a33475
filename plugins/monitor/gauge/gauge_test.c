#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdlib.h>

static void look(struct bl_bench *b)
{
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.observe(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

static void near(double got, double wanted, double relative)
{
    if (!(fabs(got - wanted) <= relative * fabs(wanted)))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "gauge", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    float w[6] = {1, 0, 3, 4, 2, 2}, g[6] = {1, 0, 1, 0, 1, 0};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "embed.weight", BL_GROUP_EMBEDDING, 3, 2, BL_WEIGHT, g);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, 3, 2, BL_WEIGHT, w);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, 3, 2, BL_CE_GRADIENT, g);
    bl_bench_open(&b, BL_KIND_MONITOR, "gauge", "");
    assert_int_equal(b.ops->monitor.needs(b.self), BL_MONITOR_CE_GRADIENT);
    look(&b);
    /* mu = (2, 2); row norms 1, 5, sqrt 8 */
    near(bl_bench_metric(&b, "logits/gauge"), sqrt(8.0), 1e-15);
    near(bl_bench_metric(&b, "logits/gauge_ratio"), sqrt(8.0) / ((6.0 + sqrt(8.0)) / 3.0), 1e-15);
    near(bl_bench_metric(&b, "logits/gauge_leak"), 1.0, 1e-15); /* equal rows */
    g[2] = -2;
    look(&b);
    assert_true(bl_bench_metric(&b, "logits/gauge_leak") == 0.0); /* rows sum to zero */
    g[2] = -1;                                                    /* sum (1, 0), ||G|| = sqrt 3 */
    look(&b);
    near(bl_bench_metric(&b, "logits/gauge_leak"), 1.0 / 3.0, 1e-15);
    g[0] = g[2] = g[4] = 0;
    look(&b);
    assert_false(bl_bench_has(&b, "logits/gauge_leak"));
    bl_bench_stop(&b);
}

static void test_tied(void **state)
{
    (void)state;
    float w[6] = {1, 0, 3, 4, 2, 2};
    struct bl_bench b;
    bl_bench_start(&b);
    b.info.tied = 1;
    b.info.head = "embed.weight";
    bl_bench_tensor(&b, "embed.weight", BL_GROUP_EMBEDDING, 3, 2, BL_WEIGHT, w);
    bl_bench_open(&b, BL_KIND_MONITOR, "gauge", "");
    assert_int_equal(b.ops->monitor.needs(b.self), 0);
    look(&b);
    look(&b);
    look(&b);
    near(bl_bench_metric(&b, "logits/gauge"), sqrt(8.0), 1e-15);
    assert_false(bl_bench_has(&b, "logits/gauge_leak"));
    assert_int_equal(bl_bench_logged(&b, "gauge_leak is absent"), 1);
    bl_bench_stop(&b);
}

/* Many blocks, a matrix whose mean row is small against its entries, blocks in either order. */
static void test_blocks(void **state)
{
    (void)state;
    enum { V = 1000, C = 33 };
    float *w = malloc(sizeof(float) * V * C);
    assert_non_null(w);
    double mu[C] = {0}, norms = 0.0, squares = 0.0, mu2 = 0.0;
    for (int v = 0; v < V; v++) {
        double row = 0.0;
        for (int c = 0; c < C; c++) {
            double x = w[v * C + c] = (float)(bl_bench_normal(3, (uint64_t)(v * C + c)) + 0.01);
            mu[c] += x / V;
            row += x * x;
        }
        norms += sqrt(row) / V;
        squares += row;
    }
    for (int c = 0; c < C; c++)
        mu2 += mu[c] * mu[c];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, V, C, BL_WEIGHT, w);
    bl_bench_tensor(&b, "head.weight", BL_GROUP_HEAD, V, C, BL_CE_GRADIENT, w);
    bl_bench_open(&b, BL_KIND_MONITOR, "gauge", "");
    double got[2][3];
    for (int r = 0; r < 2; r++) {
        b.reversed = r;
        look(&b);
        got[r][0] = bl_bench_metric(&b, "logits/gauge");
        got[r][1] = bl_bench_metric(&b, "logits/gauge_ratio");
        got[r][2] = bl_bench_metric(&b, "logits/gauge_leak");
    }
    assert_memory_equal(got[0], got[1], sizeof(got[0]));
    /* 1,000 fp64 terms that cancel to a thirtieth of their size */
    near(got[0][0], sqrt(mu2), 1e-12);
    near(got[0][1], sqrt(mu2) / norms, 1e-12);
    near(got[0][2], sqrt(mu2) * V / (sqrt(V) * sqrt(squares)), 1e-12);
    free(w);
    bl_bench_stop(&b);
}

static void test_missing_head(void **state)
{
    (void)state;
    struct bl_bench b;
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "gauge", "");
    assert_int_equal(b.ops->monitor.observe(b.self, b.host, &in, &err), -1);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common), cmocka_unit_test(test_by_hand), cmocka_unit_test(test_tied),
        cmocka_unit_test(test_blocks), cmocka_unit_test(test_missing_head)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
