/* Backward of causal attention. p is recomputed from lse; with delta_i = sum_d dout_id out_id
 *   dv = p^T dout,  ds = p (dout v^T - delta) [(1 - tanh^2)],  dq = scale ds k,  dk = scale ds^T q.
 *
 * Sums have one order: dk and dv over the query heads of the group, within a head over blocks of
 * queries; dq over blocks of keys. There are two ways to cut the work, with the same bits:
 *   - one task per key/value head of a sequence, which forms p and ds once (5 products);
 *   - when those are too few for the threads: tasks per block of keys for dk and dv and tasks per
 *     block of queries for dq, which form p and ds twice (7 products).
 * Scores are held transposed as in attention.c.
 *
 * With act BL_BF16, p and ds are rounded to bf16 before their products and dq, dk, dv are rounded
 * when written; delta uses `out` as stored. The sums are fp32.
 */
#include "backend/cpu/ops.h"
#include "backend/cpu/tile.h"
#include "backend/cpu/vmath.h"

#define BLOCK BL_ATTENTION_BLOCK

/* One vector of queries: scores s (keys, BLOCK) become p, dp becomes ds. Key j counts for lane i
 * when j <= offset + i; keys from `keys` to `all` are beyond every lane. */
BL_V_INLINE void score_grad(float *s, float *dp, uint64_t keys, uint64_t all, int64_t offset,
                            const int capped, float cap, int bf16, bl_vf lse, bl_vf delta)
{
    const bl_vi lanes = bl_v_lane_numbers();
    const uint64_t full = offset + 1 < (int64_t)keys ? (uint64_t)(offset + 1) : keys;

    for (uint64_t j = 0; j < keys; j++) {
        bl_vf x = bl_v_load(s + j * BLOCK), slope = bl_v_set(1.0f), p, ds;
        if (capped) {
            x = bl_v_tanh(x);
            slope = slope - x * x;
            x = x * cap;
        }
        p = bl_v_exp_low(x - lse);
        ds = p * (bl_v_load(dp + j * BLOCK) - delta);
        if (capped)
            ds = ds * slope;
        if (j >= full) {
            bl_vi mask = lanes >= (int32_t)((int64_t)j - offset);
            p = bl_v_select(mask, p, (bl_vf){0});
            ds = bl_v_select(mask, ds, (bl_vf){0});
        }
        bl_v_store(s + j * BLOCK, bl_v_round(p, bf16));
        bl_v_store(dp + j * BLOCK, bl_v_round(ds, bf16));
    }
    for (uint64_t j = keys; j < all; j++) {
        bl_v_store(s + j * BLOCK, (bl_vf){0});
        bl_v_store(dp + j * BLOCK, (bl_vf){0});
    }
}

static float row_dot(const float *x, const float *y, uint64_t n)
{
    bl_vf sum = {0};
    uint64_t d = 0;
    for (; d + BL_LANES <= n; d += BL_LANES)
        sum = bl_v_fma(bl_v_load(x + d), bl_v_load(y + d), sum);
    if (d < n)
        sum = bl_v_fma(bl_v_load_n(x + d, n - d), bl_v_load_n(y + d, n - d), sum);
    return bl_v_sum(sum);
}

static void write_rows(const float *x, uint64_t padded, uint64_t rows, uint64_t dim, float scale,
                       int bf16, float *out, uint64_t stride)
{
    for (uint64_t i = 0; i < rows; i++, x += padded, out += stride) {
        uint64_t d = 0;
        for (; d + BL_LANES <= dim; d += BL_LANES)
            bl_v_store(out + d, bl_v_round(bl_v_load(x + d) * scale, bf16));
        if (d < dim)
            bl_v_store_n(out + d, bl_v_round(bl_v_load(x + d) * scale, bf16), dim - d);
    }
}

