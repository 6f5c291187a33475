/* Logit statistics, their gradient, softcap and row scale against fp64, on every instruction set of
 * this processor. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"

#define U 0x1p-24 /* half an ulp of fp32, relative */

static uint64_t state;

static double uniform(void) /* [-1, 1) */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (double)(state >> 11) * 0x1p-52 - 1.0;
}

static float bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    u += 0x7fffu + ((u >> 16) & 1u);
    u &= 0xffff0000u;
    memcpy(&x, &u, sizeof x);
    return x;
}

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static struct bl_backend *backend(uint32_t threads, const char *isa)
{
    struct bl_backend *b = NULL;
    struct bl_error err = {.size = sizeof err};
    return bl_backend_cpu(threads, isa, &b, &err) == 0 ? b : NULL;
}

/* Rows of logits with their statistics; padding columns hold NaN, which nobody may read. */
struct rows {
    uint64_t n, vocab, stride;
    float *z;
    int32_t *targets, *argmax;
    double *lse, *target, *mean, *m2, *max, *pz;
};

static void *array(uint64_t n, size_t size)
{
    void *p = calloc(n + 1, size);
    assert_non_null(p);
    return p;
}

static void rows_make(struct rows *r, uint64_t n, uint64_t vocab, uint64_t pad, double offset,
                      double spread)
{
    r->n = n;
    r->vocab = vocab;
    r->stride = vocab + pad;
    r->z = array(n * r->stride, sizeof *r->z);
    r->targets = array(n, sizeof *r->targets);
    r->argmax = array(n, sizeof *r->argmax);
    r->lse = array(n, sizeof(double));
    r->target = array(n, sizeof(double));
    r->mean = array(n, sizeof(double));
    r->m2 = array(n, sizeof(double));
    r->max = array(n, sizeof(double));
    r->pz = array(n, sizeof(double));
    for (uint64_t i = 0; i < n; i++) {
        for (uint64_t v = 0; v < r->stride; v++)
            r->z[i * r->stride + v] = v < vocab ? (float)(offset + spread * uniform()) : NAN;
        r->targets[i] = i % 5 == 4 ? -1 : (int32_t)((i * 7919 + 3) % vocab);
    }
}

static void rows_drop(struct rows *r)
{
    free(r->z);
    free(r->targets);
    free(r->argmax);
    free(r->lse);
    free(r->target);
    free(r->mean);
    free(r->m2);
    free(r->max);
    free(r->pz);
}

static void stats(struct bl_backend *b, struct rows *r)
{
    struct bl_logit_stats a = {.rows = r->n,
                               .vocab = r->vocab,
                               .stride = r->stride,
                               .act = BL_FP32,
                               .z = r->z,
                               .targets = r->targets,
                               .lse = r->lse,
                               .target = r->target,
                               .mean = r->mean,
                               .m2 = r->m2,
                               .max = r->max,
                               .pz = r->pz,
                               .argmax = r->argmax};
    b->ops->logit_stats(b, &a);
}

/* ---- statistics ---- */

struct exact { /* of one row, two passes in long double */
    double lse, mean, m2, max, pz;
    double distance; /* mean |z - mean| */
    double gap;      /* sum p (max - z) */
    int32_t argmax;
};

static void exact_row(const float *z, uint64_t vocab, struct exact *e)
{
    long double sum = 0.0L, square = 0.0L, exps = 0.0L, gaps = 0.0L, distance = 0.0L, mean;
    e->argmax = 0;
    for (uint64_t v = 0; v < vocab; v++) {
        sum += (long double)z[v];
        if (z[v] > z[e->argmax])
            e->argmax = (int32_t)v;
    }
    mean = sum / (long double)vocab;
    e->max = (double)z[e->argmax];
    for (uint64_t v = 0; v < vocab; v++) {
        const long double gap = (long double)z[v] - (long double)e->max;
        square += ((long double)z[v] - mean) * ((long double)z[v] - mean);
        distance += fabsl((long double)z[v] - mean);
        exps += expl(gap);
        gaps += expl(gap) > 0.0L ? -gap * expl(gap) : 0.0L;
    }
    e->mean = (double)mean;
    e->m2 = (double)square;
    e->distance = (double)(distance / (long double)vocab);
    e->gap = (double)(gaps / exps);
    e->lse = (double)((long double)e->max + logl(exps));
    e->pz = (double)((long double)e->max - gaps / exps);
}

