/* Checks of regularizers against finite differences, on logits and statistics in fp64. */
#include "tests/lib/plugin_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* ---- rows and their statistics ----------------------------------------------------------------
 */

struct one_row {
    double lse, target, mean, m2, max, pz;
    int32_t argmax;
    uint8_t valid;
};

/* Sums in long double: at an offset of 1000 the statistics are then good to an ulp of fp64. */
static struct one_row row_statistics(uint64_t vocab, const double *z, int32_t target)
{
    struct one_row r = {.max = z[0], .valid = target >= 0};
    long double sum = 0, squares = 0, mass = 0, pz = 0;
    for (uint64_t v = 0; v < vocab; v++) {
        sum += z[v];
        if (z[v] > r.max) {
            r.max = z[v];
            r.argmax = (int32_t)v;
        }
    }
    long double mean = sum / (long double)vocab;
    for (uint64_t v = 0; v < vocab; v++) {
        long double e = expl((long double)z[v] - r.max);
        squares += (z[v] - mean) * (z[v] - mean);
        mass += e;
        pz += e * z[v];
    }
    r.mean = (double)mean;
    r.m2 = (double)squares;
    r.lse = (double)(r.max + logl(mass));
    r.pz = (double)(pz / mass);
    r.target = target >= 0 ? z[target] : NAN;
    return r;
}

void bl_bench_rows_make(struct bl_bench_rows *r, uint64_t rows, uint64_t vocab)
{
    memset(r, 0, sizeof *r);
    r->rows = rows;
    r->vocab = vocab;
    double **arrays[] = {&r->lse,  &r->target_logit, &r->mean,  &r->m2,       &r->max,
                         &r->pz,   &r->value,        &r->d_lse, &r->d_target, &r->d_mean,
                         &r->d_m2, &r->d_max,        &r->d_pz};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        assert_non_null(*arrays[i] = calloc(rows, sizeof(double)));
    assert_non_null(r->z = calloc(rows * vocab, sizeof(double)));
    assert_non_null(r->target = calloc(rows, sizeof(int32_t)));
    assert_non_null(r->argmax = calloc(rows, sizeof(int32_t)));
    assert_non_null(r->valid = calloc(rows, 1));
    r->stats = (struct bl_row_stats){.size = sizeof r->stats,
                                     .count = rows,
                                     .vocab = vocab,
                                     .lse = r->lse,
                                     .target = r->target_logit,
                                     .mean = r->mean,
                                     .m2 = r->m2,
                                     .max = r->max,
                                     .argmax = r->argmax,
                                     .pz = r->pz,
                                     .valid = r->valid};
    r->grads = (struct bl_row_grads){.size = sizeof r->grads,
                                     .value = r->value,
                                     .d_lse = r->d_lse,
                                     .d_target = r->d_target,
                                     .d_mean = r->d_mean,
                                     .d_m2 = r->d_m2,
                                     .d_max = r->d_max,
                                     .d_pz = r->d_pz};
}

void bl_bench_rows_free(struct bl_bench_rows *r)
{
    void *arrays[] = {r->z,        r->target, r->lse,    r->target_logit, r->mean,  r->m2,
                      r->max,      r->pz,     r->argmax, r->valid,        r->value, r->d_lse,
                      r->d_target, r->d_mean, r->d_m2,   r->d_max,        r->d_pz};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    memset(r, 0, sizeof *r);
}

void bl_bench_rows_stats(struct bl_bench_rows *r)
{
    for (uint64_t i = 0; i < r->rows; i++) {
        struct one_row s = row_statistics(r->vocab, r->z + i * r->vocab, r->target[i]);
        r->lse[i] = s.lse;
        r->target_logit[i] = s.target;
        r->mean[i] = s.mean;
        r->m2[i] = s.m2;
        r->max[i] = s.max;
        r->pz[i] = s.pz;
        r->argmax[i] = s.argmax;
        r->valid[i] = s.valid;
    }
}

