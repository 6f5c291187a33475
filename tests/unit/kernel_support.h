/* What the tests of attention and of the logit ops share: random numbers, bf16, backends. */
#ifndef BL_TESTS_KERNEL_SUPPORT_H
#define BL_TESTS_KERNEL_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

#define U 0x1p-24 /* half an ulp of fp32, relative */

static uint64_t state;

static inline double uniform(void) /* [-1, 1) */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

static inline float bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u += 0x7fffu + ((u >> 16) & 1u);
    u &= 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static inline struct bl_backend *backend(uint32_t threads, const char *isa)
{
    struct bl_backend *b = NULL;
    struct bl_error err = {.size = sizeof err};
    return bl_backend_cpu(threads, isa, &b, &err) == 0 ? b : NULL;
}

#endif
