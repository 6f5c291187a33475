/* The tokenizer of SentencePiece models, on the model of tests/fixtures/tokenizer. That its ids are
 * spm_encode's is tested in tests/shell/pack.t. */
#include "tests/lib/plugin_test.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"

enum { VOCAB = 600, EOS = 2, ROOM = 1 << 16 };

static char folder[] = "/tmp/ballast-spm-XXXXXX";
static char config[512]; /* model = "..." of the fixture */
static char *model;      /* the bytes of it */
static size_t model_bytes;

static char *fixture(const char *name)
{
    const char *top = getenv("top_srcdir");
    char *path = bl_format("%s/tests/fixtures/tokenizer/%s", top ? top : ".", name);

    assert_non_null(path);
    return path;
}

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_TOKENIZER, "sentencepiece", config);
}

static void test_describe(void **state)
{
    struct bl_tokenizer_info info = {.size = sizeof(info)};
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "sentencepiece", config);
    b.ops->tokenizer.describe(b.self, &info);
    assert_int_equal(info.vocab, VOCAB);
    assert_int_equal(info.end_of_document, EOS);
    bl_bench_stop(&b);
}

/* The fixture normalizes nothing and has every byte: text comes back as it was. */
static void there_and_back(struct bl_bench *b, const char *text, uint64_t bytes)
{
    static int32_t ids[ROOM];
    static char back[ROOM];
    struct bl_error err = BL_ERROR_INIT;
    uint64_t count = 0, n = 0;

    if (b->ops->tokenizer.encode(b->self, text, bytes, ids, ROOM, &count, &err) != 0)
        fail_msg("%s", err.text);
    assert_true(count <= ROOM);
    for (uint64_t i = 0; i < count; i++)
        if (ids[i] < 3 || ids[i] >= VOCAB)
            fail_msg("id %d at %llu of a text", (int)ids[i], (unsigned long long)i);
    if (b->ops->tokenizer.decode(b->self, ids, count, back, ROOM, &n, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(n, bytes);
    assert_memory_equal(back, text, bytes);
}

static void test_there_and_back(void **state)
{
    static const char *const texts[] = {
        "In the beginning",
        " leading, trailing and  double spaces ",
        "a\nb\r\n\tc\n\n",
        "caf\xc3\xa9 \xe2\x82\xac \xf0\x9f\x98\x80 \xed\x9f\xbf \xf4\x8f\xbf\xbf",
        "</s><s><unk> are text",
    };
    struct bl_error err = BL_ERROR_INIT;
    char *path = fixture("genesis.txt"), *genesis = NULL;
    size_t bytes = 0;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "sentencepiece", config);
    for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
        there_and_back(&b, texts[i], strlen(texts[i]));
    there_and_back(&b, "a\0b", 3);
    there_and_back(&b, "", 0);
    assert_int_equal(bl_read_file(path, 1 << 20, &genesis, &bytes, &err), 0);
    there_and_back(&b, genesis, bytes);
    free(genesis);
    free(path);
    bl_bench_stop(&b);
}

static void test_subwords_and_small_buffers(void **state)
{
    static const char text[] = "And God said, Let there be light: and there was light.";
    struct bl_error err = BL_ERROR_INIT;
    int32_t ids[64] = {-7};
    char back[64] = "#";
    uint64_t count = 0, n = 0;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "sentencepiece", config);
    assert_int_equal(b.ops->tokenizer.encode(b.self, text, strlen(text), ids, 0, &count, &err), 0);
    assert_in_range(count, 12, 40); /* 12 words; as bytes they would be 54 */
    assert_int_equal(b.ops->tokenizer.encode(b.self, text, strlen(text), ids, count - 1, &n, &err),
                     0);
    assert_int_equal(n, count);
    assert_int_equal(ids[0], -7);
    assert_int_equal(b.ops->tokenizer.encode(b.self, text, strlen(text), ids, 64, &n, &err), 0);
    assert_int_equal(n, count);
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, count, back, 10, &n, &err), 0);
    assert_int_equal(n, strlen(text));
    assert_string_equal(back, "#");
    ids[1] = VOCAB;
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, count, back, 64, &n, &err), -1);
    assert_non_null(strstr(err.text, "id 600 at 1"));
    ids[1] = -1;
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, count, back, 64, &n, &err), -1);
    bl_bench_stop(&b);
}

