/* Option tables: what a plugin's author and a user with a typing error see. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config/options.h"

struct values {
    int64_t steps;
    double lr;
    int32_t fast, how;
    const char *name;
    struct bl_ints ints;
    struct bl_floats betas;
    struct bl_strings files;
};

#define OFFSET(member) offsetof(struct values, member)
#define END                                                                                        \
    {                                                                                              \
        NULL, 0, 0, NULL, NULL, NULL, 0                                                            \
    }

static const struct bl_option table[] = {
    {"steps", BL_OPTION_INT, 0, "100", "[1,inf)", "updates", OFFSET(steps)},
    {"lr", BL_OPTION_FLOAT, 0, "1e-4", "(0,1]", "learning rate", OFFSET(lr)},
    {"fast", BL_OPTION_BOOL, 0, "true", NULL, "skip checks", OFFSET(fast)},
    {"how", BL_OPTION_CHOICE, 0, "tree", "ring|tree|alltoall", "order of sums", OFFSET(how)},
    {"name", BL_OPTION_STRING, 0, NULL, NULL, "a name", OFFSET(name)},
    {"ints", BL_OPTION_INTS, 0, "1,2,3", "[0,9]", "numbers", OFFSET(ints)},
    {"betas", BL_OPTION_FLOATS, 0, "0.9,0.95", "[0,1)", "decay rates", OFFSET(betas)},
    {"files", BL_OPTION_STRINGS, 0, "", NULL, "files", OFFSET(files)},
    END,
};

static const struct bl_option required_table[] = {
    {"path", BL_OPTION_STRING, BL_OPTION_REQUIRED, NULL, NULL, "file to read", 0},
    END,
};

static struct bl_node *parse(const char *text)
{
    struct bl_node *root = NULL;
    struct bl_error err = BL_ERROR_INIT;
    if (bl_node_parse(text, "t.cfg", &root, &err) != 0)
        fail_msg("%s: %s", text, err.text);
    return root;
}

static void defaults(void **state)
{
    (void)state;
    struct bl_options o = {0};
    struct bl_error err = BL_ERROR_INIT;
    assert_int_equal(bl_options_check(table, sizeof(struct values), &err), 0);
    assert_int_equal(bl_options_fill(&o, table, sizeof(struct values), NULL, NULL, "thing", &err),
                     0);
    const struct values *v = o.values;
    assert_int_equal(v->steps, 100);
    assert_true(v->lr == 1e-4);
    assert_int_equal(v->fast, 1);
    assert_int_equal(v->how, 1);
    assert_string_equal(v->name, "");
    assert_int_equal(v->ints.count, 3);
    assert_int_equal(v->ints.values[2], 3);
    assert_int_equal(v->betas.count, 2);
    assert_true(v->betas.values[1] == 0.95);
    assert_int_equal(v->files.count, 0);
    for (int i = 0; i < 8; i++)
        assert_int_equal(o.written[i], 0);
    bl_options_free(&o);
    bl_options_free(&o);
    bl_options_free(NULL);
    /* A plugin without options. */
    assert_int_equal(bl_options_check(NULL, 0, &err), 0);
    assert_int_equal(bl_options_fill(&o, NULL, 0, NULL, NULL, "thing", &err), 0);
    bl_options_free(&o);
}

static void written_values(void **state)
{
    (void)state;
    struct bl_options o = {0};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_node *root =
        parse("steps = 5000000000L; lr = 1; fast = False; how = \"alltoall\"; name = \"a\\\"b\";\n"
              "ints = [ ]; betas = ( 0, 0.5 ); files = [ \"x\", \"y,z\" ]; theirs = 3;");
    assert_int_equal(bl_options_fill(&o, table, sizeof(struct values), root,
                                     (const char *const[]){"theirs", NULL}, "thing", &err),
                     0);
    const struct values *v = o.values;
    assert_true(v->steps == 5000000000);
    assert_true(v->lr == 1); /* an integer is a float, and 1 is inside (0,1] */
    assert_int_equal(v->fast, 0);
    assert_int_equal(v->how, 2);
    assert_string_equal(v->name, "a\"b");
    assert_int_equal(v->ints.count, 0);
    assert_true(v->betas.values[0] == 0 && v->betas.values[1] == 0.5);
    assert_string_equal(v->files.values[1], "y,z");
    for (int i = 0; i < 8; i++)
        assert_int_equal(o.written[i], 1);
    assert_int_equal(bl_node_find(root, "lr")->used, 1);
    assert_int_equal(bl_node_find(root, "theirs")->used, 0);

    /* The values do not live in the tree. */
    bl_node_free(root);
    assert_string_equal(v->files.values[0], "x");

    /* Dumping and reading back gives the same text. */
    struct bl_text first = {0}, second = {0};
    struct bl_options again = {0};
    bl_options_dump(&o, 4, &first);
    assert_non_null(strstr(first.text, "    steps = 5000000000L;\n"));
    assert_non_null(strstr(first.text, "    betas = ( 0.0, 0.5 );\n"));
    assert_non_null(strstr(first.text, "    name = \"a\\\"b\";\n"));
    root = parse(first.text);
    assert_int_equal(
        bl_options_fill(&again, table, sizeof(struct values), root, NULL, "thing", &err), 0);
    bl_options_dump(&again, 4, &second);
    assert_string_equal(first.text, second.text);
    bl_text_free(&first);
    bl_text_free(&second);
    bl_node_free(root);
    bl_options_free(&again);
    bl_options_free(&o);
}

