/* Formats of token shards: detection, refusals, and the scan of whole files. Every file here is
 * written byte by byte; nothing comes from the program's own writer. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/shard_scan.h"

/* ---- hand-made bytes ---- */

struct bytes {
    unsigned char at[1 << 16];
    size_t n;
};

static struct bytes file; /* the one that the tests build */

static void put(uint64_t value, int width)
{
    for (int i = 0; i < width; i++)
        file.at[file.n++] = (unsigned char)(value >> (8 * i));
}

/* A small generator: ids that look alike at even and odd places. */
static unsigned draw(unsigned below)
{
    static uint32_t x = 12345;

    x = x * 1664525u + 1013904223u;
    return (unsigned)(((uint64_t)x * below) >> 32);
}

static void ids(unsigned count, unsigned below, int width)
{
    while (count-- > 0)
        put(draw(below), width);
}

static void llmc(unsigned magic, unsigned version, unsigned count, unsigned vocab, unsigned tag)
{
    file.n = 0;
    put(magic, 4);
    put(version, 4);
    put(count, 4);
    put(vocab, 4);
    put(tag, 4);
    while (file.n < 1024)
        put(0, 4);
}

static void npy(int version, const char *dictionary)
{
    size_t length = strlen(dictionary);

    file.n = 0;
    memcpy(file.at, "\x93NUMPY", 6);
    file.n = 6;
    put((unsigned)version, 2);
    put(length, version == 1 ? 2 : 4);
    memcpy(file.at + file.n, dictionary, length);
    file.n += length;
}

static char why[BL_SHARD_WHY];

static struct bl_shard_layout accepts_as(enum bl_shard_format wanted)
{
    struct bl_shard_layout l;

    if (bl_shard_parse(file.at, file.n, file.n, wanted, &l, why) != 0)
        fail_msg("refused: %s", why);
    return l;
}

static struct bl_shard_layout accepts(void)
{
    return accepts_as(BL_SHARD_AUTO);
}

static void refuses_as(enum bl_shard_format wanted, const char *word)
{
    struct bl_shard_layout l = {.items = 77};

    if (bl_shard_parse(file.at, file.n, file.n, wanted, &l, why) == 0)
        fail_msg("accepted as %s, \"%s\" was expected", bl_shard_format_name(l.format), word);
    if (!strstr(why, word))
        fail_msg("\"%s\" does not have \"%s\"", why, word);
    assert_null(strchr(why, '\n'));
    assert_int_equal(l.items, 77); /* nothing is set without success */
}

static void refuses(const char *word)
{
    refuses_as(BL_SHARD_AUTO, word);
}

static void layout_is(struct bl_shard_layout l, enum bl_shard_format format, unsigned width,
                      uint64_t start, uint64_t items, uint64_t vocab)
{
    assert_string_equal(bl_shard_format_name(l.format), bl_shard_format_name(format));
    assert_int_equal(l.width, width);
    assert_int_equal(l.start, start);
    assert_int_equal(l.items, items);
    assert_int_equal(l.vocab, vocab);
}

/* ---- llm.c ---- */

static void test_llmc(void **state)
{
    (void)state;
    llmc(20240520, 1, 50, 0, 0);
    ids(50, 50257, 2);
    layout_is(accepts(), BL_SHARD_LLMC, 2, 1024, 50, 0);
    layout_is(accepts_as(BL_SHARD_LLMC), BL_SHARD_LLMC, 2, 1024, 50, 0);
    refuses_as(BL_SHARD_NPY, "NUMPY");
    refuses_as(BL_SHARD_RAW16, "header of llm.c");
    refuses_as(BL_SHARD_RAW32, "header of llm.c");

    llmc(20240801, 7, 50, 0, 0);
    ids(50, 128256, 4);
    layout_is(accepts(), BL_SHARD_LLMC, 4, 1024, 50, 0);

    llmc(20240520, 7, 0, 0, 0);
    refuses("byte 4: version 7, only version 1");
    llmc(20240801, 1, 0, 0, 0);
    refuses("byte 4: version 1, only version 7");
    llmc(20240522, 1, 50, 0, 0); /* llm.c's evaluation files */
    ids(50, 50257, 2);
    refuses("byte 0: magic number 20240522");
    llmc(20240520, 1, 51, 0, 0);
    ids(50, 50257, 2);
    refuses("byte 8: the header says 51 tokens of 16 bits after 1024 bytes; the file has 1124 "
            "bytes (cut?)");
    llmc(20240520, 1, 49, 0, 0);
    ids(50, 50257, 2);
    refuses("appended to?");
    llmc(20240801, 7, 25, 0, 0); /* 16-bit ids under the header of 32-bit ones, and half an id */
    ids(49, 50257, 2);
    refuses("byte 8");
    llmc(20240520, 1, 0, 0, 0);
    file.n = 1023;
    refuses("1023 bytes");
    file.n = 4;
    refuses("4 bytes");
}

