/* The sum over W ranks of an array of gradients, by the dials of each of its buffers, in one
 * process or over several. Process p of P plays the ranks [p W/P, (p+1) W/P).
 *
 *     x_r = wire( g_r )                                             each rank's buffer
 *     x_r = wire( x_r / W )           divide_first                  scaled in the wire format
 *     x_r = wire( x_r * wire(1/W) )   premultiply
 *     x_r = wire( x_r / f )           predivide; f = 1; while (W % f == 0 && W / f > f) f *= 2
 *     a   = the program of the element's piece over x_0 ... x_(W-1)  (order.h)
 *     a   = wire( a )                 what travels back to every rank
 *     g   = sum( a / W )              divide
 *     g   = sum( a / (W / f) )        predivide
 *
 * wire() and sum() round to the format of the dial: fp32, bf16, fp16; nearest even, or sum()
 * stochastically: a function of (seed, step, element, step of the program). Arithmetic is fp32.
 *
 * The bits depend on W and the buffers' orders, not on P, threads, or `keep`.
 *
 * One process: contributions come one at a time and are added to the partial sums at once. Where an
 * order visits a rank again (a ring does, all ranks but one), its contribution is kept from the
 * first visit if `keep` bytes allow for all of them, else computed again. Memory: depth (order.h)
 * arrays, whatever W. Several processes: each keeps its W/P contributions. */
#ifndef BL_COLLECTIVES_SUM_H
#define BL_COLLECTIVES_SUM_H

#include "collectives/order.h"
#include "collectives/world.h"

struct bl_sum_format {
    uint32_t wire, sum; /* dtypes */
    uint32_t average, algorithm, collective, sum_rounding;
};

/* A buffer: what one collective call sums. Buffers are disjoint and ascending; elements outside all
 * of them are left alone. */
struct bl_sum_buffer {
    uint64_t begin, end;
    struct bl_sum_format format;
    uint32_t group; /* statistics are kept per group, < BL_GROUP_COUNT */
};

/* Elements [begin, end) are of `group`: for buffers that hold tensors of several. */
struct bl_sum_range {
    uint64_t begin, end;
    uint32_t group;
};

/* The gradient of one rank, valid until the next call. `part` is a second array, summed in the same
 * orders as elements [part_begin, part_begin + part_count) of the first; NULL in steps without. */
struct bl_sum_contribution {
    const float *array; /* (elements) */
    const float *part;  /* (part_count) */
};
/* again: this rank's contribution was made before in this step. */
typedef int bl_sum_contribute_f(void *context, uint32_t rank, int again,
                                struct bl_sum_contribution *out, struct bl_error *err);

struct bl_sum_setup {
    uint32_t ranks;
    const struct bl_cluster_options *cluster; /* outlives the sum */
    const struct bl_sum_buffer *buffers;      /* copied */
    size_t buffer_count;
    const struct bl_sum_range *ranges; /* copied; ascending; none: each buffer is of its group */
    size_t range_count;
    uint64_t elements; /* of the array */
    uint64_t part_begin, part_count;
    struct bl_world *world; /* NULL: one process plays all */
    uint64_t keep;          /* bytes, one process */
    uint64_t seed;
    const uint64_t *shard; /* (P + 1) element borders: whose update it is; NULL: no shards */
    /* Threads; NULL: the calling thread. */
    void (*parallel_for)(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument);
    void *parallel_context;
};

struct bl_sum;

/* Refuses with BL_EXIT_USAGE what order.h refuses, a format that is none, premultiply with nvls, W
 * that P does not divide. Allocates everything. */
int bl_sum_make(const struct bl_sum_setup *setup, struct bl_sum **out, struct bl_error *err);
void bl_sum_free(struct bl_sum *s);
/* What bl_sum_make would allocate, refuse and (text may be NULL) bl_sum_text say of it. */
int bl_sum_describe(const struct bl_sum_setup *setup, uint64_t *bytes, struct bl_text *text,
                    struct bl_error *err);

struct bl_sum_run {
    uint64_t step; /* of stochastic rounding */
    bl_sum_contribute_f *contribute;
    void *context;
    float *out;      /* (elements) may be the contribution's array when W = 1 */
    float *part_out; /* (part_count) or NULL */
    int scatter;     /* 1: only this process's shard of `out` is wanted (and all of part_out) */
    int measure;     /* 1: fill the statistics against a fp64 sum of the g_r */
};
int bl_sum_run(struct bl_sum *s, const struct bl_sum_run *run, struct bl_error *err);

/* Everybody's shard of an array (elements) to everybody. */
int bl_sum_gather(struct bl_sum *s, float *array, struct bl_error *err);

/* Of the last measured run; the first one allocates 8 bytes an element for it. g: mean of the g_r
 * in fp64; out: the result. error = ||out - g|| / ||g||      bias = <out - g, g> / <g, g> lost  =
 * share of non-zero addends that left a partial sum unchanged; NaN over processes */
struct bl_sum_statistics {
    double error, bias, lost;
    double squares; /* ||g||^2: 0 = no such elements, the others are NaN */
};
void bl_sum_measured(const struct bl_sum *s, uint32_t group, struct bl_sum_statistics *out);
/* group BL_GROUP_COUNT: all buffers together. */

/* Orders, buffers, bytes: one line each, for the log and header.json. */
void bl_sum_text(const struct bl_sum *s, struct bl_text *out);
/* Bytes this process sends in one run, 0 for one process; passes over ranks of one run. */
uint64_t bl_sum_wire_bytes(const struct bl_sum *s);
/* Contributions computed per step / W: 1 with enough `keep`, else 1, of a ring 2, of hybrid 4. */
double bl_sum_visits(const struct bl_sum *s);

#endif
