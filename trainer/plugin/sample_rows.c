#include "plugin/sample_rows.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/error.h"
#include "base/random.h"

enum { OUTPUTS = 7, COLUMNS = 40 };

static const uint64_t vocabs[] = {1, 2, 7, 1000};
static const double spreads[] = {1, 4};

/* ---- rows and their statistics ----------------------------------------------------------------*/

/* Sums in long double: at an offset of 1000 the statistics are then good to an ulp of fp64. */
struct bl_sample_row bl_sample_statistics(uint64_t vocab, const double *z, int32_t target)
{
    struct bl_sample_row r = {.max = z[0], .valid = target >= 0};
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
    /* the largest term of mass is 1 */
    r.lse = (double)(r.max + logl(mass > 0 ? mass : 1));
    r.pz = (double)(pz / mass);
    r.target = target >= 0 ? z[target] : NAN;
    return r;
}

void bl_sample_rows_start(struct bl_sample_rows *r, uint64_t rows, uint64_t vocab)
{
    memset(r, 0, sizeof *r);
    r->rows = rows;
    r->vocab = vocab;
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
                                     .value = r->out[0],
                                     .d_lse = r->out[1],
                                     .d_target = r->out[2],
                                     .d_mean = r->out[3],
                                     .d_m2 = r->out[4],
                                     .d_max = r->out[5],
                                     .d_pz = r->out[6]};
}

static void set_row(struct bl_sample_rows *r, uint64_t i)
{
    struct bl_sample_row s = bl_sample_statistics(r->vocab, r->z + i * r->vocab, r->target[i]);
    r->lse[i] = s.lse;
    r->target_logit[i] = s.target;
    r->mean[i] = s.mean;
    r->m2[i] = s.m2;
    r->max[i] = s.max;
    r->pz[i] = s.pz;
    r->argmax[i] = s.argmax;
    r->valid[i] = s.valid;
}

void bl_sample_rows_fill(struct bl_sample_rows *r, uint64_t seed, double offset, double spread)
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
        set_row(r, i);
    }
}

/* ---- the op rows ------------------------------------------------------------------------------*/

static void call(const struct bl_regularizer_ops *ops, const void *self, struct bl_sample_rows *r)
{
    memset(r->out, 0, sizeof r->out);
    ops->rows(self, &r->stats, &r->grads, 0, r->rows);
}

/* dz (vocab,) of row i by the formula in <ballast/regularizer.h>. */
static void logit_derivatives(const struct bl_sample_rows *r, uint64_t i, double *dz)
{
    const double *z = r->z + i * r->vocab;
    const struct bl_row_grads *g = &r->grads;
    for (uint64_t v = 0; v < r->vocab; v++) {
        double p = exp(z[v] - r->lse[i]);
        dz[v] = g->d_lse[i] * p + g->d_mean[i] / (double)r->vocab +
                2 * g->d_m2[i] * (z[v] - r->mean[i]) + g->d_pz[i] * p * (1 + z[v] - r->pz[i]);
        dz[v] += (int64_t)v == r->target[i] ? g->d_target[i] : 0;
        dz[v] += (int64_t)v == r->argmax[i] ? g->d_max[i] : 0;
    }
}

static double row_value(const struct bl_regularizer_ops *ops, const void *self, uint64_t vocab,
                        const double *z, int32_t target)
{
    struct bl_sample_row s = bl_sample_statistics(vocab, z, target);
    double out[OUTPUTS] = {0};
    struct bl_row_stats stats = {.size = sizeof stats,
                                 .count = 1,
                                 .vocab = vocab,
                                 .lse = &s.lse,
                                 .target = &s.target,
                                 .mean = &s.mean,
                                 .m2 = &s.m2,
                                 .max = &s.max,
                                 .argmax = &s.argmax,
                                 .pz = (ops->needs & BL_NEED_PZ) != 0 ? &s.pz : NULL,
                                 .valid = &s.valid};
    struct bl_row_grads grads = {.size = sizeof grads,
                                 .value = &out[0],
                                 .d_lse = &out[1],
                                 .d_target = &out[2],
                                 .d_mean = &out[3],
                                 .d_m2 = &out[4],
                                 .d_max = &out[5],
                                 .d_pz = &out[6]};
    ops->rows(self, &stats, &grads, 0, 1);
    return out[0];
}

