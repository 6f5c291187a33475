/* Softcap and row scale against fp64, on every instruction set of this processor. */
#include "logits_support.h"

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
        cmocka_unit_test(softcap),
        cmocka_unit_test(row_scale),
        cmocka_unit_test(row_scale_under_an_offset),
    };
    unsetenv("BALLAST_ISA");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