struct work { /* of one task; scratch rows are `padded` long */
    const struct bl_attention_grad *g;
    const struct bl_attention *a;
    uint64_t padded, sequence, kv_head;
    const float *k, *v;          /* of the head, row 0 */
    float *s, *ds;               /* (BLOCK keys, BLOCK queries) */
    float *q_t, *do_t;           /* (D, BLOCK) */
    float *queries, *douts, *dq; /* (BLOCK, padded) */
    float *keys, *dk, *dv;       /* (key rows, padded) */
    float lse[BLOCK], delta[BLOCK];
};

static void begin(struct work *w, const struct bl_attention_grad *g, struct bl_pool *pool,
                  uint64_t sequence, uint64_t kv_head, uint64_t key_rows)
{
    const struct bl_attention *a = &g->forward;
    const uint64_t padded = bl_v_whole(a->head_dim), column = a->head_dim * BLOCK;
    float *scratch = bl_pool_scratch(
        pool, (2 * BLOCK * BLOCK + 2 * column + 3 * BLOCK * padded + 3 * key_rows * padded) *
                  sizeof(float));

    w->g = g;
    w->a = a;
    w->padded = padded;
    w->sequence = sequence;
    w->kv_head = kv_head;
    w->k = (const float *)a->k + sequence * a->time * a->stride_k + kv_head * a->head_dim;
    w->v = (const float *)a->v + sequence * a->time * a->stride_v + kv_head * a->head_dim;
    w->s = scratch;
    w->ds = w->s + BLOCK * BLOCK;
    w->queries = w->ds + BLOCK * BLOCK;
    w->douts = w->queries + BLOCK * padded;
    w->dq = w->douts + BLOCK * padded;
    w->keys = w->dq + BLOCK * padded;
    w->dk = w->keys + key_rows * padded;
    w->dv = w->dk + key_rows * padded;
    w->q_t = w->dv + key_rows * padded;
    w->do_t = w->q_t + column;
}

static void load_queries(struct work *w, uint64_t head, uint64_t q0, uint64_t nq)
{
    const struct bl_attention *a = w->a;
    const uint64_t dim = a->head_dim, columns = bl_v_whole(nq), row = w->sequence * a->time + q0;
    const float *q = (const float *)a->q + row * a->stride_q + head * dim;
    const float *dout = (const float *)w->g->dout + row * a->stride_out + head * dim;
    const float *out = (const float *)a->out + row * a->stride_out + head * dim;
    const float *lse = a->lse + (w->sequence * a->heads + head) * a->time + q0;
    const float scale = a->softcap > 0.0f ? a->scale / a->softcap : a->scale;

    bl_tile_transpose(nq, dim, q, a->stride_q, scale, w->q_t, BLOCK, columns);
    bl_tile_transpose(nq, dim, dout, a->stride_out, 1.0f, w->do_t, BLOCK, columns);
    bl_tile_pack(nq, dim, q, a->stride_q, w->queries, w->padded);
    bl_tile_pack(nq, dim, dout, a->stride_out, w->douts, w->padded);
    for (uint64_t i = 0; i < nq; i++) {
        w->lse[i] = lse[i];
        w->delta[i] = row_dot(dout + i * a->stride_out, out + i * a->stride_out, dim);
    }
    for (uint64_t i = nq; i < columns; i++)
        w->lse[i] = w->delta[i] = 0.0f;
}

