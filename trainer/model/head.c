/* The output head: logits of a chunk of rows at a time, their statistics, transforms, the
 * coefficients of the loss and everything back to the gradients of the last activations and of the
 * output matrix. */
#include "model/internal.h"

#include <string.h>

#define CHUNK_BYTES ((uint64_t)128 << 20)
#define TILE        512 /* logits of an element transform's backward at a time */

enum { ELEMENT = 1, ROW_SCALE = 2 };

static uint64_t transforms_of(const struct bl_pass *pass)
{
    return pass->hooks != NULL ? pass->hooks->transforms : 0;
}

static int has_rows(const struct bl_pass *pass)
{
    return pass->hooks != NULL && pass->hooks->rows != NULL;
}

/* The whole gradient differs from its cross-entropy part, and both are wanted. */
static int splits(const struct bl_model *m, const struct bl_pass *pass)
{
    return pass->split_head && !m->options.tied && has_rows(pass);
}

static float *logits_buffer(struct bl_model *m, struct bl_error *err)
{
    return bl_model_allocate(m, m->head.chunk * m->params.padded_vocab, sizeof(float), "logits",
                             err);
}

/* By shape alone: the order of the sums in the output matrix's gradient follows it. */
static uint64_t chunk_of(const struct bl_model *m)
{
    uint64_t rows = m->micro * (uint64_t)m->options.context;
    uint64_t most = CHUNK_BYTES / (sizeof(float) * m->params.padded_vocab) / 64 * 64;
    if (most < 64)
        most = 64;
    uint64_t pieces = (rows + most - 1) / most;
    uint64_t chunk = (rows + pieces - 1) / pieces; /* even: a short last product is a slow one */
    chunk = (chunk + 63) / 64 * 64;
    return chunk < rows ? chunk : rows;
}

/* Adds up what bl_head_make and bl_head_reserve allocate. */
uint64_t bl_head_bytes(const struct bl_model *m, const struct bl_head_hooks *hooks, int split_head)
{
    const struct bl_pass pass = {.hooks = hooks, .split_head = (uint32_t)split_head};
    const struct bl_head *h = &m->head;
    uint64_t chunk = chunk_of(m), logits = chunk * m->params.padded_vocab * sizeof(float);
    uint64_t matrix = m->params.padded_vocab * (uint64_t)m->options.width * sizeof(float);
    uint64_t transforms = transforms_of(&pass);
    uint64_t bytes = 6 * chunk * sizeof(double) + logits + sizeof(*h->stage);

    bytes += transforms * (logits + sizeof(*h->stage));
    bytes += transforms * (9 * chunk * sizeof(double) + sizeof(*h->scale));
    if (m->options.logit_softcap > 0 || transforms > 0 || splits(m, &pass))
        bytes += logits;
    if (split_head && !m->options.tied)
        bytes += m->rounds_gradients && has_rows(&pass) ? 2 * matrix : matrix;
    return bytes;
}

int bl_head_make(struct bl_model *m, struct bl_error *err)
{
    struct bl_head *h = &m->head;
    double **arrays[] = {&h->d_lse, &h->d_target, &h->d_mean, &h->d_m2, &h->d_max, &h->d_pz};

    h->chunk = chunk_of(m);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        if ((*arrays[i] = bl_model_allocate(m, h->chunk, sizeof(double), "head", err)) == NULL)
            return -1;
    h->stage = bl_model_allocate(m, 1, sizeof(*h->stage), "head", err);
    if (h->stage == NULL || (h->stage[0] = logits_buffer(m, err)) == NULL)
        return -1;
    h->stages = 1;
    if (m->options.logit_softcap > 0 && (h->dz = logits_buffer(m, err)) == NULL)
        return -1;
    return 0;
}

void bl_head_free(struct bl_model *m)
{
    struct bl_head *h = &m->head;
    void (*release)(struct bl_backend *, void *) = m->backend->ops->release;
    void *arrays[] = {h->d_lse, h->d_target, h->d_mean, h->d_m2,    h->d_max,
                      h->d_pz,  h->dz,       h->ce,     h->ce_micro};

    for (uint64_t t = 0; t < h->stages; t++) {
        release(m->backend, h->stage[t]);
        if (t > 0)
            release(m->backend, h->scale[t - 1].scale);
    }
    release(m->backend, h->stage);
    release(m->backend, h->scale);
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        release(m->backend, arrays[i]);
    memset(h, 0, sizeof(*h));
}

