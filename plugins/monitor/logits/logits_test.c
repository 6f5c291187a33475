#include "tests/lib/plugin_test.h"

#include <math.h>
#include <string.h>

#define LN3 1.0986122886681098

static const char *const names[7] = {"norm", "mean",  "abs_mean", "centered_rms",
                                     "max",  "log_z", "log_z_sq"};

/* Three tokens, V = 3: z = (3, 4, 0); masked; (-2, -2, -2). */
static const double lse[3] = {4.32656264126747, NAN, -2.0 + LN3};
static const double mean[3] = {7.0 / 3.0, NAN, -2.0};
static const double m2[3] = {26.0 / 3.0, NAN, 0.0};
static const double largest[3] = {4.0, 1e9, -2.0};
static const uint8_t valid[3] = {1, 0, 1};

static struct bl_row_stats rows(uint64_t begin, uint64_t end)
{
    return (struct bl_row_stats){.size = sizeof(struct bl_row_stats),
                                 .count = end - begin,
                                 .vocab = 3,
                                 .lse = lse + begin,
                                 .mean = mean + begin,
                                 .m2 = m2 + begin,
                                 .max = largest + begin,
                                 .valid = valid + begin};
}

static int look(const struct bl_bench *b, const struct bl_row_stats *seen,
                const struct bl_row_stats *before, uint64_t targets)
{
    struct bl_monitor_input in = {
        .size = sizeof(in), .step = 1, .rows = seen, .before = before, .targets = targets};
    struct bl_error err = BL_ERROR_INIT;
    return b->ops->monitor.observe(b->self, b->host, &in, &err);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-15 * (1.0 + fabs(wanted))))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static double metric(const struct bl_bench *b, const char *prefix, int i)
{
    char name[64];
    snprintf(name, sizeof(name), "%s%s", prefix, names[i]);
    return bl_bench_metric(b, name);
}

static const double wanted[7] = {(5.0 + 3.4641016151377544) / 2.0, /* sqrt(9 + 16), sqrt(12) */
                                 (7.0 / 3.0 - 2.0) / 2.0,
                                 (7.0 / 3.0 + 2.0) / 2.0,
                                 1.2018504251546631, /* sqrt(26/3 / 6) */
                                 4.0,
                                 (4.32656264126747 - 2.0 + LN3) / 2.0,
                                 (4.32656264126747 * 4.32656264126747 + (LN3 - 2.0) * (LN3 - 2.0)) /
                                     2.0};

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "logits", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "logits", "");
    assert_true(fabs(exp(3) + exp(4) + 1 - exp(lse[0])) < 1e-12);
    struct bl_row_stats all = rows(0, 3), last = rows(2, 3);
    assert_int_equal(look(&b, &all, NULL, 2), 0);
    for (int i = 0; i < 7; i++)
        near(metric(&b, "logits/", i), wanted[i]);
    assert_int_equal(b.metric_count, 7);

    assert_int_equal(look(&b, &all, &last, 2), 0);
    assert_int_equal(b.metric_count, 14);
    near(metric(&b, "logits/", 0), wanted[0]);
    near(metric(&b, "logits/pre/", 0), 3.4641016151377544 / 2.0);
    near(metric(&b, "logits/pre/", 4), -2.0);

    bl_bench_forget(&b);
    assert_int_equal(look(&b, &all, NULL, 0), 0); /* a batch that is masked throughout */
    assert_int_equal(b.metric_count, 0);
    bl_bench_stop(&b);
}

/* Two ranks: what rank 1 contributes is caught, then added to rank 0's. */
static double caught[16];
static uint64_t caught_count;
static int adding;

static int two_ranks(void *context, double *values, uint64_t n, struct bl_error *err)
{
    (void)context;
    (void)err;
    assert_true(n <= 16);
    for (uint64_t i = 0; i < n; i++) {
        if (adding)
            values[i] += caught[i];
        else
            caught[i] = values[i];
    }
    caught_count = n;
    return 0;
}

static void test_ranks(void **state)
{
    (void)state;
    for (int swap = 0; swap < 2; swap++) {
        struct bl_bench b;
        struct bl_row_stats first = rows(0, 2), second = rows(2, 3);
        bl_bench_start(&b);
        b.services.ranks = 2;
        b.services.rank = 1;
        b.services.all_reduce = two_ranks;
        adding = 0;
        bl_bench_open(&b, BL_KIND_MONITOR, "logits", "");
        assert_int_equal(look(&b, swap ? &first : &second, NULL, 2), 0);
        bl_bench_stop(&b);

        bl_bench_start(&b);
        b.services.ranks = 2;
        b.services.all_reduce = two_ranks;
        adding = 1;
        bl_bench_open(&b, BL_KIND_MONITOR, "logits", "");
        assert_int_equal(look(&b, swap ? &second : &first, NULL, 2), 0);
        for (int i = 0; i < 7; i++)
            near(metric(&b, "logits/", i), wanted[i]);
        bl_bench_stop(&b);
    }
}

/* A mean of 1,000 with a spread of 1e-3: statistics in fp64 keep both. */
static void test_large_shift(void **state)
{
    (void)state;
    double l = 1000.0 + log(4.0), m = 1000.0, s = 4e-6, x = 1000.001;
    uint8_t yes = 1;
    struct bl_row_stats one = {.size = sizeof(one),
                               .count = 1,
                               .vocab = 4,
                               .lse = &l,
                               .mean = &m,
                               .m2 = &s,
                               .max = &x,
                               .valid = &yes};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_MONITOR, "logits", "");
    assert_int_equal(look(&b, &one, NULL, 1), 0);
    near(bl_bench_metric(&b, "logits/centered_rms"), 1e-3);
    near(bl_bench_metric(&b, "logits/norm"), 2000.0 * sqrt(1.0 + 1e-12));
    x = NAN;
    l = INFINITY;
    assert_int_equal(look(&b, &one, NULL, 1), 0);
    assert_true(isnan(bl_bench_metric(&b, "logits/max")));
    assert_true(isinf(bl_bench_metric(&b, "logits/log_z")));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_by_hand), cmocka_unit_test(test_ranks),
                                       cmocka_unit_test(test_large_shift)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
