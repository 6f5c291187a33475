/* Packing of text into shards, with tokenizers of this file's own. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.h"
#include "data/pack_internal.h"

enum { MARK = 300, EOD = 301, ROOM = 1 << 22 };

static char folder[] = "/tmp/ballast-pack-XXXXXX";

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

static int there(const char *name)
{
    return access(in_folder(name), F_OK) == 0;
}

/* ---- a tokenizer ------------------------------------------------------------------------------*/

/* A byte is its id. `mark` shows where each piece begins, `bad` is a byte that is refused, `high`
 * one that gets an id beyond the vocabulary. */
struct fake {
    uint64_t vocab;
    int64_t end_of_document;
    int mark;
    int bad, high; /* -1: none */
};

static void fake_describe(const void *self, struct bl_tokenizer_info *out)
{
    const struct fake *f = self;

    assert_int_equal(out->size, sizeof(*out));
    out->vocab = f->vocab;
    out->end_of_document = f->end_of_document;
}

static int32_t fake_encode(const void *self, const char *text, uint64_t bytes, int32_t *ids,
                           uint64_t capacity, uint64_t *count, struct bl_error *err)
{
    const struct fake *f = self;
    uint64_t n = bytes + (f->mark != 0), at = 0;

    for (uint64_t i = 0; i < bytes; i++)
        if ((unsigned char)text[i] == f->bad)
            return bl_error_set(err, 0, "byte %llu is bad", (unsigned long long)i);
    *count = n;
    if (n > capacity)
        return 0;
    if (f->mark)
        ids[at++] = MARK;
    for (uint64_t i = 0; i < bytes; i++)
        ids[at++] = (unsigned char)text[i] == f->high ? 100000 : (unsigned char)text[i];
    return 0;
}

static const struct fake bytes = {256, -1, 0, -1, -1}, with_end = {400, EOD, 0, -1, -1},
                         marking = {400, EOD, 1, -1, -1};

static struct bl_pack of(const char *const *inputs, size_t count)
{
    return (struct bl_pack){.prefix = in_folder("out"),
                            .inputs = inputs,
                            .count = count,
                            .key = "text",
                            .threads = 1,
                            .force = 1};
}

static int pack(struct bl_pack p, const struct fake *f, struct bl_pack_result *out,
                struct bl_error *err)
{
    struct bl_plugin_instance t = {.self = (void *)(uintptr_t)f};
    char name[] = "fake";

    t.name = name;
    t.ops.tokenizer.describe = fake_describe;
    t.ops.tokenizer.encode = fake_encode;
    p.tokenizer = &t;
    memset(err, 0, sizeof(*err));
    return bl_data_pack(&p, out, err);
}

static struct bl_pack_result packs(struct bl_pack p, const struct fake *f)
{
    struct bl_pack_result r;
    struct bl_error err;

    if (pack(p, f, &r, &err) != 0)
        fail_msg("%s", err.text);
    return r;
}

/* ---- shards -----------------------------------------------------------------------------------*/

static int32_t ids[ROOM];

static uint32_t word(const unsigned char *p, unsigned n)
{
    uint32_t value = 0;

    while (n-- > 0)
        value = value << 8 | p[n];
    return value;
}

/* The ids of a shard, in `ids`, after header and size are checked; their number. */
static size_t unpack(const char *name, unsigned width, uint32_t vocab)
{
    static unsigned char shard[1024 + 4 * ROOM];
    const uint32_t head[5] = {width == 2 ? 20240520 : 20240801, width == 2 ? 1 : 7, 0, vocab,
                              0x54534c42};
    FILE *f = fopen(in_folder(name), "rb");
    size_t n, count;

    if (!f)
        fail_msg("%s is not there", name);
    n = fread(shard, 1, sizeof(shard), f);
    fclose(f);
    count = (n - 1024) / width;
    assert_true(n >= 1024 && (n - 1024) % width == 0);
    for (unsigned i = 0; i < 256; i++)
        assert_int_equal(word(shard + 4 * (size_t)i, 4), i == 2 ? count : i < 5 ? head[i] : 0);
    for (size_t i = 0; i < count; i++)
        ids[i] = (int32_t)word(shard + 1024 + width * i, width);
    return count;
}

