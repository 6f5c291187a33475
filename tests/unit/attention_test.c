/* Attention against a plain fp64 computation, on every instruction set of this processor. */
#include "kernel_support.h"

struct shape {
    uint64_t batch, time, heads, kv_heads, dim, gap; /* gap: unused columns after each of q, k, v */
    double softcap;
    uint32_t act, act_out;
};

struct run {
    struct shape s;
    uint64_t row, out_row; /* elements of a row of qkv, of out */
    uint64_t at_k, at_v;   /* where k and v start in a row */
    float scale;
    float *qkv, *dqkv, *out, *dout, *lse;
};

static float *numbers(uint64_t n, double width, int round)
{
    float *x = malloc(n * sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < n; i++) {
        x[i] = (float)(width * uniform());
        if (round)
            x[i] = bf16(x[i]);
    }
    return x;
}

static void make(struct run *r, struct shape s, double width)
{
    const int round = s.act == BL_BF16;
    const uint64_t rows = s.batch * s.time;

    memset(r, 0, sizeof *r);
    r->s = s;
    r->at_k = s.heads * s.dim + s.gap;
    r->at_v = r->at_k + s.kv_heads * s.dim + s.gap;
    r->row = r->at_v + s.kv_heads * s.dim + s.gap;
    r->out_row = s.heads * s.dim + s.gap;
    r->scale = (float)(1.0 / sqrt((double)s.dim));
    r->qkv = numbers(rows * r->row, width, round);
    r->dqkv = numbers(rows * r->row, 0.0, 0);
    r->out = numbers(rows * r->out_row, 0.0, 0);
    r->dout = numbers(rows * r->out_row, 1.0, round);
    r->lse = numbers(s.batch * s.heads * s.time, 0.0, 0);
    for (uint64_t i = 0; i < rows * r->row; i++)
        r->dqkv[i] = 12345.0f;
    for (uint64_t i = 0; i < rows * r->out_row; i++)
        r->out[i] = 12345.0f;
}

static void drop(struct run *r)
{
    free(r->qkv);
    free(r->dqkv);
    free(r->out);
    free(r->dout);
    free(r->lse);
}

static void apply(struct bl_backend *b, struct run *r)
{
    struct bl_attention_grad g = {.forward = {.batch = r->s.batch,
                                              .time = r->s.time,
                                              .heads = r->s.heads,
                                              .kv_heads = r->s.kv_heads,
                                              .head_dim = r->s.dim,
                                              .stride_q = r->row,
                                              .stride_k = r->row,
                                              .stride_v = r->row,
                                              .stride_out = r->out_row,
                                              .act = r->s.act,
                                              .act_out = r->s.act_out,
                                              .scale = r->scale,
                                              .softcap = (float)r->s.softcap,
                                              .q = r->qkv,
                                              .k = r->qkv + r->at_k,
                                              .v = r->qkv + r->at_v,
                                              .out = r->out,
                                              .lse = r->lse},
                                  .dout = r->dout,
                                  .dq = r->dqkv,
                                  .dk = r->dqkv + r->at_k,
                                  .dv = r->dqkv + r->at_v};
    b->ops->attention(b, &g.forward);
    b->ops->attention_grad(b, &g);
}

/* fp64 twin. Beside each value the sum of the absolute values of its terms: an error that is
 * relative in every term is at most that much times the sum. */
struct twin {
    double *qkv, *dout; /* inputs */
    double *out, *lse, *dqkv;
    double *abs_out, *abs_dqkv;
    double most; /* largest |score| by absolute terms, or |lse| */
};

static double *doubles(uint64_t n, const float *from)
{
    double *x = calloc(n + 1, sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; from && i < n; i++)
        x[i] = (double)from[i];
    return x;
}

static void twin_make(struct twin *t, const struct run *r)
{
    const uint64_t rows = r->s.batch * r->s.time;
    t->qkv = doubles(rows * r->row, r->qkv);
    t->dout = doubles(rows * r->out_row, r->dout);
    t->out = doubles(rows * r->out_row, NULL);
    t->abs_out = doubles(rows * r->out_row, NULL);
    t->lse = doubles(r->s.batch * r->s.heads * r->s.time, NULL);
    t->dqkv = doubles(rows * r->row, NULL);
    t->abs_dqkv = doubles(rows * r->row, NULL);
    t->most = 0.0;
}

