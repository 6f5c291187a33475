/* NCCL's rings (src/device/all_reduce.h, reduce_scatter.h, 2.30) and the hybrid of two.
 *
 * all_reduce: position p of a ring begins with chunk p - 1 and at step j handles chunk p - j, so
 * chunk c is summed from position c + 1 on, around the ring, and ends at position c.
 * reduce_scatter: block d is summed from the successor of rank d on and ends at d.
 * Every partial sum travels, so every one is rounded to the wire.
 *
 * hybrid, as FSDP's: a reduce-scatter over the ranks of each node, block l going to local rank l,
 * then a ring all-reduce of block l over the l-th ranks of all nodes. Both in ascending order:
 * these are communicators of their own, which cluster.ring_order does not describe. */
#include <stdlib.h>

#include "collectives/order_internal.h"

static uint32_t rank_at(const struct bl_order *o, uint32_t ring, uint32_t position)
{
    const struct bl_cluster_options *c = o->setup.cluster;
    return c->rings > 0 ? c->ring_order[(uint64_t)ring * o->setup.ranks + position] : position;
}

/* Program ring * W + p is the walk around the ring that ends at position p. */
static void ring_step(const struct bl_order *o, uint32_t program, uint32_t index,
                      struct bl_order_step *out)
{
    uint32_t ranks = o->setup.ranks;
    uint32_t at = (program % ranks + 1 + index) % ranks;
    out->op = index == 0 ? BL_ORDER_SET : BL_ORDER_ADD;
    out->rounding = BL_ORDER_WIRE;
    out->rank = out->at = rank_at(o, program / ranks, at);
}

static void all_reduce_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    struct bl_chunk chunk;
    bl_chunks_at(&o->chunks, index, &chunk);
    uint32_t ring = chunk.channel % o->rings;
    out->begin = chunk.begin;
    out->end = chunk.end;
    out->program = ring * o->setup.ranks + chunk.position;
    out->owner = rank_at(o, ring, chunk.position);
}

/* A block is cut into channels only where they have different rings. */
static void reduce_scatter_piece(const struct bl_order *o, uint64_t index,
                                 struct bl_order_piece *out)
{
    uint32_t owner = (uint32_t)(index / o->per_block), channel = (uint32_t)(index % o->per_block);
    uint32_t ring = channel % o->rings;
    uint64_t block = owner * o->block;
    out->begin = block + o->channels.begin[channel];
    out->end = bl_order_less(block + o->channels.begin[channel + 1], o->setup.elements);
    out->program = ring * o->setup.ranks + o->position[ring * o->setup.ranks + owner];
    out->owner = owner;
}

/* Pieces of a whole block that begin in the last one, which may be shorter. */
static uint64_t pieces_of_last(const struct bl_order *o, uint64_t last)
{
    uint64_t n = 0;
    while (n < o->channels.count && o->channels.begin[n] < last)
        n++;
    return n;
}

static int invert(struct bl_order *o, struct bl_error *err)
{
    uint32_t ranks = o->setup.ranks;
    o->position = malloc((size_t)o->rings * ranks * sizeof *o->position);
    if (o->position == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "order of a ring: out of memory");
    for (uint32_t k = 0; k < o->rings; k++)
        for (uint32_t p = 0; p < ranks; p++)
            o->position[k * ranks + rank_at(o, k, p)] = p;
    return 0;
}

static int check_rings(const struct bl_order *o, struct bl_error *err)
{
    const struct bl_cluster_options *c = o->setup.cluster;
    uint32_t ranks = o->setup.ranks;
    if (c->rings == 0)
        return 0;
    if (c->ring_length != ranks)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "cluster.ring_order: lists of %zu ranks, but there are %u",
                            c->ring_length, ranks);
    uint8_t *seen = calloc(ranks, 1);
    if (seen == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "order of a ring: out of memory");
    int rc = 0;
    for (size_t k = 0; k < c->rings && rc == 0; k++)
        for (uint32_t p = 0; p < ranks && rc == 0; p++) {
            uint32_t r = c->ring_order[k * ranks + p];
            if (r >= ranks || seen[r] != k % 255)
                rc = bl_error_set(err, BL_EXIT_USAGE,
                                  "cluster.ring_order[%zu]: rank %u is %s; a list names each of "
                                  "0 ... %u once",
                                  k, r, r >= ranks ? "none" : "there twice", ranks - 1);
            else
                seen[r] = (uint8_t)((k + 1) % 255);
        }
    free(seen);
    return rc;
}

