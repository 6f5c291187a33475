/* Packing: text files -> token shards in llm.c's .bin layout, for the source "tokens".
 *
 * A shard is 256 little-endian 32-bit words and then its token ids. Words: 0 magic, 1 version
 * (20240520, 1 = uint16 ids; 20240801, 7 = uint32 ids, for vocabularies over 65536), 2 number of
 * tokens, 3 vocabulary, 4 BL_SHARD_VOCAB_TAG, which says that word 3 is the vocabulary; the rest is
 * 0. data/shard_format.h reads it.
 *
 * The bytes that come out depend on the inputs, the tokenizer and the options below alone, not on
 * the number of threads. Nothing has its final name until everything is complete. */
#ifndef BL_DATA_PACK_H
#define BL_DATA_PACK_H

#include "plugin/host.h"

enum {
    BL_PACK_MAGIC16 = 20240520,
    BL_PACK_VERSION16 = 1,
    BL_PACK_MAGIC32 = 20240801,
    BL_PACK_VERSION32 = 7,
    BL_PACK_PIECE = 1 << 15,       /* bytes: longer texts are encoded in pieces */
    BL_PACK_LINE_LIMIT = 64 << 20, /* bytes of a line that is a document */
    BL_PACK_THREADS_MOST = 256
};

enum bl_documents {
    BL_DOCUMENTS_FILES, /* each input is one */
    BL_DOCUMENTS_LINES, /* each line that is not empty */
    BL_DOCUMENTS_JSON   /* JSON Lines: the string `key` of each object */
};

struct bl_pack {
    const char *prefix; /* of the outputs: PREFIX-train.bin, PREFIX-val.bin */
    const char *const *inputs;
    size_t count;
    struct bl_plugin_instance *tokenizer; /* created */
    enum bl_documents documents;
    const char *key;
    /* The last part of the input, cut at the first line end at or after byte total - share * total,
     * is held out; 0 ... 0.5. Line ends that are added between files count as bytes. */
    double validation;
    uint64_t
        shard_tokens; /* tokens a file, PREFIX-train-000000.bin ...; 0: one file, not numbered */
    unsigned threads; /* 0: the processors this process may run on */
    int force;        /* outputs of this prefix that exist are replaced, all of them */
};

struct bl_pack_part {
    uint64_t tokens, files;
};

struct bl_pack_result {
    struct bl_pack_part train, validation;
    uint64_t documents;
    uint64_t text_bytes;  /* encoded */
    uint64_t input_bytes; /* read; more than the text where that stands in JSON */
};

/* A tokenizer that has an end-of-document id gets it after each document, and the line end is no
 * part of a document that is a line. Else a line end closes each document, added where it is
 * missing, but for the end of the last file.
 *
 * Codes: BL_EXIT_USAGE; BL_EXIT_DATA for inputs and outputs; BL_EXIT_PLUGIN for a tokenizer that
 * breaks its contract. */
int bl_data_pack(const struct bl_pack *pack, struct bl_pack_result *out, struct bl_error *err);

/* The name of an output, malloc'd; NULL without memory. `shard` matters when `numbered`. */
char *bl_pack_name(const char *prefix, int validation, int numbered, uint64_t shard);

#endif