/* The ids as text: an end of document is '$', a mark '#'. */
static const char *text_of(const char *name, const struct fake *f)
{
    static char text[2][ROOM];
    static int next;
    char *to = text[next++ % 2];
    size_t n = unpack(name, 2, (uint32_t)f->vocab);

    for (size_t i = 0; i < n; i++)
        to[i] = (char)(ids[i] == EOD ? '$' : ids[i] == MARK ? '#' : ids[i]);
    to[n] = '\0';
    return to;
}

static void test_joins_and_splits(void **state)
{
    const char *inputs[3] = {in_folder("1.txt"), in_folder("2.txt"), in_folder("3.txt")};
    struct bl_pack p = of(inputs, 3);
    struct bl_pack_result r;

    (void)state;
    put_text(inputs[0], "one\ntwo");   /* a newline is added */
    put_text(inputs[1], "three\n");    /* has one */
    put_text(inputs[2], "four\nfive"); /* the last file stays as it is: 23 bytes in all */
    r = packs(p, &bytes);
    assert_string_equal(text_of("out-train.bin", &bytes), "one\ntwo\nthree\nfour\nfive");
    assert_false(there("out-val.bin"));
    assert_int_equal(r.train.tokens, 23);
    assert_int_equal(r.documents, 3);
    assert_int_equal(r.input_bytes, 22);
    /* 0.3 of 23 bytes: the part begins at the first line end at or after byte 17. */
    p.validation = 0.3;
    packs(p, &bytes);
    assert_string_equal(text_of("out-train.bin", &bytes), "one\ntwo\nthree\nfour\n");
    assert_string_equal(text_of("out-val.bin", &bytes), "five");
    p.validation = 0.4;
    r = packs(p, &bytes);
    assert_string_equal(text_of("out-train.bin", &bytes), "one\ntwo\nthree\n");
    assert_string_equal(text_of("out-val.bin", &bytes), "four\nfive");
    assert_int_equal(r.train.tokens, 14);
    assert_int_equal(r.validation.tokens, 9);
    /* With an id between documents no line end is added; the end of a file is one, too. */
    p.validation = 0.5;
    r = packs(p, &with_end);
    assert_string_equal(text_of("out-train.bin", &with_end), "one\ntwo$three\n$");
    assert_string_equal(text_of("out-val.bin", &with_end), "four\nfive$");
    assert_int_equal(r.documents, 3);
}

static void test_lines(void **state)
{
    const char *inputs[2] = {in_folder("1.txt"), in_folder("2.txt")};
    struct bl_pack p = of(inputs, 2);
    struct bl_pack_result r;

    (void)state;
    put_text(inputs[0], "one\n\n two \nthree");
    put_text(inputs[1], "\nfour\r\n");
    p.documents = BL_DOCUMENTS_LINES;
    r = packs(p, &marking);
    assert_string_equal(text_of("out-train.bin", &marking), "#one$# two $#three$#four\r$");
    assert_int_equal(r.documents, 4);
    assert_int_equal(r.text_bytes, 3 + 5 + 5 + 5);
    r = packs(p, &bytes);
    assert_string_equal(text_of("out-train.bin", &bytes), "one\n\n two \nthree\n\nfour\r\n");
    assert_int_equal(r.documents, 4);
}

