#include "update.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/bf16.h"
#include "base/memory.h"
#include "base/random.h"

enum {
    BLOCK = BL_SHARD_BLOCK,
    BLOCKS_A_TASK = 16, /* of one call of the optimizer: 256 KiB of each array */
    STATES = 8          /* at most, by the contract of bl_optimizer_ops.states */
};

/* Of an update's rounding and of bl_update_store's: both may store the same element. */
enum { DRAW_UPDATE = 0, DRAW_STORE = 1, DRAWS = 2 };
static const uint64_t rounding_seed = 0x526f756e64696e67u; /* "Rounding": streams of their own */

double bl_warmup(int convention, uint64_t update, uint64_t warmup)
{
    if (update >= warmup)
        return 1.0;
    double u = (double)update, w = (double)warmup;
    switch (convention) {
    case BL_WARMUP_INCLUSIVE:
        return (u + 1.0) / (w + 1.0);
    case BL_WARMUP_CURRENT:
        return u / w;
    case BL_WARMUP_TENTH:
        return 0.1 + 0.9 * u / w;
    default:
        return (u + 1.0) / w;
    }
}

static int has_option(const struct bl_plugin *plugin, const char *key)
{
    for (const struct bl_option *o = plugin->options; o != NULL && o->key != NULL; o++)
        if (strcmp(o->key, key) == 0)
            return 1;
    return 0;
}

static int check_rule(const struct bl_rule *r, size_t i, const struct bl_plugin *optimizer,
                      struct bl_error *err)
{
    if (r->lr_scale < 0.0 || isinf(r->lr_scale))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "optimizer.rules[%zu] \"%s\": lr_scale = %g, wants a finite number "
                            ">= 0",
                            i, r->match, r->lr_scale);
    if (r->weight_decay < 0.0 || isinf(r->weight_decay))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "optimizer.rules[%zu] \"%s\": weight_decay = %g, wants a finite "
                            "number >= 0",
                            i, r->match, r->weight_decay);
    if (r->eps < 1e-30 || r->eps > 1.0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "optimizer.rules[%zu] \"%s\": eps = %g, wants a number from 1e-30 to 1",
                            i, r->match, r->eps);
    if (!isnan(r->eps) && optimizer != NULL && !has_option(optimizer, "eps"))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "optimizer.rules[%zu] \"%s\" sets eps, but optimizer \"%s\" has no "
                            "eps: remove it from the rule",
                            i, r->match, optimizer->name);
    return 0;
}

int bl_update_effects(const struct bl_params *params, const struct bl_rule *rules, size_t count,
                      double weight_decay, const struct bl_plugin *optimizer,
                      struct bl_update_effect *out, struct bl_error *err)
{
    for (size_t r = 0; r < count; r++)
        if (check_rule(&rules[r], r, optimizer, err) != 0)
            return -1;
    for (uint64_t i = 0; i < params->count; i++) {
        struct bl_update_effect e = {1.0, weight_decay, NAN, -1};
        for (size_t r = 0; r < count && e.rule < 0; r++)
            if (fnmatch(rules[r].match, params->items[i].name, 0) == 0)
                e.rule = (int64_t)r;
        if (e.rule >= 0) {
            const struct bl_rule *r = &rules[e.rule];
            e.lr_scale = isnan(r->lr_scale) ? 1.0 : r->lr_scale;
            e.weight_decay = isnan(r->weight_decay) ? weight_decay : r->weight_decay;
            e.epsilon = r->eps;
        }
        out[i] = e;
    }
    for (size_t r = 0; r < count; r++) {
        int used = 0, matches = 0;
        for (uint64_t i = 0; i < params->count; i++) {
            used |= out[i].rule == (int64_t)r;
            matches |= fnmatch(rules[r].match, params->items[i].name, 0) == 0;
        }
        if (!matches)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "optimizer.rules[%zu] \"%s\" matches no parameter: `ballast "
                                "check` lists their names",
                                r, rules[r].match);
        if (!used)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "optimizer.rules[%zu] \"%s\" never applies, earlier rules match "
                                "all of its parameters and the first match wins: move it up or "
                                "remove it",
                                r, rules[r].match);
    }
    return 0;
}

struct task { /* elements [begin, end) of one parameter; its first block in block_squares */
    uint64_t param, begin, end, block;
};

