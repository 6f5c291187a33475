/* The parameter table and its initial values. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bl_model_options gpt2_124m(void)
{
    struct bl_model_options o = tiny_options();

    o.layers = 12;
    o.width = 768;
    o.heads = o.kv_heads = 12;
    o.head_dim = 64;
    o.mlp_width = 3072;
    o.context = 1024;
    o.vocab = 50257;
    o.vocab_multiple = 64;
    o.init = BL_INIT_GPT2;
    return o;
}

static struct bl_params make(const struct bl_model_options *o)
{
    struct bl_params p;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_params_make(o, &p, &err) != 0)
        fail_msg("%s", err.text);
    return p;
}

static const struct bl_param *find(const struct bl_params *p, const char *name)
{
    int64_t i = bl_params_find(p, name);

    if (i < 0)
        fail_msg("no parameter %s", name);
    return &p->items[i];
}

static void test_gpt2_has_its_known_size(void **state)
{
    struct bl_model_options o = gpt2_124m();
    struct bl_params p = make(&o);

    (void)state;
    assert_int_equal(p.elements, 124439808);
    assert_int_equal(p.padded_vocab, 50304);
    assert_true(p.floats >= p.elements + 47 * 768);
    assert_true(p.floats < p.elements + 47 * 768 + 16 * p.count);
    /* 6 (12 layers of 12 C^2, and V C) + 6 L T C */
    double want = 6 * (12 * 12 * 768.0 * 768 + 50257 * 768.0) + 6 * 12 * 1024 * 768.0;
    assert_true(bl_model_flops(&o, &p) == want);
    bl_params_free(&p);
}

static int starts(const char *name, const char *what)
{
    return strstr(name, what) != NULL;
}

/* Every table: names unique, slices apart, aligned unless fused, groups by role. */
static void check_table(const struct bl_model_options *o)
{
    struct bl_params p = make(o);
    uint64_t end = 0, elements = 0;

    for (uint64_t i = 0; i < p.count; i++) {
        const struct bl_param *q = &p.items[i];
        int fused = starts(q->name, "attn.k.") || starts(q->name, "attn.v.") ||
                    (o->mlp == BL_SWIGLU && starts(q->name, "mlp.up."));
        assert_int_equal(bl_params_find(&p, q->name), i);
        assert_true(q->offset >= end);
        if (fused)
            assert_int_equal(q->offset, end);
        else
            assert_int_equal(q->offset % 16, 0);
        end = q->offset + q->count;
        if (strcmp(q->name, "embed.weight") == 0 || strcmp(q->name, "head.weight") == 0)
            end = q->offset + p.padded_vocab * q->dims[1];
        assert_int_equal(q->count, q->dims[0] * q->dims[1]);
        elements += q->count;
        uint32_t group = starts(q->name, "norm") ? BL_GROUP_NORM
                         : starts(q->name, "embed") || starts(q->name, "position")
                             ? BL_GROUP_EMBEDDING
                         : strcmp(q->name, "head.weight") == 0 ? BL_GROUP_HEAD
                                                               : BL_GROUP_MATRIX;
        assert_int_equal(q->group, group);
        assert_true((q->init_std == 0) == (q->ndim == 1));
    }
    assert_true(p.floats >= end);
    assert_int_equal(p.elements, elements);
    bl_params_free(&p);
}

static void test_every_layout(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 1024; bits++) {
        struct bl_model_options o = tiny_options();
        o.norm = bits & 1;
        o.norm_placement = bits >> 1 & 3;
        o.position = bits >> 3 & 1;
        o.mlp = bits >> 4 & 1;
        o.qk_norm = (bits >> 5 & 3) % 3;
        o.tied = bits >> 7 & 1;
        o.bias = bits >> 8 & 1;
        o.embedding_norm = bits >> 9 & 1;
        check_table(&o);
    }
}

