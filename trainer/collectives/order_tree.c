/* Programs that come of a recursion, as tables: NCCL's double binary tree (src/graph/trees.cc,
 * connect.cc, 2.30), NVLS as a model, halves of halves.
 *
 * Addition commutes, so of two operands the one that needs more stack is computed first: a program
 * over W ranks keeps at most log2 of its nodes' partial sums. */
#include <stdlib.h>

#include "collectives/order_internal.h"

enum { RANK_BITS = 20, ROUNDING_SHIFT = 20, OP_SHIFT = 24 };

static void emit(struct bl_program *p, enum bl_order_op op, enum bl_order_rounding rounding,
                 uint32_t rank)
{
    p->steps[p->length++] = (uint32_t)op << OP_SHIFT | (uint32_t)rounding << ROUNDING_SHIFT | rank;
}

static void table_step(const struct bl_order *o, uint32_t program, uint32_t index,
                       struct bl_order_step *out)
{
    uint32_t word = o->program[program].steps[index];
    out->op = (uint8_t)(word >> OP_SHIFT);
    out->rounding = (uint8_t)(word >> ROUNDING_SHIFT & 15u);
    out->rank = out->at = word & ((1u << RANK_BITS) - 1);
}

/* The model's switch stands where the first rank of a node is. */
static void switch_step(const struct bl_order *o, uint32_t program, uint32_t index,
                        struct bl_order_step *out)
{
    table_step(o, program, index, out);
    out->at -= out->at % o->per_node;
}

static int make_table(struct bl_order *o, uint32_t program, struct bl_error *err)
{
    o->program[program] = (struct bl_program){
        .steps = malloc(2 * (size_t)o->setup.ranks * sizeof(uint32_t)),
    };
    if (o->program[program].steps == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "order of a tree: out of memory");
    return 0;
}

static void measure_depth(struct bl_order *o)
{
    for (uint32_t p = 0; p < o->programs; p++) {
        uint32_t stack = 0;
        for (uint32_t i = 0; i < o->program[p].length; i++) {
            uint32_t op = o->program[p].steps[i] >> OP_SHIFT;
            stack = op == BL_ORDER_SET ? stack + 1 : op == BL_ORDER_MERGE ? stack - 1 : stack;
            if (stack > o->depth)
                o->depth = stack;
        }
    }
}

/* ---- tree, nvls ------------------------------------------------------------------------------ */

struct tree {
    struct bl_program *out;
    uint32_t nodes, per_node, pattern;
    int mirrored, model; /* the second tree; nvls */
};

/* Children of node r of the binary tree over n nodes: its lowest bit says its height. */
static uint32_t children(uint32_t n, uint32_t r, uint32_t child[2])
{
    uint32_t count = 0, half = (r & -r) / 2;
    if (r == 0) {
        for (half = 1; 2 * half < n;)
            half *= 2;
        child[0] = half;
        return n > 1;
    }
    if (half > 0)
        child[count++] = r - half;
    while (half > 0 && r + half >= n)
        half /= 2;
    if (half > 0)
        child[count++] = r + half;
    return count;
}

/* The node of the cluster that node r of the binary tree is. */
static uint32_t node_of(const struct tree *t, uint32_t r)
{
    return !t->mirrored ? r : t->nodes % 2 == 0 ? t->nodes - 1 - r : (r + 1) % t->nodes;
}

/* A node's sum: x of its ranks from the last to the first, its children's sums joining on the way,
 * child 0 never after child 1. */
struct joint {
    uint32_t count, child[2], index[2]; /* who joins at which local rank */
    int first;                          /* child 0 meets the last rank's x, not a sum of ranks */
    int before[2];                      /* it is computed before what it joins */
    uint32_t depth;
};

static uint32_t combined_depth(uint32_t a, uint32_t b)
{
    return a == b ? a + 1 : a > b ? a : b;
}

static void join(const struct tree *t, uint32_t r, struct joint *out)
{
    struct joint child;
    *out = (struct joint){.depth = 1};
    out->count = children(t->nodes, r, out->child);
    /* Root 0 has child 1 only; of other nodes it is child 0 that is never missing. */
    for (uint32_t k = 0; k < out->count; k++) {
        uint32_t slot = r == 0 ? 1 : k;
        int top = t->model || t->per_node == 1 || t->pattern == 3;
        out->index[k] = top ? 0 : t->pattern == 2 ? 1 : 1 - slot;
        join(t, out->child[k], &child);
        if (k == 0 && !t->model && out->index[0] == t->per_node - 1) {
            out->first = 1;
            out->depth = child.depth;
        } else {
            out->before[k] = child.depth > out->depth;
            out->depth = combined_depth(out->depth, child.depth);
        }
    }
}