void bl_bench_rows_fill(struct bl_bench_rows *r, uint64_t seed, double offset, double spread)
{
    for (uint64_t i = 0; i < r->rows; i++) {
        double *z = r->z + i * r->vocab;
        uint64_t top = 0;
        for (uint64_t v = 0; v < r->vocab; v++) {
            z[v] = offset + spread * bl_random_normal(seed, 1, i * r->vocab + v);
            top = z[v] > z[top] ? v : top;
        }
        /* A tie within the difference step would make the maximum's derivative ambiguous. */
        z[top] += 0.125;
        r->target[i] = i % 4 == 3 ? -1 : (int32_t)(bl_random(seed, 2, i) % r->vocab);
    }
    bl_bench_rows_stats(r);
}

static void clear_outputs(struct bl_bench_rows *r)
{
    double *outputs[] = {r->value, r->d_lse, r->d_target, r->d_mean, r->d_m2, r->d_max, r->d_pz};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        memset(outputs[i], 0, r->rows * sizeof(double));
}

void bl_bench_rows_call(const struct bl_bench *b, struct bl_bench_rows *r)
{
    clear_outputs(r);
    b->ops->regularizer.rows(b->self, &r->stats, &r->grads, 0, r->rows);
}

void bl_bench_rows_dz(const struct bl_bench_rows *r, uint64_t i, double *dz)
{
    const double *z = r->z + i * r->vocab;
    for (uint64_t v = 0; v < r->vocab; v++) {
        double p = exp(z[v] - r->lse[i]);
        dz[v] = r->d_lse[i] * p + r->d_mean[i] / (double)r->vocab +
                2 * r->d_m2[i] * (z[v] - r->mean[i]) + r->d_pz[i] * p * (1 + z[v] - r->pz[i]);
        dz[v] += (int64_t)v == r->target[i] ? r->d_target[i] : 0;
        dz[v] += (int64_t)v == r->argmax[i] ? r->d_max[i] : 0;
    }
}

double bl_bench_row_value(const struct bl_bench *b, uint64_t vocab, const double *z, int32_t target)
{
    struct one_row s = row_statistics(vocab, z, target);
    double out[7] = {0};
    struct bl_row_stats stats = {.size = sizeof stats,
                                 .count = 1,
                                 .vocab = vocab,
                                 .lse = &s.lse,
                                 .target = &s.target,
                                 .mean = &s.mean,
                                 .m2 = &s.m2,
                                 .max = &s.max,
                                 .argmax = &s.argmax,
                                 .pz = &s.pz,
                                 .valid = &s.valid};
    struct bl_row_grads grads = {.size = sizeof grads,
                                 .value = &out[0],
                                 .d_lse = &out[1],
                                 .d_target = &out[2],
                                 .d_mean = &out[3],
                                 .d_m2 = &out[4],
                                 .d_max = &out[5],
                                 .d_pz = &out[6]};
    b->ops->regularizer.rows(b->self, &stats, &grads, 0, 1);
    return out[0];
}

/* ---- finite differences -----------------------------------------------------------------------
 */

