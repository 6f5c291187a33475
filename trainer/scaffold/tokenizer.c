/* tokenizer my_plugin: every byte is an id; 256 separates documents.
 *
 * encode and decode write only when there is room for everything; *count (*bytes) is what is
 * needed, and the caller comes again with more room. What comes out depends on nothing but the
 * options and the input. Both are called from several threads at once. */
#include <ballast/tokenizer.h>

enum { BYTES = 256, END_OF_DOCUMENT = 256, VOCAB = 257 };

static const struct bl_option table[] = {
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

/* The instance is the host table: all that this tokenizer needs, for its errors. */
static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    (void)options;
    (void)err;
    *self = (void *)(uintptr_t)host;
    return 0;
}

static void describe(const void *self, struct bl_tokenizer_info *out)
{
    (void)self;
    out->vocab = VOCAB;
    out->end_of_document = END_OF_DOCUMENT;
}

static int32_t encode(const void *self, const char *text, uint64_t bytes, int32_t *ids,
                      uint64_t capacity, uint64_t *count, struct bl_error *err)
{
    (void)self;
    (void)err;
    if (capacity >= bytes)
        for (uint64_t i = 0; i < bytes; i++)
            ids[i] = (unsigned char)text[i];
    *count = bytes;
    return 0;
}

/* END_OF_DOCUMENT is no text: it becomes nothing. */
static int32_t decode(const void *self, const int32_t *ids, uint64_t count, char *text,
                      uint64_t capacity, uint64_t *bytes, struct bl_error *err)
{
    const struct bl_host *host = self;
    uint64_t need = 0, n = 0;
    for (uint64_t i = 0; i < count; i++) {
        if (ids[i] < 0 || ids[i] >= VOCAB)
            return host->fail(host, err, "id %d at index %llu; ids are 0 ... %d", (int)ids[i],
                              (unsigned long long)i, VOCAB - 1);
        need += ids[i] < BYTES;
    }
    for (uint64_t i = 0; i < count && capacity >= need; i++)
        if (ids[i] < BYTES)
            text[n++] = (char)ids[i];
    *bytes = need;
    return 0;
}

static const struct bl_tokenizer_ops ops = {
    .create = create, .describe = describe, .encode = encode, .decode = decode};

BL_PLUGIN(BL_KIND_TOKENIZER, "my_plugin", "0.1", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, table, 0,
          NULL);