/* Within a block a lane adds at most 1024 / (2 * 4) = 128 terms before fp64 takes over, so a sum
 * of terms of one sign is off by at most 128 u, plus what each term is off by: exp 2.2 u and
 * u |z - M| of its argument (for a term of weight e^-g the latter is at most 0.37 u in all);
 * a square 2 u. A distance sum cancels nothing that its absolute terms do not bound; the block's
 * center may lie sqrt(1024) spreads from its first element, whose differences cost u each:
 * (128 + 32) u. 1e-14 of the value is for the fp64 part, 1e-38 for the underflow of exp. */
static void check_row(const char *isa, const struct rows *r, uint64_t i)
{
    const double sums = 132.0 * U;
    struct exact e;

    exact_row(r->z + i * r->stride, r->vocab, &e);
    if (!(fabs(r->lse[i] - e.lse) <= sums + 1e-14 * fabs(e.lse)))
        fail_msg("%s: V %d: lse %.17g, not %.17g", isa, (int)r->vocab, r->lse[i], e.lse);
    if (!(fabs(r->mean[i] - e.mean) <= 160.0 * U * e.distance + 1e-14 * fabs(e.mean)))
        fail_msg("%s: V %d: mean %.17g, not %.17g", isa, (int)r->vocab, r->mean[i], e.mean);
    if (!(fabs(r->m2[i] - e.m2) <= 160.0 * U * e.m2))
        fail_msg("%s: V %d: m2 %.17g, not %.17g", isa, (int)r->vocab, r->m2[i], e.m2);
    if (!(fabs(r->pz[i] - e.pz) <= 2.0 * sums * e.gap + 1e-14 * fabs(e.pz) + 1e-38))
        fail_msg("%s: V %d: pz %.17g, not %.17g", isa, (int)r->vocab, r->pz[i], e.pz);
    assert_true(r->max[i] == e.max);
    assert_int_equal(r->argmax[i], e.argmax);
    assert_true(r->target[i] ==
                (r->targets[i] < 0 ? 0.0 : (double)r->z[i * r->stride + (uint64_t)r->targets[i]]));
}

static void statistics(void **unused)
{
    static const uint64_t vocabs[] = {1, 2, 3, 7, 8, 16, 33, 257, 1023, 1024, 1025, 2056, 50257};
    static const double places[][2] = {{0, 1},    {0, 1e-3}, {0, 20},   {0, 1e4},    {1e3, 1},
                                       {-1e3, 4}, {1e8, 1},  {1e8, 40}, {-1e8, 1e4}, {1e3, 0}};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(2, isas[i]);
        if (!b)
            continue;
        for (size_t v = 0; v < sizeof vocabs / sizeof *vocabs; v++)
            for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
                struct rows r;
                state = v * 100 + p + 1;
                rows_make(&r, vocabs[v] > 5000 ? 2 : 6, vocabs[v], v % 4, places[p][0],
                          places[p][1]);
                stats(b, &r);
                for (uint64_t row = 0; row < r.n; row++)
                    check_row(isas[i], &r, row);
                rows_drop(&r);
            }
        bl_backend_destroy(b);
    }
}

/* One logit far from all others, at the first place of a block (where sums are centred), within a
 * vector, and in what is left of the last vector. */
static void outliers(void **unused)
{
    static const uint64_t at[] = {0, 500, 1024, 1500, 2050};
    static const float value[] = {1e4f, -1e4f, 1e8f, -1e8f, 1e19f, -3e38f};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        if (!b)
            continue;
        for (size_t p = 0; p < sizeof at / sizeof *at; p++)
            for (size_t v = 0; v < sizeof value / sizeof *value; v++) {
                struct rows r;
                state = p + 1;
                rows_make(&r, 1, 2051, 3, 0.0, 3.0);
                r.z[at[p]] = value[v];
                stats(b, &r);
                check_row(isas[i], &r, 0);
                rows_drop(&r);
            }
        bl_backend_destroy(b);
    }
}