/* Fourth-order central difference from f(-2h), f(-h), f(h), f(2h). */
static double difference(const double f[4], double h)
{
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

static const double steps[4] = {-2, -1, 1, 2};

/* Which columns are differenced: all of a small vocabulary, else 40 spread over it. */
static uint64_t column_count(uint64_t n)
{
    return n < 40 ? n : 40;
}

static uint64_t column(uint64_t n, uint64_t k)
{
    return n < 40 ? k : (k * 2654435761u) % n;
}

static double largest(uint64_t n, const double *x)
{
    double m = 0;
    for (uint64_t i = 0; i < n; i++)
        m = fmax(m, fabs(x[i]));
    return m;
}

static void check_row_column(const struct bl_bench *b, const struct bl_bench_rows *r, uint64_t i,
                             uint64_t v, const double *dz)
{
    /* h = 2^-6: the truncation h^4/30 |f^(5)| is below 2e-9 |f^(5)|, and the fifth derivative of
     * smooth functions of the statistics is of the order of 30 (1 + the first one). Rounding: a
     * value whose terms are as large as (1 + max |z|)^2 carries a few of its ulps, over h. */
    const double h = 0x1p-6;
    double *z = r->z + i * r->vocab, at = z[v], f[4];
    double size = 1 + largest(r->vocab, z);
    for (int k = 0; k < 4; k++) {
        z[v] = at + steps[k] * h;
        f[k] = bl_bench_row_value(b, r->vocab, z, r->target[i]);
    }
    z[v] = at;
    double expected = difference(f, h);
    double tolerance = 1e-7 * (1 + largest(r->vocab, dz)) + 16 * DBL_EPSILON * size * size / h;
    if (!(fabs(dz[v] - expected) <= tolerance))
        fail_msg("V %llu, row %llu, column %llu, logit %.9g: derivative %.12g, difference %.12g, "
                 "tolerance %.3g",
                 (unsigned long long)r->vocab, (unsigned long long)i, (unsigned long long)v, at,
                 dz[v], expected, tolerance);
}

static void check_derivatives(const struct bl_bench *b, struct bl_bench_rows *r)
{
    double *dz = malloc(r->vocab * sizeof *dz);
    assert_non_null(dz);
    bl_bench_rows_call(b, r);
    for (uint64_t i = 0; i < r->rows; i++) {
        if (r->target[i] < 0)
            continue;
        assert_true(isfinite(r->value[i]));
        assert_true(r->value[i] ==
                    bl_bench_row_value(b, r->vocab, r->z + i * r->vocab, r->target[i]));
        bl_bench_rows_dz(r, i, dz);
        check_row_column(b, r, i, (uint64_t)r->target[i], dz);
        check_row_column(b, r, i, (uint64_t)r->argmax[i], dz);
        for (uint64_t k = 0; k < column_count(r->vocab); k++)
            check_row_column(b, r, i, column(r->vocab, k), dz);
    }
    free(dz);
}

/* Pieces give the whole's bits, and nothing outside of a piece is touched. */
static void check_pieces(const struct bl_bench *b, struct bl_bench_rows *r)
{
    double *outputs[] = {r->value, r->d_lse, r->d_target, r->d_mean, r->d_m2, r->d_max, r->d_pz};
    enum { OUTPUTS = sizeof outputs / sizeof outputs[0] };
    uint64_t cut = r->rows / 3, n = r->rows;
    double *whole = malloc(OUTPUTS * n * sizeof *whole);
    assert_non_null(whole);
    bl_bench_rows_call(b, r);
    for (int o = 0; o < OUTPUTS; o++)
        memcpy(whole + (uint64_t)o * n, outputs[o], n * sizeof(double));
    clear_outputs(r);
    b->ops->regularizer.rows(b->self, &r->stats, &r->grads, cut, n);
    for (int o = 0; o < OUTPUTS; o++)
        for (uint64_t i = 0; i < cut; i++)
            assert_true(outputs[o][i] == 0);
    b->ops->regularizer.rows(b->self, &r->stats, &r->grads, 0, cut);
    for (int o = 0; o < OUTPUTS; o++)
        for (uint64_t i = 0; i < n; i++)
            if (r->valid[i])
                assert_memory_equal(&outputs[o][i], whole + (uint64_t)o * n + i, sizeof(double));
    free(whole);
}

void bl_bench_check_rows(const struct bl_bench *b)
{
    static const uint64_t vocabs[] = {1, 2, 7, 1000};
    static const double offsets[] = {0, 1000, -1000}, spreads[] = {1, 4};
    assert_non_null(b->ops->regularizer.rows);
    assert_non_null(b->ops->regularizer.coefficient);
    for (size_t k = 0; k < sizeof vocabs / sizeof vocabs[0]; k++) {
        struct bl_bench_rows r;
        bl_bench_rows_make(&r, 8, vocabs[k]);
        if ((b->ops->regularizer.needs & BL_NEED_PZ) == 0)
            r.stats.pz = NULL;
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
                bl_bench_rows_fill(&r, 100 * k + 10 * o + s, offsets[o], spreads[s]);
                check_derivatives(b, &r);
                check_pieces(b, &r);
            }
        bl_bench_rows_free(&r);
    }
}

