/* Whole runs: the dials wire, sum and average with cluster.emulate = 2, 3 and 4, and the dials
 * gradient and accumulate with twelve micro-batches, at the top level and for one group, change the
 * update to exactly the bits of a scalar reference, and no other group's. The gradients of the
 * parts come from a model that knows of one part only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "checkpoint/safetensors.h"
#include "data/data.h"
#include "tests/lib/alone.h"

#define SEQUENCES 12
#define CONTEXT   12
#define MOST      SEQUENCES /* parts of a batch: ranks or micro-batches */
#define LR        0.25f

static const char config[] =
    "run = { name = \"r\"; steps = 1; eval_tokens = 12; threads = 1; };\n"
    "model = { layers = 1; width = 16; heads = 2; context = 12; tied = false; };\n"
    "data = { source = \"synthetic\"; vocab = 31; };\n"
    "batch = { sequences = 12; micro = 1; };\n"
    "optimizer = { plugin = \"sgd\"; lr = 0.25; weight_decay = 0.0; };\n"
    "schedule = { plugin = \"constant\"; };\n"
    "guards = ( ); monitors = ( ); sinks = ( );\n";

static struct bl_setup *setup(const char *const *overrides, int count)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = NULL;
    char *list[8];
    assert_true(count <= 8);
    for (int i = 0; i < count; i++)
        list[i] = bl_format("%s", overrides[i]);
    if (bl_setup_make("r.cfg", count, list, 1, &s, &err) < 0)
        fail_msg("%s", err.text);
    for (int i = 0; i < count; i++)
        free(list[i]);
    return s;
}

/* Gradient of sequences [first, first + count) of step 1, one micro-batch each. */
static void gradient(const struct bl_setup *s, struct bl_model *m, uint64_t first, uint64_t count,
                     float *out)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_rows rows = {0};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    assert_int_equal(bl_rows_make(count * CONTEXT, 0, 0, &rows, &err), 0);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t index = bl_sample_index(s->info.seed, s->train_info.sequences, first + i);
        assert_int_equal(
            s->train->ops.source.read(s->train->self, index, s->info.vocab, tokens, targets, &err),
            0);
        struct bl_pass pass = {.tokens = tokens,
                               .targets = targets,
                               .sequences = 1,
                               .weight = (double)s->ranks / (SEQUENCES * CONTEXT),
                               .accumulate = i > 0,
                               .rows = &rows};
        assert_int_equal(bl_model_train(m, &pass, &err), 0);
    }
    memcpy(out, bl_model_gradients(m), s->params.floats * sizeof(float));
    bl_rows_free(&rows);
}

/* By arithmetic: 8 significant bits, down to a unit of 2^-133. */
static float rounded(uint32_t dtype, float x)
{
    int exponent;
    if (dtype != BL_BF16 || x == 0.0f)
        return x;
    double fraction = frexp((double)x, &exponent);
    int bits = exponent - 8 < -133 ? exponent + 133 : 8;
    return (float)ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

/* What reduce.h says about one element. */
static float reduced(const uint32_t *dial, int ranks, const float *x)
{
    uint32_t wire = dial[BL_DIAL_WIRE], sum = dial[BL_DIAL_SUM];
    int factor = 1;
    float a = 0;
    while (ranks % factor == 0 && ranks / factor > factor)
        factor *= 2;
    for (int r = 0; r < ranks; r++) {
        float y = rounded(wire, x[r]);
        if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_DIVIDE_FIRST)
            y = rounded(wire, y / (float)ranks);
        else if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREMULTIPLY)
            y = rounded(wire, y * rounded(wire, 1.0f / (float)ranks));
        else if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREDIVIDE)
            y = rounded(wire, y / (float)factor);
        a = rounded(sum, r == 0 ? y : a + y);
    }
    a = rounded(wire, a); /* what travels back */
    if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_DIVIDE)
        a = rounded(sum, a / (float)ranks);
    else if (dial[BL_DIAL_AVERAGE] == BL_AVERAGE_PREDIVIDE)
        a = rounded(sum, a / ((float)ranks / (float)factor));
    return a;
}

