/* Who updates which part of an arena (cluster.shard = "optimizer"), and sums over an arena of which
 * each process has only its part.
 *
 * A block is up to 4096 elements of one parameter, counted from the parameter's beginning; blocks
 * are numbered through all parameters. Borders of shards are borders of blocks. A sum over elements
 * is made of fp64 sums of blocks, gathered over the processes and added in the order of their
 * numbers: the same bits for any number of processes. */
#ifndef BL_SHARD_H
#define BL_SHARD_H

#include "collectives/world.h"
#include "model/model.h"

enum { BL_SHARD_BLOCK = 4096 };

/* In place, over all processes: data + begin[p] ... data + begin[p + 1], in bytes, is what process
 * p has; afterwards all have all. */
typedef int bl_shard_gather_f(void *context, void *data, const uint64_t *begin,
                              struct bl_error *err);

struct bl_shards {
    const uint64_t *begin; /* (processes + 1) elements of the arena; process p has [p, p + 1) */
    uint32_t process, processes;
    bl_shard_gather_f *gather;
    void *context;
};

/* begin (processes + 1): shards of about the same number of elements, padding counted; the borders
 * are the same for the same parameters and processes. Some shards are empty where there are fewer
 * blocks than processes. */
void bl_shard_cut(const struct bl_params *params, uint32_t processes, uint64_t *begin);
/* The shards of the processes of a world; `begin` outlives *out. */
void bl_shard_of(struct bl_world *world, const uint64_t *begin, struct bl_shards *out);
/* -1 when the borders do not cover the arena in ascending order, or cut a block. */
int bl_shard_check(const struct bl_shards *s, const struct bl_params *params, struct bl_error *err);

/* Blocks of all parameters; those that begin before element `at` of the arena. */
uint64_t bl_shard_blocks(const struct bl_params *params);
uint64_t bl_shard_blocks_before(const struct bl_params *params, uint64_t at);
/* Elements [*begin, *end) of parameter i that lie in [from, to) of the arena; 0 when there are
 * none. */
int bl_shard_part(const struct bl_param *param, uint64_t from, uint64_t to, uint64_t *begin,
                  uint64_t *end);

/* sums (blocks): every process fills those of its own shard, and has all of them afterwards. s =
 * NULL: there are no others. */
int bl_shard_gather(const struct bl_shards *s, const struct bl_params *params, double *sums,
                    struct bl_error *err);
/* The sum of each parameter into each (params->count), NULL = not wanted; the answer is theirs. */
double bl_shard_add(const struct bl_params *params, const double *sums, double *each);

/* L2 norm of an array (params->floats), padding left out, of which every process has at least its
 * shard: with s = NULL, and with any shards, the bits of
 *     sqrt( sum over parameters of backend->ops->sum_squares ) */
int bl_shard_norm(const struct bl_shards *s, struct bl_backend *backend,
                  const struct bl_params *params, const float *array, double *out,
                  struct bl_error *err);

#endif