struct bl_update_state {
    struct bl_update_setup setup;
    struct bl_update_effect *effects; /* (params->count) */
    double *squares;                  /* (params->count) */
    double *surveyed;                 /* (params->count) answers of the optimizer's survey */
    double *block_squares;            /* (blocks of all parameters) */
    struct bl_shards shard;           /* a copy, where setup.shard is */
    uint64_t begin, end;              /* of the own shard, in the arena */
    struct task *tasks;
    uint64_t task_count, steps;
    uint32_t states;          /* of the optimizer */
    uint32_t compensated;     /* 1: one more, what Kahan's sum keeps of the weights */
    float *state[STATES + 1]; /* (end - begin) */

    /* of the running prepare, apply or store */
    double learning_rate, gradient_scale, update_scale;
    int measure;
    int ready;                       /* surveyed for the update that comes, by prepare */
    uint64_t store_begin, store_end; /* parameters */
};

/* Tasks of the own shard into u->tasks, unless that is still NULL; their number. */
static uint64_t cut(struct bl_update_state *u)
{
    const struct bl_params *params = u->setup.params;
    uint64_t n = 0, size = (uint64_t)BLOCK * BLOCKS_A_TASK;
    uint64_t block = bl_shard_blocks_before(params, u->begin);
    for (uint64_t p = 0; p < params->count; p++) {
        uint64_t begin, last;
        if (!bl_shard_part(&params->items[p], u->begin, u->end, &begin, &last))
            continue;
        for (uint64_t end; begin < last; begin = end) {
            end = last - begin < size ? last : begin + size;
            if (u->tasks != NULL)
                u->tasks[n] = (struct task){p, begin, end, block};
            n++;
            block += (end - begin + BLOCK - 1) / BLOCK;
        }
    }
    return n;
}

int bl_update_make(const struct bl_update_setup *setup, struct bl_update_state **out,
                   struct bl_error *err)
{
    const struct bl_params *params = setup->params;
    const struct bl_plugin_instance *optimizer = setup->optimizer;
    struct bl_update_state *u = bl_alloc(1, sizeof(*u));
    if (u == NULL)
        goto no_memory;
    u->setup = *setup;
    u->setup.rules = NULL;
    u->end = params->floats;
    if (setup->shard != NULL) {
        if (bl_shard_check(setup->shard, params, err) != 0)
            goto fail;
        u->shard = *setup->shard;
        u->setup.shard = &u->shard;
        u->begin = u->shard.begin[u->shard.process];
        u->end = u->shard.begin[u->shard.process + 1];
    }
    u->task_count = cut(u);
    u->effects = bl_alloc(params->count + 1, sizeof(*u->effects));
    u->squares = bl_alloc(params->count + 1, sizeof(*u->squares));
    u->surveyed = bl_alloc(params->count + 1, sizeof(*u->surveyed));
    u->block_squares = bl_alloc(bl_shard_blocks(params) + 1, sizeof(*u->block_squares));
    u->tasks = bl_alloc(u->task_count + 1, sizeof(*u->tasks));
    if (u->effects == NULL || u->squares == NULL || u->surveyed == NULL ||
        u->block_squares == NULL || u->tasks == NULL)
        goto no_memory;
    if (bl_update_effects(params, setup->rules, setup->rule_count, setup->weight_decay,
                          optimizer->plugin, u->effects, err) != 0)
        goto fail;
    u->states = optimizer->ops.optimizer.states(optimizer->self);
    if (u->states > STATES) {
        bl_error_set(err, BL_EXIT_PLUGIN,
                     "optimizer \"%s\" wants %" PRIu32 " state arrays, at most %d are allowed: "
                     "the plugin is broken",
                     optimizer->name, u->states, STATES);
        u->states = 0;
        goto fail;
    }
    u->compensated = setup->dials != NULL && bl_update_compensates(setup->dials);
    for (uint32_t i = 0; i < u->states + u->compensated; i++) {
        u->state[i] = bl_alloc(u->end - u->begin, sizeof(float));
        if (u->state[i] == NULL)
            goto no_memory;
    }
    for (uint64_t p = 0; p < params->count; p++)
        u->squares[p] = NAN;
    cut(u);
    *out = u;
    return 0;

no_memory:
    bl_error_set(err, BL_EXIT_FAILED,
                 "no memory for the optimizer's state of %" PRIu64 " parameters", params->elements);
fail:
    bl_update_free(u);
    return -1;
}

void bl_update_free(struct bl_update_state *u)
{
    if (u == NULL)
        return;
    for (uint32_t i = 0; i < STATES + 1; i++)
        bl_free(u->state[i]);
    bl_free(u->tasks);
    bl_free(u->block_squares);
    bl_free(u->squares);
    bl_free(u->surveyed);
    bl_free(u->effects);
    bl_free(u);
}

