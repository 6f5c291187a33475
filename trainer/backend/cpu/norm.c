/* LayerNorm and RMSNorm.
 *
 * The mean is stored in fp32; with |mean| >> spread its rounding would shift every x_hat. So both
 * passes work on d = x - mean (exact when x is near the mean) and carry the mean of d, `shift`,
 * along: x_hat = (d - shift) rstd. Row sums are fp64.
 *
 * Weight gradients: blocks of 64 rows in row order give partial sums, combined in block order.
 */
#include <math.h>
#include <string.h>

#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"

#define BLOCK_ROWS 64
#define COLUMNS    256 /* of one task that combines partial sums */

static uint64_t row_blocks(uint64_t rows)
{
    return (rows + BLOCK_ROWS - 1) / BLOCK_ROWS;
}

/* v minus c in lanes 0 ... n - 1, zero elsewhere. */
BL_V_INLINE bl_vf less(bl_vf v, bl_vf c, uint64_t n)
{
    return n >= BL_LANES ? v - c : bl_v_keep(v - c, n);
}

BL_V_INLINE bl_vf load_up_to(const float *p, uint64_t n)
{
    return n >= BL_LANES ? bl_v_load(p) : bl_v_load_n(p, n);
}

BL_V_INLINE void store_up_to(float *p, bl_vf v, uint64_t n)
{
    if (n >= BL_LANES)
        bl_v_store(p, v);
    else
        bl_v_store_n(p, v, n);
}

static float mean_of(const float *x, uint64_t n)
{
    struct bl_vacc sum = {{0}, {0}};

    for (uint64_t i = 0; i < n; i += BL_LANES)
        bl_vacc_add(&sum, load_up_to(x + i, n - i));
    return (float)(bl_vacc_sum(&sum) / (double)n);
}

struct forward {
    const struct bl_norm *a;
    uint64_t stride_x, stride_y;
};

static void forward_row(const struct bl_norm *a, const float *x, float *y, float *mean, float *rstd)
{
    const float *weight = a->weight, *bias = a->bias;
    const uint64_t n = a->width;
    const int bf16 = a->act == BL_BF16, inner = a->arithmetic == BL_BF16;
    float m = mean ? mean_of(x, n) : 0.0f;
    struct bl_vacc sum = {{0}, {0}}, squares = {{0}, {0}};
    double shift, variance;
    bl_vf vm = bl_v_set(m), vshift, vr;

    for (uint64_t i = 0; i < n; i += BL_LANES) {
        bl_vf d = less(load_up_to(x + i, n - i), vm, n - i);
        bl_vacc_add(&sum, d);
        bl_vacc_fma(&squares, d, d);
    }
    shift = mean ? bl_vacc_sum(&sum) / (double)n : 0.0;
    variance = bl_vacc_sum(&squares) / (double)n - shift * shift;
    *rstd = (float)(1.0 / sqrt(variance + (double)a->eps));
    if (mean)
        *mean = m;

    vr = bl_v_set(*rstd);
    vshift = bl_v_set((float)shift);
    for (uint64_t i = 0; i < n; i += BL_LANES) {
        bl_vf v = (load_up_to(x + i, n - i) - vm - vshift) * vr, w = load_up_to(weight + i, n - i);
        v = bl_v_round(v, inner);
        v = bias ? bl_v_fma(v, w, load_up_to(bias + i, n - i)) : v * w;
        store_up_to(y + i, bl_v_round(v, bf16), n - i);
    }
}

static void forward_block(void *argument, uint64_t block)
{
    const struct forward *f = argument;
    const struct bl_norm *a = f->a;
    uint64_t end = (block + 1) * BLOCK_ROWS < a->rows ? (block + 1) * BLOCK_ROWS : a->rows;

    for (uint64_t r = block * BLOCK_ROWS; r < end; r++) {
        for (uint64_t g = 0; g < a->groups; g++) {
            uint64_t s = r * a->groups + g;
            forward_row(a, (const float *)a->x + r * f->stride_x + g * a->width,
                        (float *)a->y + r * f->stride_y + g * a->width,
                        a->mean ? a->mean + s : NULL, a->rstd + s);
        }
    }
}

void BL_CPU(norm)(struct bl_backend *b, const struct bl_norm *a)
{
    struct bl_norm copy = *a;
    struct forward f = {&copy, 0, 0};

    copy.groups = a->groups ? a->groups : 1;
    f.stride_x = a->stride_x ? a->stride_x : a->width * copy.groups;
    f.stride_y = a->stride_y ? a->stride_y : a->width * copy.groups;
    bl_pool_run(bl_cpu_pool(b), row_blocks(a->rows), forward_block, &f);
}

struct backward {
    struct bl_norm_grad a;
    float *partial; /* (blocks, 2, width): dweight, dbias */
};

/* dx = rstd (h - mean(h) - x_hat mean(h x_hat)), h = dy weight; RMSNorm without mean(h). Adds the
 * row to the block's partial sums. With arithmetic BL_BF16 the gain's gradient takes x_hat as the
 * gain multiplied it, and h is rounded as the gradient of that number. */
