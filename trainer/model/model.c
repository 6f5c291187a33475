#include "model/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"

/* ---- memory -----------------------------------------------------------------------------------
 */

void *bl_model_allocate(struct bl_model *m, uint64_t n, uint64_t size, const char *what,
                        struct bl_error *err)
{
    uint64_t bytes;
    void *p = NULL;

    if (!__builtin_mul_overflow(n, size, &bytes))
        p = m->backend->ops->allocate(m->backend, bytes > 0 ? bytes : 1);
    if (p == NULL) {
        char part[32], all[32], unused[32];
        bl_error_set(err, BL_EXIT_FAILED,
                     "no memory for the %s (%sB): the model needs %sB, %sB are free here", what,
                     bl_human((double)n * (double)size, part), bl_human((double)m->needs, all),
                     bl_human((double)bl_memory_unused(), unused));
        return NULL;
    }
    m->memory += bytes;
    return p;
}

/* Hands out pieces of one arena. With base NULL it only counts. */
struct plan {
    char *base;
    uint64_t used;
    int overflow;
};

static void *take(struct plan *p, uint64_t rows, uint64_t columns, uint64_t size)
{
    uint64_t at = p->used, bytes;

    if (__builtin_mul_overflow(rows, columns, &bytes) ||
        __builtin_mul_overflow(bytes, size, &bytes) || __builtin_add_overflow(bytes, 63, &bytes) ||
        __builtin_add_overflow(at, bytes & ~(uint64_t)63, &p->used)) {
        p->overflow = 1;
        return NULL;
    }
    return p->base != NULL ? p->base + at : NULL;
}

static void take_statistics(const struct bl_model *m, struct plan *p, struct bl_gain *g, uint64_t n)
{
    g->mean = m->options.norm == BL_LAYERNORM ? take(p, n, 1, sizeof(float)) : NULL;
    g->rstd = take(p, n, 1, sizeof(float));
}

/* Everything that backward reads is kept; nothing else is. */
static void lay_out(struct bl_model *m, struct plan *p)
{
    const struct bl_model_options *o = &m->options;
    const struct bl_backend_ops *ops = m->backend->ops;
    uint64_t t = (uint64_t)o->context, r = m->micro * t, c = (uint64_t)o->width;
    uint64_t d = (uint64_t)o->head_dim, h = (uint64_t)o->heads, k = (uint64_t)o->kv_heads;
    uint64_t f = (uint64_t)o->mlp_width;
    uint64_t size = ops->element_size(m->backend, m->act);
    uint64_t size_out = ops->element_size(m->backend, m->act_head);
    uint64_t size_att = ops->element_size(m->backend, m->act_attention);
    uint64_t size_dx = size > size_out ? size : size_out;
    int qk = o->qk_norm != BL_QK_OFF, full = o->qk_norm == BL_QK_FULL;
    int place = o->norm_placement;

    m->tokens = take(p, r, 1, sizeof(int32_t));
    m->targets = take(p, r, 1, sizeof(int32_t));
    m->embedded = o->embedding_norm ? take(p, r, c, size) : NULL;
    if (o->embedding_norm)
        take_statistics(m, p, &m->embed_norm, r);
    m->x0 = take(p, r, c, size);

    void *x = m->x0;
    for (int64_t i = 0; i < o->layers; i++) {
        struct bl_layer *l = &m->layers[i];
        for (int s = 0; s < 2; s++) {
            struct bl_branch *b = &l->branch[s];
            int last = place == BL_POST && s == 1 && i == o->layers - 1;
            b->x = x;
            b->act_y = last ? m->act_head : m->act;
            b->n = place == BL_PRE || place == BL_PERI ? take(p, r, c, size) : NULL;
            b->f = place != BL_PRE ? take(p, r, c, size) : NULL;
            b->y = take(p, r, c, last ? size_out : size);
            take_statistics(m, p, &b->norm, r);
            if (place == BL_PERI)
                take_statistics(m, p, &b->post_norm, r);
            x = b->y;
        }
        l->qkv_x = take(p, r, (h + 2 * k) * d, size);
        l->qk = qk ? take(p, r, (h + k) * d, size) : NULL;
        if (qk) {
            take_statistics(m, p, &l->q_norm, full ? r : r * h);
            take_statistics(m, p, &l->k_norm, full ? r : r * k);
        }
        l->att = take(p, r, h * d, size_att);
        l->lse = take(p, r, h, sizeof(float));
        l->up_x = take(p, r, o->mlp == BL_SWIGLU ? 2 * f : f, size);
        l->act = take(p, r, f, size);
    }
    m->out = x;
    if (place != BL_POST) {
        m->out = take(p, r, c, size_out);
        take_statistics(m, p, &m->final_norm, r);
    }
    m->dx = take(p, r, c, size_dx);
    m->dn = place != BL_POST ? take(p, r, c, size) : NULL;
    m->dwide = take(p, r, f > h * d ? f : h * d, size);
    m->dqkv = take(p, r, (h + 2 * k) * d, size);
    m->dqk = qk ? take(p, r, (h + k) * d, size) : NULL;
}

