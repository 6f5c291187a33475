/* Order of samples, opening of splits, packing of text into shards. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cmd.h"
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

static size_t get(const char *path, unsigned char *bytes, size_t limit)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(bytes, 1, limit, f);
    fclose(f);
    return n;
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

/* ---- packing --------------------------------------------------------------------------------- */

static unsigned char shard[1 << 22];

/* The text of a shard, after its header and size are checked; NUL-terminated. */
static char *unpack(const char *path)
{
    static char text[1 << 21];
    size_t n = get(path, shard, sizeof(shard));
    size_t count = (n - 1024) / 2;

    assert_true(n >= 1024 && n % 2 == 0);
    for (size_t i = 0; i < 1024; i++) {
        static const unsigned char head[8] = {0x88, 0xd8, 0x34, 0x01, 1, 0, 0, 0};
        unsigned char wanted = i < 8 ? head[i] : i < 12 ? (unsigned char)(count >> 8 * (i - 8)) : 0;
        assert_int_equal(shard[i], wanted);
    }
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(shard[1024 + 2 * i + 1], 0);
        text[i] = (char)shard[1024 + 2 * i];
    }
    text[count] = '\0';
    return text;
}

static void test_pack_joins_and_splits(void **state)
{
    const char *inputs[3] = {in_folder("1.txt"), in_folder("2.txt"), in_folder("3.txt")};
    const char *train = in_folder("t.bin"), *validation = in_folder("v.bin");
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    put_text(inputs[0], "one\ntwo");   /* a newline is added */
    put_text(inputs[1], "three\n");    /* has one */
    put_text(inputs[2], "four\nfive"); /* the last file stays as it is: 23 bytes in all */
    assert_int_equal(bl_data_pack(inputs, 3, train, NULL, 0.0, &err), 0);
    assert_string_equal(unpack(train), "one\ntwo\nthree\nfour\nfive");
    assert_int_equal(access(validation, F_OK), -1);
    /* 0.3 of 23 bytes: the part begins at the first line end at or after byte 17. */
    assert_int_equal(bl_data_pack(inputs, 3, train, validation, 0.3, &err), 0);
    assert_string_equal(unpack(train), "one\ntwo\nthree\nfour\n");
    assert_string_equal(unpack(validation), "five");
    assert_int_equal(bl_data_pack(inputs, 3, train, validation, 0.4, &err), 0);
    assert_string_equal(unpack(train), "one\ntwo\nthree\n");
    assert_string_equal(unpack(validation), "four\nfive");
}

static void test_pack_large_and_binary(void **state)
{
    enum { N = 700001 };
    static unsigned char bytes[N];
    const char *input = in_folder("large.bin.txt"), *train = in_folder("t.bin"),
               *again = in_folder("t2.bin"), *validation = in_folder("v.bin");
    struct bl_error err = BL_ERROR_INIT;
    size_t in_train, in_validation;
    char *text;

    (void)state;
    for (size_t i = 0; i < N; i++)
        bytes[i] = (unsigned char)(i * 2654435761u >> 13);
    put(input, bytes, N);
    assert_int_equal(bl_data_pack(&input, 1, train, validation, 0.1, &err), 0);
    text = unpack(train);
    in_train = (get(train, shard, sizeof(shard)) - 1024) / 2;
    assert_memory_equal(text, bytes, in_train);
    text = unpack(validation);
    in_validation = (get(validation, shard, sizeof(shard)) - 1024) / 2;
    assert_int_equal(in_train + in_validation, N);
    assert_memory_equal(text, bytes + in_train, in_validation);
    assert_int_equal(bytes[in_train - 1], '\n');
    assert_true(in_train >= N - N / 10 - 1); /* the cut and the line it falls into */
    assert_null(memchr(bytes + N - N / 10, '\n', in_train - 1 - (N - N / 10)));
    assert_int_equal(bl_data_pack(&input, 1, again, validation, 0.1, &err), 0);
    {
        size_t n = get(train, shard, sizeof(shard)), m;
        static unsigned char other[1 << 22];
        m = get(again, other, sizeof(other));
        assert_int_equal(n, m);
        assert_memory_equal(shard, other, n);
    }
}

static void refuses(const char *input, const char *validation, double share, int code,
                    const char *word)
{
    const char *inputs[2] = {in_folder("1.txt"), input};
    const char *train = in_folder("out-train.bin");
    struct bl_error err = BL_ERROR_INIT;

    assert_int_equal(bl_data_pack(inputs, 2, train, validation, share, &err), -1);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
    assert_int_equal(err.code, code);
    assert_int_equal(access(train, F_OK), -1);
    assert_int_equal(access(in_folder("out-train.bin.tmp"), F_OK), -1);
    assert_int_equal(access(in_folder("out-val.bin"), F_OK), -1);
    assert_int_equal(access(in_folder("out-val.bin.tmp"), F_OK), -1);
}

