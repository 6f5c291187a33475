/* The cases. Bounds: u = 2^-24. A sum of n fp32 terms in any order, products rounded or not, errs
 * by at most (n + 2) u sum |terms| (to first order). */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend_cases.h"
#include "backend_ref.h"
#include "base/random.h"

#define U 0x1p-24

/* ---- memory that lives as long as a case --------------------------------------------------- */

struct block {
    struct block *next;
    double data[];
};

static double *numbers(struct record *r, uint64_t n)
{
    struct block *k = calloc(1, sizeof *k + (n + 1) * sizeof(double));
    assert_non_null(k);
    k->next = r->blocks;
    r->blocks = k;
    return k->data;
}

/* n normal numbers around `mean`, as fp32 or bf16 values. */
static double *normal(struct record *r, uint64_t n, uint32_t dtype, double mean, double deviation)
{
    double *x = numbers(r, n);
    r->stream++;
    for (uint64_t i = 0; i < n; i++) {
        double v = mean + deviation * bl_random_normal(7, r->stream, i);
        x[i] = dtype == BL_BF16 ? ref_bf16((double)(float)v) : (double)(float)v;
    }
    return x;
}

/* An fp32 array of exactly n elements, so that a sanitizer sees what reaches past it. */
static float *device(struct record *r, uint64_t n, const double *from)
{
    float *p = r->b->ops->allocate(r->b, n * sizeof *p);
    assert_non_null(p);
    assert_true(r->devices < 64);
    r->device[r->devices++] = p;
    for (uint64_t i = 0; from && i < n; i++)
        p[i] = (float)from[i];
    return p;
}

static double rounded(double x, uint32_t dtype)
{
    return dtype == BL_BF16 ? ref_bf16((double)(float)x) : x;
}

static void expect(struct record *r, const char *name, uint64_t n, const float *got,
                   const double *reference, const double *bound, uint32_t dtype)
{
    for (uint64_t i = 0; i < n; i++) {
        double low = rounded(reference[i] - bound[i], dtype);
        double high = rounded(reference[i] + bound[i], dtype);
        if (!((double)got[i] >= low && (double)got[i] <= high))
            fail_msg("%s: %s[%llu] = %.9g, expected %.9g +- %.3g", r->what, name,
                     (unsigned long long)i, (double)got[i], reference[i], bound[i]);
        if (dtype == BL_BF16 && (double)got[i] != ref_bf16((double)got[i]))
            fail_msg("%s: %s[%llu] = %.9g is no bf16 value", r->what, name, (unsigned long long)i,
                     (double)got[i]);
    }
    r->values = realloc(r->values, (r->count + n + 1) * sizeof *r->values);
    assert_non_null(r->values);
    memcpy(r->values + r->count, got, n * sizeof *got);
    r->count += n;
}

void record_finish(struct record *r)
{
    while (r->blocks) {
        struct block *next = r->blocks->next;
        free(r->blocks);
        r->blocks = next;
    }
    for (int i = 0; i < r->devices; i++)
        r->b->ops->release(r->b, r->device[i]);
    r->devices = 0;
    free(r->values);
    r->values = NULL;
    r->count = 0;
}

static const char *dtype_name(uint32_t dtype)
{
    return dtype == BL_BF16 ? "bf16" : "fp32";
}

/* ---- cases ----------------------------------------------------------------------------------- */

/* flag: bias; more: 0 no residual, 1 residual, 2 y is the residual */
static void linear(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, in = v->a, out = v->b, n = rows * out;
    double *x = normal(r, rows * in, v->act, 0.0, 1.0), *w = normal(r, out * in, v->act, 0.0, 0.3);
    double *bias = v->flag ? normal(r, out, v->act, 0.0, 1.0) : NULL;
    double *residual = v->more ? normal(r, n, v->act, 0.0, 1.0) : NULL;
    double *y = numbers(r, n), *bound = numbers(r, n);
    float *dx = device(r, rows * in, x), *dw = device(r, out * in, w);
    float *dbias = bias ? device(r, out, bias) : NULL;
    float *dres = residual ? device(r, n, residual) : NULL;
    float *dy = v->more == 2 ? dres : device(r, n, NULL);
    struct bl_linear a = {rows, in, out, v->act, dx, dw, dbias, dres, dy};

    snprintf(r->what, sizeof r->what, "linear %llux%llux%llu %s bias %d residual %d",
             (unsigned long long)rows, (unsigned long long)in, (unsigned long long)out,
             dtype_name(v->act), v->flag, v->more);
    for (uint64_t i = 0; v->more != 2 && i < n; i++)
        dy[i] = NAN; /* it is written, not added to */
    r->b->ops->linear(r->b, &a);
    ref_linear(rows, in, out, x, w, bias, residual, y, bound);
    for (uint64_t i = 0; i < n; i++)
        bound[i] *= ((double)in + 4.0) * U;
    expect(r, "y", n, dy, y, bound, v->act);
}

