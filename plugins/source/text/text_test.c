/* The source of plain bytes. */
#include "tests/lib/plugin_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONTEXT = 16 }; /* of the bench */

static char path_a[] = "/tmp/ballast-text-a-XXXXXX", path_b[] = "/tmp/ballast-text-b-XXXXXX";
static const char *const both[2] = {path_a, path_b};

static void write_bytes(const char *path, unsigned count, unsigned first)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    for (unsigned i = 0; i < count; i++)
        fputc((int)((first + i) & 255), f);
    assert_int_equal(fclose(f), 0);
}

static int open_files(struct bl_bench *b, uint64_t count, const char *format, struct bl_error *err)
{
    struct bl_source_files files = {
        .size = sizeof(files), .validation = 1, .count = count, .paths = both, .format = format};

    memset(err, 0, sizeof(*err));
    return b->ops->source.open(b->self, &files, err);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SOURCE, "text", "");
}

static void test_bytes(void **state)
{
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    write_bytes(path_a, 33, 230); /* two sequences, through byte 255 and 0 */
    write_bytes(path_b, 17, 5);   /* one */
    bl_bench_start(&b);
    b.info.vocab = 0;
    bl_bench_open(&b, BL_KIND_SOURCE, "text", "");
    assert_int_equal(open_files(&b, 2, "auto", &err), 0);
    b.ops->source.describe(b.self, &info);
    assert_int_equal(info.vocab, 256);
    assert_int_equal(info.sequences, 3);
    assert_int_equal(info.tokens, 3 * CONTEXT);
    for (unsigned s = 0; s < 3; s++) {
        unsigned first = s < 2 ? 230 + CONTEXT * s : 5;
        assert_int_equal(b.ops->source.read(b.self, s, 256, tokens, targets, &err), 0);
        for (unsigned t = 0; t < CONTEXT; t++) {
            assert_int_equal(tokens[t], (first + t) & 255);
            assert_int_equal(targets[t], (first + t + 1) & 255);
        }
    }
    /* 230 ... 246 does not fit in a vocabulary of 240: value 240 stands at byte 10. */
    assert_int_equal(b.ops->source.read(b.self, 0, 240, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, path_a));
    assert_non_null(strstr(err.text, "byte 10: value 240"));
    bl_bench_stop(&b);
}

static void refuses(uint64_t count, const char *format, const char *word)
{
    struct bl_error err;
    struct bl_bench b;

    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "text", "");
    assert_int_equal(open_files(&b, count, format, &err), -1);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    (void)state;
    refuses(0, "auto", "data.validation is empty: ");
    write_bytes(path_a, 17, 0);
    refuses(1, "llmc", "\"text\"");
    write_bytes(path_a, 16, 0);
    refuses(1, "text", "17 tokens that a sequence needs");
    write_bytes(path_b, 0, 0);
    refuses(2, "text", "the file is empty");
    assert_int_equal(chmod(path_a, 0), 0);
    if (geteuid() != 0) /* root may read everything */
        refuses(1, "auto", "Permission denied");
    assert_int_equal(chmod(path_a, 0600), 0);
}

static int make_files(void **state)
{
    int a = mkstemp(path_a), b = mkstemp(path_b);

    (void)state;
    if (a >= 0)
        close(a);
    if (b >= 0)
        close(b);
    return a >= 0 && b >= 0 ? 0 : -1;
}

static int remove_files(void **state)
{
    (void)state;
    return unlink(path_a) | unlink(path_b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("source text", tests, make_files, remove_files);
}