static void test_pack_refusals(void **state)
{
    const char *good = in_folder("2.txt"), *validation = in_folder("out-val.bin"),
               *bad = in_folder("bad");
    int fd;

    (void)state;
    put_text(in_folder("1.txt"), "one\n");
    put_text(good, "two\nthree\n");
    put_text(bad, "");
    refuses(bad, validation, 0.1, BL_EXIT_DATA, "the file is empty");
    unlink(bad);
    refuses(bad, validation, 0.1, BL_EXIT_DATA, "No such file");
    refuses(folder, validation, 0.1, BL_EXIT_DATA, "is a directory");
    assert_int_equal(mkfifo(bad, 0600), 0);
    refuses(bad, validation, 0.1, BL_EXIT_DATA, "not a regular file");
    unlink(bad);
    fd = open(bad, O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, (off_t)INT32_MAX + 1), 0); /* sparse */
    close(fd);
    refuses(bad, validation, 0.1, BL_EXIT_DATA, "2147483647 tokens");
    unlink(bad);
    put_text(bad, "a long last line without any line end after it");
    refuses(bad, validation, 0.2, BL_EXIT_DATA, "no line to cut off");
    refuses(good, validation, 0.6, BL_EXIT_USAGE, "0 ... 0.5");
    refuses(good, validation, NAN, BL_EXIT_USAGE, "0 ... 0.5");
    refuses(good, in_folder("out-train.bin"), 0.1, BL_EXIT_USAGE, "both parts");
    refuses(good, in_folder("no-folder/v.bin"), 0.1, BL_EXIT_DATA, "No such file");
    refuses(good, folder, 0.1, BL_EXIT_DATA, "no regular file");
    refuses(good, good, 0.1, BL_EXIT_DATA, "an input and an output");
    unlink(bad);
}

/* Outputs of an earlier packing survive a failing one. */
static void test_pack_keeps_the_old(void **state)
{
    const char *inputs[2] = {in_folder("1.txt"), in_folder("gone.txt")};
    const char *train = in_folder("t.bin"), *validation = in_folder("v.bin");
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    put_text(inputs[0], "one\ntwo\n");
    assert_int_equal(bl_data_pack(inputs, 1, train, validation, 0.5, &err), 0);
    assert_int_equal(bl_data_pack(inputs, 2, train, validation, 0.5, &err), -1);
    assert_string_equal(unpack(train), "one\n");
    assert_string_equal(unpack(validation), "two\n");
}

/* ---- command --------------------------------------------------------------------------------- */

static int command(struct bl_error *err, int argc, ...)
{
    char *argv[9] = {NULL};
    va_list args;

    va_start(args, argc);
    for (int i = 0; i < argc; i++)
        argv[i] = va_arg(args, char *);
    va_end(args);
    memset(err, 0, sizeof(*err));
    return bl_cmd_data(argc, argv, err);
}

static void test_command(void **state)
{
    const char *prefix = in_folder("c"), *input = in_folder("1.txt");
    struct bl_error err;

    (void)state;
    put_text(input, "one\ntwo\n");
    assert_int_equal(command(&err, 6, "data", "pack", "--validation", "0.5", prefix, input), 0);
    assert_string_equal(unpack(in_folder("c-train.bin")), "one\n");
    assert_string_equal(unpack(in_folder("c-val.bin")), "two\n");
    unlink(in_folder("c-val.bin"));
    assert_int_equal(command(&err, 5, "data", "pack", "--validation=0", prefix, input), 0);
    assert_string_equal(unpack(in_folder("c-train.bin")), "one\ntwo\n");
    assert_int_equal(access(in_folder("c-val.bin"), F_OK), -1);
    assert_int_equal(command(&err, 2, "data", "--help"), 0);
    assert_int_equal(command(&err, 1, "data"), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 2, "data", "unpack"), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 3, "data", "pack", prefix), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 5, "data", "pack", "--valid=0.1", prefix, input), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 5, "data", "pack", "--validation=0.1x", prefix, input), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 3, "data", "pack", "--validation"), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    assert_int_equal(command(&err, 4, "data", "pack", prefix, in_folder("absent")), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
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
        cmocka_unit_test(test_pack_joins_and_splits),
        cmocka_unit_test(test_pack_large_and_binary),
        cmocka_unit_test(test_pack_refusals),
        cmocka_unit_test(test_pack_keeps_the_old),
        cmocka_unit_test(test_command),
    };
    return cmocka_run_group_tests_name("data", tests, make_folder, remove_folder);
}
