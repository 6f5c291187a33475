/* Sums over processes that are forked here give the bits of one process that plays all ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/strings.h"
#include "collectives/sum.h"
#include "sum_reference.h"

enum { ELEMENTS = 2011, PART_BEGIN = 300, PART_COUNT = 1100 };

static char folder[] = "/tmp/ballast-sum-XXXXXX";

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command) != 0;
}

/* In a forked process there is no test to fail: it says why and leaves. */
#define CHECK(condition, ...)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, __VA_ARGS__);                                                          \
            fputc('\n', stderr);                                                                   \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)

static int contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                      struct bl_error *err)
{
    struct gradients *g = context;
    (void)again, (void)err;
    memcpy(g->given, g->array[rank], g->elements * sizeof *g->given);
    memcpy(g->given_part, g->part[rank], g->part_count * sizeof *g->given_part);
    out->array = g->given;
    out->part = g->given_part;
    return 0;
}

struct arrays {
    float out[ELEMENTS], part[PART_COUNT];
};

static void fill(struct arrays *a)
{
    for (int i = 0; i < ELEMENTS; i++)
        a->out[i] = 7;
    for (int i = 0; i < PART_COUNT; i++)
        a->part[i] = 7;
}

static void run(const struct bl_sum_setup *setup, struct gradients *g, int scatter, int measure,
                struct arrays *a, struct bl_sum_statistics *statistics, uint64_t *bytes)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    CHECK(bl_sum_make(setup, &s, &err) == 0, "%s", err.text);
    struct bl_sum_run r = {.step = 5,
                           .contribute = contribute,
                           .context = g,
                           .out = a->out,
                           .part_out = a->part,
                           .scatter = scatter,
                           .measure = measure};
    for (int k = 0; k < 2; k++) { /* the second run must not see the first */
        fill(a);
        uint64_t before = setup->world != NULL ? bl_world_sent(setup->world) : 0;
        CHECK(bl_sum_run(s, &r, &err) == 0, "%s", err.text);
        *bytes = setup->world != NULL ? bl_world_sent(setup->world) - before : 0;
    }
    if (setup->world != NULL && !scatter && !measure)
        CHECK(*bytes >= bl_sum_wire_bytes(s) && *bytes <= bl_sum_wire_bytes(s) + (1 << 20),
              "sent %llu bytes, said %llu", (unsigned long long)*bytes,
              (unsigned long long)bl_sum_wire_bytes(s));
    bl_sum_measured(s, BL_GROUP_COUNT, statistics);
    if (scatter)
        CHECK(bl_sum_gather(s, a->out, &err) == 0, "%s", err.text);
    bl_sum_free(s);
}

/* One combination of dials in one process and over all. */
static void compare(struct bl_world *w, struct gradients *g,
                    const struct bl_cluster_options *cluster, struct bl_sum_format format,
                    int scatter, int measure)
{
    static struct arrays want, got;
    uint32_t processes = bl_world_processes(w);
    uint64_t shard[64] = {0}, bytes;
    struct bl_sum_statistics a, b;
    struct bl_sum_buffer buffers[2] = {
        {.begin = 0, .end = 700, .format = format},
        {.begin = 700, .end = ELEMENTS, .format = format},
    };
    struct bl_sum_setup setup = {
        .ranks = g->ranks,
        .cluster = cluster,
        .buffers = buffers,
        .buffer_count = 2,
        .elements = ELEMENTS,
        .part_begin = PART_BEGIN,
        .part_count = PART_COUNT,
        .seed = 3,
    };
    buffers[1].format.sum_rounding = BL_ROUND_STOCHASTIC;
    run(&setup, g, 0, measure, &want, &a, &bytes);
    for (uint32_t p = 1; p <= processes; p++)
        shard[p] = p == processes ? ELEMENTS : 13 + ELEMENTS / processes * p;
    setup.world = w;
    setup.shard = shard;
    run(&setup, g, scatter, measure, &got, &b, &bytes);
    for (int i = 0; i < ELEMENTS; i++)
        CHECK(memcmp(&want.out[i], &got.out[i], sizeof(float)) == 0,
              "W %u, P %u, algorithm %u, collective %u, average %u, wire %u, sum %u, scatter %d: "
              "element %d is %.9g, not %.9g",
              g->ranks, processes, format.algorithm, format.collective, format.average, format.wire,
              format.sum, scatter, i, (double)got.out[i], (double)want.out[i]);
    CHECK(memcmp(want.part, got.part, sizeof want.part) == 0, "the part differs");
    if (measure)
        CHECK(b.error > 0 && b.error / a.error - 1 < 1e-9 && a.error / b.error - 1 < 1e-9 &&
                  b.lost != b.lost,
              "error %g, not %g", b.error, a.error);
}

