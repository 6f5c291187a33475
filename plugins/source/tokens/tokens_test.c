/* The source of llm.c shards: what it accepts, what it gives, what it refuses. */
#include "tests/lib/plugin_test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CONTEXT = 16 }; /* of the bench */

static char folder[] = "/tmp/ballast-tokens-XXXXXX";

static const char *in_folder(const char *name)
{
    static char paths[8][128];
    static int next;
    char *path = paths[next++ % 8];

    snprintf(path, sizeof(paths[0]), "%s/%s", folder, name);
    return path;
}

static void put32(FILE *f, unsigned value)
{
    for (int i = 0; i < 4; i++)
        fputc((int)(value >> (8 * i) & 255), f);
}

/* A shard of `items` ids (first + i) % 30, with the header fields given. */
static void make_shard(const char *path, unsigned magic, unsigned version, unsigned count,
                       unsigned items, unsigned first)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    put32(f, magic);
    put32(f, version);
    put32(f, count);
    for (int i = 3; i < 256; i++)
        put32(f, 0);
    for (unsigned i = 0; i < items; i++) {
        fputc((int)((first + i) % 30), f);
        fputc(0, f);
    }
    assert_int_equal(fclose(f), 0);
}

static void make_good(const char *path, unsigned items, unsigned first)
{
    make_shard(path, 20240520, 1, items, items, first);
}

static int open_files(struct bl_bench *b, const char *const *paths, uint64_t count,
                      const char *format, struct bl_error *err)
{
    struct bl_source_files files = {
        .size = sizeof(files), .count = count, .paths = paths, .format = format};

    memset(err, 0, sizeof(*err));
    return b->ops->source.open(b->self, &files, err);
}

static void refuses(const char *path, const char *format, const char *word)
{
    const char *paths[1] = {path};
    struct bl_error err;
    struct bl_bench b;

    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, path ? 1 : 0, format, &err), -1);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
    bl_bench_stop(&b);
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_SOURCE, "tokens", "");
}

static void test_sequences(void **state)
{
    /* 40 tokens hold 2 sequences of 16 + 1, 16 tokens none, 17 one, 33 two. */
    static const unsigned items[4] = {40, 16, 17, 33};
    const char *paths[4];
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    for (unsigned i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof(name), "s%u.bin", i);
        paths[i] = in_folder(name);
        make_good(paths[i], items[i], 7 * i);
    }
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 4, "llmc", &err), 0);
    b.ops->source.describe(b.self, &info);
    assert_int_equal(info.sequences, 5);
    assert_int_equal(info.tokens, 5 * CONTEXT);
    assert_int_equal(info.vocab, 0);
    assert_true(isnan(info.entropy));
    for (unsigned s = 0; s < 5; s++) {
        static const unsigned shard[5] = {0, 0, 2, 3, 3}, within[5] = {0, 1, 0, 0, 1};
        assert_int_equal(b.ops->source.read(b.self, s, 32, tokens, targets, &err), 0);
        for (unsigned t = 0; t < CONTEXT; t++) {
            unsigned at = 7 * shard[s] + CONTEXT * within[s] + t;
            assert_int_equal(tokens[t], at % 30);
            assert_int_equal(targets[t], (at + 1) % 30);
        }
    }
    assert_int_equal(b.ops->source.read(b.self, 5, 32, tokens, targets, &err), -1);
    bl_bench_stop(&b);
}

/* More shards than descriptors are kept open: the rest is opened for each read. */
static void test_many_shards(void **state)
{
    enum { SHARDS = 300 };
    static char names[SHARDS][64];
    const char *paths[SHARDS];
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct rlimit before, limit;
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    limit = before;
    limit.rlim_cur = SHARDS;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
    for (unsigned i = 0; i < SHARDS; i++) {
        snprintf(names[i], sizeof(names[i]), "%s/m%03u.bin", folder, i);
        paths[i] = names[i];
        make_good(paths[i], 17, i);
    }
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, SHARDS, "auto", &err), 0);
    for (unsigned i = 0; i < SHARDS; i++) {
        assert_int_equal(b.ops->source.read(b.self, i, 32, tokens, targets, &err), 0);
        assert_int_equal(tokens[0], i % 30);
    }
    make_good(paths[SHARDS - 1], 18, 0);
    assert_int_equal(b.ops->source.read(b.self, SHARDS - 1, 32, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "changed while in use"));
    bl_bench_stop(&b);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    for (unsigned i = 0; i < SHARDS; i++)
        unlink(paths[i]);
}