/* Words 3 and 4: a vocabulary that the packer knew. */
static void test_vocabulary(void **state)
{
    (void)state;
    llmc(20240520, 1, 50, 50257, 0x54534c42);
    ids(50, 50257, 2);
    layout_is(accepts(), BL_SHARD_LLMC, 2, 1024, 50, 50257);
    llmc(20240520, 1, 50, 50257, 0x54534c43); /* somebody else's words */
    ids(50, 50257, 2);
    layout_is(accepts(), BL_SHARD_LLMC, 2, 1024, 50, 0);
    llmc(20240520, 1, 0, 65536, 0x54534c42);
    assert_int_equal(accepts().vocab, 65536);
    llmc(20240520, 1, 0, 65537, 0x54534c42);
    refuses("byte 12: a vocabulary of 65537");
    llmc(20240801, 7, 0, 128256, 0x54534c42);
    assert_int_equal(accepts().vocab, 128256);
    llmc(20240801, 7, 0, 0, 0x54534c42);
    refuses("byte 12");
    llmc(20240801, 7, 0, 0x80000000u, 0x54534c42);
    refuses("byte 12");
}

/* ---- numpy ---- */

static void test_npy(void **state)
{
    (void)state;
    npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }          \n");
    ids(40, 50257, 2);
    layout_is(accepts(), BL_SHARD_NPY, 2, 10 + 69, 40, 0);
    layout_is(accepts_as(BL_SHARD_NPY), BL_SHARD_NPY, 2, 79, 40, 0);
    refuses_as(BL_SHARD_LLMC, "magic number");
    refuses_as(BL_SHARD_RAW16, ".npy header");
    put(0, 1);
    refuses("the .npy header says 40 tokens");
    file.n -= 2;
    refuses("(cut?)");
    for (int version = 2; version <= 3; version++) {
        npy(version, "{\"shape\":(40,),\"fortran_order\":False,\"descr\":\"<u4\"}");
        ids(40, 128256, 4);
        layout_is(accepts(), BL_SHARD_NPY, 4, 12 + 51, 40, 0);
    }
    npy(1, "{'descr': '<i4', 'fortran_order': False, 'shape': (0,), }\n");
    layout_is(accepts(), BL_SHARD_NPY, 4, 10 + 58, 0, 0);
}

static void test_npy_refusals(void **state)
{
    static const char *const cases[][2] = {
        {"{'descr': '>u2', 'fortran_order': False, 'shape': (40,), }", "big-endian"},
        {"{'descr': '<f4', 'fortran_order': False, 'shape': (40,), }", "type '<f4'"},
        {"{'descr': '<i8', 'fortran_order': False, 'shape': (40,), }", "type '<i8'"},
        {"{'descr': '|u1', 'fortran_order': False, 'shape': (40,), }", "type '|u1'"},
        {"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (40,), }", "'record'"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (4, 10), }", "2 dimensions"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }", "0 dimensions"},
        {"{'descr': '<u2', 'fortran_order': True, 'shape': (40,), }", "Fortran"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (9223372036854775848,), }",
         "9223372036854775848 tokens"}, /* 2^63 + 40: twice that is 80 in 64 bits */
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (18446744073709551656,), }",
         "cannot be read"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (-40,), }", "cannot be read"},
        {"{'descr': '<u2', 'fortran_order': False, }", "cannot be read"},
        {"{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (40,)}", "cannot"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (40,), 'more': 1}", "cannot be read"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (40,)} junk", "byte 67"},
        {"{'descr': '<u2", "cannot be read"},
        {"", "byte 10"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        npy(1, cases[i][0]);
        ids(40, 50257, 2);
        refuses(cases[i][1]);
    }
    npy(4, "{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }");
    refuses("version 4.0");
    npy(2, "{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }");
    file.at[11] = 0xff; /* a header of almost 4 GiB */
    refuses("(cut?)");
    file.n = 8;
    refuses("header is cut");
    file.n = 10;
    refuses("header is cut");
    npy(2, "{'descr': '<u2', 'fortran_order': False, 'shape': (0,), }");
    while (file.n < 12 + BL_SHARD_PIECE)
        put(' ', 1);
    file.at[8] = 0;
    file.at[9] = BL_SHARD_PIECE >> 8;
    refuses("no plain array's");
}

