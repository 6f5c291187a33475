/* What the files of an order share: one builder a family of algorithms. */
#ifndef BL_COLLECTIVES_ORDER_INTERNAL_H
#define BL_COLLECTIVES_ORDER_INTERNAL_H

#include "base/strings.h"
#include "collectives/order.h"

#define BL_ORDER_CHANNELS 64 /* NCCL's most */

/* How NCCL cuts `elements` into parts of channels, one after another. traffic: how often a byte
 * crosses links, 2 for an all-reduce, W for a reduce-scatter. ring: its ranks, 1 for a tree. */
struct bl_channels {
    uint32_t count;
    uint64_t begin[BL_ORDER_CHANNELS + 1];
};
void bl_channels_make(const struct bl_order_setup *setup, uint64_t elements, uint32_t traffic,
                      uint32_t ring, struct bl_channels *out);

/* How a ring all-reduce over `ranks` cuts the part of a channel: loops of a chunk for each rank,
 * the last loop with shorter chunks. */
struct bl_chunks {
    struct bl_channels channels;
    uint32_t ranks;
    uint64_t chunk, unit;                  /* elements; short chunks are multiples of `unit` */
    uint64_t first[BL_ORDER_CHANNELS + 1]; /* chunk with which a channel begins */
};
struct bl_chunk {
    uint64_t begin, end;
    uint32_t channel, position; /* of the ring that owns it */
};
void bl_chunks_make(const struct bl_order_setup *setup, uint64_t elements, uint32_t ranks,
                    struct bl_chunks *out);
uint64_t bl_chunks_count(const struct bl_chunks *c);
void bl_chunks_at(const struct bl_chunks *c, uint64_t index, struct bl_chunk *out);

/* A program as a table of 32-bit words, two steps a rank at most. */
struct bl_program {
    uint32_t *steps;
    uint32_t length, depth;
};

struct bl_order {
    struct bl_order_setup setup;
    uint32_t nodes, per_node; /* 1, W where nodes do not matter */
    uint64_t pieces;
    uint32_t programs, length, depth;
    void (*piece)(const struct bl_order *o, uint64_t index, struct bl_order_piece *out);
    void (*step)(const struct bl_order *o, uint32_t program, uint32_t index,
                 struct bl_order_step *out);

    uint64_t block;               /* elements of a block of reduce_scatter, alltoall, hybrid */
    uint64_t per_block;           /* pieces of a whole block */
    struct bl_channels channels;  /* reduce_scatter by several rings, tree, nvls */
    struct bl_chunks chunks;      /* ring, hybrid */
    uint32_t rings, *position;    /* (rings, W): where a rank stands in a ring */
    struct bl_program program[2]; /* tree, nvls, pairwise */
};

/* Of the tables. */
uint64_t bl_order_bytes(const struct bl_order *o);

int bl_order_ring(struct bl_order *o, struct bl_error *err);
int bl_order_hybrid(struct bl_order *o, struct bl_error *err);
int bl_order_tree(struct bl_order *o, struct bl_error *err); /* and nvls */
int bl_order_pairwise(struct bl_order *o, struct bl_error *err);

static inline uint64_t bl_order_divide_up(uint64_t a, uint64_t b)
{
    return (a + b - 1) / b;
}

static inline uint64_t bl_order_less(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
