/* GELU (tanh form) and SwiGLU. */
#include "backend/cpu/ops.h"
#include "backend/cpu/vmath.h"

#define BLOCK 4096 /* elements of a task */

/* 0.5 (1 + tanh u) = sigmoid(2u): no cancellation for negative x, one exp instead of a tanh. */
#define GELU_LINEAR 1.5957691216f /* 2 sqrt(2/pi) */
#define GELU_CUBIC  0.044715f

BL_V_INLINE bl_vf within(bl_vf x, float most)
{
    const bl_vf high = bl_v_set(most);

    x = bl_v_select(x > high, high, x); /* comparisons that leave a NaN alone */
    return bl_v_select(x < -high, -high, x);
}

/* 2u of 0.5 x (1 + tanh u) */
BL_V_INLINE bl_vf twice_u(bl_vf x, bl_vf square)
{
    return bl_v_set(GELU_LINEAR) * x * bl_v_fma(bl_v_set(GELU_CUBIC), square, bl_v_set(1.0f));
}

/* Past +-13 the sigmoid is 0 or 1 to the last bit, and x^3 must not overflow. */
BL_V_INLINE bl_vf gelu(bl_vf x)
{
    bl_vf c = within(x, 13.0f);

    return x * bl_v_sigmoid(twice_u(c, c * c));
}

/* s + x s (1 - s) d(2u)/dx with 1 - s = e s, e = exp(-2u): no cancellation. Past +-10 the slope is
 * 0 or 1 to within 1e-35, and e is still finite there. */
BL_V_INLINE bl_vf gelu_slope(bl_vf x)
{
    bl_vf c = within(x, 10.0f), one = bl_v_set(1.0f), square = c * c;
    bl_vf e = bl_v_exp(-twice_u(c, square)), s = one / (one + e);
    bl_vf du = bl_v_set(GELU_LINEAR) * bl_v_fma(bl_v_set(3.0f * GELU_CUBIC), square, one);

    return bl_v_fma(c * du * s, e * s, s);
}

struct gelu_task {
    uint64_t n;
    const float *x, *dy;
    float *out;
    int bf16;
};

static void gelu_block(void *argument, uint64_t block)
{
    const struct gelu_task *t = argument;
    uint64_t i = block * BLOCK, end = i + BLOCK < t->n ? i + BLOCK : t->n;

    for (; i + BL_LANES <= end; i += BL_LANES)
        bl_v_store(t->out + i, bl_v_round(gelu(bl_v_load(t->x + i)), t->bf16));
    if (i < end)
        bl_v_store_n(t->out + i, bl_v_round(gelu(bl_v_load_n(t->x + i, end - i)), t->bf16),
                     end - i);
}

static void gelu_grad_block(void *argument, uint64_t block)
{
    const struct gelu_task *t = argument;
    uint64_t i = block * BLOCK, end = i + BLOCK < t->n ? i + BLOCK : t->n;

    for (; i + BL_LANES <= end; i += BL_LANES) {
        bl_vf v = bl_v_load(t->dy + i) * gelu_slope(bl_v_load(t->x + i));
        bl_v_store(t->out + i, bl_v_round(v, t->bf16));
    }
    if (i < end) {
        bl_vf v = bl_v_load_n(t->dy + i, end - i) * gelu_slope(bl_v_load_n(t->x + i, end - i));
        bl_v_store_n(t->out + i, bl_v_round(v, t->bf16), end - i);
    }
}

void BL_CPU(gelu)(struct bl_backend *b, uint64_t n, const void *x, void *y, uint32_t act)
{
    struct gelu_task t = {n, x, NULL, y, act == BL_BF16};

    bl_pool_run(bl_cpu_pool(b), (n + BLOCK - 1) / BLOCK, gelu_block, &t);
}

void BL_CPU(gelu_grad)(struct bl_backend *b, uint64_t n, const void *x, const void *dy, void *dx,
                       uint32_t act)
{
    struct gelu_task t = {n, x, dy, dx, act == BL_BF16};

    bl_pool_run(bl_cpu_pool(b), (n + BLOCK - 1) / BLOCK, gelu_grad_block, &t);
}