void bl_bench_check_shift(const struct bl_bench *b, int changes)
{
    enum { V = 37 };
    static const double shifts[] = {1, 10, 1000};
    double z[V];
    for (uint64_t k = 0; k < sizeof shifts / sizeof shifts[0]; k++) {
        for (uint64_t v = 0; v < V; v++)
            z[v] = 1 + bl_bench_normal(3, v);
        double before = bl_bench_row_value(b, V, z, 5);
        for (uint64_t v = 0; v < V; v++)
            z[v] += shifts[k];
        double change = fabs(bl_bench_row_value(b, V, z, 5) - before);
        /* No change: what rounding each shifted logit to fp64 may leave. */
        double tolerance = 16 * DBL_EPSILON * (1 + shifts[k]) * (1 + fabs(before));
        if (changes ? change < 1e-3 * shifts[k] : change > tolerance)
            fail_msg("adding %g to all logits changes the value by %.3g", shifts[k], change);
    }
}

/* ---- transforms -------------------------------------------------------------------------------
 */

/* Output of row_scale for one row. */
struct scaled {
    struct one_row before;
    double scale, d_mean, d_m2;
};

static struct scaled scale_row(const struct bl_bench *b, uint64_t vocab, const double *z)
{
    struct scaled s = {.before = row_statistics(vocab, z, 0)};
    struct bl_row_stats stats = {.size = sizeof stats,
                                 .count = 1,
                                 .vocab = vocab,
                                 .lse = &s.before.lse,
                                 .target = &s.before.target,
                                 .mean = &s.before.mean,
                                 .m2 = &s.before.m2,
                                 .max = &s.before.max,
                                 .argmax = &s.before.argmax,
                                 .valid = &s.before.valid};
    struct bl_row_scale out = {
        .size = sizeof out, .scale = &s.scale, .d_mean = &s.d_mean, .d_m2 = &s.d_m2};
    b->ops->regularizer.row_scale(b->self, &stats, &out, 0, 1);
    return s;
}

static double weight_of(uint64_t v)
{
    return bl_bench_normal(4, v);
}

/* A smooth loss of the scaled logits x: log sum exp x + sum a sin x, and its derivative. */
static double smooth_loss(uint64_t vocab, const double *x, double *dx)
{
    struct one_row s = row_statistics(vocab, x, 0);
    long double sum = s.lse;
    for (uint64_t v = 0; v < vocab; v++) {
        sum += weight_of(v) * sin(x[v]);
        if (dx != NULL)
            dx[v] = exp(x[v] - s.lse) + weight_of(v) * cos(x[v]);
    }
    return (double)sum;
}

static double loss_through(const struct bl_bench *b, uint64_t vocab, const double *z, double *x)
{
    struct scaled s = scale_row(b, vocab, z);
    for (uint64_t v = 0; v < vocab; v++)
        x[v] = s.scale * z[v];
    return smooth_loss(vocab, x, NULL);
}