/* flag bits: 1 acc_x, 2 acc_w; more bits: 1 dx, 2 dw, 4 dbias wanted */
static void linear_grad(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, in = v->a, out = v->b, nx = rows * in, nw = out * in;
    int acc_x = v->flag & 1, acc_w = v->flag >> 1;
    double *dy = normal(r, rows * out, v->act, 0.1, 1.0), *x = normal(r, nx, v->act, 0.0, 1.0);
    double *w = normal(r, nw, v->act, 0.0, 0.3), *old_x = normal(r, nx, v->act, 0.0, 1.0);
    double *old_w = normal(r, nw, BL_FP32, 0.0, 1.0), *old_b = normal(r, out, BL_FP32, 0.0, 1.0);
    double *rx = numbers(r, nx), *rw = numbers(r, nw), *rb = numbers(r, out);
    double *bx = numbers(r, nx), *bw = numbers(r, nw), *bb = numbers(r, out);
    float *gx = device(r, nx, old_x), *gw = device(r, nw, old_w), *gb = device(r, out, old_b);
    struct bl_linear_grad a = {.rows = rows,
                               .in = in,
                               .out = out,
                               .act = v->act,
                               .acc_x = (uint32_t)acc_x,
                               .acc_w = (uint32_t)acc_w,
                               .dy = device(r, rows * out, dy),
                               .x = device(r, nx, x),
                               .w = device(r, nw, w),
                               .dx = v->more & 1 ? gx : NULL,
                               .dw = v->more & 2 ? gw : NULL,
                               .dbias = v->more & 4 ? gb : NULL};

    snprintf(r->what, sizeof r->what, "linear_grad %llux%llux%llu %s acc %d outputs %d",
             (unsigned long long)rows, (unsigned long long)in, (unsigned long long)out,
             dtype_name(v->act), v->flag, v->more);
    r->b->ops->linear_grad(r->b, &a);
    ref_linear_grad(rows, in, out, dy, x, w, rx, bx, rw, bw, rb, bb);
    for (uint64_t i = 0; i < nx; i++) {
        rx[i] = v->more & 1 ? rx[i] + (acc_x ? old_x[i] : 0.0) : old_x[i];
        bx[i] = v->more & 1 ? ((double)out + 4.0) * U * (bx[i] + fabs(old_x[i])) : 0.0;
    }
    for (uint64_t i = 0; i < nw; i++) {
        rw[i] = v->more & 2 ? rw[i] + (acc_w ? old_w[i] : 0.0) : old_w[i];
        bw[i] = v->more & 2 ? ((double)rows + 4.0) * U * (bw[i] + fabs(old_w[i])) : 0.0;
    }
    for (uint64_t i = 0; i < out; i++) {
        rb[i] = v->more & 4 ? rb[i] + (acc_w ? old_b[i] : 0.0) : old_b[i];
        bb[i] = v->more & 4 ? (64.0 + 4.0) * U * (bb[i] + fabs(old_b[i])) : 0.0; /* 64-row blocks */
    }
    expect(r, "dx", nx, gx, rx, bx, v->act);
    expect(r, "dw", nw, gw, rw, bw, BL_FP32);
    expect(r, "dbias", out, gb, rb, bb, BL_FP32);
}

/* rows x groups vectors of `width` with row stride `stride` inside a wider array. */
static void spread(uint64_t rows, uint64_t across, uint64_t stride, const double *from, float *to)
{
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = 0; j < across; j++)
            to[i * stride + j] = (float)from[i * across + j];
}

static void gather(uint64_t rows, uint64_t across, uint64_t stride, const float *from, float *to)
{
    for (uint64_t i = 0; i < rows; i++)
        memcpy(to + i * across, from + i * stride, across * sizeof *to);
}

/* a width, b groups; flag bits: 1 LayerNorm (else RMS), 2 bias, 4 in place, 8 strides, 16 inner
 * arithmetic bf16; more: mean of the input in units of its deviation */
