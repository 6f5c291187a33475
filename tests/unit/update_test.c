/* The optimizer step of the host: rules, blocks, squares, the working copy. Runs on the adamw and
 * sgd plugins as built. */
#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "update.h"

enum { FLOATS = 210016, PADDING = 210000 };

/* One element; one less and one more than a block; several tasks. */
static struct bl_param items[4] = {
    {.name = "norm1.weight", .key = 1, .group = BL_GROUP_NORM, .count = 1, .offset = 0},
    {.name = "layers.0.attn.q.weight", .key = 2, .count = 4095, .offset = 16},
    {.name = "layers.0.attn.k.weight", .key = 3, .count = 4097, .offset = 4111},
    {.name = "head.weight", .key = 4, .group = BL_GROUP_HEAD, .count = 200000, .offset = 8224},
};
static const struct bl_params params = {
    .items = items, .count = 4, .floats = FLOATS, .elements = 208193};

static void test_warmup(void **state)
{
    (void)state;
    static const double wanted[4][3] = {/* u = 0, 1, 3 of w = 4 */
                                        {0.25, 0.5, 1.0},
                                        {0.2, 0.4, 0.8},
                                        {0.0, 0.25, 0.75},
                                        {0.1, 0.325, 0.775}};
    static const uint64_t at[3] = {0, 1, 3};
    for (int c = 0; c < 4; c++) {
        for (int i = 0; i < 3; i++)
            assert_true(fabs(bl_warmup(c, at[i], 4) - wanted[c][i]) <= 1.2e-16);
        assert_true(bl_warmup(c, 4, 4) == 1.0);
        assert_true(bl_warmup(c, 0, 0) == 1.0);
    }
}

