/* Updates and norms over shards: every process, a thread here, has its part of an arena and gets
 * the bits that one process with all of it gets. Runs on the adamw and sgd plugins as built. */
#include "tests/lib/plugin_test.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend/backend.h"
#include "update.h"

enum { FLOATS = 144544, PROCESSES = 7, STEPS = 3 };

/* Smaller than a block; a block; one more; one less; several tasks with an odd end; one element. */
static struct bl_param items[6] = {
    {.name = "norm1.weight", .key = 1, .group = BL_GROUP_NORM, .count = 37, .offset = 0},
    {.name = "layers.0.attn.q.weight", .key = 2, .count = 4096, .offset = 48},
    {.name = "layers.0.attn.k.weight", .key = 3, .count = 4097, .offset = 4144},
    {.name = "layers.0.mlp.up.weight", .key = 4, .count = 4095, .offset = 8256},
    {.name = "head.weight", .key = 5, .group = BL_GROUP_HEAD, .count = 131 * 1007, .offset = 12352},
    {.name = "norm2.weight", .key = 6, .group = BL_GROUP_NORM, .count = 1, .offset = 144272},
};
static const struct bl_params params = {
    .items = items, .count = 6, .floats = FLOATS, .elements = 144243};

/* ---- processes as threads -------------------------------------------------------------------- */

struct meeting {
    pthread_barrier_t barrier;
    char *data[PROCESSES];
    uint32_t processes;
    int fails;
};

struct process {
    struct meeting *meeting;
    struct bl_shards shards;
    struct bl_plugin_instance *optimizer;
    struct bl_backend *backend;
    const struct bl_precision *dials;
    float *weights, *gradients;
    struct bl_update_state *update;
    double prepared[STEPS], squares[STEPS][6], norm;
    struct bl_error err;
    int rc, refreshed;
};

static int gather(void *context, void *data, const uint64_t *begin, struct bl_error *err)
{
    struct process *p = context;
    struct meeting *m = p->meeting;
    if (m->fails)
        return bl_error_set(err, BL_EXIT_PEER, "process 1 (n2): gone");
    m->data[p->shards.process] = data;
    pthread_barrier_wait(&m->barrier);
    for (uint32_t i = 0; i < m->processes; i++)
        if (i != p->shards.process)
            memcpy((char *)data + begin[i], m->data[i] + begin[i], begin[i + 1] - begin[i]);
    pthread_barrier_wait(&m->barrier);
    return 0;
}

static void refresh(void *context, uint64_t offset, uint64_t count)
{
    (void)offset;
    (void)count;
    ((struct process *)context)->refreshed++;
}

static float *filled(uint64_t seed, double scale)
{
    float *x = calloc(FLOATS, sizeof *x);
    assert_non_null(x);
    for (uint64_t i = 0; i < params.count; i++)
        for (uint64_t k = 0; k < items[i].count; k++)
            x[items[i].offset + k] = (float)(scale * bl_bench_normal(seed, items[i].offset + k));
    return x;
}

/* What is not of the own shard must not be read. */
static void forget_others(const struct bl_shards *s, float *x)
{
    for (uint64_t i = 0; i < FLOATS; i++)
        if (i < s->begin[s->process] || i >= s->begin[s->process + 1])
            x[i] = NAN;
}

static void open_process(struct process *p, struct meeting *m, const uint64_t *begin, uint32_t i)
{
    *p = (struct process){
        .meeting = m, .shards = {begin, i, m->processes, gather, p}, .err = BL_ERROR_INIT};
    p->weights = filled(1, 1.0);
    p->gradients = filled(2, 0.01);
    if (begin != NULL) {
        forget_others(&p->shards, p->weights);
        forget_others(&p->shards, p->gradients);
    }
}

static void close_process(struct process *p)
{
    bl_update_free(p->update);
    free(p->gradients);
    free(p->weights);
}

static void *run_process(void *argument)
{
    struct process *p = argument;
    struct bl_update_setup setup = {.params = &params,
                                    .weights = p->weights,
                                    .gradients = p->gradients,
                                    .weight_decay = 0.1,
                                    .optimizer = p->optimizer,
                                    .dials = p->dials,
                                    .seed = 42,
                                    .shard = p->shards.begin != NULL ? &p->shards : NULL,
                                    .refresh = refresh,
                                    .refresh_context = p};
    p->rc = bl_update_make(&setup, &p->update, &p->err);
    if (p->rc != 0)
        return NULL;
    bl_update_store(p->update, 0, params.count);
    for (int step = 0; step < STEPS && p->rc == 0; step++) {
        p->rc = bl_update_prepare(p->update, 0.01, 0.5, &p->prepared[step], &p->err);
        if (p->rc == 0)
            p->rc = bl_update_apply(p->update, 0.01, 0.5, 0.75, step != 1, &p->err);
        for (uint64_t i = 0; i < params.count; i++)
            p->squares[step][i] = bl_update_squares(p->update, i);
    }
    return NULL;
}

