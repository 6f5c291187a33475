/* safetensors files: round trips, what is refused, and that no damaged file does harm. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/random.h"
#include "checkpoint/safetensors.h"

static char folder[] = "/tmp/ballast-safe-XXXXXX";
static char path[64];

static struct bl_tensor tensor(const char *name, uint32_t dtype, uint32_t ndim, uint64_t a,
                               uint64_t b, void *data)
{
    struct bl_tensor t = {.size = sizeof(t),
                          .dtype = dtype,
                          .device = BL_DEVICE_CPU,
                          .ndim = ndim,
                          .dims = {a, b},
                          .count = (ndim > 0 ? a : 1) * (ndim > 1 ? b : 1),
                          .data = data,
                          .name = name};
    return t;
}

static size_t get_file(unsigned char *bytes, size_t limit)
{
    FILE *f = fopen(path, "rb");
    size_t n;

    assert_non_null(f);
    n = fread(bytes, 1, limit, f);
    fclose(f);
    return n;
}

static uint64_t file_sum; /* of the newest file */

static void put_file(const void *bytes, size_t n)
{
    /* Not O_TRUNC: some file systems then flush to the disk at each close. */
    int fd = open(path, O_WRONLY | O_CREAT, 0600);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, n), n);
    assert_int_equal(ftruncate(fd, (off_t)n), 0);
    close(fd);
}

static float floats[6] = {1.5f, -2.0f, 0.0f, 1e-40f, 3e38f, 7.0f};
static double doubles[2] = {0.1, -1e300};
static uint16_t halves[3] = {0x3f80, 0xc000, 0x7fc0};
static float scalar[1] = {42.0f};

static size_t make_tensors(struct bl_tensor *t)
{
    /* An odd number of 2-byte elements leaves everything after it unaligned in the file. */
    t[0] = tensor("layers.0.attn.q.weight", BL_FP32, 2, 2, 3, floats);
    t[1] = tensor("half", BL_BF16, 1, 3, 0, halves);
    t[2] = tensor("double", BL_FP64, 1, 2, 0, doubles);
    t[3] = tensor("scalar", BL_FP32, 0, 0, 0, scalar);
    t[4] = tensor("empty", BL_FP32, 2, 0, 5, NULL);
    return 5;
}

static const char *const metadata[] = {"format", "pt", "note", "a \"quoted\"\nline", NULL};

static void write_good(void)
{
    struct bl_tensor t[5];
    struct bl_error err = BL_ERROR_INIT;
    size_t n = make_tensors(t);

    if (bl_safetensors_write(path, t, n, metadata, &file_sum, &err) != 0)
        fail_msg("%s", err.text);
}

static void test_round_trip(void **state)
{
    static const uint64_t bytes[3] = {4, 2, 8};
    struct bl_tensor wanted[5];
    struct bl_safetensors *s;
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    write_good();
    make_tensors(wanted);
    if (bl_safetensors_open(path, &s, &err) != 0)
        fail_msg("%s", err.text);
    assert_int_equal(bl_safetensors_count(s), 5);
    for (size_t i = 0; i < 5; i++) { /* in the order given */
        const struct bl_tensor *t = bl_safetensors_tensor(s, i), *w = &wanted[i];
        assert_string_equal(t->name, w->name);
        assert_int_equal(t->dtype, w->dtype);
        assert_int_equal(t->ndim, w->ndim);
        assert_int_equal(t->count, w->count);
        assert_int_equal(t->key, bl_hash(w->name));
        for (uint32_t d = 0; d < w->ndim; d++)
            assert_int_equal(t->dims[d], w->dims[d]);
        if (w->count > 0) {
            assert_memory_equal(t->data, w->data, w->count * bytes[w->dtype - 1]);
            assert_int_equal((uintptr_t)t->data % bytes[w->dtype - 1], 0);
        }
        assert_ptr_equal(bl_safetensors_find(s, w->name), t);
    }
    assert_null(bl_safetensors_tensor(s, 5));
    assert_null(bl_safetensors_find(s, "absent"));
    assert_string_equal(bl_safetensors_metadata(s, "note"), "a \"quoted\"\nline");
    assert_null(bl_safetensors_metadata(s, "absent"));
    bl_safetensors_close(s);
    bl_safetensors_close(NULL);
}

static void test_file_is_deterministic_and_padded(void **state)
{
    static unsigned char a[4096], b[4096];
    size_t n, m;

    (void)state;
    write_good();
    n = get_file(a, sizeof(a));
    write_good();
    m = get_file(b, sizeof(b));
    assert_int_equal(n, m);
    assert_memory_equal(a, b, n);
    assert_int_equal(a[0] % 8, 0); /* header length: data begins at a multiple of 8 */
    assert_int_equal(n, 8 + (size_t)a[0] + 256 * (size_t)a[1] + 24 + 6 + 16 + 4);
}

