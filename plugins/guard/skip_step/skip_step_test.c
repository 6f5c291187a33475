#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint64_t now; /* step of the series */

/* 1 = skipped, 0 = accepted, -1 = the run ends. */
static int judge(struct bl_bench *b, double loss, double norm)
{
    struct bl_guard_input in = {
        .size = sizeof(in), .step = ++now, .loss = loss, .norm = norm, .learning_rate = 0.1};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    uint32_t changed = 0;
    bl_bench_forget(b);
    b->err = (struct bl_error)BL_ERROR_INIT;
    int rc = b->ops->guard.gradient(b->self, b->host, &in, &out, &changed, &b->err);
    b->ops->guard.settle(b->self, out.skip);
    assert_int_equal(changed, 0);
    assert_true(out.scale == 1.0);
    assert_true(bl_bench_metric(b, "spike/flag") == (double)out.skip);
    return rc < 0 ? -1 : (int)out.skip;
}

static void open_guard(struct bl_bench *b, const char *config)
{
    now = 0;
    bl_bench_start(b);
    bl_bench_open(b, BL_KIND_GUARD, "skip_step", config);
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-14 * fabs(wanted)))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "skip_step", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    open_guard(&b, "window = 3; minimum = 2; sigmas = 2.0; on = \"loss\";");
    assert_int_equal(judge(&b, 1.0, 1.0), 0);
    assert_false(bl_bench_has(&b, "spike/score"));
    assert_int_equal(judge(&b, 1e6, 1.0), 0); /* one step is no history yet */
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step",
                  "window = 3; minimum = 2; sigmas = 2.0; on = \"loss\";");
    judge(&b, 1.0, 1.0);
    judge(&b, 3.0, 1.0);
    /* 1, 3: mean 2, deviation sqrt 2 with divisor n - 1 (it would be 1 with n) */
    assert_int_equal(judge(&b, 4.8, 1.0), 0);
    near(bl_bench_metric(&b, "spike/score"), 2.8 / sqrt(2.0));
    /* 1, 3, 4.8: mean 44/15, deviation sqrt(((29/15)^2 + (1/15)^2 + (28/15)^2) / 2) */
    double deviation = sqrt((29.0 * 29.0 + 1.0 + 28.0 * 28.0) / 225.0 / 2.0);
    assert_int_equal(judge(&b, 44.0 / 15.0 + 2.001 * deviation, 1.0), 1);
    near(bl_bench_metric(&b, "spike/score"), 2.001);
    /* The skipped one is not in the history: the same verdict again. */
    assert_int_equal(judge(&b, 44.0 / 15.0 + 2.001 * deviation, 1.0), 1);
    assert_int_equal(judge(&b, 44.0 / 15.0 + 1.999 * deviation, 1.0), 0);
    assert_int_equal(judge(&b, -100.0, 1.0), 0); /* a fall is no spike */
    bl_bench_stop(&b);
}

/* A quiet series: 2 with a ripple of at most 0.1, norm 1 with 0.05. */
static double quiet(uint64_t i, double mean, double size)
{
    return mean + size * sin(1.7 * (double)i);
}

static void test_injected_spikes(void **state)
{
    (void)state;
    struct bl_bench b;
    open_guard(&b, "");
    int skipped = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        double loss = quiet(i, 2.0, 0.1), norm = quiet(i, 1.0, 0.05);
        int spike = i >= 100 && i % 50 == 7, which = (int)(i / 50) % 3;
        /* A sine has deviation 0.71 of its size: 6 of them are 4.2 sizes. */
        if (spike && which == 0)
            loss = 2.6;
        if (spike && which == 1)
            norm = 1.4;
        if (spike && which == 2)
            loss = norm = INFINITY;
        int verdict = judge(&b, loss, norm);
        assert_int_equal(verdict, spike);
        skipped += verdict;
    }
    assert_int_equal(skipped, 18);
    assert_non_null(strstr(bl_bench_log(&b), "step 108: update skipped, 1 in a row: loss/total is "
                                             "inf"));
    assert_non_null(strstr(bl_bench_log(&b), "step 158: update skipped, 1 in a row: loss/total 2.6 "
                                             "is 8."));
    bl_bench_stop(&b);
}

