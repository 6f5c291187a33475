/* A run whose plugins are replaced by functions of this file: what the step loop makes of a guard
 * that skips, and what is refused before anything runs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/strings.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/safetensors.h"
#include "tests/lib/alone.h"

static const char config[] =
    "run = { name = \"r\"; steps = 2; eval_tokens = 24; };\n"
    "model = { layers = 1; width = 32; heads = 4; context = 24; };\n"
    "data = { source = \"synthetic\"; vocab = 61; };\n"
    "batch = { sequences = 4; };\n"
    "schedule = { plugin = \"constant\"; };\n"
    "guards = ( { plugin = \"clip_norm\"; }, { plugin = \"clip_norm\"; name = \"later\"; },\n"
    "           { plugin = \"clip_update_norm\"; } );\n"
    "monitors = ( ); sinks = ( );\n";

static char folder[64];

static int make_folder(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    strcpy(folder, "/tmp/ballast-setup-XXXXXX");
    return mkdtemp(folder) && chdir(folder) == 0 &&
                   bl_write_file("r.cfg", config, strlen(config), &err) == 0
               ? 0
               : -1;
}

static int remove_folder(void **state)
{
    char command[128];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return chdir("/") == 0 && system(command) == 0 ? 0 : -1;
}

static struct bl_setup *setup(const char *override)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = NULL;
    char *const list[] = {(char *)(uintptr_t) override};
    if (bl_setup_make("r.cfg", 1, list, 1, &s, &err) < 0)
        fail_msg("%s", err.text);
    return s;
}

static void test_update_guard_needs_prepare(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = setup("run.steps=1");
    (void)state;
    s->optimizer->ops.optimizer.prepare = NULL;
    assert_int_equal(bl_setup_create(s, &err), -1);
    assert_int_equal(err.code, BL_EXIT_PLUGIN);
    assert_non_null(strstr(err.text, "adamw has no op `prepare`"));
    bl_setup_free(s);

    s = setup("guards=({plugin=\"clip_update_norm\";window=0;})"); /* null: it judges nothing */
    s->optimizer->ops.optimizer.prepare = NULL;
    assert_int_equal(bl_setup_create(s, &err), 0);
    bl_setup_free(s);
}

static int32_t project(void *self, const struct bl_host *host, struct bl_tensor *gradient,
                       struct bl_error *err)
{
    (void)self;
    (void)host;
    (void)gradient;
    (void)err;
    return 0;
}

static void test_gradient_projection_needs_an_untied_head(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = setup("regularizers=({plugin=\"z_loss\";})");
    (void)state;
    s->regularizers.items[0]->ops.regularizer.project_grad = project;
    assert_int_equal(bl_setup_create(s, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_non_null(strstr(err.text, "model.tied = false"));
    s->info.tied = 0;
    assert_int_equal(bl_setup_create(s, &err), 0);
    bl_setup_free(s);
}

static int asked; /* calls of the guard behind the one that skips */

static int32_t skip_second(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                           struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    (void)self;
    (void)host;
    (void)changed;
    (void)err;
    out->skip = in->step == 2;
    return 0;
}

static int32_t count(void *self, const struct bl_host *host, const struct bl_guard_input *in,
                     struct bl_verdict *out, uint32_t *changed, struct bl_error *err)
{
    (void)self;
    (void)host;
    (void)in;
    (void)out;
    (void)changed;
    (void)err;
    asked++;
    return 0;
}

/* Weights and moments of the checkpoint after `step`, all bytes. */
static char *file_of(int step, const char *name, size_t *n)
{
    struct bl_error err = BL_ERROR_INIT;
    char path[128], *bytes = NULL;
    snprintf(path, sizeof path, "runs/r/checkpoints/%d/%s", step, name);
    if (bl_read_file(path, (size_t)1 << 24, &bytes, n, &err) < 0)
        fail_msg("%s", err.text);
    return bytes;
}

static void test_a_skipped_update_changes_nothing(void **state)
{
    static const char *const files[] = {"model.safetensors", "optimizer-1-of-1.safetensors",
                                        "plugins.safetensors"};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_setup *s = setup("run.checkpoint_every=1");
    (void)state;
    asked = 0;
    s->guards.items[0]->ops.guard.gradient = skip_second;
    s->guards.items[1]->ops.guard.gradient = count;
    if (train_alone(s, 1, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(asked, 1); /* nobody is asked about a step that is skipped already */
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        size_t n = 0, m = 0;
        char *a = file_of(1, files[i], &n), *b = file_of(2, files[i], &m);
        assert_int_equal(n, m);
        assert_memory_equal(a, b, n);
        free(a);
        free(b);
    }
    struct bl_checkpoint_reader *reader = NULL;
    assert_int_equal(bl_checkpoint_open("runs/r/checkpoints/2", &reader, &err), 0);
    assert_int_equal(bl_checkpoint_info(reader)->step, 2);
    assert_int_equal(bl_checkpoint_info(reader)->updates, 1);
    bl_checkpoint_close(reader);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_update_guard_needs_prepare),
        cmocka_unit_test(test_gradient_projection_needs_an_untied_head),
        cmocka_unit_test(test_a_skipped_update_changes_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
