/* Presets have the published sizes; what a model takes is known before it is made; an error that an
 * override caused names it. */
#include "model_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "config/presets.h"

static int read_with(const char *text, const char *override, struct bl_config **out,
                     struct bl_error *err)
{
    char path[] = "/tmp/presets_test.XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    char *overrides[] = {(char *)(uintptr_t) override};
    int rc = bl_config_read(path, override != NULL, overrides, 1, out, err);
    unlink(path);
    return rc;
}

static struct bl_config *read_good(const char *text, const char *override)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_config *c;
    if (read_with(text, override, &c, &err) != 0)
        fail_msg("%s", err.text);
    return c;
}

static struct bl_config *read_preset(const char *name)
{
    char text[128];
    snprintf(text, sizeof text, "model = { preset = \"%s\"; };", name);
    return read_good(text, NULL);
}

/* ---- sizes ---- */

/* GPT-2's block: q, k, v, o and their biases 4 C^2 + 4 C; MLP 8 C^2 + 5 C; two layernorms 4 C.
 * Tables of tokens and positions; a last layernorm 2 C. `tables`: 1 tied, 2 with a head. */
static uint64_t gpt(uint64_t blocks, uint64_t c, uint64_t context, uint64_t tables)
{
    return tables * 50257 * c + context * c + blocks * (12 * c * c + 13 * c) + 2 * c;
}

/* Llama's block: q, o 2 C^2; k, v 2 C K; gate, up, down 3 C F; two RMSNorms 2 C. A last one. */
static uint64_t llama(uint64_t blocks, uint64_t c, uint64_t k, uint64_t f, uint64_t vocab,
                      uint64_t tables)
{
    return tables * vocab * c + blocks * (2 * c * c + 2 * c * k + 3 * c * f + 2 * c) + c;
}

/* OLMo 2's block: q, k, v, o 4 C^2; gate, up, down 3 C F; norms of q, k and both branches 4 C. */
static uint64_t olmo2(uint64_t blocks, uint64_t c, uint64_t f)
{
    return 2 * 100352 * c + blocks * (4 * c * c + 3 * c * f + 4 * c) + c;
}

static void sizes_are_the_published_ones(void **state)
{
    const struct {
        const char *name;
        uint64_t formula, published; /* published: of the checkpoints; 0 = there is none */
    } rows[] = {
        {"gpt2-124m", gpt(12, 768, 1024, 1), 124439808},
        {"gpt2-355m", gpt(24, 1024, 1024, 1), 354823168},
        {"gpt2-774m", gpt(36, 1280, 1024, 1), 774030080},
        {"gpt2-1558m", gpt(48, 1600, 1024, 1), 1557611200},
        {"llama-1b", llama(16, 2048, 8 * 64, 8192, 128256, 1), 1235814400},
        {"llama-7b", llama(32, 4096, 4096, 11008, 32000, 2), 6738415616},
        {"olmo2-1b", olmo2(16, 2048, 8192), 1484916736},
        {"olmo2-7b", olmo2(32, 4096, 11008), 7298617344},
        {"seed-125m", gpt(24, 768, 2048, 2), 0},
        {"seed-1.3b", gpt(48, 2048, 2048, 2), 0},
    };
    (void)state;
    assert_int_equal(sizeof rows / sizeof *rows, BL_PRESETS);
    for (size_t i = 0; i < BL_PRESETS; i++) {
        struct bl_config *c = read_preset(rows[i].name);
        struct bl_error err = BL_ERROR_INIT;
        struct bl_params p;
        assert_string_equal(bl_presets[i].name, rows[i].name);
        if (bl_params_make(&c->model, &p, &err) != 0)
            fail_msg("%s", err.text);
        if (p.elements != rows[i].formula || (rows[i].published && p.elements != rows[i].published))
            fail_msg("%s: %llu parameters, not %llu = %llu", rows[i].name,
                     (unsigned long long)p.elements, (unsigned long long)rows[i].formula,
                     (unsigned long long)rows[i].published);
        bl_params_free(&p);
        bl_config_free(c);
    }
}

