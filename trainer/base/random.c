#include "base/random.h"

#include <math.h>
#include <string.h>

#include <xxhash.h>

/* Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC11.
 * One round multiplies two words by fixed odd constants and swaps halves; the key is bumped by a
 * Weyl sequence between rounds. */
static void philox(uint64_t key, const uint64_t counter[2], uint32_t out[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c0 = (uint32_t)counter[0], c1 = (uint32_t)(counter[0] >> 32);
    uint32_t c2 = (uint32_t)counter[1], c3 = (uint32_t)(counter[1] >> 32);

    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Both 64-bit halves of the block of (seed, stream, counter). */
static void draw(uint64_t seed, uint64_t stream, uint64_t counter, uint64_t out[2])
{
    uint32_t word[4];
    const uint64_t block[2] = {counter, stream};
    philox(seed, block, word);
    out[0] = (uint64_t)word[1] << 32 | word[0];
    out[1] = (uint64_t)word[3] << 32 | word[2];
}

static double unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

uint64_t bl_random(uint64_t seed, uint64_t stream, uint64_t counter)
{
    uint64_t r[2];
    draw(seed, stream, counter, r);
    return r[0];
}

double bl_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter)
{
    return unit(bl_random(seed, stream, counter));
}

double bl_random_normal(uint64_t seed, uint64_t stream, uint64_t counter)
{
    const double two_pi = 6.283185307179586476925;
    uint64_t r[2];
    draw(seed, stream, counter, r);
    /* 1 - u lies in (0, 1]: the logarithm is finite. */
    return sqrt(-2.0 * log(1.0 - unit(r[0]))) * cos(two_pi * unit(r[1]));
}

uint64_t bl_permute(uint64_t key, uint64_t n, uint64_t index)
{
    /* A balanced Feistel network permutes [0, 4^half); walking its cycle until the value falls
     * below n restricts it to [0, n). 4^half < 4 n, so a walk takes fewer than 4 steps on average.
     */
    if (n <= 1)
        return 0;
    unsigned half = 1;
    while (half < 32 && (n - 1) >> (2 * half))
        half++;
    const uint64_t mask = ((uint64_t)1 << half) - 1;
    uint64_t x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = (left ^ bl_random(key, round, right)) & mask;
            left = right;
            right = next;
        }
        x = left << half | right;
    } while (x >= n);
    return x;
}

uint64_t bl_hash(const char *text)
{
    return XXH64(text, strlen(text), 0);
}
