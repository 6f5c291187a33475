/* The CSV sink: every line has the fields of the header, values come back to the bit, late columns
 * and cut lines leave a whole file. */
#include "tests/lib/plugin_test.h"

#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/ballast-csv-XXXXXX";
static char path[64], beside[64];

static void open_sink(struct bl_bench *b, const char *config)
{
    bl_bench_start(b);
    b->info.directory = folder;
    bl_bench_open(b, BL_KIND_SINK, "csv", config);
}

static int write_row(struct bl_bench *b, uint64_t step, uint64_t count, const char *const *names,
                     const double *values)
{
    struct bl_record r = {.size = sizeof(r),
                          .attempt = 2,
                          .step = step,
                          .time = 1700000000.125,
                          .count = count,
                          .names = names,
                          .values = values};
    b->err = (struct bl_error)BL_ERROR_INIT;
    return b->ops->sink.write(b->self, &r, &b->err);
}

/* A row with the metrics whose letters are given: "ac" has a = step, c = step + 0.5. */
static int letters(struct bl_bench *b, uint64_t step, const char *which)
{
    static const char *const all[] = {"a", "b", "c"};
    const char *names[3];
    double values[3];
    uint64_t n = 0;
    for (; *which; which++, n++) {
        names[n] = all[*which - 'a'];
        values[n] = (double)step + 0.25 * (*which - 'a');
    }
    return write_row(b, step, n, names, values);
}

static void finish(struct bl_bench *b)
{
    assert_int_equal(b->ops->sink.finish(b->self, &b->err), 0);
    bl_bench_stop(b);
}

static void set_file(const char *text)
{
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    assert_int_equal(fclose(f), 0);
}

static char *get_file(void)
{
    static char text[1 << 20];
    FILE *f = fopen(path, "rb");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

#define T ",2,1700000000.125000,"

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SINK, "csv", "");
}

static void test_late_columns(void **state)
{
    (void)state;
    struct bl_bench b;
    unlink(path);
    open_sink(&b, "");
    assert_int_equal(letters(&b, 1, "a"), 0);
    assert_string_equal(get_file(), "step,attempt,time,a\n1" T "1\n");
    assert_int_equal(letters(&b, 2, "a"), 0);
    assert_int_equal(letters(&b, 3, "ca"), 0); /* a stays where it was */
    assert_string_equal(get_file(), "step,attempt,time,a,c\n1" T "1,\n2" T "2,\n3" T "3,3.5\n");
    assert_int_equal(letters(&b, 4, "c"), 0);
    assert_int_equal(letters(&b, 5, "abc"), 0);
    finish(&b);
    assert_string_equal(get_file(), "step,attempt,time,a,c,b\n1" T "1,,\n2" T "2,,\n3" T
                                    "3,3.5,\n4" T ",4.5,\n5" T "5,5.5,5.25\n");
    assert_int_equal(access(beside, F_OK), -1);
}

static void test_values(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "b", "c", "d", "e", "f", "g", "step"};
    const double values[] = {0.1, 1.0 / 3.0, -5e-324,   9007199254740993.0,
                             NAN, INFINITY,  -INFINITY, 99};
    struct bl_bench b;
    char *end, *at;
    unlink(path);
    open_sink(&b, "");
    assert_int_equal(write_row(&b, 7, 8, names, values), 0);
    finish(&b);
    at = strchr(get_file(), '\n') + 1;
    assert_ptr_equal(strstr(at, "7" T "0.1,"), at);
    at += strlen("7" T);
    for (int i = 0; i < 4; i++, at = end + 1) {
        assert_true(strtod(at, &end) == values[i]);
        assert_int_equal(*end, ',');
    }
    assert_string_equal(at, "nan,inf,-inf\n"); /* and no second step */
}

static void test_names(void **state)
{
    (void)state;
    static const char *const names[] = {"a,b", "say \"x\"", "two\nlines", "caf\xc3\xa9", "time"};
    const double values[] = {1, 2, 3, 4, 99};
    struct bl_bench b;
    unlink(path);
    for (int pass = 0; pass < 2; pass++) { /* the second one reads the first one's header */
        open_sink(&b, "");
        assert_int_equal(write_row(&b, 1, 5, names, values), 0);
        finish(&b);
    }
    assert_string_equal(get_file(), "step,attempt,time,\"a,b\",\"say \"\"x\"\"\",two_lines,caf\xc3"
                                    "\xa9\n1" T "1,2,3,4\n1" T "1,2,3,4\n");
}

