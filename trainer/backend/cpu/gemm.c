/* The GEMM call: OpenBLAS, one thread per call. */
#include <sys/mman.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include <cblas.h>

#include "backend/cpu/cpu.h"
#include "base/memory.h"

void bl_cpu_gemm(char trans_a, char trans_b, uint64_t m, uint64_t n, uint64_t k, float alpha,
                 const float *a, uint64_t lda, const float *b, uint64_t ldb, float beta, float *c,
                 uint64_t ldc)
{
    if (m == 0 || n == 0)
        return;
    cblas_sgemm(CblasRowMajor, trans_a == 'T' ? CblasTrans : CblasNoTrans,
                trans_b == 'T' ? CblasTrans : CblasNoTrans, (blasint)m, (blasint)n, (blasint)k,
                alpha, a, (blasint)lda, b, (blasint)ldb, beta, c, (blasint)ldc);
}

const char *bl_cpu_gemm_name(char *buffer)
{
    /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
    const char *config = openblas_get_config(), *space = strchr(config, ' ');
    size_t n = space ? (size_t)(space + 1 - config) + strcspn(space + 1, " ") : strlen(config);

    snprintf(buffer, 64, "%.*s (%.20s)", n < 40 ? (int)n : 40, config, openblas_get_corename());
    return buffer;
}

/* Small numbers with few bits, from a fixed sequence: products and short sums are exact in fp64. */
static void fill(float *x, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005ull + 1442695040888963407ull;
        x[i] = (float)((int32_t)(seed >> 40) - (1 << 23)) * 0x1p-23f;
    }
}

struct shape {
    char ta, tb;
    uint64_t m, n, k;
    float alpha, beta;
};

/* Largest |error| over what rounding can explain; > 1 is wrong. work: m k + k n + 2 m n floats. */
static double compare(const struct shape *s, float *work)
{
    float *a = work, *b = a + s->m * s->k, *c = b + s->k * s->n, *c0 = c + s->m * s->n;
    uint64_t lda = s->ta == 'T' ? s->m : s->k, ldb = s->tb == 'T' ? s->k : s->n;
    double most = 0.0;

    fill(a, s->m * s->k, 1);
    fill(b, s->k * s->n, 2);
    fill(c, s->m * s->n, 3);
    memcpy(c0, c, s->m * s->n * sizeof *c);
    if (s->beta == 0.0f)
        for (uint64_t i = 0; i < s->m * s->n; i++)
            c[i] = NAN; /* beta 0 must not read it */
    bl_cpu_gemm(s->ta, s->tb, s->m, s->n, s->k, s->alpha, a, lda, b, ldb, s->beta, c, s->n);
    for (uint64_t i = 0; i < s->m; i++) {
        for (uint64_t j = 0; j < s->n; j++) {
            double sum = 0.0, size = 0.0, bound, d;
            for (uint64_t l = 0; l < s->k; l++) {
                double x = (double)(s->ta == 'T' ? a[l * lda + i] : a[i * lda + l]);
                double y = (double)(s->tb == 'T' ? b[j * ldb + l] : b[l * ldb + j]);
                sum += x * y;
                size += fabs(x * y);
            }
            sum = (double)s->alpha * sum + (double)s->beta * (double)c0[i * s->n + j];
            size = fabs((double)s->alpha) * size + fabs((double)c0[i * s->n + j]);
            /* Any order of k fp32 additions errs by at most k u sum |terms|, u = 2^-24. */
            bound = ((double)s->k + 4.0) * 0x1p-24 * size;
            d = fabs((double)c[i * s->n + j] - sum) / bound;
            if (!(d <= most))
                most = isnan(d) ? INFINITY : d;
        }
    }
    return most;
}

/* OpenBLAS takes a buffer of 128 MiB for each thread that computes, when more compute at once than
 * ever before, and tries for ever when it gets none. With too small a limit on address space
 * (ulimit -v) that would be a hang in some later step. So they are taken here, while the limit can
 * be looked at; OpenBLAS keeps what it gets back. */
static const uint64_t buffer_bytes = (uint64_t)136 << 20;
/* Asked for some 700, OpenBLAS 0.3.21 ends the process: with that many threads it does so only when
 * they really compute at the same time. */
static const unsigned most_buffers = 256;

/* Every OpenBLAS has them, no header of it does. */
extern void *blas_memory_alloc(int position) __attribute__((weak));
extern void blas_memory_free(void *buffer) __attribute__((weak));

static int take_buffers(unsigned threads, struct bl_error *err)
{
    uint64_t bytes = threads * buffer_bytes;
    void *room = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
         **taken;
    unsigned n = 0;

    if (room == MAP_FAILED)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "no address space for the working memory of OpenBLAS, 128 MiB for each "
                            "of %u thread%s; raise the limit (ulimit -v) or lower run.threads",
                            threads, threads == 1 ? "" : "s");
    munmap(room, bytes);
    if (!blas_memory_alloc || !blas_memory_free)
        return 0;
    threads = threads < most_buffers ? threads : most_buffers;
    taken = bl_alloc(threads, sizeof *taken);
    if (!taken)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the CPU backend");
    while (n < threads && (taken[n] = blas_memory_alloc(0)))
        n++;
    while (n > 0)
        blas_memory_free(taken[--n]);
    bl_free(taken);
    return 0;
}

int bl_cpu_gemm_check(unsigned threads, struct bl_error *err)
{
    static const struct shape shapes[] = {
        {'N', 'T', 37, 29, 41, 1.0f, 0.0f},   {'N', 'N', 37, 29, 41, 1.0f, 1.0f},
        {'T', 'N', 37, 29, 41, 1.0f, 1.0f},   {'N', 'T', 129, 65, 300, 1.0f, 1.0f},
        {'N', 'N', 129, 65, 300, 1.0f, 0.0f}, {'T', 'N', 129, 65, 300, 0.5f, 0.0f},
        {'N', 'T', 1, 17, 5, 1.0f, 0.0f},     {'T', 'N', 65, 1, 129, 1.0f, 1.0f},
    };
    const uint64_t room = 129 * 300 + 300 * 65 + 2 * 129 * 65;
    char name[64];
    float *work;
    int code = 0;

    if (take_buffers(threads, err) != 0)
        return -1;
    openblas_set_num_threads(1); /* parallelism is ours: one call per tile, from our threads */
    work = bl_alloc(room, sizeof *work);
    if (!work)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory to check the BLAS");
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes && code == 0; i++) {
        const struct shape *s = &shapes[i];
        double error = compare(s, work);
        if (!(error <= 1.0))
            code = bl_error_set(err, BL_EXIT_FAILED,
                                "BLAS gives wrong products here (%s): %c%c %llux%llux%llu is off "
                                "by %.3g times what rounding allows; try another OPENBLAS_CORETYPE "
                                "(such as Haswell) or another OpenBLAS",
                                bl_cpu_gemm_name(name), s->ta, s->tb, (unsigned long long)s->m,
                                (unsigned long long)s->n, (unsigned long long)s->k, error);
    }
    bl_free(work);
    return code;
}