/* Only what is asked for is written, and it does not depend on what else is asked for. */
static void parts(void **unused)
{
    struct bl_backend *b = backend(1, "auto");
    struct rows r;
    double one[3];
    (void)unused;

    assert_non_null(b);
    state = 1;
    rows_make(&r, 3, 3001, 2, 10.0, 5.0);
    stats(b, &r);
    double *const whole[] = {r.lse, r.mean, r.m2, r.max, r.target, r.pz};
    for (int i = 0; i < 6; i++) {
        struct bl_logit_stats a = {.rows = 3,
                                   .vocab = 3001,
                                   .stride = 3003,
                                   .act = BL_FP32,
                                   .z = r.z,
                                   .targets = r.targets};
        double **const wanted[] = {&a.lse, &a.mean, &a.m2, &a.max, &a.target, &a.pz};
        *wanted[i] = one;
        b->ops->logit_stats(b, &a);
        assert_memory_equal(one, whole[i], sizeof one);
    }
    rows_drop(&r);
    bl_backend_destroy(b);
}

static void not_finite(void **unused)
{
    static const uint64_t at[] = {0, 5, 1023, 1024, 1700, 2050};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        if (!b)
            continue;
        for (size_t p = 0; p < sizeof at / sizeof *at; p++) {
            struct rows r, without;
            state = 11;
            rows_make(&r, 1, 2051, 1, 0.0, 3.0);
            state = 11;
            rows_make(&without, 1, 2051, 1, 0.0, 3.0);
            /* -inf is a logit of probability 0: lse and pz are those of a very small logit */
            r.z[at[p]] = -INFINITY;
            without.z[at[p]] = -1e30f;
            stats(b, &r);
            stats(b, &without);
            assert_true(fabs(r.lse[0] - without.lse[0]) < 1e-6);
            assert_true(fabs(r.pz[0] - without.pz[0]) < 1e-5);
            assert_true(r.max[0] == without.max[0]);
            assert_int_equal(r.argmax[0], without.argmax[0]);
            assert_true(r.mean[0] == -(double)INFINITY);
            assert_true(isnan(r.m2[0]));

            r.z[at[p]] = INFINITY;
            stats(b, &r);
            assert_true(isinf(r.lse[0]) && r.lse[0] > 0.0);
            assert_true(isinf(r.max[0]) && r.max[0] > 0.0);
            assert_true(isinf(r.mean[0]));
            assert_true(isnan(r.m2[0]) && isnan(r.pz[0]));
            assert_int_equal(r.argmax[0], at[p]);

            r.z[at[p]] = NAN;
            r.z[2050] = p == 5 ? NAN : 1e6f; /* a larger logit after it changes nothing */
            stats(b, &r);
            assert_true(isnan(r.lse[0]) && isnan(r.max[0]) && isnan(r.pz[0]));
            assert_true(isnan(r.mean[0]) && isnan(r.m2[0]));
            assert_int_equal(r.argmax[0], at[p]);
            rows_drop(&r);
            rows_drop(&without);
        }
        struct rows all;
        rows_make(&all, 1, 1030, 0, -INFINITY, 0.0);
        stats(b, &all);
        assert_true(all.lse[0] == -(double)INFINITY && all.max[0] == -(double)INFINITY);
        rows_drop(&all);
        bl_backend_destroy(b);
    }
}

static void first_of_equals(void **unused)
{
    static const uint64_t pairs[][2] = {{0, 1},    {3, 9},       {5, 1020},    {1023, 1024},
                                        {7, 2049}, {1030, 2050}, {2049, 2050}, {100, 1999}};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        if (!b)
            continue;
        for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
            struct rows r;
            rows_make(&r, 1, 2051, 1, 0.0, 3.0);
            r.z[pairs[p][0]] = r.z[pairs[p][1]] = 4.0f;
            stats(b, &r);
            assert_int_equal(r.argmax[0], pairs[p][0]);
            rows_drop(&r);
        }
        bl_backend_destroy(b);
    }
}

/* ---- gradient ---- */

struct slopes {
    double lse, target, mean, m2, max, pz;
};

