/* Vector exp, tanh, sigmoid and silu.
 *
 * Coefficients are our own minimax fits (Remez exchange in 50-digit arithmetic), weighted so that
 * the error counts relative to the function:
 *   exp   exp(r) = 1 + r + r^2 P(r), |r| <= ln2/2, P of degree 4, fit error 3.3e-9
 *   tanh  tanh(x) = x + x^3 Q(x^2), |x| <= 0.625, Q of degree 4, fit error 4.3e-9
 * Largest errors measured against libm in fp64 on dense grids (tests/unit/vmath_test.c), in ulps of
 * fp32, scalar and avx2: exp 1.04, tanh 1.32, sigmoid 2.48, silu 2.39.
 */
#ifndef BL_BACKEND_CPU_VMATH_H
#define BL_BACKEND_CPU_VMATH_H

#include "backend/cpu/vector.h"

/* exp(x): inf above 88.72, subnormal results rounded twice, 0 below -104 and at -inf; NaN through.
 */
BL_V_INLINE bl_vf bl_v_exp(bl_vf x)
{
    const bl_vf high = bl_v_set(89.0f), low = bl_v_set(-104.5f);
    bl_vf t, n, r, p, half;
    bl_vi k, k1;

    x = bl_v_select(x > high, high, x); /* comparisons that leave a NaN alone */
    x = bl_v_select(x < low, low, x);

    /* n = nearest integer to x / ln 2: adding 1.5 * 2^23 leaves it in the low mantissa bits. */
    t = bl_v_fma(x, bl_v_set(1.44269504f), bl_v_set(12582912.0f));
    k = (bl_vi)((bl_vu)t - 0x4b400000u);
    n = t - bl_v_set(12582912.0f);

    /* ln 2 = 355/512 - 2.1219444e-4; n * 355/512 is exact for the |n| < 2^8 that occur. */
    r = bl_v_fma(n, bl_v_set(-0.693359375f), x);
    r = bl_v_fma(n, bl_v_set(2.12194440e-4f), r);

    p = bl_v_set(0.001395023930f);
    p = bl_v_fma(p, r, bl_v_set(0.008368783867f));
    p = bl_v_fma(p, r, bl_v_set(0.04166621111f));
    p = bl_v_fma(p, r, bl_v_set(0.1666652005f));
    p = bl_v_fma(p, r, bl_v_set(0.5000000092f));
    p = bl_v_fma(p * r, r, r) + bl_v_set(1.0f);

    /* 2^k in two factors, each a normal number for k in [-151, 128]. */
    k1 = k >> 1;
    half = (bl_vf)((bl_vu)(k1 + 127) << 23);
    return p * half * (bl_vf)((bl_vu)(k - k1 + 127) << 23);
}

/* tanh(x), accurate relative to the result at small x too; +-1 at +-inf, NaN through. */
BL_V_INLINE bl_vf bl_v_tanh(bl_vf x)
{
    bl_vf a = bl_v_abs(x), s = x * x, q, e, large;
    bl_vi sign = (bl_vi)x & (bl_vi)bl_v_set(-0.0f);

    q = bl_v_set(-0.005726234786f);
    q = bl_v_fma(q, s, bl_v_set(0.02065986297f));
    q = bl_v_fma(q, s, bl_v_set(-0.05374679257f));
    q = bl_v_fma(q, s, bl_v_set(0.1333153901f));
    q = bl_v_fma(q, s, bl_v_set(-0.3333328622f));
    q = bl_v_fma(q * s, x, x);

    /* 1 - 2 / (e^{2a} + 1): at a > 0.625 the subtraction loses no more than one bit. */
    e = bl_v_exp(a + a);
    large = bl_v_set(1.0f) - bl_v_set(2.0f) / (e + bl_v_set(1.0f));
    q = bl_v_select(a < bl_v_set(0.625f), q, large);
    return (bl_vf)((bl_vi)q | sign); /* -0 too */
}

/* 1 / (1 + e^-x). 0 below -88.72, where the true value is under 2^-127. */
BL_V_INLINE bl_vf bl_v_sigmoid(bl_vf x)
{
    return bl_v_set(1.0f) / (bl_v_set(1.0f) + bl_v_exp(-x));
}

/* x sigmoid(x); NaN at -inf, like the product. */
BL_V_INLINE bl_vf bl_v_silu(bl_vf x)
{
    return x / (bl_v_set(1.0f) + bl_v_exp(-x));
}

#endif