static void check_scale_row(const struct bl_bench *b, uint64_t vocab, double *z)
{
    double *x = malloc(vocab * sizeof *x), *dx = malloc(vocab * sizeof *dx),
           *dz = malloc(vocab * sizeof *dz);
    assert_true(x != NULL && dx != NULL && dz != NULL);
    struct scaled s = scale_row(b, vocab, z);
    assert_true(isfinite(s.scale) && isfinite(s.d_mean) && isfinite(s.d_m2));
    for (uint64_t v = 0; v < vocab; v++)
        x[v] = s.scale * z[v];
    smooth_loss(vocab, x, dx);
    double q = 0, spread = 0;
    for (uint64_t v = 0; v < vocab; v++) {
        q += dx[v] * z[v];
        spread = fmax(spread, fabs(z[v] - s.before.mean));
    }
    for (uint64_t v = 0; v < vocab; v++)
        dz[v] =
            s.scale * dx[v] + q * (s.d_mean / (double)vocab + 2 * s.d_m2 * (z[v] - s.before.mean));
    /* The scaled logits move by at most `speed` for one unit of z, and the loss is smooth on the
     * scale of 1 in them. */
    double speed = 1 + fabs(s.scale) +
                   largest(vocab, z) * (fabs(s.d_mean) / (double)vocab + 2 * fabs(s.d_m2) * spread);
    double h = exp2(floor(log2(0x1p-7 / speed)));
    double size = (1 + largest(vocab, x)) * (double)(vocab + 1);
    for (uint64_t k = 0; k < column_count(vocab); k++) {
        uint64_t v = column(vocab, k);
        double at = z[v], f[4];
        for (int i = 0; i < 4; i++) {
            z[v] = at + steps[i] * h;
            f[i] = loss_through(b, vocab, z, x);
        }
        z[v] = at;
        /* Truncation h^4/30 |f^(5)| with |f^(5)| of speed^5: 1e-10 of speed; rounding of the
         * scaled logits over h. */
        double expected = difference(f, h);
        double tolerance = 1e-6 * speed + 4 * DBL_EPSILON * size / h;
        if (!(fabs(dz[v] - expected) <= tolerance))
            fail_msg("V %llu, column %llu: derivative %.12g, difference %.12g, tolerance %.3g",
                     (unsigned long long)vocab, (unsigned long long)v, dz[v], expected, tolerance);
    }
    free(x);
    free(dx);
    free(dz);
}

static void check_row_scale(const struct bl_bench *b)
{
    static const uint64_t vocabs[] = {1, 2, 7, 1000};
    static const double offsets[] = {0, 30, 1000}, spreads[] = {1, 4};
    for (size_t k = 0; k < sizeof vocabs / sizeof vocabs[0]; k++) {
        struct bl_bench_rows r;
        bl_bench_rows_make(&r, 4, vocabs[k]);
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
                bl_bench_rows_fill(&r, 1000 + 100 * k + 10 * o + s, offsets[o], spreads[s]);
                for (uint64_t i = 0; i < r.rows; i++)
                    check_scale_row(b, r.vocab, r.z + i * r.vocab);
            }
        bl_bench_rows_free(&r);
    }
}

static void check_element(const struct bl_bench *b)
{
    enum { N = 257 };
    static const float spans[] = {2, 20, 200};
    float x[N], y[N], dy[N], low[N], high[N], moved[N], only[N];
    for (size_t s = 0; s < sizeof spans / sizeof spans[0]; s++) {
        for (int i = 0; i < N; i++)
            x[i] = spans[s] * (float)(i - N / 2) / (N / 2);
        b->ops->regularizer.element(b->self, N, x, y, dy);
        b->ops->regularizer.element(b->self, N, x, NULL, only);
        assert_memory_equal(only, dy, sizeof dy);
        memcpy(only, x, sizeof x);
        b->ops->regularizer.element(b->self, N, only, only, NULL);
        assert_memory_equal(only, y, sizeof y);
        float h = 0x1p-5f;
        for (int i = 0; i < N; i++)
            moved[i] = x[i] - h;
        b->ops->regularizer.element(b->self, N, moved, low, NULL);
        for (int i = 0; i < N; i++)
            moved[i] = x[i] + h;
        b->ops->regularizer.element(b->self, N, moved, high, NULL);
        for (int i = 0; i < N; i++) {
            /* Second order: h^2/6 |f'''| is below 2e-4 for maps that bend on the scale of 1 and
             * more; x +- h and y are fp32. */
            double width = (double)(x[i] + h) - (double)(x[i] - h);
            double expected = ((double)high[i] - (double)low[i]) / width;
            double tolerance = 2e-4 + 4 * (double)FLT_EPSILON * (1 + fabs((double)y[i])) / width;
            if (!(fabs((double)dy[i] - expected) <= tolerance))
                fail_msg("x = %g: derivative %.9g, difference %.9g", (double)x[i], (double)dy[i],
                         expected);
        }
    }
}