/* State i of a parameter as if all of it were here. A parameter may begin before the own shard:
 * then the address lies outside of the array, and only that of an element of the shard is inside;
 * hence no arithmetic on the pointer. */
static float *state_of(const struct bl_update_state *u, uint32_t i, const struct bl_param *p)
{
    uintptr_t base = (uintptr_t)u->state[i];
    return (float *)(base + (uintptr_t)(p->offset - u->begin) * sizeof(float));
}

/* The plugin's view of a parameter; state holds its pointers and must outlive *out. */
static void view(const struct bl_update_state *u, uint64_t p, float *state[STATES],
                 struct bl_update *out)
{
    const struct bl_param *param = &u->setup.params->items[p];
    const struct bl_update_effect *e = &u->effects[p];
    for (uint32_t i = 0; i < u->states; i++)
        state[i] = state_of(u, i, param);
    *out = (struct bl_update){
        .size = sizeof(*out),
        .step = u->steps + 1,
        .count = param->count,
        .key = param->key,
        .weight = u->setup.weights + param->offset,
        .gradient = u->setup.gradients + param->offset,
        .state = state,
        .gradient_scale = u->gradient_scale,
        .learning_rate = u->learning_rate * e->lr_scale,
        .weight_decay = e->weight_decay,
        .epsilon = e->epsilon,
        .update_scale = u->update_scale,
        .peak_learning_rate = u->setup.peak_learning_rate * e->lr_scale,
        .group = param->group,
        .ndim = param->ndim,
        .rows = param->dims[0],
        .columns = param->ndim == 2 ? param->dims[1] : 1,
        .name = param->name,
        .surveyed = u->surveyed[p],
    };
}

/* ---- stored formats --------------------------------------------------------------------------
 */

static uint32_t dial(const struct bl_update_state *u, uint64_t p, uint32_t which)
{
    const struct bl_precision *dials = u->setup.dials;
    return dials != NULL ? dials->dial[u->setup.params->items[p].group][which] : 0; /* no bf16 */
}

int bl_update_compensates(const struct bl_precision *dials)
{
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++)
        if (dials->dial[g][BL_DIAL_MASTER] == BL_BF16 &&
            dials->dial[g][BL_DIAL_ROUNDING] == BL_ROUND_KAHAN)
            return 1;
    return 0;
}

/* What parameter p's weights have lost by rounding, or NULL where nothing keeps that. */
static float *residual_of(const struct bl_update_state *u, uint64_t p)
{
    if (dial(u, p, BL_DIAL_MASTER) != BL_BF16 || dial(u, p, BL_DIAL_ROUNDING) != BL_ROUND_KAHAN)
        return NULL;
    return state_of(u, u->states, &u->setup.params->items[p]);
}

/* out := weight + residual, elements [begin, end) of an array each; out may be weight. */
static void add_residual(const float *weight, const float *residual, float *out, uint64_t begin,
                         uint64_t end)
{
    for (uint64_t i = begin; i < end; i++)
        out[i - begin] = weight[i] + residual[i];
}

static int stores_bf16(const struct bl_update_state *u, uint64_t p)
{
    return dial(u, p, BL_DIAL_MASTER) == BL_BF16 || dial(u, p, BL_DIAL_MOMENTS) == BL_BF16;
}

static void round_nearest(float *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = bl_bf16_nearest(x[i]);
}

/* One draw has the 16 bits of four neighbours: element e has those of draw e / 4. */
static void round_stochastic(float *x, uint64_t begin, uint64_t end, uint64_t seed)
{
    uint64_t bits = 0;
    for (uint64_t e = begin; e < end; e++) {
        if (e == begin || e % 4 == 0)
            bits = bl_random(seed, 0, e / 4);
        x[e] = bl_bf16_stochastic(x[e], (uint32_t)(bits >> 16 * (e % 4)) & 0xffffu);
    }
}