/* NaN and infinity are outliers from the first step on and are never remembered. */
static void test_not_finite(void **state)
{
    (void)state;
    struct bl_bench b;
    open_guard(&b, "window = 4; minimum = 2; patience = 0;");
    assert_int_equal(judge(&b, NAN, 1.0), 1);
    assert_int_equal(judge(&b, 1.0, INFINITY), 1);
    assert_false(bl_bench_has(&b, "spike/score"));
    assert_non_null(strstr(bl_bench_log(&b), "step 1: update skipped, 1 in a row: loss/total is "
                                             "nan"));
    judge(&b, 1.0, 1.0);
    judge(&b, 1.1, 1.1);
    assert_int_equal(judge(&b, 1.05, NAN), 1);
    near(bl_bench_metric(&b, "spike/score"), 0.0 + (1.05 - 1.05)); /* of the loss alone */
    assert_int_equal(judge(&b, 1.05, 1.05), 0);
    assert_int_equal(judge(&b, 9.0, 1.05), 1);
    /* What is not watched does not skip; unwatched NaN does not enter either. */
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step", "window = 4; minimum = 2; on = \"norm\";");
    judge(&b, 1.0, 1.0);
    assert_int_equal(judge(&b, NAN, 1.1), 0);
    assert_int_equal(judge(&b, 1e9, 99.0), 0);
    bl_bench_stop(&b);
}

static void test_on(void **state)
{
    (void)state;
    static const struct {
        const char *on;
        int loss, norm;
    } cases[] = {{"both", 1, 1}, {"loss", 1, 0}, {"norm", 0, 1}};
    for (size_t i = 0; i < 3; i++) {
        struct bl_bench b;
        char config[64];
        snprintf(config, sizeof(config), "on = \"%s\";", cases[i].on);
        open_guard(&b, config);
        for (uint64_t k = 0; k < 100; k++)
            assert_int_equal(judge(&b, quiet(k, 2.0, 0.1), quiet(k, 1.0, 0.05)), 0);
        assert_int_equal(judge(&b, 5.0, 1.0), cases[i].loss);
        if (cases[i].loss)
            assert_int_equal(judge(&b, 2.0, 1.0), 0);
        assert_int_equal(judge(&b, 2.0, 3.0), cases[i].norm);
        bl_bench_stop(&b);
    }
}

/* Equal values: deviation 0 exactly, also where their sum is rounded. */
static void test_constant(void **state)
{
    (void)state;
    struct bl_bench b;
    open_guard(&b, "window = 100; minimum = 3;");
    for (int i = 0; i < 300; i++) {
        assert_int_equal(judge(&b, 0.1, 1.0 / 3.0), 0);
        if (i >= 3)
            assert_true(bl_bench_metric(&b, "spike/score") == 0.0);
    }
    assert_int_equal(judge(&b, 0.09, 0.3), 0);
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step", "window = 100; minimum = 3;");
    for (int i = 0; i < 7; i++)
        judge(&b, 0.1, 1.0 / 3.0);
    assert_int_equal(judge(&b, nextafter(0.1, 1.0), 1.0 / 3.0), 1);
    assert_true(isinf(bl_bench_metric(&b, "spike/score")));
    bl_bench_stop(&b);
}

static void test_patience(void **state)
{
    (void)state;
    struct bl_bench b;
    open_guard(&b, "window = 8; minimum = 2; patience = 3;");
    judge(&b, 1.0, 1.0);
    judge(&b, 1.1, 1.1);
    assert_int_equal(judge(&b, 9.0, 1.0), 1);
    assert_int_equal(judge(&b, 9.0, 1.0), 1);
    assert_int_equal(judge(&b, 1.0, 1.0), 0); /* not in a row */
    assert_int_equal(judge(&b, 9.0, 1.0), 1);
    assert_int_equal(judge(&b, 9.0, 1.0), 1);
    bl_bench_reload(&b); /* a requeue does not give patience anew */
    assert_int_equal(judge(&b, 9.0, 1.0), -1);
    assert_int_equal(b.err.code, BL_EXIT_DIVERGED);
    assert_non_null(strstr(b.err.text, "step 8: loss/total 9 is "));
    assert_non_null(strstr(b.err.text, "patience = 3"));
    /* Without a bound it goes on. */
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step", "window = 8; minimum = 2; patience = 0;");
    judge(&b, 1.0, 1.0);
    judge(&b, 1.1, 1.1);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(judge(&b, 9.0, 1.0), 1);
    bl_bench_stop(&b);
}

