/* Row statistics of logits and their gradient.
 *
 * Statistics go over a row once, in blocks that stay in the first-level cache. Per block, sums are
 * fp32 in the lanes, of small numbers only:
 *   - with c near the block's mean, sum (z - c) and sum (z - c)^2 give mean and m2 of the block.
 *     c = z_0 + sum (z - z_0) / n is off the mean by no more than a few 1e-4 of the block's spread
 *     (|z_0 - mean| <= sqrt(n) spread), so the correction m2 -= (sum (z - c))^2 / n cancels
 *     nothing, and differences of fp32 numbers are exact where an offset common to all dominates;
 *   - exp is of z - M, M the largest logit so far.
 * Blocks are joined in fp64 in index order (Chan, Golub, LeVeque 1983); when M rises, the sums of
 * exp are rescaled. A block with infinities, NaN or differences beyond fp32, and what a row has
 * left of a vector, is done one element at a time in fp64.
 */
#include <float.h>
#include <math.h>

#include "backend/cpu/ops.h"
#include "backend/cpu/tile.h"
#include "base/bf16.h"

#define BLOCK 1024

struct row_sums {
    double n, mean, m2;
    double top;          /* M, -inf before the first logit */
    double exp, exp_gap; /* sum e, sum e (z - M), e = exp(z - M) */
    int64_t argmax;      /* of the first NaN when there is one */
    int nan;
};

static void join_moments(struct row_sums *s, double n, double mean, double m2)
{
    const double total = s->n + n, gap = mean - s->mean;

    if (!isfinite(mean) || !isfinite(s->mean)) { /* inf - inf would turn an inf into a NaN */
        s->m2 += m2;
        s->mean += mean;
    } else if (s->n > 0.0) {
        s->m2 += m2 + gap * gap * (s->n * n / total);
        s->mean += gap * (n / total);
    } else {
        s->mean = mean;
        s->m2 = m2;
    }
    s->n = total;
}

static void raise_top(struct row_sums *s, double top, int64_t index)
{
    if (s->exp > 0.0) {
        const double shrink = exp(s->top - top);
        s->exp_gap = shrink * (s->exp_gap + (s->top - top) * s->exp);
        s->exp *= shrink;
    }
    s->top = top;
    if (!s->nan)
        s->argmax = index;
}

/* -inf adds nothing to the sums of exp: the limit of p z is 0 there. */
static void careful(struct row_sums *s, const float *z, uint64_t n, uint64_t index)
{
    double sum = 0.0, square = 0.0, mean;

    for (uint64_t i = 0; i < n; i++) {
        const double x = (double)z[i];
        sum += x;
        if (x != x) {
            if (!s->nan)
                s->argmax = (int64_t)(index + i);
            s->nan = 1;
            continue;
        }
        if (x > s->top)
            raise_top(s, x, (int64_t)(index + i));
        if (x > -(double)INFINITY) {
            const double e = x < s->top ? exp(x - s->top) : 1.0;
            s->exp += e;
            s->exp_gap += e * (x - s->top);
        }
    }
    mean = sum / (double)n;
    for (uint64_t i = 0; i < n; i++)
        square += ((double)z[i] - mean) * ((double)z[i] - mean);
    join_moments(s, (double)n, mean, square);
}

/* n is a multiple of BL_LANES. 0, or -1 with s untouched when fp32 sums do not do. */
BL_V_INLINE int fast(struct row_sums *s, const float *z, uint64_t n, uint64_t index,
                     const int moments, const int exps, const int gaps)
{
    const bl_vf first = bl_v_set(z[0]);
    bl_vf top = first, sum[2] = {{0}}, square[2] = {{0}}, e_sum[2] = {{0}}, e_gap[2] = {{0}};
    bl_vf center, most;
    float highest, shift, total;
    double mean, d, m2;

    for (uint64_t i = 0; i < n; i += BL_LANES) {
        const bl_vf x = bl_v_load(z + i);
        top = bl_v_max(x, top);
        sum[i / BL_LANES & 1] += x - first;
    }
    total = bl_v_sum(sum[0] + sum[1]);
    if (!(fabsf(total) <= FLT_MAX)) /* NaN and infinities end up here */
        return -1;
    highest = bl_v_max_lane(top);
    if (!moments && !exps)
        goto tops;
    shift = z[0] + total / (float)n;
    center = bl_v_set(shift);
    most = bl_v_set((double)highest > s->top ? highest : (float)s->top);
    sum[0] = sum[1] = (bl_vf){0};
    for (uint64_t i = 0; i + 2 * BL_LANES <= n; i += 2 * BL_LANES) {
        BL_TILE_UNROLL
        for (int j = 0; j < 2; j++) {
            const bl_vf x = bl_v_load(z + i + j * BL_LANES);
            if (moments) {
                sum[j] += x - center;
                square[j] = bl_v_fma(x - center, x - center, square[j]);
            }
            if (exps) {
                const bl_vf e = bl_v_exp_low(x - most);
                e_sum[j] += e;
                if (gaps)
                    e_gap[j] = bl_v_fma(e, x - most, e_gap[j]);
            }
        }
    }
    if (n / BL_LANES & 1) {
        const bl_vf x = bl_v_load(z + n - BL_LANES), e = bl_v_exp_low(x - most);
        sum[0] += x - center;
        square[0] = bl_v_fma(x - center, x - center, square[0]);
        e_sum[0] += e;
        e_gap[0] = bl_v_fma(e, x - most, e_gap[0]);
    }
    d = (double)bl_v_sum(sum[0] + sum[1]);
    m2 = (double)bl_v_sum(square[0] + square[1]);
    if (moments && !(m2 <= (double)FLT_MAX))
        return -1;
    if (moments) {
        mean = (double)shift + d / (double)n;
        m2 -= d * d / (double)n;
        join_moments(s, (double)n, mean, m2 > 0.0 ? m2 : 0.0);
    }
tops:
    if ((double)highest > s->top) {
        uint64_t i = 0;
        while (z[i] != highest)
            i++;
        raise_top(s, (double)highest, (int64_t)(index + i));
    }
    if (exps) {
        s->exp += (double)bl_v_sum(e_sum[0] + e_sum[1]);
        s->exp_gap += (double)bl_v_sum(e_gap[0] + e_gap[1]);
    }
    return 0;
}

