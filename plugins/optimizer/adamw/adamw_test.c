#include "tests/lib/plugin_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N = 10007 }; /* no multiple of a vector */

struct arrays {
    float w[N], g[N], m[N], v[N];
};

/* Weights, gradients and moments over many orders of magnitude. */
static struct arrays *make(uint64_t stream)
{
    struct arrays *a = malloc(sizeof(*a));
    assert_non_null(a);
    for (uint64_t i = 0; i < N; i++) {
        double size = pow(10.0, (double)(i % 13) - 8.0);
        a->w[i] = (float)bl_bench_normal(stream, i);
        a->g[i] = (float)(size * bl_bench_normal(stream + 1, i));
        a->m[i] = (float)(size * bl_bench_normal(stream + 2, i));
        a->v[i] = (float)(size * size * fabs(bl_bench_normal(stream + 3, i)));
    }
    return a;
}

static struct bl_update update(struct arrays *a, float **state)
{
    state[0] = a->m;
    state[1] = a->v;
    return (struct bl_update){.size = sizeof(struct bl_update),
                              .step = 3,
                              .count = N,
                              .key = 1,
                              .weight = a->w,
                              .gradient = a->g,
                              .state = state,
                              .gradient_scale = 0.7,
                              .learning_rate = 3e-3,
                              .weight_decay = 0.1,
                              .epsilon = NAN,
                              .update_scale = 1.0};
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_OPTIMIZER, "adamw", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    struct arrays *a = malloc(sizeof(*a));
    float *s[2];
    assert_non_null(a);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "");
    assert_int_equal(b.ops->optimizer.states(b.self), 2);
    assert_string_equal(b.ops->optimizer.state_name(b.self, 0), "moment1");
    assert_string_equal(b.ops->optimizer.state_name(b.self, 1), "moment2");
    struct bl_update u = update(a, s);
    u.step = 1;
    u.gradient_scale = 1.0;
    u.learning_rate = 0.1;
    a->w[0] = 1;
    a->g[0] = 2;
    a->m[0] = a->v[0] = 0;
    b.ops->optimizer.apply(b.self, &u, 0, 1);
    /* m / (1 - beta1) = 2, sqrt(v / (1 - beta2)) = 2: 1 - 0.1 0.1 - 0.1 */
    assert_true(fabs((double)a->w[0] - 0.89) < 1.2e-7);
    assert_true(fabs((double)a->m[0] - 0.2) < 3e-8);
    assert_true(fabs((double)a->v[0] - 0.2) < 3e-8);
    /* A rule's eps: 2 / (2 + 2) */
    a->w[0] = 1;
    a->m[0] = a->v[0] = 0;
    u.epsilon = 2.0;
    u.weight_decay = 0.0;
    b.ops->optimizer.apply(b.self, &u, 0, 1);
    assert_true(fabs((double)a->w[0] - 0.95) < 1.2e-7);
    free(a);
    bl_bench_stop(&b);
}

/* Independent decay: half of the peak means half of wd, whatever the peak is. */
static void test_independent_decay(void **state)
{
    (void)state;
    struct bl_bench b;
    struct arrays *a = calloc(1, sizeof(*a));
    float *s[2];
    assert_non_null(a);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "decay = \"independent\";");
    struct bl_update u = update(a, s);
    for (double peak = 1e-3; peak < 1; peak *= 30) {
        u.learning_rate = peak / 2;
        u.peak_learning_rate = peak;
        a->w[0] = 1; /* no gradient: the decay alone */
        b.ops->optimizer.apply(b.self, &u, 0, 1);
        assert_true(fabs((double)a->w[0] - 0.95) < 1.2e-7);
    }
    u.learning_rate = u.peak_learning_rate = 0;
    a->w[0] = 1;
    b.ops->optimizer.apply(b.self, &u, 0, 1);
    assert_true(a->w[0] == 1);
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "adamw", "decay = \"both\";", BL_EXIT_USAGE, "decay");
    free(a);
    bl_bench_stop(&b);
}