/* ---- parameters -------------------------------------------------------------------------------
 */

static uint64_t offset_of(const struct bl_params *p, int64_t layer, const char *name)
{
    char full[64];
    int64_t i;

    if (layer >= 0)
        snprintf(full, sizeof(full), "layers.%lld.%s", (long long)layer, name);
    else
        snprintf(full, sizeof(full), "%s", name);
    i = bl_params_find(p, full);
    return i < 0 ? BL_NONE : p->items[i].offset;
}

static void find_gain(const struct bl_params *p, int64_t layer, const char *weight,
                      const char *bias, struct bl_gain *g)
{
    g->weight = offset_of(p, layer, weight);
    g->bias = bias != NULL ? offset_of(p, layer, bias) : BL_NONE;
}

static void find_matrix(const struct bl_params *p, int64_t layer, const char *weight,
                        const char *bias, struct bl_matrix *w)
{
    w->weight = offset_of(p, layer, weight);
    w->bias = offset_of(p, layer, bias);
}

static void find_parameters(struct bl_model *m)
{
    const struct bl_params *p = &m->params;
    int gated = m->options.mlp == BL_SWIGLU;

    m->embed = offset_of(p, -1, "embed.weight");
    m->position = offset_of(p, -1, "position.weight");
    m->head_weight = m->options.tied ? m->embed : offset_of(p, -1, "head.weight");
    find_gain(p, -1, "embed_norm.weight", "embed_norm.bias", &m->embed_norm);
    find_gain(p, -1, "final_norm.weight", "final_norm.bias", &m->final_norm);
    for (int64_t i = 0; i < m->options.layers; i++) {
        struct bl_layer *l = &m->layers[i];
        struct bl_branch *a = &l->branch[0], *b = &l->branch[1];
        find_gain(p, i, "norm1.weight", "norm1.bias", &a->norm);
        find_gain(p, i, "norm2.weight", "norm2.bias", &b->norm);
        find_gain(p, i, "post_norm1.weight", "post_norm1.bias", &a->post_norm);
        find_gain(p, i, "post_norm2.weight", "post_norm2.bias", &b->post_norm);
        find_gain(p, i, "attn.q_norm.weight", NULL, &l->q_norm);
        find_gain(p, i, "attn.k_norm.weight", NULL, &l->k_norm);
        find_matrix(p, i, "attn.q.weight", "attn.q.bias", &l->qkv);
        find_matrix(p, i, "attn.o.weight", "attn.o.bias", &l->o);
        find_matrix(p, i, gated ? "mlp.gate.weight" : "mlp.up.weight",
                    gated ? "mlp.gate.bias" : "mlp.up.bias", &l->up);
        find_matrix(p, i, "mlp.down.weight", "mlp.down.bias", &l->down);
    }
}

/* ---- precision --------------------------------------------------------------------------------
 */

static int read_dial(const struct bl_precision *table, uint32_t group, uint32_t dial,
                     const char *name, uint32_t *out, struct bl_error *err)
{
    uint32_t value = table != NULL ? table->dial[group][dial] : BL_FP32;

    if (value != BL_FP32 && value != BL_BF16)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "precision: %s of group %u is dtype %u; the model knows fp32 and bf16",
                            name, group, value);
    *out = value;
    return 0;
}