/* Fourth-order central difference from f(-2h), f(-h), f(h), f(2h). */
static const double steps[4] = {-2, -1, 1, 2};

static double difference(const double f[4], double h)
{
    return (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
}

/* Which columns are differenced: all of a small vocabulary, else 40 spread over it. */
static uint64_t column_count(uint64_t n)
{
    return n < COLUMNS ? n : COLUMNS;
}

static uint64_t column(uint64_t n, uint64_t k)
{
    return n < COLUMNS ? k : (k * 2654435761u) % n;
}

static double largest(uint64_t n, const double *x)
{
    double m = 0;
    for (uint64_t i = 0; i < n; i++)
        m = fmax(m, fabs(x[i]));
    return m;
}

static int check_column(const struct bl_regularizer_ops *ops, const void *self,
                        struct bl_sample_rows *r, uint64_t i, uint64_t v, const double *dz,
                        struct bl_error *err)
{
    /* h = 2^-6: the truncation h^4/30 |f^(5)| is below 2e-9 |f^(5)|, and the fifth derivative of
     * smooth functions of the statistics is of the order of 30 (1 + the first one). Rounding: a
     * value whose terms are as large as (1 + max |z|)^2 carries a few of its ulps, over h. */
    const double h = 0x1p-6;
    double *z = r->z + i * r->vocab, at = z[v], f[4];
    double size = 1 + largest(r->vocab, z);
    for (int k = 0; k < 4; k++) {
        z[v] = at + steps[k] * h;
        f[k] = row_value(ops, self, r->vocab, z, r->target[i]);
    }
    z[v] = at;
    double expected = difference(f, h);
    double tolerance = 1e-7 * (1 + largest(r->vocab, dz)) + 16 * DBL_EPSILON * size * size / h;
    if (fabs(dz[v] - expected) <= tolerance)
        return 0;
    return bl_error_set(err, BL_EXIT_PLUGIN,
                        "V = %llu, logit %llu of a row%s%s, z = %.6g: its derivatives give %.9g, "
                        "the difference of its value %.9g",
                        (unsigned long long)r->vocab, (unsigned long long)v,
                        (int64_t)v == r->target[i] ? ", the target" : "",
                        (int64_t)v == r->argmax[i] ? ", the maximum" : "", at, dz[v], expected);
}

static int check_rows_of(const struct bl_regularizer_ops *ops, const void *self,
                         struct bl_sample_rows *r, struct bl_error *err)
{
    double dz[1000];
    call(ops, self, r);
    for (uint64_t i = 0; i < r->rows; i++) {
        const double *z = r->z + i * r->vocab;
        if (r->target[i] < 0)
            continue;
        if (!isfinite(r->out[0][i]))
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "the value of a row with mean %g and m2 %g is not finite",
                                r->mean[i], r->m2[i]);
        if (r->out[0][i] != row_value(ops, self, r->vocab, z, r->target[i]))
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "the value of a row depends on what else is in the batch, or on "
                                "what was asked before");
        logit_derivatives(r, i, dz);
        if (check_column(ops, self, r, i, (uint64_t)r->target[i], dz, err) != 0 ||
            check_column(ops, self, r, i, (uint64_t)r->argmax[i], dz, err) != 0)
            return -1;
        for (uint64_t k = 0; k < column_count(r->vocab); k++)
            if (check_column(ops, self, r, i, column(r->vocab, k), dz, err) != 0)
                return -1;
    }
    return 0;
}

static void start(struct bl_sample_rows *r, const struct bl_regularizer_ops *ops, uint64_t rows,
                  uint64_t vocab)
{
    bl_sample_rows_start(r, rows, vocab);
    if ((ops->needs & BL_NEED_PZ) == 0)
        r->stats.pz = NULL;
}