static void refused(const struct bl_rule *rules, size_t n, const struct bl_plugin *optimizer,
                    const char *word, const char *word2)
{
    struct bl_update_effect out[4];
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(bl_update_effects(&params, rules, n, 0.1, optimizer, out, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    if (strstr(err.text, word) == NULL || strstr(err.text, word2) == NULL)
        fail_msg("\"%s\" and \"%s\" are not in: %s", word, word2, err.text);
}

static void test_rules(void **state)
{
    (void)state;
    struct bl_update_effect e[4];
    struct bl_bench b;
    assert_int_equal(bl_update_effects(&params, NULL, 0, 0.1, NULL, e, NULL), 0);
    for (int i = 0; i < 4; i++)
        assert_true(e[i].lr_scale == 1.0 && e[i].weight_decay == 0.1 && isnan(e[i].epsilon) &&
                    e[i].rule == -1);

    struct bl_rule rules[3] = {{"*norm*", NAN, 0.0, NAN},
                               {"layers.*.attn.q.weight", 0.5, NAN, 1e-6},
                               {"layers.*", NAN, 0.3, NAN}};
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "adamw", "");
    assert_int_equal(bl_update_effects(&params, rules, 3, 0.1, b.instance->plugin, e, NULL), 0);
    assert_true(e[0].weight_decay == 0.0 && e[0].lr_scale == 1.0 && e[0].rule == 0);
    assert_true(e[1].weight_decay == 0.1 && e[1].lr_scale == 0.5 && e[1].epsilon == 1e-6);
    assert_true(e[2].weight_decay == 0.3 && isnan(e[2].epsilon) && e[2].rule == 2);
    assert_true(e[3].rule == -1);

    struct bl_rule wrong[2] = {{"layers.*", NAN, 0.0, NAN}, {"*nrom*", NAN, 0.0, NAN}};
    refused(wrong, 2, NULL, "rules[1]", "\"*nrom*\"");
    struct bl_rule shadowed[2] = {{"*", NAN, 0.0, NAN}, {"head.weight", NAN, 0.1, NAN}};
    refused(shadowed, 2, NULL, "rules[1]", "first match");
    struct bl_rule negative[1] = {{"*", NAN, -0.1, NAN}};
    refused(negative, 1, NULL, "weight_decay", "-0.1");
    struct bl_rule zero[1] = {{"*", NAN, NAN, 0.0}};
    refused(zero, 1, NULL, "eps", "1e-30");
    struct bl_rule backwards[1] = {{"*", -1.0, NAN, NAN}};
    refused(backwards, 1, NULL, "lr_scale", "-1");
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", "");
    refused(rules, 3, b.instance->plugin, "sgd", "eps");
    bl_bench_stop(&b);
}

struct world {
    struct bl_bench bench;
    struct bl_update_state *update;
    float *weights, *gradients;
    int refreshed;
    uint64_t offset, count;
};

static void refresh(void *context, uint64_t offset, uint64_t count)
{
    struct world *w = context;
    w->refreshed++;
    w->offset = offset;
    w->count = count;
}

static double prepare(struct bl_update_state *u, double learning_rate, double gradient_scale)
{
    double out = NAN;
    assert_int_equal(bl_update_prepare(u, learning_rate, gradient_scale, &out, NULL), 0);
    return out;
}

static const struct bl_rule some_rules[1] = {{"*.q.weight", 0.5, 0.0, 1e-6}};

static void open_world(struct world *w, struct bl_backend *backend)
{
    struct bl_error err = BL_ERROR_INIT;
    memset(w, 0, sizeof(*w));
    w->weights = calloc(FLOATS, sizeof(float));
    w->gradients = calloc(FLOATS, sizeof(float));
    assert_non_null(w->weights);
    assert_non_null(w->gradients);
    for (uint64_t i = 0; i < PADDING; i++) {
        w->weights[i] = (float)bl_bench_normal(1, i);
        w->gradients[i] = (float)bl_bench_normal(2, i);
    }
    bl_bench_start(&w->bench);
    bl_bench_open(&w->bench, BL_KIND_OPTIMIZER, "adamw", "");
    struct bl_update_setup setup = {.params = &params,
                                    .weights = w->weights,
                                    .gradients = w->gradients,
                                    .rules = some_rules,
                                    .rule_count = 1,
                                    .weight_decay = 0.1,
                                    .optimizer = w->bench.instance,
                                    .backend = backend,
                                    .refresh = refresh,
                                    .refresh_context = w};
    if (bl_update_make(&setup, &w->update, &err) != 0)
        fail_msg("%s", err.text);
}

static void close_world(struct world *w)
{
    bl_update_free(w->update);
    bl_bench_stop(&w->bench);
    free(w->gradients);
    free(w->weights);
}

/* The plugin called by hand, parameter by parameter. */
static void by_hand(const struct world *w, float *weights, float *m, float *v, uint64_t step)
{
    for (int p = 0; p < 4; p++) {
        uint64_t o = items[p].offset;
        float *s[2] = {m + o, v + o};
        struct bl_update u = {.size = sizeof(u),
                              .step = step,
                              .count = items[p].count,
                              .key = items[p].key,
                              .weight = weights + o,
                              .gradient = w->gradients + o,
                              .state = s,
                              .gradient_scale = 0.5,
                              .learning_rate = p == 1 ? 0.005 : 0.01,
                              .weight_decay = p == 1 ? 0.0 : 0.1,
                              .epsilon = p == 1 ? 1e-6 : NAN,
                              .update_scale = 1.0};
        w->bench.ops->optimizer.apply(w->bench.self, &u, 0, items[p].count);
    }
}

static void test_apply(void **state)
{
    (void)state;
    struct world w;
    open_world(&w, NULL);
    float *weights = malloc(sizeof(float) * FLOATS), *m = calloc(FLOATS, sizeof(float)),
          *v = calloc(FLOATS, sizeof(float)), *old = malloc(sizeof(float) * FLOATS);
    assert_true(weights != NULL && m != NULL && v != NULL && old != NULL);
    memcpy(weights, w.weights, sizeof(float) * FLOATS);
    assert_int_equal(bl_update_states(w.update), 2);
    assert_string_equal(bl_update_state_name(w.update, 1), "moment2");
    assert_null(bl_update_state_name(w.update, 2));
    assert_null(bl_update_array(w.update, 2));
    assert_true(bl_update_effect(w.update, 1)->lr_scale == 0.5);
    assert_true(isnan(bl_update_squares(w.update, 0)));
    for (uint64_t step = 1; step <= 3; step++) {
        int measure = step == 2;
        memcpy(old, w.weights, sizeof(float) * FLOATS);
        double promised = prepare(w.update, 0.01, 0.5), total = 0.0;
        double q = bl_update_squares(w.update, 1), head = bl_update_squares(w.update, 3);
        assert_memory_equal(w.weights, old, sizeof(float) * FLOATS);
        bl_update_apply(w.update, 0.01, 0.5, 1.0, measure, NULL);
        by_hand(&w, weights, m, v, step);
        assert_memory_equal(w.weights, weights, sizeof(float) * FLOATS);
        assert_memory_equal(bl_update_array(w.update, 0), m, sizeof(float) * FLOATS);
        assert_memory_equal(bl_update_array(w.update, 1), v, sizeof(float) * FLOATS);
        assert_int_equal(bl_update_steps(w.update), step);
        assert_int_equal(w.refreshed, step);
        assert_true(w.offset == 0 && w.count == FLOATS);
        /* Squares as prepared and as measured are the same sum of the same numbers. */
        assert_true(bl_update_squares(w.update, 1) == q);
        assert_true(bl_update_squares(w.update, 3) == head);
        for (uint64_t i = 0; i < PADDING; i++) {
            double d = (double)w.weights[i] - (double)old[i];
            total += d * d;
        }
        assert_true(fabs(promised - total) <= 1e-12 * total); /* 2e5 fp64 terms, another order */
    }
    for (int i = PADDING; i < FLOATS; i++)
        assert_true(w.weights[i] == 0.0f);
    bl_update_skip(w.update);
    assert_true(bl_update_squares(w.update, 3) == 0.0);
    assert_true(isnan(bl_update_squares(w.update, 4)));
    free(old);
    free(v);
    free(m);
    free(weights);
    close_world(&w);
}

static void test_scaled_update(void **state)
{
    (void)state;
    struct world w, half;
    open_world(&w, NULL);
    open_world(&half, NULL);
    double promised = prepare(w.update, 0.01, 1.0), measured = 0.0;
    bl_update_apply(w.update, 0.01, 1.0, 1.0, 0, NULL);
    bl_update_apply(half.update, 0.01, 1.0, 0.5, 1, NULL);
    for (uint64_t p = 0; p < 4; p++)
        measured += bl_update_squares(half.update, p);
    /* Changes of 0.01 on weights of order 1 carry a rounding of 6e-8 / 0.01 each, at random. */
    assert_true(fabs(measured / (0.25 * promised) - 1.0) < 1e-6);
    assert_memory_equal(bl_update_array(w.update, 0), bl_update_array(half.update, 0),
                        sizeof(float) * FLOATS);
    close_world(&half);
    close_world(&w);
}

/* A resume: state arrays and the step count are all there is. */
static void test_resume(void **state)
{
    (void)state;
    struct world a, b;
    open_world(&a, NULL);
    open_world(&b, NULL);
    bl_update_apply(a.update, 0.01, 1.0, 1.0, 0, NULL);
    bl_update_apply(a.update, 0.01, 1.0, 1.0, 0, NULL);
    memcpy(b.weights, a.weights, sizeof(float) * FLOATS);
    for (uint32_t i = 0; i < 2; i++)
        memcpy(bl_update_array(b.update, i), bl_update_array(a.update, i), sizeof(float) * FLOATS);
    bl_update_set_steps(b.update, bl_update_steps(a.update));
    bl_update_apply(a.update, 0.01, 1.0, 1.0, 0, NULL);
    bl_update_apply(b.update, 0.01, 1.0, 1.0, 0, NULL);
    assert_memory_equal(a.weights, b.weights, sizeof(float) * FLOATS);
    assert_int_equal(bl_update_steps(b.update), 3);
    close_world(&b);
    close_world(&a);
}

static void reversed(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t),
                     void *argument)
{
    (void)b;
    while (n-- > 0)
        body(argument, n);
}

