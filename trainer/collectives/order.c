#include "collectives/order.h"

#include <inttypes.h>
#include <stdlib.h>

#include "collectives/order_internal.h"

/* ---- alltoall -------------------------------------------------------------------------------- */

/* Every rank sends each block to the block's owner, who adds in ascending order. */
static void alltoall_step(const struct bl_order *o, uint32_t program, uint32_t index,
                          struct bl_order_step *out)
{
    (void)o;
    out->op = index == 0 ? BL_ORDER_SET : BL_ORDER_ADD;
    out->rounding = BL_ORDER_SUM;
    out->rank = index;
    out->at = program;
}

static void alltoall_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    out->begin = index * o->block;
    out->end = bl_order_less(out->begin + o->block, o->setup.elements);
    out->program = out->owner = (uint32_t)index;
}

static int alltoall(struct bl_order *o)
{
    o->block = bl_order_divide_up(o->setup.elements, o->setup.ranks);
    o->pieces = bl_order_divide_up(o->setup.elements, o->block);
    o->programs = (uint32_t)o->pieces;
    o->length = o->setup.ranks;
    o->depth = 1;
    o->step = alltoall_step;
    o->piece = alltoall_piece;
    return 0;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The nearest numbers of ranks per node that divide W, for a message. */
static int refuse_nodes(uint32_t ranks, uint32_t per_node, struct bl_error *err)
{
    uint32_t below = per_node, above = per_node;
    while (ranks % below != 0)
        below--;
    while (ranks % above != 0)
        above++;
    return bl_error_set(err, BL_EXIT_USAGE,
                        "%" PRIu32 " ranks are no whole number of nodes of %" PRIu32
                        ": set cluster.ranks_per_node to %" PRIu32 " or %" PRIu32,
                        ranks, per_node, below, above);
}

static int has_nodes(uint32_t algorithm)
{
    return algorithm == BL_ALGORITHM_TREE || algorithm == BL_ALGORITHM_NVLS ||
           algorithm == BL_ALGORITHM_HYBRID;
}

static int build(struct bl_order *o, struct bl_error *err)
{
    switch (o->setup.algorithm) {
    case BL_ALGORITHM_ALLTOALL:
        return alltoall(o);
    case BL_ALGORITHM_RING:
        return bl_order_ring(o, err);
    case BL_ALGORITHM_TREE:
    case BL_ALGORITHM_NVLS:
        return bl_order_tree(o, err);
    case BL_ALGORITHM_PAIRWISE:
        return bl_order_pairwise(o, err);
    case BL_ALGORITHM_HYBRID:
        return bl_order_hybrid(o, err);
    default:
        return bl_error_set(err, BL_EXIT_USAGE, "algorithm %" PRIu32 " is none",
                            o->setup.algorithm);
    }
}

int bl_order_make(const struct bl_order_setup *setup, struct bl_order **out, struct bl_error *err)
{
    if (setup->ranks == 0 || setup->ranks > 65536)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "a sum over %" PRIu32 " ranks: cluster.emulate takes 1 ... 65536",
                            setup->ranks);
    if (setup->collective > BL_COLLECTIVE_REDUCE_SCATTER)
        return bl_error_set(err, BL_EXIT_USAGE, "collective %" PRIu32 " is none",
                            setup->collective);
    struct bl_order *o = calloc(1, sizeof *o);
    if (o == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "order of a sum: out of memory");
    o->setup = *setup;
    o->nodes = 1;
    o->per_node = setup->ranks;
    if (has_nodes(setup->algorithm) && setup->cluster->ranks_per_node < setup->ranks) {
        o->per_node = (uint32_t)setup->cluster->ranks_per_node;
        o->nodes = setup->ranks / o->per_node;
        if (setup->ranks % o->per_node != 0) {
            refuse_nodes(setup->ranks, o->per_node, err);
            goto fail;
        }
    }
    if (build(o, err) < 0)
        goto fail;
    *out = o;
    return 0;
fail:
    bl_order_free(o);
    return -1;
}

