/* The tokenizer of bytes. */
#include "tests/lib/plugin_test.h"

#include <string.h>

static void test_common(void **state)
{
    (void)state;
    bl_bench_common(BL_KIND_TOKENIZER, "bytes", "");
}

static void test_every_byte_there_and_back(void **state)
{
    struct bl_tokenizer_info info = {.size = sizeof(info)};
    struct bl_error err = BL_ERROR_INIT;
    char text[512], back[512];
    int32_t ids[512];
    uint64_t count = 0, bytes = 0;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "bytes", "");
    b.ops->tokenizer.describe(b.self, &info);
    assert_int_equal(info.vocab, 256);
    assert_int_equal(info.end_of_document, -1);
    for (int i = 0; i < 512; i++)
        text[i] = (char)(i * 7);
    assert_int_equal(b.ops->tokenizer.encode(b.self, text, 512, ids, 512, &count, &err), 0);
    assert_int_equal(count, 512);
    for (int i = 0; i < 512; i++)
        assert_int_equal(ids[i], i * 7 % 256);
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, 512, back, 512, &bytes, &err), 0);
    assert_int_equal(bytes, 512);
    assert_memory_equal(back, text, 512);
    bl_bench_stop(&b);
}

static void test_small_buffers_and_wrong_ids(void **state)
{
    struct bl_error err = BL_ERROR_INIT;
    int32_t ids[4] = {-7, -7, -7, -7};
    char text[4] = "...";
    uint64_t n = 0;
    struct bl_bench b;

    (void)state;
    bl_bench_start(&b);
    bl_bench_open(&b, BL_KIND_TOKENIZER, "bytes", "");
    assert_int_equal(b.ops->tokenizer.encode(b.self, "abcd", 4, ids, 3, &n, &err), 0);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], -7); /* nothing is written when there is no room for all */
    assert_int_equal(b.ops->tokenizer.encode(b.self, "", 0, NULL, 0, &n, &err), 0);
    assert_int_equal(n, 0);
    ids[0] = ids[1] = ids[2] = 'x';
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, 3, text, 2, &n, &err), 0);
    assert_int_equal(n, 3);
    assert_string_equal(text, "...");
    ids[2] = 256;
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, 3, text, 3, &n, &err), -1);
    assert_non_null(strstr(err.text, "id 256 at 2"));
    ids[2] = -1;
    assert_int_equal(b.ops->tokenizer.decode(b.self, ids, 3, text, 3, &n, &err), -1);
    assert_int_equal(n, 3); /* set on success only */
    bl_bench_stop(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_common),
        cmocka_unit_test(test_every_byte_there_and_back),
        cmocka_unit_test(test_small_buffers_and_wrong_ids),
    };
    return cmocka_run_group_tests_name("tokenizer bytes", tests, NULL, NULL);
}