/* What a parameter count does not see. */
static void switches_are_the_published_ones(void **state)
{
    const struct {
        const char *name;
        int64_t context, heads, head_dim;
        int norm, placement, position, mlp, qk_norm, tied, init;
        double eps, theta;
    } rows[] = {
        {"gpt2-124m", 1024, 12, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 1,
         BL_INIT_GPT2, 1e-5, 0},
        {"gpt2-355m", 1024, 16, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 1,
         BL_INIT_GPT2, 1e-5, 0},
        {"gpt2-774m", 1024, 20, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 1,
         BL_INIT_GPT2, 1e-5, 0},
        {"gpt2-1558m", 1024, 25, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 1,
         BL_INIT_GPT2, 1e-5, 0},
        {"llama-1b", 8192, 32, 64, BL_RMSNORM, BL_PRE, BL_ROPE, BL_SWIGLU, BL_QK_OFF, 1,
         BL_INIT_NORMAL, 1e-5, 5e5},
        {"llama-7b", 4096, 32, 128, BL_RMSNORM, BL_PRE, BL_ROPE, BL_SWIGLU, BL_QK_OFF, 0,
         BL_INIT_NORMAL, 1e-5, 1e4},
        {"olmo2-1b", 4096, 16, 128, BL_RMSNORM, BL_REORDERED, BL_ROPE, BL_SWIGLU, BL_QK_FULL, 0,
         BL_INIT_NORMAL, 1e-6, 5e5},
        {"olmo2-7b", 4096, 32, 128, BL_RMSNORM, BL_REORDERED, BL_ROPE, BL_SWIGLU, BL_QK_FULL, 0,
         BL_INIT_NORMAL, 1e-6, 5e5},
        {"seed-125m", 2048, 12, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 0,
         BL_INIT_GPT2, 1e-5, 0},
        {"seed-1.3b", 2048, 32, 64, BL_LAYERNORM, BL_PRE, BL_LEARNED, BL_GELU, BL_QK_OFF, 0,
         BL_INIT_GPT2, 1e-5, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bl_config *c = read_preset(rows[i].name);
        const struct bl_model_options *m = &c->model;
        assert_int_equal(m->context, rows[i].context);
        assert_int_equal(m->heads, rows[i].heads);
        assert_int_equal(m->head_dim, rows[i].head_dim);
        assert_int_equal(m->norm, rows[i].norm);
        assert_int_equal(m->norm_placement, rows[i].placement);
        assert_int_equal(m->position, rows[i].position);
        assert_int_equal(m->mlp, rows[i].mlp);
        assert_int_equal(m->qk_norm, rows[i].qk_norm);
        assert_int_equal(m->tied, rows[i].tied);
        assert_int_equal(m->init, rows[i].init);
        assert_true(m->norm_eps == rows[i].eps && m->init_std == 0.02);
        assert_true(rows[i].theta == 0 || m->rope_theta == rows[i].theta);
        bl_config_free(c);
    }
}

static void overridden_keys_are_named(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text text = {0};
    (void)state;
    /* norm_eps is written as the preset has it, in other digits: no change. */
    struct bl_config *c = read_good("model = { preset = \"olmo2-7b\"; norm_eps = 0.000001;\n"
                                    "tied = true; qk_norm = \"off\"; kv_heads = 8; };",
                                    "model.layers=4");
    assert_int_equal(bl_preset_overrides(c, &text, &err), 0);
    assert_string_equal(text.text, "  layers = 4 (preset: 32)\n"
                                   "  qk_norm = \"off\" (preset: \"full\")\n"
                                   "  tied = true (preset: false)\n");
    bl_text_free(&text);
    bl_config_free(c);

    c = read_good("model = { layers = 2; };", NULL);
    assert_int_equal(bl_preset_overrides(c, &text, &err), 0);
    assert_null(text.text);
    bl_config_free(c);
}

/* ---- memory ---- */

static void expect_size(struct fixture *f, const struct bl_model_options *o,
                        const struct bl_precision *p, uint64_t micro,
                        const struct bl_head_hooks *hooks, int split, const char *when)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_model_bytes b;
    if (bl_model_size(f->backend, o, p, micro, hooks, split, &b, &err) != 0)
        fail_msg("%s", err.text);
    if (b.total != bl_model_memory(f->model))
        fail_msg("%s: %llu bytes predicted, %llu taken", when, (unsigned long long)b.total,
                 (unsigned long long)bl_model_memory(f->model));
    assert_int_equal(b.total, b.weights + b.working + b.gradients + b.activations + b.head);
}

