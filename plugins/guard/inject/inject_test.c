#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

struct world {
    struct bl_bench b;
    float g[3], w[3], c[2];
};

static void open_world(struct world *w, const char *config)
{
    const float g[3] = {1, 2, -3}, x[3] = {4, 5, 6}, c[2] = {7, 8};
    memcpy(w->g, g, sizeof g);
    memcpy(w->w, x, sizeof x);
    memcpy(w->c, c, sizeof c);
    bl_bench_start(&w->b);
    bl_bench_tensor(&w->b, "a", BL_GROUP_MATRIX, 3, 1, BL_WEIGHT, w->w);
    bl_bench_tensor(&w->b, "a", BL_GROUP_MATRIX, 3, 1, BL_GRADIENT, w->g);
    bl_bench_tensor(&w->b, "c", BL_GROUP_NORM, 2, 0, BL_WEIGHT, w->c);
    bl_bench_tensor(&w->b, "c", BL_GROUP_NORM, 2, 0, BL_GRADIENT, w->c);
    bl_bench_open(&w->b, BL_KIND_GUARD, "inject", config);
}

static int step(struct world *w, uint64_t at, double *scale, uint32_t *changed)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = at, .loss = 1, .norm = 1};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    *changed = 0;
    bl_bench_forget(&w->b);
    int rc = w->b.ops->guard.gradient(w->b.self, w->b.host, &in, &out, changed, &w->b.err);
    *scale = out.scale;
    assert_int_equal(out.skip, 0);
    return rc;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "inject", "");
}

static void test_scale(void **state)
{
    (void)state;
    struct world w;
    double scale;
    uint32_t changed;
    open_world(&w, "steps = [ 3, 5 ]; factor = 20.0;");
    for (uint64_t at = 1; at < 8; at++) {
        assert_int_equal(step(&w, at, &scale, &changed), 0);
        float factor = at == 3 || at == 5 ? 20 : 1;
        assert_true(scale == 1 && changed == (factor > 1 ? BL_CHANGED_GRADIENT : 0));
        assert_true(w.g[0] == factor && w.g[2] == -3 * factor && w.w[0] == 4);
        w.g[0] = 1;
        w.g[1] = 2;
        w.g[2] = -3;
        assert_true(bl_bench_metric(&w.b, "guard/inject/active") == (at == 3 || at == 5));
    }
    assert_int_equal(bl_bench_logged(&w.b, "multiplied by 20"), 2);
    bl_bench_stop(&w.b);
}

/* Bit 30 of 1.0, 0x3f800000: 0x7f800000, infinity. Bit 31 is the sign. */
static void test_elements(void **state)
{
    (void)state;
    struct world w;
    double scale;
    uint32_t changed;
    open_world(&w, "steps = [ 2 ]; what = \"flip\";");
    assert_int_equal(step(&w, 1, &scale, &changed), 0);
    assert_true(w.g[0] == 1);
    assert_int_equal(step(&w, 2, &scale, &changed), 0);
    assert_true(isinf(w.g[0]) && w.g[1] == 2 && changed && scale == 1);
    bl_bench_stop(&w.b);
    open_world(&w, "steps = [ 2 ]; what = \"flip\"; bit = 31; element = 2; where = \"weight\";");
    assert_int_equal(step(&w, 2, &scale, &changed), 0);
    assert_true(w.w[2] == -6 && w.g[2] == -3 && changed == BL_CHANGED_WEIGHT);
    bl_bench_stop(&w.b);
    open_world(&w, "steps = [ 2 ]; what = \"nan\"; tensor = \"c\"; element = 1;");
    assert_int_equal(step(&w, 2, &scale, &changed), 0);
    assert_true(isnan(w.c[1]) && w.c[0] == 7 && changed);
    bl_bench_stop(&w.b);
}

static void test_refuses(void **state)
{
    (void)state;
    struct world w;
    double scale;
    uint32_t changed;
    open_world(&w, "steps = [ 2 ]; what = \"nan\"; tensor = \"d\";");
    assert_int_equal(step(&w, 1, &scale, &changed), 0);
    assert_int_equal(step(&w, 2, &scale, &changed), -1);
    assert_non_null(strstr(w.b.err.text, "no parameter"));
    bl_bench_stop(&w.b);
    open_world(&w, "steps = [ 2 ]; what = \"nan\"; element = 3;");
    assert_int_equal(step(&w, 2, &scale, &changed), -1);
    assert_non_null(strstr(w.b.err.text, "beyond the 3 elements"));
    bl_bench_refuses(&w.b, BL_KIND_GUARD, "inject", "steps = [ 0 ];", BL_EXIT_USAGE, "steps");
    bl_bench_refuses(&w.b, BL_KIND_GUARD, "inject", "bit = 32;", BL_EXIT_USAGE, "bit");
    bl_bench_stop(&w.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_scale),
                                       cmocka_unit_test(test_elements),
                                       cmocka_unit_test(test_refuses)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
