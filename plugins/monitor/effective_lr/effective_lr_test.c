#include "tests/lib/plugin_test.h"

#include <math.h>

static void look(struct bl_bench *b, double rate)
{
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1, .learning_rate = rate};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.observe(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_MONITOR, "effective_lr", "");
}

static void test_values(void **state)
{
    (void)state;
    float a[4] = {3, 4, 0, 0}, bias[2] = {1, 1}, embed[2] = {0.5F, 0}, zero[2] = {0};
    struct bl_bench b;
    bl_bench_start(&b);
    bl_bench_tensor(&b, "a.weight", BL_GROUP_MATRIX, 2, 2, BL_WEIGHT, a);
    bl_bench_tensor(&b, "a.bias", BL_GROUP_MATRIX, 2, 0, BL_WEIGHT, bias);
    bl_bench_tensor(&b, "embed.weight", BL_GROUP_EMBEDDING, 1, 2, BL_WEIGHT, embed);
    bl_bench_tensor(&b, "zero.weight", BL_GROUP_MATRIX, 1, 2, BL_WEIGHT, zero);
    bl_bench_open(&b, BL_KIND_MONITOR, "effective_lr", "");
    look(&b, 0.5);
    assert_true(bl_bench_metric(&b, "effective_lr/a.weight") == 0.02);    /* 0.5 / 25 */
    assert_true(bl_bench_metric(&b, "effective_lr/embed.weight") == 2.0); /* 0.5 / 0.25 */
    assert_int_equal(b.metric_count, 2);

    /* A warmup that starts at zero; a broken weight shows. */
    look(&b, 0.0);
    assert_true(bl_bench_metric(&b, "effective_lr/a.weight") == 0.0);
    a[1] = NAN;
    look(&b, 0.5);
    assert_true(bl_bench_has(&b, "effective_lr/a.weight"));
    assert_true(isnan(bl_bench_metric(&b, "effective_lr/a.weight")));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common),
                                       cmocka_unit_test(test_values)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
