/* One element function, two devices: BL_MAP makes the C loop or the CUDA grid-stride kernel.
 *
 *     struct args { double c; const double *lse; double *value; };
 *     BL_FN void element(const struct args *a, uint64_t i) { a->value[i] = a->c * a->lse[i]; }
 *     BL_MAP(square, element, struct args)
 *
 * defines, in a C file, `square_cpu(const struct args *, uint64_t begin, uint64_t end)`, and, in a
 * .cu file, `square_cuda(const struct args *, uint64_t n, void *stream)`.
 */
#ifndef BALLAST_KERNEL_H
#define BALLAST_KERNEL_H

#include <stdint.h>

#ifdef __CUDACC__
#define BL_FN static __host__ __device__ inline
#define BL_MAP(name, element, args_type)                                                           \
    static __global__ void name##_kernel(args_type a, uint64_t n)                                  \
    {                                                                                              \
        uint64_t stride = (uint64_t)gridDim.x * blockDim.x;                                        \
        for (uint64_t i = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)     \
            element(&a, i);                                                                        \
    }                                                                                              \
    extern "C" void name##_cuda(const args_type *a, uint64_t n, void *stream)                      \
    {                                                                                              \
        if (n > 0) {                                                                               \
            uint64_t blocks = (n + 255) / 256;                                                     \
            name##_kernel<<<(unsigned)(blocks < 4096 ? blocks : 4096), 256, 0,                     \
                            (cudaStream_t)stream>>>(*a, n);                                        \
        }                                                                                          \
    }
#else
#define BL_FN static inline
#define BL_MAP(name, element, args_type)                                                           \
    static void name##_cpu(const args_type *a, uint64_t begin, uint64_t end)                       \
    {                                                                                              \
        for (uint64_t i = begin; i < end; i++)                                                     \
            element(a, i);                                                                         \
    }
#endif

#endif