static void test_json(void **state)
{
    static const char lines[] = "{\"text\": \"a\\nb\", \"id\": 1}\n"
                                "\n \t\r\n"
                                "{\"text\": \"\"}\n"
                                "{\"id\": {\"text\": 1}, \"text\": \"\\u0001\\u00e9\"}\r\n"
                                "{\"text\": \"end\\n\"}";
    const char *inputs[1] = {in_folder("1.jsonl")};
    struct bl_pack p = of(inputs, 1);
    struct bl_pack_result r;
    struct bl_error err;

    (void)state;
    put_text(inputs[0], lines);
    p.documents = BL_DOCUMENTS_JSON;
    r = packs(p, &with_end);
    assert_string_equal(text_of("out-train.bin", &with_end), "a\nb$\x01\xc3\xa9$end\n$");
    assert_int_equal(r.documents, 3);
    assert_int_equal(r.text_bytes, 3 + 3 + 4);
    assert_int_equal(r.input_bytes, strlen(lines));
    packs(p, &bytes);
    assert_string_equal(text_of("out-train.bin", &bytes), "a\nb\n\x01\xc3\xa9\nend\n");
    p.key = "id"; /* the first line has a number there */
    assert_int_equal(pack(p, &bytes, &r, &err), -1);
    assert_int_equal(err.code, BL_EXIT_DATA);
    assert_non_null(strstr(err.text, "1.jsonl:1: no string under the key \"id\""));
    p.key = "text";
    put_text(inputs[0], "{\"text\": \"a\"}\n{\"text\": \"b\"\n");
    assert_int_equal(pack(p, &bytes, &r, &err), -1);
    assert_non_null(strstr(err.text, "1.jsonl:2: byte "));
    assert_null(strchr(err.text, '\n'));
    put_text(inputs[0], "{\"text\": \"a\"}\n\n[\"text\"]\n");
    assert_int_equal(pack(p, &bytes, &r, &err), -1);
    assert_non_null(strstr(err.text, "1.jsonl:3: no string"));
    put_text(inputs[0], "{\"text\": \"nul \\u0000 too\"}\n");
    r = packs(p, &bytes);
    assert_int_equal(r.train.tokens, 4 + 1 + 4 + 1);
}

/* Ids of 16 bits as long as they suffice. */
static void test_width(void **state)
{
    struct fake f = bytes;
    const char *inputs[1] = {in_folder("1.txt")};
    struct bl_pack p = of(inputs, 1);

    (void)state;
    put_text(inputs[0], "wide\n");
    f.vocab = 65536;
    packs(p, &f);
    assert_int_equal(unpack("out-train.bin", 2, 65536), 5);
    f.vocab = 65537;
    packs(p, &f);
    assert_int_equal(unpack("out-train.bin", 4, 65537), 5);
    assert_int_equal(ids[0], 'w');
    f.vocab = 100001;
    f.high = 'd';
    packs(p, &f);
    assert_int_equal(unpack("out-train.bin", 4, 100001), 5);
    assert_int_equal(ids[2], 100000);
}

static void test_shards(void **state)
{
    const char *inputs[1] = {in_folder("1.txt")};
    struct bl_pack p = of(inputs, 1);
    struct bl_pack_result r;

    (void)state;
    put_text(inputs[0], "0123456789\nabcdefghij\n");
    p.shard_tokens = 4;
    p.validation = 0.5;
    r = packs(p, &bytes);
    assert_int_equal(r.train.files, 3);
    assert_int_equal(r.validation.files, 3);
    assert_string_equal(text_of("out-train-000000.bin", &bytes), "0123");
    assert_string_equal(text_of("out-train-000001.bin", &bytes), "4567");
    assert_string_equal(text_of("out-train-000002.bin", &bytes), "89\n");
    assert_string_equal(text_of("out-val-000002.bin", &bytes), "ij\n");
    assert_false(there("out-train.bin"));
    /* Fewer and larger ones: nothing of the six remains, and no empty one is made. */
    p.shard_tokens = 11;
    r = packs(p, &bytes);
    assert_int_equal(r.train.files, 1);
    assert_int_equal(r.validation.files, 1);
    assert_true(there("out-train-000000.bin") && there("out-val-000000.bin"));
    assert_false(there("out-train-000001.bin") || there("out-val-000001.bin"));
    assert_false(there("out-train-000002.bin") || there("out-val-000002.bin"));
}

/* ---- pieces and threads -----------------------------------------------------------------------*/

static char long_text[600000];

/* Lines of 0 ... 199 bytes, some words, some characters of two bytes. */
static size_t make_text(void)
{
    uint32_t x = 1;
    size_t n = 0, line = 50;

    while (n + 2 < sizeof(long_text)) {
        x = x * 1664525u + 1013904223u;
        if (line-- == 0) {
            long_text[n++] = '\n';
            line = (x >> 16) % 200;
        } else if (x >> 24 < 40) {
            long_text[n++] = ' ';
        } else if (x >> 24 < 50) {
            long_text[n++] = '\xc3';
            long_text[n++] = '\xa9';
        } else {
            long_text[n++] = (char)('a' + (x >> 24) % 26);
        }
    }
    return n;
}