static void twin_drop(struct twin *t)
{
    free(t->qkv);
    free(t->dout);
    free(t->out);
    free(t->abs_out);
    free(t->lse);
    free(t->dqkv);
    free(t->abs_dqkv);
}

static void twin_row(struct twin *t, const struct run *r, uint64_t n, uint64_t h, uint64_t i,
                     double *p, double *slope)
{
    const struct shape *s = &r->s;
    const uint64_t D = s->dim, g = h / (s->heads / s->kv_heads), first = n * s->time;
    const double *q = t->qkv + (first + i) * r->row + h * D;
    const double *k = t->qkv + first * r->row + r->at_k + g * D;
    const double *v = t->qkv + first * r->row + r->at_v + g * D;
    const uint64_t o = (first + i) * r->out_row + h * D;
    double *dq = t->dqkv + (first + i) * r->row + h * D;
    double *dk = t->dqkv + first * r->row + r->at_k + g * D;
    double *dv = t->dqkv + first * r->row + r->at_v + g * D;
    double *aq = t->abs_dqkv + (first + i) * r->row + h * D;
    double *ak = t->abs_dqkv + first * r->row + r->at_k + g * D;
    double *av = t->abs_dqkv + first * r->row + r->at_v + g * D;
    const double scale = (double)r->scale;
    double most = -INFINITY, sum = 0.0, delta = 0.0, abs_delta = 0.0;

    for (uint64_t j = 0; j <= i; j++) {
        double x = 0.0, terms = 0.0;
        for (uint64_t d = 0; d < D; d++) {
            x += q[d] * k[j * r->row + d];
            terms += fabs(q[d] * k[j * r->row + d]);
        }
        x *= scale;
        t->most = fmax(t->most, terms * scale);
        slope[j] = 1.0;
        if (s->softcap > 0.0) {
            const double y = tanh(x / s->softcap);
            x = s->softcap * y;
            slope[j] = 1.0 - y * y;
        }
        p[j] = x;
        most = fmax(most, x);
    }
    for (uint64_t j = 0; j <= i; j++)
        sum += p[j] = exp(p[j] - most);
    t->lse[(n * s->heads + h) * s->time + i] = most + log(sum);
    t->most = fmax(t->most, fabs(most + log(sum)));
    for (uint64_t j = 0; j <= i; j++) {
        p[j] /= sum;
        for (uint64_t d = 0; d < D; d++) {
            t->out[o + d] += p[j] * v[j * r->row + d];
            t->abs_out[o + d] += p[j] * fabs(v[j * r->row + d]);
        }
    }
    for (uint64_t d = 0; d < D; d++) {
        delta += t->dout[o + d] * t->out[o + d];
        abs_delta += fabs(t->dout[o + d]) * t->abs_out[o + d];
    }
    for (uint64_t j = 0; j <= i; j++) {
        double dp = 0.0, abs_dp = abs_delta, ds;
        for (uint64_t d = 0; d < D; d++) {
            dp += t->dout[o + d] * v[j * r->row + d];
            abs_dp += fabs(t->dout[o + d] * v[j * r->row + d]);
            dv[j * r->row + d] += p[j] * t->dout[o + d];
            av[j * r->row + d] += p[j] * fabs(t->dout[o + d]);
        }
        ds = p[j] * (dp - delta) * slope[j] * scale;
        for (uint64_t d = 0; d < D; d++) {
            dq[d] += ds * k[j * r->row + d];
            dk[j * r->row + d] += ds * q[d];
            aq[d] += p[j] * abs_dp * scale * fabs(k[j * r->row + d]);
            ak[j * r->row + d] += p[j] * abs_dp * scale * fabs(q[d]);
        }
    }
}