static void test_not_utf8(void **state)
{
    static const struct {
        const char *text, *word;
    } bad[] = {
        {"ab\xff", "byte 2 (0xff)"},         {"a\x80", "byte 1 (0x80)"},
        {"ab \xc3", "byte 3 (0xc3)"},        {"\xc0\xaf", "byte 0 (0xc0)"},
        {"\xe0\x80\xaf", "byte 0 (0xe0)"},   {"x\xed\xa0\x80", "byte 1 (0xed)"},
        {"\xf0\x80\x80\xaf", "byte 0"},      {"\xf4\x90\x80\x80", "byte 0"},
        {"\xe2\x82 ", "byte 0 (0xe2)"},      {"\xf5\x80\x80\x80", "byte 0"},
        {"\xc3\xa9\xe2\x28\xa1", "byte 2 "}, {"fine \xc1\xbf", "byte 5"},
    };
    int32_t ids[64];
    uint64_t count = 77;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "sentencepiece", config);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct bl_error err = BL_ERROR_INIT;
        assert_int_equal(b.ops->tokenizer.encode(b.self, bad[i].text, strlen(bad[i].text), ids, 64,
                                                 &count, &err),
                         -1);
        if (!strstr(err.text, bad[i].word))
            fail_msg("\"%s\" does not have \"%s\"", err.text, bad[i].word);
        assert_int_equal(count, 77);
    }
    bl_bench_stop(&b);
}

static void refuses(const char *path, const char *word)
{
    struct bl_bench b;
    char *text = bl_format("model = \"%s\";", path);

    assert_non_null(text);
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_TOKENIZER, "sentencepiece", text, BL_EXIT_USAGE, word);
    bl_bench_stop(&b);
    free(text);
}

static void test_model_refusals(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    char *path = bl_format("%s/bad.model", folder), *text = fixture("genesis.txt");
    struct bl_bench b;

    (void)state;
    assert_non_null(path);
    bl_bench_start(&b);
    bl_bench_refuses(&b, BL_KIND_TOKENIZER, "sentencepiece", "", BL_EXIT_USAGE, "model");
    bl_bench_stop(&b);
    refuses("", "name a .model file");
    refuses(path, "No such file");
    refuses(folder, "not a regular file");
    refuses(text, "no SentencePiece model");
    assert_int_equal(bl_write_file(path, "", 0, &err), 0);
    refuses(path, "the file is empty");
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    refuses(path, "not a regular file");
    unlink(path);
    free(path);
    free(text);
}

/* A model that is cut anywhere is refused, also between two fields, where it is still a message. */
static void test_cut_models(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    char *path = bl_format("%s/cut.model", folder), *text = bl_format("model = \"%s\";", path);
    struct bl_bench b;

    (void)state;
    assert_non_null(text);
    bl_bench_start(&b);
    for (size_t n = 1; n < model_bytes; n += n + 200 < model_bytes ? 97 : 1) {
        FILE *f = fopen(path, "wb");
        assert_non_null(f);
        assert_int_equal(fwrite(model, 1, n, f), n);
        assert_int_equal(fclose(f), 0);
        bl_bench_refuses(&b, BL_KIND_TOKENIZER, "sentencepiece", text, BL_EXIT_USAGE,
                         "not the whole of one");
    }
    assert_int_equal(bl_write_file(path, model, model_bytes, &err), 0);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "sentencepiece", text);
    bl_bench_stop(&b);
    free(path);
    free(text);
}

static int start(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    char *path = fixture("genesis.model");
    int answer = mkdtemp(folder) ? 0 : -1;

    (void)state;
    snprintf(config, sizeof(config), "model = \"%s\";", path);
    if (answer == 0)
        answer = bl_read_file(path, 1 << 20, &model, &model_bytes, &err);
    free(path);
    return answer;
}

static int stop(void **state)
{
    char command[128];

    (void)state;
    free(model);
    snprintf(command, sizeof(command), "rm -r %s", folder);
    return system(command);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),         cmocka_unit_test(test_describe),
        cmocka_unit_test(test_there_and_back), cmocka_unit_test(test_subwords_and_small_buffers),
        cmocka_unit_test(test_not_utf8),       cmocka_unit_test(test_model_refusals),
        cmocka_unit_test(test_cut_models),
    };
    return cmocka_run_group_tests_name("tokenizer sentencepiece", tests, start, stop);
}