/* Ten updates, each against fp64 from the same inputs. Roundings, e = 2^-24 each:
 *   x   scale, product                                             2
 *   m   beta1, product (x: 2 + rest1, product), sum: at most       5 of |beta1 m| + |rest1 x|
 *   v   x^2 4 + 1, rest2, product, sum                             8 of v
 *   den root of v 4 + 1, coefficient, product, sum                 8
 *   c   m 5, den 8, quotient, coefficient, product, sum           17 of the absolute terms
 *   w   update_scale, product 2 more of those; the sum             1 of |w|
 * Second-order terms and fp32 underflow are covered by 1% and by tiny absolute terms. */
static void test_reference(void **state)
{
    (void)state;
    const double e = ldexp(1.0, -24), b1 = 0.8, b2 = 0.99, eps = 1e-6, slack = 1.01;
    struct bl_bench b;
    struct arrays *a = make(10), *old = malloc(sizeof(*old));
    float *s[2];
    assert_non_null(old);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "betas = [ 0.8, 0.99 ]; eps = 1e-6;");
    struct bl_update u = update(a, s);
    u.update_scale = 0.3;
    double worst = 0.0;
    for (u.step = 1; u.step <= 10; u.step++) {
        *old = *a;
        b.ops->optimizer.apply(b.self, &u, 0, N);
        double bc1 = 1.0 - pow(b1, (double)u.step), bc2 = 1.0 - pow(b2, (double)u.step);
        for (int i = 0; i < N; i++) {
            double w = old->w[i], x = 0.7 * (double)old->g[i];
            double m = b1 * (double)old->m[i] + (1 - b1) * x;
            double m_abs = b1 * fabs((double)old->m[i]) + (1 - b1) * fabs(x);
            double v = b2 * (double)old->v[i] + (1 - b2) * x * x;
            double den = sqrt(v / bc2) + eps;
            double c = -(3e-3 * 0.1 * w + 3e-3 * m / bc1 / den);
            double c_abs = 3e-3 * 0.1 * fabs(w) + 3e-3 * m_abs / bc1 / den;
            double w_new = w + 0.3 * c;
            double w_bound = slack * e * (19 * 0.3 * c_abs + fabs(w) + 0.3 * c_abs);
            double error = fabs((double)a->w[i] - w_new) / w_bound;
            worst = error > worst ? error : worst;
            assert_true(fabs((double)a->m[i] - m) <= slack * 5 * e * m_abs + FLT_MIN);
            assert_true(fabs((double)a->v[i] - v) <= slack * 8 * e * v + FLT_MIN);
            if (!(error <= 1.0))
                fail_msg("element %d, step %d: %.9g, wanted %.9g", i, (int)u.step, (double)a->w[i],
                         w_new);
        }
        for (uint64_t i = 0; i < N; i++)
            a->g[i] = (float)((double)a->g[i] * bl_bench_normal(50 + u.step, i));
    }
    assert_true(worst > 0.1); /* the bound is no barn door */
    free(old);
    free(a);
    bl_bench_stop(&b);
}