struct swiglu_task {
    uint64_t rows, width, per_task;
    const float *gate_up, *dy;
    float *out;
    int bf16;
};

static uint64_t rows_per_task(uint64_t width)
{
    return width < BLOCK ? BLOCK / (width ? width : 1) : 1;
}

static void swiglu_rows(void *argument, uint64_t index)
{
    const struct swiglu_task *t = argument;
    const uint64_t n = t->width, first = index * t->per_task;
    uint64_t end = first + t->per_task < t->rows ? first + t->per_task : t->rows;

    for (uint64_t r = first; r < end; r++) {
        const float *g = t->gate_up + r * 2 * n, *u = g + n;
        float *y = t->out + r * n;
        uint64_t i = 0;
        for (; i + BL_LANES <= n; i += BL_LANES)
            bl_v_store(y + i, bl_v_round(bl_v_silu(bl_v_load(g + i)) * bl_v_load(u + i), t->bf16));
        if (i < n) {
            bl_vf v = bl_v_silu(bl_v_load_n(g + i, n - i)) * bl_v_load_n(u + i, n - i);
            bl_v_store_n(y + i, bl_v_round(v, t->bf16), n - i);
        }
    }
}

/* dgate = dy up s (1 + gate (1 - s)), dup = dy gate s, s = sigmoid(gate), 1 - s = e s with
 * e = exp(-gate), finite down to -87; below both are 0 to within 1e-36 of dy up. */
BL_V_INLINE void swiglu_slopes(bl_vf g, bl_vf u, bl_vf dy, bl_vf *dg, bl_vf *du)
{
    bl_vf one = bl_v_set(1.0f), low = bl_v_set(-87.0f), c = bl_v_select(g < low, low, g);
    bl_vf e = bl_v_exp(-c), s = one / (one + e);

    *dg = dy * u * (s * bl_v_fma(c, e * s, one));
    *du = dy * (c * s);
}

static void swiglu_grad_rows(void *argument, uint64_t index)
{
    const struct swiglu_task *t = argument;
    const uint64_t n = t->width, first = index * t->per_task;
    uint64_t end = first + t->per_task < t->rows ? first + t->per_task : t->rows;

    for (uint64_t r = first; r < end; r++) {
        const float *g = t->gate_up + r * 2 * n, *u = g + n, *dy = t->dy + r * n;
        float *dg = t->out + r * 2 * n, *du = dg + n;
        uint64_t i = 0;
        bl_vf a, c;
        for (; i + BL_LANES <= n; i += BL_LANES) {
            swiglu_slopes(bl_v_load(g + i), bl_v_load(u + i), bl_v_load(dy + i), &a, &c);
            bl_v_store(dg + i, bl_v_round(a, t->bf16));
            bl_v_store(du + i, bl_v_round(c, t->bf16));
        }
        if (i < n) {
            swiglu_slopes(bl_v_load_n(g + i, n - i), bl_v_load_n(u + i, n - i),
                          bl_v_load_n(dy + i, n - i), &a, &c);
            bl_v_store_n(dg + i, bl_v_round(a, t->bf16), n - i);
            bl_v_store_n(du + i, bl_v_round(c, t->bf16), n - i);
        }
    }
}

void BL_CPU(swiglu)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                    void *y, uint32_t act)
{
    struct swiglu_task t = {rows, width, rows_per_task(width), gate_up, NULL, y, act == BL_BF16};

    bl_pool_run(bl_cpu_pool(b), (rows + t.per_task - 1) / t.per_task, swiglu_rows, &t);
}

void BL_CPU(swiglu_grad)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                         const void *dy, void *dgate_up, uint32_t act)
{
    struct swiglu_task t = {rows, width,    rows_per_task(width), gate_up,
                            dy,   dgate_up, act == BL_BF16};

    bl_pool_run(bl_cpu_pool(b), (rows + t.per_task - 1) / t.per_task, swiglu_grad_rows, &t);
}
