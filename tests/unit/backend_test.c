/* The op table on the CPU: every op but attention and the logits (which have their own tests).
 *
 * A case builds inputs from fixed random numbers, runs the op and records its outputs with the
 * fp64 reference and a derived bound. Then:
 *   - each output lies between the roundings of reference - bound and reference + bound. For fp32
 *     outputs that is |error| <= bound; for bf16 it says that the result is the rounding of some
 *     fp32 result within the bound: one bf16 step off near a tie, exact elsewhere.
 *   - 2 and 3 threads give the same bits as 1.
 *   - where the header promises it, every instruction set gives the bits of the scalar copy.
 * The references' backward formulas are checked by central differences of their forwards.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "backend_cases.h"
#include "backend_ref.h"
#include "base/random.h"

static const char *const isas[] = {"scalar", "avx2", "avx512"};

static struct bl_backend *backend(uint32_t threads, const char *isa)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_backend *b = NULL;
    if (bl_backend_cpu(threads, isa, &b, &err) == 0)
        return b;
    if (!strstr(err.text, "does not have it"))
        fail_msg("%s", err.text);
    return NULL;
}

#define THREADS 3

/* One case on one instruction set with 1, 2, 3 threads; *first keeps the record of 1. */
static void all_threads(const struct op_case *c, struct bl_backend *const b[THREADS],
                        const char *isa, struct record *first)
{
    for (unsigned t = 0; t < THREADS; t++) {
        struct record r = {.b = b[t]};
        c->run(&r, &c->v);
        if (t == 0) {
            *first = r;
            continue;
        }
        assert_int_equal(r.count, first->count);
        if (r.count > 0 && memcmp(r.values, first->values, r.count * sizeof(float)) != 0)
            fail_msg("%s: %s: %u threads give other bits than 1", isa, r.what, t + 1);
        record_finish(&r);
    }
}

static void test_ops(void **state)
{
    (void)state;
    struct bl_backend *b[3][THREADS] = {{NULL}};

    for (int k = 0; k < 3; k++) {
        for (uint32_t t = 0; t < THREADS; t++)
            b[k][t] = backend(t + 1, isas[k]);
        printf("%s: %s\n", isas[k], b[k][0] ? "checked" : "this processor lacks it, not checked");
    }
    for (unsigned c = 0; c < op_case_count; c++) {
        struct record scalar;
        all_threads(&op_cases[c], b[0], isas[0], &scalar);
        for (int k = 1; k < 3; k++) {
            struct record r;
            if (!b[k][0])
                continue;
            all_threads(&op_cases[c], b[k], isas[k], &r);
            assert_int_equal(r.count, scalar.count);
            if (r.exact && r.count > 0 &&
                memcmp(scalar.values, r.values, r.count * sizeof(float)) != 0)
                fail_msg("%s: other bits on %s than on scalar", r.what, isas[k]);
            record_finish(&r);
        }
        record_finish(&scalar);
    }
    for (int k = 0; k < 3; k++)
        for (int t = 0; t < THREADS; t++)
            bl_backend_destroy(b[k][t]);
}

/* ---- finite differences of the fp64 twins ---------------------------------------------------- */

/* Central differences with h = 1e-5 err by h^2 f'''/6 ~ 1e-11 and 1e-16 |f| / h ~ 1e-10 here. */
#define DIFFERENCE 1e-7

enum { ROWS = 3, IN = 5, OUT = 4 };

struct twin {
    double x[ROWS * IN], w[OUT * IN], bias[OUT], y[ROWS * OUT], dy[ROWS * OUT];
    double weight[IN], shift[IN], z[ROWS * IN], dz[ROWS * IN];
    int layer;
};

static void fill(double *x, uint64_t n, uint64_t stream)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = bl_random_normal(11, stream, i);
}

static double weighted(uint64_t n, const double *y, const double *dy)
{
    double sum = 0.0;
    for (uint64_t i = 0; i < n; i++)
        sum += y[i] * dy[i];
    return sum;
}

static double linear_loss(void *context)
{
    struct twin *t = context;
    ref_linear(ROWS, IN, OUT, t->x, t->w, t->bias, NULL, t->y, NULL);
    return weighted(ROWS * OUT, t->y, t->dy);
}

static double norm_loss(void *context)
{
    struct twin *t = context;
    ref_norm(ROWS, IN, t->layer, 0, 1e-5, t->x, t->weight, t->shift, t->z, NULL, NULL);
    return weighted(ROWS * IN, t->z, t->dz);
}