int bl_sample_check_rows(const struct bl_regularizer_ops *ops, const void *self,
                         struct bl_error *err)
{
    static const double offsets[] = {0, 1000, -1000};
    struct bl_sample_rows r;
    for (size_t k = 0; k < sizeof vocabs / sizeof vocabs[0]; k++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
                start(&r, ops, 8, vocabs[k]);
                bl_sample_rows_fill(&r, 100 * k + 10 * o + s, offsets[o], spreads[s]);
                if (check_rows_of(ops, self, &r, err) != 0)
                    return -1;
            }
    return 0;
}

int bl_sample_check_pieces(const struct bl_regularizer_ops *ops, const void *self,
                           struct bl_error *err)
{
    struct bl_sample_rows r;
    double whole[OUTPUTS][BL_SAMPLE_ROWS];
    start(&r, ops, 12, 7);
    bl_sample_rows_fill(&r, 5, 1, 2);
    const uint64_t cut = r.rows / 3;
    call(ops, self, &r);
    memcpy(whole, r.out, sizeof whole);
    memset(r.out, 0, sizeof r.out);
    ops->rows(self, &r.stats, &r.grads, cut, r.rows);
    for (int o = 0; o < OUTPUTS; o++)
        for (uint64_t i = 0; i < BL_SAMPLE_ROWS; i++)
            if ((i < cut || i >= r.rows) && r.out[o][i] != 0)
                return bl_error_set(err, BL_EXIT_PLUGIN,
                                    "rows [%llu, %llu) were asked for, and row %llu was written",
                                    (unsigned long long)cut, (unsigned long long)r.rows,
                                    (unsigned long long)i);
    ops->rows(self, &r.stats, &r.grads, 0, cut);
    for (int o = 0; o < OUTPUTS; o++)
        for (uint64_t i = 0; i < r.rows; i++)
            if (r.valid[i] && memcmp(&r.out[o][i], &whole[o][i], sizeof(double)) != 0)
                return bl_error_set(err, BL_EXIT_PLUGIN,
                                    "row %llu has other bits when the rows come in pieces",
                                    (unsigned long long)i);
    return 0;
}

int bl_sample_check_masked(const struct bl_regularizer_ops *ops, const void *self,
                           struct bl_error *err)
{
    struct bl_sample_rows r;
    double before[OUTPUTS][BL_SAMPLE_ROWS];
    start(&r, ops, 12, 7);
    bl_sample_rows_fill(&r, 6, 0, 2);
    call(ops, self, &r);
    memcpy(before, r.out, sizeof before);
    for (uint64_t i = 0; i < r.rows; i++)
        if (!r.valid[i])
            r.lse[i] = r.mean[i] = r.m2[i] = r.max[i] = r.pz[i] = NAN;
    call(ops, self, &r);
    for (int o = 0; o < OUTPUTS; o++)
        for (uint64_t i = 0; i < r.rows; i++)
            if (r.valid[i] && memcmp(&r.out[o][i], &before[o][i], sizeof(double)) != 0)
                return bl_error_set(err, BL_EXIT_PLUGIN,
                                    "row %llu changes when a masked row holds NaN",
                                    (unsigned long long)i);
    return 0;
}

/* ---- transforms -------------------------------------------------------------------------------*/

/* Output of row_scale for one row. */
struct scaled {
    struct bl_sample_row before;
    double scale, d_mean, d_m2;
};

static struct scaled scale_row(const struct bl_regularizer_ops *ops, const void *self,
                               uint64_t vocab, const double *z)
{
    struct scaled s = {.before = bl_sample_statistics(vocab, z, 0)};
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
    ops->row_scale(self, &stats, &out, 0, 1);
    return s;
}

