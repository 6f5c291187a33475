/* Fuzz target: a safetensors file.
 *
 * Input: byte 0 even: the rest is the file. Odd: the rest is the JSON header, up to a zero byte,
 * and the data; the length in front is put there, so that mutations reach the header's content. */
#include "checkpoint/safetensors.h"
#include "target.h"

enum { FILE_NUMBER = 200 };
#define FILE_PATH "/proc/self/fd/200"

static uint64_t element_size(uint32_t dtype)
{
    return dtype == BL_FP64 ? 8 : dtype == BL_FP32 ? 4 : 2;
}

/* Reads every byte that the reader says is there. Without holes and overlaps they are all bytes
 * after the header. */
static void read_all(const struct bl_safetensors *s, uint64_t data_size)
{
    uint64_t total = 0;
    volatile unsigned char sink;

    for (size_t i = 0; i < bl_safetensors_count(s); i++) {
        const struct bl_tensor *t = bl_safetensors_tensor(s, i);
        uint64_t count = 1, width = element_size(t->dtype);
        unsigned char sum = 0;
        FUZZ_REQUIRE(t->ndim <= 4 && t->name != NULL);
        for (uint32_t d = 0; d < t->ndim; d++)
            count *= t->dims[d];
        FUZZ_REQUIRE(count == t->count);
        FUZZ_REQUIRE(t->count == 0 || (uintptr_t)t->data % width == 0);
        for (uint64_t b = 0; b < t->count * width; b++)
            sum = (unsigned char)(sum + ((const unsigned char *)t->data)[b]);
        sink = sum;
        (void)sink;
        FUZZ_REQUIRE(bl_safetensors_find(s, t->name) == t);
        total += t->count * width;
    }
    FUZZ_REQUIRE(total == data_size);
    FUZZ_REQUIRE(bl_safetensors_tensor(s, bl_safetensors_count(s)) == NULL);
    (void)bl_safetensors_metadata(s, "step");
}

/* The size of the data after the header is the answer. */
static uint64_t write_with_length(const uint8_t *data, size_t size)
{
    const uint8_t *zero = memchr(data, 0, size);
    size_t header = zero ? (size_t)(zero - data) : size, payload = zero ? size - header - 1 : 0;
    unsigned char *file = malloc(8 + header + payload);

    FUZZ_REQUIRE(file != NULL);
    for (int i = 0; i < 8; i++)
        file[i] = (unsigned char)((uint64_t)header >> (8 * i));
    memcpy(file + 8, data, header);
    if (payload)
        memcpy(file + 8 + header, zero + 1, payload);
    fuzz_file_write(FILE_NUMBER, file, 8 + header + payload);
    free(file);
    return payload;
}

static uint64_t write_as_is(const uint8_t *data, size_t size)
{
    uint64_t header = 0;

    for (size_t i = 0; i < 8 && i < size; i++)
        header |= (uint64_t)data[i] << (8 * i);
    fuzz_file_write(FILE_NUMBER, data, size);
    return size - 8 - header;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_safetensors *s = NULL;

    if (size == 0)
        return 0;
    uint64_t data_size =
        data[0] & 1 ? write_with_length(data + 1, size - 1) : write_as_is(data + 1, size - 1);
    if (bl_safetensors_open(FILE_PATH, &s, &err) == 0) {
        read_all(s, data_size);
    } else {
        FUZZ_REQUIRE(s == NULL);
        fuzz_check_error(&err, BL_EXIT_CHECKPOINT);
    }
    bl_safetensors_close(s);
    return 0;
}
