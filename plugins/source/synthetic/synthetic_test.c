/* The synthetic process: its samples follow P, and its entropy is what P's samples cost. */
#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "process.h"

enum { CONTEXT = 16 }; /* of the bench */

static void open_process(struct bl_bench *b, const char *config, uint64_t seed, uint32_t validation)
{
    struct bl_source_files files = {
        .size = sizeof(files), .validation = validation, .format = "auto"};
    struct bl_error err = {.size = sizeof(err)};

    bl_bench_start(b);
    b->info.seed = seed;
    b->info.vocab = 0;
    bl_bench_open(b, BL_KIND_SOURCE, "synthetic", config);
    if (b->ops->source.open(b->self, &files, &err) != 0)
        fail_msg("%s", err.text);
}

static void read_one(const struct bl_bench *b, uint64_t index, int32_t *tokens, int32_t *targets)
{
    struct bl_error err = {.size = sizeof(err)};

    if (b->ops->source.read(b->self, index, 0, tokens, targets, &err) != 0)
        fail_msg("%s", err.text);
}

/* The process that the plugin must have, made anew from the same key. */
static void make_reference(struct process *p, const struct bl_bench *b, uint64_t vocab,
                           uint64_t rank, double exponent)
{
    struct bl_error err = {.size = sizeof(err)};

    if (process_make(p, b->host, b->info.seed, vocab, rank, exponent, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SOURCE, "synthetic", "");
}

/* Sums of V terms of order 1/V, each with a relative error of a few 1e-16. */
static void test_process_is_a_distribution(void **state)
{
    struct bl_bench b;
    struct process p;
    double total = 0.0, entropy = 0.0;

    (void)state;
    open_process(&b, "vocab = 64;", 3, 0);
    make_reference(&p, &b, 64, 8, 1.0);
    for (uint64_t i = 0; i < 64; i++) {
        double row = 0.0, flow = 0.0;
        for (uint64_t j = 0; j < 64; j++) {
            double q = process_probability(&p, i, j);
            assert_true(q > 0.0);
            row += q;
            flow += p.stationary[j] * process_probability(&p, j, i);
            entropy -= p.stationary[i] * q * log(q);
        }
        assert_true(fabs(row - 1.0) < 1e-13);
        assert_true(fabs(flow - p.stationary[i]) < 1e-13); /* pi = pi P */
        total += p.stationary[i];
    }
    assert_true(fabs(total - 1.0) < 1e-13);
    assert_true(fabs(entropy - p.entropy) < 1e-12);
    assert_true(p.entropy > 0.0 && p.entropy < log(64.0));
    process_free(&p);
    bl_bench_stop(&b);
}

/* Uniform components make every row uniform whatever the mixture: H = log V. */
static void test_uniform_entropy(void **state)
{
    struct bl_source_info info = {.size = sizeof(info)};
    struct bl_bench b;

    (void)state;
    open_process(&b, "vocab = 100; exponent = 0.0;", 3, 0);
    b.ops->source.describe(b.self, &info);
    assert_true(fabs(info.entropy - log(100.0)) < 1e-12);
    assert_int_equal(info.vocab, 100);
    assert_int_equal(info.sequences, 1 << 20);
    assert_int_equal(info.tokens, (uint64_t)CONTEXT << 20);
    bl_bench_stop(&b);
}

/* One component: tokens are independent, H is the entropy of Zipf's law, computed here. */
static void test_zipf_entropy(void **state)
{
    struct bl_source_info info = {.size = sizeof(info)};
    double z = 0.0, h = 0.0;
    struct bl_bench b;

    (void)state;
    for (int r = 1; r <= 50; r++)
        z += pow(r, -1.5);
    for (int r = 1; r <= 50; r++)
        h -= pow(r, -1.5) / z * log(pow(r, -1.5) / z);
    open_process(&b, "vocab = 50; rank = 1; exponent = 1.5;", 3, 0);
    b.ops->source.describe(b.self, &info);
    assert_true(fabs(info.entropy - h) < 1e-12);
    bl_bench_stop(&b);
}

/* Bigram counts N_ij given N_i are multinomial with P_ij. X2 = sum (N_ij - N_i P_ij)^2 /
 * (N_i P_ij) over all cells has a mean of V (V - 1) and, where all expected counts are large, a
 * variance of 2 V (V - 1); a small expected count e adds 1/e to it. Six standard deviations are
 * allowed: one run in 1e9 fails for a normal law, and the seed is fixed. */
static void test_bigrams_follow_p(void **state)
{
    enum { V = 12, SEQUENCES = 20000 };
    static double count[V][V], first[V];
    double from[V] = {0}, x2 = 0.0, variance = 0.0, start = 0.0;
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_bench b;
    struct process p;

    (void)state;
    open_process(&b, "vocab = 12; rank = 3; exponent = 1.2;", 11, 0);
    make_reference(&p, &b, V, 3, 1.2);
    memset(count, 0, sizeof(count));
    memset(first, 0, sizeof(first));
    for (uint64_t s = 0; s < SEQUENCES; s++) {
        read_one(&b, s, tokens, targets);
        first[tokens[0]] += 1.0;
        for (int t = 0; t < CONTEXT; t++) {
            assert_in_range(targets[t], 0, V - 1);
            if (t > 0)
                assert_int_equal(tokens[t], targets[t - 1]);
            count[tokens[t]][targets[t]] += 1.0;
            from[tokens[t]] += 1.0;
        }
    }
    for (int i = 0; i < V; i++) {
        double expected_first = SEQUENCES * p.stationary[i];
        start += (first[i] - expected_first) * (first[i] - expected_first) / expected_first;
        for (int j = 0; j < V; j++) {
            double e = from[i] * process_probability(&p, (uint64_t)i, (uint64_t)j);
            assert_true(e > 20.0);
            x2 += (count[i][j] - e) * (count[i][j] - e) / e;
            variance += 2.0 + 1.0 / e;
        }
    }
    if (fabs(x2 - V * (V - 1)) > 6.0 * sqrt(variance))
        fail_msg("X2 of the bigrams is %g, expected %d", x2, V * (V - 1));
    /* First tokens: stationary. The same bound with V - 1 degrees of freedom. */
    if (start > V - 1 + 6.0 * sqrt(2.0 * (V - 1)))
        fail_msg("X2 of the first tokens is %g, expected %d", start, V - 1);
    process_free(&p);
    bl_bench_stop(&b);
}

/* The mean of -log P over samples is H in expectation. Means of whole sequences are independent,
 * so their spread gives the standard error. */
static void test_entropy_matches_samples(void **state)
{
    enum { SEQUENCES = 20000 };
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    double sum = 0.0, squares = 0.0, mean, error;
    struct bl_bench b;
    struct process p;

    (void)state;
    open_process(&b, " validation_sequences = 1000000;", 5, 1);
    make_reference(&p, &b, 512, 8, 1.0);
    b.ops->source.describe(b.self, &info);
    for (uint64_t s = 0; s < SEQUENCES; s++) {
        double cost = 0.0;
        read_one(&b, s, tokens, targets);
        for (int t = 0; t < CONTEXT; t++)
            cost -= log(process_probability(&p, (uint64_t)tokens[t], (uint64_t)targets[t]));
        sum += cost / CONTEXT;
        squares += cost / CONTEXT * cost / CONTEXT;
    }
    mean = sum / SEQUENCES;
    error = sqrt((squares / SEQUENCES - mean * mean) / SEQUENCES);
    if (fabs(mean - info.entropy) > 4.0 * error)
        fail_msg("samples cost %.6f, H = %.6f, standard error %.6f", mean, info.entropy, error);
    printf("    H = %.6f nats, samples %.6f +- %.6f\n", info.entropy, mean, error);
    process_free(&p);
    bl_bench_stop(&b);
}

static void read_many(const char *config, uint64_t seed, uint32_t validation, int32_t *out,
                      double *entropy)
{
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t targets[CONTEXT];
    struct bl_bench b;

    open_process(&b, config, seed, validation);
    for (uint64_t s = 64; s-- > 0;) /* backwards: order must not matter */
        read_one(&b, s, out + s * CONTEXT, targets);
    b.ops->source.describe(b.self, &info);
    *entropy = info.entropy;
    bl_bench_stop(&b);
}

static void test_streams(void **state)
{
    enum { N = 64 * CONTEXT };
    static int32_t a[N], c[N];
    double h, g;

    (void)state;
    read_many("", 5, 0, a, &h);
    read_many("", 5, 0, c, &g);
    assert_memory_equal(a, c, sizeof(a));
    assert_true(h == g);
    read_many("", 5, 1, c, &g); /* held out: the same process, other sequences */
    assert_memory_not_equal(a, c, sizeof(a));
    assert_true(h == g);
    for (int s = 0; s < 64; s++)
        for (int r = 0; r < 64; r++)
            assert_memory_not_equal(a + s * CONTEXT, c + r * CONTEXT, CONTEXT * sizeof(*a));
    read_many("", 6, 0, c, &g);
    assert_true(h != g);
    read_many("seed = 5;", 6, 0, c, &g); /* data apart from run.seed */
    assert_memory_equal(a, c, sizeof(a));
}

static void test_refusals(void **state)
{
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err = {.size = sizeof(err)};
    struct bl_bench b;

    (void)state;
    open_process(&b, "vocab = 40; sequences = 7;", 5, 0);
    assert_int_equal(b.ops->source.read(b.self, 6, 40, tokens, targets, &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 7, 40, tokens, targets, &err), -1);
    assert_int_equal(b.ops->source.read(b.self, 6, 39, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "vocabulary 39"));
    bl_bench_stop(&b);
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_SOURCE, "synthetic", "vocab = 1;", 2, "vocab");
    bl_bench_refuses(&b, BL_KIND_SOURCE, "synthetic", "rank = 0;", 2, "rank");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),           cmocka_unit_test(test_process_is_a_distribution),
        cmocka_unit_test(test_uniform_entropy),  cmocka_unit_test(test_zipf_entropy),
        cmocka_unit_test(test_bigrams_follow_p), cmocka_unit_test(test_entropy_matches_samples),
        cmocka_unit_test(test_streams),          cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("source synthetic", tests, NULL, NULL);
}