static void test_no_tensors(void **state)
{
    struct bl_safetensors *s;
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    assert_int_equal(bl_safetensors_write(path, NULL, 0, metadata, &file_sum, &err), 0);
    assert_int_equal(bl_safetensors_open(path, &s, &err), 0);
    assert_int_equal(bl_safetensors_count(s), 0);
    assert_string_equal(bl_safetensors_metadata(s, "format"), "pt");
    bl_safetensors_close(s);
    assert_int_equal(bl_safetensors_write(path, NULL, 0, NULL, &file_sum, &err), 0);
    assert_int_equal(bl_safetensors_open(path, &s, &err), 0);
    assert_null(bl_safetensors_metadata(s, "format"));
    bl_safetensors_close(s);
}

static void write_refuses(const struct bl_tensor *t, size_t n, const char *const *table,
                          const char *word)
{
    struct bl_error err = BL_ERROR_INIT;

    assert_int_equal(bl_safetensors_write(path, t, n, table, &file_sum, &err), -1);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
}

/* Nothing of a failed write is left, and the file before it is untouched. */
static void test_write_refusals(void **state)
{
    static const char *const twice[] = {"k", "1", "k", "2", NULL};
    static const char *const no_text[] = {"k", "\xff", NULL};
    static unsigned char before[4096], after[4096];
    struct bl_tensor t[5];
    struct bl_error err = BL_ERROR_INIT;
    size_t n;

    (void)state;
    write_good();
    n = get_file(before, sizeof(before));
    make_tensors(t);
    t[1].name = t[0].name;
    write_refuses(t, 2, NULL, "two tensors are named layers.0.attn.q.weight");
    make_tensors(t);
    t[1].dtype = 77;
    write_refuses(t, 2, NULL, "half has dtype 77");
    make_tensors(t);
    t[1].count = 4;
    write_refuses(t, 2, NULL, "half");
    make_tensors(t);
    t[1].ndim = 5;
    write_refuses(t, 2, NULL, "5 dimensions");
    make_tensors(t);
    t[1].name = "\xc0";
    write_refuses(t, 2, NULL, "UTF-8");
    t[1].name = "__metadata__";
    write_refuses(t, 2, NULL, "usable name");
    write_refuses(NULL, 0, twice, "a key twice");
    write_refuses(NULL, 0, no_text, "UTF-8");
    make_tensors(t);
    t[1].dims[0] = UINT64_MAX;
    write_refuses(t, 2, NULL, "too large");
    assert_int_equal(get_file(after, sizeof(after)), n);
    assert_memory_equal(before, after, n);
    make_tensors(t);
    assert_int_equal(bl_safetensors_write("/nonexistent/x", t, 5, NULL, &file_sum, &err), -1);
    assert_non_null(strstr(err.text, "No such file"));
    assert_int_equal(bl_safetensors_write(folder, t, 5, NULL, &file_sum, &err),
                     -1); /* is a folder */
}

/* A file from a header text and `data` zero bytes. */
static void refuses(const char *header, size_t data, const char *word)
{
    static unsigned char bytes[4096];
    struct bl_safetensors *s = NULL;
    struct bl_error err = BL_ERROR_INIT;
    size_t n = strlen(header);

    memset(bytes, 0, sizeof(bytes));
    bytes[0] = (unsigned char)n;
    bytes[1] = (unsigned char)(n >> 8);
    memcpy(bytes + 8, header, n);
    put_file(bytes, 8 + n + data);
    if (bl_safetensors_open(path, &s, &err) == 0)
        fail_msg("accepted: %s", header);
    assert_null(s);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    if (!strstr(err.text, word))
        fail_msg("\"%s\" does not have \"%s\"", err.text, word);
    assert_non_null(strstr(err.text, path));
}

#define ENTRY(dtype, shape, begin, end)                                                            \
    "{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" begin "," end "]}"