/* What precision.h says about micro-batches. */
static float accumulated(const uint32_t *dial, int count, const float *x)
{
    float a = 0;
    for (int i = 0; i < count; i++) {
        float y = rounded(dial[BL_DIAL_GRADIENT], x[i]);
        a = rounded(dial[BL_DIAL_ACCUMULATE], i == 0 ? y : a + y);
    }
    return a;
}

struct parts { /* the batch as ranks, or as micro-batches of one rank */
    int count, ranks;
    float *initial, *gradients[MOST];
};

static float combined(const struct parts *r, const uint32_t *dial, const float *x)
{
    return r->ranks > 1 ? reduced(dial, r->count, x) : accumulated(dial, r->count, x);
}

static struct parts make_parts(int count, int ranks)
{
    struct parts r = {.count = count, .ranks = ranks};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_backend *b = NULL;
    struct bl_model *m = NULL;
    char emulate[32];
    snprintf(emulate, sizeof(emulate), "cluster.emulate=%d", ranks);
    const char *overrides[] = {emulate};
    struct bl_setup *s = setup(overrides, 1);
    uint64_t n = s->params.floats, share = SEQUENCES / (uint64_t)count;
    assert_int_equal(bl_backend_cpu(1, "auto", &b, &err), 0);
    assert_int_equal(bl_model_make(b, &s->config->model, &s->dials, 1, &m, &err), 0);
    bl_params_init(&s->params, s->info.seed, bl_model_weights(m));
    bl_model_refresh(m, 0, n);
    r.initial = bl_alloc(n, sizeof(float));
    assert_non_null(r.initial);
    memcpy(r.initial, bl_model_weights(m), n * sizeof(float));
    for (int i = 0; i < count; i++) {
        r.gradients[i] = bl_alloc(n, sizeof(float));
        assert_non_null(r.gradients[i]);
        gradient(s, m, (uint64_t)i * share, share, r.gradients[i]);
    }
    bl_model_free(m);
    bl_setup_free(s);
    bl_backend_destroy(b);
    return r;
}

static void free_parts(struct parts *r)
{
    for (int i = 0; i < r->count; i++)
        bl_free(r->gradients[i]);
    bl_free(r->initial);
}

/* One run, all weights against the reference of its dials. Answers which groups' updates differ
 * from those of fp32 and divide, a bit each. */