/* Checks the pieces of a shard that `marking` made; their number. */
static size_t check_pieces(const char *name, const char *text, size_t n, char end)
{
    size_t count = unpack(name, 2, 400), pieces = 0, length = 0, at = 0;

    for (size_t i = 0; i < count; i++) {
        if (ids[i] == MARK) {
            if (pieces > 0) {
                assert_true(length > 16000 && length <= 32768);
                if (end)
                    assert_int_equal(ids[i - 1], end);
                assert_int_not_equal((unsigned char)text[at] & 0xc0, 0x80);
            }
            pieces++;
            length = 0;
        } else if (ids[i] != EOD) {
            assert_true(at < n);
            assert_int_equal(ids[i], (unsigned char)text[at++]);
            length++;
        }
    }
    assert_int_equal(at, n);
    return pieces;
}

static void test_pieces(void **state)
{
    const char *inputs[1] = {in_folder("long.txt")};
    struct bl_pack p = of(inputs, 1);
    size_t n = make_text();

    (void)state;
    put(inputs[0], long_text, n);
    packs(p, &marking);
    assert_in_range(check_pieces("out-train.bin", long_text, n, '\n'), n / 32768 + 1,
                    n / 32000 + 1);
    for (size_t i = 0; i < n; i++) /* one line: cut at spaces */
        if (long_text[i] == '\n')
            long_text[i] = ' ';
    put(inputs[0], long_text, n);
    packs(p, &marking);
    check_pieces("out-train.bin", long_text, n, ' ');
    p.documents = BL_DOCUMENTS_LINES;
    packs(p, &marking);
    check_pieces("out-train.bin", long_text, n, ' ');
    p.documents = BL_DOCUMENTS_FILES;
    for (size_t i = 0; i < n; i++) /* one word: at whole characters */
        if (long_text[i] == ' ')
            long_text[i] = '_';
    put(inputs[0], long_text, n);
    packs(p, &marking);
    check_pieces("out-train.bin", long_text, n, 0);
    memset(long_text, 0x80, n); /* no characters at all */
    for (size_t i = 0; i < n; i++)
        assert_int_equal(long_text[i], (char)0x80);
    put(inputs[0], long_text, n);
    packs(p, &bytes);
    assert_int_equal(unpack("out-train.bin", 2, 256), n);
}

/* Wherever the border falls in a character of four bytes, the whole character goes on. */
static void test_piece_border_in_a_character(void **state)
{
    enum { N = 2 * BL_PACK_PIECE };
    static char text[N];

    (void)state;
    for (size_t shift = 0; shift < 4; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i < N; i++)
            text[i] = "\xf0\x9f\x98\x80"[(i - shift) % 4];
        assert_int_equal(bl_pack_piece(text, N), BL_PACK_PIECE - (4 - shift) % 4);
        assert_int_equal(bl_pack_piece(text, BL_PACK_PIECE), BL_PACK_PIECE); /* it is the end */
    }
}

static void test_threads_change_nothing(void **state)
{
    const char *inputs[2] = {in_folder("a.txt"), in_folder("b.txt")};
    struct bl_pack p = of(inputs, 2);
    static int32_t once[2][ROOM];
    size_t n = make_text(), count[2];

    (void)state;
    put(inputs[0], long_text, n);
    put(inputs[1], long_text + 1000, n / 3);
    p.validation = 0.27;
    for (int k = BL_DOCUMENTS_FILES; k <= BL_DOCUMENTS_LINES; k++) {
        p.documents = (enum bl_documents)k;
        for (unsigned threads = 1; threads <= 9; threads += threads) {
            p.threads = threads + (threads == 8);
            struct bl_pack_result r = packs(p, &marking);
            for (int v = 0; v < 2; v++) {
                size_t m = unpack(v ? "out-val.bin" : "out-train.bin", 2, 400);
                assert_int_equal(m, v ? r.validation.tokens : r.train.tokens);
                if (threads == 1) {
                    count[v] = m;
                    memcpy(once[v], ids, m * sizeof(*ids));
                }
                assert_int_equal(m, count[v]);
                assert_memory_equal(ids, once[v], m * sizeof(*ids));
            }
        }
    }
}

