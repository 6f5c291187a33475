/* In which order, and with which roundings, W contributions to a sum are added: for every piece of
 * a buffer a small program over a stack of partial sums. The same programs run in one process that
 * plays all ranks (sum_stream.c) and over processes (sum_exchange.c), which is why both give the
 * same bits.
 *
 *     SET r     push x_r
 *     ADD r     top := top + x_r
 *     MERGE     b := pop; top := top + b
 *
 * x_r is the contribution of rank r: scaled, rounded to the wire format. Every step says how its
 * result is rounded:
 *     EXACT     fp32, as a switch or a local accumulator does it
 *     SUM       to the format of partial sums
 *     WIRE      to the format of partial sums, then to the wire's: it travels on
 * and `at`, the rank that does it: x_r, or the partial sum, travels there when it is elsewhere.
 *
 * Orders follow NCCL's (ring, tree, double binary tree, NVLS as a model); see each builder. */
#ifndef BL_COLLECTIVES_ORDER_H
#define BL_COLLECTIVES_ORDER_H

#include <ballast/precision.h>

#include "config/config.h"

#define BL_ORDER_NCCL "2.30" /* whose orders these are */

enum bl_order_op { BL_ORDER_SET, BL_ORDER_ADD, BL_ORDER_MERGE };
enum bl_order_rounding { BL_ORDER_EXACT, BL_ORDER_SUM, BL_ORDER_WIRE };

struct bl_order_step {
    uint8_t op, rounding;
    uint32_t rank; /* of SET and ADD */
    uint32_t at;
};

/* Elements [begin, end) of the buffer are summed by program `program`. */
struct bl_order_piece {
    uint64_t begin, end;
    uint32_t program;
    uint32_t owner; /* rank that has the sum first */
};

struct bl_order; /* of one buffer: its length, algorithm, collective, W, layout */

struct bl_order_setup {
    uint32_t ranks;                           /* W >= 1 */
    uint32_t algorithm, collective;           /* enum bl_algorithm_value, bl_collective_value */
    const struct bl_cluster_options *cluster; /* ranks_per_node, channels, chunk, protocol, ... */
    uint64_t elements;                        /* of the buffer, >= 1 */
    uint32_t element_bytes;                   /* on the wire: 2 or 4 */
};

/* Refuses with BL_EXIT_USAGE what NCCL does not have (tree with reduce_scatter), a ring order that
 * is no permutation, ranks that ranks_per_node does not divide where nodes matter. */
int bl_order_make(const struct bl_order_setup *setup, struct bl_order **out, struct bl_error *err);
void bl_order_free(struct bl_order *o);

/* Pieces cover [0, elements) in ascending order without gaps; computed, not stored. */
uint64_t bl_order_pieces(const struct bl_order *o);
void bl_order_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out);
/* Index of the piece that an element of the buffer is in. */
uint64_t bl_order_find(const struct bl_order *o, uint64_t element);

/* Programs: steps are computed on demand, so that W = 4096 costs no table of W^2. */
uint32_t bl_order_programs(const struct bl_order *o);
uint32_t bl_order_length(const struct bl_order *o, uint32_t program); /* steps */
void bl_order_step(const struct bl_order *o, uint32_t program, uint32_t index,
                   struct bl_order_step *out);
uint32_t bl_order_depth(const struct bl_order *o); /* deepest stack of all programs */

/* "ring over 8 ranks, 16 channels, simple, chunks of 1024 elements": what bits depend on. */
void bl_order_text(const struct bl_order *o, struct bl_text *out);

#endif