/* ---- raw ---- */

static void raw(unsigned count, unsigned below, int width)
{
    file.n = 0;
    ids(count, below, width);
}

static void test_raw(void **state)
{
    /* Vocabularies from characters to the largest in use. */
    static const unsigned narrow[] = {3, 5, 27, 65, 256, 50257, 65536};
    static const unsigned wide[] = {65, 256, 50257, 65536, 128256, 262144, 1000000};

    (void)state;
    for (size_t i = 0; i < sizeof(narrow) / sizeof(narrow[0]); i++) {
        raw(1001, narrow[i], 2);
        layout_is(accepts(), BL_SHARD_RAW16, 2, 0, 1001, 0);
        raw(1000, narrow[i], 2);
        layout_is(accepts(), BL_SHARD_RAW16, 2, 0, 1000, 0);
        layout_is(accepts_as(BL_SHARD_RAW16), BL_SHARD_RAW16, 2, 0, 1000, 0);
        refuses_as(BL_SHARD_RAW32, "not \"raw32\"");
        refuses_as(BL_SHARD_NPY, "NUMPY");
        refuses_as(BL_SHARD_LLMC, "magic number");
    }
    for (size_t i = 0; i < sizeof(wide) / sizeof(wide[0]); i++) {
        raw(1000, wide[i], 4);
        layout_is(accepts(), BL_SHARD_RAW32, 4, 0, 1000, 0);
        layout_is(accepts_as(BL_SHARD_RAW32), BL_SHARD_RAW32, 4, 0, 1000, 0);
        refuses_as(BL_SHARD_RAW16, "not \"raw16\"");
        file.n -= 2;
        refuses("3998 bytes is no multiple of 4");
        refuses_as(BL_SHARD_RAW32, "no multiple of 4");
        file.n--;
        refuses("3997 bytes is odd");
    }
    raw(1000, 50257, 8);
    refuses("64 bits");
    refuses_as(BL_SHARD_RAW16, "64 bits");
    refuses_as(BL_SHARD_RAW32, "64 bits");
}

/* Where the content does not decide, a name must; then it is taken. */
static void test_raw_unclear(void **state)
{
    (void)state;
    file.n = 0;
    for (int i = 0; i < 1000; i++)
        put(0, 2);
    refuses("set data.format");
    layout_is(accepts_as(BL_SHARD_RAW16), BL_SHARD_RAW16, 2, 0, 1000, 0);
    layout_is(accepts_as(BL_SHARD_RAW32), BL_SHARD_RAW32, 4, 0, 500, 0);
    raw(1000, 5, 4); /* as 16 bits: every second id is 0 */
    refuses("set data.format");
    raw(1000, 128256, 4); /* one broken id does not make it a 16-bit file */
    file.at[2003] = 0x7f;
    refuses("set data.format");
    raw(6, 50257, 2);
    refuses("set data.format");
    file.n = 0;
    refuses("0 bytes");
    refuses_as(BL_SHARD_RAW16, "0 bytes");
}

