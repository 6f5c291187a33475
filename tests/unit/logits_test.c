/* Logit statistics and their gradient against fp64, on every instruction set of this processor. */
#include "logits_support.h"

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
 * seen: 1.9e-7), so 1e-6 catches any systematic slip, at every offset. */
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

/* A logit of -inf has probability 0: the terms with p are 0 there, also p z. */
static void gradient_at_minus_infinity(void **unused)
{
    double one = 1.0;
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        struct rows r;
        float dz[37];
        if (!b)
            continue;
        rows_make(&r, 1, 37, 0, 0.0, 1.0);
        r.z[7] = r.z[36] = -INFINITY;
        stats(b, &r);
        struct bl_logit_grad g = {.rows = 1,
                                  .vocab = 37,
                                  .stride = 37,
                                  .act = BL_FP32,
                                  .act_out = BL_FP32,
                                  .z = r.z,
                                  .lse = r.lse,
                                  .max = r.max,
                                  .pz = r.pz,
                                  .d_lse = &one,
                                  .d_pz = &one,
                                  .dz = dz};
        b->ops->logit_grad(b, &g);
        for (int v = 0; v < 37; v++)
            assert_true(v == 7 || v == 36 ? dz[v] == 0.0f : isfinite(dz[v]) && dz[v] != 0.0f);
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
        cmocka_unit_test(gradient_at_minus_infinity),
        cmocka_unit_test(threads_do_not_matter),
    };
    unsetenv("BALLAST_ISA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
