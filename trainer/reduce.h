/* The reduction of a model's gradients over ranks: its parameters, dials and cluster options as the
 * buffers of a sum (collectives/sum.h).
 *
 * A buffer is what a framework calls a bucket: whole tensors, one after another in the arena with
 * the padding between them, of groups with the same dials, cut before the tensor that would pass
 * cluster.bucket bytes on the wire. A larger tensor is a buffer of its own.
 *
 * A rank's gradient is that of W times its share of the global mean, so that the mean over ranks is
 * the gradient. */
#ifndef BL_REDUCE_H
#define BL_REDUCE_H

#include <ballast/precision.h>

#include "collectives/sum.h"
#include "model/model.h"

struct bl_reduce_setup {
    struct bl_backend *backend; /* its threads; NULL = the calling thread */
    const struct bl_params *params;
    const struct bl_precision *dials;
    const struct bl_cluster_options *cluster; /* outlives the sum */
    uint32_t ranks;                           /* W >= 1 */
    struct bl_world *world;                   /* NULL: one process plays all */
    uint64_t seed;
    int64_t head; /* index of the output matrix, its CE part is summed beside it; -1 = none */
    const uint64_t *shard; /* bl_shard_cut; NULL = none */
};

/* Refuses with BL_EXIT_USAGE, naming the dial, what is no format, average or rounding, and what
 * collectives/order.h and sum.h refuse. */
int bl_reduce_make(const struct bl_reduce_setup *setup, struct bl_sum **out, struct bl_error *err);
/* The same without making it: its bytes, and its text (may be NULL). */
int bl_reduce_describe(const struct bl_reduce_setup *setup, uint64_t *bytes, struct bl_text *text,
                       struct bl_error *err);

#endif