/* p and ds of nq queries from q0 against nk keys from k0. */
static void block_scores(struct work *w, uint64_t q0, uint64_t nq, uint64_t k0, uint64_t nk)
{
    const struct bl_attention *a = w->a;
    const uint64_t columns = bl_v_whole(nq);
    const int bf16 = a->act == BL_BF16;

    for (uint64_t c = 0; c < columns; c += 2 * BL_LANES) {
        const uint64_t width = bl_least(2 * BL_LANES, columns - c);
        struct bl_tiles t = {.rows = bl_least(nk, q0 - k0 + c + width),
                             .columns = width,
                             .depth = a->head_dim,
                             .a = w->k + k0 * a->stride_k,
                             .a_row = a->stride_k,
                             .a_depth = 1,
                             .b = w->q_t + c,
                             .b_row = BLOCK,
                             .c = w->s + c,
                             .c_row = BLOCK,
                             .low = -BL_TILE_FULL,
                             .high = BL_TILE_FULL};
        bl_tiles_run(&t);
        t.a = w->v + k0 * a->stride_v;
        t.a_row = a->stride_v;
        t.b = w->do_t + c;
        t.c = w->ds + c;
        bl_tiles_run(&t);
        for (uint64_t i = c; i < c + width; i += BL_LANES) {
            const int64_t offset = (int64_t)(q0 - k0 + i);
            const uint64_t n = bl_least(nk, (uint64_t)offset + BL_LANES);
            const bl_vf lse = bl_v_load(w->lse + i), delta = bl_v_load(w->delta + i);
            if (a->softcap > 0.0f)
                score_grad(w->s + i, w->ds + i, n, nk, offset, 1, a->softcap, bf16, lse, delta);
            else
                score_grad(w->s + i, w->ds + i, n, nk, offset, 0, 0.0f, bf16, lse, delta);
        }
    }
}

/* dk and dv of the block of keys += its share from the block of queries. */
static void add_dkv(const struct work *w, uint64_t q0, uint64_t nq, uint64_t k0, uint64_t nk,
                    float *dk, float *dv)
{
    struct bl_tiles t = {.rows = nk,
                         .columns = w->padded,
                         .depth = nq,
                         .a = w->s,
                         .a_row = BLOCK,
                         .a_depth = 1,
                         .b = w->douts,
                         .b_row = w->padded,
                         .c = dv,
                         .c_row = w->padded,
                         .add = 1,
                         .low = -(int64_t)(q0 - k0),
                         .high = BL_TILE_FULL};
    bl_tiles_run(&t);
    t.a = w->ds;
    t.b = w->queries;
    t.c = dk;
    bl_tiles_run(&t);
}

static void add_dq(const struct work *w, uint64_t q0, uint64_t nq, uint64_t k0, uint64_t nk,
                   const float *keys)
{
    const struct bl_tiles t = {.rows = nq,
                               .columns = w->padded,
                               .depth = nk,
                               .a = w->ds,
                               .a_row = 1,
                               .a_depth = BLOCK,
                               .b = keys,
                               .b_row = w->padded,
                               .c = w->dq,
                               .c_row = w->padded,
                               .add = k0 > 0,
                               .low = -BL_TILE_FULL,
                               .high = (int64_t)(q0 - k0)};
    bl_tiles_run(&t);
}

static void write_dq(const struct work *w, uint64_t head, uint64_t q0, uint64_t nq)
{
    const struct bl_attention *a = w->a;
    const uint64_t row = w->sequence * a->time + q0;

    write_rows(w->dq, w->padded, nq, a->head_dim, a->scale, a->act == BL_BF16,
               (float *)w->g->dq + row * a->stride_q + head * a->head_dim, a->stride_q);
}

static void write_dkv(const struct work *w, uint64_t k0, uint64_t nk)
{
    const struct bl_attention *a = w->a;
    const uint64_t row = w->sequence * a->time + k0, column = w->kv_head * a->head_dim;
    const int bf16 = a->act == BL_BF16;

    write_rows(w->dk, w->padded, nk, a->head_dim, a->scale, bf16,
               (float *)w->g->dk + row * a->stride_k + column, a->stride_k);
    write_rows(w->dv, w->padded, nk, a->head_dim, 1.0f, bf16,
               (float *)w->g->dv + row * a->stride_v + column, a->stride_v);
}

struct backward {
    const struct bl_attention_grad *g;
    struct bl_pool *pool;
    uint64_t blocks, group, key_tasks;
};

