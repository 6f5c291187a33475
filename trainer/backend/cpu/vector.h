/* Vectors of BL_LANES floats: one source for every instruction set, gcc and clang.
 *
 * Built with BL_ISA = scalar (BL_LANES 4: whatever the base architecture has, SSE2 on x86-64),
 * avx2 (8, with -mavx2 -mfma) or avx512 (16, with -mavx512{f,bw,dq,vl} -mfma). Every function is
 * static: no symbol of one copy can be picked up by another.
 *
 * bl_v_fma is one rounding on avx2 and avx512; the base copy rounds twice (a libm call per element
 * would cost more than the rest of the op), so results of the copies agree to rounding, not to the
 * bit. Sums across lanes have one fixed association per lane count.
 */
#ifndef BL_BACKEND_CPU_VECTOR_H
#define BL_BACKEND_CPU_VECTOR_H

#include <stdint.h>
#include <string.h>

#ifndef BL_LANES
#if defined(__AVX512F__)
#define BL_LANES 16
#elif defined(__AVX2__) && defined(__FMA__)
#define BL_LANES 8
#else
#define BL_LANES 4
#endif
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define BL_V_INLINE static inline __attribute__((always_inline, unused))

typedef float bl_vf __attribute__((vector_size(4 * BL_LANES)));
typedef int32_t bl_vi __attribute__((vector_size(4 * BL_LANES)));
typedef uint32_t bl_vu __attribute__((vector_size(4 * BL_LANES)));
typedef double bl_vd __attribute__((vector_size(4 * BL_LANES))); /* BL_LANES / 2 doubles */
typedef float bl_vh __attribute__((vector_size(2 * BL_LANES)));  /* half a vector */

BL_V_INLINE bl_vf bl_v_load(const float *p)
{
    bl_vf v;
    memcpy(&v, p, sizeof v);
    return v;
}

BL_V_INLINE void bl_v_store(float *p, bl_vf v)
{
    memcpy(p, &v, sizeof v);
}

/* The first n lanes (n <= BL_LANES), zero in the others. */
BL_V_INLINE bl_vf bl_v_load_n(const float *p, uint64_t n)
{
    bl_vf v = {0};
    memcpy(&v, p, n * sizeof *p);
    return v;
}

BL_V_INLINE void bl_v_store_n(float *p, bl_vf v, uint64_t n)
{
    memcpy(p, &v, n * sizeof *p);
}

BL_V_INLINE bl_vf bl_v_set(float c)
{
    return c - (bl_vf){0}; /* minus keeps -0 */
}