static void test_other_files(void **state)
{
    static const struct {
        const char *bytes, *word;
        size_t length;
    } begins[] = {
        {"\x1f\x8b\x08\0", "gzip", 4}, {"\x28\xb5\x2f\xfd", "zstd", 4}, {"PK\3\4", ".npz", 4},
        {"PAR1", "Parquet", 4},        {"MMIDIDX\0\0", "index", 9},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(begins) / sizeof(begins[0]); i++) {
        raw(1000, 50257, 2);
        memcpy(file.at, begins[i].bytes, begins[i].length);
        refuses(begins[i].word);
        accepts_as(BL_SHARD_RAW16); /* the user's word counts */
    }
    file.n = 0;
    for (int i = 0; i < 100; i++) {
        memcpy(file.at + file.n, "to be or n\xc3\xb6t\n", 14);
        file.n += 14;
    }
    refuses("this is text");
}

/* A parser of untrusted bytes: no prefix, and no byte changed, leads outside the buffer. Meant for
 * the sanitizers; without them a crash still shows. */
static void test_prefixes(void **state)
{
    struct bl_shard_layout l;

    (void)state;
    npy(1, "{'descr': '<u2', 'fortran_order': False, 'shape': (40,), }\n");
    ids(40, 50257, 2);
    for (size_t n = 0; n <= file.n; n++) {
        unsigned char *exact = malloc(n ? n : 1);
        assert_non_null(exact);
        memcpy(exact, file.at, n);
        for (int wanted = BL_SHARD_AUTO; wanted <= BL_SHARD_RAW32; wanted++) {
            bl_shard_parse(exact, n, n, (enum bl_shard_format)wanted, &l, why);
            for (size_t i = 6; n == file.n && i < 69; i++) {
                exact[i] ^= 0x55;
                bl_shard_parse(exact, n, n, (enum bl_shard_format)wanted, &l, why);
                exact[i] ^= 0x55;
            }
        }
        free(exact);
    }
}

static void test_names(void **state)
{
    enum bl_shard_format f;

    (void)state;
    assert_int_equal(bl_shard_format_parse("auto", &f), 0);
    assert_int_equal(f, BL_SHARD_AUTO);
    assert_int_equal(bl_shard_format_parse("raw32", &f), 0);
    assert_int_equal(f, BL_SHARD_RAW32);
    assert_int_equal(bl_shard_format_parse("text", &f), -1);
    assert_int_equal(bl_shard_format_parse("", &f), -1);
}

/* ---- files ---- */

static char folder[] = "/tmp/ballast-shards-XXXXXX";
static char paths[3][64];

static void save(const char *path)
{
    FILE *f = fopen(path, "wb");

    assert_non_null(f);
    assert_int_equal(fwrite(file.at, 1, file.n, f), file.n);
    assert_int_equal(fclose(f), 0);
}