static void test_prepare_and_pieces(void **state)
{
    (void)state;
    struct bl_bench b;
    struct arrays *a = make(20), *old = malloc(sizeof(*old)), *pieces = malloc(sizeof(*pieces));
    float *s[2], *s2[2];
    assert_non_null(old);
    assert_non_null(pieces);
    *old = *a;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "");
    struct bl_update u = update(a, s);
    u.update_scale = 0.25; /* prepare answers for 1 */
    double promised = b.ops->optimizer.prepare(b.self, &u, 3, N - 5);
    assert_memory_equal(a, old, sizeof(*a));
    u.update_scale = 1.0;
    b.ops->optimizer.apply(b.self, &u, 3, N - 5);
    double done = 0.0;
    for (int i = 3; i < N - 5; i++) {
        double d = (double)a->w[i] - (double)old->w[i];
        done += d * d;
    }
    assert_true(promised == done);
    for (int i = 0; i < N; i++)
        if (i < 3 || i >= N - 5) {
            assert_true(a->w[i] == old->w[i]);
            assert_true(a->m[i] == old->m[i]);
        }
    *pieces = *old;
    struct bl_update p = update(pieces, s2);
    static const uint64_t cuts[] = {3, 4, 11, 4096, 4097, N - 5};
    for (int i = 0; i + 1 < (int)(sizeof(cuts) / sizeof(cuts[0])); i++)
        b.ops->optimizer.apply(b.self, &p, cuts[i], cuts[i + 1]);
    assert_memory_equal(pieces, a, sizeof(*a));
    /* Scaled by a guard: the moments advance all the same. */
    *pieces = *old;
    p.update_scale = 0.0;
    b.ops->optimizer.apply(b.self, &p, 3, N - 5);
    assert_memory_equal(pieces->m, a->m, sizeof(a->m));
    assert_memory_equal(pieces->v, a->v, sizeof(a->v));
    assert_memory_equal(pieces->w, old->w, sizeof(old->w));
    free(pieces);
    free(old);
    free(a);
    bl_bench_stop(&b);
}

/* The plugin's two copies of the loop, infinities and subnormal numbers among the inputs. */
static void test_instruction_sets(void **state)
{
    (void)state;
    struct bl_bench b;
    struct arrays *a = make(30), *twin = malloc(sizeof(*twin));
    float *s[2];
    double promised[2];
    assert_non_null(twin);
    a->g[5] = INFINITY;
    a->g[6] = -INFINITY;
    a->g[7] = 1e-42f;
    a->w[8] = 1e-44f;
    a->v[9] = FLT_MAX;
    a->g[10] = FLT_MAX;
    a->g[11] = 0;
    a->m[11] = 0;
    a->v[11] = 0;
    *twin = *a;
    bl_bench_start(&b);
    for (int scalar = 0; scalar < 2; scalar++) {
        if (scalar)
            setenv("BALLAST_ISA", "scalar", 1);
        else
            unsetenv("BALLAST_ISA");
        bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "");
        struct bl_update u = update(scalar ? twin : a, s);
        promised[scalar] = b.ops->optimizer.prepare(b.self, &u, 12, N);
        for (u.step = 1; u.step <= 5; u.step++)
            b.ops->optimizer.apply(b.self, &u, 0, N);
    }
    unsetenv("BALLAST_ISA");
    assert_true(promised[0] == promised[1] && promised[0] > 0.0);
    for (int i = 0; i < N; i++) { /* the sign of a NaN is nobody's promise */
        assert_true(isnan(a->w[i]) ? isnan(twin->w[i]) : a->w[i] == twin->w[i]);
        assert_true(isnan(a->m[i]) ? isnan(twin->m[i]) : a->m[i] == twin->m[i]);
        assert_true(isnan(a->v[i]) ? isnan(twin->v[i]) : a->v[i] == twin->v[i]);
    }
    assert_true(isnan(a->w[5]) && isfinite(a->w[7]) && isfinite(a->w[11]));
    free(twin);
    free(a);
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    assert_int_equal(bl_bench_try(&b, BL_KIND_OPTIMIZER, "adamw", "betas = [ 0.9 ];"), -1);
    assert_non_null(strstr(b.err.text, "betas"));
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "adamw", "betas = [ 0.9, 1.0 ];", BL_EXIT_USAGE,
                     "betas");
    bl_bench_refuses(&b, BL_KIND_OPTIMIZER, "adamw", "eps = 0.0;", BL_EXIT_USAGE, "eps");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand),
                                       cmocka_unit_test(test_independent_decay),
                                       cmocka_unit_test(test_reference),
                                       cmocka_unit_test(test_prepare_and_pieces),
                                       cmocka_unit_test(test_instruction_sets),
                                       cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