static void test_names_follow_the_switches(void **state)
{
    struct bl_model_options o = tiny_options();
    struct bl_params p = make(&o);

    (void)state;
    find(&p, "position.weight");
    find(&p, "layers.1.attn.q.bias");
    find(&p, "layers.1.norm2.bias");
    find(&p, "final_norm.bias");
    assert_int_equal(find(&p, "layers.0.attn.q.weight")->dims[0], 24);
    assert_int_equal(find(&p, "layers.0.attn.k.weight")->dims[0], 12);
    assert_int_equal(find(&p, "layers.0.attn.o.weight")->dims[1], 24);
    assert_int_equal(bl_params_find(&p, "head.weight"), -1);
    assert_int_equal(bl_params_find(&p, "layers.0.mlp.gate.weight"), -1);
    assert_int_equal(bl_params_find(&p, "layers.2.norm1.weight"), -1);
    bl_params_free(&p);

    o.norm = BL_RMSNORM;
    o.norm_placement = BL_POST;
    o.position = BL_ROPE;
    o.mlp = BL_SWIGLU;
    o.qk_norm = BL_QK_FULL;
    o.tied = 0;
    p = make(&o);
    assert_int_equal(bl_params_find(&p, "position.weight"), -1);
    assert_int_equal(bl_params_find(&p, "final_norm.weight"), -1);
    assert_int_equal(bl_params_find(&p, "layers.0.norm1.bias"), -1);
    assert_int_equal(find(&p, "layers.0.attn.k_norm.weight")->count, 12);
    assert_true(find(&p, "layers.0.mlp.gate.weight")->offset <
                find(&p, "layers.0.mlp.up.weight")->offset);
    assert_int_equal(find(&p, "head.weight")->dims[0], 19);
    bl_params_free(&p);

    o.norm_placement = BL_PERI;
    o.qk_norm = BL_QK_HEAD;
    p = make(&o);
    find(&p, "layers.1.post_norm2.weight");
    assert_int_equal(find(&p, "layers.0.attn.k_norm.weight")->count, 6);
    bl_params_free(&p);
}