static void norm(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, width = v->a, groups = v->b, across = width * groups;
    uint64_t n = rows * across, m = rows * groups, stride = v->flag & 8 ? across + 5 : 0;
    uint64_t wide = stride ? stride : across;
    int layer = v->flag & 1, inner = (v->flag & 16) != 0;
    double *x = normal(r, n, v->act, v->more, 1.0), *w = normal(r, width, v->act, 1.0, 0.5);
    double *bias = v->flag & 2 ? normal(r, width, v->act, 0.0, 0.5) : NULL;
    double *y = numbers(r, n), *mean = numbers(r, m), *rstd = numbers(r, m);
    double *bound = numbers(r, n), *bm = numbers(r, m), *bs = numbers(r, m);
    float *gx = device(r, rows * wide, NULL), *packed = device(r, n, NULL);
    float *gy = v->flag & 4 ? gx : device(r, rows * wide, NULL);
    float *gmean = layer ? device(r, m, NULL) : NULL, *grstd = device(r, m, NULL);
    struct bl_norm a = {.rows = rows,
                        .width = width,
                        .groups = groups,
                        .stride_x = stride,
                        .stride_y = stride,
                        .act = v->act,
                        .arithmetic = inner ? BL_BF16 : BL_FP32,
                        .eps = 1e-5f,
                        .x = gx,
                        .weight = device(r, width, w),
                        .bias = bias ? device(r, width, bias) : NULL,
                        .y = gy,
                        .mean = gmean,
                        .rstd = grstd};

    snprintf(r->what, sizeof r->what, "norm %llux%llux%llu %s flags %d mean %d",
             (unsigned long long)rows, (unsigned long long)groups, (unsigned long long)width,
             dtype_name(v->act), v->flag, v->more);
    spread(rows, across, wide, x, gx);
    for (uint64_t i = 0; i < rows && stride; i++)
        for (uint64_t j = across; j < stride; j++)
            gx[i * stride + j] = gy[i * stride + j] = 77.0f; /* belongs to somebody else */
    r->b->ops->norm(r->b, &a);
    ref_norm(m, width, layer, inner, (double)a.eps, x, w, bias, y, mean, rstd);
    for (uint64_t i = 0; i < m; i++) {
        bm[i] = 2.0 * U * fabs(mean[i]);
        bs[i] = 2.0 * U * rstd[i];
    }
    for (uint64_t i = 0; i < n; i++) {
        /* x - mean, - shift, rstd (2), gain, bias; x - mean loses at most u |x - mean| */
        double hat = fabs(x[i] - mean[i / width]) * rstd[i / width] + U;
        double gain = fabs(w[i % width]), add = bias ? fabs(bias[i % width]) : 0.0;
        bound[i] = 7.0 * U * (hat * gain + add) + U * gain; /* + the mean of those losses */
        if (inner) /* x_hat may fall on the other side of a tie: one bf16 step, 2^-7 at most */
            bound[i] += 0x1p-7 * hat * gain;
    }
    gather(rows, across, wide, gy, packed);
    expect(r, "y", n, packed, y, bound, v->act);
    expect(r, "rstd", m, grstd, rstd, bs, BL_FP32);
    if (layer)
        expect(r, "mean", m, gmean, mean, bm, BL_FP32);
    for (uint64_t i = 0; i < rows && stride; i++)
        for (uint64_t j = across; j < stride; j++)
            assert_true(gy[i * stride + j] == 77.0f);
}

/* a width, b groups; flag bits: 1 LayerNorm, 2 dbias, 4 dx is dy, 8 strides, 32 acc_x, 64 acc_w;
 * more: mean of the input */
