/* Tokenizer of bytes: id = byte, vocabulary 256. Takes any text, gives it back exactly, and has no
 * id that separates documents. */
#include <ballast/tokenizer.h>

static const struct bl_host *host_of(const void *self)
{
    return self;
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)options, (void)err;
    *self = (void *)(uintptr_t)host; /* nothing but the way to report errors */
    return 0;
}

static void describe(const void *self, struct bl_tokenizer_info *out)
{
    (void)self;
    out->vocab = 256;
    out->end_of_document = -1;
}

static int32_t encode(const void *self, const char *text, uint64_t bytes, int32_t *ids,
                      uint64_t capacity, uint64_t *count, struct bl_error *err)
{
    const unsigned char *from = (const unsigned char *)text;

    (void)self, (void)err;
    if (bytes <= capacity)
        for (uint64_t i = 0; i < bytes; i++)
            ids[i] = from[i];
    *count = bytes;
    return 0;
}

static int32_t decode(const void *self, const int32_t *ids, uint64_t count, char *text,
                      uint64_t capacity, uint64_t *bytes, struct bl_error *err)
{
    const struct bl_host *host = host_of(self);

    for (uint64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] > 255)
            return host->fail(host, err, "id %d at %llu: the ids of bytes are 0 ... 255",
                              (int)ids[i], (unsigned long long)i);
        if (count <= capacity)
            text[i] = (char)ids[i];
    }
    *bytes = count;
    return 0;
}

struct bytes_options {
    int64_t reserved;
};

static const struct bl_option options[] = {{NULL, 0, 0, NULL, NULL, NULL, 0}};

static const struct bl_tokenizer_ops ops = {create, NULL, NULL, NULL, describe, encode, decode};

BL_PLUGIN(BL_KIND_TOKENIZER, "bytes", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct bytes_options), NULL);