static void test_order_of_tasks(void **state)
{
    (void)state;
    struct bl_backend_ops ops = {.parallel_for = reversed};
    struct bl_backend backend = {.ops = &ops};
    struct world a, b;
    open_world(&a, NULL);
    open_world(&b, &backend);
    for (int i = 0; i < 2; i++) {
        double x = prepare(a.update, 0.01, 1.0);
        double y = prepare(b.update, 0.01, 1.0);
        assert_true(x == y);
        bl_update_apply(a.update, 0.01, 1.0, 1.0, i, NULL);
        bl_update_apply(b.update, 0.01, 1.0, 1.0, i, NULL);
        for (uint64_t p = 0; p < 4; p++)
            assert_true(bl_update_squares(a.update, p) == bl_update_squares(b.update, p));
    }
    assert_memory_equal(a.weights, b.weights, sizeof(float) * FLOATS);
    close_world(&b);
    close_world(&a);
}

static void test_refused_rule_makes_nothing(void **state)
{
    (void)state;
    struct bl_bench b;
    struct bl_update_state *u = NULL;
    struct bl_error err = BL_ERROR_INIT;
    const struct bl_rule rule = {"nothing", NAN, NAN, NAN};
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_OPTIMIZER, "sgd", "");
    struct bl_update_setup setup = {
        .params = &params, .rules = &rule, .rule_count = 1, .optimizer = b.instance};
    assert_int_equal(bl_update_make(&setup, &u, &err), -1);
    assert_null(u);
    assert_non_null(strstr(err.text, "\"nothing\""));
    bl_update_free(NULL);
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_warmup),
                                       cmocka_unit_test(test_rules),
                                       cmocka_unit_test(test_apply),
                                       cmocka_unit_test(test_scaled_update),
                                       cmocka_unit_test(test_resume),
                                       cmocka_unit_test(test_order_of_tasks),
                                       cmocka_unit_test(test_refused_rule_makes_nothing)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
