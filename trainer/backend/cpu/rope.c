/* Rotary embedding: (u, v) = (x_i, x_{i + D/2}) turned by the angle of (position, i). */
#include "backend/cpu/rope.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"

#define BLOCK_ROWS 16

struct task {
    const struct bl_rope *a;
    const struct bl_rope_table *table;
};

static void block(void *argument, uint64_t index)
{
    const struct task *t = argument;
    const struct bl_rope *a = t->a;
    const uint64_t half = a->head_dim / 2;
    const int bf16 = a->act == BL_BF16;
    const bl_vf sign = bl_v_set(a->direction < 0 ? -1.0f : 1.0f);
    uint64_t end = (index + 1) * BLOCK_ROWS < a->rows ? (index + 1) * BLOCK_ROWS : a->rows;

    for (uint64_t r = index * BLOCK_ROWS; r < end; r++) {
        const float *cosine = t->table->cosine + r % a->time * half;
        const float *sine = t->table->sine + r % a->time * half;
        for (uint64_t h = 0; h < a->heads; h++) {
            float *x = (float *)a->x + r * a->stride + h * a->head_dim;
            uint64_t i = 0;
            for (; i + BL_LANES <= half; i += BL_LANES) {
                bl_vf u = bl_v_load(x + i), v = bl_v_load(x + half + i);
                bl_vf c = bl_v_load(cosine + i), s = bl_v_load(sine + i) * sign;
                bl_v_store(x + i, bl_v_round(bl_v_fma(u, c, -(v * s)), bf16));
                bl_v_store(x + half + i, bl_v_round(bl_v_fma(v, c, u * s), bf16));
            }
            if (i < half) {
                uint64_t n = half - i;
                bl_vf u = bl_v_load_n(x + i, n), v = bl_v_load_n(x + half + i, n);
                bl_vf c = bl_v_load_n(cosine + i, n), s = bl_v_load_n(sine + i, n) * sign;
                bl_v_store_n(x + i, bl_v_round(bl_v_fma(u, c, -(v * s)), bf16), n);
                bl_v_store_n(x + half + i, bl_v_round(bl_v_fma(v, c, u * s), bf16), n);
            }
        }
    }
}

void BL_CPU(rope)(struct bl_backend *b, const struct bl_rope *a)
{
    struct task t = {a, NULL};

    if (a->rows == 0 || a->time == 0)
        return;
    t.table = bl_rope_table(b->state, a);
    bl_pool_run(bl_cpu_pool(b), (a->rows + BLOCK_ROWS - 1) / BLOCK_ROWS, block, &t);
}
