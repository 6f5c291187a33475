#include "collectives/sum_route.h"

#include <stdlib.h>
#include <string.h>

struct builder {
    struct bl_route *route;
    uint32_t segment_capacity, move_capacity;
    uint32_t *made;     /* (depth) segment that made each partial sum of the stack */
    uint32_t *rounding; /* (depth) */
    uint32_t *latest;   /* (processes) last segment of each, BL_ROUTE_END: none */
    uint32_t stack;
};

static void *grown(void *array, uint32_t count, uint32_t *capacity, size_t size)
{
    if (count < *capacity)
        return array;
    uint32_t more = *capacity > 0 ? 2 * *capacity : 8;
    void *p = realloc(array, more * size);
    if (p != NULL)
        *capacity = more;
    return p;
}

static int open_segment(struct builder *b, uint32_t process, uint32_t begin)
{
    struct bl_route *r = b->route;
    struct bl_segment *s =
        grown(r->segments, r->segment_count, &b->segment_capacity, sizeof *r->segments);
    if (s == NULL)
        return -1;
    r->segments = s;
    s[r->segment_count] = (struct bl_segment){
        .process = process,
        .begin = begin,
        .stack = b->stack,
        .in = r->move_count,
        .out = BL_ROUTE_END,
        /* A process does its segments of a piece in the program's order: their partial sums share
         * the places of the stack. */
        .stage = b->latest[process] != BL_ROUTE_END ? s[b->latest[process]].stage : 0,
    };
    b->latest[process] = r->segment_count++;
    return 0;
}

/* The current segment reads what is in a place of the stack. */
static int need(struct builder *b, uint32_t level)
{
    struct bl_route *r = b->route;
    uint32_t from = b->made[level], to = r->segment_count - 1;
    struct bl_segment *s = &r->segments[to];
    if (r->segments[from].process == s->process)
        return 0;
    struct bl_move *m = grown(r->moves, r->move_count, &b->move_capacity, sizeof *r->moves);
    if (m == NULL)
        return -1;
    r->moves = m;
    m[r->move_count] = (struct bl_move){.from = from,
                                        .to = to,
                                        .level = level,
                                        .rounding = b->rounding[level],
                                        .next = r->segments[from].out};
    r->segments[from].out = r->move_count++;
    s->ins++;
    if (s->stage <= r->segments[from].stage)
        s->stage = r->segments[from].stage + 1;
    b->made[level] = to;
    return 0;
}

static int add_step(struct builder *b, const struct bl_order_step *step, uint32_t index,
                    uint32_t ranks)
{
    struct bl_route *r = b->route;
    uint32_t process = step->at / ranks;
    if ((index == 0 || r->segments[r->segment_count - 1].process != process) &&
        open_segment(b, process, index) < 0)
        return -1;
    if (step->op == BL_ORDER_SET)
        b->stack++;
    else if (step->op == BL_ORDER_MERGE && need(b, --b->stack) < 0)
        return -1;
    if (step->op != BL_ORDER_SET && need(b, b->stack - 1) < 0)
        return -1;
    if (step->op != BL_ORDER_MERGE && step->rank / ranks != process)
        r->remote = 1;
    b->made[b->stack - 1] = r->segment_count - 1;
    b->rounding[b->stack - 1] = step->rounding;
    r->segments[r->segment_count - 1].end = index + 1;
    return 0;
}

int bl_route_make(const struct bl_order *order, uint32_t program, uint32_t ranks,
                  uint32_t processes, struct bl_route *out, struct bl_error *err)
{
    uint32_t depth = bl_order_depth(order);
    *out = (struct bl_route){0};
    struct builder b = {
        .route = out,
        .made = calloc(depth, sizeof *b.made),
        .rounding = calloc(depth, sizeof *b.rounding),
        .latest = malloc(processes * sizeof *b.latest),
    };
    int rc = b.made && b.rounding && b.latest ? 0 : -1;
    if (rc == 0)
        memset(b.latest, 0xff, processes * sizeof *b.latest); /* BL_ROUTE_END */
    for (uint32_t i = 0; rc == 0 && i < bl_order_length(order, program); i++) {
        struct bl_order_step step;
        bl_order_step(order, program, i, &step);
        rc = add_step(&b, &step, i, ranks);
    }
    free(b.latest);
    free(b.rounding);
    free(b.made);
    if (rc == 0)
        return 0;
    bl_route_free(out);
    return bl_error_set(err, BL_EXIT_FAILED, "sum over processes: out of memory");
}

void bl_route_free(struct bl_route *r)
{
    free(r->segments);
    free(r->moves);
    *r = (struct bl_route){0};
}

int bl_route_same(const struct bl_order *order, const struct bl_route *routes, uint32_t a,
                  uint32_t b)
{
    const struct bl_route *x = &routes[a], *y = &routes[b];
    if (a == b)
        return 1;
    if (x->segment_count != y->segment_count || x->move_count != y->move_count ||
        x->remote != y->remote)
        return 0;
    if (x->move_count > 0 && memcmp(x->moves, y->moves, x->move_count * sizeof *x->moves) != 0)
        return 0;
    for (uint32_t i = 0; i < x->segment_count; i++)
        if (x->segments[i].process != y->segments[i].process ||
            x->segments[i].stack != y->segments[i].stack)
            return 0;
    if (!x->remote)
        return 1;
    /* Contributions from elsewhere arrive step by step: all steps must agree. */
    if (bl_order_length(order, a) != bl_order_length(order, b))
        return 0;
    for (uint32_t i = 0; i < bl_order_length(order, a); i++) {
        struct bl_order_step s, t;
        bl_order_step(order, a, i, &s);
        bl_order_step(order, b, i, &t);
        if (s.op != t.op || s.rounding != t.rounding ||
            (s.op != BL_ORDER_MERGE && s.rank != t.rank))
            return 0;
    }
    for (uint32_t i = 0; i < x->segment_count; i++)
        if (x->segments[i].begin != y->segments[i].begin)
            return 0;
    return 1;
}