static void norm_grad(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, width = v->a, groups = v->b, across = width * groups;
    uint64_t n = rows * across, m = rows * groups, stride = v->flag & 8 ? across + 3 : 0;
    uint64_t wide = stride ? stride : across;
    int layer = v->flag & 1, acc_x = (v->flag & 32) != 0, acc_w = (v->flag & 64) != 0;
    double *x = normal(r, n, v->act, v->more, 1.0), *w = normal(r, width, v->act, 1.0, 0.5);
    double *dy = normal(r, n, v->act, 0.2, 1.0), *old = normal(r, n, v->act, 0.0, 1.0);
    double *old_w = normal(r, width, BL_FP32, 0.0, 1.0);
    double *dx = numbers(r, n), *bx = numbers(r, n), *dw = numbers(r, width);
    double *bw = numbers(r, width), *db = numbers(r, width), *bb = numbers(r, width);
    double *y = numbers(r, n), *mean = numbers(r, m), *rstd = numbers(r, m);
    float *gdy = device(r, rows * wide, NULL), *gx = device(r, rows * wide, NULL);
    float *gdx = v->flag & 4 ? gdy : device(r, rows * wide, NULL), *packed = device(r, n, NULL);
    float *gdw = device(r, width, old_w), *gdb = device(r, width, old_w);
    struct bl_norm_grad a = {.rows = rows,
                             .width = width,
                             .groups = groups,
                             .stride_dy = stride,
                             .stride_x = stride,
                             .stride_dx = stride,
                             .act = v->act,
                             .acc_x = (uint32_t)acc_x,
                             .acc_w = (uint32_t)acc_w,
                             .dy = gdy,
                             .x = gx,
                             .weight = device(r, width, w),
                             .dx = gdx,
                             .dweight = gdw,
                             .dbias = v->flag & 2 ? gdb : NULL};

    snprintf(r->what, sizeof r->what, "norm_grad %llux%llux%llu %s flags %d mean %d",
             (unsigned long long)rows, (unsigned long long)groups, (unsigned long long)width,
             dtype_name(v->act), v->flag, v->more);
    ref_norm(m, width, layer, 0, 1e-5f, x, w, NULL, y, mean, rstd);
    a.mean = layer ? device(r, m, mean) : NULL; /* as the forward stores them: rounded to fp32 */
    a.rstd = device(r, m, rstd);
    spread(rows, across, wide, old, gdx);
    spread(rows, across, wide, x, gx);
    spread(rows, across, wide, dy, gdy);
    r->b->ops->norm_grad(r->b, &a);
    ref_norm_grad(m, width, layer, 1e-5f, dy, x, w, dx, bx, dw, bw, db, bb);
    for (uint64_t i = 0; i < n; i++) {
        double add = acc_x ? (v->flag & 4 ? dy[i] : old[i]) : 0.0;
        dx[i] += add;
        bx[i] = 12.0 * U * bx[i] + 2.0 * U * fabs(add) + U * U;
    }
    for (uint64_t i = 0; i < width; i++) {
        /* chains of 64 rows x groups; x_hat itself to 4 u */
        double chain = (64.0 * (double)groups + 6.0) * U, add = acc_w ? old_w[i] : 0.0;
        dw[i] += add;
        bw[i] = chain * (bw[i] + fabs(add));
        db[i] = v->flag & 2 ? db[i] + add : old_w[i];
        bb[i] = chain * (bb[i] + fabs(add));
    }
    gather(rows, across, wide, gdx, packed);
    expect(r, "dx", n, packed, dx, bx, v->act);
    expect(r, "dweight", width, gdw, dw, bw, BL_FP32);
    expect(r, "dbias", width, gdb, db, bb, BL_FP32);
}

/* a head size, b heads; flag: time; more: direction */
static void rope(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, size = v->a, heads = v->b, time = (uint64_t)v->flag;
    uint64_t across = size * heads, stride = across + 4, n = rows * across;
    double *x = normal(r, n, v->act, 0.0, 1.0), *bound = numbers(r, n);
    float *gx = device(r, rows * stride, NULL), *packed = device(r, n, NULL);
    struct bl_rope a = {rows, time, heads, size, stride, v->act, v->more, 10000.0, gx};

    snprintf(r->what, sizeof r->what, "rope %llux%llux%llu %s time %d direction %d",
             (unsigned long long)rows, (unsigned long long)heads, (unsigned long long)size,
             dtype_name(v->act), v->flag, v->more);
    spread(rows, across, stride, x, gx);
    r->b->ops->rope(r->b, &a);
    for (uint64_t i = 0; i < rows * heads; i++) {
        double *head = x + i * size;
        for (uint64_t j = 0; j < size / 2; j++) /* two products, cos, sin, the sum: 4 u of each */
            bound[i * size + j] = bound[i * size + j + size / 2] =
                4.0 * U * (fabs(head[j]) + fabs(head[j + size / 2]));
        ref_rope(size, i / heads % time, 10000.0, v->more, head);
    }
    gather(rows, across, stride, gx, packed);
    expect(r, "x", n, packed, x, bound, v->act);
    for (uint64_t i = 0; i < rows; i++)
        for (uint64_t j = across; j < stride; j++)
            assert_true(gx[i * stride + j] == 0.0f);
}

