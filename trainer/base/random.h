/* Counter-based random numbers: a pure function of (seed, stream, counter). Philox4x32-10
 * (Salmon et al., SC11). Independent of order, threads and ranks. */
#ifndef BL_BASE_RANDOM_H
#define BL_BASE_RANDOM_H

#include <stdint.h>

uint64_t bl_random(uint64_t seed, uint64_t stream, uint64_t counter);
/* [0, 1), 53 bits */
double bl_random_uniform(uint64_t seed, uint64_t stream, uint64_t counter);
/* N(0, 1) by Box-Muller in fp64 */
double bl_random_normal(uint64_t seed, uint64_t stream, uint64_t counter);
/* A bijection of [0, n) keyed by key: Feistel network with cycle walking. n >= 1, index < n. */
uint64_t bl_permute(uint64_t key, uint64_t n, uint64_t index);
/* Stable 64-bit hash of a string (XXH64), e.g. a tensor's key. */
uint64_t bl_hash(const char *text);

#endif
