/* The op table of one instruction set. */
#include <string.h>

#include "backend/cpu/ops.h"
#include "backend/cpu/rope.h"
#include "base/memory.h"

static void destroy(struct bl_backend *b)
{
    struct bl_cpu *cpu = b->state;

    bl_pool_free(cpu->pool);
    bl_rope_free(cpu->tables);
    bl_free(cpu);
    bl_free(b);
}

static void *allocate(struct bl_backend *b, uint64_t bytes)
{
    (void)b;
    return bl_alloc(bytes, 1);
}

static void release(struct bl_backend *b, void *pointer)
{
    (void)b;
    bl_free(pointer);
}

static uint64_t element_size(struct bl_backend *b, uint32_t dtype)
{
    (void)b;
    return dtype == BL_FP64 ? sizeof(double) : sizeof(float); /* bf16 values live in fp32 */
}

static void zero(struct bl_backend *b, void *x, uint64_t bytes)
{
    (void)b;
    if (bytes > 0)
        memset(x, 0, bytes);
}

static void upload(struct bl_backend *b, void *device, const void *host, uint64_t bytes)
{
    (void)b;
    if (bytes > 0)
        memcpy(device, host, bytes);
}

static void download(struct bl_backend *b, void *host, const void *device, uint64_t bytes)
{
    (void)b;
    if (bytes > 0)
        memcpy(host, device, bytes);
}

static void parallel_for(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t),
                         void *argument)
{
    bl_pool_run(bl_cpu_pool(b), n, body, argument);
}

const struct bl_backend_ops BL_CPU(ops) = {
    .name = "cpu",
    .destroy = destroy,
    .allocate = allocate,
    .release = release,
    .element_size = element_size,
    .zero = zero,
    .upload = upload,
    .download = download,
    .parallel_for = parallel_for,
    .linear = BL_CPU(linear),
    .linear_grad = BL_CPU(linear_grad),
    .norm = BL_CPU(norm),
    .norm_grad = BL_CPU(norm_grad),
    .rope = BL_CPU(rope),
    .attention = BL_CPU(attention),
    .attention_grad = BL_CPU(attention_grad),
    .embedding = BL_CPU(embedding),
    .embedding_grad = BL_CPU(embedding_grad),
    .gelu = BL_CPU(gelu),
    .gelu_grad = BL_CPU(gelu_grad),
    .swiglu = BL_CPU(swiglu),
    .swiglu_grad = BL_CPU(swiglu_grad),
    .add = BL_CPU(add),
    .logit_stats = BL_CPU(logit_stats),
    .logit_grad = BL_CPU(logit_grad),
    .softcap = BL_CPU(softcap),
    .softcap_grad = BL_CPU(softcap_grad),
    .row_scale = BL_CPU(row_scale),
    .row_scale_grad = BL_CPU(row_scale_grad),
    .round = BL_CPU(round),
    .accumulate = BL_CPU(accumulate),
    .sum_squares = BL_CPU(sum_squares),
    .dot = BL_CPU(dot),
    .block_squares = BL_CPU(block_squares),
};
