/* Checkpoints from before state.json said which plan and plugins they belong to. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/strings.h"
#include "checkpoint/internal.h"
#include "tests/lib/alone.h"

static const char config[] = "run = { name = \"r\"; steps = 2; checkpoint_every = 1; };\n"
                             "model = { layers = 1; width = 32; heads = 4; context = 24; };\n"
                             "data = { source = \"synthetic\"; vocab = 61; };\n"
                             "batch = { sequences = 4; };\n"
                             "monitors = ( ); sinks = ( );\n";

static char folder[64];

static int make_folder(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    (void)state;
    strcpy(folder, "/tmp/ballast-resume-XXXXXX");
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

static int train(int fresh, struct bl_error *err)
{
    struct bl_setup *s = NULL;
    memset(err, 0, sizeof *err);
    err->size = sizeof *err;
    if (bl_setup_make("r.cfg", 0, NULL, 1, &s, err) < 0)
        fail_msg("%s", err->text);
    return train_alone(s, fresh, err);
}

/* Changes state.json of step 1, with a checksum that fits. */
static void edit_state(void (*edit)(json_t *root))
{
    static const char path[] = "runs/r/checkpoints/1/state.json";
    char self[24];
    json_t *root = json_load_file(path, 0, NULL);
    assert_non_null(root);
    edit(root);
    assert_int_equal(bl_checkpoint_state_sum(root, self), 0);
    json_object_set_new(root, "self", json_string(self));
    assert_int_equal(json_dump_file(root, path, JSON_INDENT(2)), 0);
    json_decref(root);
}

static int log_has(const char *words)
{
    char *text = NULL;
    size_t n;
    assert_int_equal(bl_read_file("runs/r/log.txt", 1 << 20, &text, &n, NULL), 0);
    int found = 0;
    for (const char *p = text; (p = strstr(p, words)) != NULL; p++)
        found++;
    free(text);
    return found;
}

/* A run as it was after step 1. */
static void half_a_run(void (*edit)(json_t *root))
{
    struct bl_error err;
    assert_int_equal(train(1, &err), 0);
    assert_int_equal(system("rm -r runs/r/checkpoints/2"), 0);
    edit_state(edit);
}

static void forget(json_t *root)
{
    json_object_del(root, "plan");
    json_object_del(root, "loaded");
    json_object_del(root, "config");
}

static void test_without_a_plan(void **state)
{
    struct bl_error err;
    (void)state;
    half_a_run(forget);
    assert_int_equal(train(0, &err), 0);
    assert_int_equal(log_has("checkpoints/1 does not say which plan it belongs to"), 1);
    assert_int_equal(log_has("resuming from"), 1);
    /* with nothing that says it, it is nobody's */
    half_a_run(forget);
    assert_int_equal(unlink("runs/r/config.cfg"), 0);
    assert_int_equal(train(0, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    assert_non_null(strstr(err.text, "does not say which plan it belongs to, and there is no"));
}

static void other_plan(json_t *root)
{
    json_object_set_new(root, "plan", json_string("0123456789abcdef"));
    json_object_del(root, "config");
}

/* A program with fewer keys makes another hash of the same plan: config.cfg says that it is. */
static void test_of_an_older_program(void **state)
{
    struct bl_error err;
    (void)state;
    half_a_run(other_plan);
    assert_int_equal(train(0, &err), 0);
    assert_int_equal(log_has("resuming from"), 1);
}

static void test_of_another_plan(void **state)
{
    struct bl_error err;
    (void)state;
    half_a_run(other_plan);
    assert_int_equal(unlink("runs/r/config.cfg"), 0);
    assert_int_equal(train(0, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    assert_non_null(strstr(err.text, "another plan (0123456789abcdef there"));
    assert_int_equal(log_has("error runs/r/checkpoints/1 belongs to another plan"), 1);
}

static void bad_plan(json_t *root)
{
    json_object_set_new(root, "plan", json_string("0123456789ABCDEF"));
}

static void bad_sum(json_t *root)
{
    json_object_set_new(json_object_get(root, "loaded"), "guard.x", json_integer(3));
}

static void test_no_checksums(void **state)
{
    struct bl_error err;
    (void)state;
    half_a_run(bad_plan);
    assert_int_equal(train(0, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    assert_non_null(strstr(err.text, "\"plan\" is no checksum"));
    half_a_run(bad_sum);
    assert_int_equal(train(0, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    assert_non_null(strstr(err.text, "guard.x"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_without_a_plan),
        cmocka_unit_test(test_of_an_older_program),
        cmocka_unit_test(test_of_another_plan),
        cmocka_unit_test(test_no_checksums),
    };
    return cmocka_run_group_tests_name("resume", tests, make_folder, remove_folder);
}
