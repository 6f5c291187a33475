/* The sum over ranks that one process plays: ranks are visited one after another, and every program
 * whose next contribution is that rank's consumes it at once. An order that is the same for all
 * pieces takes W visits, a ring 2 W - 1, a ring of rings about 4 W. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "collectives/sum_internal.h"

#define NOBODY UINT32_MAX

/* Where each program of the buffers with the same algorithm and collective stands. Such buffers
 * share their programs, those of the one with the most. */
struct bl_sum_programs {
    const struct bl_order *order;
    uint32_t count;
    uint8_t *used;       /* some piece has it */
    uint32_t *wanted;    /* rank that it waits for; NOBODY when it is finished */
    uint32_t *from, *to; /* steps of this visit */
    uint32_t *stack;     /* partial sums before them */
};

struct bl_sum_stream {
    struct bl_sum_programs *programs;
    size_t count;
    uint32_t *visits; /* ranks */
    uint64_t visit_count, visit_capacity;
    uint32_t *slot;                            /* (W) of the store, NOBODY: not kept */
    uint8_t *seen;                             /* (W) in this run */
    uint64_t (*counts)[BL_GROUP_COUNT + 1][2]; /* (blocks) addends, lost ones */
};

/* ---- where programs stand -------------------------------------------------------------------- */

static void reset(struct bl_sum_stream *t)
{
    struct bl_order_step step;
    for (size_t i = 0; i < t->count; i++) {
        struct bl_sum_programs *p = &t->programs[i];
        for (uint32_t k = 0; k < p->count; k++) {
            p->from[k] = p->to[k] = p->stack[k] = 0;
            p->wanted[k] = NOBODY;
            if (!p->used[k])
                continue;
            bl_order_step(p->order, k, 0, &step);
            p->wanted[k] = step.rank;
        }
    }
}

/* The rank that is to be visited next; NOBODY at the end. It is the one that the program waits for
 * which is the least advanced of those that have begun: programs that go around a ring begin one
 * after another, and so none of them falls a whole turn behind. */
static uint32_t next_rank(const struct bl_sum_stream *t)
{
    uint32_t begun = NOBODY, least = NOBODY, other = NOBODY;
    for (size_t i = 0; i < t->count; i++) {
        const struct bl_sum_programs *p = &t->programs[i];
        for (uint32_t k = 0; k < p->count; k++) {
            if (p->wanted[k] == NOBODY)
                continue;
            if (p->to[k] > 0 && p->to[k] < least) {
                least = p->to[k];
                begun = p->wanted[k];
            } else if (p->to[k] == 0 && other == NOBODY) {
                other = p->wanted[k];
            }
        }
    }
    return begun != NOBODY ? begun : other;
}

/* Takes the steps that a visit of `rank` allows: its own, and what needs no contribution. */
static void advance(struct bl_sum_programs *p, uint32_t k, uint32_t rank)
{
    struct bl_order_step step;
    uint32_t length = bl_order_length(p->order, k);
    for (uint32_t i = p->from[k]; i < p->to[k]; i++) { /* of the visit before */
        bl_order_step(p->order, k, i, &step);
        p->stack[k] += (step.op == BL_ORDER_SET) - (step.op == BL_ORDER_MERGE);
    }
    p->from[k] = p->to[k];
    if (p->wanted[k] != rank)
        return;
    do {
        p->to[k]++;
        if (p->to[k] == length) {
            p->wanted[k] = NOBODY;
            return;
        }
        bl_order_step(p->order, k, p->to[k], &step);
    } while (step.op == BL_ORDER_MERGE);
    p->wanted[k] = step.rank;
}

static void visit(struct bl_sum_stream *t, uint32_t rank)
{
    for (size_t i = 0; i < t->count; i++) {
        struct bl_sum_programs *p = &t->programs[i];
        for (uint32_t k = 0; k < p->count; k++)
            if (p->wanted[k] == rank || p->from[k] != p->to[k])
                advance(p, k, rank);
    }
}

/* ---- plan ------------------------------------------------------------------------------------ */

static struct bl_sum_programs *programs_of(struct bl_sum_stream *t, const struct bl_sum_item *items,
                                           size_t count, size_t which)
{
    const struct bl_sum_format *f = &items[which].buffer.format;
    for (size_t i = 0; i < count; i++) {
        const struct bl_sum_format *g = &items[i].buffer.format;
        if (g->algorithm == f->algorithm && g->collective == f->collective && i < which)
            return items[i].programs;
    }
    return &t->programs[t->count++];
}

static int make_programs(struct bl_sum_programs *p)
{
    size_t n = p->count;
    p->used = calloc(n, sizeof *p->used);
    p->wanted = calloc(n, sizeof *p->wanted);
    p->from = calloc(n, sizeof *p->from);
    p->to = calloc(n, sizeof *p->to);
    p->stack = calloc(n, sizeof *p->stack);
    return p->used && p->wanted && p->from && p->to && p->stack ? 0 : -1;
}

