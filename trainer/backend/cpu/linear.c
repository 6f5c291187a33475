/* Linear layers: output tiles cut by shape alone, each one GEMM call of one thread. */
#include <string.h>

#include "backend/cpu/cut.h"
#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"
#include "base/bf16.h"

struct forward {
    const struct bl_linear *a;
    struct bl_cut cut;
};

/* Rounds a tile in place. */
static void round_tile(float *c, uint64_t m, uint64_t n, uint64_t ld)
{
    for (uint64_t i = 0; i < m; i++) {
        float *row = c + i * ld;
        uint64_t j = 0;
        for (; j + BL_LANES <= n; j += BL_LANES)
            bl_v_store(row + j, bl_v_bf16(bl_v_load(row + j)));
        for (; j < n; j++)
            row[j] = bl_bf16_nearest(row[j]);
    }
}

/* The product is added to bias and residual: the tile starts as their sum. */
static void forward_tile(void *argument, uint64_t index)
{
    const struct forward *f = argument;
    const struct bl_linear *a = f->a;
    struct bl_tile_area t = bl_cut_tile(&f->cut, index);
    float *y = (float *)a->y + t.row * a->out + t.column;
    const float *bias = a->bias ? (const float *)a->bias + t.column : NULL;

    if (a->residual) {
        const float *r = (const float *)a->residual + t.row * a->out + t.column;
        for (uint64_t i = 0; i < t.rows; i++) {
            float *to = y + i * a->out;
            const float *from = r + i * a->out;
            if (bias)
                for (uint64_t j = 0; j < t.columns; j++)
                    to[j] = from[j] + bias[j];
            else if (to != from)
                memcpy(to, from, t.columns * sizeof *to);
        }
    } else if (bias) {
        for (uint64_t i = 0; i < t.rows; i++)
            memcpy(y + i * a->out, bias, t.columns * sizeof *y);
    }
    bl_cpu_gemm('N', 'T', t.rows, t.columns, a->in, 1.0f, (const float *)a->x + t.row * a->in,
                a->in, (const float *)a->w + t.column * a->in, a->in,
                a->residual || bias ? 1.0f : 0.0f, y, a->out);
    if (a->act == BL_BF16)
        round_tile(y, t.rows, t.columns, a->out);
}

void BL_CPU(linear)(struct bl_backend *b, const struct bl_linear *a)
{
    struct forward f = {a, bl_cut_make(a->rows, a->out)};

    bl_pool_run(bl_cpu_pool(b), f.cut.count, forward_tile, &f);
}

#define BIAS_COLUMNS 128
#define BIAS_ROWS    64

struct backward {
    const struct bl_linear_grad *a;
    struct bl_cut dx, dw;
    uint64_t dbias;
};

static void dx_tile(const struct backward *f, uint64_t index)
{
    const struct bl_linear_grad *a = f->a;
    struct bl_tile_area t = bl_cut_tile(&f->dx, index);
    float *dx = (float *)a->dx + t.row * a->in + t.column;

    bl_cpu_gemm('N', 'N', t.rows, t.columns, a->out, 1.0f, (const float *)a->dy + t.row * a->out,
                a->out, (const float *)a->w + t.column, a->in, a->acc_x ? 1.0f : 0.0f, dx, a->in);
    if (a->act == BL_BF16)
        round_tile(dx, t.rows, t.columns, a->in);
}

static void dw_tile(const struct backward *f, uint64_t index)
{
    const struct bl_linear_grad *a = f->a;
    struct bl_tile_area t = bl_cut_tile(&f->dw, index);

    bl_cpu_gemm('T', 'N', t.rows, t.columns, a->rows, 1.0f, (const float *)a->dy + t.row, a->out,
                (const float *)a->x + t.column, a->in, a->acc_w ? 1.0f : 0.0f,
                a->dw + t.row * a->in + t.column, a->in);
}

/* Column sums: fp32 over blocks of 64 rows, fp64 over the blocks, both in row order. */
static void dbias_block(const struct backward *f, uint64_t index)
{
    const struct bl_linear_grad *a = f->a;
    uint64_t first = index * BIAS_COLUMNS, n = a->out - first;
    double total[BIAS_COLUMNS] = {0};

    n = n < BIAS_COLUMNS ? n : BIAS_COLUMNS;
    for (uint64_t row = 0; row < a->rows; row += BIAS_ROWS) {
        uint64_t end = row + BIAS_ROWS < a->rows ? row + BIAS_ROWS : a->rows;
        float sum[BIAS_COLUMNS] = {0};
        for (uint64_t r = row; r < end; r++) {
            const float *dy = (const float *)a->dy + r * a->out + first;
            uint64_t j = 0;
            for (; j + BL_LANES <= n; j += BL_LANES)
                bl_v_store(sum + j, bl_v_load(sum + j) + bl_v_load(dy + j));
            for (; j < n; j++)
                sum[j] += dy[j];
        }
        for (uint64_t j = 0; j < n; j++)
            total[j] += (double)sum[j];
    }
    for (uint64_t j = 0; j < n; j++) {
        float *out = a->dbias + first + j;
        *out = (a->acc_w ? *out : 0.0f) + (float)total[j];
    }
}

static void backward_task(void *argument, uint64_t i)
{
    const struct backward *f = argument;

    if (i >= f->dx.count + f->dw.count)
        dbias_block(f, i - f->dx.count - f->dw.count);
    else if (f->a->out >= f->a->rows) {
        if (i < f->dx.count)
            dx_tile(f, i);
        else
            dw_tile(f, i - f->dx.count);
    } else {
        if (i < f->dw.count)
            dw_tile(f, i);
        else
            dx_tile(f, i - f->dw.count);
    }
}

/* One run for everything that is wanted, the longer sums first: small tasks fill the ragged end. */
void BL_CPU(linear_grad)(struct bl_backend *b, const struct bl_linear_grad *a)
{
    struct backward f = {.a = a};

    if (a->dx)
        f.dx = bl_cut_make(a->rows, a->in);
    if (a->dw)
        f.dw = bl_cut_make(a->out, a->in);
    if (a->dbias)
        f.dbias = (a->out + BIAS_COLUMNS - 1) / BIAS_COLUMNS;
    bl_pool_run(bl_cpu_pool(b), f.dx.count + f.dw.count + f.dbias, backward_task, &f);
}
