/* The thread that reads batches: the right sequences, each once, errors at their step, an end that
 * waits for nobody; and the held-out share of the training files. */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "base/error.h"
#include "data/data.h"
#include "data/prefetch.h"

enum { CONTEXT = 5, MOST = 4096 };

/* A source whose sequence i is i, i + 1, ...: it counts who reads what and fails where it is told.
 */
struct fake {
    atomic_uint reads[MOST];
    atomic_uint total;
    uint64_t broken; /* this sequence cannot be read */
    int masked;      /* every target is */
    atomic_int slow; /* reading waits while this is set */
    atomic_int signals_blocked;
};

static int32_t fake_read(void *self, uint64_t index, uint64_t vocab, int32_t *tokens,
                         int32_t *targets, struct bl_error *err)
{
    struct fake *f = self;
    sigset_t mask;
    (void)vocab;
    while (atomic_load(&f->slow))
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    pthread_sigmask(SIG_BLOCK, NULL, &mask);
    atomic_store(&f->signals_blocked, sigismember(&mask, SIGINT) && sigismember(&mask, SIGTERM) &&
                                          sigismember(&mask, SIGUSR1));
    atomic_fetch_add(&f->reads[index % MOST], 1);
    atomic_fetch_add(&f->total, 1);
    if (index == f->broken) {
        strcpy(err->text, "part-7.bin: byte 1234: broken");
        return -1;
    }
    for (int t = 0; t < CONTEXT; t++) {
        tokens[t] = (int32_t)index + t;
        targets[t] = f->masked || t == 0 ? -1 : (int32_t)index + t + 1;
    }
    return 0;
}

struct bench {
    struct fake fake;
    struct bl_plugin_instance source;
    struct bl_batches batches;
    struct bl_prefetch *p;
};

static struct bench *bench_make(uint64_t sequences, uint64_t available)
{
    struct bench *b = calloc(1, sizeof *b);
    assert_non_null(b);
    b->fake.broken = UINT64_MAX;
    b->source.ops.source.read = fake_read;
    b->source.self = &b->fake;
    b->batches = (struct bl_batches){.source = &b->source,
                                     .seed = 42,
                                     .context = CONTEXT,
                                     .vocab = 2 * MOST,
                                     .sequences = sequences,
                                     .available = available};
    return b;
}

static void bench_start(struct bench *b, uint64_t first, uint64_t last)
{
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(bl_prefetch_make(&b->batches, first, last, &b->p, &err), 0);
}

static void bench_free(struct bench *b)
{
    bl_prefetch_free(b->p);
    free(b);
}

static void check_batch(const struct bench *b, uint64_t step, const struct bl_batch *got)
{
    uint64_t n = b->batches.sequences;
    assert_int_equal(got->valid, n * (CONTEXT - 1));
    for (uint64_t i = 0; i < n; i++) {
        uint64_t index = bl_sample_index(42, b->batches.available, (step - 1) * n + i);
        for (uint64_t t = 0; t < CONTEXT; t++) {
            assert_int_equal(got->tokens[i * CONTEXT + t], index + t);
            assert_int_equal(got->targets[i * CONTEXT + t], t == 0 ? -1 : (int)(index + t + 1));
        }
    }
}

/* Three epochs and a bit, from the first step and from a later one. */
static void test_batches(void **state)
{
    (void)state;
    for (uint64_t first = 1; first <= 30; first += 29) {
        struct bench *b = bench_make(8, 100);
        struct bl_error err = BL_ERROR_INIT;
        struct bl_batch batch;
        bench_start(b, first, 40);
        for (uint64_t step = first; step <= 40; step++) {
            assert_int_equal(bl_prefetch_next(b->p, step, NULL, &batch, &err), 0);
            check_batch(b, step, &batch);
        }
        assert_int_equal(atomic_load(&b->fake.total), 8 * (40 - first + 1)); /* none beyond 40 */
        assert_true(atomic_load(&b->fake.signals_blocked));
        bench_free(b);
    }
}

/* What is read ahead is bounded: the batch in use and the next one. */
static void test_bounded(void **state)
{
    (void)state;
    struct bench *b = bench_make(4, 1000);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_batch batch;
    bench_start(b, 1, 100);
    assert_int_equal(bl_prefetch_next(b->p, 1, NULL, &batch, &err), 0);
    for (int i = 0; i < 200 && atomic_load(&b->fake.total) < 8; i++)
        nanosleep(&(struct timespec){0, 5000000}, NULL);
    nanosleep(&(struct timespec){0, 50000000}, NULL);
    assert_int_equal(atomic_load(&b->fake.total), 8);
    check_batch(b, 1, &batch); /* and the one in use was left alone */
    assert_int_equal(bl_prefetch_bytes(4, CONTEXT), 2 * 2 * 4 * CONTEXT * 4);
    bench_free(b);
}

