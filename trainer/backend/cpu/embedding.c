/* Token and position tables. */
#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"

#define BLOCK_ROWS 16
#define COLUMNS    64 /* of one backward task */

static void forward_block(void *argument, uint64_t index)
{
    const struct bl_embedding *a = argument;
    const uint64_t n = a->width;
    const int bf16 = a->act == BL_BF16;
    const bl_vf scale = bl_v_set(a->scale);
    uint64_t end = (index + 1) * BLOCK_ROWS < a->rows ? (index + 1) * BLOCK_ROWS : a->rows;

    for (uint64_t r = index * BLOCK_ROWS; r < end; r++) {
        const float *e = (const float *)a->embed + (uint64_t)a->tokens[r] * n;
        const float *p = a->position ? (const float *)a->position + r % a->time * n : NULL;
        float *x = (float *)a->x + r * n;
        uint64_t i = 0;
        for (; i + BL_LANES <= n; i += BL_LANES) {
            bl_vf v = bl_v_load(e + i) * scale;
            if (p)
                v += bl_v_load(p + i);
            bl_v_store(x + i, bl_v_round(v, bf16));
        }
        if (i < n) {
            bl_vf v = bl_v_load_n(e + i, n - i) * scale;
            if (p)
                v += bl_v_load_n(p + i, n - i);
            bl_v_store_n(x + i, bl_v_round(v, bf16), n - i);
        }
    }
}

void BL_CPU(embedding)(struct bl_backend *b, const struct bl_embedding *a)
{
    bl_pool_run(bl_cpu_pool(b), (a->rows + BLOCK_ROWS - 1) / BLOCK_ROWS, forward_block,
                (void *)(uintptr_t)a);
}

BL_V_INLINE void add_scaled(float *sum, const float *x, bl_vf scale, uint64_t n)
{
    uint64_t i = 0;

    for (; i + BL_LANES <= n; i += BL_LANES)
        bl_v_store(sum + i, bl_v_fma(bl_v_load(x + i), scale, bl_v_load(sum + i)));
    if (i < n)
        bl_v_store_n(sum + i,
                     bl_v_fma(bl_v_load_n(x + i, n - i), scale, bl_v_load_n(sum + i, n - i)),
                     n - i);
}

/* A task owns columns and walks all rows: sums are in row order whatever the threads, and a token
 * that comes twice needs no care. */
static void backward_columns(void *argument, uint64_t task)
{
    const struct bl_embedding_grad *a = argument;
    uint64_t first = task * COLUMNS, n = a->width - first < COLUMNS ? a->width - first : COLUMNS;

    for (uint64_t r = 0; r < a->rows; r++) {
        const float *dx = (const float *)a->dx + r * a->width + first;
        if (a->dembed)
            add_scaled(a->dembed + (uint64_t)a->tokens[r] * a->width + first, dx,
                       bl_v_set(a->scale), n);
        if (a->dposition)
            add_scaled(a->dposition + r % a->time * a->width + first, dx, bl_v_set(1.0f), n);
    }
}

void BL_CPU(embedding_grad)(struct bl_backend *b, const struct bl_embedding_grad *a)
{
    bl_pool_run(bl_cpu_pool(b), (a->width + COLUMNS - 1) / COLUMNS, backward_columns,
                (void *)(uintptr_t)a);
}
