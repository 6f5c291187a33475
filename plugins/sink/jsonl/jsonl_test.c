/* The JSON lines sink: every line parses, values come back to the bit, cut lines are repaired. */
#include "tests/lib/plugin_test.h"

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>

static char folder[] = "/tmp/ballast-jsonl-XXXXXX";
static char path[64];

static void open_with(struct bl_bench *b, const char *config)
{
    bl_bench_start(b);
    b->info.directory = folder;
    b->info.steps = 20;
    bl_bench_open(b, BL_KIND_SINK, "jsonl", config);
}

static void open_sink(struct bl_bench *b)
{
    open_with(b, "");
}

static int write_row(const struct bl_bench *b, uint64_t step, uint64_t count,
                     const char *const *names, const double *values, struct bl_error *err)
{
    struct bl_record r = {.size = sizeof(r),
                          .attempt = 2,
                          .step = step,
                          .time = 1700000000.125,
                          .count = count,
                          .names = names,
                          .values = values};

    memset(err, 0, sizeof(*err));
    return b->ops->sink.write(b->self, &r, err);
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
    size_t n;

    assert_non_null(f);
    n = fread(text, 1, sizeof(text) - 1, f);
    text[n] = '\0';
    fclose(f);
    return text;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SINK, "jsonl", "");
}

static void test_values_come_back(void **state)
{
    static const char *const names[] = {"loss/ce", "a", "b", "c", "d", "e", "f", "g"};
    const double values[] = {0.1,   1.0 / 3.0,          1e300, -5e-324,
                             120.0, 9007199254740993.0, -0.0,  0.1 + 0.2};
    json_t *root;
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    open_sink(&b);
    assert_int_equal(write_row(&b, 7, 8, names, values, &err), 0);
    assert_int_equal(b.ops->sink.finish(b.self, &err), 0);
    bl_bench_stop(&b);
    root = json_loads(get_file(), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "run")), "bench");
    assert_int_equal(json_integer_value(json_object_get(root, "attempt")), 2);
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 7);
    assert_true(json_number_value(json_object_get(root, "time")) == 1700000000.125);
    for (int i = 0; i < 8; i++)
        assert_true(json_number_value(json_object_get(root, names[i])) == values[i]);
    json_decref(root);
    assert_non_null(strstr(get_file(), "\"loss/ce\":0.1,")); /* the shortest form */
    assert_non_null(strstr(get_file(), "\"d\":120,"));
}

/* The fewest digits, the shortest subnormal included. */
static void test_shortest(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d", "e"};
    const double values[] = {5e-324, 1e-320, 2.2250738585072014e-308, 0.3, 1e22};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    open_sink(&b);
    assert_int_equal(write_row(&b, 1, 5, names, values, &err), 0);
    bl_bench_stop(&b);
    assert_non_null(strstr(get_file(), "\"a\":5e-324,\"b\":1e-320,\"c\":2.2250738585072014e-308,"
                                       "\"d\":0.3,\"e\":1e+22}\n"));
}

/* The steps in the file, as "1 8 12 ". */
static const char *steps_in_file(void)
{
    static char out[400];
    unsigned long step;

    out[0] = '\0';
    for (const char *p = get_file(); (p = strstr(p, "\"step\":")) != NULL; p++)
        if (sscanf(p, "\"step\":%lu", &step) == 1)
            snprintf(out + strlen(out), sizeof(out) - strlen(out), "%lu ", step);
    return out;
}