/* fp64 twin: the sum of a row's statistics times fixed numbers, and its derivative. */
static double twin_value(const double *z, uint64_t V, int64_t y, const struct slopes *c)
{
    double max = z[0], sum = 0.0, exps = 0.0, gaps = 0.0, square = 0.0;
    for (uint64_t v = 0; v < V; v++) {
        max = fmax(max, z[v]);
        sum += z[v];
    }
    for (uint64_t v = 0; v < V; v++) {
        exps += exp(z[v] - max);
        gaps += exp(z[v] - max) * (z[v] - max);
        square += (z[v] - sum / (double)V) * (z[v] - sum / (double)V);
    }
    return c->lse * (max + log(exps)) + (y >= 0 ? c->target * z[y] : 0.0) +
           c->mean * sum / (double)V + c->m2 * square + c->max * max + c->pz * (max + gaps / exps);
}

/* terms: sum of absolute terms, for the bound. */
static double formula(const struct slopes *c, double z, double lse, double mean, double pz,
                      double max, uint64_t V, int is_target, int is_max, double *terms)
{
    const double p = exp(z - lse), far = 12.0 + fabs(z - max);
    *terms = far * (fabs(c->lse) * p) + 4.0 * fabs(c->mean) / (double)V +
             8.0 * fabs(c->m2) * (fabs(z - mean) + fabs(mean - (double)(float)mean)) +
             far * fabs(c->pz) * p * (1.0 + fabs(z - max) + fabs(max - pz)) +
             (is_target ? fabs(c->target) : 0.0) + (is_max ? fabs(c->max) : 0.0);
    return c->lse * p + c->mean / (double)V + 2.0 * c->m2 * (z - mean) +
           (p > 0.0 ? c->pz * p * (1.0 + z - pz) : 0.0) + (is_target ? c->target : 0.0) +
           (is_max ? c->max : 0.0);
}

/* The formula against central differences of the twin, step 1e-5, values of order 10: truncation
 * and cancellation both near 1e-10. */
static void formula_is_the_derivative(void **unused)
{
    const struct slopes all = {0.7, -1.1, 2.0, 0.3, 0.9, -0.6};
    double z[9], lse, mean = 0.0, max = -1e9, exps = 0.0, pz = 0.0, terms;
    int top = 0;
    (void)unused;

    state = 4;
    for (int v = 0; v < 9; v++) {
        z[v] = 3.0 * uniform();
        mean += z[v] / 9.0;
        exps += exp(z[v]);
        if (z[v] > max)
            max = z[top = v];
    }
    lse = log(exps);
    for (int v = 0; v < 9; v++)
        pz += exp(z[v] - lse) * z[v];
    for (int v = 0; v < 9; v++) {
        const double was = z[v];
        double high, low, g;
        z[v] = was + 1e-5;
        high = twin_value(z, 9, 2, &all);
        z[v] = was - 1e-5;
        low = twin_value(z, 9, 2, &all);
        z[v] = was;
        g = formula(&all, z[v], lse, mean, pz, max, 9, v == 2, v == top, &terms);
        assert_true(fabs((high - low) / 2e-5 - g) < 1e-8);
    }
}

static void fill(double *x, uint64_t n, double value)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = value * (1.0 + 0.25 * (double)(i % 3));
}

/* Against the formula with the row's own statistics. Per term: exp 2.2 u, its factor u, the
 * argument u |z - max|, products and the last sum a few u: (12 + |z - max|) u of it; a distance
 * z - mean is off by u of itself and of mean's rounding, times 2, four operations. 2^-126 and below
 * is flushed to 0. */