static void *run_norm(void *argument)
{
    struct process *p = argument;
    p->rc = bl_shard_norm(&p->shards, p->backend, &params, p->gradients, &p->norm, &p->err);
    return NULL;
}

static void run_all(struct process *p, struct meeting *m, void *(*body)(void *))
{
    pthread_t threads[PROCESSES];
    assert_int_equal(pthread_barrier_init(&m->barrier, NULL, m->processes), 0);
    for (uint32_t i = 0; i < m->processes; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, body, &p[i]), 0);
    for (uint32_t i = 0; i < m->processes; i++)
        pthread_join(threads[i], NULL);
    pthread_barrier_destroy(&m->barrier);
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void same_as(const struct process *one, struct process *p)
{
    uint64_t from = p->shards.begin[p->shards.process], to = p->shards.begin[p->shards.process + 1];
    if (p->rc != 0)
        fail_msg("%s", p->err.text);
    assert_memory_equal(p->prepared, one->prepared, sizeof p->prepared);
    assert_memory_equal(p->squares, one->squares, sizeof p->squares);
    assert_int_equal(p->refreshed, 0);
    assert_int_equal(bl_update_steps(p->update), STEPS);
    assert_memory_equal(p->weights + from, one->weights + from, (to - from) * sizeof(float));
    for (uint64_t i = 0; i < FLOATS; i++)
        if (i < from || i >= to)
            assert_true(isnan(p->weights[i])); /* the others' were left alone */
    for (uint32_t k = 0; k < bl_update_states(p->update); k++) {
        uint64_t begin = 0, count = 0;
        const float *state = bl_update_slice(p->update, k, &begin, &count);
        const float *whole = bl_update_array(one->update, k);
        assert_non_null(state);
        assert_int_equal(begin, from);
        assert_int_equal(count, to - from);
        assert_memory_equal(state, whole + from, count * sizeof(float));
        assert_true((bl_update_array(p->update, k) != NULL) == (count == FLOATS));
        for (uint64_t i = 0; i < params.count; i++) {
            const float *t = bl_update_tensor(p->update, k, i);
            int here = items[i].offset >= from && items[i].offset + items[i].count <= to;
            assert_true((t != NULL) == here);
            if (here)
                assert_memory_equal(t, whole + items[i].offset, items[i].count * sizeof(float));
        }
    }
}

static void compare(struct bl_plugin_instance *optimizer, const struct bl_precision *dials,
                    const uint64_t *begin, uint32_t processes)
{
    struct process one, p[PROCESSES];
    struct meeting alone = {.processes = 1}, m = {.processes = processes};
    open_process(&one, &alone, NULL, 0);
    one.optimizer = optimizer;
    one.dials = dials;
    run_process(&one);
    assert_int_equal(one.rc, 0);
    assert_int_equal(one.refreshed, STEPS);
    for (uint32_t i = 0; i < processes; i++) {
        open_process(&p[i], &m, begin, i);
        p[i].optimizer = optimizer;
        p[i].dials = dials;
    }
    run_all(p, &m, run_process);
    for (uint32_t i = 0; i < processes; i++) {
        same_as(&one, &p[i]);
        close_process(&p[i]);
    }
    close_process(&one);
}

/* Within the head, at its second block; before a small parameter; in padding's place; empty. */
static const uint64_t by_hand[PROCESSES + 1] = {
    0, 48, 4144 + 4096, 12352 + 4096, 12352 + 4096, 12352 + 16 * 4096, 144272, FLOATS};

static void test_update(void **state)
{
    (void)state;
    static const struct {
        const char *plugin, *config;
        uint32_t master, moments, rounding;
    } cases[] = {
        {"adamw", "", BL_FP32, BL_FP32, BL_ROUND_NEAREST},
        {"adamw", "", BL_BF16, BL_FP32, BL_ROUND_NEAREST},
        {"adamw", "", BL_BF16, BL_BF16, BL_ROUND_STOCHASTIC},
        {"sgd", "momentum = 0.9;", BL_FP32, BL_BF16, BL_ROUND_NEAREST},
        {"sgd", "momentum = 0.9;", BL_BF16, BL_FP32, BL_ROUND_STOCHASTIC},
    };
    struct bl_bench b;
    bl_bench_start(&b);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bl_precision dials = {0};
        for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
            dials.dial[g][BL_DIAL_MASTER] = cases[i].master;
            dials.dial[g][BL_DIAL_MOMENTS] = cases[i].moments;
            dials.dial[g][BL_DIAL_ROUNDING] = cases[i].rounding;
        }
        bl_bench_open(&b, BL_KIND_OPTIMIZER, cases[i].plugin, cases[i].config);
        compare(b.instance, &dials, by_hand, PROCESSES);
        for (uint32_t n = 1; n <= PROCESSES; n += 2) {
            uint64_t begin[PROCESSES + 1];
            bl_shard_cut(&params, n, begin);
            compare(b.instance, &dials, begin, n);
        }
    }
    bl_bench_stop(&b);
}