static void refused(struct bl_model_options o, const char *word)
{
    struct bl_params p = {.count = 77};
    struct bl_error err = BL_ERROR_INIT;

    assert_int_equal(bl_params_make(&o, &p, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    if (strstr(err.text, word) == NULL)
        fail_msg("\"%s\" does not name %s", err.text, word);
    assert_int_equal(p.count, 77);
}

static void test_bad_sizes_are_refused(void **state)
{
    struct bl_model_options o = tiny_options();

#define REFUSED(member, value, word)                                                               \
    do {                                                                                           \
        struct bl_model_options bad = o;                                                           \
        bad.member = value;                                                                        \
        refused(bad, word);                                                                        \
    } while (0)
    (void)state;
    REFUSED(layers, 0, "model.layers");
    REFUSED(width, -1, "model.width");
    REFUSED(width, INT64_MAX, "model.width");
    REFUSED(vocab, 0, "model.vocab");
    REFUSED(vocab_multiple, 0, "vocab_multiple");
    REFUSED(kv_heads, 3, "kv_heads");
    REFUSED(heads, (int64_t)1 << 30, "heads");
    REFUSED(norm_eps, NAN, "norm_eps");
    REFUSED(norm_placement, 4, "choice");
    o.position = BL_ROPE;
    REFUSED(head_dim, 5, "head_dim");
    REFUSED(rope_theta, 0, "rope_theta");
    o.width = o.mlp_width = 1 << 28;
    o.layers = 1;
    refused(o, "2^48");
    o = tiny_options();
    o.vocab = (int64_t)1 << 30;
    o.width = (int64_t)1 << 30;
    refused(o, "2^48");
#undef REFUSED
}

static double std_of(const struct bl_params *p, const float *w, const char *name, double *most)
{
    const struct bl_param *q = find(p, name);
    double top = 0;

    for (uint64_t e = 0; e < q->count; e++)
        top = fmax(top, fabs(w[q->offset + e]));
    if (most != NULL)
        *most = top;
    return rms(w + q->offset, q->count);
}

static float *init(const struct bl_params *p, uint64_t seed)
{
    float *w = malloc(p->floats * sizeof(float));

    assert_non_null(w);
    for (uint64_t i = 0; i < p->floats; i++)
        w[i] = NAN;
    bl_params_init(p, seed, w);
    return w;
}

/* An rms of n samples scatters by 1/sqrt(2 n); 5 of that, n >= 96 * 96. */
#define NEAR(x, y) assert_true(fabs((x) / (y)-1) < 5 / sqrt(2 * 96.0 * 96))

static void test_initial_values(void **state)
{
    struct bl_model_options o = tiny_options();
    struct bl_params p;
    float *w, *again;
    double most;

    (void)state;
    o.width = 96;
    o.heads = o.kv_heads = 12;
    o.head_dim = 8;
    o.mlp_width = 200;
    o.vocab = 300;
    o.vocab_multiple = 64;
    o.init = BL_INIT_NORMAL;
    o.init_std = 0.05;
    p = make(&o);
    w = init(&p, 1);
    again = init(&p, 1);
    assert_memory_equal(w, again, p.floats * sizeof(float));
    struct bl_backend *b = make_backend(2);
    memset(again, 1, p.floats * sizeof(float));
    bl_params_init_threads(&p, 1, again, b);
    assert_memory_equal(w, again, p.floats * sizeof(float));
    bl_backend_destroy(b);
    free(again);
    again = init(&p, 2);
    assert_memory_not_equal(w, again, p.floats * sizeof(float));
    free(again);
    NEAR(std_of(&p, w, "embed.weight", NULL), 0.05);
    NEAR(std_of(&p, w, "layers.1.attn.o.weight", &most), 0.05);
    assert_true(most > 3 * 0.05);
    assert_true(std_of(&p, w, "layers.1.norm1.weight", NULL) == 1);
    assert_true(std_of(&p, w, "layers.1.attn.q.bias", NULL) == 0);
    for (uint64_t i = 300 * 96; i < 320 * 96; i++) /* padding rows */
        assert_true(w[i] == 0);
    for (uint64_t i = 0; i < p.floats; i++)
        assert_true(isfinite(w[i]));
    free(w);
    bl_params_free(&p);

    o.init = BL_INIT_GPT2;
    p = make(&o);
    w = init(&p, 1);
    NEAR(std_of(&p, w, "layers.1.attn.q.weight", NULL), 0.05);
    NEAR(std_of(&p, w, "layers.1.attn.o.weight", NULL), 0.05 / 2);
    NEAR(std_of(&p, w, "layers.0.mlp.down.weight", NULL), 0.05 / 2);
    free(w);
    bl_params_free(&p);

    /* Cut at 3, a normal's standard deviation is 0.98658 of what it was. */
    o.init = BL_INIT_MITCHELL;
    p = make(&o);
    w = init(&p, 1);
    NEAR(std_of(&p, w, "embed.weight", &most), 0.98658 / sqrt(96));
    assert_true(most <= 3 / sqrt(96) * (1 + 1e-6) && most > 2.9 / sqrt(96));
    NEAR(std_of(&p, w, "layers.1.mlp.up.weight", NULL), 0.98658 / sqrt(96));
    NEAR(std_of(&p, w, "layers.0.mlp.down.weight", NULL), 0.98658 / sqrt(2 * 200));
    NEAR(std_of(&p, w, "layers.1.mlp.down.weight", NULL), 0.98658 / sqrt(4 * 200));
    NEAR(std_of(&p, w, "layers.1.attn.o.weight", NULL), 0.98658 / sqrt(4 * 96));
    free(w);
    bl_params_free(&p);
}

/* A tensor's values depend on seed, name and element alone: another layer count changes nothing. */
static void test_values_follow_names(void **state)
{
    struct bl_model_options o = tiny_options();
    struct bl_params p = make(&o), p2;
    float *w = init(&p, 5), *w2;

    (void)state;
    o.layers = 3;
    o.norm_placement = BL_PERI;
    p2 = make(&o);
    w2 = init(&p2, 5);
    const struct bl_param *a = find(&p, "layers.1.mlp.up.weight");
    const struct bl_param *b = find(&p2, "layers.1.mlp.up.weight");
    assert_int_not_equal(a->offset, b->offset);
    assert_memory_equal(w + a->offset, w2 + b->offset, a->count * sizeof(float));
    free(w);
    free(w2);
    bl_params_free(&p);
    bl_params_free(&p2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2_has_its_known_size),
        cmocka_unit_test(test_every_layout),
        cmocka_unit_test(test_names_follow_the_switches),
        cmocka_unit_test(test_bad_sizes_are_refused),
        cmocka_unit_test(test_initial_values),
        cmocka_unit_test(test_values_follow_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