static void test_resume(void **state)
{
    (void)state;
    static const struct {
        const char *before, *kept;
    } cases[] = {
        {"step,attempt,time,b,a\n9,1,5,7,8\n", "step,attempt,time,b,a\n9,1,5,7,8\n"},
        {"step,attempt,time,b,a\n9,1,5,7,8\n10,1,5,7", "step,attempt,time,b,a\n9,1,5,7,8\n"},
        {"step,attempt,time,b,a\n", "step,attempt,time,b,a\n"},
        {"step,attempt,time,b", "step,attempt,time,a,b\n"}, /* a cut header is none */
        {"", "step,attempt,time,a,b\n"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct bl_bench b;
        char wanted[200];
        set_file(cases[i].before);
        open_sink(&b, "");
        size_t length = strlen(cases[i].before);
        assert_int_equal(bl_bench_logged(&b, "incomplete last line"),
                         length > 0 && cases[i].before[length - 1] != '\n');
        assert_int_equal(letters(&b, 3, "ab"), 0);
        finish(&b);
        int b_first = strstr(cases[i].kept, "b,a") != NULL;
        snprintf(wanted, sizeof(wanted), "%s3" T "%s\n", cases[i].kept,
                 b_first ? "3.25,3" : "3,3.25");
        assert_string_equal(get_file(), wanted);
    }
    /* A header with the fixed columns only, and one that grows. */
    struct bl_bench b;
    set_file("step,attempt,time\n1,1,5\n");
    open_sink(&b, "");
    assert_int_equal(letters(&b, 3, "ab"), 0);
    finish(&b);
    assert_string_equal(get_file(), "step,attempt,time,a,b\n1,1,5,,\n3" T "3,3.25\n");
}

static void test_foreign_files(void **state)
{
    (void)state;
    static const char *const foreign[] = {
        "hello\n",
        "step,attempt\n1,2\n",
        "step,time,attempt,a\n",
        "step,attempt,time,a,a\n",
        "step,attempt,time,\"a\n",
        "step,attempt,time,\"a\"b\n",
        "\"step,attempt,time\"\n",
    };
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++) {
        struct bl_bench b;
        bl_bench_start(&b);
        b.info.directory = folder;
        set_file(foreign[i]);
        bl_bench_refuses(&b, BL_KIND_SINK, "csv", "", BL_EXIT_USAGE, "move the file away");
        assert_string_equal(get_file(), foreign[i]);
        bl_bench_stop(&b);
    }
}

static void test_every(void **state)
{
    (void)state;
    static const char *const names[] = {"a", "loss/val"};
    const double values[] = {1, 2};
    struct bl_bench b;
    unlink(path);
    open_sink(&b, "every = 4;");
    for (uint64_t s = 1; s <= 10; s++)
        assert_int_equal(write_row(&b, s, s == 6 ? 2 : 1, names, values), 0);
    finish(&b); /* the run ended at 10, for whatever reason */
    assert_string_equal(get_file(), "step,attempt,time,a,loss/val\n1" T "1,\n4" T "1,\n6" T
                                    "1,2\n8" T "1,\n10" T "1,\n");
    unlink(path);
    open_sink(&b, "every = 4;");
    for (uint64_t s = 1; s <= 8; s++)
        assert_int_equal(write_row(&b, s, 1, names, values), 0);
    finish(&b);
    assert_string_equal(get_file(), "step,attempt,time,a\n1" T "1\n4" T "1\n8" T "1\n");
}

static void test_columns(void **state)
{
    (void)state;
    static const char *const names[] = {"loss/ce", "optim/lr", "grad/a.weight/norm", "loss/total"};
    const double values[] = {1, 2, 3, 4};
    struct bl_bench b;
    unlink(path);
    open_sink(&b, "columns = [ \"loss/*\", \"optim/lr\" ];");
    assert_int_equal(write_row(&b, 1, 4, names, values), 0);
    finish(&b);
    assert_string_equal(get_file(), "step,attempt,time,loss/ce,optim/lr,loss/total\n1" T "1,2,4\n");
}

