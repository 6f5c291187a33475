/* The source of token shards: what it gives, what it refuses. Formats: tests/unit/shards_test.c. */
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

/* 33 ids (first + i) % 61, two sequences; those of 32 bits begin at 70000. */
static void make_ids(const char *path, const void *header, size_t header_bytes, int width,
                     unsigned first)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(header, 1, header_bytes, f), header_bytes);
    for (unsigned i = 0; i < 33; i++) {
        unsigned id = (first + i) % 61 + (width == 4 ? 70000 : 0);
        for (int k = 0; k < width; k++)
            fputc((int)(id >> (8 * k) & 255), f);
    }
    assert_int_equal(fclose(f), 0);
}

/* llm.c's header with the vocabulary in words 3 and 4. */
static void fill_header(unsigned char header[1024], unsigned magic, unsigned version,
                        unsigned vocab)
{
    const unsigned words[5] = {magic, version, 33, vocab, 0x54534c42};

    memset(header, 0, 1024);
    for (unsigned i = 0; i < 20; i++)
        header[i] = (unsigned char)(words[i / 4] >> (8 * (i % 4)));
}

static const char npy16[] = "\x93NUMPY\1\0\x3b\0"
                            "{'descr': '<u2', 'fortran_order': False, 'shape': (33,), }\n";
static const char npy32[] = "\x93NUMPY\1\0\x3b\0"
                            "{'descr': '<u4', 'fortran_order': False, 'shape': (33,), }\n";

/* Three formats in one split, and every id of every sequence. */
static void reads_all(int width)
{
    const char *paths[3] = {in_folder("s0.bin"), in_folder("s1.bin"), in_folder("s2.bin")};
    unsigned add = width == 4 ? 70000 : 0;
    unsigned char header[1024];
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;

    fill_header(header, width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, add + 61);
    make_ids(paths[0], "", 0, width, 0);
    make_ids(paths[1], header, sizeof(header), width, 20);
    make_ids(paths[2], width == 2 ? npy16 : npy32, sizeof(npy16) - 1, width, 40);
    bl_bench_start(&b);
    b.info.vocab = 0;
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 3, "auto", &err), 0);
    b.ops->source.describe(b.self, &info);
    assert_int_equal(info.sequences, 6);
    assert_int_equal(info.vocab, add + 61); /* what one header says holds for all */
    for (unsigned s = 0; s < 6; s++) {
        memset(targets, 0xff, sizeof(targets));
        assert_int_equal(b.ops->source.read(b.self, s, 0, tokens, targets, &err), 0);
        for (unsigned t = 0; t < CONTEXT; t++) {
            unsigned at = 20 * (s / 2) + CONTEXT * (s % 2) + t;
            assert_int_equal(tokens[t], at % 61 + add);
            assert_int_equal(targets[t], (at + 1) % 61 + add);
        }
    }
    /* The first id of the npy file is add + 40 and stands at byte 69. */
    assert_int_equal(b.ops->source.read(b.self, 4, add + 40, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "s2.bin: byte 69: token id "));
    bl_bench_stop(&b);
}

static void test_formats(void **state)
{
    (void)state;
    reads_all(2);
    reads_all(4);
    /* Named formats, and what the content says against them. */
    make_ids(in_folder("s0.bin"), "", 0, 4, 0);
    refuses(in_folder("s0.bin"), "raw16", "not \"raw16\"");
    make_ids(in_folder("s0.bin"), "", 0, 2, 0);
    refuses(in_folder("s0.bin"), "raw32", "not \"raw32\"");
    refuses(in_folder("s0.bin"), "npy", "NUMPY");
    refuses(in_folder("s0.bin"), "llmc", "magic number");
}