static int share_programs(struct bl_sum *s)
{
    struct bl_sum_stream *t = s->stream;
    for (size_t i = 0; i < s->count; i++) {
        struct bl_sum_item *item = &s->items[i];
        item->programs = programs_of(t, s->items, s->count, i);
        if (bl_order_programs(item->order) > item->programs->count) {
            item->programs->order = item->order;
            item->programs->count = bl_order_programs(item->order);
        }
    }
    for (size_t i = 0; i < t->count; i++)
        if (make_programs(&t->programs[i]) < 0)
            return -1;
    for (size_t i = 0; i < s->count; i++) {
        struct bl_order_piece piece;
        for (uint64_t k = 0; k < bl_order_pieces(s->items[i].order); k++) {
            bl_order_piece(s->items[i].order, k, &piece);
            s->items[i].programs->used[piece.program] = 1;
        }
    }
    return 0;
}

static int note_visit(struct bl_sum_stream *t, uint32_t rank)
{
    if (t->visit_count == t->visit_capacity) {
        uint64_t capacity = t->visit_capacity > 0 ? 2 * t->visit_capacity : 64;
        uint32_t *grown = realloc(t->visits, capacity * sizeof *grown);
        if (grown == NULL)
            return -1;
        t->visits = grown;
        t->visit_capacity = capacity;
    }
    t->visits[t->visit_count++] = rank;
    return 0;
}

/* Which ranks are visited, and which of them more than once: they are kept if all of them fit. */
static int plan_visits(struct bl_sum *s)
{
    struct bl_sum_stream *t = s->stream;
    uint64_t twice = 0;
    reset(t);
    for (uint32_t rank; (rank = next_rank(t)) != NOBODY; visit(t, rank)) {
        if (note_visit(t, rank) < 0)
            return -1;
        twice += t->seen[rank] == 1;
        if (t->seen[rank] < 2)
            t->seen[rank]++;
    }
    if (s->slot_bytes > 0 && twice <= s->setup.keep / s->slot_bytes)
        s->slots = twice;
    for (uint32_t r = 0, slot = 0; r < s->setup.ranks; r++)
        t->slot[r] = s->slots > 0 && t->seen[r] > 1 ? slot++ : NOBODY;
    return 0;
}

int bl_sum_stream_make(struct bl_sum *s, struct bl_error *err)
{
    struct bl_sum_stream *t = calloc(1, sizeof *t);
    if (t == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "sum over ranks: out of memory");
    s->stream = t;
    t->programs = calloc(s->count + 1, sizeof *t->programs);
    t->slot = calloc(s->setup.ranks, sizeof *t->slot);
    t->seen = calloc(s->setup.ranks, sizeof *t->seen);
    t->counts = calloc(s->block_count + 1, sizeof *t->counts);
    if (!t->programs || !t->slot || !t->seen || !t->counts || share_programs(s) < 0 ||
        plan_visits(s) < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "sum over ranks: out of memory");
    return 0;
}

void bl_sum_stream_free(struct bl_sum_stream *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; t->programs != NULL && i < t->count; i++) {
        struct bl_sum_programs *p = &t->programs[i];
        free(p->used);
        free(p->wanted);
        free(p->from);
        free(p->to);
        free(p->stack);
    }
    free(t->programs);
    free(t->visits);
    free(t->slot);
    free(t->seen);
    free(t->counts);
    free(t);
}

double bl_sum_stream_visits(const struct bl_sum *s)
{
    uint64_t computed = s->slots > 0 ? 0 : s->stream->visit_count;
    for (uint32_t r = 0; s->slots > 0 && r < s->setup.ranks; r++)
        computed += s->stream->seen[r] > 0;
    return (double)computed / s->setup.ranks;
}

uint64_t bl_sum_stream_bytes(const struct bl_sum *s)
{
    const struct bl_sum_stream *t = s->stream;
    uint64_t bytes = sizeof *t + t->visit_capacity * sizeof *t->visits +
                     (uint64_t)s->setup.ranks * (sizeof *t->slot + sizeof *t->seen) +
                     (s->block_count + 1) * sizeof *t->counts;
    for (size_t i = 0; i < t->count; i++)
        bytes += t->programs[i].count * (4 * sizeof(uint32_t) + 1);
    return bytes;
}

/* ---- a visit --------------------------------------------------------------------------------- */

struct visit {
    struct bl_sum *s;
    const struct bl_sum_run *run;
    struct bl_sum_contribution contribution;
    uint32_t slot;    /* of the store: NOBODY = not kept */
    int stored, keep; /* the contribution is in the store; it is to be put there */
};