/* a b + c */
BL_V_INLINE bl_vf bl_v_fma(bl_vf a, bl_vf b, bl_vf c)
{
#if BL_LANES == 16 && defined(__AVX512F__)
    return (bl_vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif BL_LANES == 8 && defined(__FMA__)
    return (bl_vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

BL_V_INLINE bl_vd bl_vd_fma(bl_vd a, bl_vd b, bl_vd c)
{
#if BL_LANES == 16 && defined(__AVX512F__)
    return (bl_vd)_mm512_fmadd_pd((__m512d)a, (__m512d)b, (__m512d)c);
#elif BL_LANES == 8 && defined(__FMA__)
    return (bl_vd)_mm256_fmadd_pd((__m256d)a, (__m256d)b, (__m256d)c);
#else
    return a * b + c;
#endif
}

/* mask lanes are all ones or all zeros, as a comparison gives them. */
BL_V_INLINE bl_vf bl_v_select(bl_vi mask, bl_vf yes, bl_vf no)
{
    return (bl_vf)((mask & (bl_vi)yes) | (~mask & (bl_vi)no));
}

/* a > b ? a : b; with a NaN in either the answer is b. */
BL_V_INLINE bl_vf bl_v_max(bl_vf a, bl_vf b)
{
#if BL_LANES == 16 && defined(__AVX512F__)
    return (bl_vf)_mm512_max_ps((__m512)a, (__m512)b);
#elif BL_LANES == 8 && defined(__AVX2__)
    return (bl_vf)_mm256_max_ps((__m256)a, (__m256)b);
#elif BL_LANES == 4 && defined(__SSE2__)
    return (bl_vf)_mm_max_ps((__m128)a, (__m128)b);
#else
    return bl_v_select(a > b, a, b);
#endif
}

/* Lanes 0 ... n - 1 of v, zero in the others. */
BL_V_INLINE bl_vf bl_v_keep(bl_vf v, uint64_t n)
{
    bl_vi index;
    for (int i = 0; i < BL_LANES; i++)
        index[i] = i;
    return (bl_vf)((bl_vi)v & (index < (int32_t)n));
}

BL_V_INLINE bl_vf bl_v_abs(bl_vf x)
{
    return (bl_vf)((bl_vi)x & 0x7fffffff);
}

/* Sum of the lanes, halves folded onto each other: l[i] + l[i + n/2], n = BL_LANES ... 2. */
BL_V_INLINE float bl_v_sum(bl_vf v)
{
    float l[BL_LANES];
    memcpy(l, &v, sizeof v);
    for (int n = BL_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            l[i] += l[i + n];
    return l[0];
}

/* Largest lane; meaningless when a lane is NaN. */
BL_V_INLINE float bl_v_max_lane(bl_vf v)
{
    float l[BL_LANES];
    memcpy(l, &v, sizeof v);
    for (int n = BL_LANES / 2; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            l[i] = l[i] > l[i + n] ? l[i] : l[i + n];
    return l[0];
}

BL_V_INLINE double bl_vd_sum(bl_vd v)
{
    double l[BL_LANES / 2];
    memcpy(l, &v, sizeof v);
    for (int n = BL_LANES / 4; n > 0; n /= 2)
        for (int i = 0; i < n; i++)
            l[i] += l[i + n];
    return l[0];
}

/* The lower and the upper half of v as doubles (exact). */
BL_V_INLINE bl_vd bl_v_low(bl_vf v)
{
    bl_vh h;
    memcpy(&h, &v, sizeof h);
    return __builtin_convertvector(h, bl_vd);
}

BL_V_INLINE bl_vd bl_v_high(bl_vf v)
{
    bl_vh h;
    memcpy(&h, (const char *)&v + sizeof h, sizeof h);
    return __builtin_convertvector(h, bl_vd);
}

/* fp64 sum of fp32 vectors. */
struct bl_vacc {
    bl_vd low, high;
};

BL_V_INLINE void bl_vacc_add(struct bl_vacc *s, bl_vf x)
{
    s->low += bl_v_low(x);
    s->high += bl_v_high(x);
}

/* s += a b, products formed in fp64 */
BL_V_INLINE void bl_vacc_fma(struct bl_vacc *s, bl_vf a, bl_vf b)
{
    s->low = bl_vd_fma(bl_v_low(a), bl_v_low(b), s->low);
    s->high = bl_vd_fma(bl_v_high(a), bl_v_high(b), s->high);
}

BL_V_INLINE double bl_vacc_sum(const struct bl_vacc *s)
{
    return bl_vd_sum(s->low + s->high);
}

/* To bf16, nearest even, kept as fp32. A finite value past the largest bf16 becomes inf, as the
 * format says; a NaN stays a NaN (quiet, sign kept). */
BL_V_INLINE bl_vf bl_v_bf16(bl_vf x)
{
    bl_vu u = (bl_vu)x;
    bl_vu r = (u + 0x7fffu + ((u >> 16) & 1u)) & 0xffff0000u;
    bl_vu quiet = (u | 0x00400000u) & 0xffff0000u;
    bl_vu nan = (bl_vu)(x != x);
    return (bl_vf)((nan & quiet) | (~nan & r));
}

/* Rounded to `dtype` (BL_FP32: as it is) where bf16 is a loop-invariant flag. */
BL_V_INLINE bl_vf bl_v_round(bl_vf x, int bf16)
{
    return bf16 ? bl_v_bf16(x) : x;
}

#endif