int bl_order_ring(struct bl_order *o, struct bl_error *err)
{
    const struct bl_order_setup *s = &o->setup;
    if (check_rings(o, err) < 0)
        return -1;
    o->rings = s->cluster->rings > 0 ? (uint32_t)s->cluster->rings : 1;
    o->programs = o->rings * s->ranks;
    o->length = s->ranks;
    o->depth = 1;
    o->step = ring_step;
    if (s->collective == BL_COLLECTIVE_ALL_REDUCE) {
        bl_chunks_make(s, s->elements, s->ranks, &o->chunks);
        o->pieces = bl_chunks_count(&o->chunks);
        o->piece = all_reduce_piece;
        return 0;
    }
    o->block = bl_order_divide_up(s->elements, s->ranks);
    o->channels = (struct bl_channels){.count = 1, .begin = {0, o->block}};
    if (o->rings > 1)
        bl_channels_make(s, o->block, s->ranks, s->ranks, &o->channels);
    o->per_block = o->channels.count;
    uint64_t before = (s->elements - 1) / o->block;
    o->pieces = before * o->per_block + pieces_of_last(o, s->elements - before * o->block);
    o->piece = reduce_scatter_piece;
    return invert(o, err);
}

/* ---- hybrid ---------------------------------------------------------------------------------- */

/* Program l * nodes + c: block l, and of it the chunks that end at node c. A node's sum is made
 * of its ranks l + 1 ... l, the sum over nodes of nodes c + 1 ... c. */
static void hybrid_step(const struct bl_order *o, uint32_t program, uint32_t index,
                        struct bl_order_step *out)
{
    uint32_t local = program / o->nodes, last = program % o->nodes;
    /* Every node but the first adds a step that merges. Where a node is one rank there is no sum
     * inside of it, and its contribution is added. */
    uint32_t steps = o->per_node + (o->per_node > 1), node = 0, inside = index;
    if (index >= o->per_node) {
        node = 1 + (index - o->per_node) / steps;
        inside = (index - o->per_node) % steps;
    }
    uint32_t base = (last + 1 + node) % o->nodes * o->per_node;
    out->rounding = BL_ORDER_WIRE;
    if (inside == o->per_node) {
        out->op = BL_ORDER_MERGE;
        out->rank = out->at = base + local;
        return;
    }
    out->op = inside == 0 && (node == 0 || o->per_node > 1) ? BL_ORDER_SET : BL_ORDER_ADD;
    out->rank = out->at = base + (local + 1 + inside) % o->per_node;
}

static void hybrid_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    struct bl_chunk chunk;
    uint32_t local = (uint32_t)(index / o->per_block);
    uint64_t block = local * o->block;
    bl_chunks_at(&o->chunks, index % o->per_block, &chunk);
    out->begin = block + chunk.begin;
    out->end = bl_order_less(block + chunk.end, o->setup.elements);
    out->program = local * o->nodes + chunk.position;
    out->owner = chunk.position * o->per_node + local;
}

int bl_order_hybrid(struct bl_order *o, struct bl_error *err)
{
    const struct bl_order_setup *s = &o->setup;
    (void)err;
    o->block = bl_order_divide_up(s->elements, o->per_node);
    bl_chunks_make(s, o->block, o->nodes, &o->chunks);
    o->per_block = bl_chunks_count(&o->chunks);
    uint64_t before = (s->elements - 1) / o->block, rest = s->elements - before * o->block;
    struct bl_chunk chunk;
    o->pieces = 0;
    do
        bl_chunks_at(&o->chunks, o->pieces++, &chunk);
    while (chunk.end < rest);
    o->pieces += before * o->per_block;
    o->programs = s->ranks;
    o->length = s->ranks + (o->per_node > 1 ? o->nodes - 1 : 0);
    o->depth = o->nodes > 1 && o->per_node > 1 ? 2 : 1;
    o->step = hybrid_step;
    o->piece = hybrid_piece;
    return 0;
}