static void backward_row(const struct backward *f, const float *dy, const float *x, float *dx,
                         const float *mean, float rstd, float *dweight, float *dbias)
{
    const struct bl_norm_grad *a = &f->a;
    const float *weight = a->weight;
    const uint64_t n = a->width;
    const int bf16 = a->act == BL_BF16, inner = a->arithmetic == BL_BF16;
    const bl_vf vm = bl_v_set(mean ? *mean : 0.0f), vr = bl_v_set(rstd);
    struct bl_vacc sd = {{0}, {0}}, sh = {{0}, {0}}, shd = {{0}, {0}};
    double shift, mean_h, mean_hx;
    bl_vf vshift, vmean_h, vmean_hx;

    for (uint64_t i = 0; i < n; i += BL_LANES) {
        bl_vf d = less(load_up_to(x + i, n - i), vm, n - i);
        bl_vf h = load_up_to(dy + i, n - i) * load_up_to(weight + i, n - i);
        h = bl_v_round(h, inner);
        bl_vacc_add(&sd, d);
        bl_vacc_add(&sh, h);
        bl_vacc_fma(&shd, h, d);
    }
    shift = mean ? bl_vacc_sum(&sd) / (double)n : 0.0;
    mean_h = bl_vacc_sum(&sh) / (double)n;
    mean_hx = (bl_vacc_sum(&shd) / (double)n - shift * mean_h) * (double)rstd;
    vshift = bl_v_set((float)shift);
    vmean_h = bl_v_set(mean ? (float)mean_h : 0.0f);
    vmean_hx = bl_v_set((float)mean_hx);

    for (uint64_t i = 0; i < n; i += BL_LANES) {
        uint64_t k = n - i;
        bl_vf g = load_up_to(dy + i, k), hat = (load_up_to(x + i, k) - vm - vshift) * vr, v;
        bl_vf h = bl_v_round(g * load_up_to(weight + i, k), inner);
        if (dweight)
            store_up_to(dweight + i,
                        bl_v_fma(g, bl_v_round(hat, inner), load_up_to(dweight + i, k)), k);
        if (dbias)
            store_up_to(dbias + i, load_up_to(dbias + i, k) + g, k);
        if (!dx)
            continue;
        v = (h - vmean_h - hat * vmean_hx) * vr;
        if (a->acc_x)
            v += load_up_to(dx + i, k);
        store_up_to(dx + i, bl_v_round(v, bf16), k);
    }
}

static void backward_block(void *argument, uint64_t block)
{
    const struct backward *f = argument;
    const struct bl_norm_grad *a = &f->a;
    uint64_t end = (block + 1) * BLOCK_ROWS < a->rows ? (block + 1) * BLOCK_ROWS : a->rows;
    float *part = f->partial ? f->partial + block * 2 * a->width : NULL;

    if (part)
        memset(part, 0, 2 * a->width * sizeof *part);
    for (uint64_t r = block * BLOCK_ROWS; r < end; r++) {
        for (uint64_t g = 0; g < a->groups; g++) {
            uint64_t s = r * a->groups + g;
            backward_row(f, (const float *)a->dy + r * a->stride_dy + g * a->width,
                         (const float *)a->x + r * a->stride_x + g * a->width,
                         a->dx ? (float *)a->dx + r * a->stride_dx + g * a->width : NULL,
                         a->mean ? a->mean + s : NULL, a->rstd[s], a->dweight ? part : NULL,
                         a->dbias ? part + a->width : NULL);
        }
    }
}

static void combine(void *argument, uint64_t task)
{
    const struct backward *f = argument;
    const struct bl_norm_grad *a = &f->a;
    uint64_t first = task * COLUMNS, n = a->width - first < COLUMNS ? a->width - first : COLUMNS;
    float *outputs[2] = {a->dweight, a->dbias};

    for (int k = 0; k < 2; k++) {
        double sum[COLUMNS] = {0};
        if (!outputs[k])
            continue;
        for (uint64_t block = 0; block < row_blocks(a->rows); block++) {
            const float *part = f->partial + (block * 2 + (uint64_t)k) * a->width + first;
            for (uint64_t i = 0; i < n; i++)
                sum[i] += (double)part[i];
        }
        for (uint64_t i = 0; i < n; i++) {
            float *out = outputs[k] + first + i;
            *out = (a->acc_w ? *out : 0.0f) + (float)sum[i];
        }
    }
}

void BL_CPU(norm_grad)(struct bl_backend *b, const struct bl_norm_grad *a)
{
    struct bl_pool *pool = bl_cpu_pool(b);
    struct backward f = {*a, NULL};
    uint64_t blocks = row_blocks(a->rows), across;

    f.a.groups = a->groups ? a->groups : 1;
    across = a->width * f.a.groups;
    f.a.stride_dy = a->stride_dy ? a->stride_dy : across;
    f.a.stride_x = a->stride_x ? a->stride_x : across;
    f.a.stride_dx = a->stride_dx ? a->stride_dx : across;
    if (a->dweight || a->dbias)
        f.partial = bl_pool_results(pool, blocks * 2 * a->width * sizeof *f.partial);
    bl_pool_run(pool, blocks, backward_block, &f);
    if (f.partial)
        bl_pool_run(pool, (a->width + COLUMNS - 1) / COLUMNS, combine, &f);
}
