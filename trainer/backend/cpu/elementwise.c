/* Element-wise ops, and fp64 sums whose bits are the same on every instruction set.
 *
 * A block of 4096 elements is summed in 16 fp64 accumulators, element i into accumulator i % 16 in
 * index order, folded 8 + 8, 4 + 4, 2 + 2, 1 + 1; blocks are added in index order. A product of
 * two fp32 numbers is exact in fp64 (short of underflow), so that a fused multiply-add would not
 * differ; there is none here anyway (-ffp-contract=off).
 */
#include <string.h>

#include "backend/cpu/ops.h"
#include "backend/cpu/vector.h"

#define BLOCK    4096
#define PER_TASK 16 /* blocks of a task */
#define WAYS     16

enum job { ADD, ROUND };

struct task {
    enum job job;
    uint64_t n;
    const float *a, *c;
    float *y;
    int bf16;
};

BL_V_INLINE bl_vf element(enum job job, bl_vf a, bl_vf c, int bf16)
{
    return bl_v_round(job == ADD ? a + c : a, bf16);
}

/* Instantiated with constant job and bf16, so that the loop holds nothing else. c may be a. */
BL_V_INLINE void sweep(const struct task *t, uint64_t i, uint64_t end, enum job job, int bf16)
{
    for (; i + BL_LANES <= end; i += BL_LANES)
        bl_v_store(t->y + i, element(job, bl_v_load(t->a + i), bl_v_load(t->c + i), bf16));
    if (i < end)
        bl_v_store_n(
            t->y + i,
            element(job, bl_v_load_n(t->a + i, end - i), bl_v_load_n(t->c + i, end - i), bf16),
            end - i);
}

static void run_blocks(void *argument, uint64_t index)
{
    const struct task *t = argument;
    uint64_t size = (uint64_t)BLOCK * PER_TASK, i = index * size;
    uint64_t end = i + size < t->n ? i + size : t->n;

    if (t->job == ADD && t->bf16)
        sweep(t, i, end, ADD, 1);
    else if (t->job == ADD)
        sweep(t, i, end, ADD, 0);
    else if (t->bf16)
        sweep(t, i, end, ROUND, 1);
    else if (t->y != t->a)
        memcpy(t->y + i, t->a + i, (end - i) * sizeof *t->y);
}

static uint64_t tasks(uint64_t n)
{
    uint64_t size = (uint64_t)BLOCK * PER_TASK;
    return (n + size - 1) / size;
}

void BL_CPU(add)(struct bl_backend *b, uint64_t n, const void *a, const void *c, void *y,
                 uint32_t act)
{
    struct task t = {ADD, n, a, c, y, act == BL_BF16};
    bl_pool_run(bl_cpu_pool(b), tasks(n), run_blocks, &t);
}

void BL_CPU(round)(struct bl_backend *b, uint64_t n, const float *x, float *y, uint32_t dtype)
{
    struct task t = {ROUND, n, x, x, y, dtype == BL_BF16};
    bl_pool_run(bl_cpu_pool(b), tasks(n), run_blocks, &t);
}

void BL_CPU(accumulate)(struct bl_backend *b, uint64_t n, const float *x, float *sum,
                        uint32_t dtype)
{
    struct task t = {ADD, n, sum, x, sum, dtype == BL_BF16};
    bl_pool_run(bl_cpu_pool(b), tasks(n), run_blocks, &t);
}

struct sum_task {
    uint64_t n;
    const float *x, *y;
    double *sums; /* one per block */
};

typedef double ways __attribute__((vector_size(8 * WAYS)));
typedef float narrow __attribute__((vector_size(4 * WAYS)));

static double sum_block(const float *x, const float *y, uint64_t n)
{
    double s[WAYS];
    ways sum = {0};
    uint64_t i = 0;

    for (; i + WAYS <= n; i += WAYS) {
        narrow a, c;
        memcpy(&a, x + i, sizeof a);
        memcpy(&c, y + i, sizeof c);
        sum += __builtin_convertvector(a, ways) * __builtin_convertvector(c, ways);
    }
    memcpy(s, &sum, sizeof s);
    for (uint64_t j = 0; i + j < n; j++)
        s[j] += (double)x[i + j] * (double)y[i + j];
    for (int half = WAYS / 2; half > 0; half /= 2)
        for (int j = 0; j < half; j++)
            s[j] += s[j + half];
    return s[0];
}

static void sum_blocks(void *argument, uint64_t index)
{
    const struct sum_task *t = argument;
    uint64_t blocks = (t->n + BLOCK - 1) / BLOCK, end = (index + 1) * PER_TASK;

    end = end < blocks ? end : blocks;
    for (uint64_t k = index * PER_TASK; k < end; k++) {
        uint64_t i = k * BLOCK, left = t->n - i;
        t->sums[k] = sum_block(t->x + i, t->y + i, left < BLOCK ? left : BLOCK);
    }
}

double BL_CPU(dot)(struct bl_backend *b, uint64_t n, const float *x, const float *y)
{
    struct bl_pool *pool = bl_cpu_pool(b);
    uint64_t blocks = (n + BLOCK - 1) / BLOCK;
    struct sum_task t = {n, x, y, NULL};
    double sum = 0.0;

    if (n == 0)
        return 0.0;
    t.sums = bl_pool_results(pool, blocks * sizeof *t.sums);
    bl_pool_run(pool, tasks(n), sum_blocks, &t);
    for (uint64_t k = 0; k < blocks; k++)
        sum += t.sums[k];
    return sum;
}

void BL_CPU(block_squares)(struct bl_backend *b, uint64_t n, const float *x, double *sums)
{
    struct sum_task t = {n, x, x, sums};
    bl_pool_run(bl_cpu_pool(b), tasks(n), sum_blocks, &t);
}

double BL_CPU(sum_squares)(struct bl_backend *b, uint64_t n, const float *x)
{
    return BL_CPU(dot)(b, n, x, x);
}
