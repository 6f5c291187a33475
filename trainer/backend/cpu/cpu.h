/* Inside of the CPU backend: the thread pool, the GEMM call, and how one source becomes three
 * instruction sets.
 *
 * Every op file in this folder (not pool.c, gemm.c, select.c) is compiled once per instruction set
 * with BL_ISA = scalar | avx2 | avx512 and the compiler flags that go with it; BL_CPU(name) gives
 * each copy its own symbols, and ops.c of each copy fills bl_cpu_ops_<isa>. select.c picks one at
 * run time. Vector code uses the compiler's vector types of BL_LANES floats (vector.h), so that one
 * source serves gcc and clang and every width; fused multiply-adds are written explicitly
 * (-ffp-contract=off everywhere).
 */
#ifndef BL_BACKEND_CPU_H
#define BL_BACKEND_CPU_H

#include "backend/backend.h"

#ifdef BL_ISA
#define BL_CPU_JOIN2(a, b) a##_##b
#define BL_CPU_JOIN(a, b)  BL_CPU_JOIN2(a, b)
#define BL_CPU(name)       BL_CPU_JOIN(bl_cpu_##name, BL_ISA)
#endif

struct bl_pool;

struct bl_rope_table; /* rope.h */

struct bl_cpu { /* bl_backend.state */
    struct bl_pool *pool;
    char isa[16];
    struct bl_rope_table *tables; /* rope angles, made on first use */
};

/* pool.c: fixed threads, tasks handed out by one atomic counter, a call returns when all are done.
 * Not reentrant: body must not start another parallel loop (a nested call runs in the caller). */
unsigned bl_pool_wanted(unsigned threads); /* 0: one for each processor */
int bl_pool_make(unsigned threads, struct bl_pool **out, struct bl_error *err);
void bl_pool_free(struct bl_pool *p);
unsigned bl_pool_threads(const struct bl_pool *p);
void bl_pool_run(struct bl_pool *p, uint64_t n, void (*body)(void *argument, uint64_t i),
                 void *argument);
/* Scratch of the calling pool thread, at least `bytes`, 64-byte aligned, contents undefined; grows
 * when needed and is kept (no allocation after the first step). Running out of memory here ends the
 * process with a log line: tasks cannot fail. */
void *bl_pool_scratch(struct bl_pool *p, uint64_t bytes);
/* A second such buffer, for the caller of bl_pool_run to keep its tasks' results in: a task that
 * runs in the caller may move what bl_pool_scratch gave. Same lifetime rules. */
void *bl_pool_results(struct bl_pool *p, uint64_t bytes);
/* Logs that `bytes` could not be had and ends the process. */
_Noreturn void bl_pool_no_memory(uint64_t bytes);

/* gemm.c: C (m, n) = alpha op(A) op(B) + beta C, row-major, single-threaded library call from the
 * calling thread. trans_x: 'N' or 'T'. */
void bl_cpu_gemm(char trans_a, char trans_b, uint64_t m, uint64_t n, uint64_t k, float alpha,
                 const float *a, uint64_t lda, const float *b, uint64_t ldb, float beta, float *c,
                 uint64_t ldc);
/* "OpenBLAS 0.3.21 (Zen)", written to buffer (of at least 64 bytes). */
const char *bl_cpu_gemm_name(char *buffer);
/* Takes what the library needs for so many threads; compares it with a plain product. */
int bl_cpu_gemm_check(unsigned threads, struct bl_error *err);

static inline struct bl_pool *bl_cpu_pool(const struct bl_backend *b)
{
    return ((const struct bl_cpu *)b->state)->pool;
}

#endif
