/* What the config says about sums over ranks, beyond plain keys: cluster.ring_order is read,
 * refused and written again, formats of the wire and of sums too. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <ballast/precision.h>

#include "base/strings.h"
#include "config/config.h"

static char path[] = "/tmp/ballast-ring-XXXXXX";

static int begin(void **state)
{
    (void)state;
    int fd = mkstemp(path);
    return fd < 0 || close(fd) != 0;
}

static int end(void **state)
{
    (void)state;
    return unlink(path);
}

static int read_text(const char *text, struct bl_config **out, struct bl_error *err)
{
    struct bl_error write = BL_ERROR_INIT;
    assert_int_equal(bl_write_file(path, text, strlen(text), &write), 0);
    return bl_config_read(path, 0, NULL, 1, out, err);
}

#define HEAD                                                                                       \
    "data = { source = \"synthetic\"; };\nbatch = { sequences = 12; };\n"                          \
    "cluster = { emulate = 4;\n"

static void check(const struct bl_config *c)
{
    static const uint32_t want[] = {0, 1, 2, 3, 0, 3, 2, 1};
    assert_int_equal(c->cluster.rings, 2);
    assert_int_equal(c->cluster.ring_length, 4);
    assert_memory_equal(c->cluster.ring_order, want, sizeof want);
}

static void test_round_trip(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_config *c = NULL, *again = NULL;
    struct bl_text text = {0};
    if (read_text(HEAD "ring_order = ( (0, 1, 2, 3), [0, 3, 2, 1] ); };\n", &c, &err) < 0)
        fail_msg("%s", err.text);
    check(c);
    assert_int_equal(bl_config_dump(c, NULL, NULL, &text, &err), 0);
    if (read_text(text.text, &again, &err) < 0)
        fail_msg("%s", err.text);
    check(again);
    bl_text_free(&text);
    bl_config_free(again);
    bl_config_free(c);
}

static void test_formats(void **state)
{
    (void)state;
    struct bl_error err = BL_ERROR_INIT;
    struct bl_config *c = NULL, *again = NULL;
    struct bl_text text = {0};
    if (read_text("data = { source = \"synthetic\"; };\nbatch = { sequences = 12; };\n"
                  "model = { tied = false; };\n"
                  "precision = { wire = \"fp16\"; sum = \"bf16\"; head = { sum = \"fp16\"; }; };\n",
                  &c, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(bl_config_dump(c, NULL, NULL, &text, &err), 0);
    if (read_text(text.text, &again, &err) < 0)
        fail_msg("%s", err.text);
    assert_int_equal(again->dials[BL_GROUP_NORM][BL_DIAL_WIRE], BL_FP16);
    assert_int_equal(again->dials[BL_GROUP_NORM][BL_DIAL_SUM], BL_BF16);
    assert_int_equal(again->dials[BL_GROUP_HEAD][BL_DIAL_SUM], BL_FP16);
    assert_memory_equal(again->dials, c->dials, sizeof c->dials);
    bl_text_free(&text);
    bl_config_free(again);
    bl_config_free(c);
}

static void test_none(void **state)
{
    (void)state;
    static const char *const texts[] = {HEAD "};\n", HEAD "ring_order = ( ); };\n"};
    for (int i = 0; i < 2; i++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_config *c = NULL;
        if (read_text(texts[i], &c, &err) < 0)
            fail_msg("%s", err.text);
        assert_null(c->cluster.ring_order);
        assert_int_equal(c->cluster.rings, 0);
        bl_config_free(c);
    }
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *value, *message;
    } cases[] = {
        {"3", ":4: cluster.ring_order: expects a list of lists"},
        {"(0, 1, 2, 3)", ":4: cluster.ring_order[0]: expects a list of ranks"},
        {"((0, 1, 2))", ":4: cluster.ring_order[0]: has 3 ranks, but there are 4"},
        {"((0, 1, 2, 3),\n(0, 1, 2, 2))", ":5: cluster.ring_order[1]: rank 2 is there twice"},
        {"((0, 1, 2, 4))", ":4: cluster.ring_order[0]: expects a rank, 0 ... 3, found the integer"},
        {"((0, 1, 2, -1))", ":4: cluster.ring_order[0]: expects a rank"},
        {"((0, 1, 2, 3.0))", ":4: cluster.ring_order[0]: expects a rank"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct bl_error err = BL_ERROR_INIT;
        struct bl_config *c = NULL;
        char *text = bl_format(HEAD "ring_order = %s; };\n", cases[i].value);
        assert_int_equal(read_text(text, &c, &err), -1);
        assert_int_equal(err.code, BL_EXIT_USAGE);
        if (strncmp(err.text, path, strlen(path)) != 0 || !strstr(err.text, cases[i].message))
            fail_msg("\"%s\" is not in: %s", cases[i].message, err.text);
        free(text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_formats),
        cmocka_unit_test(test_none),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