/* A smooth loss of the scaled logits x: log sum exp x + sum a sin x, and its derivative. */
static double smooth_loss(uint64_t vocab, const double *x, double *dx)
{
    struct bl_sample_row s = bl_sample_statistics(vocab, x, 0);
    long double sum = s.lse;
    for (uint64_t v = 0; v < vocab; v++) {
        double weight = bl_random_normal(42, 4, v);
        sum += weight * sin(x[v]);
        if (dx != NULL)
            dx[v] = exp(x[v] - s.lse) + weight * cos(x[v]);
    }
    return (double)sum;
}

static double loss_through(const struct bl_regularizer_ops *ops, const void *self, uint64_t vocab,
                           const double *z, double *x)
{
    struct scaled s = scale_row(ops, self, vocab, z);
    for (uint64_t v = 0; v < vocab; v++)
        x[v] = s.scale * z[v];
    return smooth_loss(vocab, x, NULL);
}

static int check_scale_row(const struct bl_regularizer_ops *ops, const void *self, uint64_t vocab,
                           double *z, struct bl_error *err)
{
    double x[1000], dx[1000], dz[1000];
    struct scaled s = scale_row(ops, self, vocab, z);
    if (!isfinite(s.scale) || !isfinite(s.d_mean) || !isfinite(s.d_m2))
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "V = %llu, mean %g, m2 %g: scale or derivative is not finite",
                            (unsigned long long)vocab, s.before.mean, s.before.m2);
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
            f[i] = loss_through(ops, self, vocab, z, x);
        }
        z[v] = at;
        /* Truncation h^4/30 |f^(5)| with |f^(5)| of speed^5: 1e-10 of speed; rounding of the
         * scaled logits over h. */
        double expected = difference(f, h);
        double tolerance = 1e-6 * speed + 4 * DBL_EPSILON * size / h;
        if (!(fabs(dz[v] - expected) <= tolerance))
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "V = %llu, logit %llu, z = %.6g: its derivatives give %.9g, the "
                                "difference %.9g",
                                (unsigned long long)vocab, (unsigned long long)v, at, dz[v],
                                expected);
    }
    return 0;
}

int bl_sample_check_row_scale(const struct bl_regularizer_ops *ops, const void *self,
                              struct bl_error *err)
{
    static const double offsets[] = {0, 30, 1000};
    struct bl_sample_rows r;
    for (size_t k = 0; k < sizeof vocabs / sizeof vocabs[0]; k++)
        for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++)
            for (size_t s = 0; s < sizeof spreads / sizeof spreads[0]; s++) {
                bl_sample_rows_start(&r, 4, vocabs[k]);
                bl_sample_rows_fill(&r, 1000 + 100 * k + 10 * o + s, offsets[o], spreads[s]);
                for (uint64_t i = 0; i < r.rows; i++)
                    if (check_scale_row(ops, self, r.vocab, r.z + i * r.vocab, err) != 0)
                        return -1;
            }
    return 0;
}

int bl_sample_check_element(const struct bl_regularizer_ops *ops, const void *self,
                            struct bl_error *err)
{
    enum { N = 257 };
    static const float spans[] = {2, 20, 200};
    const float h = 0x1p-5f;
    float x[N], y[N], dy[N], low[N], high[N], moved[N], only[N];
    for (size_t s = 0; s < sizeof spans / sizeof spans[0]; s++) {
        for (int i = 0; i < N; i++)
            x[i] = spans[s] * (float)(i - N / 2) / (N / 2);
        ops->element(self, N, x, y, dy);
        ops->element(self, N, x, NULL, only);
        if (memcmp(only, dy, sizeof dy) != 0)
            return bl_error_set(err, BL_EXIT_PLUGIN, "dy has other bits when y is NULL");
        memcpy(only, x, sizeof x);
        ops->element(self, N, only, only, NULL);
        if (memcmp(only, y, sizeof y) != 0)
            return bl_error_set(err, BL_EXIT_PLUGIN, "y has other bits when it replaces x");
        for (int i = 0; i < N; i++)
            moved[i] = x[i] - h;
        ops->element(self, N, moved, low, NULL);
        for (int i = 0; i < N; i++)
            moved[i] = x[i] + h;
        ops->element(self, N, moved, high, NULL);
        for (int i = 0; i < N; i++) {
            /* Second order: h^2/6 |f'''| is below 2e-4 for maps that bend on the scale of 1 and
             * more; x +- h and y are fp32. */
            double width = (double)(x[i] + h) - (double)(x[i] - h);
            double expected = ((double)high[i] - (double)low[i]) / width;
            double tolerance = 2e-4 + 4 * (double)FLT_EPSILON * (1 + fabs((double)y[i])) / width;
            if (!(fabs((double)dy[i] - expected) <= tolerance))
                return bl_error_set(err, BL_EXIT_PLUGIN, "x = %g: derivative %.9g, difference %.9g",
                                    (double)x[i], (double)dy[i], expected);
        }
    }
    return 0;
}

