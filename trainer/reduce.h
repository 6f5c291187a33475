/* The gradient of W ranks from the gradients of one process, which plays them one after another.
 *
 *     for r = 0 ... W-1: gradient of rank r -> bl_reduce_add
 *     bl_reduce_finish
 *
 * computes, per group of tensors and by its dials, what a collective over W ranks computes when it
 * adds in ascending rank order into one accumulator (BL_ALGORITHM_ALLTOALL):
 *
 *     x_r = wire( g_r )                                             each rank's buffer
 *     x_r = wire( x_r / W )           divide_first                  scaled in the wire format
 *     x_r = wire( x_r * wire(1/W) )   premultiply
 *     x_r = wire( x_r / f )           predivide; f = 1; while (W % f == 0 && W / f > f) f *= 2
 *     a_0 = sum( x_0 )                a_r = sum( a_(r-1) + x_r )    partial sums
 *     g   = sum( a / W )              divide
 *     g   = sum( a / (W / f) )        predivide
 *
 * wire() and sum() round to the dial's format (nearest even); arithmetic is fp32. A rank's gradient
 * is that of W times its share of the global mean, so that the mean over ranks is the gradient.
 *
 * Element-wise and in fixed order: the same bits for any number of threads.
 */
#ifndef BL_REDUCE_H
#define BL_REDUCE_H

#include <ballast/precision.h>

#include "model/model.h"

struct bl_reduce {
    struct bl_backend *backend; /* its threads; NULL = the calling thread */
    const struct bl_params *params;
    const struct bl_precision *precision;
    uint64_t ranks; /* W >= 1 */
};

/* Refuses with code BL_EXIT_USAGE what this reduction does not compute: another algorithm than
 * alltoall, another format than fp32 or bf16, another sum_rounding than nearest, no ranks. */
int bl_reduce_check(const struct bl_reduce *r, struct bl_error *err);

/* sum (params->floats): what came of ranks 0 ... rank - 1; rank 0 overwrites it. May be `gradient`
 * when W = 1, and then nothing is done unless a dial rounds. Elements between parameters are left
 * alone. */
void bl_reduce_add(const struct bl_reduce *r, float *sum, const float *gradient, uint64_t rank);
/* out (params->floats) := the reduced gradient; may be sum. */
void bl_reduce_finish(const struct bl_reduce *r, const float *sum, float *out);

/* The same for one array by the dials of `group`: a part of the gradient that is kept apart. */
void bl_reduce_add_array(const struct bl_reduce *r, uint32_t group, uint64_t count, float *sum,
                         const float *gradient, uint64_t rank);
void bl_reduce_finish_array(const struct bl_reduce *r, uint32_t group, uint64_t count,
                            const float *sum, float *out);

#endif
