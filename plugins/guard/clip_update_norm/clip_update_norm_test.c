#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static double judge(const struct bl_bench *b, double norm)
{
    struct bl_guard_input in = {.size = sizeof(in), .step = 1, .norm = norm};
    struct bl_verdict out = {sizeof(out), 0, 1.0};
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(b->ops->guard.update(b->self, b->host, &in, &out, &err), 0);
    b->ops->guard.settle(b->self, 0);
    assert_int_equal(out.skip, 0);
    return out.scale;
}

static void near(double got, double wanted)
{
    if (!(fabs(got - wanted) <= 1e-14 * fabs(wanted)))
        fail_msg("got %.17g, wanted %.17g", got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_GUARD, "clip_update_norm", "");
}

static void test_by_hand(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_update_norm", "window = 3; minimum = 2; sigmas = 1.0;");
    near(judge(&b, 1.0), 1.0);
    near(judge(&b, 3.0), 1.0); /* one norm is no history yet */
    assert_false(bl_bench_has(&b, "optim/clip_update/threshold"));
    /* 1, 3: mean 2, deviation sqrt 2 */
    near(judge(&b, 10.0), (2.0 + sqrt(2.0)) / 10.0);
    near(bl_bench_metric(&b, "optim/clip_update/threshold"), 2.0 + sqrt(2.0));
    near(bl_bench_metric(&b, "optim/clip_update/norm"), 10.0);
    near(bl_bench_metric(&b, "optim/clip_update/scale"), (2.0 + sqrt(2.0)) / 10.0);
    /* 1, 3, 10 (as it came): mean 14/3, squares (121 + 25 + 256) / 9, divisor 2 */
    near(judge(&b, 9.0), 1.0);
    near(bl_bench_metric(&b, "optim/clip_update/threshold"), 14.0 / 3.0 + sqrt(402.0 / 18.0));
    /* 3, 10, 9: the oldest has left; mean 22/3, squares (169 + 64 + 25) / 9 */
    near(judge(&b, 20.0), (22.0 / 3.0 + sqrt(258.0 / 18.0)) / 20.0);
    bl_bench_stop(&b);
}

static void test_not_finite(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_update_norm", "window = 4; minimum = 2; sigmas = 1.0;");
    judge(&b, 1.0);
    near(judge(&b, NAN), 1.0);
    judge(&b, 3.0);
    near(judge(&b, INFINITY), 1.0);
    near(judge(&b, NAN), 1.0);
    near(judge(&b, 10.0), (2.0 + sqrt(2.0)) / 10.0); /* neither is in the history */
    bl_bench_stop(&b);
}

static void test_off(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_update_norm", "window = 0;");
    assert_true(b.instance->null);
    for (int i = 0; i < 200; i++)
        near(judge(&b, i == 150 ? 1e9 : 1.0), 1.0);
    bl_bench_stop(&b);
}

/* A window that is only written as a list of all norms ever seen. */
static double plain_threshold(const double *seen, uint64_t count, uint64_t window, double sigmas)
{
    uint64_t n = count < window ? count : window;
    double sum = 0.0, squares = 0.0;
    for (uint64_t i = count - n; i < count; i++)
        sum += seen[i];
    for (uint64_t i = count - n; i < count; i++)
        squares += (seen[i] - sum / (double)n) * (seen[i] - sum / (double)n);
    return sum / (double)n + sigmas * sqrt(squares / (double)(n - 1));
}

static void test_resume(void **state)
{
    (void)state;
    enum { N = 400 };
    double seen[N];
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_update_norm", "");
    for (uint64_t i = 0; i < N; i++) {
        if (i == 30 || i == 300)
            bl_bench_reload(&b); /* saves, destroys, makes a new one, loads */
        seen[i] = exp(bl_bench_normal(7, i));
        double scale = judge(&b, seen[i]), wanted = 1.0;
        if (i >= 64) {
            double limit = plain_threshold(seen, i, 128, 3.0);
            wanted = seen[i] > limit ? limit / seen[i] : 1.0;
        }
        near(scale, wanted);
    }
    /* Into a smaller window: the newest norms stay. */
    uint64_t bytes = b.ops->common.save(b.self, NULL, 0);
    char *saved = malloc(bytes);
    assert_non_null(saved);
    assert_int_equal(b.ops->common.save(b.self, saved, bytes), bytes);
    bl_bench_open(&b, BL_KIND_GUARD, "clip_update_norm", "window = 16; minimum = 16;");
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(b.ops->common.load(b.self, saved, bytes, &err), 0);
    near(judge(&b, 1e6), plain_threshold(seen, N, 16, 3.0) / 1e6);
    /* Damage is refused and leaves the history as it was. */
    double bad = NAN;
    memcpy(saved + 16 + 8, &bad, 8);
    assert_int_equal(b.ops->common.load(b.self, saved, bytes, &err), -1);
    assert_non_null(strstr(err.text, "index 1"));
    free(saved);
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_start(&b);
    assert_int_equal(
        bl_bench_try(&b, BL_KIND_GUARD, "clip_update_norm", "window = 32; minimum = 33;"), -1);
    assert_non_null(strstr(b.err.text, "minimum = 33"));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),     cmocka_unit_test(test_by_hand),
        cmocka_unit_test(test_not_finite), cmocka_unit_test(test_off),
        cmocka_unit_test(test_resume),     cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