static void refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected; /* the whole message */
    } rows[] = {
        {"\nlearning_rat = 1;",
         "t.cfg:2: thing: unknown key \"learning_rat\"; did you mean \"lr\"?"},
        {"stpes = 1;", "t.cfg:1: thing: unknown key \"stpes\"; did you mean \"steps\"?"},
        {"theirz = 1;", "t.cfg:1: thing: unknown key \"theirz\"; did you mean \"theirs\"?"},
        {"qqqqqqq = 1;", "t.cfg:1: thing: unknown key \"qqqqqqq\"; valid keys: steps, lr, fast, "
                         "how, name, ints, betas, files, theirs"},
        {"steps = 0;", "t.cfg:1: thing: steps is 0, outside of [1,inf)"},
        {"steps = 1.5;", "t.cfg:1: thing: steps expects an integer, found the float 1.5"},
        {"steps = 2e3;",
         "t.cfg:1: thing: steps expects an integer, found the float 2000.0; write 2000"},
        {"steps = \"1\";", "t.cfg:1: thing: steps expects an integer, found the string \"1\""},
        {"steps = true;", "t.cfg:1: thing: steps expects an integer, found the boolean true"},
        {"lr = 0;", "t.cfg:1: thing: lr is 0, outside of (0,1]"},
        {"lr = 1.5;", "t.cfg:1: thing: lr is 1.5, outside of (0,1]"},
        {"lr = 1e999;", "t.cfg:1: thing: lr is inf, outside of (0,1]"},
        {"lr = ( 1.0 );", "t.cfg:1: thing: lr expects a float, found a list of 1"},
        {"fast = 1;", "t.cfg:1: thing: fast expects true or false, found the integer 1"},
        {"how = \"rong\";", "t.cfg:1: thing: how expects \"ring\", \"tree\" or \"alltoall\", "
                            "found the string \"rong\""},
        {"how = 1;",
         "t.cfg:1: thing: how expects \"ring\", \"tree\" or \"alltoall\", found the integer 1"},
        {"name = 3;", "t.cfg:1: thing: name expects a string, found the integer 3; put it in "
                      "quotes"},
        {"name = { a = 1; };", "t.cfg:1: thing: name expects a string, found a group { }"},
        {"ints = 3;",
         "t.cfg:1: thing: ints expects a list of integers such as ( 1, 2 ), found the integer 3"},
        {"ints = ( 1,\n 10 );", "t.cfg:2: thing: ints is 10, outside of [0,9]"},
        {"ints = ( 1.5 );", "t.cfg:1: thing: ints expects an integer, found the float 1.5"},
        {"betas = [ 0.5, \"x\" ];", "t.cfg:1: thing: betas expects a float, found the string "
                                    "\"x\""},
        {"files = \"x\";", "t.cfg:1: thing: files expects a list of strings such as ( \"a\", "
                           "\"b\" ), found the string \"x\""},
        {"files = ( ( \"x\" ) );", "t.cfg:1: thing: files expects a string, found a list of 1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct bl_options o = {.size = 12345};
        struct bl_error err = BL_ERROR_INIT;
        struct bl_node *root = parse(rows[i].text);
        assert_int_equal(bl_options_fill(&o, table, sizeof(struct values), root,
                                         (const char *const[]){"theirs", NULL}, "thing", &err),
                         -1);
        assert_string_equal(err.text, rows[i].expected);
        assert_int_equal(err.code, BL_EXIT_USAGE);
        assert_int_equal(o.size, 12345); /* outputs are set on success only */
        bl_node_free(root);
    }

    struct bl_options o = {0};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_node *root = parse("\nx = { };");
    assert_int_equal(bl_options_fill(&o, required_table, 8, root->children[0], NULL, "thing", &err),
                     -1);
    assert_string_equal(err.text, "t.cfg:2: thing: the key \"path\" is required: file to read");
    bl_node_free(root);
    assert_int_equal(bl_options_fill(&o, required_table, 8, NULL, NULL, "thing", &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    root = parse("x = 3;");
    assert_int_equal(
        bl_options_fill(&o, table, sizeof(struct values), root->children[0], NULL, "thing", &err),
        -1);
    assert_non_null(strstr(err.text, "t.cfg:1: thing: expects a group"));
    bl_node_free(root);
}

static void bad_tables(void **state)
{
    (void)state;
    static const struct {
        struct bl_option row;
        const char *hint;
    } rows[] = {
        {{"x", 0, 0, "1", NULL, "", 0}, "unknown type"},
        {{"x", 99, 0, "1", NULL, "", 0}, "unknown type"},
        {{"", BL_OPTION_INT, 0, "1", NULL, "", 0}, "the key is no name"},
        {{"a b", BL_OPTION_INT, 0, "1", NULL, "", 0}, "the key is no name"},
        {{"x", BL_OPTION_INT, 2, "1", NULL, "", 0}, "unknown flag"},
        {{"x", BL_OPTION_INT, 0, "1", NULL, "", 64}, "outside of the options struct"},
        {{"x", BL_OPTION_INT, 0, "1", NULL, "", 60}, "outside of the options struct"},
        {{"x", BL_OPTION_FLOATS, 0, "1", NULL, "", 56}, "outside of the options struct"},
        {{"x", BL_OPTION_INT, 0, "1", NULL, "", UINT64_MAX - 7}, "outside of the options struct"},
        {{"x", BL_OPTION_INT, 0, "1", NULL, "", 4}, "not aligned"},
        {{"x", BL_OPTION_BOOL, 0, "true", NULL, "", 2}, "not aligned"},
        {{"x", BL_OPTION_INT, 0, "a", NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_INT, 0, "1.5", NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_INT, 0, NULL, NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_INT, 0, "0", "[1,2]", "", 0}, "the default"},
        {{"x", BL_OPTION_FLOAT, 0, "1", "(1,2]", "", 0}, "the default"},
        {{"x", BL_OPTION_FLOAT, 0, "nan", NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_FLOAT, 0, "inf", NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_FLOAT, 0, "inf", "(0,inf)", "", 0}, "the default"},
        {{"x", BL_OPTION_BOOL, 0, "yes", NULL, "", 0}, "the default"},
        {{"x", BL_OPTION_CHOICE, 0, "c", "a|b", "", 0}, "the default"},
        {{"x", BL_OPTION_CHOICE, 0, "a", NULL, "", 0}, "a choice needs its words"},
        {{"x", BL_OPTION_CHOICE, 0, "a", "a||b", "", 0}, "empty or there twice"},
        {{"x", BL_OPTION_CHOICE, 0, "a", "a|b|a", "", 0}, "empty or there twice"},
        {{"x", BL_OPTION_INT, 0, "1", "1,2", "", 0}, "the range"},
        {{"x", BL_OPTION_INT, 0, "1", "[2,1]", "", 0}, "the range"},
        {{"x", BL_OPTION_INT, 0, "1", "[1,]", "", 0}, "the range"},
        {{"x", BL_OPTION_INT, 0, "1", "[nan,1]", "", 0}, "the range"},
        {{"x", BL_OPTION_FLOATS, 0, "1,9", "[0,5]", "", 0}, "the default"},
        {{"x", BL_OPTION_FLOATS, 0, "1,,2", "[0,5]", "", 0}, "the default"},
        {{"x", BL_OPTION_INT, BL_OPTION_REQUIRED, "1", NULL, "", 0}, "no default"},
    };
    struct bl_error err = BL_ERROR_INIT;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct bl_option two[] = {rows[i].row, END};
        assert_int_equal(bl_options_check(two, 64, &err), -1);
        assert_int_equal(err.code, BL_EXIT_PLUGIN);
        if (!strstr(err.text, rows[i].hint))
            fail_msg("row %zu: \"%s\" lacks \"%s\"", i, err.text, rows[i].hint);
    }
    const struct bl_option twice[] = {
        {"x", BL_OPTION_INT, 0, "1", NULL, "", 0}, {"x", BL_OPTION_INT, 0, "1", NULL, "", 8}, END};
    assert_int_equal(bl_options_check(twice, 64, &err), -1);
    assert_non_null(strstr(err.text, "there twice"));
    const struct bl_option overlap[] = {
        {"x", BL_OPTION_INTS, 0, "1", NULL, "", 0}, {"y", BL_OPTION_INT, 0, "1", NULL, "", 8}, END};
    assert_int_equal(bl_options_check(overlap, 64, &err), -1);
    assert_non_null(strstr(err.text, "overlaps"));
    static struct bl_option endless[1100];
    for (size_t i = 0; i < 1100; i++)
        endless[i] = table[0];
    assert_int_equal(bl_options_check(endless, 64, &err), -1);
    assert_non_null(strstr(err.text, "NULL key"));
}

/* Integer ranges keep all 64 bits; open ends count for whole numbers; inf may belong to a range. */
static void ranges(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        const char *range, *value;
        int ok;
    } rows[] = {
        {BL_OPTION_INT, "[9007199254740993,inf)", "9007199254740992", 0},
        {BL_OPTION_INT, "[9007199254740993,inf)", "9007199254740993", 1},
        {BL_OPTION_INT, "(0,5)", "0", 0},
        {BL_OPTION_INT, "(0,5)", "1", 1},
        {BL_OPTION_INT, "(0,5)", "4", 1},
        {BL_OPTION_INT, "(0,5)", "5", 0},
        {BL_OPTION_INT, "(-inf,inf)", "-9223372036854775808", 1},
        {BL_OPTION_INT, "(-inf,inf)", "9223372036854775807", 1},
        {BL_OPTION_INT, NULL, "9223372036854775807", 1},
        {BL_OPTION_INT, "[0,1e6]", "1000000", 1},
        {BL_OPTION_INT, "[0,1e6]", "1000001", 0},
        {BL_OPTION_INT, "(0.5,2.5)", "1", 1},
        {BL_OPTION_INT, "(0.5,2.5)", "2", 1},
        {BL_OPTION_INT, "(0.5,2.5)", "0", 0},
        {BL_OPTION_INT, "(0.5,2.5)", "3", 0},
        {BL_OPTION_FLOAT, "(0,inf]", "inf", 1},
        {BL_OPTION_FLOAT, "(0,inf)", "1e308", 1},
        {BL_OPTION_FLOAT, "[0, 1]", "1", 1},
        {BL_OPTION_FLOAT, "[0,1)", "1", 0},
        {BL_OPTION_FLOAT, NULL, "-1e300", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const struct bl_option two[] = {{"x", rows[i].type, 0, rows[i].value, rows[i].range, "", 0},
                                        END};
        struct bl_error err = BL_ERROR_INIT;
        int rc = bl_options_check(two, 8, &err);
        if ((rc == 0) != rows[i].ok)
            fail_msg("%s in %s: %d %s", rows[i].value, rows[i].range, rc, err.text);
    }
}

/* Infinity has no libconfig word; where a range allows it, it survives a dump. */
static void infinity(void **state)
{
    (void)state;
    const struct bl_option two[] = {{"x", BL_OPTION_FLOAT, 0, "inf", "(0,inf]", "", 0}, END};
    struct bl_options o = {0};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_text text = {0};
    assert_int_equal(bl_options_fill(&o, two, 8, NULL, NULL, "thing", &err), 0);
    bl_options_dump(&o, 0, &text);
    bl_options_free(&o);
    struct bl_node *root = parse(text.text);
    assert_int_equal(bl_options_fill(&o, two, 8, root, NULL, "thing", &err), 0);
    assert_true(isinf(*(double *)o.values));
    bl_node_free(root);
    bl_options_free(&o);
    bl_text_free(&text);
}

static void match(void **state)
{
    (void)state;
    struct bl_options o = {0};
    struct bl_error err = BL_ERROR_INIT;
    struct bl_node *root = parse("lr = 0.5; name = \"n\"; files = ( \"f\" );");
    assert_int_equal(bl_options_fill(&o, table, sizeof(struct values), root, NULL, "thing", &err),
                     0);
    assert_int_equal(bl_options_match(&o, "lr=0.5"), 1);
    assert_int_equal(bl_options_match(&o, "lr=5e-1,steps=100,how=tree,fast=true"), 1);
    assert_int_equal(bl_options_match(&o, "name=n,files=f"), 1);
    assert_int_equal(bl_options_match(&o, "lr=0.5,steps=101"), 0);
    assert_int_equal(bl_options_match(&o, "lr=0.25"), 0);
    assert_int_equal(bl_options_match(&o, "none=1"), 0);
    assert_int_equal(bl_options_match(&o, "lr"), 0);
    assert_int_equal(bl_options_match(&o, "lr=x"), 0);
    assert_int_equal(bl_options_match(&o, ""), 0);
    assert_int_equal(bl_options_match(&o, NULL), 0);
    bl_node_free(root);
    bl_options_free(&o);
}

static void help(void **state)
{
    (void)state;
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    bl_options_help(table, f);
    bl_options_help(required_table, f);
    bl_options_help(NULL, f);
    fclose(f);
    for (const struct bl_option *o = table; o->key; o++) {
        assert_non_null(strstr(text, o->key));
        assert_non_null(strstr(text, o->doc));
    }
    assert_non_null(strstr(text, "ring|tree|alltoall"));
    assert_non_null(strstr(text, "required"));
    assert_non_null(strstr(text, "no options"));
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),   cmocka_unit_test(written_values), cmocka_unit_test(refusals),
        cmocka_unit_test(bad_tables), cmocka_unit_test(ranges),         cmocka_unit_test(infinity),
        cmocka_unit_test(match),      cmocka_unit_test(help),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