static uint32_t check(const struct parts *r, const char *const *dials, int count)
{
    struct bl_error err = BL_ERROR_INIT;
    const char *overrides[8];
    char emulate[32];
    uint32_t plain[BL_DIAL_COUNT], differs = 0;
    snprintf(emulate, sizeof(emulate), "cluster.emulate=%d", r->ranks);
    overrides[0] = emulate;
    memcpy(overrides + 1, dials, (size_t)count * sizeof(*dials));
    for (uint32_t d = 0; d < BL_DIAL_COUNT; d++)
        plain[d] = bl_dial_default(d);
    struct bl_setup *s = setup(overrides, count + 1);
    struct bl_safetensors *file = NULL;
    if (train_alone(setup(overrides, count + 1), 1, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(bl_safetensors_open("runs/r/checkpoints/1/model.safetensors", &file, &err), 0);
    for (uint64_t i = 0; i < s->params.count; i++) {
        const struct bl_param *p = &s->params.items[i];
        const struct bl_tensor *t = bl_safetensors_find(file, p->name);
        assert_non_null(t);
        for (uint64_t e = 0; e < p->count; e++) {
            float x[MOST], w = r->initial[p->offset + e], got = ((const float *)t->data)[e];
            for (int k = 0; k < r->count; k++)
                x[k] = r->gradients[k][p->offset + e];
            float want = w - LR * combined(r, s->dials.dial[p->group], x);
            if (memcmp(&got, &want, sizeof(want)) != 0)
                fail_msg("%s %s, %d ranks: %s element %llu is %.9g, wanted %.9g", dials[0],
                         count > 1 ? dials[1] : "", r->ranks, p->name, (unsigned long long)e,
                         (double)got, (double)want);
            differs |= (uint32_t)(got != w - LR * combined(r, plain, x)) << p->group;
        }
    }
    bl_safetensors_close(file);
    bl_setup_free(s);
    return differs;
}

#define ALL ((1u << BL_GROUP_COUNT) - 1)

static void test_everywhere(void **state)
{
    static const char *const averages[] = {
        "precision.average=\"divide\"", "precision.average=\"divide_first\"",
        "precision.average=\"premultiply\"", "precision.average=\"predivide\""};
    static const char *const formats[] = {"precision.wire=\"bf16\"", "precision.sum=\"bf16\""};

    (void)state;
    for (int ranks = 2; ranks <= 4; ranks++) {
        struct parts r = make_parts(ranks, ranks);
        for (int average = 0; average < 4; average++)
            for (int bits = 0; bits < 4; bits++) {
                const char *dials[3] = {averages[average]};
                int n = 1;
                for (int k = 0; k < 2; k++)
                    if (bits >> k & 1)
                        dials[n++] = formats[k];
                uint32_t differs = check(&r, dials, n);
                if (bits != 0)
                    assert_int_equal(differs, ALL);
                else if (average == 0 || average == 3 || ranks != 3) /* / 2 rounds nothing */
                    assert_int_equal(differs, 0);
                else
                    assert_true(differs != 0);
            }
        free_parts(&r);
    }
}

static void test_one_group(void **state)
{
    (void)state;
    struct parts r = make_parts(3, 3);
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        static const char *const values[][2] = {
            {"wire", "bf16"}, {"sum", "bf16"}, {"average", "premultiply"}};
        for (size_t k = 0; k < sizeof(values) / sizeof(values[0]); k++) {
            char *dial =
                bl_format("precision.%s.%s=\"%s\"", bl_group_name(g), values[k][0], values[k][1]);
            const char *dials[] = {dial};
            assert_int_equal(check(&r, dials, 1), 1u << g);
            free(dial);
        }
        /* The group's word wins over the top level's. */
        char *back = bl_format("precision.%s.wire=\"fp32\"", bl_group_name(g));
        const char *dials[] = {"precision.wire=\"bf16\"", back};
        assert_int_equal(check(&r, dials, 2), ALL & ~(1u << g));
        free(back);
    }
    free_parts(&r);
}

/* Twelve micro-batches of one rank. Where no dial rounds, a product adds to the gradient in the
 * arena and the order of the sums is another one: each combination here has one that does. */
static void test_micro_batches(void **state)
{
    static const char *const dials[][2] = {
        {"precision.gradient=\"bf16\"", NULL},
        {"precision.accumulate=\"bf16\"", NULL},
        {"precision.gradient=\"bf16\"", "precision.accumulate=\"bf16\""},
        {"precision.gradient=\"bf16\"", "precision.head.gradient=\"fp32\""},
        {"precision.accumulate=\"bf16\"", "precision.norm.accumulate=\"fp32\""},
        {"precision.matrix.gradient=\"bf16\"", NULL},
        {"precision.embedding.accumulate=\"bf16\"", NULL},
    };
    static const uint32_t groups[] = {ALL,
                                      ALL,
                                      ALL,
                                      ALL & ~(1u << BL_GROUP_HEAD),
                                      ALL & ~(1u << BL_GROUP_NORM),
                                      1u << BL_GROUP_MATRIX,
                                      1u << BL_GROUP_EMBEDDING};

    (void)state;
    struct parts r = make_parts(SEQUENCES, 1);
    for (size_t i = 0; i < sizeof(dials) / sizeof(dials[0]); i++)
        assert_int_equal(check(&r, dials[i], dials[i][1] != NULL ? 2 : 1), groups[i]);
    free_parts(&r);
}

static char folder[] = "/tmp/ballast-rank-dials-XXXXXX";

static int enter(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    return mkdtemp(folder) == NULL || chdir(folder) != 0 ||
           bl_write_file("r.cfg", config, strlen(config), &err) != 0;
}

static int leave(void **state)
{
    (void)state;
    char *clean = bl_format("rm -rf %s", folder);
    int rc = clean == NULL || chdir("/") != 0 || system(clean) != 0;
    free(clean);
    return rc;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everywhere),
        cmocka_unit_test(test_one_group),
        cmocka_unit_test(test_micro_batches),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
