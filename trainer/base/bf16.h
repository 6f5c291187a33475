/* bf16 values in fp32 storage: the upper 16 bits of an fp32 number, the lower ones zero. */
#ifndef BL_BASE_BF16_H
#define BL_BASE_BF16_H

#include <stdint.h>
#include <string.h>

/* Cuts off the lower half of x after adding `add` to it, as integers: a carry moves the magnitude
 * to the next bf16, from the largest one to infinity. A NaN stays a NaN (quiet, sign kept). */
static inline float bl_bf16_cut(float x, uint32_t bits, uint32_t add)
{
    bits = x != x ? bits | 0x00400000u : bits + add;
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Nearest, ties to even. */
static inline float bl_bf16_nearest(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bl_bf16_cut(x, bits, 0x7fffu + ((bits >> 16) & 1u));
}

/* To one of the two neighbours: away from zero with probability (distance from the lower one) /
 * (their spacing), so that the mean over `random`, uniform in [0, 65536), is x exactly (below the
 * largest bf16). A number that is a bf16 stays, an infinity too: its lower half is 0. */
static inline float bl_bf16_stochastic(float x, uint32_t random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bl_bf16_cut(x, bits, random);
}

#endif