/* One block for the nine arrays of a row scale; its start is what is released. */
static int make_scale(struct bl_model *m, struct bl_head_scale *s, struct bl_error *err)
{
    uint64_t n = m->head.chunk;
    double *block = bl_model_allocate(m, 9 * n, sizeof(double), "logit transform", err);
    double **arrays[] = {&s->scale,  &s->d_mean, &s->d_m2, &s->lse,
                         &s->target, &s->mean,   &s->m2,   &s->max};

    if (block == NULL)
        return -1;
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++)
        *arrays[i] = block + i * n;
    s->argmax = (int32_t *)(block + 8 * n);
    return 0;
}

static int grow_stages(struct bl_model *m, uint64_t stages, struct bl_error *err)
{
    struct bl_head *h = &m->head;
    float **stage = bl_model_allocate(m, stages, sizeof(*stage), "logit transforms", err);
    struct bl_head_scale *scale =
        bl_model_allocate(m, stages - 1, sizeof(*scale), "logit transforms", err);

    if (stage == NULL || scale == NULL) {
        m->backend->ops->release(m->backend, stage);
        m->backend->ops->release(m->backend, scale);
        return -1;
    }
    memcpy(stage, h->stage, h->stages * sizeof(*stage));
    if (h->stages > 1)
        memcpy(scale, h->scale, (h->stages - 1) * sizeof(*scale));
    m->backend->ops->release(m->backend, h->stage);
    m->backend->ops->release(m->backend, h->scale);
    m->memory -= h->stages * sizeof(*stage) + (h->stages - 1) * sizeof(*scale);
    h->stage = stage;
    h->scale = scale;
    while (h->stages < stages) {
        if (make_scale(m, &scale[h->stages - 1], err) != 0)
            return -1;
        if ((stage[h->stages] = logits_buffer(m, err)) == NULL) {
            m->backend->ops->release(m->backend, scale[h->stages - 1].scale);
            return -1;
        }
        h->stages++;
    }
    return 0;
}

int bl_head_reserve(struct bl_model *m, const struct bl_pass *pass, int backward,
                    struct bl_error *err)
{
    struct bl_head *h = &m->head;
    uint64_t transforms = transforms_of(pass);
    uint64_t matrix = m->params.padded_vocab * (uint64_t)m->options.width;

    if (transforms + 1 > h->stages && grow_stages(m, transforms + 1, err) != 0)
        return -1;
    if (!backward)
        return 0;
    if (h->dz == NULL && (transforms > 0 || splits(m, pass)) &&
        (h->dz = logits_buffer(m, err)) == NULL)
        return -1;
    if (pass->split_head && !m->options.tied) {
        if (h->ce == NULL &&
            (h->ce = bl_model_allocate(m, matrix, sizeof(float), "head's gradient", err)) == NULL)
            return -1;
        if (m->rounds_gradients && h->ce_micro == NULL && has_rows(pass) &&
            (h->ce_micro = bl_model_allocate(m, matrix, sizeof(float), "head's gradient", err)) ==
                NULL)
            return -1;
    }
    return 0;
}

/* ---- element transforms: hooks work on rows of true logits, padding stays as it is ------------
 */

struct element_job {
    const struct bl_head_hooks *hooks;
    uint32_t t;
    uint64_t vocab, stride;
    const float *x;
    float *y; /* forward: the result; backward: dz, multiplied in place */
};

static void element_row(void *argument, uint64_t r)
{
    const struct element_job *j = argument;

    j->hooks->element(j->hooks->context, j->t, j->vocab, j->x + r * j->stride, j->y + r * j->stride,
                      NULL);
}