/* Long enough for many chunks, any bytes, and the cut in the middle of one. */
static void test_large_and_binary(void **state)
{
    enum { N = 700001 };
    static unsigned char binary[N];
    const char *inputs[1] = {in_folder("large.bin.txt")};
    struct bl_pack p = of(inputs, 1);
    struct bl_pack_result r;

    (void)state;
    for (size_t i = 0; i < N; i++)
        binary[i] = (unsigned char)(i * 2654435761u >> 13);
    put(inputs[0], binary, N);
    p.validation = 0.1;
    p.threads = 3;
    r = packs(p, &bytes);
    assert_int_equal(r.train.tokens + r.validation.tokens, N);
    size_t cut = unpack("out-train.bin", 2, 256);
    for (size_t i = 0; i < cut; i++)
        assert_int_equal(ids[i], binary[i]);
    assert_int_equal(unpack("out-val.bin", 2, 256), N - cut);
    for (size_t i = cut; i < N; i++)
        assert_int_equal(ids[i - cut], binary[i]);
    assert_int_equal(binary[cut - 1], '\n');
    assert_true(cut >= N - N / 10 - 1); /* the cut and the line it falls into */
    assert_null(memchr(binary + N - N / 10, '\n', cut - 1 - (N - N / 10)));
}

/* A document of JSON may be longer than a chunk. */
static void test_long_json(void **state)
{
    const char *inputs[1] = {in_folder("long.jsonl")};
    struct bl_pack p = of(inputs, 1);
    struct bl_pack_result r;
    FILE *f = fopen(inputs[0], "w");
    size_t n = make_text();

    (void)state;
    assert_non_null(f);
    for (int k = 0; k < 3; k++) {
        fprintf(f, "{\"text\": \"");
        for (size_t i = 0; i < n; i++) {
            if (long_text[i] == '\n')
                fputs("\\n", f);
            else
                fputc(long_text[i], f);
        }
        fprintf(f, "\"}\n{\"text\": \"x\"}\n");
    }
    assert_int_equal(fclose(f), 0);
    p.documents = BL_DOCUMENTS_JSON;
    p.threads = 2;
    r = packs(p, &with_end);
    assert_int_equal(r.documents, 6);
    assert_int_equal(unpack("out-train.bin", 2, 400), 3 * (n + 1 + 2));
    for (size_t i = 0; i < n; i++)
        assert_int_equal(ids[i], (unsigned char)long_text[i]);
    assert_int_equal(ids[n], EOD);
    assert_int_equal(ids[n + 1], 'x');
    assert_int_equal(ids[n + 2], EOD);
}

/* ---- refusals ---------------------------------------------------------------------------------*/

static void refuses(struct bl_pack p, const struct fake *f, int code, const char *text)
{
    struct bl_pack_result r = {.documents = 77};
    struct bl_error err;

    assert_int_equal(pack(p, f, &r, &err), -1);
    if (!strstr(err.text, text) || strchr(err.text, '\n'))
        fail_msg("\"%s\" does not have \"%s\"", err.text, text);
    assert_int_equal(err.code, code);
    assert_int_equal(r.documents, 77);
    assert_false(there("out-train.bin.tmp") || there("out-val.bin.tmp"));
}

static void test_refusals(void **state)
{
    const char *inputs[2] = {in_folder("1.txt"), in_folder("bad")};
    struct bl_pack p = of(inputs, 2);
    struct bl_pack q;
    int fd;

    (void)state;
    p.validation = 0.1;
    p.prefix = in_folder("fresh");
    put_text(inputs[0], "one\n");
    put_text(inputs[1], "");
    refuses(p, &bytes, BL_EXIT_DATA, "bad: the file is empty");
    unlink(inputs[1]);
    refuses(p, &bytes, BL_EXIT_DATA, "No such file");
    inputs[1] = folder;
    refuses(p, &bytes, BL_EXIT_DATA, "is a directory");
    inputs[1] = in_folder("bad");
    assert_int_equal(mkfifo(inputs[1], 0600), 0);
    refuses(p, &bytes, BL_EXIT_DATA, "not a regular file");
    unlink(inputs[1]);
    fd = open(inputs[1], O_CREAT | O_WRONLY, 0600);
    assert_int_equal(ftruncate(fd, (off_t)INT32_MAX + 1), 0); /* sparse */
    close(fd);
    refuses(p, &bytes, BL_EXIT_DATA, "2147483647 tokens");
    unlink(inputs[1]);
    put_text(inputs[1], "a long last line without any line end after it");
    p.validation = 0.2;
    refuses(p, &bytes, BL_EXIT_DATA, "no line to cut off");
    p.validation = 0.6;
    refuses(p, &bytes, BL_EXIT_USAGE, "0 ... 0.5");
    p.validation = NAN;
    refuses(p, &bytes, BL_EXIT_USAGE, "0 ... 0.5");
    p.validation = 0;
    q = p;
    q.prefix = in_folder("no-folder/v");
    refuses(q, &bytes, BL_EXIT_DATA, "No such file");
    q = p;
    q.shard_tokens = (uint64_t)INT32_MAX + 1;
    refuses(q, &bytes, BL_EXIT_USAGE, "2147483647");
    q = p;
    q.count = 0;
    refuses(q, &bytes, BL_EXIT_USAGE, "no input");
    assert_int_equal(mkdir(in_folder("fresh-val.bin"), 0700), 0);
    refuses(p, &bytes, BL_EXIT_DATA, "fresh-val.bin: is there and no regular file");
    rmdir(in_folder("fresh-val.bin"));
    assert_false(there("fresh-train.bin") || there("fresh-val.bin") ||
                 there("fresh-train.bin.tmp"));
    unlink(inputs[1]);
}