static void gradient(void **unused)
{
    static const struct slopes sets[] = {{1, -1, 0, 0, 0, 0},      {0.01, 0, 0, 0, 0, 0},
                                         {0, 0.5, 0, 0, 0, 0},     {0, 0, 2, 0, 0, 0},
                                         {0, 0, 0, 1e-3, 0, 0},    {0, 0, 0, 0, 0.7, 0},
                                         {0, 0, 0, 0, 0, -0.3},    {1, -0.9, 0.1, 1e-4, 0.2, 0.05},
                                         {1, -0.9, -0.1, 0, 0, 0}, {1, -1, 0, 1e-2, 0, 0},
                                         {0, 0, 1, 1e-3, 1, 0}};
    static const double places[][2] = {{0, 1}, {0, 30}, {1e3, 1}, {1e8, 100}, {-1e8, 1e4}};
    static const uint64_t vocabs[] = {1, 5, 8, 1000, 4097};
    (void)unused;

    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(2, isas[i]);
        if (!b)
            continue;
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
            for (size_t n = 0; n < 25; n++) {
                struct rows r;
                double d[6][7];
                state = n + 1;
                rows_make(&r, 7, vocabs[n / 5], n % 3, places[n % 5][0], places[n % 5][1]);
                stats(b, &r);
                const double values[] = {sets[s].lse, sets[s].target, sets[s].mean,
                                         sets[s].m2,  sets[s].max,    sets[s].pz};
                for (int k = 0; k < 6; k++)
                    fill(d[k], 7, values[k]);
                float *dz = array(r.n * r.stride, sizeof *dz);
                float *rounded = array(r.n * r.stride, sizeof *dz);
                struct bl_logit_grad g = {.rows = r.n,
                                          .vocab = r.vocab,
                                          .stride = r.stride,
                                          .act = BL_FP32,
                                          .act_out = BL_FP32,
                                          .z = r.z,
                                          .targets = r.targets,
                                          .lse = r.lse,
                                          .mean = r.mean,
                                          .max = r.max,
                                          .pz = r.pz,
                                          .argmax = r.argmax,
                                          .d_lse = values[0] != 0.0 ? d[0] : NULL,
                                          .d_target = values[1] != 0.0 ? d[1] : NULL,
                                          .d_mean = values[2] != 0.0 ? d[2] : NULL,
                                          .d_m2 = values[3] != 0.0 ? d[3] : NULL,
                                          .d_max = values[4] != 0.0 ? d[4] : NULL,
                                          .d_pz = values[5] != 0.0 ? d[5] : NULL,
                                          .dz = dz};
                b->ops->logit_grad(b, &g);
                g.act_out = BL_BF16;
                g.dz = rounded;
                b->ops->logit_grad(b, &g);
                for (uint64_t e = 0; e < r.n * r.stride; e++) {
                    const uint64_t row = e / r.stride, v = e % r.stride;
                    const struct slopes c = {d[0][row], d[1][row], d[2][row],
                                             d[3][row], d[4][row], d[5][row]};
                    double terms, want;
                    assert_true(rounded[e] == bf16(dz[e]));
                    if (v >= r.vocab) {
                        assert_true(dz[e] == 0.0f);
                        continue;
                    }
                    want = formula(&c, (double)r.z[e], r.lse[row], r.mean[row], r.pz[row],
                                   r.max[row], r.vocab, (int64_t)v == r.targets[row],
                                   (int64_t)v == r.argmax[row], &terms);
                    if (!(fabs((double)dz[e] - want) <= U * terms + 1e-36))
                        fail_msg("%s: set %d, case %d, V %d: dz %.9g, not %.9g (%.2g)", isas[i],
                                 (int)s, (int)n, (int)r.vocab, (double)dz[e], want, U * terms);
                }
                g.act_out = BL_FP32; /* in place */
                g.dz = rounded;
                memcpy(rounded, r.z, r.n * r.stride * sizeof *dz);
                g.z = rounded;
                b->ops->logit_grad(b, &g);
                assert_memory_equal(rounded, dz, r.n * r.stride * sizeof *dz);
                free(dz);
                free(rounded);
                rows_drop(&r);
            }
        bl_backend_destroy(b);
    }
}

/* Cross-entropy's gradient has sum 0 over v. Each p_v is off by (3 + |z_v - max|) u at most, about
 * 12 u here, and the sum behind lse by 132 u at worst; random rounding leaves far less (largest
 * seen: 9e-8), so 1e-6 catches any systematic slip, at every offset. */