/* With tied weights the one table is the embedding's group: its dials hold for both uses. */
static int read_dials(struct bl_model *m, const struct bl_precision *table, struct bl_error *err)
{
    uint32_t head = m->options.tied ? BL_GROUP_EMBEDDING : BL_GROUP_HEAD;

    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++)
        if (read_dial(table, g, BL_DIAL_COMPUTE, "compute", &m->compute[g], err) != 0 ||
            read_dial(table, g, BL_DIAL_GRADIENT, "gradient", &m->gradient[g], err) != 0 ||
            read_dial(table, g, BL_DIAL_ACCUMULATE, "accumulate", &m->accumulate[g], err) != 0)
            return -1;
    if (read_dial(table, BL_GROUP_HEAD, BL_DIAL_LOGITS, "logits", &m->logits, err) != 0 ||
        read_dial(table, BL_GROUP_HEAD, BL_DIAL_DLOGITS, "dlogits", &m->dlogits, err) != 0 ||
        read_dial(table, BL_GROUP_MATRIX, BL_DIAL_ATTENTION_OUTPUT, "attention_output",
                  &m->act_attention, err) != 0 ||
        read_dial(table, BL_GROUP_NORM, BL_DIAL_ARITHMETIC, "arithmetic", &m->norm_arithmetic,
                  err) != 0)
        return -1;
    m->act = m->compute[BL_GROUP_MATRIX];
    m->act_head = m->compute[head];
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++)
        m->rounds_gradients |= m->gradient[g] != BL_FP32 || m->accumulate[g] != BL_FP32;
    return 0;
}

static int copies_weights(const struct bl_model *m)
{
    int copies = 0;

    for (uint64_t i = 0; i < m->params.count; i++)
        copies |= m->compute[m->params.items[i].group] != BL_FP32;
    return copies;
}

/* ---- make and free ----------------------------------------------------------------------------
 */

/* Everything about a model but its memory. */
static int prepare(struct bl_backend *backend, const struct bl_model_options *options,
                   const struct bl_precision *precision, uint64_t micro, struct bl_model **out,
                   struct bl_error *err)
{
    struct bl_model *m;
    uint64_t rows;

    if (micro < 1)
        return bl_error_set(err, BL_EXIT_USAGE, "batch.micro = 0: must be at least 1");
    m = calloc(1, sizeof(*m));
    if (m == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the model");
    m->backend = backend;
    m->options = *options;
    m->options.preset = NULL; /* the caller's text */
    m->micro = micro;
    if (bl_params_make(options, &m->params, err) != 0 || read_dials(m, precision, err) != 0)
        goto fail;
    if (__builtin_mul_overflow(micro, (uint64_t)options->context, &rows) || rows > INT32_MAX) {
        bl_error_set(err, BL_EXIT_USAGE,
                     "batch.micro = %llu sequences of model.context = %lld tokens are more than "
                     "2^31 - 1 rows; make batch.micro smaller",
                     (unsigned long long)micro, (long long)options->context);
        goto fail;
    }
    m->layers = calloc((size_t)options->layers, sizeof(*m->layers));
    if (m->layers == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for the model");
        goto fail;
    }
    find_parameters(m);
    *out = m;
    return 0;

fail:
    bl_model_free(m);
    return -1;
}

static int count(struct bl_model *m, const struct bl_head_hooks *hooks, int split_head,
                 struct bl_model_bytes *out, struct bl_error *err)
{
    struct plan plan = {0};
    uint64_t arena = m->params.floats * sizeof(float), part;

    lay_out(m, &plan);
    struct bl_model_bytes b = {
        .weights = arena,
        .working = copies_weights(m) ? arena : 0,
        .gradients = m->rounds_gradients ? 2 * arena : arena,
        .activations = plan.used,
        .head = bl_head_bytes(m, hooks, split_head),
    };
    part = b.weights + b.working + b.gradients + b.head; /* far from 2^64: see LIMIT_FLOATS */
    if (plan.overflow || __builtin_add_overflow(part, b.activations, &b.total))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "the activations of batch.micro = %llu sequences exceed 2^64 bytes",
                            (unsigned long long)m->micro);
    *out = b;
    return 0;
}

int bl_model_size(struct bl_backend *backend, const struct bl_model_options *options,
                  const struct bl_precision *precision, uint64_t micro,
                  const struct bl_head_hooks *hooks, int split_head, struct bl_model_bytes *out,
                  struct bl_error *err)
{
    struct bl_model *m;

    if (prepare(backend, options, precision, micro, &m, err) != 0)
        return -1;
    int rc = count(m, hooks, split_head, out, err);
    bl_model_free(m);
    return rc;
}

int bl_model_make(struct bl_backend *backend, const struct bl_model_options *options,
                  const struct bl_precision *precision, uint64_t micro, struct bl_model **out,
                  struct bl_error *err)
{
    struct bl_model *m;
    struct bl_model_bytes bytes = {0};

