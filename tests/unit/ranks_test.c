/* A run with cluster.emulate = 2 makes, bit for bit, the update of the sum of two gradients, each
 * computed on its own by a model that knows nothing of ranks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/strings.h"
#include "checkpoint/safetensors.h"
#include "data/data.h"
#include "tests/lib/alone.h"

#define SEQUENCES 8
#define CONTEXT   24

static const char config[] =
    "run = { name = \"two\"; steps = 1; eval_tokens = 24; };\n"
    "model = { layers = 2; width = 32; heads = 4; context = 24; tied = false; };\n"
    "data = { source = \"synthetic\"; vocab = 61; };\n"
    "batch = { sequences = 8; micro = 2; };\n"
    "cluster = { emulate = 2; };\n"
    "optimizer = { plugin = \"sgd\"; lr = 0.25; weight_decay = 0.0; };\n"
    "schedule = { plugin = \"constant\"; };\n"
    "monitors = ( ); sinks = ( );\n";

static struct bl_setup *setup(const char *path)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = NULL;
    if (bl_setup_make(path, 0, NULL, 1, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

/* The gradient of sequences [first, first + count) of step 1, in micro-batches of 2. */
static void gradient(const struct bl_setup *s, struct bl_model *m, uint64_t first, uint64_t count)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_rows rows = {0};
    int32_t tokens[2 * CONTEXT], targets[2 * CONTEXT];
    assert_int_equal(bl_rows_make(count * CONTEXT, 0, 0, &rows, &err), 0);
    for (uint64_t i = 0; i < count; i += 2) {
        for (uint64_t k = 0; k < 2; k++) {
            uint64_t index = bl_sample_index(s->info.seed, s->train_info.sequences, first + i + k);
            assert_int_equal(s->train->ops.source.read(s->train->self, index, s->info.vocab,
                                                       tokens + k * CONTEXT, targets + k * CONTEXT,
                                                       &err),
                             0);
        }
        struct bl_pass pass = {.tokens = tokens,
                               .targets = targets,
                               .sequences = 2,
                               .weight = 2.0 / (SEQUENCES * CONTEXT), /* W / N */
                               .accumulate = i > 0,
                               .rows = &rows};
        assert_int_equal(bl_model_train(m, &pass, &err), 0);
    }
    bl_rows_free(&rows);
}

static void test_two_ranks(void **state)
{
    (void)state;
    char folder[] = "/tmp/ballast-ranks-XXXXXX";
    struct bl_error err = BL_ERROR_INIT;
    assert_non_null(mkdtemp(folder));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(bl_write_file("two.cfg", config, strlen(config), &err), 0);

    struct bl_setup *s = setup("two.cfg");
    struct bl_backend *b = NULL;
    struct bl_model *m = NULL;
    assert_int_equal(bl_backend_cpu(2, "auto", &b, &err), 0);
    assert_int_equal(bl_model_make(b, &s->config->model, &s->dials, 2, &m, &err), 0);
    uint64_t n = s->params.floats;
    float *w = bl_model_weights(m), *g = bl_model_gradients(m);
    float *sum = bl_alloc(n, sizeof *sum);
    assert_non_null(sum);
    bl_params_init(&s->params, s->info.seed, w);
    bl_model_refresh(m, 0, n);
    gradient(s, m, 0, SEQUENCES / 2);
    memcpy(sum, g, n * sizeof *sum);
    gradient(s, m, SEQUENCES / 2, SEQUENCES / 2);
    for (uint64_t i = 0; i < n; i++)
        w[i] -=
            0.25f * ((sum[i] + g[i]) * 0.5f); /* every factor a power of two: one rounding each */

    assert_int_equal(train_alone(setup("two.cfg"), 1, &err), 0);
    struct bl_safetensors *file = NULL;
    assert_int_equal(bl_safetensors_open("runs/two/checkpoints/1/model.safetensors", &file, &err),
                     0);
    assert_int_equal(bl_safetensors_count(file), s->params.count);
    for (uint64_t i = 0; i < s->params.count; i++) {
        const struct bl_param *p = &s->params.items[i];
        const struct bl_tensor *t = bl_safetensors_find(file, p->name);
        assert_non_null(t);
        assert_int_equal(t->count, p->count);
        if (memcmp(t->data, w + p->offset, p->count * sizeof *w) != 0)
            fail_msg("%s differs", p->name);
    }
    bl_safetensors_close(file);
    bl_free(sum);
    bl_model_free(m);
    bl_setup_free(s);
    bl_backend_destroy(b);
    char *clean = bl_format("rm -rf %s", folder);
    assert_non_null(clean);
    assert_int_equal(chdir("/"), 0);
    assert_int_equal(system(clean), 0);
    free(clean);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_two_ranks)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
