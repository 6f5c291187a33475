/* Which BLAS: single-threaded library calls on fixed tiles, several threads at once, as the CPU
 * backend makes them. y = x w^T (NT), dx (NN), dw (TN) in GFLOP/s, best of four.
 *
 *     make tests/bench/blas && tests/bench/blas LIBRARY.so [THREADS]
 *
 * LIBRARY has cblas_sgemm (OpenBLAS, BLIS) or dnnl_sgemm (oneDNN); it is loaded, not linked. */
#include <dlfcn.h>
#include <omp.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "backend/cpu/cpu.h"
#include "base/clock.h"
#include "base/memory.h"

typedef void cblas_f(int, int, int, int, int, int, float, const float *, int, const float *, int,
                     float, float *, int);
typedef int dnnl_f(char, char, int64_t, int64_t, int64_t, float, const float *, int64_t,
                   const float *, int64_t, float, float *, int64_t);

#define TILE_M 256
#define TILE_N 512

struct product {
    cblas_f *cblas;
    dnnl_f *dnnl;
    int trans_a, trans_b, m, n, k, lda, ldb;
    const float *a, *b;
    float *c;
};

static void tile(void *argument, uint64_t index)
{
    const struct product *p = argument;
    int across = (p->n + TILE_N - 1) / TILE_N;
    int row = (int)index / across * TILE_M, column = (int)index % across * TILE_N;
    int m = p->m - row < TILE_M ? p->m - row : TILE_M;
    int n = p->n - column < TILE_N ? p->n - column : TILE_N;
    const float *a = p->a + (p->trans_a ? (size_t)row : (size_t)row * (size_t)p->lda);
    const float *b = p->b + (p->trans_b ? (size_t)column * (size_t)p->ldb : (size_t)column);
    float *c = p->c + (size_t)row * (size_t)p->n + (size_t)column;
    if (p->dnnl != NULL) {
        omp_set_num_threads(1); /* of this thread's calls only */
        p->dnnl(p->trans_a ? 'T' : 'N', p->trans_b ? 'T' : 'N', m, n, p->k, 1, a, p->lda, b, p->ldb,
                0, c, p->n);
    } else {
        p->cblas(101, p->trans_a ? 112 : 111, p->trans_b ? 112 : 111, m, n, p->k, 1, a, p->lda, b,
                 p->ldb, 0, c, p->n);
    }
}

static double rate(struct bl_pool *pool, struct product *p)
{
    uint64_t tiles =
        (uint64_t)((p->m + TILE_M - 1) / TILE_M) * (uint64_t)((p->n + TILE_N - 1) / TILE_N);
    double best = 1e30;
    for (int round = 0; round < 4; round++) {
        double start = bl_clock();
        bl_pool_run(pool, tiles, tile, p);
        double seconds = bl_clock() - start;
        best = seconds < best ? seconds : best;
    }
    return 2.0 * p->m * p->n * p->k / best * 1e-9;
}

int main(int argc, char **argv)
{
    static const int shapes[][3] = {
        {2048, 1152, 384}, {1024, 3072, 768}, {768, 3072, 1024}, {256, 50304, 768}};
    struct bl_error err = BL_ERROR_INIT;
    struct product p = {0};
    struct bl_pool *pool;
    void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
    if (library == NULL) {
        fprintf(stderr, "blas: %s\n", argc > 1 ? dlerror() : "usage: blas LIBRARY.so [THREADS]");
        return 2;
    }
    *(void **)&p.dnnl = dlsym(library, "dnnl_sgemm");
    *(void **)&p.cblas = dlsym(library, "cblas_sgemm");
    void (*single)(int);
    *(void **)&single = dlsym(library, "openblas_set_num_threads");
    if (single != NULL)
        single(1);
    size_t floats = (size_t)50304 * 1024;
    float *x = bl_alloc(floats, sizeof *x), *w = bl_alloc(floats, sizeof *w);
    p.c = bl_alloc(floats, sizeof *p.c);
    if ((p.dnnl == NULL && p.cblas == NULL) || x == NULL || w == NULL || p.c == NULL ||
        bl_pool_make(argc > 2 ? (unsigned)atoi(argv[2]) : 2, &pool, &err) < 0) {
        fprintf(stderr, "blas: no sgemm in the library, no memory or no threads\n");
        return 1;
    }
    for (size_t i = 0; i < floats; i++) {
        x[i] = (float)(i % 17) * 0.1f;
        w[i] = (float)(i % 13) * 0.1f;
    }
    p.a = x;
    p.b = w;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        p.m = shapes[s][0];
        p.n = shapes[s][1];
        p.k = shapes[s][2];
        printf("%6d x %6d x %5d ", p.m, p.n, p.k);
        for (int mode = 0; mode < 3; mode++) { /* NT, NN, TN */
            p.trans_a = mode == 2;
            p.trans_b = mode == 0;
            p.lda = p.trans_a ? p.m : p.k;
            p.ldb = p.trans_b ? p.k : p.n;
            printf(" %5.0f", rate(pool, &p));
        }
        printf("\n");
    }
    bl_pool_free(pool);
    return 0;
}