static void cross_entropy_sums_to_zero(void **unused)
{
    static const double offsets[] = {0.0, 1e3, 1e6, -1e8};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        if (!b)
            continue;
        for (int o = 0; o < 4; o++) {
            struct rows r;
            double plus[4] = {1, 1, 1, 1}, minus[4] = {-1, -1, -1, -1};
            state = 21;
            rows_make(&r, 4, 50257, 15, offsets[o], o == 3 ? 64.0 : 3.0);
            stats(b, &r);
            struct bl_logit_grad g = {.rows = 4,
                                      .vocab = r.vocab,
                                      .stride = r.stride,
                                      .act = BL_FP32,
                                      .act_out = BL_FP32,
                                      .z = r.z,
                                      .targets = r.targets,
                                      .lse = r.lse,
                                      .max = r.max,
                                      .d_lse = plus,
                                      .d_target = minus,
                                      .dz = r.z};
            b->ops->logit_grad(b, &g);
            for (uint64_t row = 0; row < 4; row++) {
                double sum = 0.0;
                for (uint64_t v = 0; v < r.vocab; v++)
                    sum += (double)r.z[row * r.stride + v];
                if (!(fabs(sum) < 1e-6))
                    fail_msg("%s: offset %g: the gradient sums to %g", isas[i], offsets[o], sum);
            }
            rows_drop(&r);
        }
        bl_backend_destroy(b);
    }
}

static void masked_rows_and_nan(void **unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        struct rows r;
        double d[3] = {0, 1, 0}, e[3] = {0, -1, 0}, zero[3] = {0, 0, 0};
        if (!b)
            continue;
        rows_make(&r, 3, 37, 3, 0.0, 1.0);
        r.z[4] = NAN;
        r.z[r.stride + 9] = NAN;
        stats(b, &r);
        struct bl_logit_grad g = {.rows = 3,
                                  .vocab = 37,
                                  .stride = 40,
                                  .act = BL_FP32,
                                  .act_out = BL_FP32,
                                  .z = r.z,
                                  .targets = r.targets,
                                  .lse = r.lse,
                                  .mean = r.mean,
                                  .max = r.max,
                                  .pz = r.pz,
                                  .argmax = r.argmax,
                                  .d_lse = d,
                                  .d_target = e,
                                  .d_mean = zero,
                                  .d_m2 = zero,
                                  .d_max = zero,
                                  .d_pz = zero,
                                  .dz = r.z};
        b->ops->logit_grad(b, &g);
        for (uint64_t v = 0; v < 40; v++) {
            assert_true(r.z[v] == 0.0f && r.z[80 + v] == 0.0f);
            assert_int_equal(isnan(r.z[40 + v]) != 0, v < 37);
        }
        rows_drop(&r);
        bl_backend_destroy(b);
    }
}

static void threads_do_not_matter(void **unused)
{
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct rows r[2];
        for (uint32_t n = 0; n < 2; n++) {
            struct bl_backend *b = backend(n + 1, isas[i]);
            state = 31;
            rows_make(&r[n], 50, 3001, 7, 5.0, 4.0);
            if (!b)
                continue;
            stats(b, &r[n]);
            struct bl_logit_grad g = {.rows = 50,
                                      .vocab = 3001,
                                      .stride = 3008,
                                      .act = BL_FP32,
                                      .act_out = BL_BF16,
                                      .z = r[n].z,
                                      .targets = r[n].targets,
                                      .lse = r[n].lse,
                                      .mean = r[n].mean,
                                      .max = r[n].max,
                                      .d_lse = r[n].lse,
                                      .d_m2 = r[n].mean,
                                      .dz = r[n].z};
            b->ops->logit_grad(b, &g);
            bl_backend_destroy(b);
        }
        for (uint64_t row = 0; row < 50; row++)
            assert_memory_equal(r[0].z + row * 3008, r[1].z + row * 3008, 3001 * sizeof(float));
        assert_memory_equal(r[0].lse, r[1].lse, 50 * sizeof(double));
        assert_memory_equal(r[0].m2, r[1].m2, 50 * sizeof(double));
        assert_memory_equal(r[0].pz, r[1].pz, 50 * sizeof(double));
        rows_drop(&r[0]);
        rows_drop(&r[1]);
    }
}

/* ---- maps ---- */

/* Value: tanh 2.7 u, the quotient u (which moves tanh relatively by no more than that), the product
 * u: 5 u relative. Slope: t is off by u, so 1 - t^2 by 2 u absolute; products 3 u. */