static void test_every(void **state)
{
    static const char *const plain[] = {"loss/ce"}, *const held_out[] = {"loss/ce", "loss/val"};
    const double values[] = {1.0, 2.0};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    open_with(&b, "every = 8;");
    for (uint64_t s = 1; s <= 20; s++)
        assert_int_equal(
            write_row(&b, s, s == 11 ? 2 : 1, s == 11 ? held_out : plain, values, &err), 0);
    assert_int_equal(b.ops->sink.finish(b.self, &err), 0);
    bl_bench_stop(&b);
    assert_string_equal(steps_in_file(), "1 8 11 16 20 "); /* 20: the plan's last */
    open_with(&b, "every = 8;");                           /* a resumed run that ends early */
    for (uint64_t s = 21; s <= 27; s++)
        assert_int_equal(write_row(&b, s, 1, plain, values, &err), 0);
    assert_string_equal(steps_in_file(), "1 8 11 16 20 24 ");
    assert_int_equal(b.ops->sink.finish(b.self, &err), 0);
    assert_int_equal(b.ops->sink.finish(b.self, &err), 0);
    bl_bench_stop(&b);
    assert_string_equal(steps_in_file(), "1 8 11 16 20 24 27 "); /* its last row, once */
}

static void test_not_finite(void **state)
{
    static const char *const names[] = {"x", "y", "z"};
    const double values[] = {NAN, INFINITY, -INFINITY};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    open_sink(&b);
    assert_int_equal(write_row(&b, 1, 3, names, values, &err), 0);
    bl_bench_stop(&b);
    assert_non_null(strstr(get_file(), "\"x\":\"nan\",\"y\":\"inf\",\"z\":\"-inf\"}\n"));
}

/* Whatever a name holds, the line is JSON, and the row's own keys are not written twice. */
static void test_hostile_names(void **state)
{
    static const char *const names[] = {
        "quote\"back\\slash",           "tab\tline\n", "\xff\xc0\xaf\xed\xa0",
        "caf\xc3\xa9 \xf0\x9f\x98\x80", "step",        "\xe2\x82"};
    const double values[] = {1, 2, 3, 4, 99, 6};
    json_t *root;
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    bl_bench_start(&b);
    b.info.directory = folder;
    b.info.name = "na\"me\x01";
    bl_bench_open(&b, BL_KIND_SINK, "jsonl", "");
    assert_int_equal(write_row(&b, 1, 6, names, values, &err), 0);
    bl_bench_stop(&b);
    root = json_loads(get_file(), JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(root);
    assert_string_equal(json_string_value(json_object_get(root, "run")), "na\"me\x01");
    assert_int_equal(json_integer_value(json_object_get(root, "step")), 1);
    assert_true(json_number_value(json_object_get(root, names[0])) == 1.0);
    assert_true(json_number_value(json_object_get(root, names[1])) == 2.0);
    assert_true(json_number_value(json_object_get(root, names[3])) == 4.0);
    json_decref(root);
    assert_non_null(strchr(get_file(), '\n'));
    assert_ptr_equal(strchr(get_file(), '\n') + 1, strchr(get_file(), '\0')); /* one line */
}

static void test_locale(void **state)
{
    static const char *const names[] = {"x"};
    const double values[] = {0.5};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    if (!setlocale(LC_ALL, "de_DE.UTF-8")) {
        printf("no locale de_DE.UTF-8 here\n");
        skip();
    }
    unlink(path);
    open_sink(&b);
    assert_int_equal(write_row(&b, 1, 1, names, values, &err), 0);
    bl_bench_stop(&b);
    setlocale(LC_ALL, "C");
    assert_non_null(strstr(get_file(), "\"x\":0.5}"));
}

static void test_appends_and_repairs(void **state)
{
    static const struct {
        const char *before, *kept;
    } cases[] = {{"{\"step\":1}\n", "{\"step\":1}\n"},
                 {"{\"step\":1}\n{\"step\":2}\n{\"st", "{\"step\":1}\n{\"step\":2}\n"},
                 {"{\"step\":1", ""},
                 {"", ""}};
    static const char *const names[] = {"x"};
    const double values[] = {1};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        size_t n = strlen(cases[i].kept);
        set_file(cases[i].before);
        open_sink(&b);
        assert_int_equal(bl_bench_logged(&b, "incomplete last line"),
                         strcmp(cases[i].before, cases[i].kept) != 0);
        assert_int_equal(write_row(&b, 3, 1, names, values, &err), 0);
        bl_bench_stop(&b);
        assert_memory_equal(get_file(), cases[i].kept, n);
        assert_memory_equal(get_file() + n, "{\"run\":\"bench\"", 14);
    }
}

