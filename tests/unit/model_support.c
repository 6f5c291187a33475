#include "model_support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

struct bl_model_options tiny_options(void)
{
    return (struct bl_model_options){.layers = 2,
                                     .width = 16,
                                     .heads = 4,
                                     .kv_heads = 2,
                                     .head_dim = 6,
                                     .mlp_width = 20,
                                     .context = 6,
                                     .vocab = 19,
                                     .vocab_multiple = 8,
                                     .norm = BL_LAYERNORM,
                                     .norm_placement = BL_PRE,
                                     .position = BL_LEARNED,
                                     .mlp = BL_GELU,
                                     .qk_norm = BL_QK_OFF,
                                     .tied = 1,
                                     .bias = 1,
                                     .init = BL_INIT_NORMAL,
                                     .embedding_scale = 1,
                                     .init_std = 0.02,
                                     .norm_eps = 1e-5,
                                     .rope_theta = 100};
}

struct bl_model_options switched_options(uint64_t i)
{
    struct bl_model_options o = tiny_options();
    uint64_t bits = bl_random(21, 0, i);

    o.norm_placement = (int32_t)(i % 4);
    o.norm = (int32_t)(i / 4 % 2);
    o.layers = 1 + (int64_t)(i % 2);
    o.position = bits & 1;
    o.mlp = bits >> 1 & 1;
    o.qk_norm = (int32_t)((i / 8 + i) % 3);
    o.tied = bits >> 2 & 1;
    o.bias = bits >> 3 & 1;
    o.embedding_norm = bits >> 4 & 1;
    o.embedding_scale = bits >> 5 & 1 ? 1.7 : 1;
    o.logit_softcap = bits >> 6 & 1 ? 2.5 : 0;
    o.attention_softcap = bits >> 7 & 1 ? 1.5 : 0;
    o.kv_heads = (int64_t[]){1, 2, 4}[(bits >> 8) % 3];
    return o;
}

struct bl_precision all_fp32(void)
{
    struct bl_precision p = {.size = sizeof(p)};

    for (int g = 0; g < 8; g++)
        for (int d = 0; d < 32; d++)
            p.dial[g][d] = BL_FP32;
    return p;
}

struct bl_backend *make_backend(uint32_t threads)
{
    struct bl_backend *b = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_backend_cpu(threads, "auto", &b, &err) != 0)
        fail_msg("%s", err.text);
    return b;
}

void draw_weights(const struct bl_params *p, float *weights)
{
    memset(weights, 0, p->floats * sizeof(*weights));
    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_param *q = &p->items[i];
        for (uint64_t e = 0; e < q->count; e++) {
            double x = bl_random_normal(7, q->key, e);
            if (q->group == BL_GROUP_NORM && strstr(q->name, "weight") != NULL)
                x = 1 + 0.2 * x;
            else if (q->ndim == 1)
                x = 0.1 * x;
            else if (q->group == BL_GROUP_MATRIX)
                x = x / sqrt((double)q->dims[1]);
            else
                x = 0.3 * x;
            weights[q->offset + e] = (float)x;
        }
    }
}

struct fixture *fixture_make(const struct bl_model_options *o, const struct bl_precision *p,
                             uint64_t sequences, uint64_t micro, uint32_t threads, int before)
{
    struct fixture *f = calloc(1, sizeof(*f));
    struct bl_error err = BL_ERROR_INIT;

    assert_non_null(f);
    f->backend = make_backend(threads);
    if (bl_model_make(f->backend, o, p, micro, &f->model, &err) != 0)
        fail_msg("%s", err.text);
    f->params = bl_model_params(f->model);
    f->weights = bl_model_weights(f->model);
    f->gradients = bl_model_gradients(f->model);
    draw_weights(f->params, f->weights);
    bl_model_refresh(f->model, 0, f->params->floats);
    f->sequences = sequences;
    f->context = (uint64_t)o->context;
    f->rows = sequences * f->context;
    f->tokens = malloc(f->rows * sizeof(int32_t));
    f->targets = malloc(f->rows * sizeof(int32_t));
    assert_non_null(f->tokens);
    assert_non_null(f->targets);
    for (uint64_t i = 0; i < f->rows; i++) {
        f->tokens[i] = (int32_t)(bl_random(8, 0, i) % (uint64_t)o->vocab);
        f->targets[i] = i % 7 == 3 ? -1 : (int32_t)(bl_random(8, 1, i) % (uint64_t)o->vocab);
        f->valid += f->targets[i] >= 0;
    }
    if (bl_rows_make(f->rows, 1, before, &f->stats, &err) != 0)
        fail_msg("%s", err.text);
    return f;
}

void fixture_free(struct fixture *f)
{
    bl_rows_free(&f->stats);
    free(f->tokens);
    free(f->targets);
    bl_model_free(f->model);
    bl_backend_destroy(f->backend);
    free(f);
}