static void test_error_belongs_to_its_step(void **state)
{
    (void)state;
    struct bench *b = bench_make(4, 1000);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_batch batch;
    b->fake.broken = bl_sample_index(42, 1000, 4 * 2 + 1); /* of step 3 */
    bench_start(b, 1, 100);
    assert_int_equal(bl_prefetch_next(b->p, 1, NULL, &batch, &err), 0);
    assert_int_equal(bl_prefetch_next(b->p, 2, NULL, &batch, &err), 0);
    nanosleep(&(struct timespec){0, 50000000}, NULL); /* the thread has met it by now */
    check_batch(b, 2, &batch);
    for (int again = 0; again < 2; again++) {
        assert_int_equal(bl_prefetch_next(b->p, 3, NULL, &batch, &err), -1);
        assert_int_equal(err.code, BL_EXIT_DATA);
        assert_string_equal(err.text, "batch of step 3: part-7.bin: byte 1234: broken");
    }
    bench_free(b);
}

static void test_all_masked(void **state)
{
    (void)state;
    struct bench *b = bench_make(4, 1000);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_batch batch;
    b->fake.masked = 1;
    bench_start(b, 6, 100);
    assert_int_equal(bl_prefetch_next(b->p, 6, NULL, &batch, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_non_null(strstr(err.text, "step 6: every target is masked"));
    bench_free(b);
}

static int always(void)
{
    return 1;
}

/* A source that hangs: a caller that was told to stop gets away, and can come back. */
static void test_stopped_while_waiting(void **state)
{
    (void)state;
    struct bench *b = bench_make(4, 1000);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_batch batch;
    atomic_store(&b->fake.slow, 1);
    bench_start(b, 1, 100);
    assert_int_equal(bl_prefetch_next(b->p, 1, always, &batch, &err), 1);
    atomic_store(&b->fake.slow, 0);
    assert_int_equal(bl_prefetch_next(b->p, 1, NULL, &batch, &err), 0);
    check_batch(b, 1, &batch);
    bench_free(b);
}

static void *let_go(void *slow)
{
    nanosleep(&(struct timespec){0, 20000000}, NULL);
    atomic_store((atomic_int *)slow, 0);
    return NULL;
}

/* Freed at once, in the middle of a batch (only the sequence at hand is waited for), at the end. */
static void test_end(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_batch batch;
    pthread_t other;
    for (int i = 0; i < 50; i++) {
        struct bench *b = bench_make(64, 1000);
        bench_start(b, 1, i % 2 ? 1 : 100);
        if (i % 3 == 0)
            assert_int_equal(bl_prefetch_next(b->p, 1, NULL, &batch, &err), 0);
        bench_free(b);
    }
    struct bench *b = bench_make(1000, 1000);
    atomic_store(&b->fake.slow, 1);
    bench_start(b, 1, 100);
    assert_int_equal(pthread_create(&other, NULL, let_go, &b->fake.slow), 0);
    bl_prefetch_free(b->p);
    b->p = NULL;
    assert_true(atomic_load(&b->fake.total) < 1000);
    pthread_join(other, NULL);
    bench_free(b);
    bl_prefetch_free(NULL);
}

static void test_hold_out_counts(void **state)
{
    (void)state;
    static const struct {
        uint64_t sequences;
        double share;
        uint64_t held;
    } good[] = {{100, 0.1, 10},
                {100, 0.5, 50},
                {99, 0.5, 49},
                {7, 0.1, 1},
                {2, 0.5, 1},
                {2, 1e-9, 1},
                {1u << 30, 0.25, 1u << 28}};
    struct bl_error err = BL_ERROR_INIT;
    uint64_t held = 77;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(bl_data_hold_out(good[i].sequences, good[i].share, &held, &err), 0);
        assert_int_equal(held, good[i].held);
    }
    held = 77;
    assert_int_equal(bl_data_hold_out(1, 0.1, &held, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_non_null(strstr(err.text, "nothing remains"));
    assert_int_equal(held, 77);
}

/* Of n sequences k are held out: an epoch of training reads each of the other n - k exactly once.
 */
static void test_training_reads_nothing_held_out(void **state)
{
    (void)state;
    static const uint64_t sizes[] = {2, 3, 10, 100, 1000, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        uint64_t n = sizes[i], k;
        struct bl_error err = BL_ERROR_INIT;
        struct bl_batch batch;
        assert_int_equal(bl_data_hold_out(n, 0.3, &k, &err), 0);
        struct bench *b = bench_make(1, n - k);
        bench_start(b, 1, 2 * (n - k));
        for (uint64_t step = 1; step <= 2 * (n - k); step++)
            assert_int_equal(bl_prefetch_next(b->p, step, NULL, &batch, &err), 0);
        for (uint64_t s = 0; s < n; s++)
            assert_int_equal(atomic_load(&b->fake.reads[s]), s < n - k ? 2 : 0);
        bench_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_bounded),
        cmocka_unit_test(test_error_belongs_to_its_step),
        cmocka_unit_test(test_all_masked),
        cmocka_unit_test(test_stopped_while_waiting),
        cmocka_unit_test(test_end),
        cmocka_unit_test(test_hold_out_counts),
        cmocka_unit_test(test_training_reads_nothing_held_out),
    };
    return cmocka_run_group_tests_name("prefetch", tests, NULL, NULL);
}
