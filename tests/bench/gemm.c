/* What the bit promise costs in the GEMMs: our fixed tiles on our pool against one call of the
 * library with its own threads, which cuts by thread count. Same shapes, A B A B, medians.
 *
 *     make tests/bench/gemm && tests/bench/gemm [THREADS]
 */
#include <stdio.h>
#include <stdlib.h>

#include <cblas.h>

#include "backend/backend.h"
#include "base/clock.h"
#include "base/memory.h"

#define ROUNDS 9

void openblas_set_num_threads(int threads);

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v)
{
    qsort(v, ROUNDS, sizeof *v, by_value);
    return v[ROUNDS / 2];
}

/* Forward, dx and dw of one layer: rows R, in K, out N. */
static void measure(struct bl_backend *b, int threads, uint64_t r, uint64_t k, uint64_t n)
{
    float *x = bl_alloc(r * k, sizeof *x), *w = bl_alloc(n * k, sizeof *w);
    float *y = bl_alloc(r * n, sizeof *y), *dx = bl_alloc(r * k, sizeof *dx);
    float *dw = bl_alloc(n * k, sizeof *dw);
    double ours[ROUNDS], library[ROUNDS], flops = 6.0 * (double)r * (double)k * (double)n;
    if (x == NULL || w == NULL || y == NULL || dx == NULL || dw == NULL)
        return;
    for (uint64_t i = 0; i < r * k; i++)
        x[i] = (float)(i % 17) * 0.1f;
    for (uint64_t i = 0; i < n * k; i++)
        w[i] = (float)(i % 13) * 0.1f;
    int m = (int)r, in = (int)k, out = (int)n;
    for (int round = -1; round < ROUNDS; round++) {
        double t0 = bl_clock();
        openblas_set_num_threads(1);
        b->ops->linear(b,
                       &(struct bl_linear){
                           .rows = r, .in = k, .out = n, .act = BL_FP32, .x = x, .w = w, .y = y});
        b->ops->linear_grad(b, &(struct bl_linear_grad){.rows = r,
                                                        .in = k,
                                                        .out = n,
                                                        .act = BL_FP32,
                                                        .dy = y,
                                                        .x = x,
                                                        .w = w,
                                                        .dx = dx,
                                                        .dw = dw});
        double t1 = bl_clock();
        openblas_set_num_threads(threads);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, out, in, 1, x, in, w, in, 0, y,
                    out);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, in, out, 1, y, out, w, in, 0, dx,
                    in);
        cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, out, in, m, 1, y, out, x, in, 0, dw,
                    in);
        double t2 = bl_clock();
        if (round >= 0) {
            ours[round] = t1 - t0;
            library[round] = t2 - t1;
        }
    }
    double a = median(ours), c = median(library);
    printf("%6d %6d %6d %12.1f %12.1f %8.2f\n", m, in, out, flops / a * 1e-9, flops / c * 1e-9,
           c / a);
    bl_free(x);
    bl_free(w);
    bl_free(y);
    bl_free(dx);
    bl_free(dw);
}

int main(int argc, char **argv)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_backend *b;
    int threads = argc > 1 ? atoi(argv[1]) : 2;
    if (threads < 1 || bl_backend_cpu((uint32_t)threads, "auto", &b, &err) < 0) {
        fprintf(stderr, "gemm: %s\n", threads < 1 ? "usage: gemm [THREADS]" : err.text);
        return 1;
    }
    printf("# %s\n# forward + dx + dw, GFLOP/s, medians of %d\n", b->description, ROUNDS);
    printf("%6s %6s %6s %12s %12s %8s\n", "rows", "in", "out", "ours", "library", "ratio");
    measure(b, threads, 2048, 384, 1152);
    measure(b, threads, 2048, 1536, 384);
    measure(b, threads, 256, 768, 2304);
    measure(b, threads, 256, 768, 50304);
    measure(b, threads, 1024, 768, 3072);
    measure(b, threads, 1024, 3072, 768);
    bl_backend_destroy(b);
    return 0;
}