#define VOCAB 11

static int32_t *tokens(struct record *r, uint64_t rows)
{
    int32_t *t = r->b->ops->allocate(r->b, rows * sizeof *t);
    assert_non_null(t);
    r->device[r->devices++] = t;
    for (uint64_t i = 0; i < rows; i++)
        t[i] = (int32_t)(bl_random(3, 1, i) % VOCAB); /* every token comes many times */
    return t;
}

/* a width, b time; flag: position table */
static void embedding(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, width = v->a, time = v->b, n = rows * width;
    double *e = normal(r, VOCAB * width, v->act, 0.0, 1.0), *x = numbers(r, n);
    double *p = v->flag ? normal(r, time * width, v->act, 0.0, 1.0) : NULL, *bound = numbers(r, n);
    struct bl_embedding a = {.rows = rows,
                             .time = time,
                             .width = width,
                             .act = v->act,
                             .scale = 1.7f,
                             .tokens = tokens(r, rows),
                             .embed = device(r, VOCAB * width, e),
                             .position = p ? device(r, time * width, p) : NULL,
                             .x = device(r, n, NULL)};

    snprintf(r->what, sizeof r->what, "embedding %llux%llu %s position %d",
             (unsigned long long)rows, (unsigned long long)width, dtype_name(v->act), v->flag);
    r->b->ops->embedding(r->b, &a);
    for (uint64_t i = 0; i < n; i++) {
        double scaled = (double)a.scale * e[(uint64_t)a.tokens[i / width] * width + i % width];
        double add = p ? p[i / width % time * width + i % width] : 0.0;
        x[i] = scaled + add;
        bound[i] = 2.0 * U * (fabs(scaled) + fabs(add));
    }
    expect(r, "x", n, a.x, x, bound, v->act);
}

static void embedding_grad(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, width = v->a, time = v->b, ne = VOCAB * width, np = time * width;
    double *dx = normal(r, rows * width, v->act, 0.0, 1.0), *de = normal(r, ne, BL_FP32, 0.0, 1.0);
    double *dp = normal(r, np, BL_FP32, 0.0, 1.0), *be = numbers(r, ne), *bp = numbers(r, np);
    float *ge = device(r, ne, de), *gp = device(r, np, dp);
    struct bl_embedding_grad a = {.rows = rows,
                                  .time = time,
                                  .width = width,
                                  .act = v->act,
                                  .scale = 1.7f,
                                  .tokens = tokens(r, rows),
                                  .dx = device(r, rows * width, dx),
                                  .dembed = ge,
                                  .dposition = v->flag ? gp : NULL};

    snprintf(r->what, sizeof r->what, "embedding_grad %llux%llu %s position %d",
             (unsigned long long)rows, (unsigned long long)width, dtype_name(v->act), v->flag);
    r->b->ops->embedding_grad(r->b, &a);
    for (uint64_t i = 0; i < ne; i++)
        be[i] = fabs(de[i]);
    for (uint64_t i = 0; i < np; i++)
        bp[i] = fabs(dp[i]);
    for (uint64_t i = 0; i < rows * width; i++) {
        uint64_t e = (uint64_t)a.tokens[i / width] * width + i % width;
        uint64_t p = i / width % time * width + i % width;
        de[e] += (double)a.scale * dx[i];
        be[e] += fabs((double)a.scale * dx[i]);
        if (v->flag) {
            dp[p] += dx[i];
            bp[p] += fabs(dx[i]);
        }
    }
    for (uint64_t i = 0; i < ne; i++)
        be[i] *= ((double)rows + 2.0) * U;
    for (uint64_t i = 0; i < np; i++)
        bp[i] *= v->flag ? ((double)rows + 2.0) * U : 0.0;
    expect(r, "dembed", ne, ge, de, be, BL_FP32);
    expect(r, "dposition", np, gp, dp, bp, BL_FP32);
}

/* rows elements over all magnitudes; flag: in place where allowed */
static double *magnitudes(struct record *r, uint64_t n, uint32_t dtype)
{
    double *x = normal(r, n, dtype, 0.0, 3.0);
    static const double special[] = {0.0, 1e-30, -1e-30, 12.5, -12.5, 40.0, -40.0, 1e30, -1e30};
    for (uint64_t i = 0; i < sizeof special / sizeof *special && i < n; i++)
        x[i] = rounded((double)(float)special[i], dtype);
    return x;
}