static void all(struct bl_world *w, uint32_t ranks, uint32_t per_node)
{
    static const uint32_t dtypes[] = {BL_FP32, BL_BF16, BL_FP16};
    struct gradients g;
    gradients_make(&g, ranks, ELEMENTS, PART_BEGIN, PART_COUNT);
    for (uint32_t c = 0; c < 12 * 9; c++) {
        struct bl_sum_format f = {.algorithm = c % 6,
                                  .collective = c / 6 % 2,
                                  .average = c % 4,
                                  .wire = dtypes[c / 12 % 3],
                                  .sum = dtypes[c / 36]};
        if (f.algorithm == BL_ALGORITHM_TREE && f.collective == BL_COLLECTIVE_REDUCE_SCATTER)
            f.collective = BL_COLLECTIVE_ALL_REDUCE;
        if (f.algorithm == BL_ALGORITHM_NVLS)
            f.average = BL_AVERAGE_DIVIDE;
        struct bl_cluster_options cluster = plain_cluster();
        cluster.ranks_per_node = per_node;
        cluster.tree_pattern = 1 + c % 3;
        cluster.channels = c / 6 % 4;
        compare(w, &g, &cluster, f, c / 6 % 2 == 1, c % 5 == 0);
    }
    gradients_free(&g);
}

static void play(uint32_t process, uint32_t processes, uint32_t ranks, uint32_t per_node,
                 const char *meet)
{
    char number[16], count[16];
    struct bl_error err = BL_ERROR_INIT;
    struct bl_world *w = NULL;
    snprintf(number, sizeof number, "%u", process);
    snprintf(count, sizeof count, "%u", processes);
    setenv("BALLAST_PROCESS", number, 1);
    setenv("BALLAST_PROCESSES", count, 1);
    setenv("BALLAST_MEET", meet, 1);
    alarm(60);
    CHECK(bl_world_make(20, &w, &err) == 0, "%s", err.text);
    all(w, ranks, per_node);
    CHECK(bl_world_barrier(w, &err) == 0, "%s", err.text);
    bl_world_free(w);
    _exit(0);
}

static void test_bits(void **state)
{
    static const uint32_t cases[][3] = {/* P, W, ranks per node */
                                        {2, 2, 1},
                                        {2, 8, 4},
                                        {3, 12, 3},
                                        {4, 8, 2},
                                        {6, 6, 2}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *meet = bl_format("%s/%zu", folder, i);
        pid_t pids[8];
        int failed = 0;
        assert_int_equal(mkdir(meet, 0700), 0);
        fflush(NULL);
        for (uint32_t p = 0; p < cases[i][0]; p++) {
            pids[p] = fork();
            assert_true(pids[p] >= 0);
            if (pids[p] == 0)
                play(p, cases[i][0], cases[i][1], cases[i][2], meet);
        }
        for (uint32_t p = 0; p < cases[i][0]; p++) {
            int status;
            assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
            failed |= status;
        }
        free(meet);
        assert_int_equal(failed, 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