static void test_read_refusals(void **state)
{
    static const unsigned char huge[16] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, '{'};
    struct bl_safetensors *s;
    struct bl_error err = BL_ERROR_INIT;

    (void)state;
    refuses("{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", 7, "inside the file");
    refuses("{\"a\":" ENTRY("F32", "[2]", "0", "8") "}", 9, "1 bytes after the last");
    refuses("{\"a\":" ENTRY("F32", "[2]", "0", "4") "}", 4, "do not agree");
    refuses("{\"a\":" ENTRY("I64", "[1]", "0", "8") "}", 8, "tensor a: dtype I64");
    refuses("{\"a\":" ENTRY("F32", "[1,1,1,1,1]", "0", "4") "}", 4, "4 dimensions");
    refuses("{\"a\":" ENTRY("F32", "[-1]", "0", "4") "}", 4, "shape");
    refuses("{\"a\":" ENTRY("F32", "[1.0]", "0", "4") "}", 4, "shape");
    refuses("{\"a\":" ENTRY("F32", "[4611686018427387904,4]", "0", "4") "}", 4, "too large");
    refuses("{\"a\":" ENTRY("F64", "[2305843009213693952]", "0", "0") "}", 0, "do not agree");
    refuses("{\"a\":" ENTRY("F32", "[1]", "4", "0") "}", 4, "inside the file");
    refuses("{\"a\":" ENTRY("F32", "[1]", "4", "8") "}", 8, "a hole");
    refuses("{\"a\":" ENTRY("F32", "[2]", "0", "8") ",\"b\":" ENTRY("F32", "[2]", "4", "12") "}",
            12, "overlaps");
    refuses("{\"a\":" ENTRY("F32", "[1]", "0", "4") ",\"a\":" ENTRY("F32", "[1]", "4", "8") "}", 8,
            "duplicate");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4],\"x\":1}}", 4, "entry");
    refuses("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "entry");
    refuses("{\"a\":7}", 4, "entry");
    refuses("{\"__metadata__\":7}", 0, "not an object");
    refuses("{\"__metadata__\":{\"k\":7}}", 0, "not a string");
    refuses("[1]", 0, "JSON object");
    refuses(" {}", 0, "JSON object");
    refuses("{", 0, "JSON object");
    refuses("{} x", 0, "header at byte");
    refuses("{\"a\"", 0, "header at byte");
    put_file(huge, sizeof(huge));
    assert_int_equal(bl_safetensors_open(path, &s, &err), -1);
    assert_non_null(strstr(err.text, "a header of"));
    put_file("1234567", 7);
    assert_int_equal(bl_safetensors_open(path, &s, &err), -1);
    assert_non_null(strstr(err.text, "shorter than 8 bytes"));
    assert_int_equal(bl_safetensors_open(folder, &s, &err), -1);
    assert_int_equal(bl_safetensors_open("/nonexistent", &s, &err), -1);
    assert_int_equal(err.code, BL_EXIT_CHECKPOINT);
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_int_equal(bl_safetensors_open(path, &s, &err), -1);
    unlink(path);
}

/* Damage at random: the file is refused, or everything it gives can be read. Under a sanitizer
 * this finds reads outside the mapping. */
static void test_damage(void **state)
{
    enum { ROUNDS = 20000 };
    static unsigned char good[4096], bad[4096];
    uint64_t sum = 0;
    unsigned refused = 0;
    size_t n;

    (void)state;
    write_good();
    n = get_file(good, sizeof(good));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        uint64_t flips = 1 + bl_random(1, round, 0) % 4;
        size_t length = bl_random(1, round, 1) % 4 == 0 ? bl_random(1, round, 2) % (n + 1) : n;
        struct bl_safetensors *s = NULL;
        struct bl_error err = BL_ERROR_INIT;
        memcpy(bad, good, n);
        for (uint64_t f = 0; f < flips; f++) {
            /* Half of the damage hits the length and the header. */
            uint64_t r = bl_random(1, round, 3 + f);
            size_t at = (size_t)((r >> 32) % (f % 2 ? n : 64));
            bad[at] =
                r % 2 ? (unsigned char)(r >> 8) : (unsigned char)(bad[at] ^ 1 << (r >> 8) % 8);
        }
        put_file(bad, length);
        if (bl_safetensors_open(path, &s, &err) != 0) {
            assert_true(err.text[0] != '\0' && strlen(err.text) < sizeof(err.text));
            refused++;
            continue;
        }
        for (size_t i = 0; i < bl_safetensors_count(s); i++) {
            const struct bl_tensor *t = bl_safetensors_tensor(s, i);
            uint64_t bytes = t->count * (t->dtype == BL_FP64 ? 8 : t->dtype == BL_FP32 ? 4 : 2);
            for (uint64_t k = 0; k < bytes; k++)
                sum += ((const unsigned char *)t->data)[k];
        }
        bl_safetensors_close(s);
    }
    assert_true(refused > ROUNDS / 2 && refused < ROUNDS);
    assert_true(sum > 0);
}

static int make_folder(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof(path), "%s/x.safetensors", folder);
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
        cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_file_is_deterministic_and_padded),
        cmocka_unit_test(test_no_tensors),
        cmocka_unit_test(test_write_refusals),
        cmocka_unit_test(test_read_refusals),
        cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests_name("safetensors", tests, make_folder, remove_folder);
}