static void test_alike(void **state)
{
    const char *paths[2] = {in_folder("s0.bin"), in_folder("s1.bin")};
    unsigned char header[1024];
    struct bl_error err;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    make_ids(paths[0], "", 0, 2, 0);
    make_ids(paths[1], npy32, sizeof(npy32) - 1, 4, 0);
    assert_int_equal(open_files(&b, paths, 2, "auto", &err), -1);
    assert_non_null(strstr(err.text, "s1.bin: ids of 32 bits, those of "));
    assert_non_null(strstr(err.text, "s0.bin have 16"));
    fill_header(header, 20240520, 1, 61);
    make_ids(paths[0], header, sizeof(header), 2, 0);
    fill_header(header, 20240520, 1, 62);
    make_ids(paths[1], header, sizeof(header), 2, 0);
    assert_int_equal(open_files(&b, paths, 2, "auto", &err), -1);
    assert_non_null(strstr(err.text, "s1.bin: its header says a vocabulary of 62, a file before "
                                     "it says 61"));
    bl_bench_stop(&b);
}

/* An id of 2^31 and more would be a negative int32, whatever the vocabulary. */
static void test_negative(void **state)
{
    const char *paths[1] = {in_folder("s0.bin")};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;
    FILE *f;

    (void)state;
    make_ids(paths[0], npy32, sizeof(npy32) - 1, 4, 0);
    f = fopen(paths[0], "r+b");
    assert_non_null(f);
    assert_int_equal(fseek(f, 69 + 4 * 16, SEEK_SET), 0); /* the last target of sequence 0 */
    put32(f, 0xffffffffu);
    assert_int_equal(fclose(f), 0);
    bl_bench_start(&b);
    b.info.vocab = 0;
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "npy", &err), 0);
    assert_int_equal(b.ops->source.read(b.self, 0, 0, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "byte 133: token id 4294967295"));
    bl_bench_stop(&b);
}

/* A sequence that begins beyond 4 GiB of a sparse file. */
static void test_large_file(void **state)
{
    const uint64_t size = 5ull << 30, index = ((5ull << 30) / 2 - 1) / CONTEXT - 1;
    const char *paths[1] = {in_folder("s0.bin")};
    struct bl_source_info info = {.size = sizeof(info)};
    int32_t tokens[CONTEXT], targets[CONTEXT];
    struct bl_error err;
    struct bl_bench b;
    FILE *f = fopen(paths[0], "wb");

    (void)state;
    assert_non_null(f);
    assert_int_equal(fseeko(f, (off_t)(2 * index * CONTEXT), SEEK_SET), 0);
    for (int i = 0; i <= CONTEXT; i++) {
        fputc(i + 1, f);
        fputc(0, f);
    }
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(paths[0], (off_t)size), 0);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "raw16", &err), 0);
    b.ops->source.describe(b.self, &info);
    assert_int_equal(info.sequences, index + 1);
    assert_int_equal(b.ops->source.read(b.self, index, 32, tokens, targets, &err), 0);
    for (int i = 0; i < CONTEXT; i++) {
        assert_int_equal(tokens[i], i + 1);
        assert_int_equal(targets[i], i + 2);
    }
    assert_int_equal(b.ops->source.read(b.self, index, 17, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "byte 5368709088: token id 17"));
    bl_bench_stop(&b);
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

    make_good(path, 40, 0);
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_SOURCE, "tokens", "");
    assert_int_equal(open_files(&b, paths, 1, "auto", &err), 0);
    make_good(in_folder("s0.bin"), 40, 0); /* the same bytes under another inode */
    assert_int_equal(rename(in_folder("s0.bin"), path), 0);
    assert_int_equal(b.ops->source.read(b.self, 1, 32, tokens, targets, &err), -1);
    assert_non_null(strstr(err.text, "changed while in use: removed or replaced"));
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
        cmocka_unit_test(test_formats),     cmocka_unit_test(test_alike),
        cmocka_unit_test(test_negative),    cmocka_unit_test(test_large_file),
    };
    return cmocka_run_group_tests_name("source tokens", tests, make_folder, remove_folder);
}
