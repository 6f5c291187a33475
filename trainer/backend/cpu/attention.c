/* Causal attention, forward: blocks of BLOCK queries against blocks of BLOCK keys with the softmax
 * kept online (Milakov & Gimelshein 2018, arXiv:1805.02867; Dao et al. 2022, arXiv:2205.14135).
 *
 * Scores are held transposed, s^T (keys, queries), queries along the lanes: maxima and sums over
 * keys are then plain vector operations. One task is one block of queries of one head; the order
 * of its sums depends on the shape only.
 *
 * With act BL_BF16 the inputs are bf16 values, p is rounded to bf16 before p v (the row sum takes
 * it unrounded) and `out` is rounded to act_out, as a tensor-core flash kernel does; everything
 * else is fp32.
 */
#include <math.h>

#include "backend/cpu/ops.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vmath.h"

#define BLOCK BL_ATTENTION_BLOCK

struct row_state { /* of the block's queries */
    float max[BLOCK], sum[BLOCK], scale[BLOCK];
};

/* Scores to probabilities for one vector of queries, in place over s (keys, BLOCK): key j counts
 * for lane i when j <= offset + i. Keys from `keys` to `all` are beyond every lane: p = 0. */
BL_V_INLINE void softmax(float *s, uint64_t keys, uint64_t all, int64_t offset, const int capped,
                         float cap, int bf16, float *max, float *sum, float *scale)
{
    const bl_vi lanes = bl_v_lane_numbers();
    const uint64_t full = offset + 1 < (int64_t)keys ? (uint64_t)(offset + 1) : keys;
    const bl_vf before = bl_v_load(max);
    bl_vf m = before, total = {0};

    for (uint64_t j = 0; j < keys; j++) {
        bl_vf x = bl_v_load(s + j * BLOCK);
        if (capped)
            x = bl_v_tanh(x) * cap;
        if (j >= full)
            x = bl_v_select(lanes >= (int32_t)((int64_t)j - offset), x, bl_v_set(-INFINITY));
        if (capped || j >= full)
            bl_v_store(s + j * BLOCK, x);
        m = bl_v_max(x, m); /* a NaN shows in the sum */
    }
    for (uint64_t j = 0; j < keys; j++) {
        bl_vf p = bl_v_exp_low(bl_v_load(s + j * BLOCK) - m);
        total += p;
        bl_v_store(s + j * BLOCK, bl_v_round(p, bf16));
    }
    for (uint64_t j = keys; j < all; j++)
        bl_v_store(s + j * BLOCK, (bl_vf){0});

    bl_vf shrink = bl_v_exp_low(before - m);
    bl_v_store(max, m);
    bl_v_store(scale, shrink);
    bl_v_store(sum, bl_v_load(sum) * shrink + total);
}

static void write_out(const struct bl_attention *a, const float *o, uint64_t padded, uint64_t n,
                      const struct row_state *state, float *out, float *lse)
{
    const int bf16 = a->act_out == BL_BF16;

    for (uint64_t i = 0; i < n; i++) {
        const float inverse = 1.0f / state->sum[i];
        float *to = out + i * a->stride_out;
        uint64_t d = 0;
        for (; d + BL_LANES <= a->head_dim; d += BL_LANES)
            bl_v_store(to + d, bl_v_round(bl_v_load(o + i * padded + d) * inverse, bf16));
        if (d < a->head_dim)
            bl_v_store_n(to + d, bl_v_round(bl_v_load(o + i * padded + d) * inverse, bf16),
                         a->head_dim - d);
        lse[i] = state->max[i] + logf(state->sum[i]);
    }
}

struct forward {
    const struct bl_attention *a;
    struct bl_pool *pool;
    uint64_t blocks; /* of queries */
};