static void softcap(void **unused)
{
    const float c = 15.0f;
    (void)unused;
    for (int i = 0; i < 3; i++)
        for (int round = 0; round < 2; round++) {
            const uint32_t act = round ? BL_BF16 : BL_FP32;
            struct bl_backend *b = backend(2, isas[i]);
            struct rows r;
            if (!b)
                continue;
            state = 8;
            rows_make(&r, 9, 101, 3, 0.0, 60.0);
            r.z[0] = 1e-6f;
            r.z[1] = -1e30f;
            r.z[2] = NAN;
            float *z = array(r.n * r.stride, sizeof *z), *dz = array(r.n * r.stride, sizeof *dz);
            memcpy(z, r.z, r.n * r.stride * sizeof *z);
            for (uint64_t e = 0; e < r.n * r.stride; e++)
                dz[e] = (float)uniform();
            memcpy(r.z, dz, r.n * r.stride * sizeof *dz); /* r.z: dz before; z: capped in place */
            float *before = array(r.n * r.stride, sizeof *z);
            memcpy(before, z, r.n * r.stride * sizeof *z);
            b->ops->softcap(b, r.n, r.vocab, r.stride, c, z, act);
            b->ops->softcap_grad(b, r.n, r.vocab, r.stride, c, z, dz, act);
            for (uint64_t e = 0; e < r.n * r.stride; e++) {
                const double t = tanh((double)before[e] / (double)c);
                const double s = (double)z[e] / (double)c, g = (double)r.z[e];
                if (e % r.stride >= r.vocab) { /* padding stays as it was */
                    assert_memory_equal(&z[e], &before[e], sizeof *z);
                    assert_true(dz[e] == r.z[e]);
                } else if (e == 2) {
                    assert_true(isnan(z[e]) && isnan(dz[e]));
                } else {
                    const double more = round ? 0x1p-8 : 0.0;
                    if (!(fabs((double)z[e] - (double)c * t) <=
                          (5.0 * U + more) * (double)c * fabs(t)))
                        fail_msg("%s: softcap of %.9g: %.9g, not %.9g", isas[i], (double)before[e],
                                 (double)z[e], (double)c * t);
                    assert_true(fabs((double)dz[e] - g * (1.0 - s * s)) <=
                                5.0 * U * fabs(g) + more * fabs(g * (1.0 - s * s)));
                    assert_true(!round || (bf16(z[e]) == z[e] && bf16(dz[e]) == dz[e]));
                }
            }
            free(z);
            free(dz);
            free(before);
            rows_drop(&r);
            bl_backend_destroy(b);
        }
}

/* s = 1 / sqrt(m2 / V + mean^2 / 4 + 1): a function of both statistics. */
static double row_factor(const double *z, uint64_t V, double *d_mean, double *d_m2, double *mean)
{
    double sum = 0.0, m2 = 0.0, s;
    for (uint64_t v = 0; v < V; v++)
        sum += z[v];
    *mean = sum / (double)V;
    for (uint64_t v = 0; v < V; v++)
        m2 += (z[v] - *mean) * (z[v] - *mean);
    s = 1.0 / sqrt(m2 / (double)V + *mean * *mean / 4.0 + 1.0);
    *d_m2 = -0.5 * s * s * s / (double)V;
    *d_mean = -0.25 * s * s * s * *mean;
    return s;
}

/* The op against central differences in fp64 of L(z) = sum w s(z) z. Step 1e-4 (third derivatives
 * of order 1, so 1e-9 of truncation); the op itself: z' is rounded to fp32, u |z'|, which moves q
 * by u sum |w z|, and the result is rounded: 1e-5 covers 33 values of order 3 with u = 6e-8. */