/* sigmoid(2u) errs by 2.5 ulp of itself (its own error) plus what the rounding of 2u does to it:
 * |2u| 4 u (1 - s) s; |x| < 13 where that counts. Below 2^-126 results are flushed or coarse. */
static double gelu_bound(double x)
{
    double c = fmin(fabs(x), 13.0), z = 1.5957691216 * c * (1.0 + 0.044715 * c * c);
    double y = fabs(ref_gelu(x));
    return y * U * (8.0 + 5.0 * (x < 0.0 ? z : z * exp(-z))) + 0x1p-125 * fabs(c);
}

static void gelu(struct record *r, const struct variant *v)
{
    uint64_t n = v->rows;
    double *x = magnitudes(r, n, v->act), *dy = normal(r, n, v->act, 0.0, 1.0);
    double *y = numbers(r, n), *by = numbers(r, n), *dx = numbers(r, n), *bx = numbers(r, n);
    float *gx = device(r, n, x), *gy = device(r, n, NULL), *gdy = device(r, n, dy);
    float *gdx = v->flag ? gdy : device(r, n, NULL);

    snprintf(r->what, sizeof r->what, "gelu %llu %s", (unsigned long long)n, dtype_name(v->act));
    r->b->ops->gelu(r->b, n, gx, gy, v->act);
    r->b->ops->gelu_grad(r->b, n, gx, gdy, gdx, v->act);
    for (uint64_t i = 0; i < n; i++) {
        double c = fmax(-13.0, fmin(13.0, x[i])); /* slope 0 and 1 to the last bit out there */
        y[i] = ref_gelu(x[i]);
        by[i] = gelu_bound(x[i]);
        dx[i] = dy[i] * ref_gelu_slope(c);
        /* s errs by 3 u; x s (1 - s) d(2u)/dx is under 0.4, its e by 4 u |2u| more */
        bx[i] = fabs(dy[i]) * (8.0 * U + 1e-34);
    }
    expect(r, "y", n, gy, y, by, v->act);
    expect(r, "dx", n, gdx, dx, bx, v->act);
}

/* rows x a; flag: dgate_up is gate_up */
static void swiglu(struct record *r, const struct variant *v)
{
    uint64_t rows = v->rows, width = v->a, n = rows * width;
    double *g = magnitudes(r, 2 * n, v->act), *dy = normal(r, n, v->act, 0.0, 1.0);
    double *y = numbers(r, n), *by = numbers(r, n), *dg = numbers(r, 2 * n);
    double *bg = numbers(r, 2 * n);
    float *gg = device(r, 2 * n, g), *gy = device(r, n, NULL), *gdy = device(r, n, dy);
    float *gdg = v->flag ? gg : device(r, 2 * n, NULL);

    snprintf(r->what, sizeof r->what, "swiglu %llux%llu %s", (unsigned long long)rows,
             (unsigned long long)width, dtype_name(v->act));
    r->b->ops->swiglu(r->b, rows, width, gg, gy, v->act);
    r->b->ops->swiglu_grad(r->b, rows, width, gg, gdy, gdg, v->act);
    for (uint64_t i = 0; i < n; i++) {
        uint64_t k = i / width * 2 * width + i % width;
        double gate = g[k], up = g[k + width], s = 1.0 / (1.0 + exp(-gate));
        y[i] = ref_silu(gate) * up;
        by[i] = 6.0 * U * fabs(y[i]) + 1e-37;
        dg[k] = dy[i] * up * ref_silu_slope(gate);
        /* s and 1 - s err by 3 u of themselves */
        bg[k] = fabs(dy[i] * up * s) * U * (8.0 + 8.0 * fabs(gate) * (1.0 - s)) + 1e-35;
        dg[k + width] = dy[i] * ref_silu(gate);
        bg[k + width] = 8.0 * U * fabs(dg[k + width]) + 1e-35;
    }
    expect(r, "y", n, gy, y, by, v->act);
    expect(r, "dgate_up", 2 * n, gdg, dg, bg, v->act);
}

