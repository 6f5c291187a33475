/* What makes two configurations one plan. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <string.h>

#include "config/plan.h"

static const char base[] =
    "run = { name = \"a\"; dir = \"runs\"; seed = 1; steps = 10; keep = 3; threads = 2; };\n"
    "optimizer = { plugin = \"adamw\"; lr = 3e-4; betas = ( 0.9, 0.95 );\n"
    "    rules = ( { match = \"*norm*\"; weight_decay = 0.0; } ); };\n"
    "guards = ( { plugin = \"clip_norm\"; name = \"clip_norm\"; max = 1.0; } );\n"
    "sinks = ( { plugin = \"jsonl\"; name = \"jsonl\"; } );\n"
    "alarms = ( );\n"
    "plugin_path = ( );\n";

/* `base` with one piece replaced. */
static const char *with(const char *from, const char *to)
{
    static char text[2000];
    const char *at = strstr(base, from);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - base), base, to, at + strlen(from));
    return text;
}

static uint64_t hash(const char *text)
{
    struct bl_error err = BL_ERROR_INIT;
    uint64_t h = 0;
    if (bl_plan_hash(text, &h, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(h != 0);
    return h;
}

static void same(const char *from, const char *to)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text t = {0};
    const char *text = with(from, to);
    assert_int_equal(bl_plan_compare(base, "base", text, &t, &err), 0);
    assert_true(hash(base) == hash(text));
    bl_text_free(&t);
}

static void other(const char *from, const char *to, const char *message)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text t = {0};
    const char *text = with(from, to);
    assert_int_equal(bl_plan_compare(base, "base", text, &t, &err), 1);
    assert_string_equal(t.text, message);
    assert_true(hash(base) != hash(text));
    bl_text_free(&t);
}

static void test_free_keys(void **state)
{
    (void)state;
    same("name = \"a\"", "name = \"b\"");
    same("dir = \"runs\"", "dir = \"elsewhere\"");
    same("keep = 3; threads = 2;", "keep = 4; threads = 8; eval_every = 5;");
    same("{ plugin = \"jsonl\"; name = \"jsonl\"; }", "");
    same("alarms = ( );", "alarms = ( { metric = \"loss/ce\"; above = 9.0; } );");
    same("plugin_path = ( );", "plugin_path = ( \".\" );");
    same("alarms = ( );\n", "# nothing\n\n");
}

static void test_differences(void **state)
{
    (void)state;
    other("seed = 1", "seed = 2", "run.seed is 1 there, 2 now");
    other("lr = 3e-4", "lr = 1e-3", "optimizer.lr is 0.0003 there, 0.001 now");
    other("\"adamw\"", "\"sgd\"", "optimizer.plugin is \"adamw\" there, \"sgd\" now");
    other("0.95", "0.99", "optimizer.betas[1] is 0.95 there, 0.99 now");
    other("0.9, 0.95", "0.9", "optimizer.betas is a list of 2 there, a list of 1 now");
    other("weight_decay = 0.0;", "weight_decay = 0.1;",
          "optimizer.rules[0].weight_decay is 0.0 there, 0.1 now");
    other("weight_decay = 0.0;", "", "optimizer.rules[0].weight_decay is 0.0 there, absent now");
    other("weight_decay = 0.0;", "weight_decay = 0.0; eps = 1e-6;",
          "optimizer.rules[0].eps is absent there, 1e-6 now");
    other("{ plugin = \"clip_norm\"; name = \"clip_norm\"; max = 1.0; }", "",
          "guards is a list of 1 there, a list of 0 now");
    other("max = 1.0", "max = 1", "guards[0].max is 1.0 there, 1 now");
    /* the same name elsewhere is no free key */
    other("name = \"clip_norm\"", "name = \"other\"",
          "guards[0].name is \"clip_norm\" there, \"other\" now");
}

/* 0: one plan; `text` is read as the configuration of now. */
static int compared(const char *there, const char *now, const char *message)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text t = {0};
    int rc = bl_plan_compare(there, "base", now, &t, &err);
    if (message != NULL)
        assert_string_equal(t.text, message);
    bl_text_free(&t);
    return rc;
}

static void listed(const char *there, const char *now, const char *lines)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text t = {0};
    assert_int_equal(bl_plan_differences(there, "base", now, &t, &err), 0);
    if (lines == NULL)
        assert_null(t.text);
    else
        assert_string_equal(t.text, lines);
    bl_text_free(&t);
}

/* Keys that only one of two programs knows make no other plan, but for a value that is not the
 * known default. */
static void test_new_keys(void **state)
{
    static const char cluster[] = "cluster = { emulate = 1; bucket = 26214400; keep = 5; };\n";
    static const char ranks[] = "cluster = { emulate = 4; };\n", none[] = "";
    (void)state;
    assert_int_equal(compared(base, with("seed = 1;", "seed = 1; later = 5;"), NULL), 0);
    assert_int_equal(compared(base, with("guards =", "later = { x = 1; };\nguards ="), NULL), 0);
    assert_int_equal(compared(base, with("lr = 3e-4; ", ""), NULL), 0); /* the default */
    assert_int_equal(compared(base, with("seed = 1; ", ""), "run.seed is 1 there, 42 now"), 1);
    /* a whole group that an older program did not know */
    assert_int_equal(compared(none, cluster, NULL), 0);
    assert_int_equal(compared(cluster, none, NULL), 0);
    assert_int_equal(compared(none, ranks, "cluster.emulate is 1 there, 4 now"), 1);
    /* precision and rules say only what was set */
    assert_int_equal(compared("precision = { plugin = \"fp32\"; };",
                              "precision = { plugin = \"fp32\"; wire = \"bf16\"; };",
                              "precision.wire is absent there, \"bf16\" now"),
                     1);
}

static void test_every_difference(void **state)
{
    (void)state;
    listed(base, with("seed = 1; steps = 10;", "seed = 1; steps = 20; later = 5;"),
           "run.steps: 10 -> 20\nrun.later: absent -> 5\n");
    listed(base, with("name = \"clip_norm\"; max = 1.0;", "name = \"c\"; max = 2.0;"),
           "guards[0].name: \"clip_norm\" -> \"c\"\nguards[0].max: 1.0 -> 2.0\n");
    listed("cluster = { emulate = 2; };", "cluster = { emulate = 4; chunk = 4096; };",
           "cluster.emulate: 2 -> 4\ncluster.chunk: 0 -> 4096\n");
    listed(base, base, NULL);
}

static void test_layout_of_the_text_does_not_matter(void **state)
{
    (void)state;
    same("run = { name = \"a\"; ", "# a comment\nrun =\n{ name = \"a\";\n");
}

static void test_damaged_text(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text t = {0};
    (void)state;
    assert_int_equal(bl_plan_compare("run = {", "x/config.cfg", base, &t, &err), -1);
    assert_non_null(strstr(err.text, "x/config.cfg:1"));
    bl_text_free(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_free_keys),
        cmocka_unit_test(test_differences),
        cmocka_unit_test(test_new_keys),
        cmocka_unit_test(test_every_difference),
        cmocka_unit_test(test_layout_of_the_text_does_not_matter),
        cmocka_unit_test(test_damaged_text),
    };
    return cmocka_run_group_tests_name("plan", tests, NULL, NULL);
}
