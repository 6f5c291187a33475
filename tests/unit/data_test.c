/* Order of samples, opening of splits. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/data.h"

static char folder[] = "/tmp/ballast-data-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[512][128];
    static int next;
    char *path = paths[next++ % 512];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void put(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

static void put_text(const char *path, const char *text)
{
    put(path, text, strlen(text));
}

/* ---- sampler --------------------------------------------------------------------------------- */

static void test_epochs_are_permutations(void **state)
{
    static const uint64_t sizes[] = {1, 2, 3, 7, 16, 100, 1000};

    (void)state;
    for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
        for (uint64_t epoch = 0; epoch < 4; epoch++) {
            unsigned char seen[1000] = {0};
            for (uint64_t i = 0; i < sizes[k]; i++) {
                uint64_t at = bl_sample_index(7, sizes[k], epoch * sizes[k] + i);
                assert_true(at < sizes[k]);
                assert_int_equal(seen[at]++, 0);
            }
        }
    }
}

/* A random order has one fixed point on average; 15 or more have a probability below 1e-12. */
static void test_order_depends_on_seed_and_epoch(void **state)
{
    enum { N = 5000 };
    int between_epochs = 0, between_seeds = 0, in_place = 0;

    (void)state;
    for (uint64_t i = 0; i < N; i++) {
        uint64_t at = bl_sample_index(7, N, i);
        assert_true(at == bl_sample_index(7, N, i));
        in_place += at == i;
        between_epochs += at == bl_sample_index(7, N, N + i);
        between_seeds += at == bl_sample_index(8, N, i);
    }
    assert_in_range(in_place, 0, 14);
    assert_in_range(between_epochs, 0, 14);
    assert_in_range(between_seeds, 0, 14);
}

/* ---- opening --------------------------------------------------------------------------------- */

/* A source that records what it was given. */
struct recorder {
    char seen[1024];
    uint64_t count, sequences;
    uint32_t validation;
    int answer;
};

static int32_t record_open(void *self, const struct bl_source_files *files, struct bl_error *err)
{
    struct recorder *r = self;

    r->count = files->count;
    r->validation = files->validation;
    r->seen[0] = '\0';
    for (uint64_t i = 0; i < files->count; i++) {
        strcat(r->seen, strrchr(files->paths[i], '/') + 1);
        strcat(r->seen, " ");
    }
    assert_string_equal(files->format, "auto");
    return r->answer == 0 ? 0 : bl_error_set(err, 0, "the source says no");
}

static void record_describe(const void *self, struct bl_source_info *out)
{
    const struct recorder *r = self;

    assert_int_equal(out->size, sizeof(*out));
    out->vocab = 5;
    out->sequences = r->sequences;
}

static const struct bl_plugin record_plugin = {.name = "record"};

static int open_split(struct recorder *r, const char *const *patterns, uint64_t count,
                      int validation, struct bl_source_info *info, struct bl_error *err)
{
    struct bl_plugin_instance source = {.plugin = &record_plugin, .self = r};
    struct bl_data_options data = {.source = "record", .format = "auto"};

    memset(err, 0, sizeof(*err));
    source.ops.source.open = record_open;
    source.ops.source.describe = record_describe;
    *(validation ? &data.validation : &data.train) = (struct bl_strings){count, patterns};
    return bl_data_open(&source, &data, validation, info, err);
}

static void test_globs(void **state)
{
    const char *patterns[4];
    struct recorder r = {.sequences = 3};
    struct bl_source_info info;
    struct bl_error err;

    (void)state;
    put_text(in_folder("b-1.bin"), "x");
    put_text(in_folder("b-2.bin"), "x");
    put_text(in_folder("B-9.bin"), "x");
    put_text(in_folder("a.bin"), "x");
    patterns[0] = in_folder("b-*.bin");
    patterns[1] = in_folder("?.bin");
    patterns[2] = in_folder("b-1.bin"); /* a second time */
    patterns[3] = in_folder("B-9.bin");
    assert_int_equal(open_split(&r, patterns, 4, 0, &info, &err), 0);
    assert_string_equal(r.seen, "B-9.bin a.bin b-1.bin b-2.bin "); /* by bytes */
    assert_int_equal(r.validation, 0);
    assert_int_equal(info.sequences, 3);
    assert_int_equal(info.vocab, 5);
    assert_true(isnan(info.entropy));
    assert_int_equal(open_split(&r, patterns + 1, 1, 1, &info, &err), 0);
    assert_int_equal(r.validation, 1);
    assert_string_equal(r.seen, "a.bin ");
    assert_int_equal(open_split(&r, NULL, 0, 0, &info, &err), 0); /* the source decides */
    assert_int_equal(r.count, 0);
}

static void test_open_refusals(void **state)
{
    const char *patterns[2] = {in_folder("a.bin"), in_folder("none-*.bin")};
    struct recorder r = {.sequences = 3};
    struct bl_source_info info = {.vocab = 77};
    struct bl_error err;

    (void)state;
    assert_int_equal(open_split(&r, patterns, 2, 1, &info, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_non_null(strstr(err.text, "data.validation"));
    assert_non_null(strstr(err.text, patterns[1]));
    assert_non_null(strstr(err.text, "matches no file"));
    patterns[1] = in_folder("no-folder/*.bin");
    assert_int_equal(open_split(&r, patterns, 2, 0, &info, &err), -1);
    assert_non_null(strstr(err.text, "matches no file"));
    patterns[1] = in_folder("plain-name.bin");
    assert_int_equal(open_split(&r, patterns, 2, 0, &info, &err), -1);
    assert_non_null(strstr(err.text, "matches no file"));
    r.answer = -1;
    assert_int_equal(open_split(&r, patterns, 1, 0, &info, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_string_equal(err.text, "the source says no");
    r.answer = 0;
    r.sequences = 0;
    assert_int_equal(open_split(&r, patterns, 1, 0, &info, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_int_equal(info.vocab, 77); /* set on success only */
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    char command_line[128];

    (void)state;
    snprintf(command_line, sizeof(command_line), "rm -r %s", folder);
    return system(command_line);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_epochs_are_permutations),
        cmocka_unit_test(test_order_depends_on_seed_and_epoch),
        cmocka_unit_test(test_globs),
        cmocka_unit_test(test_open_refusals),
    };
    return cmocka_run_group_tests_name("data", tests, make_folder, remove_folder);
}