static void emit_node(const struct tree *t, uint32_t r)
{
    struct joint j;
    uint32_t base = node_of(t, r) * t->per_node, k = 0, last = t->per_node - 1;
    join(t, r, &j);
    for (uint32_t i = j.count; i-- > 0;)
        if (j.before[i])
            emit_node(t, j.child[i]);
    for (uint32_t i = t->per_node; i-- > 0;) {
        enum bl_order_op op = i == last ? BL_ORDER_SET : BL_ORDER_ADD;
        if (i == last && j.first) {
            emit_node(t, j.child[k++]);
            op = BL_ORDER_ADD;
        }
        if (t->model) /* the node's sum is exact, in ascending order, and rounded once */
            emit(t->out, op, i > 0 ? BL_ORDER_EXACT : BL_ORDER_WIRE, base + last - i);
        else
            emit(t->out, op, BL_ORDER_WIRE, base + i);
        for (; k < j.count && j.index[k] == i; k++) {
            if (!j.before[k])
                emit_node(t, j.child[k]);
            emit(t->out, BL_ORDER_MERGE, BL_ORDER_WIRE, base + i);
        }
    }
}

/* The first half of a tree's channels runs through the first tree, the other through the second.
 * NVLSTree's channels take turns. */
static void tree_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    uint32_t nodes = o->nodes, half = (o->channels.count + 1) / 2, channel = (uint32_t)index;
    out->program = (uint32_t)(index % 2);
    if (o->setup.algorithm == BL_ALGORITHM_TREE && index > 0)
        channel = half;
    out->begin = o->channels.begin[channel];
    if (o->setup.algorithm == BL_ALGORITHM_NVLS)
        out->end = o->channels.begin[channel + 1];
    else
        out->end = index + 1 < o->pieces ? o->channels.begin[half] : o->setup.elements;
    struct tree t = {.nodes = nodes, .mirrored = out->program == 1};
    out->owner = node_of(&t, 0) * o->per_node;
}

int bl_order_tree(struct bl_order *o, struct bl_error *err)
{
    const struct bl_order_setup *s = &o->setup;
    int model = s->algorithm == BL_ALGORITHM_NVLS;
    if (s->collective == BL_COLLECTIVE_REDUCE_SCATTER && !model)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "algorithm \"tree\" has no collective \"reduce_scatter\" in NCCL; "
                            "write \"all_reduce\", or algorithm \"ring\"");
    if (o->nodes > 1)
        bl_channels_make(s, s->elements, 2, 1, &o->channels);
    else /* both trees are the one chain */
        o->channels = (struct bl_channels){.count = 1, .begin = {0, s->elements}};
    o->pieces = model || o->channels.count == 1 ? o->channels.count : 2;
    o->programs = o->pieces > 1 ? 2 : 1;
    for (uint32_t p = 0; p < o->programs; p++) {
        if (make_table(o, p, err) < 0)
            return -1;
        struct tree t = {.out = &o->program[p],
                         .nodes = o->nodes,
                         .per_node = o->per_node,
                         .pattern = (uint32_t)s->cluster->tree_pattern,
                         .mirrored = p == 1,
                         .model = model};
        emit_node(&t, 0);
    }
    measure_depth(o);
    o->step = model ? switch_step : table_step;
    o->piece = tree_piece;
    return 0;
}

/* ---- pairwise -------------------------------------------------------------------------------- */

/* The sum of ranks [begin, end) := that of the first half, which is the larger one, + the other. */
static void emit_half(struct bl_program *p, uint32_t begin, uint32_t end)
{
    uint32_t middle = begin + (end - begin + 1) / 2;
    if (end - begin == 1) {
        emit(p, BL_ORDER_SET, BL_ORDER_WIRE, begin);
        return;
    }
    emit_half(p, begin, middle);
    if (end - middle == 1) {
        emit(p, BL_ORDER_ADD, BL_ORDER_WIRE, middle);
    } else {
        emit_half(p, middle, end);
        emit(p, BL_ORDER_MERGE, BL_ORDER_WIRE, begin);
    }
}

static void whole_piece(const struct bl_order *o, uint64_t index, struct bl_order_piece *out)
{
    struct bl_order_step last;
    (void)index;
    table_step(o, 0, o->program[0].length - 1, &last);
    *out = (struct bl_order_piece){.begin = 0, .end = o->setup.elements, .owner = last.at};
}

int bl_order_pairwise(struct bl_order *o, struct bl_error *err)
{
    if (make_table(o, 0, err) < 0)
        return -1;
    emit_half(&o->program[0], 0, o->setup.ranks);
    o->pieces = o->programs = 1;
    measure_depth(o);
    o->step = table_step;
    o->piece = whole_piece;
    return 0;
}
