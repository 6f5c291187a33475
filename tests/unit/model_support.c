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