static void test_norm(void **state)
{
    (void)state;
    struct process p[PROCESSES];
    struct meeting m = {.processes = PROCESSES};
    double wanted = 0.0, whole = 0.0;
    for (uint32_t i = 0; i < PROCESSES; i++) {
        open_process(&p[i], &m, by_hand, i);
        assert_int_equal(bl_backend_cpu(i == 0 ? 2 : 1, "auto", &p[i].backend, &p[i].err), 0);
    }
    struct bl_backend *b = p[0].backend;
    float *gradients = filled(2, 0.01);
    for (uint64_t i = 0; i < params.count; i++)
        wanted += b->ops->sum_squares(b, items[i].count, gradients + items[i].offset);
    assert_int_equal(bl_shard_norm(NULL, b, &params, gradients, &whole, NULL), 0);
    assert_true(whole == sqrt(wanted));
    run_all(p, &m, run_norm);
    for (uint32_t i = 0; i < PROCESSES; i++) {
        assert_int_equal(p[i].rc, 0);
        assert_true(p[i].norm == whole);
        bl_backend_destroy(p[i].backend);
        close_process(&p[i]);
    }
    free(gradients);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

static void test_lost_peer(void **state)
{
    (void)state;
    struct bl_bench b;
    struct process p;
    struct meeting m = {.processes = 2, .fails = 1};
    uint64_t begin[3];
    double total = 7.0;
    bl_shard_cut(&params, 2, begin);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "");
    open_process(&p, &m, begin, 0);
    p.optimizer = b.instance;
    run_process(&p);
    assert_int_equal(p.rc, -1);
    assert_int_equal(p.err.code, BL_EXIT_PEER);
    assert_non_null(strstr(p.err.text, "process 1 (n2): gone"));
    assert_int_equal(bl_update_prepare(p.update, 0.01, 1.0, &total, &p.err), -1);
    assert_true(total == 7.0);
    /* without sums nothing is exchanged */
    assert_int_equal(bl_update_apply(p.update, 0.01, 1.0, 1.0, 0, &p.err), 0);
    assert_int_equal(bl_update_apply(p.update, 0.01, 1.0, 1.0, 1, &p.err), -1);
    close_process(&p);
    bl_bench_stop(&b);
}

static void refused(const uint64_t *begin, const char *word)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_shards s = {.begin = begin, .processes = 2};
    assert_int_equal(bl_shard_check(&s, &params, &err), -1);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" is not in: %s", word, err.text);
}

static void test_borders(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    refused((const uint64_t[]){0, 49, FLOATS}, "within a block");
    refused((const uint64_t[]){0, 12352 + 4095, FLOATS}, "within a block");
    refused((const uint64_t[]){0, FLOATS + 1, FLOATS}, "after the end");
    refused((const uint64_t[]){0, 48, FLOATS - 1}, "an arena of 144544");
    refused((const uint64_t[]){48, 48, FLOATS}, "an arena of 144544");
    struct bl_shards s = {.begin = by_hand, .processes = PROCESSES};
    assert_int_equal(bl_shard_check(&s, &params, &err), 0);
    /* One block more or less than an equal share; more processes than blocks. */
    for (uint32_t n = 1; n <= 64; n++) {
        uint64_t begin[65];
        bl_shard_cut(&params, n, begin);
        s = (struct bl_shards){.begin = begin, .processes = n};
        assert_int_equal(bl_shard_check(&s, &params, &err), 0);
        for (uint32_t p = 0; p < n; p++)
            assert_true(begin[p + 1] - begin[p] <= FLOATS / n + BL_SHARD_BLOCK + 16);
    }
    assert_int_equal(bl_shard_blocks(&params), 1 + 1 + 2 + 1 + 33 + 1);
    assert_int_equal(bl_shard_blocks_before(&params, 0), 0);
    assert_int_equal(bl_shard_blocks_before(&params, 48), 1);
    assert_int_equal(bl_shard_blocks_before(&params, 12352 + 4096), 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_update), cmocka_unit_test(test_norm),
                                       cmocka_unit_test(test_lost_peer),
                                       cmocka_unit_test(test_borders)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
