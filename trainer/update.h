/* The optimizer step as the host does it: rules, optimizer state, blocks, the working copy. And the
 * warmup, which is the host's part of the learning rate. */
#ifndef BL_UPDATE_H
#define BL_UPDATE_H

#include "model/model.h"
#include "plugin/host.h"
#include "shard.h"

/* Factor of the peak learning rate in update u < warmup (0-based); convention: enum below, in the
 * order of bl_schedule_options.convention. 1 for u >= warmup. */
enum bl_warmup_convention {
    BL_WARMUP_NEXT = 0,      /* (u + 1) / w: the first update moves, update w - 1 is at the peak */
    BL_WARMUP_INCLUSIVE = 1, /* (u + 1) / (w + 1) */
    BL_WARMUP_CURRENT = 2,   /* u / w: the first update has learning rate 0 */
    BL_WARMUP_TENTH = 3      /* 0.1 + 0.9 u / w */
};
double bl_warmup(int convention, uint64_t update, uint64_t warmup);

/* What the rules make of one parameter. */
struct bl_update_effect {
    double lr_scale, weight_decay;
    double epsilon; /* NaN: the optimizer's own */
    int64_t rule;   /* index of the rule that matched, -1 = none */
};

/* Fills out (params->count). Rules are fnmatch patterns on names, the first match wins; without one
 * a parameter has lr_scale 1 and `weight_decay`, norm gains and biases too. Refused with code
 * BL_EXIT_USAGE: a rule that no parameter is left for, a negative lr_scale or weight_decay, an eps
 * that is not above 0 or that `optimizer` (NULL: not checked) has no option "eps" for. */
int bl_update_effects(const struct bl_params *params, const struct bl_rule *rules, size_t count,
                      double weight_decay, const struct bl_plugin *optimizer,
                      struct bl_update_effect *out, struct bl_error *err);

struct bl_update_setup { /* everything outlives the state but the rules */
    const struct bl_params *params;
    float *weights;         /* (params->floats) master */
    const float *gradients; /* (params->floats) reduced; read in the own shard only */
    const struct bl_rule *rules;
    size_t rule_count;
    double weight_decay;
    double peak_learning_rate;            /* optimizer.lr */
    struct bl_plugin_instance *optimizer; /* created */
    struct bl_backend *backend;           /* its threads; NULL = the calling thread */
    const struct bl_precision *dials;     /* master, moments, rounding; NULL = all fp32 */
    uint64_t seed;                        /* of stochastic rounding */
    /* This process updates its shard of the weights; the caller gathers them. NULL: all of them,
     * and so it must be for an optimizer that surveys whole parameters.
     * Copied, its borders are not. */
    const struct bl_shards *shard;
    /* Working copy := rounded master; called once at the end of an apply, from the calling thread,
     * for the whole arena. NULL = there is no copy. Not called with shards: the caller refreshes
     * once it has gathered the weights. */
    void (*refresh)(void *context, uint64_t offset, uint64_t count);
    void *refresh_context;
};

struct bl_update_state;

/* Dials of a parameter's group, at what they act on:
 *   master = bf16    after the optimizer's op, which computes in fp32, the weights become bf16
 *                    numbers, by `rounding`: nearest (ties to even), or stochastic, a function of
 *                    (seed, update, parameter, element); or kahan, nearest with one state array
 *                    more, "kahan": what the last rounding took off, itself a bf16 number. The
 *                    op computes with weight + kahan. They stay in fp32 storage.
 *   moments = bf16   so do the optimizer's state arrays, always to nearest.
 * Each element is rounded on its own: the same bits for any number of threads and shards.
 *
 * Over shards prepare, and apply with measure = 1, exchange the sums of blocks (shard.h): every
 * process calls them, and they fail as the exchange does. Else they fail only where the optimizer's
 * survey does, before anything was written. */

/* Whether a group keeps what its weights lose by rounding: the state array "kahan", the last one.
 */
int bl_update_compensates(const struct bl_precision *dials);

/* State arenas are allocated here, of the own shard, zeroed, and never again. */
int bl_update_make(const struct bl_update_setup *setup, struct bl_update_state **out,
                   struct bl_error *err);
void bl_update_free(struct bl_update_state *u); /* NULL is fine */

/* The squared norm of the update as update_scale = 1 would make it, over all parameters; writes
 * nothing but the per-parameter squares. What storing will round off is not in it. Sums: fp64,
 * blocks of 4096 elements of one parameter, in index order: the same bits for any number of
 * threads and shards. */
int bl_update_prepare(struct bl_update_state *u, double learning_rate, double gradient_scale,
                      double *out, struct bl_error *err);
/* One update of every parameter, as far as it is in the own shard; the step count goes up by one.
 * measure = 1 fills the per-parameter squares with those of w_new - w_old as written, in the same
 * pass. */
int bl_update_apply(struct bl_update_state *u, double learning_rate, double gradient_scale,
                    double update_scale, int measure, struct bl_error *err);
/* The master weights of parameters [begin, end), of the own shard, as the dials store them: for
 * what no update wrote, a fresh model, or weights that were projected after an update. */
void bl_update_store(struct bl_update_state *u, uint64_t begin, uint64_t end);
/* ||update||^2 of parameter i as last prepared or measured; NaN before that. */
double bl_update_squares(const struct bl_update_state *u, uint64_t i);
/* The squares of a step without an update: all 0. */
void bl_update_skip(struct bl_update_state *u);

/* Updates made so far; the bias correction of the next one uses steps + 1. Set at a resume. */
uint64_t bl_update_steps(const struct bl_update_state *u);
void bl_update_set_steps(struct bl_update_state *u, uint64_t steps);

/* State arrays, for checkpoints and host->tensor. */
uint32_t bl_update_states(const struct bl_update_state *u);
const char *bl_update_state_name(const struct bl_update_state *u, uint32_t i);
/* What is here of state i: elements [*begin, *begin + *count) of its arena. NULL: no such state. */
float *bl_update_slice(struct bl_update_state *u, uint32_t i, uint64_t *begin, uint64_t *count);
/* The arena (params->floats), or NULL when other processes have a part of it. */
float *bl_update_array(struct bl_update_state *u, uint32_t i);
/* State i of parameter p, or NULL when not all of it is here. */
float *bl_update_tensor(struct bl_update_state *u, uint32_t i, uint64_t p);

const struct bl_update_effect *bl_update_effect(const struct bl_update_state *u, uint64_t i);

#endif
