/* Packing in three steps: the reader cuts the inputs into chunks, the encoder makes ids of one
 * chunk (on any thread), the writer puts the ids of all chunks, in order, into shards. */
#ifndef BL_DATA_PACK_INTERNAL_H
#define BL_DATA_PACK_INTERNAL_H

#include <sys/types.h>

#include "data/pack.h"

struct bl_chunk {
    /* What the reader found. */
    const char *path;
    uint64_t offset; /* in the file, of text[0] */
    char *text;
    size_t bytes, capacity;
    uint64_t read;  /* bytes of the file in `text`; one less than `bytes` with an added line end */
    int validation; /* the part it belongs to */
    int ends;       /* the end of its file */

    /* What the encoder made of it. */
    int32_t *ids; /* working space */
    size_t ids_capacity;
    unsigned char *packed; /* ids as they stand in the shard */
    size_t packed_capacity;
    uint64_t tokens, documents, text_bytes;
    int failed; /* then err says why */
    struct bl_error err;
};

void bl_chunk_free(struct bl_chunk *c);

/* ---- pack_read.c ------------------------------------------------------------------------------*/

struct bl_input {
    uint64_t size;
    dev_t device;
    ino_t inode;
};

struct bl_reader {
    const struct bl_pack *pack;
    int join; /* files that are not the last end with a line end */
    struct bl_input *inputs;
    uint64_t total;    /* bytes of text as `position` counts them */
    uint64_t position; /* of the next chunk: bytes so far, added line ends included */
    uint64_t cut;      /* where the training part may end; UINT64_MAX: it is over, or all is */
    int validation;
    size_t current; /* input */
    int fd;         /* of it, -1: not open */
    uint64_t offset;
};

/* Looks at every input once, so that most errors cost no time. */
int bl_reader_start(struct bl_reader *r, const struct bl_pack *pack, int join,
                    struct bl_error *err);
/* 1: *c holds the next chunk; 0: there is none; -1. */
int bl_reader_next(struct bl_reader *r, struct bl_chunk *c, struct bl_error *err);
void bl_reader_end(struct bl_reader *r);
/* Bytes of the first piece of a text, at most BL_PACK_PIECE: up to its last line end, else its last
 * space, else its last whole UTF-8 character. */
size_t bl_pack_piece(const char *text, size_t bytes);

/* ---- pack_encode.c ----------------------------------------------------------------------------*/

struct bl_encoder {
    const struct bl_plugin_instance *tokenizer;
    uint64_t vocab;
    int64_t end_of_document;
    enum bl_documents documents;
    const char *key;
    unsigned width; /* bytes of an id in the shard: 2 or 4 */
};

int bl_encoder_start(struct bl_encoder *e, const struct bl_pack *pack, struct bl_error *err);
/* Thread-safe for different chunks. Errors are in the chunk. */
void bl_encoder_run(const struct bl_encoder *e, struct bl_chunk *c);

/* ---- pack_write.c -----------------------------------------------------------------------------*/

struct bl_writer;

/* Refuses outputs that are there (without force), that are inputs, or that another process is
 * making; removes what a killed process left. */
int bl_writer_start(struct bl_writer **out, const struct bl_pack *pack,
                    const struct bl_reader *reader, const struct bl_encoder *encoder,
                    struct bl_error *err);
int bl_writer_add(struct bl_writer *w, int validation, const unsigned char *packed, uint64_t tokens,
                  struct bl_error *err);
/* Completes the files, removes the old ones and gives the new ones their names. */
int bl_writer_publish(struct bl_writer *w, struct bl_pack_part *train,
                      struct bl_pack_part *validation, struct bl_error *err);
/* Removes what was not published. */
void bl_writer_free(struct bl_writer *w);

#endif