/* A cut line longer than the piece in which the file is read backwards. */
static void test_repairs_long_line(void **state)
{
    FILE *f = fopen(path, "wb");
    struct bl_bench b;

    (void)state;
    assert_non_null(f);
    fputs("{\"step\":1}\n{\"a\":\"", f);
    for (int i = 0; i < 200000; i++)
        fputc('x', f);
    fclose(f);
    open_sink(&b);
    bl_bench_stop(&b);
    assert_string_equal(get_file(), "{\"step\":1}\n");
}

/* No room: the error comes back and no half line stays. A file size limit stands for a full disk;
 * rows are longer than what is left, so the write is cut short. */
static void test_no_room(void **state)
{
    static const char *const names[] = {"x"};
    const double values[] = {1};
    struct rlimit before, limit;
    struct bl_error err;
    struct bl_bench b;
    char *text;
    int failed = 0;

    (void)state;
    unlink(path);
    open_sink(&b);
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 200;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    for (uint64_t s = 1; s <= 5; s++)
        failed += write_row(&b, s, 1, names, values, &err) != 0;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(failed, 3);
    assert_non_null(strstr(err.text, path));
    assert_int_equal(write_row(&b, 6, 1, names, values, &err), 0);
    bl_bench_stop(&b);
    text = get_file();
    for (int line = 0; line < 3; line++) {
        char *end = strchr(text, '\n');
        json_t *root;
        assert_non_null(end);
        root = json_loadb(text, (size_t)(end - text), JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(root);
        assert_int_equal(json_integer_value(json_object_get(root, "step")),
                         line < 2 ? line + 1 : 6);
        json_decref(root);
        text = end + 1;
    }
    assert_string_equal(text, "");
}

static void test_refusals(void **state)
{
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    b.info.directory = "/nonexistent/folder";
    assert_int_equal(bl_bench_try(&b, BL_KIND_SINK, "jsonl", ""), -1);
    assert_non_null(strstr(b.err.text, "/nonexistent/folder/metrics.jsonl"));
    bl_bench_stop(&b);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    bl_bench_start(&b);
    b.info.directory = folder;
    assert_int_equal(bl_bench_try(&b, BL_KIND_SINK, "jsonl", ""), -1);
    assert_non_null(strstr(b.err.text, "not a regular file"));
    bl_bench_stop(&b);
    unlink(path);
}

/* Without a directory (checks, tests) and on ranks other than 0 nothing is written. */
static void test_silent(void **state)
{
    static const char *const names[] = {"x"};
    const double values[] = {1};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    unlink(path);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SINK, "jsonl", "");
    assert_int_equal(write_row(&b, 1, 1, names, values, &err), 0);
    assert_int_equal(b.ops->sink.finish(b.self, &err), 0);
    bl_bench_stop(&b);
    bl_bench_start(&b);
    b.info.directory = folder;
    b.services.rank = 1;
    b.services.ranks = 2;
    bl_bench_open(&b, BL_KIND_SINK, "jsonl", "");
    assert_int_equal(write_row(&b, 1, 1, names, values, &err), 0);
    bl_bench_stop(&b);
    assert_int_equal(access(path, F_OK), -1);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/metrics.jsonl", folder);
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
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_values_come_back),
        cmocka_unit_test(test_shortest),
        cmocka_unit_test(test_every),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_hostile_names),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_appends_and_repairs),
        cmocka_unit_test(test_repairs_long_line),
        cmocka_unit_test(test_no_room),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_silent),
    };
    return cmocka_run_group_tests_name("sink jsonl", tests, make_folder, remove_folder);
}