static void test_bad_tokenizers(void **state)
{
    const char *inputs[2] = {in_folder("1.txt"), in_folder("2.txt")};
    struct bl_pack p = of(inputs, 2);
    struct fake f = {0, -1, 0, -1, -1};

    (void)state;
    put_text(inputs[0], "one\n");
    put_text(inputs[1], "first\nsecond\nthird !\n");
    refuses(p, &f, BL_EXIT_PLUGIN, "vocabulary 0");
    f.vocab = ((uint64_t)1 << 31) + 1;
    refuses(p, &f, BL_EXIT_PLUGIN, "vocabulary 2147483649");
    f.vocab = 300;
    f.end_of_document = 300;
    refuses(p, &f, BL_EXIT_PLUGIN, "end of document 300");
    f.end_of_document = -1;
    f.high = 'h';
    refuses(p, &f, BL_EXIT_PLUGIN, "made the id 100000; its vocabulary has 300");
    f.high = -1;
    /* The byte in its line, and the line in its file: byte 6 after 13 bytes is byte 19. */
    f.bad = '!';
    refuses(p, &f, BL_EXIT_DATA, "2.txt:3: in the text from byte 13 on: byte 6 is bad");
    p.documents = BL_DOCUMENTS_LINES;
    refuses(p, &f, BL_EXIT_DATA, "2.txt:3: in the text from byte 13 on: byte 6 is bad");
    p.documents = BL_DOCUMENTS_JSON;
    put_text(inputs[0], "{\"text\": \"one\"}\n");
    put_text(inputs[1], "\n{\"text\": \"one\"}\n{\"text\": \"one!\"}\n");
    refuses(p, &f, BL_EXIT_DATA, "2.txt:3: \"text\": byte 3 is bad");
    put_text(inputs[0], "{\"text\": \"\"}\n");
    p.count = 1;
    refuses(p, &bytes, BL_EXIT_DATA, "no token came of it");
}

/* Of many faults the first in the input is told, whatever thread meets which one first. */
static void test_first_fault(void **state)
{
    const char *inputs[1] = {in_folder("faults.txt")};
    struct bl_pack p = of(inputs, 1);
    struct fake f = {256, -1, 0, '!', -1};
    size_t n = make_text();

    (void)state;
    for (size_t i = 200000; i < n; i += 31000)
        long_text[i] = '!';
    put(inputs[0], long_text, n);
    for (p.threads = 1; p.threads <= 6; p.threads++) {
        size_t line = 200000;
        char wanted[64];
        while (long_text[line - 1] != '\n')
            line--;
        snprintf(wanted, sizeof(wanted), "from byte %zu on: byte %zu is bad", line, 200000 - line);
        refuses(p, &f, BL_EXIT_DATA, wanted);
    }
}

/* ---- what is there already --------------------------------------------------------------------*/

