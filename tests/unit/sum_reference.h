/* Sums over ranks as they are defined, one element at a time, all contributions in memory; rounding
 * by arithmetic in fp64 instead of by bits. */
#ifndef TESTS_UNIT_SUM_REFERENCE_H
#define TESTS_UNIT_SUM_REFERENCE_H

#include "collectives/sum.h"

/* x, an fp32 number, to the nearest of a format. */
float reference_round(uint32_t dtype, float x);

/* Gradients of W ranks, `part` elements of them once more with other values. */
struct gradients {
    uint32_t ranks;
    uint64_t elements, part_begin, part_count;
    float **array, **part;
    float *given, *given_part; /* what a contribution points to: overwritten by the next */
    uint64_t calls, again;
    uint8_t *seen;
};
void gradients_make(struct gradients *g, uint32_t ranks, uint64_t elements, uint64_t part_begin,
                    uint64_t part_count);
void gradients_free(struct gradients *g);
/* bl_sum_contribute_f; context: struct gradients. Fails the test when `again` is not true. */
int gradients_contribute(void *context, uint32_t rank, int again, struct bl_sum_contribution *out,
                         struct bl_error *err);

/* Element `element` of a buffer's sum, of rows[rank]; the order of the buffer is given. */
float reference_sum(const struct bl_sum_buffer *buffer, const struct bl_order *order,
                    uint32_t ranks, float *const *rows, uint64_t row_begin, uint64_t element);
struct bl_order *reference_order(const struct bl_sum_buffer *buffer, uint32_t ranks,
                                 const struct bl_cluster_options *cluster);

struct bl_cluster_options plain_cluster(void);

#endif
