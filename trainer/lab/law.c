#include <math.h>
#include <stdlib.h>

#include "lab/lab.h"

/* Programs of a ring and of a hybrid are rotations of each other: where there are more than these,
 * one stands for all. */
enum { MOST_PROGRAMS = 4 };

struct law {
    double m2, s2;           /* squared mean, variance of a term */
    double wire, sum, exact; /* c^2 of a rounding to the format */
    int coarser;             /* 1: a value of the sum's format need not be one of the wire's */
};

static int digits(uint32_t dtype)
{
    return dtype == BL_BF16 ? 8 : dtype == BL_FP16 ? 11 : 24;
}

static double square_of_c(uint32_t dtype)
{
    return 1.67e-3 * 1.67e-3 * ldexp(1.0, -2 * (digits(dtype) - 8));
}

static double expected(const struct law *l, double k)
{
    return k * k * l->m2 + k * l->s2;
}

/* Sum over the roundings of a program of c^2 E(k), with the one of what travels back. */
static int program(const struct bl_order *o, uint32_t p, uint32_t ranks, const struct law *l,
                   double *out, struct bl_error *err)
{
    uint32_t length = bl_order_length(o, p), top = 0, last = BL_ORDER_EXACT;
    double total = 0, *stack = calloc((size_t)bl_order_depth(o) + 1, sizeof *stack);
    if (stack == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (uint32_t i = 0; i < length; i++) {
        struct bl_order_step step;
        bl_order_step(o, p, i, &step);
        if (step.op == BL_ORDER_SET) {
            stack[top++] = 1;
            last = BL_ORDER_WIRE; /* a term has been rounded already */
            continue;
        }
        double added = step.op == BL_ORDER_ADD ? 1 : stack[--top];
        double k = stack[top - 1] += added;
        double square = step.rounding == BL_ORDER_EXACT ? l->exact : l->sum;
        if (step.rounding == BL_ORDER_WIRE && l->coarser)
            square += l->wire;
        total += square * expected(l, k);
        last = step.rounding;
    }
    if (last == BL_ORDER_EXACT || (last == BL_ORDER_SUM && l->coarser))
        total += l->wire * expected(l, ranks);
    free(stack);
    *out = total;
    return 0;
}

/* The mean over all elements. */
static int programs(const struct bl_order *o, uint64_t elements, uint32_t ranks,
                    const struct law *l, double *out, struct bl_error *err)
{
    double each[MOST_PROGRAMS], total = 0;
    uint32_t n = bl_order_programs(o);
    if (n > MOST_PROGRAMS)
        return program(o, 0, ranks, l, out, err);
    for (uint32_t p = 0; p < n; p++)
        if (program(o, p, ranks, l, &each[p], err) != 0)
            return -1;
    for (uint64_t i = 0; i < bl_order_pieces(o); i++) {
        struct bl_order_piece piece;
        bl_order_piece(o, i, &piece);
        total += each[piece.program] * (double)(piece.end - piece.begin) / (double)elements;
    }
    *out = total;
    return 0;
}

/* 1/W as premultiply has it, against 1/W. */
static double scale_error(uint32_t ranks, uint32_t dtype)
{
    int exponent, d = digits(dtype);
    double part = frexp((double)(1.0f / (float)ranks), &exponent);
    return ldexp(rint(ldexp(part, d)), exponent - d) * ranks - 1;
}

int bl_lab_law(const struct bl_order *o, uint64_t elements, uint32_t ranks,
               const struct bl_sum_format *f, const struct bl_lab_values *v, struct bl_lab_law *out,
               struct bl_error *err)
{
    int power = (ranks & (ranks - 1)) == 0;
    int before = f->average == BL_AVERAGE_DIVIDE_FIRST || f->average == BL_AVERAGE_PREMULTIPLY;
    int after = f->average == BL_AVERAGE_DIVIDE || f->average == BL_AVERAGE_PREDIVIDE;
    struct law l = {.s2 = 1,
                    .wire = f->wire == BL_FP32 ? 0 : square_of_c(f->wire),
                    .sum = square_of_c(f->sum),
                    .exact = square_of_c(BL_FP32),
                    .coarser = digits(f->wire) < digits(f->sum)};
    struct bl_lab_law law = {.error = NAN};
    double adds = 0, terms = l.wire, last = 0;
    if (f->sum_rounding == BL_ROUND_STOCHASTIC && f->sum != BL_FP32)
        l.sum *= 2;
    if (before && !power)
        terms += f->wire == BL_FP32 ? l.exact : l.wire;
    if (after && !power)
        last = l.sum;
    if (programs(o, elements, ranks, &l, &adds, err) != 0)
        return -1;
    uint32_t coarse = digits(f->wire) < digits(f->sum) ? f->wire : f->sum;
    law.k = adds / ranks / square_of_c(coarse);
    if (f->average == BL_AVERAGE_PREMULTIPLY)
        law.scale = scale_error(ranks, f->wire);
    double mean, variance;
    if (bl_lab_moments(v, &mean, &variance) == 0) {
        l.m2 = mean * mean;
        l.s2 = variance;
        if (programs(o, elements, ranks, &l, &adds, err) != 0)
            return -1;
        law.error = sqrt((adds + terms * ranks * expected(&l, 1)) / expected(&l, ranks) + last +
                         law.scale * law.scale);
    }
    *out = law;
    return 0;
}
