/* Arithmetic of a sum over ranks on short arrays: scaling, adding, rounding, packing. Element-wise:
 * an element's bits depend on nothing else. */
#ifndef BL_COLLECTIVES_SUM_MATH_H
#define BL_COLLECTIVES_SUM_MATH_H

#include <stddef.h>
#include <stdint.h>

#include "collectives/sum.h"

/* What the dials of a buffer make of a number, for W ranks. */
struct bl_sum_rule {
    uint32_t wire, sum; /* dtypes */
    int stochastic;
    float multiply, divide; /* of a contribution; 1 = not */
    float divide_last;      /* of the sum; 1 = not */
};
void bl_sum_rule_make(const struct bl_sum_format *format, uint32_t ranks, struct bl_sum_rule *out);

/* Of stochastic rounding: a number for every (seed, step, element, hop). */
struct bl_sum_random {
    uint64_t seed, step;
    uint64_t element; /* of the first number */
};

/* x := scaled, wire-rounded contribution */
void bl_sum_scale(const struct bl_sum_rule *rule, uint64_t n, const float *gradient, float *x);
/* top := round(top + x), or round(x) where `set`. hop: index of the step in its program. lost: of
 * {addends that are not 0, those that changed nothing}; NULL = not counted. x may be top for set.
 */
void bl_sum_step(const struct bl_sum_rule *rule, uint64_t n, int set, uint32_t rounding,
                 const struct bl_sum_random *random, uint32_t hop, const float *x, float *top,
                 uint64_t lost[2]);
/* a := wire(a) */
void bl_sum_close(const struct bl_sum_rule *rule, uint64_t n, float *a);
/* out := the sum's last scaling of a closed a */
void bl_sum_finish(const struct bl_sum_rule *rule, uint64_t n, const struct bl_sum_random *random,
                   const float *a, float *out);

/* Values of a format as bytes: 2 each where it has 2. */
size_t bl_sum_width(uint32_t dtype);
void bl_sum_pack(uint32_t dtype, uint64_t n, const float *x, void *packed);
void bl_sum_unpack(uint32_t dtype, uint64_t n, const void *packed, float *x);

#endif