/* Many metrics, two sets of them in turn, a file of several reading pieces. */
static void test_large(void **state)
{
    (void)state;
    enum { N = 600, STEPS = 60 };
    static char text[N][32];
    static const char *names[N];
    static double values[N];
    struct bl_bench b;
    for (int i = 0; i < N; i++) {
        snprintf(text[i], sizeof(text[i]), "grad/layers.%d.weight/norm", i);
        names[i] = text[i];
    }
    unlink(path);
    open_sink(&b, "");
    for (uint64_t s = 1; s <= STEPS; s++) {
        for (int i = 0; i < N; i++)
            values[i] = (double)s + i;
        /* the last row has all, the others the first or the last 200 of the first 400 */
        const uint64_t first = s == STEPS ? 0 : s % 2 * 200, n = s == STEPS ? N : 200;
        assert_int_equal(write_row(&b, s, n, names + first, values + first), 0);
    }
    finish(&b);
    char *at = get_file();
    for (uint64_t line = 0; line <= STEPS; line++) {
        char *end = strchr(at, '\n');
        size_t commas = 0;
        assert_non_null(end);
        for (char *p = at; p < end; p++)
            commas += *p == ',';
        assert_int_equal(commas, 3 + N - 1);
        if (line > 0)
            assert_int_equal(strtoull(at, NULL, 10), line);
        at = end + 1;
    }
    assert_int_equal(*at, '\0');
}

/* No room: an error each time, and what is there stays whole, for rows and for a wider file. */
static void test_no_room(void **state)
{
    (void)state;
    struct rlimit before, small;
    struct bl_bench b;
    unlink(path);
    signal(SIGXFSZ, SIG_IGN);
    open_sink(&b, "");
    assert_int_equal(letters(&b, 1, "ab"), 0);
    const char *kept = "step,attempt,time,a,b\n1" T "1,1.25\n";
    assert_string_equal(get_file(), kept);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = strlen(kept) + 2; /* part of a row fits; another column wants 3 bytes */
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    int row = letters(&b, 2, "ab"), wider = letters(&b, 3, "abc");
    struct bl_error err = b.err;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(row, -1);
    assert_int_equal(wider, -1);
    assert_non_null(strstr(err.text, "metrics.csv: step 3 not written"));
    assert_string_equal(get_file(), kept);
    assert_int_equal(access(beside, F_OK), -1);
    /* Room again: the next row is there, with the column that had no room. */
    assert_int_equal(letters(&b, 4, "ab"), 0);
    finish(&b);
    assert_string_equal(get_file(), "step,attempt,time,a,b,c\n1" T "1,1.25,\n4" T "4,4.25,\n");
}

/* Without a directory (checks, tests) and on ranks other than 0 nothing is written. */
static void test_silent(void **state)
{
    (void)state;
    struct bl_bench b;
    unlink(path);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SINK, "csv", "");
    assert_int_equal(letters(&b, 1, "a"), 0);
    finish(&b);
    bl_bench_start(&b);
    b.info.directory = folder;
    b.services.rank = 1;
    b.services.ranks = 2;
    bl_bench_open(&b, BL_KIND_SINK, "csv", "");
    assert_int_equal(letters(&b, 1, "a"), 0);
    finish(&b);
    assert_int_equal(access(path, F_OK), -1);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/metrics.csv", folder);
    snprintf(beside, sizeof(beside), "%s/metrics.csv.new", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common), cmocka_unit_test(test_late_columns),
        cmocka_unit_test(test_values), cmocka_unit_test(test_names),
        cmocka_unit_test(test_resume), cmocka_unit_test(test_foreign_files),
        cmocka_unit_test(test_every),  cmocka_unit_test(test_columns),
        cmocka_unit_test(test_large),  cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_silent),
    };
    return cmocka_run_group_tests_name("sink csv", tests, make_folder, remove_folder);
}