static void element_row_grad(void *argument, uint64_t r)
{
    const struct element_job *j = argument;
    const float *x = j->x + r * j->stride;
    float *dz = j->y + r * j->stride, slope[TILE];

    for (uint64_t v = 0; v < j->vocab; v += TILE) {
        uint64_t n = j->vocab - v < TILE ? j->vocab - v : TILE;
        j->hooks->element(j->hooks->context, j->t, n, x + v, NULL, slope);
        for (uint64_t i = 0; i < n; i++)
            dz[v + i] *= slope[i];
    }
}

/* ---- one chunk --------------------------------------------------------------------------------
 */

struct chunk {
    uint64_t rows, first; /* rows of this chunk; first row in the pass */
    uint64_t slot;        /* first row's place in pass->rows */
    const int32_t *targets;
};

static void statistics(struct bl_model *m, const struct chunk *c, const float *z, double *lse,
                       double *target, double *mean, double *m2, double *max, int32_t *argmax,
                       double *pz)
{
    m->backend->ops->logit_stats(m->backend,
                                 &(struct bl_logit_stats){.rows = c->rows,
                                                          .vocab = m->params.vocab,
                                                          .stride = m->params.padded_vocab,
                                                          .act = m->logits,
                                                          .z = z,
                                                          .targets = c->targets,
                                                          .lse = lse,
                                                          .target = target,
                                                          .mean = mean,
                                                          .m2 = m2,
                                                          .max = max,
                                                          .pz = pz,
                                                          .argmax = argmax});
}

static void transform(struct bl_model *m, const struct bl_pass *pass, const struct chunk *c,
                      uint32_t t)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    const struct bl_head_hooks *hooks = pass->hooks;
    struct bl_head_scale *s = &m->head.scale[t];
    float *x = m->head.stage[t], *y = m->head.stage[t + 1];
    uint64_t vocab = m->params.vocab, stride = m->params.padded_vocab;

    if (hooks->transform_kind(hooks->context, t) == ELEMENT) {
        ops->parallel_for(m->backend, c->rows, element_row,
                          &(struct element_job){hooks, t, vocab, stride, x, y});
        if (m->logits != BL_FP32)
            ops->round(m->backend, c->rows * stride, y, y, m->logits);
        return;
    }
    statistics(m, c, x, s->lse, s->target, s->mean, s->m2, s->max, s->argmax, NULL);
    hooks->row_scale(hooks->context, t,
                     &(struct bl_row_stats){.size = sizeof(struct bl_row_stats),
                                            .count = c->rows,
                                            .vocab = vocab,
                                            .lse = s->lse,
                                            .target = s->target,
                                            .mean = s->mean,
                                            .m2 = s->m2,
                                            .max = s->max,
                                            .argmax = s->argmax,
                                            .valid = pass->rows->valid + c->slot},
                     &(struct bl_row_scale){.size = sizeof(struct bl_row_scale),
                                            .scale = s->scale,
                                            .d_mean = s->d_mean,
                                            .d_m2 = s->d_m2});
    ops->round(m->backend, c->rows * stride, x, y, BL_FP32);
    ops->row_scale(m->backend, c->rows, vocab, stride, s->scale, y, m->logits);
}

static void forward(struct bl_model *m, const struct bl_pass *pass, const struct chunk *c)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    struct bl_rows *r = pass->rows;
    uint64_t width = (uint64_t)m->options.width, at = c->slot, transforms = transforms_of(pass);
    uint64_t bytes = ops->element_size(m->backend, m->act_head);

    ops->linear(m->backend,
                &(struct bl_linear){.rows = c->rows,
                                    .in = width,
                                    .out = m->params.padded_vocab,
                                    .act = m->logits,
                                    .x = (const char *)m->out + c->first * width * bytes,
                                    .w = bl_model_w(m, m->head_weight),
                                    .y = m->head.stage[0]});
    if (m->options.logit_softcap > 0)
        ops->softcap(m->backend, c->rows, m->params.vocab, m->params.padded_vocab,
                     (float)m->options.logit_softcap, m->head.stage[0], m->logits);
    for (uint64_t i = 0; i < c->rows; i++)
        r->valid[at + i] = pass->targets[c->first + i] >= 0;
    if (r->pre_lse != NULL)
        statistics(m, c, m->head.stage[0], r->pre_lse + at, r->pre_target + at, r->pre_mean + at,
                   r->pre_m2 + at, r->pre_max + at, r->pre_argmax + at, NULL);
    for (uint64_t t = 0; t < transforms; t++)
        transform(m, pass, c, (uint32_t)t);
    statistics(m, c, m->head.stage[transforms], r->lse + at, r->target + at, r->mean + at,
               r->m2 + at, r->max + at, r->argmax + at, r->pz != NULL ? r->pz + at : NULL);
}