void bl_order_free(struct bl_order *o)
{
    if (o == NULL)
        return;
    free(o->program[0].steps);
    free(o->program[1].steps);
    free(o->position);
    free(o);
}

uint64_t bl_order_pieces(const struct bl_order *o)
{
    return o->pieces;
}

void bl_order_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    o->piece(o, index, out);
}

uint64_t bl_order_find(const struct bl_order *order, uint64_t element)
{
    uint64_t low = 0, high = bl_order_pieces(order) - 1;
    while (low < high) {
        struct bl_order_piece piece;
        uint64_t middle = low + (high - low) / 2;
        bl_order_piece(order, middle, &piece);
        if (piece.end <= element)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t bl_order_programs(const struct bl_order *o)
{
    return o->programs;
}

uint32_t bl_order_length(const struct bl_order *o, uint32_t program)
{
    return o->length > 0 ? o->length : o->program[program].length;
}

void bl_order_step(const struct bl_order *o, uint32_t program, uint32_t index,
                   struct bl_order_step *out)
{
    o->step(o, program, index, out);
}

uint32_t bl_order_depth(const struct bl_order *o)
{
    return o->depth;
}

uint64_t bl_order_bytes(const struct bl_order *o)
{
    uint64_t bytes = sizeof *o;
    if (o->position != NULL)
        bytes += (uint64_t)o->rings * o->setup.ranks * sizeof *o->position;
    for (int p = 0; p < 2; p++)
        if (o->program[p].steps != NULL)
            bytes += 2 * (uint64_t)o->setup.ranks * sizeof(uint32_t);
    return bytes;
}

static void channels_text(const struct bl_channels *c, struct bl_text *out)
{
    bl_text_add(out, ", %" PRIu32 " channel%s", c->count, c->count == 1 ? "" : "s");
}

static void chunks_text(const struct bl_order *o, struct bl_text *out)
{
    static const char *const protocols[] = {"simple", "ll", "ll128"};
    struct bl_chunk chunk;
    bl_chunks_at(&o->chunks, 0, &chunk);
    channels_text(&o->chunks.channels, out);
    bl_text_add(out, ", %s, chunks of %" PRIu64 " elements", protocols[o->setup.cluster->protocol],
                chunk.end - chunk.begin);
}

static void rings_text(const struct bl_order *o, struct bl_text *out)
{
    size_t rings = o->setup.cluster->rings;
    if (rings > 0)
        bl_text_add(out, ", %zu ring%s of cluster.ring_order", rings, rings == 1 ? "" : "s");
}

static void nodes_text(const struct bl_order *o, struct bl_text *out)
{
    bl_text_add(out, " in %" PRIu32 " node%s of %" PRIu32, o->nodes, o->nodes == 1 ? "" : "s",
                o->per_node);
}

void bl_order_text(const struct bl_order *o, struct bl_text *out)
{
    static const char *const names[] = {"alltoall",     "ring",     "tree",
                                        "nvls (model)", "pairwise", "hybrid"};
    bl_text_add(out, "%s over %" PRIu32 " rank%s", names[o->setup.algorithm], o->setup.ranks,
                o->setup.ranks == 1 ? "" : "s");
    if (has_nodes(o->setup.algorithm))
        nodes_text(o, out);
    switch (o->setup.algorithm) {
    case BL_ALGORITHM_RING:
        if (o->setup.collective == BL_COLLECTIVE_ALL_REDUCE)
            chunks_text(o, out);
        else if (o->rings > 1)
            channels_text(&o->channels, out);
        rings_text(o, out);
        break;
    case BL_ALGORITHM_TREE:
        if (o->nodes > 1)
            bl_text_add(out, ", pattern %d", (int)o->setup.cluster->tree_pattern);
        channels_text(&o->channels, out);
        break;
    case BL_ALGORITHM_NVLS:
        channels_text(&o->channels, out);
        break;
    case BL_ALGORITHM_HYBRID:
        chunks_text(o, out);
        break;
    default:
        break;
    }
}