    if (prepare(backend, options, precision, micro, &m, err) != 0)
        return -1;
    if (count(m, NULL, 0, &bytes, err) != 0)
        goto fail;
    m->needs = bytes.total;
    uint64_t n = m->params.floats;
    if ((m->master = bl_model_allocate(m, n, sizeof(float), "weights", err)) == NULL)
        goto fail;
    m->working = m->master;
    if (copies_weights(m) &&
        (m->working = bl_model_allocate(m, n, sizeof(float), "working weights", err)) == NULL)
        goto fail;
    if ((m->gradients = bl_model_allocate(m, n, sizeof(float), "gradients", err)) == NULL)
        goto fail;
    if (m->rounds_gradients &&
        (m->micro_gradients = bl_model_allocate(m, n, sizeof(float), "gradients", err)) == NULL)
        goto fail;
    if ((m->arena = bl_model_allocate(m, bytes.activations, 1, "activations", err)) == NULL) {
        bl_error_set(err, err->code, "%s; a smaller batch.micro needs less", err->text);
        goto fail;
    }
    struct plan plan = {.base = m->arena};
    lay_out(m, &plan);
    if (bl_head_make(m, err) != 0)
        goto fail;
    *out = m;
    return 0;

fail:
    bl_model_free(m);
    return -1;
}

void bl_model_free(struct bl_model *m)
{
    if (m == NULL)
        return;
    const struct bl_backend_ops *ops = m->backend->ops;
    bl_head_free(m);
    ops->release(m->backend, m->arena);
    ops->release(m->backend, m->micro_gradients);
    ops->release(m->backend, m->gradients);
    if (m->working != m->master)
        ops->release(m->backend, m->working);
    ops->release(m->backend, m->master);
    free(m->layers);
    bl_params_free(&m->params);
    free(m);
}

const struct bl_params *bl_model_params(const struct bl_model *m)
{
    return &m->params;
}

float *bl_model_weights(struct bl_model *m)
{
    return m->master;
}

float *bl_model_working(struct bl_model *m)
{
    return m->working;
}

float *bl_model_gradients(struct bl_model *m)
{
    return m->gradients;
}

float *bl_model_ce_gradient(struct bl_model *m)
{
    return m->head.ce;
}

uint64_t bl_model_memory(const struct bl_model *m)
{
    return m->memory;
}

void bl_model_refresh(struct bl_model *m, uint64_t offset, uint64_t count)
{
    uint64_t end = offset + count;

    if (m->working == m->master)
        return;
    for (uint64_t i = 0; i < m->params.count; i++) {
        const struct bl_param *p = &m->params.items[i];
        uint64_t from = p->offset > offset ? p->offset : offset;
        uint64_t to = p->offset + p->count < end ? p->offset + p->count : end;
        if (from < to)
            m->backend->ops->round(m->backend, to - from, m->master + from, m->working + from,
                                   m->compute[p->group]);
    }
}

/* ---- passes -----------------------------------------------------------------------------------
 */

static int check_pass(const struct bl_model *m, const struct bl_pass *pass, struct bl_error *err)
{
    uint64_t t = (uint64_t)m->options.context, n;
    const struct bl_rows *r = pass->rows;

    if (pass->sequences < 1 || pass->sequences > m->micro)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "a pass of %llu sequences; the model was made for 1 to %llu",
                            (unsigned long long)pass->sequences, (unsigned long long)m->micro);
    n = pass->sequences * t;
    if (r == NULL || r->count > r->capacity || r->capacity - r->count < n)
        return bl_error_set(err, BL_EXIT_FAILED, "no room for the statistics of %llu rows",
                            (unsigned long long)n);
    if (pass->hooks != NULL && (pass->hooks->needs & BL_NEED_PZ) && r->pz == NULL)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "a regularizer needs the statistic pz and the rows have no array for "
                            "it");
    for (uint64_t i = 0; i < n; i++) {
        int32_t token = pass->tokens[i], target = pass->targets[i];
        if (token < 0 || (uint64_t)token >= m->params.vocab || target < -1 ||
            (target >= 0 && (uint64_t)target >= m->params.vocab))
            return bl_error_set(err, BL_EXIT_DATA,
                                "token %d with target %d at position %llu of sequence %llu of the "
                                "micro-batch: ids must be below model.vocab = %llu",
                                token, target, (unsigned long long)(i % t),
                                (unsigned long long)(i / t), (unsigned long long)m->params.vocab);
    }
    return 0;
}

