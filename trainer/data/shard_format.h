/* What a file of token ids is: its format, the width of an id, where the ids begin, how many.
 *
 *     llmc    llm.c .bin: 256 little-endian int32, word 0 the magic, 1 the version, 2 the number of
 *             ids; 20240520 version 1 holds uint16, 20240801 version 7 uint32. Word 4 equal to
 *             BL_SHARD_VOCAB_TAG says that word 3 is the size of the vocabulary; elsewhere these
 *             words are not used.
 *     npy     numpy .npy 1.0, 2.0, 3.0: one dimension of '<u2', '<u4' or '<i4' (what an array of
 *             Python ints cast to int32 saves; a negative id is out of every range).
 *     raw16   nothing but little-endian uint16: nanoGPT's .bin, OLMo's memory maps (which end in
 *             .npy without being one), Megatron-LM's .bin.
 *     raw32   the same with uint32.
 *
 * Detection looks at the content, never at the name: the magic of llm.c, then "\x93NUMPY", else
 * raw. Raw files do not say how wide an id is. Taken as 16-bit words, the words at odd places are
 * the high halves of the ids if those have 32 bits, so they are below 16 (no tokenizer has 2^20
 * ids) while the words at even places seldom are; ids of 16 bits look alike at both places. Call a
 * word of 16 or more big:
 *
 *     no big word at odd places, 12 or more at even places      32 bits (by chance: 2^-12)
 *     big words at both places, neither more than twice as many 16 bits
 *     no big word anywhere, but odd places that are not 0       16 bits (as 32: ids with gaps)
 *     anything else                                             refused: the user must say
 *
 * The same look refuses a raw format named by the user that the content contradicts. */
#ifndef BL_DATA_SHARD_FORMAT_H
#define BL_DATA_SHARD_FORMAT_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>

enum bl_shard_format {
    BL_SHARD_AUTO,
    BL_SHARD_LLMC,
    BL_SHARD_NPY,
    BL_SHARD_RAW16,
    BL_SHARD_RAW32,
    BL_SHARD_TEXT /* bytes as ids; not detected */
};

enum {
    BL_SHARD_VOCAB_TAG = 0x54534c42, /* "BLST" in the file */
    BL_SHARD_HEADER = 1024,          /* bytes, llm.c */
    BL_SHARD_PIECE = 1 << 14,        /* bytes looked at in one place; a header ends within it */
    BL_SHARD_SAMPLE = 3 * BL_SHARD_PIECE,
    BL_SHARD_WHY = 400
};

struct bl_shard_layout {
    enum bl_shard_format format;
    uint32_t width; /* bytes an id: 1, 2 or 4 */
    uint64_t start; /* byte of the first id */
    uint64_t items; /* ids */
    uint64_t vocab; /* ids are below it; 0: the file does not say */
};

/* "auto", "llmc", "npy", "raw16", "raw32". The parser answers 0, or -1 for another name. */
const char *bl_shard_format_name(enum bl_shard_format format);
int bl_shard_format_parse(const char *name, enum bl_shard_format *out);

/* A pure function of a file's size and of n of its bytes: the first min(size, BL_SHARD_PIECE) or
 * more, and after them, for raw formats, any other pieces that begin at a multiple of 8 in the file
 * and in `bytes`. 0, or -1 with a one-line reason that does not name the file. */
int bl_shard_parse(const unsigned char *bytes, size_t n, uint64_t size, enum bl_shard_format wanted,
                   struct bl_shard_layout *out, char why[BL_SHARD_WHY]);
/* The same for an open file: reads the beginning, and the middle and end of a raw one. */
int bl_shard_inspect(int fd, uint64_t size, enum bl_shard_format wanted,
                     struct bl_shard_layout *out, char why[BL_SHARD_WHY]);

/* Opens a regular file to read, without waiting on a FIFO: a descriptor, or -1. */
int bl_shard_open(const char *path, struct stat *st, char why[BL_SHARD_WHY]);
/* Exactly n bytes at offset, or -1 with errno (0: the file ends before). */
int bl_shard_pread(int fd, void *buffer, uint64_t n, uint64_t offset);

static inline uint32_t bl_little16(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t bl_little32(const unsigned char *p)
{
    return bl_little16(p) | bl_little16(p + 2) << 16;
}

#endif