static void twin_apply(struct twin *t, const struct run *r)
{
    double *p = doubles(r->s.time, NULL), *slope = doubles(r->s.time, NULL);
    for (uint64_t n = 0; n < r->s.batch; n++)
        for (uint64_t h = 0; h < r->s.heads; h++)
            for (uint64_t i = 0; i < r->s.time; i++)
                twin_row(t, r, n, h, i, p, slope);
    free(p);
    free(slope);
}

/* First-order bounds. A score carries (D + 4) u of the absolute terms of its dot product (softcap:
 * the tanh adds 3 u of the cap, and its argument's error is not enlarged), and p moves relatively
 * by as much as score and lse move in absolute terms: 2 most (D + 8) u. Sums of up to T terms and
 * dots of D add (T + D + 16) u. bf16: p, ds, out (seen through delta) and the result are each off
 * by 2^-8 relative, so 4 * 2^-8 of the absolute terms. */
static double relative_bound(const struct run *r, const struct twin *t)
{
    const double D = (double)r->s.dim, T = (double)r->s.time;
    double bound = 2.0 * t->most * (D + 8.0) * U + (T + D + 16.0) * U + 6.0 * r->s.softcap * U;
    if (r->s.act == BL_BF16 || r->s.act_out == BL_BF16)
        bound += 4.0 * 0x1p-8;
    return bound;
}

static void compare(const char *isa, const struct run *r, const struct twin *t)
{
    const struct shape *s = &r->s;
    const double bound = relative_bound(r, t);
    const uint64_t rows = s->batch * s->time;

    for (uint64_t i = 0; i < s->batch * s->heads * s->time; i++)
        if (!(fabs((double)r->lse[i] - t->lse[i]) <= bound))
            fail_msg("%s: T %d D %d: lse[%d] %.9g, not %.9g", isa, (int)s->time, (int)s->dim,
                     (int)i, (double)r->lse[i], t->lse[i]);
    for (uint64_t i = 0; i < rows * r->out_row; i++) {
        if (i % r->out_row >= s->heads * s->dim) {
            assert_true(r->out[i] == 12345.0f); /* the gap is nobody's */
            continue;
        }
        if (!(fabs((double)r->out[i] - t->out[i]) <= bound * t->abs_out[i]))
            fail_msg("%s: T %d D %d: out[%d] %.9g, not %.9g (%.2g)", isa, (int)s->time, (int)s->dim,
                     (int)i, (double)r->out[i], t->out[i], bound * t->abs_out[i]);
        if (s->act_out == BL_BF16)
            assert_true(bf16(r->out[i]) == r->out[i]);
    }
    for (uint64_t i = 0; i < rows * r->row; i++) {
        const uint64_t c = i % r->row;
        if ((c >= s->heads * s->dim && c < r->at_k) ||
            (c >= r->at_k + s->kv_heads * s->dim && c < r->at_v) ||
            c >= r->at_v + s->kv_heads * s->dim) {
            assert_true(r->dqkv[i] == 12345.0f);
            continue;
        }
        if (!(fabs((double)r->dqkv[i] - t->dqkv[i]) <= bound * t->abs_dqkv[i] + 1e-30))
            fail_msg("%s: T %d D %d: row %d, d%c: %.9g, not %.9g (%.2g)", isa, (int)s->time,
                     (int)s->dim, (int)(i / r->row),
                     c < r->at_k   ? 'q'
                     : c < r->at_v ? 'k'
                                   : 'v',
                     (double)r->dqkv[i], t->dqkv[i], bound * t->abs_dqkv[i]);
        if (s->act == BL_BF16)
            assert_true(bf16(r->dqkv[i]) == r->dqkv[i]);
    }
}

#define F32 BL_FP32, BL_FP32
#define B16 BL_BF16, BL_BF16