static void test_id_outside_vocabulary(void **state)
{
    const char *path = in_folder("id.bin"), *paths[1] = {path};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    make_good(path, 33, 0); /* id 29 stands at item 29: byte 1024 + 58 */
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "auto", &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 30, tokens, targets, &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 0, 29, tokens, targets, &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 29, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "byte 1082"));
    assert_non_null(strstr(err.text, "29"));
    bl_bench_stop(&b);
    /* The last id of a sequence is a target only; it is checked like the others. Item 16 is 16. */
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "auto", &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 0, 16, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "byte 1056"));
    bl_bench_stop(&b);
}

static void test_refusals(void **state)
{
    const char *path = in_folder("bad.bin");

    (void)state;
    refuses(NULL, "auto", "data.train is empty: ");
    make_good(path, 40, 0);
    refuses(path, "gpt2", "\"llmc\"");
    refuses(in_folder("absent.bin"), "auto", "No such file");
    refuses(folder, "auto", "directory");
    make_shard(path, 20240521, 1, 40, 40, 0);
    refuses(path, "auto", "byte 0: magic number 20240521");
    make_shard(path, 20240520, 2, 40, 40, 0);
    refuses(path, "auto", "byte 4: version 2");
    make_shard(path, 20240520, 1, 41, 40, 0);
    refuses(path, "auto", "byte 8: the header says 41 tokens");
    make_shard(path, 20240520, 1, 40, 41, 0);
    refuses(path, "auto", "byte 8");
    make_shard(path, 20240520, 1, 0xffffffffu, 40, 0);
    refuses(path, "auto", "byte 8");
    make_good(path, 40, 0);
    assert_int_equal(truncate(path, 1024 + 79), 0);
    refuses(path, "auto", "byte 8");
    assert_int_equal(truncate(path, 1000), 0);
    refuses(path, "auto", "1000 bytes");
    assert_int_equal(truncate(path, 0), 0);
    refuses(path, "auto", "0 bytes");
    make_good(path, 16, 0);
    refuses(path, "auto", "17 tokens that a sequence needs");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(path, "auto", "regular file"); /* and does not wait for a writer */
    unlink(path);
}

/* A shard that is cut or rewritten while it is in use is an error, not a crash. */
static void test_changed_file(void **state)
{
    const char *path = in_folder("changing.bin"), *paths[1] = {path};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct timespec later[2] = {{0, UTIME_NOW}, {2000000000, 0}};
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    make_good(path, 40, 0);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "auto", &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 32, tokens, targets, &err), 0);
    assert_int_equal(truncate(path, 1024 + 40), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 32, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, path));
    assert_non_null(strstr(err.text, "1064 bytes now, 1104 at the start"));
    bl_bench_stop(&b);

    make_good(path, 40, 0);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "auto", &err), 0);
    assert_int_equal(utimensat(-1, path, later, 0), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 32, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "changed while in use"));
    bl_bench_stop(&b);
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state)
{
    static const char *const names[] = {"s0.bin", "s1.bin",  "s2.bin",      "s3.bin",
                                        "id.bin", "bad.bin", "changing.bin"};

    (void)state;
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        unlink(in_folder(names[i]));
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),      cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_many_shards), cmocka_unit_test(test_id_outside_vocabulary),
        cmocka_unit_test(test_refusals),    cmocka_unit_test(test_changed_file),
    };
    return cmocka_run_group_tests_name("source tokens", tests, make_folder, remove_folder);
}
