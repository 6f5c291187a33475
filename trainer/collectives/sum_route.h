/* Which process does which steps of a program, and what travels between them. Every process works
 * this out for all of them. */
#ifndef BL_COLLECTIVES_SUM_ROUTE_H
#define BL_COLLECTIVES_SUM_ROUTE_H

#include "collectives/order.h"

#define BL_ROUTE_END UINT32_MAX

/* Steps [begin, end) in a row that one process does. */
struct bl_segment {
    uint32_t process, begin, end;
    uint32_t stack;   /* partial sums before the first step */
    uint32_t stage;   /* segments that lie before it, on the longest way, at other processes */
    uint32_t in, ins; /* moves[in ... in + ins - 1] arrive before its first step */
    uint32_t out;     /* first move that leaves after its last step, or BL_ROUTE_END */
};

/* A partial sum that travels. */
struct bl_move {
    uint32_t from, to; /* segments */
    uint32_t level;    /* place in the stack */
    uint32_t rounding; /* of the step that made it */
    uint32_t next;     /* of the same segment */
};

struct bl_route {
    struct bl_segment *segments; /* NULL: no piece has the program */
    struct bl_move *moves;
    uint32_t segment_count, move_count;
    int remote; /* some contribution is added by another process than its own */
};

/* ranks: W/P, of each process. */
int bl_route_make(const struct bl_order *order, uint32_t program, uint32_t ranks,
                  uint32_t processes, struct bl_route *out, struct bl_error *err);
void bl_route_free(struct bl_route *r);
/* Pieces of both programs can share messages: same processes, moves, and contributions to them. */
int bl_route_same(const struct bl_order *order, const struct bl_route *routes, uint32_t a,
                  uint32_t b);

#endif