/* Weights [begin, end) of parameter p as its group stores them. */
static void store_weights(const struct bl_update_state *u, uint64_t p, uint64_t begin, uint64_t end,
                          uint64_t step, uint64_t draw)
{
    const struct bl_param *param = &u->setup.params->items[p];
    float *weights = u->setup.weights + param->offset;
    if (dial(u, p, BL_DIAL_MASTER) != BL_BF16)
        return;
    float *residual = residual_of(u, p);
    if (residual != NULL) { /* x - w is exact: x has 24 bits, w its upper 8 */
        for (uint64_t i = begin; i < end; i++) {
            float x = weights[i];
            weights[i] = bl_bf16_nearest(x);
            residual[i] = bl_bf16_nearest(x - weights[i]);
        }
        return;
    }
    if (dial(u, p, BL_DIAL_ROUNDING) != BL_ROUND_STOCHASTIC) {
        round_nearest(weights + begin, end - begin);
        return;
    }
    uint64_t seed = bl_random(u->setup.seed ^ rounding_seed, param->key, DRAWS * step + draw);
    round_stochastic(weights, begin, end, seed);
}

static void store_states(const struct bl_update_state *u, uint64_t p, uint64_t begin, uint64_t end)
{
    const struct bl_param *param = &u->setup.params->items[p];
    if (dial(u, p, BL_DIAL_MOMENTS) != BL_BF16)
        return;
    for (uint32_t i = 0; i < u->states; i++)
        round_nearest(state_of(u, i, param) + begin, end - begin);
}

static void store_task(void *argument, uint64_t i)
{
    const struct bl_update_state *u = argument;
    const struct task *t = &u->tasks[i];
    if (t->param < u->store_begin || t->param >= u->store_end)
        return;
    float *weights = u->setup.weights + u->setup.params->items[t->param].offset;
    float *residual = residual_of(u, t->param);
    if (residual != NULL)
        add_residual(weights, residual, weights + t->begin, t->begin, t->end);
    store_weights(u, t->param, t->begin, t->end, u->steps, DRAW_STORE);
}

/* ---- prepare and apply ------------------------------------------------------------------------
 */

static void prepare_task(void *argument, uint64_t i)
{
    struct bl_update_state *u = argument;
    const struct task *t = &u->tasks[i];
    const struct bl_plugin_instance *optimizer = u->setup.optimizer;
    float *state[STATES] = {NULL}, whole[BLOCK];
    struct bl_update v;
    view(u, t->param, state, &v);
    uint64_t block = t->block;
    const float *stored = v.weight, *residual = residual_of(u, t->param);
    for (uint64_t at = t->begin; at < t->end; at += BLOCK) {
        uint64_t end = t->end - at < BLOCK ? t->end : at + BLOCK;
        if (residual != NULL) {
            add_residual(stored, residual, whole, at, end);
            v.weight = (float *)((uintptr_t)whole - (uintptr_t)at * sizeof(float)); /* state_of */
        }
        u->block_squares[block++] = optimizer->ops.optimizer.prepare(optimizer->self, &v, at, end);
    }
}

static void apply_task(void *argument, uint64_t i)
{
    struct bl_update_state *u = argument;
    const struct task *t = &u->tasks[i];
    const struct bl_plugin_instance *optimizer = u->setup.optimizer;
    float *state[STATES] = {NULL}, old[BLOCK];
    struct bl_update v;
    view(u, t->param, state, &v);
    /* Measuring and rounding want a block while it is in the cache; else the task is one call. */
    const float *residual = residual_of(u, t->param);
    int whole = !u->measure && !stores_bf16(u, t->param);
    uint64_t block = t->block, piece = whole ? t->end - t->begin : BLOCK;
    for (uint64_t at = t->begin; at < t->end; at += piece) {
        uint64_t n = t->end - at < piece ? t->end - at : piece;
        const float *now = v.weight + at;
        double sum = 0.0;
        if (u->measure)
            memcpy(old, now, n * sizeof(float));
        if (residual != NULL)
            add_residual(v.weight, residual, v.weight + at, at, at + n);
        optimizer->ops.optimizer.apply(optimizer->self, &v, at, at + n);
        store_weights(u, t->param, at, at + n, v.step, DRAW_UPDATE);
        store_states(u, t->param, at, at + n);
        if (!u->measure)
            continue;
        for (uint64_t k = 0; k < n; k++) {
            double d = (double)now[k] - (double)old[k];
            sum += d * d;
        }
        u->block_squares[block++] = sum;
    }
}

static void run(struct bl_update_state *u, void (*body)(void *, uint64_t))
{
    struct bl_backend *b = u->setup.backend;
    if (b != NULL)
        b->ops->parallel_for(b, u->task_count, body, u);
    else
        for (uint64_t i = 0; i < u->task_count; i++)
            body(u, i);
}