struct stats {
    const struct bl_logit_stats *a;
    uint64_t rows_per_task;
};

static void stats_row(const struct bl_logit_stats *a, uint64_t row)
{
    const float *z = (const float *)a->z + row * a->stride;
    const int moments = a->mean || a->m2, exps = a->lse || a->pz;
    struct row_sums s = {.top = -(double)INFINITY};

    for (uint64_t i = 0; i < a->vocab; i += BLOCK) {
        const uint64_t n = a->vocab - i < BLOCK ? a->vocab - i : BLOCK;
        const uint64_t whole = n / BL_LANES * BL_LANES;
        int done = 0;
        if (whole > 0) {
            if (a->pz)
                done = fast(&s, z + i, whole, i, 1, 1, 1);
            else if (moments && exps)
                done = fast(&s, z + i, whole, i, 1, 1, 0);
            else if (exps)
                done = fast(&s, z + i, whole, i, 0, 1, 0);
            else if (moments)
                done = fast(&s, z + i, whole, i, 1, 0, 0);
            else
                done = fast(&s, z + i, whole, i, 0, 0, 0);
            if (done != 0)
                careful(&s, z + i, whole, i);
        }
        if (n > whole)
            careful(&s, z + i + whole, n - whole, i + whole);
    }
    if (s.nan)
        s.top = s.exp = s.exp_gap = (double)NAN;
    if (a->lse)
        a->lse[row] = s.top + log(s.exp);
    if (a->pz)
        a->pz[row] = s.top + s.exp_gap / s.exp;
    if (a->mean)
        a->mean[row] = s.mean;
    if (a->m2)
        a->m2[row] = s.m2;
    if (a->max)
        a->max[row] = s.top;
    if (a->argmax)
        a->argmax[row] = (int32_t)s.argmax;
    if (a->target)
        a->target[row] = a->targets && a->targets[row] >= 0 ? (double)z[a->targets[row]] : 0.0;
}

/* Rows of one task: about 16384 logits, so that small vocabularies do not drown in hand-overs. */
static uint64_t task_rows(uint64_t vocab)
{
    return vocab < 16384 ? 16384 / (vocab ? vocab : 1) : 1;
}

static void stats_rows(void *argument, uint64_t task)
{
    const struct stats *w = argument;
    const uint64_t begin = task * w->rows_per_task, end = begin + w->rows_per_task;

    for (uint64_t row = begin; row < end && row < w->a->rows; row++)
        stats_row(w->a, row);
}

void BL_CPU(logit_stats)(struct bl_backend *b, const struct bl_logit_stats *a)
{
    struct stats w = {a, task_rows(a->vocab)};
    bl_pool_run(bl_cpu_pool(b), (a->rows + w.rows_per_task - 1) / w.rows_per_task, stats_rows, &w);
}

/* Coefficients of one row, fp64. */
struct row_slopes {
    double lse, target, mean, m2, max, pz;
    double row_lse, row_mean, row_pz, top;
    int64_t target_index, max_index; /* -1: none */
    uint64_t vocab;
};

static double at(const double *x, uint64_t row)
{
    return x ? x[row] : 0.0;
}

/* dz at one place in fp64: the target, where d_lse p + d_target nearly cancels, and the argmax. */
static double exact_slope(const struct row_slopes *c, const float *z, int64_t v)
{
    const double x = (double)z[v], p = exp(x - c->row_lse);
    double g = c->lse * p + c->mean / (double)c->vocab;

    if (c->m2 != 0.0)
        g += 2.0 * c->m2 * (x - c->row_mean);
    if (c->pz != 0.0 && p != 0.0)
        g += c->pz * p * (1.0 + x - c->row_pz);
    if (v == c->target_index)
        g += c->target;
    if (v == c->max_index)
        g += c->max;
    return g;
}

