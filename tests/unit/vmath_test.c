/* Vector math against libm in fp64, on dense grids; built once per instruction set. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/vmath.h"
#include "base/bf16.h"

typedef bl_vf (*vector_fn)(bl_vf);

static bl_vf v_exp(bl_vf x)
{
    return bl_v_exp(x);
}

static bl_vf v_tanh(bl_vf x)
{
    return bl_v_tanh(x);
}

static bl_vf v_sigmoid(bl_vf x)
{
    return bl_v_sigmoid(x);
}

static bl_vf v_silu(bl_vf x)
{
    return bl_v_silu(x);
}

static double sigmoid64(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double silu64(double x)
{
    return x / (1.0 + exp(-x));
}

static float one(float (*pick)(bl_vf), bl_vf v)
{
    return pick(v);
}

static float lane0(bl_vf v)
{
    float l[BL_LANES];
    memcpy(l, &v, sizeof v);
    return l[0];
}

/* Distance of got from the exact value, in units of the last place of fp32 at the exact value. */
static double ulps(float got, double exact)
{
    int e;
    if ((double)got == exact)
        return 0.0;
    frexp(exact, &e);
    if (e < -125)
        e = -125;
    return fabs((double)got - exact) / ldexp(1.0, e - 24);
}

/* Largest error over every `skip`-th float of [a, b], both signs when a < 0. */
static double worst(const char *name, vector_fn f, double (*exact)(double), float from, float to)
{
    double most = 0.0;
    float at = 0.0f;
    const uint64_t n = 4000000;
    for (uint64_t i = 0; i < n; i += BL_LANES) {
        float x[BL_LANES], y[BL_LANES];
        for (uint64_t j = 0; j < BL_LANES; j++)
            x[j] = (float)(from + ((double)to - from) * (double)(i + j) / (double)n);
        bl_v_store(y, f(bl_v_load(x)));
        for (uint64_t j = 0; j < BL_LANES; j++) {
            double u = ulps(y[j], exact((double)x[j]));
            if (!(u <= most)) {
                most = u;
                at = x[j];
            }
        }
    }
    printf("%s [%g, %g]: %.3f ulp at %.9g\n", name, (double)from, (double)to, most, (double)at);
    return most;
}

/* The same over magnitudes: 2^-140 ... 2^exponent in geometric steps, both signs. */
static double worst_small(const char *name, vector_fn f, double (*exact)(double), double exponent)
{
    double most = 0.0;
    float at = 0.0f;
    const int n = 2000000;
    for (int i = 0; i < n; i++) {
        float x = (float)exp2(-140.0 + (exponent + 140.0) * i / n);
        x = i & 1 ? -x : x;
        double u = ulps(lane0(f(bl_v_set(x))), exact((double)x));
        if (!(u <= most)) {
            most = u;
            at = x;
        }
    }
    printf("%s small: %.3f ulp at %.9g\n", name, most, (double)at);
    return most;
}

static void test_exp(void **state)
{
    (void)state;
    /* Half an ulp for the last add, the rest from r (the base copy rounds each product). */
    assert_true(worst("exp", v_exp, exp, -87.0f, 88.7f) <= 2.0);
    assert_true(worst("exp", v_exp, exp, -1.0f, 1.0f) <= 2.0);
    assert_true(worst("exp", v_exp, exp, -104.0f, -87.0f) <= 2.0);
    assert_true(worst_small("exp", v_exp, exp, 6.0) <= 2.0);
    assert_true(one(lane0, v_exp(bl_v_set(0.0f))) == 1.0f);
    assert_true(one(lane0, v_exp(bl_v_set(-104.1f))) == 0.0f);
    assert_true(one(lane0, v_exp(bl_v_set(-INFINITY))) == 0.0f);
    assert_true(one(lane0, v_exp(bl_v_set(-1e30f))) == 0.0f);
    assert_true(one(lane0, v_exp(bl_v_set(88.73f))) == INFINITY);
    assert_true(one(lane0, v_exp(bl_v_set(INFINITY))) == INFINITY);
    assert_true(isnan(one(lane0, v_exp(bl_v_set(NAN)))));
    assert_true(isnan(one(lane0, v_exp(bl_v_set(-NAN)))));
}

