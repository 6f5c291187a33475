/* A tensor as plugins see it: where the numbers are, what they are, how they are shaped.
 *
 * Shapes are row-major, last dimension fastest; a matrix of a linear layer is (out, in).
 */
#ifndef BALLAST_TENSOR_H
#define BALLAST_TENSOR_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Number formats. On the CPU a BL_BF16 activation is stored as fp32 whose value is a bf16 value. */
enum bl_dtype_value { BL_FP32 = 1, BL_BF16 = 2, BL_FP64 = 3, BL_FP16 = 4 };

/* Devices a pointer may live on; also the bits of bl_plugin.devices. */
enum bl_device_value { BL_DEVICE_CPU = 1, BL_DEVICE_CUDA = 2 };

/* What a parameter is for. Precision dials are set per group. */
enum bl_group_value {
    BL_GROUP_MATRIX = 0,    /* hidden linear layers, weights and biases */
    BL_GROUP_EMBEDDING = 1, /* token and position tables */
    BL_GROUP_NORM = 2,      /* norm gains and biases */
    BL_GROUP_HEAD = 3,      /* the output matrix (with tied weights it is in BL_GROUP_EMBEDDING) */
    BL_GROUP_COUNT = 4
};

struct bl_tensor {
    uint32_t size;  /* sizeof(struct bl_tensor) of whoever allocated it */
    uint32_t dtype; /* BL_FP32 ... */
    uint32_t device;
    uint32_t group; /* BL_GROUP_... */
    uint32_t ndim;  /* 1 or 2 */
    uint32_t reserved;
    uint64_t dims[4];
    uint64_t count; /* product of dims; elements are contiguous */
    uint64_t key;   /* stable id: a hash of the name; a stream of random numbers */
    void *data;
    const char *name; /* "layers.0.attn.q.weight" */
};

#ifdef __cplusplus
}
#endif
#endif