static const struct shape shapes[] = {
    {1, 1, 1, 1, 64, 0, 0, F32},
    {2, 63, 3, 3, 16, 0, 0, F32},
    {1, 64, 2, 2, 64, 0, 0, F32},
    {2, 65, 4, 2, 64, 5, 0, F32},
    {1, 1000, 2, 1, 32, 0, 0, F32},
    {1, 130, 6, 2, 80, 3, 2.0, F32},
    {2, 7, 2, 2, 17, 1, 0, F32},
    {1, 100, 2, 1, 33, 0, 0.5, F32},
    {1, 70, 1, 1, 256, 0, 0, F32},
    {1, 129, 2, 2, 128, 8, 0, F32},
    {1, 90, 3, 1, 1, 0, 0, F32},
    {1, 37, 2, 2, 3, 2, 0, F32},
    {1, 6, 1, 1, 100, 0, 50.0, F32},
    {3, 65, 4, 2, 64, 0, 0, B16},
    {1, 200, 2, 1, 24, 4, 3.0, B16},
    {1, 1, 2, 2, 16, 0, 0, B16},
    {1, 80, 2, 2, 40, 0, 0, BL_FP32, BL_BF16},
};

static void values_and_gradients(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < sizeof shapes / sizeof *shapes; c++) {
        struct run r;
        struct twin t;
        state = c + 1;
        make(&r, shapes[c], 1.5);
        twin_make(&t, &r);
        twin_apply(&t, &r);
        for (int i = 0; i < 3; i++) {
            struct bl_backend *b = backend(2, isas[i]);
            if (!b)
                continue;
            apply(b, &r);
            compare(isas[i], &r, &t);
            bl_backend_destroy(b);
        }
        twin_drop(&t);
        drop(&r);
    }
}

/* The twin's own gradients against central differences of its loss sum(dout * out). Step 1e-5:
 * truncation ~1e-10, cancellation ~1e-16 / 1e-5 = 1e-11 of a loss of order 1 to 10. */
static void twin_gradients(void **unused)
{
    const struct shape s = {1, 5, 4, 2, 3, 1, 1.5, F32};
    struct run r;
    struct twin t, moved;
    (void)unused;

    state = 99;
    make(&r, s, 1.5);
    twin_make(&t, &r);
    twin_apply(&t, &r);
    for (uint64_t i = 0; i < s.time * r.row; i++) {
        double loss[2] = {0.0, 0.0};
        for (int side = 0; side < 2; side++) {
            twin_make(&moved, &r);
            moved.qkv[i] += side ? 1e-5 : -1e-5;
            twin_apply(&moved, &r);
            for (uint64_t n = 0; n < s.time * r.out_row; n++)
                loss[side] += moved.dout[n] * moved.out[n];
            twin_drop(&moved);
        }
        assert_true(fabs((loss[1] - loss[0]) / 2e-5 - t.dqkv[i]) < 1e-8);
    }
    twin_drop(&t);
    drop(&r);
}

/* The number of threads decides how the backward pass is cut (the two key/value heads of the third
 * shape are whole tasks for 1 and 2 threads, and are split for 5); the bits stay. */
static void threads_do_not_matter(void **unused)
{
    static const struct shape some[] = {{2, 150, 6, 2, 40, 3, 0, F32},
                                        {1, 257, 3, 3, 64, 0, 5.0, B16},
                                        {1, 331, 4, 2, 24, 1, 0, F32}};
    static const uint32_t threads[] = {1, 2, 5};
    (void)unused;
    for (int c = 0; c < 3; c++)
        for (int i = 0; i < 3; i++) {
            struct run r[3];
            for (uint32_t n = 0; n < 3; n++) {
                struct bl_backend *b = backend(threads[n], isas[i]);
                state = 7;
                make(&r[n], some[c], 1.5);
                if (b) {
                    apply(b, &r[n]);
                    apply(b, &r[n]); /* nothing is left over from the first time */
                    bl_backend_destroy(b);
                }
            }
            const uint64_t rows = some[c].batch * some[c].time;
            for (int n = 1; n < 3; n++) {
                assert_memory_equal(r[0].out, r[n].out, rows * r[0].out_row * sizeof(float));
                assert_memory_equal(r[0].dqkv, r[n].dqkv, rows * r[0].row * sizeof(float));
                assert_memory_equal(r[0].lse, r[n].lse, rows * some[c].heads * sizeof(float));
            }
            for (int n = 0; n < 3; n++)
                drop(&r[n]);
        }
}