/* Several pieces at the places that detection reads, and several blocks of the scan. */
static void test_scan(void **state)
{
    enum { IDS = 20 * 1000 * 1000 }; /* 40 MB of 16 bits: blocks of 16 MiB */
    struct bl_shard_report r[3];
    struct bl_error err = BL_ERROR_INIT;
    uint16_t *big = malloc(IDS * sizeof(*big));
    FILE *f;

    (void)state;
    assert_non_null(big);
    for (size_t i = 0; i < IDS; i++)
        big[i] = (uint16_t)(7 + (i * 31) % 50000);
    big[11] = 3;
    big[IDS - 1] = 50257; /* the last of all, and one in the middle block */
    big[IDS / 2] = 50300;
    f = fopen(paths[0], "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(big, 2, IDS, f), IDS); /* the build machine is little-endian */
    assert_int_equal(fclose(f), 0);
    free(big);
    llmc(20240801, 7, 3, 128256, 0x54534c42);
    put(9, 4);
    put(128256, 4);
    put(0xffffffffu, 4);
    save(paths[1]);
    file.n = 0;
    save(paths[2]);
    for (int i = 0; i < 3; i++)
        bl_shard_report(paths[i], BL_SHARD_AUTO, &r[i]);
    assert_string_equal(r[0].why, "");
    layout_is(r[0].layout, BL_SHARD_RAW16, 2, 0, IDS, 0);
    assert_int_equal(r[0].size, 2 * IDS);
    assert_string_equal(r[1].why, "");
    assert_non_null(strstr(r[2].why, "empty"));

    assert_int_equal(bl_shard_scan(r, 3, 0, &err), 0); /* each file's own vocabulary */
    assert_string_equal(r[0].why, "");
    assert_int_equal(r[0].scanned, 1);
    assert_int_equal(r[0].smallest, 3);
    assert_int_equal(r[0].largest, 50300);
    assert_int_equal(r[1].smallest, 9);
    assert_true(r[1].largest == 0xffffffffu);
    assert_int_equal(r[1].outside, 2);
    assert_non_null(strstr(r[1].why, "byte 1028: token id 128256, the vocabulary has 128256"));
    assert_int_equal(r[2].scanned, 0);

    for (int i = 0; i < 3; i++)
        bl_shard_report(paths[i], BL_SHARD_AUTO, &r[i]);
    assert_int_equal(bl_shard_scan(r, 3, 50257, &err), 0);
    assert_int_equal(r[0].outside, 2);
    assert_int_equal(r[0].first_at, IDS); /* byte of id IDS / 2 */
    assert_int_equal(r[0].first_outside, 50300);

    /* A file that shrinks between the two looks is told, not read past its end. */
    bl_shard_report(paths[0], BL_SHARD_AUTO, &r[0]);
    assert_int_equal(truncate(paths[0], IDS), 0);
    assert_int_equal(bl_shard_scan(r, 1, 0, &err), 0);
    assert_non_null(strstr(r[0].why, "changed"));
    assert_int_equal(r[0].scanned, 0);
}

/* Zeros at the beginning do not hide the ids that follow; more than 2^32 bytes; sparse. */
static void test_pieces_of_a_large_file(void **state)
{
    const uint64_t size = 5ull << 30;
    struct bl_shard_report r;
    struct bl_error err = BL_ERROR_INIT;
    FILE *f = fopen(paths[0], "wb");

    (void)state;
    assert_non_null(f);
    assert_int_equal(fclose(f), 0);
    assert_int_equal(truncate(paths[0], (off_t)size), 0);
    bl_shard_report(paths[0], BL_SHARD_AUTO, &r);
    assert_non_null(strstr(r.why, "set data.format"));
    bl_shard_report(paths[0], BL_SHARD_RAW16, &r);
    assert_string_equal(r.why, "");
    assert_int_equal(r.layout.items, size / 2);
    raw(1000, 128256, 4);
    f = fopen(paths[0], "r+b");
    assert_non_null(f);
    assert_int_equal(fseeko(f, (off_t)(size - 4000), SEEK_SET), 0);
    assert_int_equal(fwrite(file.at, 1, 4000, f), 4000);
    assert_int_equal(fclose(f), 0);
    bl_shard_report(paths[0], BL_SHARD_AUTO, &r);
    assert_string_equal(r.why, "");
    layout_is(r.layout, BL_SHARD_RAW32, 4, 0, size / 4, 0);

    /* A scan of the written part only, as if all before it were a header. */
    put(128256, 4);
    f = fopen(paths[0], "r+b");
    assert_non_null(f);
    assert_int_equal(fseeko(f, (off_t)(size - 4), SEEK_SET), 0);
    assert_int_equal(fwrite(file.at + 4000, 1, 4, f), 4);
    assert_int_equal(fclose(f), 0);
    r.layout.start = size - 4000;
    r.layout.items = 1000;
    assert_int_equal(bl_shard_scan(&r, 1, 128256, &err), 0);
    assert_int_equal(r.largest, 128256);
    assert_int_equal(r.outside, 1);
    assert_true(r.first_at == size - 4);
    assert_non_null(strstr(r.why, "byte 5368709116: token id 128256"));
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    for (int i = 0; i < 3; i++)
        snprintf(paths[i], sizeof(paths[i]), "%s/%d", folder, i);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        unlink(paths[i]);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llmc),
        cmocka_unit_test(test_vocabulary),
        cmocka_unit_test(test_npy),
        cmocka_unit_test(test_npy_refusals),
        cmocka_unit_test(test_raw),
        cmocka_unit_test(test_raw_unclear),
        cmocka_unit_test(test_other_files),
        cmocka_unit_test(test_prefixes),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_pieces_of_a_large_file),
    };
    return cmocka_run_group_tests_name("token shards", tests, make_folder, remove_folder);
}