static void forward(struct bl_model *m, const struct bl_pass *pass)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    void *x = m->embedded != NULL ? m->embedded : m->x0;

    m->sequences = pass->sequences;
    m->rows = pass->sequences * (uint64_t)m->options.context;
    ops->upload(m->backend, m->tokens, pass->tokens, m->rows * sizeof(int32_t));
    ops->upload(m->backend, m->targets, pass->targets, m->rows * sizeof(int32_t));
    ops->embedding(m->backend, &(struct bl_embedding){.rows = m->rows,
                                                      .time = (uint64_t)m->options.context,
                                                      .width = (uint64_t)m->options.width,
                                                      .act = m->act,
                                                      .scale = (float)m->options.embedding_scale,
                                                      .tokens = m->tokens,
                                                      .embed = bl_model_w(m, m->embed),
                                                      .position = bl_model_w(m, m->position),
                                                      .x = x});
    if (m->embedded != NULL)
        bl_model_norm(m, &m->embed_norm, m->embedded, m->x0, m->act);
    for (int64_t i = 0; i < m->options.layers; i++) {
        bl_branch_forward(m, &m->layers[i], 0);
        bl_branch_forward(m, &m->layers[i], 1);
    }
    if (m->options.norm_placement != BL_POST)
        bl_model_norm(m, &m->final_norm, m->layers[m->options.layers - 1].branch[1].y, m->out,
                      m->act_head);
}

/* From dL/d(what the head reads) in m->dx to the gradients of every parameter before the head. */
static void backward(struct bl_model *m)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    uint64_t c = (uint64_t)m->options.width, t = (uint64_t)m->options.context;

    if (m->options.norm_placement != BL_POST)
        bl_model_norm_grad(m, &m->final_norm, m->dx, m->layers[m->options.layers - 1].branch[1].y,
                           m->dx, 0);
    for (int64_t i = m->options.layers; i-- > 0;) {
        bl_branch_backward(m, &m->layers[i], 1);
        bl_branch_backward(m, &m->layers[i], 0);
    }
    if (m->embedded != NULL)
        bl_model_norm_grad(m, &m->embed_norm, m->dx, m->embedded, m->dx, 0);
    if (!m->acc) { /* a tied table holds the head's part already */
        if (!m->options.tied)
            ops->zero(m->backend, bl_model_g(m, m->embed),
                      m->params.padded_vocab * c * sizeof(float));
        if (m->position != BL_NONE)
            ops->zero(m->backend, bl_model_g(m, m->position), t * c * sizeof(float));
    }
    ops->embedding_grad(m->backend,
                        &(struct bl_embedding_grad){.rows = m->rows,
                                                    .time = t,
                                                    .width = c,
                                                    .act = m->act,
                                                    .scale = (float)m->options.embedding_scale,
                                                    .tokens = m->tokens,
                                                    .dx = m->dx,
                                                    .dembed = bl_model_g(m, m->embed),
                                                    .dposition = bl_model_g(m, m->position)});
}

/* One micro-batch's gradient is rounded, then the sum with what came before it. */
static void combine(struct bl_model *m)
{
    const struct bl_backend_ops *ops = m->backend->ops;

    for (uint64_t i = 0; i < m->params.count && m->rounds_gradients; i++) {
        const struct bl_param *p = &m->params.items[i];
        uint32_t gradient = m->gradient[p->group], sum = m->accumulate[p->group];
        float *g = m->target + p->offset;
        if (gradient != BL_FP32)
            ops->round(m->backend, p->count, g, g, gradient);
        if (m->target == m->micro_gradients)
            ops->accumulate(m->backend, p->count, g, m->gradients + p->offset, sum);
        else if (sum != BL_FP32)
            ops->round(m->backend, p->count, g, g, sum);
    }
}

int bl_model_train(struct bl_model *m, const struct bl_pass *pass, struct bl_error *err)
{
    int apart = m->rounds_gradients && pass->accumulate;

    if (check_pass(m, pass, err) != 0 || bl_head_reserve(m, pass, 1, err) != 0)
        return -1;
    m->target = apart ? m->micro_gradients : m->gradients;
    m->acc = pass->accumulate && !apart;
    forward(m, pass);
    bl_head_run(m, pass, 1);
    backward(m);
    combine(m);
    bl_head_finish(m, pass);
    pass->rows->count += m->rows;
    return 0;
}

int bl_model_evaluate(struct bl_model *m, const struct bl_pass *pass, struct bl_error *err)
{
    if (check_pass(m, pass, err) != 0 || bl_head_reserve(m, pass, 0, err) != 0)
        return -1;
    forward(m, pass);
    bl_head_run(m, pass, 0);
    pass->rows->count += m->rows;
    return 0;
}