static void prediction_is_what_a_model_takes(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 96; i++) {
        struct bl_model_options o = switched_options(i);
        struct bl_precision p = all_fp32();
        uint64_t micro = 1 + i % 3;
        if (i % 3 == 1)
            p.dial[BL_GROUP_MATRIX][BL_DIAL_COMPUTE] = BL_BF16;
        if (i % 4 >= 2)
            p.dial[BL_GROUP_HEAD][BL_DIAL_GRADIENT] = BL_BF16;
        struct fixture *f = fixture_make(&o, &p, 6, micro, 1, 1);
        expect_size(f, &o, &p, micro, NULL, 0, "made");

        struct terms terms = {.a_lse = i % 2 ? 0.1 : 0};
        for (uint64_t t = 0; t < i % 4 && t < 3; t++)
            terms.kinds[t] = 1 + (uint32_t)((i + t) % 2);
        struct bl_head_hooks hooks = hooks_of(&terms);
        if (i % 5 == 0)
            hooks.rows = NULL;
        int split = i % 2;
        fixture_train(f, micro, &hooks, (uint32_t)split);
        expect_size(f, &o, &p, micro, &hooks, split, "trained");
        fixture_train(f, micro, &hooks, (uint32_t)split);
        expect_size(f, &o, &p, micro, &hooks, split, "trained twice");
        fixture_free(f);
    }
}

/* ---- errors of several keys ---- */

static void an_override_that_breaks_a_check_is_named(void **state)
{
    static const char text[] = "model = {\n width = 96;\n heads = 6;\n context = 64; };\n"
                               "batch = {\n sequences = 8; };\ncluster = {\n emulate = 4; };\n";
    static const char tokens[] = "model = {\n context = 64; };\nbatch = {\n tokens = 128; };\n";
    const struct {
        const char *text, *override, *message;
    } rows[] = {
        {text, "model.width=100", "command line: model.width=100: model: width 100 is not"},
        {text, "model.heads=7", "command line: model.heads=7: model: width 96 is not"},
        {text, "model.kv_heads=4", "command line: model.kv_heads=4: model: heads 6"},
        {text, "model.position=\"rope\"", NULL},
        {text, "cluster.emulate=3", "command line: cluster.emulate=3: batch: 8 sequences"},
        {text, "batch.sequences=6", "command line: batch.sequences=6: batch: 6 sequences"},
        {tokens, "model.context=60", "command line: model.context=60: batch: tokens 128"},
        {tokens, "batch={tokens=100;}", "command line: batch={tokens=100;}: batch: tokens 100"},
        {tokens, "run.seed=(1,\n2)", "command line: run.seed=(1, 2): run: seed expects"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_config *c;
        int rc = read_with(rows[i].text, rows[i].override, &c, &err);
        if (rows[i].message == NULL) {
            assert_int_equal(rc, 0);
            bl_config_free(c);
        } else if (rc == 0 || strncmp(err.text, rows[i].message, strlen(rows[i].message)) != 0) {
            fail_msg("%s: %s", rows[i].override, rc == 0 ? "accepted" : err.text);
        }
    }
    /* An override that has no part in it is not blamed. */
    struct bl_error err = BL_ERROR_INIT;
    struct bl_config *c;
    assert_int_equal(
        read_with("model = {\n width = 96;\n heads = 7; };", "model.layers=3", &c, &err), -1);
    assert_non_null(strstr(err.text, ":3: model: width 96"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_the_published_ones),
        cmocka_unit_test(switches_are_the_published_ones),
        cmocka_unit_test(overridden_keys_are_named),
        cmocka_unit_test(prediction_is_what_a_model_takes),
        cmocka_unit_test(an_override_that_breaks_a_check_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
