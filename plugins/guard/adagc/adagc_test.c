#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

struct world {
    struct bl_bench b;
    float a[2], c[1];
};

static void open_world(struct world *w, const char *config)
{
    bl_bench_start(&w->b);
    bl_bench_tensor(&w->b, "a", BL_GROUP_MATRIX, 1, 2, BL_GRADIENT, w->a);
    bl_bench_tensor(&w->b, "c", BL_GROUP_NORM, 1, 0, BL_GRADIENT, w->c);
    bl_bench_open(&w->b, BL_KIND_GUARD, "adagc", config);
}

/* A step with gradients of these norms; -1 = skipped, else whether something was changed. */
static int step(struct world *w, float a, float c)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = 1, .loss = 1, .norm = 1};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    uint32_t changed = 0;
    w->a[0] = 0.6f * a;
    w->a[1] = -0.8f * a;
    w->c[0] = c;
    bl_bench_forget(&w->b);
    assert_int_equal(w->b.ops->guard.gradient(w->b.self, w->b.host, &in, &out, &changed, &w->b.err),
                     0);
    w->b.ops->guard.settle(w->b.self, out.skip);
    assert_true(out.scale == 1);
    return out.skip ? -1 : (int)changed;
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 3e-7 * fabs(wanted))) /* fp32 elements, scaled once */
        fail_msg("got %.9g, wanted %.9g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "adagc", "");
}

/* absolute 10, warmup 2: (12, 16) has norm 20, so it is halved: gamma 6, 8. (3, 20) has norm
 * sqrt 409 > 10: gamma 3 / 2.0224, 8. Then relative 2, beta 0.5: limits 2.967 and 16. (6, 4): a is
 * clipped to 2.967, gamma 0.5 (1.483 + 2.967), c passes, gamma 0.5 (8 + 4). */
static void test_by_hand(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, "relative = 2.0; beta = 0.5; absolute = 10.0; warmup = 2;");
    assert_int_equal(step(&w, 12, 16), 1);
    near(w.c[0], 8);
    near(w.a[1], -0.8 * 6);
    assert_int_equal(step(&w, 3, 20), 1);
    double gamma = 3 * 10 / sqrt(409);
    assert_int_equal(step(&w, 6, 4), 1);
    near(w.a[0], 0.6 * 2 * gamma);
    assert_true(w.c[0] == 4);
    assert_true(bl_bench_metric(&w.b, "guard/adagc/clipped") == 1);
    near(bl_bench_metric(&w.b, "guard/adagc/scale"), 2 * gamma / 6);
    gamma = 0.5 * (gamma + 2 * gamma);
    assert_int_equal(step(&w, 1, 11.9f), 0); /* limits 2 gamma and 12 */
    gamma = 0.5 * (gamma + 1);
    assert_int_equal(step(&w, 100, 1), 1);
    near(w.a[0], 0.6 * 2 * gamma);
    bl_bench_stop(&w.b);
}

static void test_not_finite_and_resume(void **state)
{
    (void)state;
    struct world w, x;
    open_world(&w, "warmup = 3;");
    open_world(&x, "warmup = 3;");
    for (int i = 0; i < 20; i++) {
        float a = (float)(1 + 0.5 * sin(1.7 * i)), c = (float)(2 + cos(2.9 * i));
        int changed = step(&w, a, c);
        assert_int_equal(step(&x, i % 2 ? NAN : 1, i % 2 ? 1 : INFINITY), 0);
        bl_bench_reload(&x.b);
        assert_int_equal(step(&x, a, c), changed);
        assert_memory_equal(w.a, x.a, sizeof w.a);
        assert_memory_equal(w.c, x.c, sizeof w.c);
    }
    bl_bench_stop(&x.b);
    bl_bench_stop(&w.b);
}

/* A tensor without a gradient at first, and a state that is of another model. */
static void test_edges(void **state)
{
    (void)state;
    struct world w;
    struct bl_error err = BL_ERROR_INIT;
    const uint64_t other[5] = {7, 3, 0, 0, 0}, broken[3] = {7, 2, 0};
    open_world(&w, "warmup = 1;");
    assert_int_equal(step(&w, 0, 0.5f), 0);
    assert_int_equal(step(&w, 0, 0.5f), 0); /* 0 of 0 is no reason */
    assert_int_equal(step(&w, 1, 0.5f), 1); /* its first: clipped as in the warmup, to norm 1 */
    near(w.a[0], 0.6 / sqrt(1.25));
    assert_int_equal(step(&w, 1, 0.5f), 1); /* from here on its own average */
    near(w.a[0], 0.6 * 1.05 / sqrt(1.25));
    assert_int_equal(w.b.ops->guard.load(w.b.self, broken, sizeof broken, &err), -1);
    struct {
        uint64_t head[2];
        double gamma[2];
    } damaged = {{7, 2}, {1, NAN}};
    assert_int_equal(w.b.ops->guard.load(w.b.self, &damaged, sizeof damaged, &err), -1);
    assert_non_null(strstr(err.text, "damaged"));
    assert_int_equal(w.b.ops->guard.load(w.b.self, other, sizeof other, &err), 0);
    struct bl_guard_input in = {.size = sizeof(in), .step = 1, .loss = 1, .norm = 1};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    uint32_t changed = 0;
    assert_int_equal(w.b.ops->guard.gradient(w.b.self, w.b.host, &in, &out, &changed, &err), -1);
    assert_non_null(strstr(err.text, "3 tensors, the model has 2"));
    bl_bench_stop(&w.b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_not_finite_and_resume), cmocka_unit_test(test_edges)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
