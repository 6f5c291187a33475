/* Warnings that come again and again: which are shown, and that nothing grows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/repeat.h"
#include "base/strings.h"

static void test_powers_of_two(void **state)
{
    static struct bl_repeats t;
    struct bl_repeat gone;
    uint64_t count;
    int shown = 0;
    (void)state;
    for (uint64_t i = 1; i <= 1000; i++) {
        int show = bl_repeat_add(&t, 7, "x", &count, &gone);
        assert_int_equal(count, i);
        assert_int_equal(show, (i & (i - 1)) == 0);
        assert_int_equal(gone.count, 0);
        shown += show;
    }
    assert_int_equal(shown, 10);
}

/* With one kind more than there is room, the one that was quiet for longest goes, with its sum. */
static void test_room_is_bounded(void **state)
{
    static struct bl_repeats t;
    struct bl_repeat gone;
    uint64_t count;
    (void)state;
    for (uint64_t k = 0; k < BL_REPEAT_KINDS; k++)
        assert_int_equal(bl_repeat_add(&t, k, "first", &count, &gone), 1);
    for (int i = 0; i < 4; i++)
        bl_repeat_add(&t, 1, "again", &count, &gone);
    for (uint64_t k = 0; k < BL_REPEAT_KINDS; k++)
        if (k != 1)
            bl_repeat_add(&t, k, "later", &count, &gone);
    assert_int_equal(gone.count, 0);
    assert_int_equal(bl_repeat_add(&t, 1000, "new", &count, &gone), 1);
    assert_int_equal(gone.count, 5);
    assert_int_equal(gone.shown, 3);
    assert_string_equal(gone.last, "again");
    assert_int_equal(bl_repeat_add(&t, 1, "back", &count, &gone), 1); /* from the beginning */
    assert_int_equal(count, 1);
    assert_int_equal(gone.key, 0);
}

static void test_long_text_is_cut(void **state)
{
    static struct bl_repeats t;
    struct bl_repeat gone;
    char text[1000];
    uint64_t count;
    (void)state;
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    bl_repeat_add(&t, 1, text, &count, &gone);
    assert_int_equal(strlen(t.kinds[0].last), BL_REPEAT_TEXT - 1);
}

/* ---- in the log ------------------------------------------------------------------------------ */

static int lines_with(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

static void test_log(void **state)
{
    char path[] = "/tmp/ballast-repeat-XXXXXX", *text = NULL;
    size_t n;
    int fd = mkstemp(path);
    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(bl_log_file(path), 0);
    for (int i = 1; i <= 10000; i++) {
        bl_log_by(BL_LOG_WARNING, "clip", "skipped step %d", i);
        bl_log_by(BL_LOG_WARNING, i % 2 ? "odd" : "even", "loss is %d", i);
        if (i % 1000 == 0)
            bl_log(BL_LOG_INFO, "checkpoint %d", i);
    }
    assert_int_equal(bl_log_file(path), 0); /* a new run: the sums of the old one, counts anew */
    bl_log_by(BL_LOG_WARNING, "clip", "skipped step %d", 1);
    bl_log_record(BL_LOG_ERROR, "the\nend");
    assert_int_equal(bl_log_file(NULL), 0);
    assert_int_equal(bl_read_file(path, 1 << 20, &text, &n, NULL), 0);
    assert_int_equal(lines_with(text, "clip: skipped"), 14 + 1 + 1);
    assert_int_equal(lines_with(text, "odd: loss"), 13 + 1);
    assert_int_equal(lines_with(text, "even: loss"), 13 + 1);
    assert_int_equal(lines_with(text, "info checkpoint"), 10);
    assert_non_null(strstr(text, "warning clip: skipped step 1\n"));
    assert_non_null(strstr(text, "warning clip: skipped step 8192 (8192 times so far)\n"));
    assert_non_null(strstr(text, "warning clip: skipped step 10000 (the last of 10000, 9986 were "
                                 "not shown)\n"));
    assert_non_null(strstr(text, "error the end\n"));
    free(text);
    unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_powers_of_two),
        cmocka_unit_test(test_room_is_bounded),
        cmocka_unit_test(test_long_text_is_cut),
        cmocka_unit_test(test_log),
    };
    return cmocka_run_group_tests_name("repeat", tests, NULL, NULL);
}
