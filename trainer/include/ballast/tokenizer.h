/* Tokenizers: text to token ids and back. `ballast data pack` and others use them; a run does not
 * need one. What comes out depends on nothing but the options and the text. */
#ifndef BALLAST_TOKENIZER_H
#define BALLAST_TOKENIZER_H

#include <ballast/plugin.h>

#ifdef __cplusplus
extern "C" {
#endif

struct bl_tokenizer_info {
    uint32_t size;
    uint32_t reserved;
    uint64_t vocab;          /* ids are < vocab, 1 ... 2^31 */
    int64_t end_of_document; /* id that separates documents; -1: there is none */
};

struct bl_tokenizer_ops {
    BL_COMMON_OPS;
    void (*describe)(const void *self, struct bl_tokenizer_info *out);
    /* Text (bytes, not terminated) to ids; no separators are added. *count is the number of ids;
     * they are written only when capacity suffices, else the caller comes again with more room.
     * The error names the byte where text cannot be read. Thread-safe. */
    int32_t (*encode)(const void *self, const char *text, uint64_t bytes, int32_t *ids,
                      uint64_t capacity, uint64_t *count, struct bl_error *err);
    /* Ids to text, in the same way. Ids out of range are refused. Thread-safe. */
    int32_t (*decode)(const void *self, const int32_t *ids, uint64_t count, char *text,
                      uint64_t capacity, uint64_t *bytes, struct bl_error *err);
};

#ifdef __cplusplus
}
#endif
#endif