static void test_old_outputs(void **state)
{
    static const char *const foreign[] = {"old-trainer.bin", "old-train-12.bin",
                                          "old-train.bin.bak", "older-train.bin",
                                          "old-train-000001x.bin"};
    const char *inputs[2] = {in_folder("1.txt"), in_folder("gone.txt")};
    struct bl_pack p = of(inputs, 1);

    (void)state;
    p.prefix = in_folder("old");
    p.force = 0;
    p.validation = 0.5;
    put_text(inputs[0], "one\ntwo\n");
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        put_text(in_folder(foreign[i]), "mine");
    packs(p, &bytes);
    refuses(p, &bytes, BL_EXIT_DATA, "old-train.bin: is there already; --force");
    p.shard_tokens = 3; /* other names, the same prefix: one of the two sets would be stale */
    refuses(p, &bytes, BL_EXIT_DATA, "is there already");
    p.shard_tokens = 0;
    p.force = 1;
    p.count = 2; /* a failing one keeps what was there */
    refuses(p, &bytes, BL_EXIT_DATA, "gone.txt");
    assert_string_equal(text_of("old-train.bin", &bytes), "one\n");
    assert_string_equal(text_of("old-val.bin", &bytes), "two\n");
    p.count = 1;
    p.validation = 0;
    packs(p, &bytes);
    assert_string_equal(text_of("old-train.bin", &bytes), "one\ntwo\n");
    assert_false(there("old-val.bin"));
    p.shard_tokens = 3;
    packs(p, &bytes);
    assert_true(there("old-train-000002.bin"));
    assert_false(there("old-train.bin"));
    for (size_t i = 0; i < sizeof(foreign) / sizeof(foreign[0]); i++)
        assert_true(there(foreign[i]));
}

static void test_inputs_are_no_outputs(void **state)
{
    const char *inputs[1] = {in_folder("self-train.bin")};
    struct bl_pack p = of(inputs, 1);

    (void)state;
    p.prefix = in_folder("self");
    put_text(inputs[0], "one\ntwo\n");
    refuses(p, &bytes, BL_EXIT_DATA, "is an input and an output");
    assert_int_equal(link(inputs[0], in_folder("self.txt")), 0); /* another name of the same file */
    inputs[0] = in_folder("self.txt");
    refuses(p, &bytes, BL_EXIT_DATA, "is an input and an output");
    unlink(in_folder("self-train.bin"));
    assert_int_equal(link(inputs[0], in_folder("self-val.bin.tmp")), 0);
    refuses(p, &bytes, BL_EXIT_DATA, "is an input and an output");
    assert_true(there("self-val.bin.tmp"));
    unlink(in_folder("self-val.bin.tmp"));
    packs(p, &bytes);
}

/* Files of a killed process go; those of a living one, which holds a lock, stay. */
static void test_temporary_files(void **state)
{
    const char *inputs[1] = {in_folder("1.txt")}, *left = in_folder("kill-train-000007.bin.tmp"),
               *other = in_folder("kill-val.bin.tmp");
    struct bl_pack p = of(inputs, 1);
    int fd;

    (void)state;
    p.prefix = in_folder("kill");
    p.force = 0;
    put_text(inputs[0], "one\ntwo\n");
    put_text(left, "half");
    put_text(other, "half");
    fd = open(left, O_RDWR);
    assert_int_equal(flock(fd, LOCK_EX), 0);
    refuses(p, &bytes, BL_EXIT_DATA, "another process");
    assert_true(there("kill-train-000007.bin.tmp") && there("kill-val.bin.tmp"));
    close(fd);
    packs(p, &bytes);
    assert_false(there("kill-train-000007.bin.tmp") || there("kill-val.bin.tmp"));
    assert_string_equal(text_of("kill-train.bin", &bytes), "one\ntwo\n");
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
        cmocka_unit_test(test_joins_and_splits),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_width),
        cmocka_unit_test(test_shards),
        cmocka_unit_test(test_pieces),
        cmocka_unit_test(test_piece_border_in_a_character),
        cmocka_unit_test(test_threads_change_nothing),
        cmocka_unit_test(test_large_and_binary),
        cmocka_unit_test(test_long_json),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_bad_tokenizers),
        cmocka_unit_test(test_first_fault),
        cmocka_unit_test(test_old_outputs),
        cmocka_unit_test(test_inputs_are_no_outputs),
        cmocka_unit_test(test_temporary_files),
    };
    return cmocka_run_group_tests_name("pack", tests, make_folder, remove_folder);
}
