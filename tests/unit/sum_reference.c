#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "sum_reference.h"

float reference_round(uint32_t dtype, float x)
{
    int exponent, bits = dtype == BL_BF16 ? 8 : 11, least = dtype == BL_BF16 ? -125 : -13;
    if (dtype == BL_FP32 || x == 0 || !isfinite(x))
        return x;
    frexp((double)x, &exponent);
    double unit = ldexp(1, (exponent > least ? exponent : least) - bits);
    double y = rint((double)x / unit) * unit;
    if (dtype == BL_FP16 && fabs(y) >= 65536)
        return copysignf(INFINITY, x);
    return y == 0 ? copysignf(0, x) : (float)y; /* beyond the largest bf16: to infinity */
}

static float **rows(uint32_t ranks, uint64_t elements, uint64_t key)
{
    float **row = calloc(ranks, sizeof *row);
    assert_non_null(row);
    for (uint32_t r = 0; r < ranks; r++) {
        row[r] = calloc(elements + 1, sizeof **row);
        assert_non_null(row[r]);
        for (uint64_t i = 0; i < elements; i++)
            row[r][i] = (float)bl_random_normal(key, r, i);
    }
    return row;
}

void gradients_make(struct gradients *g, uint32_t ranks, uint64_t elements, uint64_t part_begin,
                    uint64_t part_count)
{
    *g = (struct gradients){
        .ranks = ranks, .elements = elements, .part_begin = part_begin, .part_count = part_count};
    g->array = rows(ranks, elements, 1);
    g->part = rows(ranks, part_count, 2);
    g->given = calloc(elements + 1, sizeof *g->given);
    g->given_part = calloc(part_count + 1, sizeof *g->given_part);
    g->seen = calloc(ranks, 1);
    assert_true(g->given && g->given_part && g->seen);
}

void gradients_free(struct gradients *g)
{
    for (uint32_t r = 0; r < g->ranks; r++) {
        free(g->array[r]);
        free(g->part[r]);
    }
    free(g->array);
    free(g->part);
    free(g->given);
    free(g->given_part);
    free(g->seen);
}

int gradients_contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                         struct bl_error *err)
{
    struct gradients *g = context;
    (void)err;
    assert_true(rank < g->ranks);
    assert_int_equal(again, g->seen[rank]);
    g->seen[rank] = 1;
    g->calls++;
    g->again += (uint64_t)again;
    memcpy(g->given, g->array[rank], g->elements * sizeof *g->given);
    memcpy(g->given_part, g->part[rank], g->part_count * sizeof *g->given_part);
    out->array = g->given;
    out->part = g->given_part;
    return 0;
}

static float scaled(const struct bl_sum_format *f, uint32_t ranks, float factor, float g)
{
    float x = reference_round(f->wire, g);
    switch (f->average) {
    case BL_AVERAGE_DIVIDE_FIRST:
        return reference_round(f->wire, x / (float)ranks);
    case BL_AVERAGE_PREMULTIPLY:
        return reference_round(f->wire, x * reference_round(f->wire, 1.0f / (float)ranks));
    case BL_AVERAGE_PREDIVIDE:
        return reference_round(f->wire, x / factor);
    default:
        return x;
    }
}

static float rounded(const struct bl_sum_format *f, uint32_t rounding, float x)
{
    if (rounding != BL_ORDER_EXACT)
        x = reference_round(f->sum, x);
    return rounding == BL_ORDER_WIRE ? reference_round(f->wire, x) : x;
}

float reference_sum(const struct bl_sum_buffer *buffer, const struct bl_order *order,
                    uint32_t ranks, float *const *row, uint64_t row_begin, uint64_t element)
{
    const struct bl_sum_format *f = &buffer->format;
    struct bl_order_piece piece;
    float stack[64], factor = 1;
    int top = -1;
    while (fmodf((float)ranks, factor) == 0 && (float)ranks / factor > factor)
        factor *= 2;
    for (uint64_t k = 0;; k++) {
        bl_order_piece(order, k, &piece);
        if (element - buffer->begin < piece.end)
            break;
    }
    assert_true(element - buffer->begin >= piece.begin);
    for (uint32_t i = 0; i < bl_order_length(order, piece.program); i++) {
        struct bl_order_step step;
        bl_order_step(order, piece.program, i, &step);
        if (step.op == BL_ORDER_MERGE) {
            top--;
            stack[top] = stack[top] + stack[top + 1];
        } else {
            float x = scaled(f, ranks, factor, row[step.rank][element - row_begin]);
            if (step.op == BL_ORDER_SET)
                stack[++top] = x;
            else
                stack[top] = stack[top] + x;
        }
        stack[top] = rounded(f, step.rounding, stack[top]);
    }
    assert_int_equal(top, 0);
    float a = reference_round(f->wire, stack[0]);
    if (f->average == BL_AVERAGE_DIVIDE && ranks > 1)
        return reference_round(f->sum, a / (float)ranks);
    if (f->average == BL_AVERAGE_PREDIVIDE && (float)ranks != factor)
        return reference_round(f->sum, a / ((float)ranks / factor));
    return a;
}

struct bl_order *reference_order(const struct bl_sum_buffer *buffer, uint32_t ranks,
                                 const struct bl_cluster_options *cluster)
{
    struct bl_order_setup setup = {
        .ranks = ranks,
        .algorithm = buffer->format.algorithm,
        .collective = buffer->format.collective,
        .cluster = cluster,
        .elements = buffer->end - buffer->begin,
        .element_bytes = buffer->format.wire == BL_FP32 ? 4 : 2,
    };
    struct bl_error err = BL_ERROR_INIT;
    struct bl_order *order = NULL;
    if (bl_order_make(&setup, &order, &err) < 0)
        fail_msg("%s", err.text);
    return order;
}

struct bl_cluster_options plain_cluster(void)
{
    return (struct bl_cluster_options){
        .ranks_per_node = 8, .buffer = 4194304, .bucket = 26214400, .tree_pattern = 1};
}