/* flag: 0 y apart, 1 y is a, 2 y is c */
static void add(struct record *r, const struct variant *v)
{
    uint64_t n = v->rows;
    double *a = normal(r, n, v->act, 0.0, 1.0), *c = normal(r, n, v->act, 0.0, 100.0);
    double *y = numbers(r, n), *bound = numbers(r, n);
    float *ga = device(r, n, a), *gc = device(r, n, c);
    float *gy = v->flag == 1 ? ga : v->flag == 2 ? gc : device(r, n, NULL);

    snprintf(r->what, sizeof r->what, "add %llu %s alias %d", (unsigned long long)n,
             dtype_name(v->act), v->flag);
    r->exact = 1;
    r->b->ops->add(r->b, n, ga, gc, gy, v->act);
    for (uint64_t i = 0; i < n; i++) /* one addition: the rounded sum itself */
        y[i] = rounded((double)((float)a[i] + (float)c[i]), v->act);
    expect(r, "y", n, gy, y, bound, v->act);
}

/* round, accumulate: each one operation, so exact */
static void elementwise(struct record *r, const struct variant *v)
{
    uint64_t n = v->rows;
    double *x = normal(r, n, BL_FP32, 0.0, 1.0), *sum = normal(r, n, v->act, 0.0, 30.0);
    double *y = numbers(r, n), *bound = numbers(r, n);
    float *gx = device(r, n, x), *gy = v->flag ? gx : device(r, n, NULL), *gs = device(r, n, sum);

    snprintf(r->what, sizeof r->what, "round, accumulate %llu %s", (unsigned long long)n,
             dtype_name(v->act));
    r->exact = 1;
    r->b->ops->accumulate(r->b, n, gx, gs, v->act);
    for (uint64_t i = 0; i < n; i++)
        y[i] = rounded((double)((float)sum[i] + (float)x[i]), v->act);
    expect(r, "sum", n, gs, y, bound, v->act);

    r->b->ops->round(r->b, n, gx, gy, v->act);
    for (uint64_t i = 0; i < n; i++)
        y[i] = rounded(x[i], v->act);
    expect(r, "rounded", n, gy, y, bound, v->act);
}

static void sums(struct record *r, const struct variant *v)
{
    uint64_t n = v->rows;
    double *x = normal(r, n, BL_FP32, 0.0, 1.0), *y = normal(r, n, BL_FP32, 0.0, 1.0), got[2];
    float *gx = device(r, n, x), *gy = device(r, n, y), bits[4];
    long double squares = 0.0L, dot = 0.0L, size = 0.0L;
    double zero[4] = {0}, any[4] = {HUGE_VAL, HUGE_VAL, HUGE_VAL, HUGE_VAL};

    snprintf(r->what, sizeof r->what, "sums %llu", (unsigned long long)n);
    r->exact = 1;
    got[0] = r->b->ops->sum_squares(r->b, n, gx);
    got[1] = r->b->ops->dot(r->b, n, gx, gy);
    for (uint64_t i = 0; i < n; i++) {
        squares += (long double)x[i] * x[i];
        dot += (long double)x[i] * y[i];
        size += fabsl((long double)x[i] * y[i]);
    }
    /* exact products; chains of 256 + 4 additions in a block, then the blocks */
    long double chain = (260.0L + (long double)(n / 4096)) * 0x1p-53L;
    assert_true(fabsl(squares - got[0]) <= chain * squares);
    assert_true(fabsl(dot - got[1]) <= chain * size);
    /* the 64 bits of each as two harmless floats: 16-bit integers would do, halves are exact */
    for (int k = 0; k < 2; k++) {
        uint64_t u;
        memcpy(&u, &got[k], sizeof u);
        bits[2 * k] = (float)(u >> 44);
        bits[2 * k + 1] = (float)(u & 0xffffff);
    }
    expect(r, "sums", 4, bits, zero, any, BL_FP32);
}

/* ---- the table ------------------------------------------------------------------------------- */

#define BOTH(run, rows, a, b, flag, more)                                                          \
    {run, {rows, a, b, BL_FP32, flag, more}},                                                      \
    {                                                                                              \
        run,                                                                                       \
        {                                                                                          \
            rows, a, b, BL_BF16, flag, more                                                        \
        }                                                                                          \
    }