static void test_off(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step", "sigmas = 0;");
    assert_true(b.instance->null);
    bl_bench_stop(&b);
}

/* Two instances see one series, one of them saved and loaded on the way: the same verdicts and
 * scores, to the bit. And both agree with a window kept as a list of all that was accepted. */
static void test_resume(void **state)
{
    (void)state;
    enum { N = 600, WINDOW = 40 };
    struct bl_bench a, b;
    double kept[N], scores = 0.0;
    uint64_t count = 0, skips = 0;
    open_guard(&a, "window = 40; minimum = 20; sigmas = 2.0; on = \"loss\"; patience = 0;");
    open_guard(&b, "window = 40; minimum = 20; sigmas = 2.0; on = \"loss\"; patience = 0;");
    for (uint64_t i = 0; i < N; i++) {
        if (i == 10 || i == 200 || i == 431)
            bl_bench_reload(&b);
        double x = exp(bl_bench_normal(7, i)), sum = 0.0, squares = 0.0;
        uint64_t n = count < WINDOW ? count : WINDOW;
        int verdict = judge(&a, x, 1.0);
        assert_int_equal(judge(&b, x, 1.0), verdict);
        for (uint64_t k = count - n; k < count; k++)
            sum += kept[k];
        for (uint64_t k = count - n; k < count; k++)
            squares += (kept[k] - sum / (double)n) * (kept[k] - sum / (double)n);
        if (count >= 20) {
            double score = (x - sum / (double)n) / sqrt(squares / (double)(n - 1));
            assert_true(bl_bench_metric(&a, "spike/score") == bl_bench_metric(&b, "spike/score"));
            /* fp64 sums of 40 terms of order 1 in two ways, differences of order 1 */
            assert_true(fabs(bl_bench_metric(&a, "spike/score") - score) <=
                        1e-13 * (1 + fabs(score)));
            assert_int_equal(verdict, score > 2.0);
            scores += score;
        }
        skips += (uint64_t)verdict;
        if (!verdict)
            kept[count++] = x;
    }
    assert_true(skips > 20 && skips < 300 && isfinite(scores)); /* the series has both */

    /* Into a smaller window: the newest stay. Damage is refused and changes nothing. */
    uint64_t bytes = a.ops->common.save(a.self, NULL, 0);
    char *saved = malloc(bytes);
    assert_non_null(saved);
    assert_int_equal(a.ops->common.save(a.self, saved, bytes), bytes);
    bl_bench_open(&b, BL_KIND_GUARD, "skip_step",
                  "window = 2; minimum = 2; sigmas = 1e9; on = \"loss\";");
    assert_int_equal(b.ops->common.load(b.self, saved, bytes, &b.err), 0);
    judge(&b, 50.0, 1.0);
    double mean = (kept[count - 1] + kept[count - 2]) / 2;
    near(bl_bench_metric(&b, "spike/score"),
         (50.0 - mean) / (fabs(kept[count - 1] - kept[count - 2]) / sqrt(2.0)));
    double bad = NAN;
    memcpy(saved + 24 + 16, &bad, 8);
    assert_int_equal(b.ops->common.load(b.self, saved, bytes, &b.err), -1);
    assert_non_null(strstr(b.err.text, "index 1"));
    free(saved);
    bl_bench_stop(&b);
    bl_bench_stop(&a);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_GUARD, "skip_step", "window = 32; minimum = 33;", BL_EXIT_USAGE,
                     "minimum = 33");
    bl_bench_refuses(&b, BL_KIND_GUARD, "skip_step", "on = \"all\";", BL_EXIT_USAGE, "loss");
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),     cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_injected_spikes),
        cmocka_unit_test(test_on),         cmocka_unit_test(test_constant),
        cmocka_unit_test(test_patience),   cmocka_unit_test(test_off),
        cmocka_unit_test(test_resume),     cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