/* ---- the output matrix ------------------------------------------------------------------------*/

static int weight_differences(const struct bl_regularizer_ops *ops, void *self,
                              const struct bl_host *host, struct bl_tensor *head, const float *g,
                              double value, struct bl_error *err)
{
    const double h = 0x1p-6;
    float *w = head->data;
    double top = 0;
    for (uint64_t k = 0; k < head->count; k++)
        top = fmax(top, fabs((double)g[k]) / 2);
    for (uint64_t c = 0; c < column_count(head->count); c++) {
        uint64_t k = column(head->count, c);
        float at = w[k];
        double f[4];
        for (int s = 0; s < 4; s++) {
            w[k] = (float)((double)at + steps[s] * h);
            f[s] = ops->weight_grad(self, host, head, NULL, 2);
        }
        w[k] = at;
        /* The gradient is stored in fp32; the value is an fp64 sum of n terms. */
        double expected = difference(f, h);
        double tolerance =
            4 * (double)FLT_EPSILON * top + 1e-7 * top + 64 * DBL_EPSILON * fabs(value) / h;
        if (!(fabs((double)g[k] / 2 - expected) <= tolerance))
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "element %llu: with coefficient 2 it adds %.9g; twice the "
                                "difference of its value is %.9g",
                                (unsigned long long)k, (double)g[k], 2 * expected);
    }
    return 0;
}

int bl_sample_check_weight_grad(const struct bl_regularizer_ops *ops, void *self,
                                const struct bl_host *host, struct bl_tensor *head,
                                struct bl_tensor *gradient, struct bl_tensor *other, int *reversed,
                                struct bl_error *err)
{
    const uint64_t n = head->count;
    float *w = head->data, *g = gradient->data, *g2 = other->data;
    /* Multiples of 2^-10, so that the steps of the difference are exact in fp32. */
    for (uint64_t k = 0; k < n; k++)
        w[k] = (float)(round(1024 * (0.25 + 0.5 * bl_random_normal(42, 5, k))) / 1024);
    memset(g, 0, n * sizeof *g);
    memset(g2, 0, n * sizeof *g2);
    double value = ops->weight_grad(self, host, head, NULL, 2);
    if (!isfinite(value))
        return bl_error_set(err, BL_EXIT_PLUGIN, "its value is %g", value);
    if (ops->weight_grad(self, host, head, gradient, 2) != value)
        return bl_error_set(err, BL_EXIT_PLUGIN, "the value differs with and without a gradient");
    if (weight_differences(ops, self, host, head, g, value, err) != 0)
        return -1;
    *reversed = !*reversed;
    double again = ops->weight_grad(self, host, head, other, 2);
    *reversed = !*reversed;
    if (again != value || memcmp(g, g2, n * sizeof *g) != 0)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "value or gradient have other bits when parallel_for goes backwards");
    for (uint64_t k = 0; k < n; k++)
        g2[k] = 1;
    ops->weight_grad(self, host, head, other, 2);
    for (uint64_t k = 0; k < n; k++)
        if (!(fabs((double)g2[k] - 1 - (double)g[k]) <=
              (double)FLT_EPSILON * (1 + fabs((double)g[k]))))
            return bl_error_set(err, BL_EXIT_PLUGIN, "it replaces the gradient; it must add to it");
    return 0;
}