static int any(const double *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != 0)
            return 1;
    return 0;
}

/* dL/dz of the transformed logits, from the coefficients in the head, then back to the model's own
 * logits; the result is where the return value points. */
static float *logit_gradient(struct bl_model *m, const struct bl_pass *pass, const struct chunk *c,
                             int only_ce)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    struct bl_head *h = &m->head;
    const struct bl_rows *r = pass->rows;
    uint64_t vocab = m->params.vocab, stride = m->params.padded_vocab;
    uint64_t transforms = transforms_of(pass), n = c->rows, at = c->slot;
    float *dz = h->dz != NULL ? h->dz : h->stage[0];
    int more = has_rows(pass) && !only_ce;

    ops->logit_grad(
        m->backend,
        &(struct bl_logit_grad){.rows = n,
                                .vocab = vocab,
                                .stride = stride,
                                .act = m->logits,
                                .act_out = m->dlogits,
                                .z = h->stage[transforms],
                                .targets = c->targets,
                                .lse = r->lse + at,
                                .mean = r->mean + at,
                                .max = r->max + at,
                                .pz = r->pz != NULL ? r->pz + at : NULL,
                                .argmax = r->argmax + at,
                                .d_lse = h->d_lse,
                                .d_target = h->d_target,
                                .d_mean = more && any(h->d_mean, n) ? h->d_mean : NULL,
                                .d_m2 = more && any(h->d_m2, n) ? h->d_m2 : NULL,
                                .d_max = more && any(h->d_max, n) ? h->d_max : NULL,
                                .d_pz = more && r->pz != NULL && any(h->d_pz, n) ? h->d_pz : NULL,
                                .dz = dz});
    for (uint64_t t = transforms; t-- > 0;) {
        struct bl_head_scale *s = &h->scale[t];
        if (pass->hooks->transform_kind(pass->hooks->context, (uint32_t)t) == ELEMENT) {
            ops->parallel_for(
                m->backend, n, element_row_grad,
                &(struct element_job){pass->hooks, (uint32_t)t, vocab, stride, h->stage[t], dz});
            if (m->dlogits != BL_FP32)
                ops->round(m->backend, n * stride, dz, dz, m->dlogits);
        } else {
            ops->row_scale_grad(m->backend, n, vocab, stride, s->scale, s->d_mean, s->d_m2, s->mean,
                                h->stage[t + 1], dz, m->dlogits);
        }
    }
    if (m->options.logit_softcap > 0)
        ops->softcap_grad(m->backend, n, vocab, stride, (float)m->options.logit_softcap,
                          h->stage[0], dz, m->dlogits);
    return dz;
}

/* Derivatives of the loss by the statistics: those of the auxiliary terms times the weight of a
 * target, those of cross-entropy, nothing for masked rows. */