static double gelu_loss(void *context)
{
    struct twin *t = context;
    double sum = 0.0;
    for (int i = 0; i < ROWS * IN; i++)
        sum += ref_gelu(t->x[i]) * t->dz[i];
    return sum;
}

static double silu_loss(void *context)
{
    struct twin *t = context;
    double sum = 0.0;
    for (int i = 0; i < ROWS * IN; i++)
        sum += ref_silu(t->x[i]) * t->dz[i];
    return sum;
}

static void test_differences(void **state)
{
    (void)state;
    struct twin t = {.layer = 0};
    double dx[ROWS * IN], dw[OUT * IN], db[OUT], size[64], gain[IN], shift[IN], more[IN], less[IN];

    fill(t.x, ROWS * IN, 1);
    fill(t.w, OUT * IN, 2);
    fill(t.bias, OUT, 3);
    fill(t.dy, ROWS * OUT, 4);
    fill(t.weight, IN, 5);
    fill(t.shift, IN, 6);
    fill(t.dz, ROWS * IN, 7);
    ref_linear_grad(ROWS, IN, OUT, t.dy, t.x, t.w, dx, NULL, dw, NULL, db, NULL);
    assert_true(ref_difference(ROWS * IN, t.x, linear_loss, &t, dx) < DIFFERENCE);
    assert_true(ref_difference(OUT * IN, t.w, linear_loss, &t, dw) < DIFFERENCE);
    assert_true(ref_difference(OUT, t.bias, linear_loss, &t, db) < DIFFERENCE);
    dx[3] += 1e-5; /* and the check can fail */
    assert_false(ref_difference(ROWS * IN, t.x, linear_loss, &t, dx) < DIFFERENCE);

    for (t.layer = 0; t.layer < 2; t.layer++) {
        ref_norm_grad(ROWS, IN, t.layer, 1e-5, t.dz, t.x, t.weight, dx, size, gain, more, shift,
                      less);
        assert_true(ref_difference(ROWS * IN, t.x, norm_loss, &t, dx) < DIFFERENCE);
        assert_true(ref_difference(IN, t.weight, norm_loss, &t, gain) < DIFFERENCE);
        assert_true(ref_difference(IN, t.shift, norm_loss, &t, shift) < DIFFERENCE);
    }
    for (int i = 0; i < ROWS * IN; i++)
        dx[i] = t.dz[i] * ref_gelu_slope(t.x[i]);
    assert_true(ref_difference(ROWS * IN, t.x, gelu_loss, &t, dx) < DIFFERENCE);
    for (int i = 0; i < ROWS * IN; i++)
        dx[i] = t.dz[i] * ref_silu_slope(t.x[i]);
    assert_true(ref_difference(ROWS * IN, t.x, silu_loss, &t, dx) < DIFFERENCE);

    /* A turn is orthogonal: its backward is the turn back. */
    double turned[8], back[8];
    fill(turned, 8, 8);
    memcpy(back, turned, sizeof back);
    ref_rope(8, 5, 10000.0, 1, back);
    assert_true(fabs(back[0] - turned[0]) > 0.1);
    ref_rope(8, 5, 10000.0, -1, back);
    for (int i = 0; i < 8; i++)
        assert_true(fabs(back[i] - turned[i]) < 1e-14);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* The residual added in place gives the bits of the residual added from elsewhere. */
static void test_residual_in_place(void **state)
{
    (void)state;
    struct bl_backend *b = backend(2, "auto");
    enum { R = 130, K = 300, N = 200 };
    float *x = b->ops->allocate(b, R * K * 4), *w = b->ops->allocate(b, N * K * 4);
    float *y = b->ops->allocate(b, R * N * 4), *z = b->ops->allocate(b, R * N * 4);
    struct bl_linear a = {R, K, N, BL_FP32, x, w, NULL, z, y};

    for (uint64_t i = 0; i < R * K; i++)
        x[i] = (float)bl_random_normal(1, 1, i);
    for (uint64_t i = 0; i < N * K; i++)
        w[i] = (float)bl_random_normal(1, 2, i);
    for (uint64_t i = 0; i < R * N; i++)
        z[i] = (float)bl_random_normal(1, 3, i);
    b->ops->linear(b, &a);
    a.y = z;
    b->ops->linear(b, &a);
    assert_memory_equal(y, z, R * N * 4);
    b->ops->release(b, x);
    b->ops->release(b, w);
    b->ops->release(b, y);
    b->ops->release(b, z);
    bl_backend_destroy(b);
}

/* NaN and inf come out as such: a broken number is never hidden. */
static void test_non_finite(void **state)
{
    (void)state;
    struct bl_backend *b = backend(2, "auto");
    float *x = b->ops->allocate(b, 20 * 4), *y = b->ops->allocate(b, 20 * 4);
    for (uint32_t act = BL_FP32; act <= BL_BF16; act++) {
        for (int at = 0; at < 20; at++) {
            for (int i = 0; i < 20; i++)
                x[i] = i == at ? NAN : 1.0f;
            b->ops->gelu(b, 20, x, y, act);
            for (int i = 0; i < 20; i++)
                assert_int_equal(isnan(y[i]) != 0, i == at);
            b->ops->round(b, 20, x, y, act);
            assert_true(isnan(y[at]));
            assert_true(isnan(b->ops->sum_squares(b, 20, x)));
            struct bl_norm n = {.rows = 2,
                                .width = 10,
                                .groups = 1,
                                .act = act,
                                .arithmetic = BL_FP32,
                                .eps = 1e-5f,
                                .x = x,
                                .weight = x,
                                .y = y,
                                .rstd = y};
            float rstd[2], weight[10], out[20];
            for (int i = 0; i < 10; i++)
                weight[i] = 1.0f;
            n.weight = weight;
            n.rstd = rstd;
            n.y = out;
            b->ops->norm(b, &n);
            for (int i = 0; i < 20; i++)
                assert_int_equal(isnan(out[i]) != 0, i / 10 == at / 10);
        }
    }
    b->ops->release(b, x);
    b->ops->release(b, y);
    bl_backend_destroy(b);
}

static void test_memory(void **state)
{
    (void)state;
    struct bl_backend *b = backend(1, "auto");
    float host[5] = {1, 2, 3, 4, 5}, back[5] = {0};
    float *p = b->ops->allocate(b, sizeof host);
    assert_int_equal((uintptr_t)p % 64, 0);
    for (int i = 0; i < 5; i++)
        assert_true(p[i] == 0.0f);
    assert_int_equal(b->ops->element_size(b, BL_FP32), 4);
    assert_int_equal(b->ops->element_size(b, BL_BF16), 4);
    assert_int_equal(b->ops->element_size(b, BL_FP64), 8);
    b->ops->upload(b, p, host, sizeof host);
    b->ops->download(b, back, p, sizeof back);
    assert_memory_equal(host, back, sizeof host);
    b->ops->zero(b, p, 8);
    assert_true(p[0] == 0.0f && p[1] == 0.0f && p[2] == 3.0f);
    b->ops->release(b, p);
    b->ops->release(b, NULL);
    bl_backend_destroy(b);
    bl_backend_destroy(NULL);
}

static void count(void *argument, uint64_t i)
{
    ((unsigned char *)argument)[i]++;
}

static void test_make(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_backend *b = NULL;
    unsigned char seen[100] = {0};

    assert_int_equal(bl_backend_cpu(2, "sse9", &b, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_non_null(strstr(err.text, "sse9"));
    assert_null(b);

    setenv("BALLAST_ISA", "scalar", 1);
    assert_int_equal(bl_backend_cpu(2, "auto", &b, &err), 0);
    assert_int_equal(b->device, BL_DEVICE_CPU);
    assert_non_null(strstr(b->description, "cpu: 2 threads, scalar, OpenBLAS"));
    printf("%s\n", b->description);
    b->ops->parallel_for(b, 100, count, seen);
    for (int i = 0; i < 100; i++)
        assert_int_equal(seen[i], 1);
    bl_backend_destroy(b);
    b = NULL;

    setenv("BALLAST_ISA", "mmx", 1);
    assert_int_equal(bl_backend_cpu(2, "auto", &b, &err), -1);
    assert_non_null(strstr(err.text, "BALLAST_ISA"));
    unsetenv("BALLAST_ISA");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make),        cmocka_unit_test(test_memory),
        cmocka_unit_test(test_differences), cmocka_unit_test(test_ops),
        cmocka_unit_test(test_non_finite),  cmocka_unit_test(test_residual_in_place),
    };
    unsetenv("BALLAST_ISA"); /* the table goes through all of them itself */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