static void row_scale(void **unused)
{
    enum { V = 33, PAD = 2, N = 5 };
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(2, isas[i]);
        struct rows r;
        double z[V], w[V], s[N], d_mean[N], d_m2[N], mean[N];
        float dz[N * (V + PAD)], before[N * (V + PAD)];
        if (!b)
            continue;
        state = 17;
        rows_make(&r, N, V, PAD, 1.0, 3.0);
        for (int row = 0; row < N; row++) {
            for (int v = 0; v < V; v++)
                z[v] = (double)r.z[row * (V + PAD) + v];
            s[row] = row_factor(z, V, &d_mean[row], &d_m2[row], &mean[row]);
        }
        memcpy(before, r.z, sizeof before);
        for (int e = 0; e < N * (V + PAD); e++)
            dz[e] = (float)uniform();
        float weights[N * (V + PAD)];
        memcpy(weights, dz, sizeof dz);
        b->ops->row_scale(b, N, V, V + PAD, s, r.z, BL_FP32);
        b->ops->row_scale_grad(b, N, V, V + PAD, s, d_mean, d_m2, mean, r.z, dz, BL_FP32);
        for (int row = 0; row < N; row++)
            for (int v = 0; v < V + PAD; v++) {
                const int e = row * (V + PAD) + v;
                double loss[2];
                if (v >= V) {
                    assert_memory_equal(&r.z[e], &before[e], sizeof(float));
                    assert_true(dz[e] == weights[e]);
                    continue;
                }
                assert_true(r.z[e] == (float)(s[row] * (double)before[e]));
                for (int side = 0; side < 2; side++) {
                    double a, c, m, factor;
                    loss[side] = 0.0;
                    for (int k = 0; k < V; k++) {
                        z[k] = (double)before[row * (V + PAD) + k];
                        w[k] = (double)weights[row * (V + PAD) + k];
                    }
                    z[v] += side ? 1e-4 : -1e-4;
                    factor = row_factor(z, V, &a, &c, &m);
                    for (int k = 0; k < V; k++)
                        loss[side] += w[k] * factor * z[k];
                }
                assert_true(fabs((double)dz[e] - (loss[1] - loss[0]) / 2e-4) < 1e-5);
            }
        b->ops->row_scale(b, N, V, V + PAD, s, r.z, BL_BF16);
        for (int e = 0; e < N * (V + PAD); e++)
            assert_true(e % (V + PAD) >= V || r.z[e] == bf16(r.z[e]));
        rows_drop(&r);
        bl_backend_destroy(b);
    }
}

/* Offset 1e6, spread 1, sum of dz 0: q is a sum of terms a million times its value. z' is fp32 of
 * z (multiples of 1/16, s = 1, exact), so fp64 gives the answer to 1e-9. */
static void row_scale_under_an_offset(void **unused)
{
    enum { V = 1001 };
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        struct rows r;
        float dz[V];
        double one = 1.0, d_mean = 0.5, d_m2 = 0.25, mean = 0.0, q = 0.0;
        if (!b)
            continue;
        state = 12;
        rows_make(&r, 1, V, 0, 1e6, 1.0);
        for (int v = 0; v < V; v++) {
            dz[v] = v % 2 ? -0.125f : 0.125f;
            if (v == V - 1)
                dz[v] = 0.0f;
            mean += (double)r.z[v] / V;
            q += (double)dz[v] * (double)r.z[v];
        }
        float was[V];
        memcpy(was, dz, sizeof dz);
        b->ops->row_scale_grad(b, 1, V, V, &one, &d_mean, &d_m2, &mean, r.z, dz, BL_FP32);
        for (int v = 0; v < V; v++) {
            const double want =
                (double)was[v] + q * (d_mean / V + 2.0 * d_m2 * ((double)r.z[v] - mean));
            assert_true(fabs((double)dz[v] - want) <= U * fabs(want) + 1e-8 * fabs(q));
        }
        rows_drop(&r);
        bl_backend_destroy(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics),
        cmocka_unit_test(outliers),
        cmocka_unit_test(parts),
        cmocka_unit_test(not_finite),
        cmocka_unit_test(first_of_equals),
        cmocka_unit_test(formula_is_the_derivative),
        cmocka_unit_test(gradient),
        cmocka_unit_test(cross_entropy_sums_to_zero),
        cmocka_unit_test(masked_rows_and_nan),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(softcap),
        cmocka_unit_test(row_scale),
        cmocka_unit_test(row_scale_under_an_offset),
    };
    unsetenv("BALLAST_ISA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
