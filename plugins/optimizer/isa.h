/* One loop, two instruction sets, the same bits.
 *
 * BL_TWICE(name, parameters, arguments) makes name_scalar and name_avx2 from the always-inline
 * function name_loop. Both do the same IEEE operations on each element in the same order, and
 * contraction is off, so that only the speed differs. No ifunc: the compiler's function
 * multiversioning brings a constructor into the plugin.
 */
#ifndef BL_OPTIMIZER_ISA_H
#define BL_OPTIMIZER_ISA_H

#include <stdlib.h>
#include <string.h>

#define BL_LOOP static inline __attribute__((always_inline))
#define BL_SIMD _Pragma("omp simd")

#if defined(__x86_64__)
#include <cpuid.h>

#define BL_TWICE(type, name, parameters, arguments)                                                \
    static type name##_scalar parameters                                                           \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }                                                                                              \
    __attribute__((target("avx2"))) static type name##_avx2 parameters                             \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }

/* Processor and operating system both keep 256-bit registers. */
static inline int bl_processor_has_avx2(void)
{
    unsigned a, b, c, d, low, high;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (1u << 27)) == 0)
        return 0;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6u) != 6u)
        return 0;
    return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & (1u << 5)) != 0;
}
#else
#define BL_TWICE(type, name, parameters, arguments)                                                \
    static type name##_scalar parameters                                                           \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }                                                                                              \
    static type name##_avx2 parameters                                                             \
    {                                                                                              \
        return name##_loop arguments;                                                              \
    }

static inline int bl_processor_has_avx2(void)
{
    return 0;
}
#endif

/* 1: take the AVX2 copy. BALLAST_ISA=scalar, the backend's own switch, forbids it. */
static inline int bl_use_avx2(void)
{
    const char *isa = getenv("BALLAST_ISA");
    return !(isa != NULL && strcmp(isa, "scalar") == 0) && bl_processor_has_avx2();
}

#endif