void fixture_train(struct fixture *f, uint64_t micro, const struct bl_head_hooks *hooks,
                   uint32_t split)
{
    struct bl_error err = BL_ERROR_INIT;

    f->stats.count = 0;
    for (uint64_t s = 0; s < f->sequences; s += micro) {
        struct bl_pass pass = {.tokens = f->tokens + s * f->context,
                               .targets = f->targets + s * f->context,
                               .sequences = f->sequences - s < micro ? f->sequences - s : micro,
                               .weight = 1.0 / (double)f->valid,
                               .accumulate = s > 0,
                               .split_head = split,
                               .hooks = hooks,
                               .rows = &f->stats};
        if (bl_model_train(f->model, &pass, &err) != 0)
            fail_msg("%s", err.text);
    }
    assert_int_equal(f->stats.count, f->rows);
}

double cross_entropy(const struct bl_rows *r)
{
    double sum = 0;
    uint64_t n = 0;

    for (uint64_t i = 0; i < r->count; i++)
        if (r->valid[i]) {
            sum += r->lse[i] - r->target[i];
            n++;
        }
    return sum / (double)n;
}

double rms(const float *x, uint64_t n)
{
    double sum = 0;

    for (uint64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum / (double)n);
}

double distance(const float *a, const float *b, uint64_t n)
{
    double most = 0;

    for (uint64_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - (double)b[i]);
        if (!(d <= most)) /* a NaN counts as far */
            most = isnan(d) ? INFINITY : d;
    }
    return most;
}

/* ---- a regularizer set for tests: a term of every statistic, two kinds of transforms -----------
 */

static double term(const struct terms *s, const struct bl_rows *r, uint64_t i)
{
    return s->a_lse * r->lse[i] * r->lse[i] + s->a_target * r->target[i] * r->target[i] +
           s->a_mean * r->mean[i] * r->mean[i] + s->a_m2 * r->m2[i] +
           s->a_max * r->max[i] * r->max[i] + s->a_pz * r->pz[i] * r->pz[i];
}

static void rows_hook(void *context, const struct bl_row_stats *in, const struct bl_row_grads *out)
{
    const struct terms *s = context;

    for (uint64_t i = 0; i < in->count; i++) {
        out->d_lse[i] += 2 * s->a_lse * in->lse[i];
        out->d_target[i] += 2 * s->a_target * in->target[i];
        out->d_mean[i] += 2 * s->a_mean * in->mean[i];
        out->d_m2[i] += s->a_m2;
        out->d_max[i] += 2 * s->a_max * in->max[i];
        out->d_pz[i] += 2 * s->a_pz * in->pz[i];
    }
}

static uint32_t kind_hook(void *context, uint32_t t)
{
    return ((const struct terms *)context)->kinds[t];
}

/* y = 2 tanh(x / 2) + x / 10 */
static void element_hook(void *context, uint32_t t, uint64_t n, const float *x, float *y, float *dy)
{
    (void)context;
    (void)t;
    for (uint64_t i = 0; i < n; i++) {
        double h = tanh(x[i] / 2.0);
        if (dy != NULL)
            dy[i] = (float)(1 - h * h + 0.1);
        if (y != NULL)
            y[i] = (float)(2 * h + 0.1 * x[i]);
    }
}

/* scale = (1 + mean^2 + m2 / V)^(-1/2) */
static void scale_hook(void *context, uint32_t t, const struct bl_row_stats *in,
                       const struct bl_row_scale *out)
{
    (void)context;
    (void)t;
    for (uint64_t i = 0; i < in->count; i++) {
        double s = 1 / sqrt(1 + in->mean[i] * in->mean[i] + in->m2[i] / (double)in->vocab);
        out->scale[i] = s;
        out->d_mean[i] = -s * s * s * in->mean[i];
        out->d_m2[i] = -s * s * s / (2 * (double)in->vocab);
    }
}

struct bl_head_hooks hooks_of(struct terms *s)
{
    uint32_t n = 0;

    while (n < 3 && s->kinds[n] != 0)
        n++;
    return (struct bl_head_hooks){.context = s,
                                  .needs = BL_NEED_PZ,
                                  .transforms = n,
                                  .transform_kind = kind_hook,
                                  .element = element_hook,
                                  .row_scale = scale_hook,
                                  .rows = rows_hook};
}

double evaluate_loss(struct fixture *f, const struct bl_head_hooks *hooks)
{
    struct bl_error err = BL_ERROR_INIT;
    struct bl_pass pass = {.tokens = f->tokens,
                           .targets = f->targets,
                           .sequences = f->sequences,
                           .hooks = hooks,
                           .rows = &f->stats};
    double sum = 0;

    f->stats.count = 0;
    if (bl_model_evaluate(f->model, &pass, &err) != 0)
        fail_msg("%s", err.text);
    for (uint64_t i = 0; i < f->rows && hooks != NULL; i++)
        if (f->stats.valid[i])
            sum += term(hooks->context, &f->stats, i);
    return cross_entropy(&f->stats) + sum / (double)f->valid;
}