/* The optimizer's survey of all parameters, once an update. */
static int survey(struct bl_update_state *u, struct bl_error *err)
{
    struct bl_plugin_instance *optimizer = u->setup.optimizer;
    if (optimizer->ops.optimizer.survey == NULL || u->ready)
        return 0;
    for (uint64_t p = 0; p < u->setup.params->count; p++) {
        float *state[STATES] = {NULL};
        struct bl_update v;
        double answer = 0;
        view(u, p, state, &v);
        v.surveyed = 0; /* not the last update's: a resumed run has none */
        if (optimizer->ops.optimizer.survey(optimizer->self, &optimizer->host, &v, &answer, err) !=
            0)
            return bl_error_prefix(err, "optimizer %s", optimizer->name);
        u->surveyed[p] = answer;
    }
    u->ready = 1;
    return 0;
}

/* The squares of every parameter from the blocks of all processes; the answer is their sum. */
static int add_blocks(struct bl_update_state *u, double *total, struct bl_error *err)
{
    const struct bl_params *params = u->setup.params;
    if (bl_shard_gather(u->setup.shard, params, u->block_squares, err) != 0)
        return bl_error_prefix(err, "squares of the update");
    *total = bl_shard_add(params, u->block_squares, u->squares);
    return 0;
}

int bl_update_prepare(struct bl_update_state *u, double learning_rate, double gradient_scale,
                      double *out, struct bl_error *err)
{
    u->learning_rate = learning_rate;
    u->gradient_scale = gradient_scale;
    u->update_scale = 1.0;
    u->ready = 0;
    if (survey(u, err) != 0)
        return -1;
    run(u, prepare_task);
    return add_blocks(u, out, err);
}

int bl_update_apply(struct bl_update_state *u, double learning_rate, double gradient_scale,
                    double update_scale, int measure, struct bl_error *err)
{
    double total;
    u->learning_rate = learning_rate;
    u->gradient_scale = gradient_scale;
    u->update_scale = update_scale;
    u->measure = measure;
    if (survey(u, err) != 0)
        return -1;
    u->ready = 0;
    run(u, apply_task);
    u->steps++;
    if (measure && add_blocks(u, &total, err) != 0)
        return -1;
    if (u->setup.refresh != NULL && u->setup.shard == NULL)
        u->setup.refresh(u->setup.refresh_context, 0, u->setup.params->floats);
    return 0;
}

void bl_update_store(struct bl_update_state *u, uint64_t begin, uint64_t end)
{
    u->store_begin = begin;
    u->store_end = end;
    run(u, store_task);
}

double bl_update_squares(const struct bl_update_state *u, uint64_t i)
{
    return i < u->setup.params->count ? u->squares[i] : NAN;
}

void bl_update_skip(struct bl_update_state *u)
{
    u->ready = 0;
    for (uint64_t p = 0; p < u->setup.params->count; p++)
        u->squares[p] = 0.0;
}

uint64_t bl_update_steps(const struct bl_update_state *u)
{
    return u->steps;
}

void bl_update_set_steps(struct bl_update_state *u, uint64_t steps)
{
    u->steps = steps;
}

uint32_t bl_update_states(const struct bl_update_state *u)
{
    return u->states + u->compensated;
}

const char *bl_update_state_name(const struct bl_update_state *u, uint32_t i)
{
    const struct bl_plugin_instance *optimizer = u->setup.optimizer;
    if (i == u->states && u->compensated)
        return "kahan";
    return i < u->states ? optimizer->ops.optimizer.state_name(optimizer->self, i) : NULL;
}

float *bl_update_slice(struct bl_update_state *u, uint32_t i, uint64_t *begin, uint64_t *count)
{
    if (i >= bl_update_states(u))
        return NULL;
    *begin = u->begin;
    *count = u->end - u->begin;
    return u->state[i];
}

float *bl_update_array(struct bl_update_state *u, uint32_t i)
{
    int whole = u->end - u->begin == u->setup.params->floats;
    return i < bl_update_states(u) && whole ? u->state[i] : NULL;
}

float *bl_update_tensor(struct bl_update_state *u, uint32_t i, uint64_t p)
{
    const struct bl_param *param = &u->setup.params->items[p];
    int here = param->offset >= u->begin && param->offset + param->count <= u->end;
    return i < bl_update_states(u) && here ? u->state[i] + (param->offset - u->begin) : NULL;
}

const struct bl_update_effect *bl_update_effect(const struct bl_update_state *u, uint64_t i)
{
    return &u->effects[i];
}
