#include "tests/lib/plugin_test.h"

#include <math.h>

static void look(struct bl_bench *b)
{
    struct bl_monitor_input in = {.size = sizeof(in), .step = 1};
    struct bl_error err = BL_ERROR_INIT;
    bl_bench_forget(b);
    if (b->ops->monitor.observe(b->self, b->host, &in, &err) != 0)
        fail_msg("%s", err.text);
}

static void is(const struct bl_bench *b, const char *name, double wanted)
{
    double got = bl_bench_metric(b, name);
    if (!(fabs(got - wanted) <= 1e-15 * fabs(wanted)))
        fail_msg("%s: got %.17g, wanted %.17g", name, got, wanted);
}

static void test_common(void **state)
{
    (void)state;
    struct bl_bench b;
    bl_bench_common(BL_KIND_MONITOR, "embedding_health", "");
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_MONITOR, "embedding_health", "early_layers = -1;", 2,
                     "early_layers");
    bl_bench_stop(&b);
}

static void add(struct bl_bench *b, const char *name, float *w, float *g)
{
    bl_bench_tensor(b, name, BL_GROUP_MATRIX, 2, 2, BL_WEIGHT, w);
    bl_bench_tensor(b, name, BL_GROUP_MATRIX, 2, 2, BL_GRADIENT, g);
}

static float embed[4] = {3, 4, 0, 0}, ones[4] = {1, 1, 1, 1};
static float g1[4] = {1, 0, 0, 0}, g2[4] = {0, 2, 0, 0}, g3[4] = {1, 1, 1, 0}, zero[4] = {0};

/* Squared gradients: embedding 1, layer 0 4, layer 1 3, layer 10 4, final norm 4; 16 in all. */
static void test_values(void **state)
{
    (void)state;
    static const char *const config[] = {"early_layers = 0;", "", "early_layers = 2;"};
    static const double share[] = {1.0 / 16.0, 5.0 / 16.0, 8.0 / 16.0};
    for (int i = 0; i < 3; i++) {
        float gain[4] = {2, 2, 2, 2};
        struct bl_bench b;
        bl_bench_start(&b);
        add(&b, "embed.weight", embed, g1);
        add(&b, "layers.0.norm1.weight", gain, g2);
        add(&b, "layers.1.attn.q.weight", ones, g3);
        add(&b, "layers.10.attn.q.weight", ones, g2);
        add(&b, "final_norm.weight", ones, g2);
        bl_bench_open(&b, BL_KIND_MONITOR, "embedding_health", config[i]);
        look(&b);
        is(&b, "embed/rms", 2.5);
        is(&b, "embed/gain", 2.0);
        is(&b, "embed/early_share", share[i]);
        assert_int_equal(b.metric_count, 3);

        /* The norm of the embedding itself comes first, and is early. */
        add(&b, "embed_norm.weight", ones, g2);
        look(&b);
        is(&b, "embed/gain", 1.0);
        is(&b, "embed/early_share", (share[i] * 16.0 + 4.0) / 20.0);
        bl_bench_stop(&b);
    }
}

static void test_absent(void **state)
{
    (void)state;
    float broken[4] = {NAN, 0, 0, 0};
    struct bl_bench b;
    bl_bench_start(&b);
    add(&b, "embed.weight", embed, zero);
    bl_bench_open(&b, BL_KIND_MONITOR, "embedding_health", "");
    look(&b);
    look(&b);
    is(&b, "embed/rms", 2.5);
    assert_int_equal(b.metric_count, 1);
    assert_int_equal(bl_bench_logged(&b, "embed/gain is absent"), 1);
    add(&b, "embed.weight", embed, broken);
    look(&b);
    assert_true(bl_bench_has(&b, "embed/early_share"));
    assert_true(isnan(bl_bench_metric(&b, "embed/early_share")));
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_common), cmocka_unit_test(test_values),
                                       cmocka_unit_test(test_absent)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