static void head_task(void *argument, uint64_t task)
{
    const struct backward *b = argument;
    const struct bl_attention *a = &b->g->forward;
    struct work w;

    begin(&w, b->g, b->pool, task / a->kv_heads, task % a->kv_heads, a->time);
    bl_tile_pack(a->time, a->head_dim, w.k, a->stride_k, w.keys, w.padded);
    memset(w.dk, 0, 2 * a->time * w.padded * sizeof(float));
    for (uint64_t h = w.kv_head * b->group; h < (w.kv_head + 1) * b->group; h++)
        for (uint64_t q0 = 0; q0 < a->time; q0 += BLOCK) {
            const uint64_t nq = bl_least(BLOCK, a->time - q0);
            load_queries(&w, h, q0, nq);
            for (uint64_t k0 = 0; k0 < q0 + nq; k0 += BLOCK) {
                const uint64_t nk = bl_least(BLOCK, q0 + nq - k0);
                block_scores(&w, q0, nq, k0, nk);
                add_dkv(&w, q0, nq, k0, nk, w.dk + k0 * w.padded, w.dv + k0 * w.padded);
                add_dq(&w, q0, nq, k0, nk, w.keys + k0 * w.padded);
            }
            write_dq(&w, h, q0, nq);
        }
    write_dkv(&w, 0, a->time);
}

static void key_task(const struct backward *b, uint64_t task)
{
    const struct bl_attention *a = &b->g->forward;
    const uint64_t head = task / b->blocks, k0 = task % b->blocks * BLOCK;
    const uint64_t nk = bl_least(BLOCK, a->time - k0);
    struct work w;

    begin(&w, b->g, b->pool, head / a->kv_heads, head % a->kv_heads, BLOCK);
    memset(w.dk, 0, 2 * BLOCK * w.padded * sizeof(float));
    for (uint64_t h = w.kv_head * b->group; h < (w.kv_head + 1) * b->group; h++)
        for (uint64_t q0 = k0; q0 < a->time; q0 += BLOCK) {
            const uint64_t nq = bl_least(BLOCK, a->time - q0);
            load_queries(&w, h, q0, nq);
            block_scores(&w, q0, nq, k0, nk);
            add_dkv(&w, q0, nq, k0, nk, w.dk, w.dv);
        }
    write_dkv(&w, k0, nk);
}

static void query_task(const struct backward *b, uint64_t task)
{
    const struct bl_attention *a = &b->g->forward;
    const uint64_t head = task / b->blocks % a->heads;
    const uint64_t q0 = (b->blocks - 1 - task % b->blocks) * BLOCK; /* the longest first */
    const uint64_t nq = bl_least(BLOCK, a->time - q0);
    struct work w;

    begin(&w, b->g, b->pool, task / b->blocks / a->heads, head / b->group, BLOCK);
    load_queries(&w, head, q0, nq);
    for (uint64_t k0 = 0; k0 < q0 + nq; k0 += BLOCK) {
        const uint64_t nk = bl_least(BLOCK, q0 + nq - k0);
        block_scores(&w, q0, nq, k0, nk);
        bl_tile_pack(nk, a->head_dim, w.k + k0 * a->stride_k, a->stride_k, w.keys, w.padded);
        add_dq(&w, q0, nq, k0, nk, w.keys);
    }
    write_dq(&w, head, q0, nq);
}

static void split_task(void *argument, uint64_t task)
{
    const struct backward *b = argument;

    if (task < b->key_tasks)
        key_task(b, task);
    else
        query_task(b, task - b->key_tasks);
}

void BL_CPU(attention_grad)(struct bl_backend *backend, const struct bl_attention_grad *g)
{
    const struct bl_attention *a = &g->forward;
    struct backward b = {.g = g,
                         .pool = bl_cpu_pool(backend),
                         .blocks = (a->time + BLOCK - 1) / BLOCK,
                         .group = a->heads / a->kv_heads};
    const uint64_t heads = a->batch * a->kv_heads, threads = bl_pool_threads(b.pool);
    const uint64_t rounds = (heads + threads - 1) / threads;

    /* Whole heads keep heads / (rounds threads) of the threads busy; splitting costs 7/5. */
    if (b.blocks > 1 && 3 * heads < 2 * rounds * threads) {
        b.key_tasks = heads * b.blocks;
        bl_pool_run(b.pool, b.key_tasks + a->batch * a->heads * b.blocks, split_task, &b);
    } else {
        bl_pool_run(b.pool, heads, head_task, &b);
    }
}