static void forward_block(void *argument, uint64_t task)
{
    const struct forward *f = argument;
    const struct bl_attention *a = f->a;
    const uint64_t time = a->time, dim = a->head_dim;
    const uint64_t padded = bl_v_whole(dim);
    /* The longest blocks of a head first, so that the last tasks of the call are short. */
    const uint64_t q0 = (f->blocks - 1 - task % f->blocks) * BLOCK;
    const uint64_t sequence = task / f->blocks / a->heads, head = task / f->blocks % a->heads;
    const uint64_t kv_head = head / (a->heads / a->kv_heads);
    const uint64_t nq = bl_least(BLOCK, time - q0);
    const uint64_t columns = bl_v_whole(nq);
    const float *q = (const float *)a->q + (sequence * time + q0) * a->stride_q + head * dim;
    const float *k = (const float *)a->k + sequence * time * a->stride_k + kv_head * dim;
    const float *v = (const float *)a->v + sequence * time * a->stride_v + kv_head * dim;
    const int bf16 = a->act == BL_BF16, capped = a->softcap > 0.0f;
    float *q_t = bl_pool_scratch(f->pool, (dim + BLOCK + 2 * padded) * BLOCK * sizeof(float));
    float *s = q_t + dim * BLOCK, *values = s + BLOCK * BLOCK, *o = values + padded * BLOCK;
    struct row_state state;

    bl_tile_transpose(nq, dim, q, a->stride_q, capped ? a->scale / a->softcap : a->scale, q_t,
                      BLOCK, columns);
    for (uint64_t i = 0; i < BLOCK; i++) {
        state.max[i] = -INFINITY;
        state.sum[i] = 0.0f;
    }

    for (uint64_t k0 = 0; k0 < q0 + nq; k0 += BLOCK) {
        const uint64_t nk = bl_least(BLOCK, q0 + nq - k0);
        const int64_t ahead = (int64_t)(q0 - k0);

        for (uint64_t c = 0; c < columns; c += 2 * BL_LANES) {
            const uint64_t width = bl_least(2 * BL_LANES, columns - c);
            const uint64_t keys = bl_least(nk, q0 - k0 + c + width);
            const struct bl_tiles score = {.rows = keys,
                                           .columns = width,
                                           .depth = dim,
                                           .a = k + k0 * a->stride_k,
                                           .a_row = a->stride_k,
                                           .a_depth = 1,
                                           .b = q_t + c,
                                           .b_row = BLOCK,
                                           .c = s + c,
                                           .c_row = BLOCK,
                                           .low = -BL_TILE_FULL,
                                           .high = BL_TILE_FULL};
            bl_tiles_run(&score);
            for (uint64_t i = c; i < c + width; i += BL_LANES) {
                const int64_t offset = ahead + (int64_t)i;
                const uint64_t n = bl_least(nk, (uint64_t)offset + BL_LANES);
                if (capped)
                    softmax(s + i, n, nk, offset, 1, a->softcap, bf16, state.max + i, state.sum + i,
                            state.scale + i);
                else
                    softmax(s + i, n, nk, offset, 0, 0.0f, bf16, state.max + i, state.sum + i,
                            state.scale + i);
            }
        }
        bl_tile_pack(nk, dim, v + k0 * a->stride_v, a->stride_v, values, padded);
        const struct bl_tiles mix = {.rows = nq,
                                     .columns = padded,
                                     .depth = nk,
                                     .a = s,
                                     .a_row = 1,
                                     .a_depth = BLOCK,
                                     .b = values,
                                     .b_row = padded,
                                     .c = o,
                                     .c_row = padded,
                                     .add = k0 > 0,
                                     .row_scale = state.scale,
                                     .low = -BL_TILE_FULL,
                                     .high = ahead};
        bl_tiles_run(&mix);
    }
    write_out(a, o, padded, nq, &state,
              (float *)a->out + (sequence * time + q0) * a->stride_out + head * dim,
              a->lse + (sequence * a->heads + head) * time + q0);
}

void BL_CPU(attention)(struct bl_backend *b, const struct bl_attention *a)
{
    struct forward f = {a, bl_cpu_pool(b), (a->time + BLOCK - 1) / BLOCK};
    bl_pool_run(f.pool, a->batch * a->heads * f.blocks, forward_block, &f);
}
