/* Alarm rules on rows that are written by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "alarms.h"
#include "base/log.h"
#include "base/strings.h"

static char log_path[64];

static int quiet(void **state)
{
    (void)state;
    strcpy(log_path, "/tmp/ballast-alarms-XXXXXX");
    int fd = mkstemp(log_path);
    return fd < 0 ? -1 : close(fd);
}

static int loud(void **state)
{
    (void)state;
    return unlink(log_path);
}

/* Lines of the log since `begin_log`. */
static void begin_log(void)
{
    assert_int_equal(truncate(log_path, 0), 0);
    assert_int_equal(bl_log_file(log_path), 0);
}

static char *end_log(void)
{
    char *text = NULL;
    size_t n;
    assert_int_equal(bl_log_file(NULL), 0);
    assert_int_equal(bl_read_file(log_path, 1 << 20, &text, &n, NULL), 0);
    return text;
}

static int lines_with(const char *text, const char *word)
{
    int n = 0;
    for (const char *p = text; (p = strstr(p, word)) != NULL; p++)
        n++;
    return n;
}

struct bench {
    struct bl_metrics *metrics;
    struct bl_alarms *alarms;
    struct bl_alarms_verdict v;
};

static struct bench make(const struct bl_alarm *rules, size_t count)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bench b = {0};
    assert_int_equal(bl_metrics_make(NULL, 0, &b.metrics, &err), 0);
    assert_int_equal(bl_alarms_make(rules, count, &b.alarms, &err), 0);
    return b;
}

static void stop(struct bench *b)
{
    bl_alarms_free(b->alarms);
    bl_metrics_free(b->metrics);
}

static void set(struct bench *b, const char *name, double value)
{
    bl_metrics_set(b->metrics, name, value);
}

/* Ends the row of a step: 1 when a checkpoint is due. */
static int end_row(struct bench *b, uint64_t step)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_metrics_row row;
    bl_metrics_row(b->metrics, &row);
    assert_int_equal(bl_alarms_check(b->alarms, step, &row, &b->v, &err), 0);
    bl_metrics_emit(b->metrics, step, 1);
    return b->v.checkpoint;
}

/* A row of one metric. */
static int row(struct bench *b, uint64_t step, const char *name, double value)
{
    set(b, name, value);
    return end_row(b, step);
}

