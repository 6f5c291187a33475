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

/* Values of a large array without one: the same in every process. */
static int contribute_large(void *context, uint32_t rank, int again,
                            struct bl_sum_contribution *out, struct bl_error *err)
{
    struct gradients *g = context;
    (void)again, (void)err;
    for (uint64_t i = 0; i < g->elements; i++)
        g->given[i] = (float)((i * 2654435761u + rank * 40503u) % 65521) - 32760;
    out->array = g->given;
    return 0;
}

static void run_large(const struct bl_sum_setup *setup, struct gradients *g, float *out)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_sum *s = NULL;
    struct bl_sum_run r = {.contribute = contribute_large, .context = g, .out = out};
    CHECK(bl_sum_make(setup, &s, &err) == 0, "%s", err.text);
    CHECK(bl_sum_run(s, &r, &err) == 0, "%s", err.text);
    bl_sum_free(s);
}

/* So much that pieces are cut into batches and batches into rounds. */
static void large(struct bl_world *w, uint32_t ranks, uint64_t elements, uint32_t algorithm)
{
    struct bl_cluster_options cluster = plain_cluster();
    struct bl_sum_buffer buffer = {
        .end = elements, .format = {.wire = BL_BF16, .sum = BL_BF16, .algorithm = algorithm}};
    struct bl_sum_setup setup = {.ranks = ranks,
                                 .cluster = &cluster,
                                 .buffers = &buffer,
                                 .buffer_count = 1,
                                 .elements = elements,
                                 .keep = UINT64_MAX};
    struct gradients g = {.ranks = ranks, .elements = elements};
    float *want = malloc(elements * sizeof *want), *got = malloc(elements * sizeof *got);
    g.given = malloc(elements * sizeof *g.given);
    CHECK(want && got && g.given, "no memory");
    run_large(&setup, &g, want);
    setup.world = w;
    run_large(&setup, &g, got);
    CHECK(memcmp(want, got, elements * sizeof *want) == 0, "W %u, %llu elements, algorithm %u",
          ranks, (unsigned long long)elements, algorithm);
    free(g.given);
    free(want);
    free(got);
}

static void all_large(struct bl_world *w, uint32_t ranks, uint32_t elements)
{
    for (uint32_t algorithm = 0; algorithm < 6; algorithm++)
        large(w, ranks, elements, algorithm);
}

typedef void play_f(struct bl_world *w, uint32_t a, uint32_t b);

static void play(uint32_t process, uint32_t processes, const char *meet, play_f *body, uint32_t a,
                 uint32_t b)
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
    body(w, a, b);
    CHECK(bl_world_barrier(w, &err) == 0, "%s", err.text);
    bl_world_free(w);
    _exit(0);
}

/* body(a, b) in so many processes. */
static void expect_success(uint32_t processes, play_f *body, uint32_t a, uint32_t b)
{
    char *meet = bl_format("%s/%u-%u-%u", folder, processes, a, b);
    pid_t pids[8];
    int failed = 0;
    assert_true(processes <= 8);
    assert_int_equal(mkdir(meet, 0700), 0);
    fflush(NULL);
    for (uint32_t p = 0; p < processes; p++) {
        pids[p] = fork();
        assert_true(pids[p] >= 0);
        if (pids[p] == 0)
            play(p, processes, meet, body, a, b);
    }
    for (uint32_t p = 0; p < processes; p++) {
        int status;
        assert_int_equal(waitpid(pids[p], &status, 0), pids[p]);
        failed |= status;
    }
    free(meet);
    assert_int_equal(failed, 0);
}

static void test_bits(void **state)
{
    (void)state;
    expect_success(2, all, 2, 1);
    expect_success(2, all, 8, 4);
    expect_success(3, all, 12, 3);
    expect_success(4, all, 8, 2);
    expect_success(6, all, 6, 2);
}

/* W, elements: more than a batch of 2^18 elements for each of 4 processes; more than 2048
 * contributions to send. */
static void test_large(void **state)
{
    (void)state;
    expect_success(4, all_large, 8, 1500001);
    expect_success(2, all_large, 4096, 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_bits), cmocka_unit_test(test_large)};
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