static void test_tanh(void **state)
{
    (void)state;
    /* 1 - 2/(e+1): an ulp of e shrinks by 2 e/(e+1)^2 / tanh <= 0.9 at 0.625, plus the division and
     * the two adds: under 4 ulp, 2.4e-7 relative. */
    assert_true(worst("tanh", v_tanh, tanh, -10.0f, 10.0f) <= 4.0);
    assert_true(worst("tanh", v_tanh, tanh, -1.0f, 1.0f) <= 4.0);
    assert_true(worst_small("tanh", v_tanh, tanh, 6.0) <= 4.0);
    assert_true(one(lane0, v_tanh(bl_v_set(INFINITY))) == 1.0f);
    assert_true(one(lane0, v_tanh(bl_v_set(-INFINITY))) == -1.0f);
    assert_true(isnan(one(lane0, v_tanh(bl_v_set(NAN)))));
    float zero = one(lane0, v_tanh(bl_v_set(-0.0f)));
    assert_true(zero == 0.0f && signbit(zero));
}

static void test_sigmoid(void **state)
{
    (void)state;
    /* exp (2 ulp) + add + division. */
    assert_true(worst("sigmoid", v_sigmoid, sigmoid64, -87.0f, 30.0f) <= 4.0);
    assert_true(worst("silu", v_silu, silu64, -87.0f, 30.0f) <= 4.0);
    assert_true(worst_small("silu", v_silu, silu64, 4.0) <= 4.0);
    assert_true(one(lane0, v_sigmoid(bl_v_set(-INFINITY))) == 0.0f);
    assert_true(one(lane0, v_sigmoid(bl_v_set(INFINITY))) == 1.0f);
    assert_true(isnan(one(lane0, v_sigmoid(bl_v_set(NAN)))));
}

/* Every class of float: the vector and the scalar rounding agree with the definition. */
static void test_bf16(void **state)
{
    (void)state;
    for (uint64_t u = 0; u < (1ull << 32); u += 4099) {
        uint32_t bits = (uint32_t)u, got_bits;
        float x, got;
        memcpy(&x, &bits, sizeof x);
        got = bl_bf16_nearest(x);
        memcpy(&got_bits, &got, sizeof got);
        float lane = lane0(bl_v_bf16(bl_v_set(x)));
        uint32_t lane_bits;
        memcpy(&lane_bits, &lane, sizeof lane);
        assert_int_equal(lane_bits, got_bits);
        assert_int_equal(got_bits & 0xffffu, 0);
        if (isnan(x)) {
            assert_true(isnan(got));
            continue;
        }
        /* nearest of the two neighbours; a tie goes to the even one */
        uint32_t down = bits & 0xffff0000u, rest = bits & 0xffffu;
        uint32_t expect =
            rest > 0x8000u || (rest == 0x8000u && (down & 0x10000u)) ? down + 0x10000u : down;
        assert_int_equal(got_bits, expect);
    }
}

static void test_sums(void **state)
{
    (void)state;
    float x[BL_LANES];
    struct bl_vacc s = {{0}, {0}};
    float most = -INFINITY;
    for (int i = 0; i < BL_LANES; i++) {
        x[i] = (float)((i * 7) % BL_LANES + 1) * (i % 3 ? 1.0f : -1.0f);
        most = x[i] > most ? x[i] : most;
    }
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < BL_LANES; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    bl_vf v = bl_v_load(x);
    assert_true((double)bl_v_sum(v) == sum); /* small integers: exact */
    assert_true(bl_v_max_lane(v) == most);
    bl_vacc_add(&s, v);
    assert_true(bl_vacc_sum(&s) == sum);
    s = (struct bl_vacc){{0}, {0}};
    bl_vacc_fma(&s, v, v);
    assert_true(bl_vacc_sum(&s) == squares);
    for (uint64_t n = 0; n < BL_LANES; n++) {
        float y[BL_LANES] = {0};
        bl_v_store_n(y, bl_v_load_n(x, n), n);
        for (uint64_t i = 0; i < BL_LANES; i++)
            assert_true(y[i] == (i < n ? x[i] : 0.0f));
    }
}

/* Apart from main: the compiler may use this file's instruction set in here. */
static __attribute__((noinline)) int run(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_exp),  cmocka_unit_test(test_tanh), cmocka_unit_test(test_sigmoid),
        cmocka_unit_test(test_bf16), cmocka_unit_test(test_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
#if defined(__AVX512F__)
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512dq")) {
        puts("skipped: this processor has no AVX-512");
        return 77;
    }
#elif defined(__AVX2__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        puts("skipped: this processor has no AVX2");
        return 77;
    }
#endif
    return run();
}