/* Tokens from `cut` on cannot be felt before it, whatever they hold. */
static void later_tokens_are_not_seen(void **unused)
{
    const struct shape s = {1, 140, 2, 1, 20, 0, 0, F32};
    static const uint64_t cuts[] = {1, 40, 63, 64, 65, 128, 139};
    struct bl_backend *b = backend(1, "auto");
    (void)unused;

    assert_non_null(b);
    for (size_t c = 0; c < sizeof cuts / sizeof *cuts; c++) {
        struct run plain, changed;
        state = 5;
        make(&plain, s, 1.5);
        state = 5;
        make(&changed, s, 1.5);
        for (uint64_t i = cuts[c] * plain.row; i < s.time * plain.row; i++)
            changed.qkv[i] = (float)(100.0 * uniform());
        apply(b, &plain);
        apply(b, &changed);
        assert_memory_equal(plain.out, changed.out, cuts[c] * plain.out_row * sizeof(float));
        assert_memory_not_equal(plain.out, changed.out, s.time * plain.out_row * sizeof(float));
        drop(&plain);
        drop(&changed);
    }
    bl_backend_destroy(b);
}

/* Scores of +-1e4 (fp32 exp overflows at 88): the softmax is one-hot at the latest +, the result
 * its value. All numbers are exact. */
static void large_scores(void **unused)
{
    const struct shape s = {1, 200, 1, 1, 16, 0, 0, F32};
    (void)unused;
    for (int i = 0; i < 3; i++) {
        struct bl_backend *b = backend(1, isas[i]);
        struct run r;
        if (!b)
            continue;
        state = 3;
        make(&r, s, 1.0);
        r.scale = 0.25f;
        for (uint64_t t = 0; t < s.time; t++)
            for (uint64_t d = 0; d < s.dim; d++) {
                r.qkv[t * r.row + d] = d == 0 ? 200.0f : 0.0f;
                r.qkv[t * r.row + r.at_k + d] = d == 0 ? (float)t : 0.0f; /* 50 t */
                r.qkv[t * r.row + r.at_v + d] = (float)(t * 16 + d);
            }
        apply(b, &r);
        for (uint64_t t = 0; t < s.time; t++) {
            assert_true(r.lse[t] == 50.0f * (float)t);
            for (uint64_t d = 0; d < s.dim; d++)
                assert_true(r.out[t * r.out_row + d] == (float)(t * 16 + d));
        }
        for (uint64_t n = 0; n < s.time * r.row; n++)
            assert_true(isfinite(r.dqkv[n]));
        drop(&r);
        bl_backend_destroy(b);
    }
}

/* A NaN query spoils its own row and is seen there; other rows are untouched. */
static void nan_is_not_hidden(void **unused)
{
    const struct shape s = {1, 130, 1, 1, 16, 0, 0, F32};
    static const uint64_t places[] = {0, 70, 129};
    (void)unused;
    for (int i = 0; i < 3; i++)
        for (int c = 0; c < 3; c++) {
            struct bl_backend *b = backend(1, isas[i]);
            struct run r;
            if (!b)
                continue;
            state = 3;
            make(&r, s, 1.0);
            r.qkv[places[c] * r.row + 5] = NAN;
            apply(b, &r);
            for (uint64_t t = 0; t < s.time; t++) {
                assert_int_equal(isnan(r.lse[t]) != 0, t == places[c]);
                assert_int_equal(isnan(r.out[t * r.out_row]) != 0, t == places[c]);
                assert_int_equal(isnan(r.dqkv[t * r.row]) != 0, t == places[c]);
            }
            drop(&r);
            bl_backend_destroy(b);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(twin_gradients),        cmocka_unit_test(values_and_gradients),
        cmocka_unit_test(threads_do_not_matter), cmocka_unit_test(later_tokens_are_not_seen),
        cmocka_unit_test(large_scores),          cmocka_unit_test(nan_is_not_hidden),
    };
    unsetenv("BALLAST_ISA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
