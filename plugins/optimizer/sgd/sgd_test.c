#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 5003 };

struct arrays {
    float w[N], g[N], b[N];
};

static struct arrays *make(uint64_t stream)
{
    struct arrays *a = malloc(sizeof(*a));
    assert_non_null(a);
    for (uint64_t i = 0; i < N; i++) {
        a->w[i] = (float)bl_bench_normal(stream, i);
        a->g[i] = (float)bl_bench_normal(stream + 1, i);
        a->b[i] = (float)bl_bench_normal(stream + 2, i);
    }
    return a;
}

static struct bl_update update(struct arrays *a, float **state)
{
    state[0] = a->b;
    return (struct bl_update){.size = sizeof(struct bl_update),
                              .step = 1,
                              .count = N,
                              .weight = a->w,
                              .gradient = a->g,
                              .state = state,
                              .gradient_scale = 0.7,
                              .learning_rate = 0.03,
                              .weight_decay = 0.2,
                              .epsilon = NAN,
                              .update_scale = 1.0};
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "sgd", "");
}

/* One element, two updates with gradient 1 and 2, lr 0.5, wd 0.5, from w = 2; every number is a
 * short binary fraction, so that the results are exact. */
static void two_steps(const char *config, double first, double second)
{
    struct bl_bench b;
    float w = 2, g = 1, buffer = 0, *s[1] = {&buffer};
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", config);
    struct bl_update u = {.size = sizeof(u),
                          .step = 1,
                          .count = 1,
                          .weight = &w,
                          .gradient = &g,
                          .state = s,
                          .gradient_scale = 1.0,
                          .learning_rate = 0.5,
                          .weight_decay = 0.5,
                          .epsilon = NAN,
                          .update_scale = 1.0};
    b.ops->optimizer.apply(b.self, &u, 0, 1);
    if ((double)w != first)
        fail_msg("{%s}: %g after one update, wanted %g", config, (double)w, first);
    g = 2;
    u.step = 2;
    b.ops->optimizer.apply(b.self, &u, 0, 1);
    if ((double)w != second)
        fail_msg("{%s}: %g after two updates, wanted %g", config, (double)w, second);
    bl_bench_stop(&b);
}

static void test_by_hand(void **state)
{
    (void)state;
    /* 2 - .5 1 - .25 2 = 1;  1 - .5 2 - .25 1 = -.25 */
    two_steps("", 1.0, -0.25);
    two_steps("decay = \"l2\";", 1.0, -0.25);
    /* b = 1; then b = .5 + 2 = 2.5: 1 - 1.25 - .25 */
    two_steps("momentum = 0.5;", 1.0, -0.5);
    /* d = 1 + .5 = 1.5: 2 - .75 - .5 = .75;  d = 2 + 1.25 = 3.25: .75 - 1.625 - .1875 */
    two_steps("momentum = 0.5; nesterov = true;", 0.75, -1.0625);
    /* x = 1 + 1 = 2, b = 2: 1;  x = 2 + .5 = 2.5, b = 3.5: 1 - 1.75 */
    two_steps("momentum = 0.5; decay = \"l2\";", 1.0, -0.75);
}

/* Against fp64 from the same inputs; at most 10 roundings of 2^-24 of the absolute terms in the
 * change (x 3, momentum times b 3 more, sum, second momentum 2, sum; lr 2; sum), 2 for
 * update_scale, 1 for the sum with w. */
static void test_reference(void **state)
{
    (void)state;
    const double e = ldexp(1.0, -24), mu = 0.9, lr = 0.03, wd = 0.2;
    for (int l2 = 0; l2 < 2; l2++)
        for (int nesterov = 0; nesterov < 2; nesterov++) {
            char config[96];
            snprintf(config, sizeof(config), "momentum = 0.9; nesterov = %s; decay = \"%s\";",
                     nesterov ? "true" : "false", l2 ? "l2" : "decoupled");
            struct bl_bench b;
            struct arrays *a = make(10), *old = malloc(sizeof(*old));
            float *s[1];
            assert_non_null(old);
            *old = *a;
            bl_bench_start(&b);
            bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", config);
            struct bl_update u = update(a, s);
            u.update_scale = 0.3;
            b.ops->optimizer.apply(b.self, &u, 0, N);
            for (int i = 0; i < N; i++) {
                double w = old->w[i], g = 0.7 * (double)old->g[i], v = old->b[i];
                double x = g + l2 * wd * w, x_abs = fabs(g) + l2 * wd * fabs(w);
                double buffer = mu * v + x, buffer_abs = mu * fabs(v) + x_abs;
                double d = nesterov ? x + mu * buffer : buffer;
                double d_abs = nesterov ? x_abs + mu * buffer_abs : buffer_abs;
                double c = -(lr * d + !l2 * lr * wd * w);
                double c_abs = lr * d_abs + !l2 * lr * wd * fabs(w);
                double bound = 1.01 * e * (12 * 0.3 * c_abs + fabs(w) + 0.3 * c_abs);
                assert_true(fabs((double)a->b[i] - buffer) <= 1.01 * e * 4 * buffer_abs);
                if (!(fabs((double)a->w[i] - (w + 0.3 * c)) <= bound))
                    fail_msg("{%s} element %d: %.9g, wanted %.9g", config, i, (double)a->w[i],
                             w + 0.3 * c);
            }
            free(old);
            free(a);
            bl_bench_stop(&b);
        }
}

static void test_prepare_and_sets(void **state)
{
    (void)state;
    static const char *const configs[] = {"", "momentum = 0.9;",
                                          "momentum = 0.9; nesterov = true; decay = \"l2\";"};
    for (int k = 0; k < 3; k++) {
        struct bl_bench b;
        struct arrays *a = make(20), *old = make(20), *twin = make(20);
        float *s[1], *s2[1];
        bl_bench_start(&b);
        bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", configs[k]);
        assert_int_equal(b.ops->optimizer.states(b.self), k > 0);
        struct bl_update u = update(a, s);
        if (k == 0)
            u.state = NULL;
        double promised = b.ops->optimizer.prepare(b.self, &u, 1, N - 1), done = 0.0;
        assert_memory_equal(a, old, sizeof(*a));
        b.ops->optimizer.apply(b.self, &u, 1, N - 1);
        for (int i = 0; i < N; i++) {
            double d = (double)a->w[i] - (double)old->w[i];
            done += d * d;
        }
        assert_true(promised == done && done > 0.0);
        assert_true(a->w[0] == old->w[0] && a->w[N - 1] == old->w[N - 1]);
        setenv("BALLAST_ISA", "scalar", 1);
        bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", configs[k]);
        unsetenv("BALLAST_ISA");
        struct bl_update t = update(twin, s2);
        b.ops->optimizer.apply(b.self, &t, 1, N / 3);
        b.ops->optimizer.apply(b.self, &t, N / 3, N - 1);
        assert_memory_equal(twin, a, sizeof(*a));
        free(twin);
        free(old);
        free(a);
        bl_bench_stop(&b);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    assert_int_equal(bl_bench_try(&b, BL_KIND_OPTIMIZER, "sgd", "nesterov = true;"), -1);
    assert_non_null(strstr(b.err.text, "momentum"));
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "sgd", "momentum = 1.0;", BL_EXIT_USAGE, "momentum");
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "sgd", "decay = \"l1\";", BL_EXIT_USAGE, "decay");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common), cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_reference), cmocka_unit_test(test_prepare_and_sets),
        cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