static void coefficients(struct bl_model *m, const struct bl_pass *pass, const struct chunk *c,
                         int only_ce)
{
    struct bl_head *h = &m->head;
    struct bl_rows *r = pass->rows;
    double *all[] = {h->d_lse, h->d_target, h->d_mean, h->d_m2, h->d_max, h->d_pz};
    const uint8_t *valid = r->valid + c->slot;
    uint64_t at = c->slot;

    for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
        memset(all[k], 0, c->rows * sizeof(double));
    if (has_rows(pass) && !only_ce) {
        pass->hooks->rows(pass->hooks->context,
                          &(struct bl_row_stats){.size = sizeof(struct bl_row_stats),
                                                 .count = c->rows,
                                                 .vocab = m->params.vocab,
                                                 .lse = r->lse + at,
                                                 .target = r->target + at,
                                                 .mean = r->mean + at,
                                                 .m2 = r->m2 + at,
                                                 .max = r->max + at,
                                                 .argmax = r->argmax + at,
                                                 .pz = r->pz != NULL ? r->pz + at : NULL,
                                                 .valid = valid},
                          &(struct bl_row_grads){.size = sizeof(struct bl_row_grads),
                                                 .d_lse = h->d_lse,
                                                 .d_target = h->d_target,
                                                 .d_mean = h->d_mean,
                                                 .d_m2 = h->d_m2,
                                                 .d_max = h->d_max,
                                                 .d_pz = h->d_pz});
        for (size_t k = 0; k < sizeof(all) / sizeof(all[0]); k++)
            for (uint64_t i = 0; i < c->rows; i++)
                all[k][i] = valid[i] ? all[k][i] * pass->weight : 0;
    }
    for (uint64_t i = 0; i < c->rows; i++)
        if (valid[i]) {
            h->d_lse[i] += pass->weight;
            h->d_target[i] -= pass->weight;
        }
}

static void matrix_gradient(struct bl_model *m, const struct chunk *c, const float *dz, void *dx,
                            float *dw, uint32_t acc)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    uint64_t width = (uint64_t)m->options.width;
    uint64_t bytes = ops->element_size(m->backend, m->act_head);

    ops->linear_grad(m->backend,
                     &(struct bl_linear_grad){.rows = c->rows,
                                              .in = width,
                                              .out = m->params.padded_vocab,
                                              .act = m->act_head,
                                              .acc_w = acc,
                                              .dy = dz,
                                              .x = (const char *)m->out + c->first * width * bytes,
                                              .w = bl_model_w(m, m->head_weight),
                                              .dx = dx,
                                              .dw = dw});
}

static void backward(struct bl_model *m, const struct bl_pass *pass, const struct chunk *c)
{
    uint64_t width = (uint64_t)m->options.width;
    uint64_t bytes = m->backend->ops->element_size(m->backend, m->act_head);
    float *ce = m->head.ce;
    uint32_t acc_ce = pass->accumulate;

    if (splits(m, pass)) { /* first: the whole gradient may overwrite nothing it still needs */
        if (m->target == m->micro_gradients) {
            ce = m->head.ce_micro;
            acc_ce = 0;
        }
        coefficients(m, pass, c, 1);
        matrix_gradient(m, c, logit_gradient(m, pass, c, 1), NULL, ce, acc_ce || c->first > 0);
    }
    coefficients(m, pass, c, 0);
    matrix_gradient(m, c, logit_gradient(m, pass, c, 0), (char *)m->dx + c->first * width * bytes,
                    bl_model_g(m, m->head_weight), m->acc || c->first > 0);
}

void bl_head_run(struct bl_model *m, const struct bl_pass *pass, int train)
{
    for (uint64_t first = 0; first < m->rows; first += m->head.chunk) {
        uint64_t left = m->rows - first;
        struct chunk c = {.rows = left < m->head.chunk ? left : m->head.chunk,
                          .first = first,
                          .slot = pass->rows->count + first,
                          .targets = m->targets + first};
        forward(m, pass, &c);
        if (train)
            backward(m, pass, &c);
    }
}

void bl_head_finish(struct bl_model *m, const struct bl_pass *pass)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    struct bl_head *h = &m->head;
    uint64_t n = m->params.padded_vocab * (uint64_t)m->options.width;
    uint32_t gradient = m->gradient[BL_GROUP_HEAD], sum = m->accumulate[BL_GROUP_HEAD];

    if (!pass->split_head || m->options.tied)
        return;
    if (!splits(m, pass)) { /* cross-entropy is all there is */
        ops->round(m->backend, n, m->gradients + m->head_weight, h->ce, BL_FP32);
        return;
    }
    if (!m->rounds_gradients)
        return;
    if (m->target == m->micro_gradients) {
        ops->round(m->backend, n, h->ce_micro, h->ce_micro, gradient);
        ops->accumulate(m->backend, n, h->ce_micro, h->ce, sum);
    } else {
        ops->round(m->backend, n, h->ce, h->ce, gradient);
        ops->round(m->backend, n, h->ce, h->ce, sum);
    }
}