static void test_bounds(void **state)
{
    const struct bl_alarm above = {"a", 2.0, NAN, 1, 1, BL_ALARM_STOP};
    const struct bl_alarm below = {"a", NAN, -2.0, 1, 1, BL_ALARM_STOP};
    const struct bl_alarm both = {"a", 2.0, -2.0, 1, 1, BL_ALARM_STOP};
    const struct {
        double value;
        int above, below, both;
    } cases[] = {
        {2.0, 0, 0, 0},      {2.0000001, 1, 0, 1}, {-2.0, 0, 0, 0}, {-2.1, 0, 1, 1},
        {INFINITY, 1, 1, 1}, {-INFINITY, 1, 1, 1}, {NAN, 1, 1, 1},  {0.0, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct bl_alarm *rules[] = {&above, &below, &both};
        const int wanted[] = {cases[i].above, cases[i].below, cases[i].both};
        for (int k = 0; k < 3; k++) {
            struct bench b = make(rules[k], 1);
            row(&b, 1, "a", cases[i].value);
            assert_int_equal(b.v.stop[0] != '\0', wanted[k]);
            assert_int_equal(b.v.checkpoint, wanted[k]); /* the checkpoint before the stop */
            stop(&b);
        }
    }
}

static void test_message(void **state)
{
    const struct bl_alarm rules[] = {{"b*", 2.0, NAN, 1, 1, BL_ALARM_LOG},
                                     {"b*", 5.0, NAN, 2, 1, BL_ALARM_STOP}};
    struct bench b = make(rules, 2);
    (void)state;
    begin_log();
    set(&b, "a", 9.0);
    set(&b, "b1", 7.5);
    set(&b, "b2", 3.0);
    end_row(&b, 4);
    assert_string_equal(b.v.stop, "");
    row(&b, 5, "b1", 8.0);
    assert_string_equal(b.v.stop, "alarms[1]: b1 is 8 at step 5, above 5 for 2 rows");
    char *text = end_log();
    assert_int_equal(lines_with(text, "\n"), 1);
    assert_non_null(strstr(text, "warning alarms[0]: b1 is 7.5 at step 4, above 2; 1 more of its "
                                 "metrics are outside too\n"));
    free(text);
    row(&b, 6, "b1", -NAN);
    assert_string_equal(b.v.stop, "alarms[1]: b1 is nan at step 6, not a finite number for 2 rows");
    stop(&b);
}

/* Three rows that hold the metric: others between them change nothing, one inside starts over. */
static void test_for_counts_rows_with_the_metric(void **state)
{
    const struct bl_alarm rule = {"a", 0.0, NAN, 3, 1, BL_ALARM_CHECKPOINT};
    struct bench b = make(&rule, 1);
    (void)state;
    begin_log();
    assert_int_equal(row(&b, 1, "a", 1.0), 0);
    assert_int_equal(row(&b, 2, "other", 1.0), 0);
    assert_int_equal(row(&b, 3, "a", 1.0), 0);
    assert_int_equal(row(&b, 4, "a", 0.0), 0);
    assert_int_equal(row(&b, 5, "a", 1.0), 0);
    assert_int_equal(row(&b, 6, "a", 1.0), 0);
    assert_int_equal(row(&b, 7, "other", 1.0), 0);
    assert_int_equal(row(&b, 8, "a", 1.0), 1);
    assert_int_equal(row(&b, 9, "a", 1.0), 0); /* the same episode */
    free(end_log());
    stop(&b);
}

static void test_from(void **state)
{
    const struct bl_alarm rule = {"a", 0.0, NAN, 2, 10, BL_ALARM_CHECKPOINT};
    struct bench b = make(&rule, 1);
    (void)state;
    begin_log();
    for (uint64_t s = 1; s <= 10; s++)
        assert_int_equal(row(&b, s, "a", 1.0), 0); /* steps before 10 do not count */
    assert_int_equal(row(&b, 11, "a", 1.0), 1);
    free(end_log());
    stop(&b);
}

static void test_episodes(void **state)
{
    const struct bl_alarm rule = {"g/*", 1.0, NAN, 1, 1, BL_ALARM_CHECKPOINT};
    struct bench b = make(&rule, 1);
    (void)state;
    begin_log();
    assert_int_equal(row(&b, 1, "g/x", 2.0), 1);
    assert_int_equal(row(&b, 2, "g/x", 2.0), 0);
    assert_int_equal(row(&b, 3, "g/y", 2.0), 0); /* told, but the rule is in an episode already */
    assert_int_equal(row(&b, 4, "g/x", 0.0), 0);
    assert_int_equal(row(&b, 5, "g/x", 2.0), 0); /* g/y still is outside */
    set(&b, "g/x", 0.0);
    set(&b, "g/y", 0.0);
    assert_int_equal(end_row(&b, 6), 0);
    assert_int_equal(row(&b, 7, "g/y", 2.0), 1);
    char *text = end_log();
    assert_int_equal(lines_with(text, "g/x is 2 at step 1,"), 1);
    assert_int_equal(lines_with(text, "at step 2,"), 0);
    assert_int_equal(lines_with(text, "g/y is 2 at step 3,"), 1);
    free(text);
    stop(&b);
}

/* A metric that comes and goes for ever must not fill the log. */
static void test_flapping_is_bounded(void **state)
{
    const struct bl_alarm rule = {"a", 1.0, NAN, 1, 1, BL_ALARM_LOG};
    struct bench b = make(&rule, 1);
    (void)state;
    begin_log();
    for (uint64_t s = 1; s <= 2000; s++)
        row(&b, s, "a", s % 2 ? 2.0 : 0.0);
    char *text = end_log();
    assert_int_equal(lines_with(text, "\n"), 11); /* 1, 2, 4 ... 512, and the summary */
    assert_non_null(strstr(text, "alarms[0]: a is 2 at step 1999, above 1 (the last of 1000, 990 "
                                 "were not shown)\n"));
    free(text);
    stop(&b);
}

/* A run that is stopped again must not slip past: each row of the episode stops. */
static void test_stop_holds(void **state)
{
    const struct bl_alarm rule = {"a", 1.0, NAN, 2, 1, BL_ALARM_STOP};
    struct bench b = make(&rule, 1);
    (void)state;
    for (uint64_t s = 1; s <= 5; s++) {
        row(&b, s, "a", 2.0);
        assert_int_equal(b.v.stop[0] != '\0', s >= 2);
    }
    row(&b, 6, "a", 0.0);
    assert_string_equal(b.v.stop, "");
    stop(&b);
}

/* Saved after any row and loaded into new alarms: the verdicts are those of one uninterrupted run.
 */
static void test_resume_is_uninterrupted(void **state)
{
    const struct bl_alarm rules[] = {{"a", 1.0, NAN, 3, 1, BL_ALARM_CHECKPOINT},
                                     {"*", NAN, 0.5, 2, 1, BL_ALARM_CHECKPOINT},
                                     {"a", 1.0, NAN, 4, 1, BL_ALARM_STOP}};
    const double a[] = {2, 2, 2, 2, 0, 2, 2, 2, 0, 0, 0, 3},
                 c[] = {1, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0, 0};
    enum { ROWS = sizeof a / sizeof *a };
    struct bl_alarms_verdict whole[ROWS];
    struct bl_error err = BL_ERROR_INIT;
    int any = 0;
    (void)state;
    begin_log();
    struct bench b = make(rules, 3);
    for (int i = 0; i < ROWS; i++) {
        set(&b, "c", c[i]);
        set(&b, "a", a[i]);
        any += end_row(&b, (uint64_t)i + 1);
        whole[i] = b.v;
    }
    assert_true(any > 3);
    stop(&b);
    for (int cut = 1; cut < ROWS; cut++) {
        char *text = NULL, *again = NULL;
        b = make(rules, 3);
        for (int i = 0; i < ROWS; i++) {
            if (i == cut) {
                assert_int_equal(bl_alarms_save(b.alarms, &text, &err), 0);
                stop(&b);
                b = make(rules, 3);
                assert_int_equal(bl_alarms_load(b.alarms, text, strlen(text), &err), 0);
                assert_int_equal(bl_alarms_save(b.alarms, &again, &err), 0);
                assert_string_equal(text, again); /* also before any row named the metrics */
            }
            set(&b, "a", a[i]); /* another order: other ids */
            set(&b, "c", c[i]);
            end_row(&b, (uint64_t)i + 1);
            assert_int_equal(b.v.checkpoint, whole[i].checkpoint);
            assert_string_equal(b.v.stop, whole[i].stop);
        }
        free(text);
        free(again);
        stop(&b);
    }
    free(end_log());
}

/* Another threshold is another rule: it starts from nothing. What is no state is refused. */
static void test_loading_other_rules(void **state)
{
    struct bl_alarm rule = {"a", 1.0, NAN, 2, 1, BL_ALARM_CHECKPOINT};
    struct bl_error err = BL_ERROR_INIT;
    struct bench b = make(&rule, 1);
    char *text = NULL;
    (void)state;
    begin_log();
    row(&b, 1, "a", 2.0);
    assert_int_equal(bl_alarms_save(b.alarms, &text, &err), 0);
    stop(&b);
    rule.above = 1.5;
    b = make(&rule, 1);
    assert_int_equal(bl_alarms_load(b.alarms, text, strlen(text), &err), 0);
    assert_int_equal(row(&b, 2, "a", 2.0), 0);
    assert_int_equal(row(&b, 3, "a", 2.0), 1);
    for (size_t n = 0; n < strlen(text); n++)
        assert_int_equal(bl_alarms_load(b.alarms, text, n, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    free(text);
    free(end_log());
    stop(&b);
}

static void test_names(void **state)
{
    static const char *const later[] = {"loss/val", NULL};
    const struct bl_alarm rules[] = {{"loss/cd", 1.0, NAN, 1, 1, BL_ALARM_LOG},
                                     {"grad/*/norm", 1.0, NAN, 1, 1, BL_ALARM_LOG},
                                     {"loss/ce", 1.0, NAN, 1, 100, BL_ALARM_LOG},
                                     {"loss/v*", 1.0, NAN, 1, 1, BL_ALARM_LOG}};
    struct bench b = make(rules, 4);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_metrics_row r;
    (void)state;
    begin_log();
    set(&b, "loss/ce", 0.0);
    set(&b, "loss/aux", 0.0);
    bl_metrics_row(b.metrics, &r);
    assert_int_equal(bl_alarms_check(b.alarms, 1, &r, &b.v, &err), 0);
    bl_alarms_check_names(b.alarms, &r, later);
    char *text = end_log();
    assert_int_equal(lines_with(text, "\n"), 2);
    assert_non_null(strstr(text, "alarms[0]: no metric of this run matches \"loss/cd\" so far; did "
                                 "you mean \"loss/ce\"?"));
    assert_non_null(strstr(text, "alarms[1]: no metric of this run matches \"grad/*/norm\""));
    free(text);
    stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bounds),
        cmocka_unit_test(test_message),
        cmocka_unit_test(test_for_counts_rows_with_the_metric),
        cmocka_unit_test(test_from),
        cmocka_unit_test(test_episodes),
        cmocka_unit_test(test_flapping_is_bounded),
        cmocka_unit_test(test_stop_holds),
        cmocka_unit_test(test_resume_is_uninterrupted),
        cmocka_unit_test(test_loading_other_rules),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("alarms", tests, quiet, loud);
}