void bl_bench_check_transform(const struct bl_bench *b)
{
    const struct bl_regularizer_ops *ops = &b->ops->regularizer;
    assert_true((ops->row_scale != NULL) != (ops->element != NULL));
    if (ops->row_scale != NULL)
        check_row_scale(b);
    else
        check_element(b);
}

/* ---- the output matrix ------------------------------------------------------------------------
 */

void bl_bench_check_weight_grad(struct bl_bench *b, uint64_t rows, uint64_t cols)
{
    const struct bl_regularizer_ops *ops = &b->ops->regularizer;
    const double h = 0x1p-6;
    uint64_t n = rows * cols;
    float *w = malloc(n * sizeof *w), *g = calloc(n, sizeof *g), *g2 = calloc(n, sizeof *g2);
    assert_true(w != NULL && g != NULL && g2 != NULL);
    assert_non_null(ops->weight_grad);
    assert_non_null(ops->coefficient);
    /* Multiples of 2^-10, so that the steps of the difference are exact in fp32. */
    for (uint64_t i = 0; i < n; i++)
        w[i] = (float)(round(1024 * (0.25 + 0.5 * bl_bench_normal(5, i))) / 1024);
    struct bl_tensor head = bl_bench_view("head.weight", BL_GROUP_HEAD, rows, cols, w);
    struct bl_tensor gradient = bl_bench_view("head.weight", BL_GROUP_HEAD, rows, cols, g);
    double value = ops->weight_grad(b->self, b->host, &head, NULL, 2);
    assert_true(isfinite(value));
    assert_true(ops->weight_grad(b->self, b->host, &head, &gradient, 2) == value);
    double top = 0;
    for (uint64_t i = 0; i < n; i++)
        top = fmax(top, fabs((double)g[i]) / 2);
    for (uint64_t k = 0; k < column_count(n); k++) {
        uint64_t i = column(n, k);
        float at = w[i];
        double f[4];
        for (int s = 0; s < 4; s++) {
            w[i] = (float)((double)at + steps[s] * h);
            f[s] = ops->weight_grad(b->self, b->host, &head, NULL, 2);
        }
        w[i] = at;
        /* The gradient is stored in fp32; the value is an fp64 sum of n terms. */
        double expected = difference(f, h), tolerance = 4 * (double)FLT_EPSILON * top + 1e-7 * top +
                                                        64 * DBL_EPSILON * fabs(value) / h;
        if (!(fabs((double)g[i] / 2 - expected) <= tolerance))
            fail_msg("element %llu: derivative %.9g, difference %.9g, tolerance %.3g",
                     (unsigned long long)i, (double)g[i] / 2, expected, tolerance);
    }
    int reversed = b->reversed;
    b->reversed = !reversed;
    gradient.data = g2;
    assert_true(ops->weight_grad(b->self, b->host, &head, &gradient, 2) == value);
    assert_memory_equal(g, g2, n * sizeof *g);
    b->reversed = reversed;
    for (uint64_t i = 0; i < n; i++)
        g2[i] = 1;
    ops->weight_grad(b->self, b->host, &head, &gradient, 2);
    for (uint64_t i = 0; i < n; i++)
        assert_true(fabs((double)g2[i] - 1 - (double)g[i]) <=
                    (double)FLT_EPSILON * (1 + fabs((double)g[i])));
    free(w);
    free(g);
    free(g2);
}
