/* fp16 (IEEE half precision) values in fp32 storage. 11 significant bits, 2^-24 the smallest step,
 * 65504 the largest number. */
#ifndef BL_BASE_FP16_H
#define BL_BASE_FP16_H

#include <stdint.h>
#include <string.h>

#define BL_FP16_NORMAL   0x38800000u /* 2^-14 as fp32: below it the step is 2^-24 */
#define BL_FP16_OVERFLOW 0x47800000u /* 2^16: the first number beyond the format */

static inline uint32_t bl_fp32_bits(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float bl_fp32_of(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* The result of rounding |x|, `normal` or `subnormal` by its size, with the sign of x. */
static inline float bl_fp16_choose(uint32_t bits, uint32_t normal, float subnormal)
{
    uint32_t size = bits & 0x7fffffffu;
    uint32_t out = size < BL_FP16_NORMAL ? bl_fp32_bits(subnormal) : normal & ~0x1fffu;
    out = out >= BL_FP16_OVERFLOW ? 0x7f800000u : out;
    out = size > 0x7f800000u ? (size | 0x00400000u) & ~0x1fffu : out; /* a NaN, quiet */
    return bl_fp32_of(out | (bits & 0x80000000u));
}

/* Nearest, ties to even; 65520 and above is infinity. A NaN stays one (quiet, sign kept). */
static inline float bl_fp16_nearest(float x)
{
    uint32_t bits = bl_fp32_bits(x), size = bits & 0x7fffffffu;
    /* Numbers in [0.5, 1) are multiples of 2^-24: the addition rounds to one. */
    float subnormal = (bl_fp32_of(size < BL_FP16_NORMAL ? size : 0) + 0.5f) - 0.5f;
    return bl_fp16_choose(bits, size + 0xfffu + ((size >> 13) & 1u), subnormal);
}

/* To one of the two neighbours: away from zero with probability (distance from the lower one) /
 * (their spacing), over `random` uniform in [0, 65536); exact for normal numbers, to 2^-16 below
 * them. A number that is an fp16 stays. */
static inline float bl_fp16_stochastic(float x, uint32_t random)
{
    uint32_t bits = bl_fp32_bits(x), size = bits & 0x7fffffffu;
    /* In 2^-40: below 2^26, what is cut off has no say. */
    uint32_t fixed = (uint32_t)(int32_t)(bl_fp32_of(size < BL_FP16_NORMAL ? size : 0) * 0x1p40f);
    float subnormal = (float)(int32_t)((fixed + random) >> 16) * 0x1p-24f;
    uint32_t add = size < 0x7f800000u ? random >> 3 : 0;
    return bl_fp16_choose(bits, size + add, subnormal);
}

/* The 16 bits of a value that is an fp16, and back. */
static inline uint16_t bl_fp16_pack(float x)
{
    uint32_t bits = bl_fp32_bits(x), size = bits & 0x7fffffffu;
    uint32_t subnormal =
        (uint32_t)(int32_t)(bl_fp32_of(size < BL_FP16_NORMAL ? size : 0) * 0x1p24f);
    uint32_t normal = (size - (112u << 23)) >> 13;
    uint32_t special = 0x7c00u | (size >> 13 & 0x3ffu);
    uint32_t out = size >= 0x7f800000u ? special : size < BL_FP16_NORMAL ? subnormal : normal;
    return (uint16_t)(out | (bits >> 16 & 0x8000u));
}

static inline float bl_fp16_unpack(uint16_t packed)
{
    uint32_t size = (uint32_t)(packed & 0x7fffu) << 13;
    uint32_t out =
        size >= 0x0f800000u ? size | 0x7f800000u : bl_fp32_bits(bl_fp32_of(size) * 0x1p112f);
    return bl_fp32_of(out | (uint32_t)(packed & 0x8000u) << 16);
}

#endif
