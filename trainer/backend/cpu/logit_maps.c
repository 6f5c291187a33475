/* Maps of logits: softcap and the row scale, with their backward passes. */
#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"
#include "backend/cpu/vmath.h"
#include "base/bf16.h"

struct map {
    uint64_t rows, vocab, stride, rows_per_task;
    float c;
    int bf16;
    const double *scale, *d_mean, *d_m2, *mean;
    const float *z;
    float *out;
};

static void softcap_row(const struct map *m, uint64_t row)
{
    float *z = m->out + row * m->stride;

    for (uint64_t v = 0; v < m->vocab; v += BL_LANES) {
        const uint64_t left = m->vocab - v;
        bl_vf x = left >= BL_LANES ? bl_v_load(z + v) : bl_v_load_n(z + v, left);
        x = bl_v_round(bl_v_tanh(x / m->c) * m->c, m->bf16);
        if (left >= BL_LANES)
            bl_v_store(z + v, x);
        else
            bl_v_store_n(z + v, x, left);
    }
}

/* 1 - t^2 as (1 - t)(1 + t): no cancellation left at t near 1. */
static void softcap_grad_row(const struct map *m, uint64_t row)
{
    const float *z = m->z + row * m->stride;
    float *dz = m->out + row * m->stride;

    for (uint64_t v = 0; v < m->vocab; v += BL_LANES) {
        const uint64_t left = m->vocab - v;
        const int whole = left >= BL_LANES;
        const bl_vf t = (whole ? bl_v_load(z + v) : bl_v_load_n(z + v, left)) / m->c;
        bl_vf g = whole ? bl_v_load(dz + v) : bl_v_load_n(dz + v, left);
        g = bl_v_round(g * ((1.0f - t) * (1.0f + t)), m->bf16);
        if (whole)
            bl_v_store(dz + v, g);
        else
            bl_v_store_n(dz + v, g, left);
    }
}

/* Products in fp64, one rounding: a factor rounded to fp32 would move the whole row the same way.
 */
static void scale_row(const struct map *m, uint64_t row)
{
    float *z = m->out + row * m->stride;
    const double s = m->scale[row];

    for (uint64_t v = 0; v < m->vocab; v++) {
        const float x = (float)(s * (double)z[v]);
        z[v] = m->bf16 ? bl_bf16_nearest(x) : x;
    }
}

static void scale_grad_row(const struct map *m, uint64_t row)
{
    const float *z = m->z + row * m->stride;
    float *dz = m->out + row * m->stride;
    const double s = m->scale[row], inverse = 1.0 / s;
    struct bl_vacc sum = {0};
    uint64_t v = 0;
    double q, plain, slope;

    for (; v + BL_LANES <= m->vocab; v += BL_LANES)
        bl_vacc_fma(&sum, bl_v_load(dz + v), bl_v_load(z + v));
    if (v < m->vocab)
        bl_vacc_fma(&sum, bl_v_load_n(dz + v, m->vocab - v), bl_v_load_n(z + v, m->vocab - v));
    q = bl_vacc_sum(&sum) * inverse;
    slope = m->d_m2 ? q * 2.0 * m->d_m2[row] : 0.0;
    plain = m->d_mean ? q * m->d_mean[row] / (double)m->vocab : 0.0;
    if (slope != 0.0)
        plain -= slope * m->mean[row];
    slope *= inverse;
    for (v = 0; v < m->vocab; v++) {
        const float g = (float)(s * (double)dz[v] + (plain + slope * (double)z[v]));
        dz[v] = m->bf16 ? bl_bf16_nearest(g) : g;
    }
}

struct task {
    const struct map *m;
    void (*row)(const struct map *m, uint64_t row);
};

static void rows(void *argument, uint64_t i)
{
    const struct task *t = argument;
    const uint64_t begin = i * t->m->rows_per_task, end = begin + t->m->rows_per_task;

    for (uint64_t row = begin; row < end && row < t->m->rows; row++)
        t->row(t->m, row);
}

static void run(struct bl_backend *b, struct map *m, void (*row)(const struct map *m, uint64_t row))
{
    struct task t = {m, row};

    m->rows_per_task = m->vocab < 16384 ? 16384 / (m->vocab ? m->vocab : 1) : 1;
    bl_pool_run(bl_cpu_pool(b), (m->rows + m->rows_per_task - 1) / m->rows_per_task, rows, &t);
}

void BL_CPU(softcap)(struct bl_backend *b, uint64_t count, uint64_t vocab, uint64_t stride, float c,
                     void *z, uint32_t act)
{
    struct map m = {
        .rows = count, .vocab = vocab, .stride = stride, .c = c, .bf16 = act == BL_BF16, .out = z};
    run(b, &m, softcap_row);
}

void BL_CPU(softcap_grad)(struct bl_backend *b, uint64_t count, uint64_t vocab, uint64_t stride,
                          float c, const void *z, void *dz, uint32_t act)
{
    struct map m = {.rows = count,
                    .vocab = vocab,
                    .stride = stride,
                    .c = c,
                    .bf16 = act == BL_BF16,
                    .z = z,
                    .out = dz};
    run(b, &m, softcap_grad_row);
}

void BL_CPU(row_scale)(struct bl_backend *b, uint64_t count, uint64_t vocab, uint64_t stride,
                       const double *scale, void *z, uint32_t act)
{
    struct map m = {.rows = count,
                    .vocab = vocab,
                    .stride = stride,
                    .bf16 = act == BL_BF16,
                    .scale = scale,
                    .out = z};
    run(b, &m, scale_row);
}

void BL_CPU(row_scale_grad)(struct bl_backend *b, uint64_t count, uint64_t vocab, uint64_t stride,
                            const double *scale, const double *d_mean, const double *d_m2,
                            const double *mean, const void *z, void *dz, uint32_t act)
{
    struct map m = {.rows = count,
                    .vocab = vocab,
                    .stride = stride,
                    .bf16 = act == BL_BF16,
                    .scale = scale,
                    .d_mean = d_mean,
                    .d_m2 = d_m2,
                    .mean = mean,
                    .z = z,
                    .out = dz};
    run(b, &m, scale_grad_row);
}