const struct op_case op_cases[] = {
    BOTH(linear, 1, 1, 1, 0, 0),
    BOTH(linear, 37, 41, 29, 0, 0),
    BOTH(linear, 37, 41, 29, 1, 0),
    BOTH(linear, 37, 41, 29, 0, 1),
    BOTH(linear, 300, 33, 421, 1, 1),
    BOTH(linear, 300, 33, 421, 1, 2),
    BOTH(linear, 65, 401, 130, 0, 2),
    BOTH(linear_grad, 1, 1, 1, 0, 7),
    BOTH(linear_grad, 37, 41, 29, 0, 7),
    BOTH(linear_grad, 37, 41, 29, 3, 7),
    BOTH(linear_grad, 300, 33, 421, 1, 7),
    BOTH(linear_grad, 150, 421, 33, 2, 7),
    BOTH(linear_grad, 37, 41, 29, 3, 1),
    BOTH(linear_grad, 37, 41, 29, 3, 2),
    BOTH(linear_grad, 37, 41, 29, 0, 4),
    BOTH(linear_grad, 37, 41, 29, 0, 0),
    BOTH(norm, 1, 1, 1, 0, 0),
    BOTH(norm, 5, 37, 1, 0, 0),
    BOTH(norm, 131, 67, 1, 1, 0),
    BOTH(norm, 131, 67, 1, 3, 0),
    BOTH(norm, 70, 64, 1, 7, 5),
    BOTH(norm, 70, 96, 1, 1, 10000),
    BOTH(norm, 33, 20, 3, 8, 0),
    BOTH(norm, 33, 20, 3, 15, 1),
    BOTH(norm, 33, 37, 1, 16, 0),
    BOTH(norm, 33, 37, 1, 19, 0),
    BOTH(norm_grad, 1, 1, 1, 0, 1),
    BOTH(norm_grad, 5, 37, 1, 0, 0),
    BOTH(norm_grad, 131, 67, 1, 1, 0),
    BOTH(norm_grad, 131, 67, 1, 3, 0),
    BOTH(norm_grad, 200, 300, 1, 99, 0),
    BOTH(norm_grad, 70, 64, 1, 7, 5),
    BOTH(norm_grad, 70, 64, 1, 39, 0),
    BOTH(norm_grad, 70, 96, 1, 1, 1000),
    BOTH(norm_grad, 133, 20, 3, 8, 0),
    BOTH(norm_grad, 33, 20, 3, 111, 1),
    BOTH(rope, 1, 2, 1, 1, 1),
    BOTH(rope, 40, 22, 3, 13, 1),
    BOTH(rope, 40, 22, 3, 13, -1),
    BOTH(rope, 100, 64, 2, 50, 1),
    BOTH(rope, 600, 8, 2, 600, -1),
    BOTH(embedding, 1, 1, 1, 0, 0),
    BOTH(embedding, 60, 37, 20, 0, 0),
    BOTH(embedding, 60, 37, 20, 1, 0),
    BOTH(embedding, 45, 131, 9, 1, 0),
    BOTH(embedding_grad, 1, 1, 1, 0, 0),
    BOTH(embedding_grad, 60, 37, 20, 0, 0),
    BOTH(embedding_grad, 60, 37, 20, 1, 0),
    BOTH(embedding_grad, 145, 131, 9, 1, 0),
    BOTH(gelu, 1, 0, 0, 0, 0),
    BOTH(gelu, 37, 0, 0, 1, 0),
    BOTH(gelu, 9001, 0, 0, 0, 0),
    BOTH(swiglu, 1, 1, 0, 0, 0),
    BOTH(swiglu, 21, 37, 0, 1, 0),
    BOTH(swiglu, 9, 1003, 0, 0, 0),
    BOTH(swiglu, 3, 5000, 0, 1, 0),
    BOTH(add, 1, 0, 0, 0, 0),
    BOTH(add, 70001, 0, 0, 0, 0),
    BOTH(add, 37, 0, 0, 1, 0),
    BOTH(add, 131077, 0, 0, 2, 0),
    BOTH(elementwise, 1, 0, 0, 0, 0),
    BOTH(elementwise, 37, 0, 0, 1, 0),
    BOTH(elementwise, 131077, 0, 0, 0, 0),
    {sums, {0, 0, 0, BL_FP32, 0, 0}},
    {sums, {1, 0, 0, BL_FP32, 0, 0}},
    {sums, {37, 0, 0, BL_FP32, 0, 0}},
    {sums, {4096, 0, 0, BL_FP32, 0, 0}},
    {sums, {200003, 0, 0, BL_FP32, 0, 0}},
};

const unsigned op_case_count = sizeof op_cases / sizeof *op_cases;