/* p_v = exp(z_v - M) exp(M - lse): z_v - M is a small fp32 number whatever the row's offset, the
 * second factor is fp64. The other distances are split the same way: z - mean = (z - r) + (r -
 * mean) with r = mean rounded to fp32. Where p is 0, so is p z. */
BL_V_INLINE void slopes(const struct row_slopes *c, const float *z, float *dz, int bf16,
                        const int with_m2, const int with_pz)
{
    const double factor = exp(c->top - c->row_lse);
    const bl_vf top = bl_v_set((float)c->top), center = bl_v_set((float)c->row_mean);
    const bl_vf a = bl_v_set((float)(c->lse * factor));
    const bl_vf a_pz = bl_v_set((float)(c->pz * factor));
    const bl_vf gap = bl_v_set((float)(1.0 + c->top - c->row_pz));
    const bl_vf two_m2 = bl_v_set((float)(2.0 * c->m2));
    const bl_vf plain = bl_v_set(
        (float)(c->mean / (double)c->vocab +
                (with_m2 ? 2.0 * c->m2 * ((double)(float)c->row_mean - c->row_mean) : 0.0)));

    for (uint64_t v = 0; v < c->vocab; v += BL_LANES) {
        const uint64_t left = c->vocab - v;
        const bl_vf x = left >= BL_LANES ? bl_v_load(z + v) : bl_v_load_n(z + v, left);
        const bl_vf e = bl_v_exp_low(x - top);
        bl_vf g = plain;
        if (with_m2)
            g = bl_v_fma(two_m2, x - center, g);
        if (with_pz) {
            bl_vf w = bl_v_fma(a_pz, (x - top) + gap, a);
            g += bl_v_select(e == 0.0f, (bl_vf){0}, e * w);
        } else {
            g = bl_v_fma(e, a, g);
        }
        g = bl_v_round(g, bf16);
        if (left >= BL_LANES)
            bl_v_store(dz + v, g);
        else
            bl_v_store_n(dz + v, g, left);
    }
}

struct grad {
    const struct bl_logit_grad *a;
    uint64_t rows_per_task;
};

static void grad_row(const struct bl_logit_grad *a, uint64_t row)
{
    const float *z = (const float *)a->z + row * a->stride;
    float *dz = (float *)a->dz + row * a->stride;
    const int bf16 = a->act_out == BL_BF16;
    struct row_slopes c = {.lse = at(a->d_lse, row),
                           .target = at(a->d_target, row),
                           .mean = at(a->d_mean, row),
                           .m2 = at(a->d_m2, row),
                           .max = at(a->d_max, row),
                           .pz = at(a->d_pz, row),
                           .row_lse = at(a->lse, row),
                           .row_mean = at(a->mean, row),
                           .row_pz = at(a->pz, row),
                           .target_index = -1,
                           .max_index = -1,
                           .vocab = a->vocab};
    double at_target = 0.0, at_max = 0.0;

    memset(dz + a->vocab, 0, (a->stride - a->vocab) * sizeof *dz);
    if (c.lse == 0.0 && c.target == 0.0 && c.mean == 0.0 && c.m2 == 0.0 && c.max == 0.0 &&
        c.pz == 0.0) { /* a masked row: zero whatever its logits are */
        memset(dz, 0, a->vocab * sizeof *dz);
        return;
    }
    c.top = a->max ? a->max[row] : (double)(float)c.row_lse;
    if (a->targets && a->targets[row] >= 0 && c.target != 0.0)
        c.target_index = a->targets[row];
    if (a->argmax && c.max != 0.0)
        c.max_index = a->argmax[row];
    if (c.target_index >= 0) /* before dz overwrites z */
        at_target = exact_slope(&c, z, c.target_index);
    if (c.max_index >= 0)
        at_max = exact_slope(&c, z, c.max_index);

    if (c.m2 != 0.0 && c.pz != 0.0)
        slopes(&c, z, dz, bf16, 1, 1);
    else if (c.m2 != 0.0)
        slopes(&c, z, dz, bf16, 1, 0);
    else if (c.pz != 0.0)
        slopes(&c, z, dz, bf16, 0, 1);
    else
        slopes(&c, z, dz, bf16, 0, 0);

    if (c.target_index >= 0)
        dz[c.target_index] = bf16 ? bl_bf16_nearest((float)at_target) : (float)at_target;
    if (c.max_index >= 0)
        dz[c.max_index] = bf16 ? bl_bf16_nearest((float)at_max) : (float)at_max;
}

static void grad_rows(void *argument, uint64_t task)
{
    const struct grad *w = argument;
    const uint64_t begin = task * w->rows_per_task, end = begin + w->rows_per_task;

    for (uint64_t row = begin; row < end && row < w->a->rows; row++)
        grad_row(w->a, row);
}

void BL_CPU(logit_grad)(struct bl_backend *b, const struct bl_logit_grad *a)
{
    struct grad w = {a, task_rows(a->vocab)};
    bl_pool_run(bl_cpu_pool(b), (a->rows + w.rows_per_task - 1) / w.rows_per_task, grad_rows, &w);
}