/* All steps of the visit on at most BL_SUM_LINE elements of one piece. */
static void take_steps(const struct visit *v, const struct bl_sum_block *block, uint64_t begin,
                       uint64_t n, uint32_t program, uint64_t *lost)
{
    const struct bl_sum *s = v->s;
    const struct bl_sum_item *item = &s->items[block->item];
    const struct bl_sum_programs *p = item->programs;
    struct bl_sum_random random = bl_sum_random_at(s, v->run, begin);
    uint32_t stack = p->stack[program];
    float x[BL_SUM_LINE];

    if (v->stored)
        bl_sum_unpack(item->rule.wire, n, bl_sum_stored(s, item, block->array, v->slot, begin), x);
    else
        bl_sum_scale(&item->rule, n, bl_sum_raw(s, &v->contribution, block->array, begin), x);
    if (v->keep && !v->stored && p->from[program] == p->to[program])
        bl_sum_pack(item->rule.wire, n, x, bl_sum_stored(s, item, block->array, v->slot, begin));
    for (uint32_t i = p->from[program]; i < p->to[program]; i++) {
        struct bl_order_step step;
        const float *addend = x;
        bl_order_step(item->order, program, i, &step);
        if (step.op == BL_ORDER_SET)
            stack++;
        if (step.op == BL_ORDER_MERGE)
            addend = bl_sum_level(s, v->run, item, block->array, --stack, begin);
        float *top = bl_sum_level(s, v->run, item, block->array, stack - 1, begin);
        bl_sum_step(&item->rule, n, step.op == BL_ORDER_SET, step.rounding, &random, i, addend, top,
                    lost);
    }
}

static void visit_block(void *argument, uint64_t index)
{
    const struct visit *v = argument;
    const struct bl_sum *s = v->s;
    const struct bl_sum_block *block = &s->blocks[index];
    const struct bl_sum_item *item = &s->items[block->item];
    const struct bl_sum_programs *p = item->programs;
    uint64_t base = item->buffer.begin, at = block->begin;
    if (block->array == BL_SUM_PART && v->run->part_out == NULL)
        return;
    for (uint64_t k = bl_order_find(item->order, at - base); at < block->end; k++) {
        struct bl_order_piece piece;
        bl_order_piece(item->order, k, &piece);
        uint64_t end = bl_order_less(base + piece.end, block->end);
        int idle = p->from[piece.program] == p->to[piece.program];
        if (idle && (!v->keep || v->stored)) {
            at = end;
            continue;
        }
        while (at < end) {
            uint64_t group_end, *lost = NULL, n = bl_order_less(end - at, BL_SUM_LINE);
            if (v->run->measure && block->array == BL_SUM_ARRAY) {
                lost = s->stream->counts[index][bl_sum_group(s, item, at, &group_end)];
                n = bl_order_less(n, group_end - at);
            }
            take_steps(v, block, at, n, piece.program, lost);
            at += n;
        }
    }
}

static void finish_block(void *argument, uint64_t index)
{
    const struct visit *v = argument;
    const struct bl_sum_block *block = &v->s->blocks[index];
    const struct bl_sum_item *item = &v->s->items[block->item];
    if (block->array == BL_SUM_PART && v->run->part_out == NULL)
        return;
    struct bl_sum_random random = bl_sum_random_at(v->s, v->run, block->begin);
    float *a = bl_sum_level(v->s, v->run, item, block->array, 0, block->begin);
    bl_sum_close(&item->rule, block->end - block->begin, a);
    bl_sum_finish(&item->rule, block->end - block->begin, &random, a, a);
}

static int visit_rank(struct visit *v, uint32_t rank, int *first, struct bl_error *err)
{
    struct bl_sum *s = v->s;
    int again = s->stream->seen[rank];
    v->slot = s->stream->slot[rank];
    v->stored = again && v->slot != NOBODY;
    v->keep = v->slot != NOBODY;
    if (!v->stored && bl_sum_contribute(s, v->run, rank, again, &v->contribution, err) < 0)
        return -1;
    if (v->run->measure && !again) {
        bl_sum_measure_add(s, v->contribution.array, *first);
        *first = 0;
    }
    s->stream->seen[rank] = 1;
    visit(s->stream, rank);
    bl_sum_parallel(s, s->block_count, visit_block, v);
    return 0;
}

static void gather_counts(const struct bl_sum *s, uint64_t counts[BL_GROUP_COUNT + 1][2])
{
    for (uint64_t b = 0; b < s->block_count; b++)
        for (int g = 0; g < BL_GROUP_COUNT; g++)
            for (int k = 0; k < 2; k++) {
                counts[g][k] += s->stream->counts[b][g][k];
                counts[BL_GROUP_COUNT][k] += s->stream->counts[b][g][k];
            }
}

int bl_sum_stream_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err)
{
    struct bl_sum_stream *t = s->stream;
    struct visit v = {.s = s, .run = run};
    int first = 1;
    reset(t);
    memset(t->seen, 0, s->setup.ranks * sizeof *t->seen);
    if (run->measure)
        memset(t->counts, 0, s->block_count * sizeof *t->counts);
    for (uint64_t i = 0; i < t->visit_count; i++)
        if (visit_rank(&v, t->visits[i], &first, err) < 0)
            return -1;
    bl_sum_parallel(s, s->block_count, finish_block, &v);
    if (run->measure) {
        uint64_t counts[BL_GROUP_COUNT + 1][2] = {{0}};
        gather_counts(s, counts);
        bl_sum_measure_end(s, run->out, (const uint64_t(*)[2])counts);
    }
    return 0;
}
