/* One residual branch, forward and backward: attention or MLP, in any norm placement.
 *
 *   pre        y = x + f(norm(x))
 *   post       y = norm(x + f(x))
 *   reordered  y = x + norm(f(x))                  (OLMo et al. 2025, arXiv:2501.00656)
 *   peri       y = x + post_norm(f(norm(x)))       (Kim et al. 2025, arXiv:2502.02732)
 */
#include "model/internal.h"

#include <math.h>

struct sizes {
    uint64_t c, d, h, k, q_width, k_width, qk_width, qkv_width, f;
};

static struct sizes sizes_of(const struct bl_model *m)
{
    const struct bl_model_options *o = &m->options;
    struct sizes s = {.c = (uint64_t)o->width,
                      .d = (uint64_t)o->head_dim,
                      .h = (uint64_t)o->heads,
                      .k = (uint64_t)o->kv_heads,
                      .f = (uint64_t)o->mlp_width};

    s.q_width = s.h * s.d;
    s.k_width = s.k * s.d;
    s.qk_width = s.q_width + s.k_width;
    s.qkv_width = s.qk_width + s.k_width;
    return s;
}

/* Element i of an array of activations. */
static char *at(const struct bl_model *m, const void *base, uint64_t i)
{
    return (char *)base + i * m->backend->ops->element_size(m->backend, m->act);
}

/* Norm of the queries (first columns) or keys (behind them), from qkv_x into qk. */
static void qk_norm(struct bl_model *m, struct bl_layer *l, int key)
{
    struct sizes s = sizes_of(m);
    const struct bl_gain *g = key ? &l->k_norm : &l->q_norm;
    int full = m->options.qk_norm == BL_QK_FULL;
    uint64_t first = key ? s.q_width : 0, heads = key ? s.k : s.h;

    m->backend->ops->norm(m->backend, &(struct bl_norm){.rows = m->rows,
                                                        .width = full ? heads * s.d : s.d,
                                                        .groups = full ? 1 : heads,
                                                        .stride_x = s.qkv_width,
                                                        .stride_y = s.qk_width,
                                                        .act = m->act,
                                                        .arithmetic = m->norm_arithmetic,
                                                        .eps = (float)m->options.norm_eps,
                                                        .x = at(m, l->qkv_x, first),
                                                        .weight = bl_model_w(m, g->weight),
                                                        .y = at(m, l->qk, first),
                                                        .mean = g->mean,
                                                        .rstd = g->rstd});
}

static void qk_norm_grad(struct bl_model *m, struct bl_layer *l, int key)
{
    struct sizes s = sizes_of(m);
    const struct bl_gain *g = key ? &l->k_norm : &l->q_norm;
    int full = m->options.qk_norm == BL_QK_FULL;
    uint64_t first = key ? s.q_width : 0, heads = key ? s.k : s.h;

    m->backend->ops->norm_grad(m->backend,
                               &(struct bl_norm_grad){.rows = m->rows,
                                                      .width = full ? heads * s.d : s.d,
                                                      .groups = full ? 1 : heads,
                                                      .stride_dy = s.qk_width,
                                                      .stride_x = s.qkv_width,
                                                      .stride_dx = s.qkv_width,
                                                      .act = m->act,
                                                      .acc_w = m->acc,
                                                      .arithmetic = m->norm_arithmetic,
                                                      .dy = at(m, m->dqk, first),
                                                      .x = at(m, l->qkv_x, first),
                                                      .weight = bl_model_w(m, g->weight),
                                                      .mean = g->mean,
                                                      .rstd = g->rstd,
                                                      .dx = at(m, m->dqkv, first),
                                                      .dweight = bl_model_g(m, g->weight)});
}

/* Queries and keys are adjacent heads: one call turns both. */
static void rope(struct bl_model *m, void *x, uint64_t stride, int32_t direction)
{
    struct sizes s = sizes_of(m);

    if (m->options.position != BL_ROPE)
        return;
    m->backend->ops->rope(m->backend, &(struct bl_rope){.rows = m->rows,
                                                        .time = (uint64_t)m->options.context,
                                                        .heads = s.h + s.k,
                                                        .head_dim = s.d,
                                                        .stride = stride,
                                                        .act = m->act,
                                                        .direction = direction,
                                                        .theta = m->options.rope_theta,
                                                        .x = x});
}

static struct bl_attention attention_of(const struct bl_model *m, const struct bl_layer *l)
{
    struct sizes s = sizes_of(m);
    const void *qk = l->qk != NULL ? l->qk : l->qkv_x;
    uint64_t stride = l->qk != NULL ? s.qk_width : s.qkv_width;

    return (struct bl_attention){.batch = m->sequences,
                                 .time = (uint64_t)m->options.context,
                                 .heads = s.h,
                                 .kv_heads = s.k,
                                 .head_dim = s.d,
                                 .stride_q = stride,
                                 .stride_k = stride,
                                 .stride_v = s.qkv_width,
                                 .stride_out = s.q_width,
                                 .act = m->act,
                                 .act_out = m->act_attention,
                                 .scale = (float)(1 / sqrt((double)s.d)),
                                 .softcap = (float)m->options.attention_softcap,
                                 .q = qk,
                                 .k = at(m, qk, s.q_width),
                                 .v = at(m, l->qkv_x, s.qk_width),
                                 .out = l->att,
                                 .lse = l->lse};
}

static void attention_forward(struct bl_model *m, struct bl_layer *l, const void *in,
                              const void *residual, void *out, uint32_t act)
{
    struct sizes s = sizes_of(m);
    struct bl_attention a;

    bl_model_linear(m, &l->qkv, s.c, s.qkv_width, m->act, in, NULL, l->qkv_x);
    if (l->qk != NULL) {
        qk_norm(m, l, 0);
        qk_norm(m, l, 1);
        rope(m, l->qk, s.qk_width, 1);
    } else {
        rope(m, l->qkv_x, s.qkv_width, 1);
    }
    a = attention_of(m, l);
    m->backend->ops->attention(m->backend, &a);
    bl_model_linear(m, &l->o, s.q_width, s.c, act, l->att, residual, out);
}

static void attention_backward(struct bl_model *m, struct bl_layer *l, const void *in,
                               const void *dout, void *din, uint32_t acc)
{
    struct sizes s = sizes_of(m);
    void *dqk = l->qk != NULL ? m->dqk : m->dqkv;

    bl_model_linear_grad(m, &l->o, s.q_width, s.c, dout, l->att, m->dwide, 0);
    m->backend->ops->attention_grad(m->backend,
                                    &(struct bl_attention_grad){.forward = attention_of(m, l),
                                                                .dout = m->dwide,
                                                                .dq = dqk,
                                                                .dk = at(m, dqk, s.q_width),
                                                                .dv = at(m, m->dqkv, s.qk_width)});
    rope(m, dqk, l->qk != NULL ? s.qk_width : s.qkv_width, -1);
    if (l->qk != NULL) {
        qk_norm_grad(m, l, 0);
        qk_norm_grad(m, l, 1);
    }
    bl_model_linear_grad(m, &l->qkv, s.c, s.qkv_width, m->dqkv, in, din, acc);
}

static void mlp_forward(struct bl_model *m, struct bl_layer *l, const void *in,
                        const void *residual, void *out, uint32_t act)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    struct sizes s = sizes_of(m);

    if (m->options.mlp == BL_SWIGLU) {
        bl_model_linear(m, &l->up, s.c, 2 * s.f, m->act, in, NULL, l->up_x);
        ops->swiglu(m->backend, m->rows, s.f, l->up_x, l->act, m->act);
    } else {
        bl_model_linear(m, &l->up, s.c, s.f, m->act, in, NULL, l->up_x);
        ops->gelu(m->backend, m->rows * s.f, l->up_x, l->act, m->act);
    }
    bl_model_linear(m, &l->down, s.f, s.c, act, l->act, residual, out);
}

static void mlp_backward(struct bl_model *m, struct bl_layer *l, const void *in, const void *dout,
                         void *din, uint32_t acc)
{
    const struct bl_backend_ops *ops = m->backend->ops;
    struct sizes s = sizes_of(m);

    bl_model_linear_grad(m, &l->down, s.f, s.c, dout, l->act, m->dwide, 0);
    if (m->options.mlp == BL_SWIGLU) {
        /* The gradient takes the place of gate_up, which nobody reads again. */
        ops->swiglu_grad(m->backend, m->rows, s.f, l->up_x, m->dwide, l->up_x, m->act);
        bl_model_linear_grad(m, &l->up, s.c, 2 * s.f, l->up_x, in, din, acc);
    } else {
        ops->gelu_grad(m->backend, m->rows * s.f, l->up_x, m->dwide, m->dwide, m->act);
        bl_model_linear_grad(m, &l->up, s.c, s.f, m->dwide, in, din, acc);
    }
}

static void f_forward(struct bl_model *m, struct bl_layer *l, int mlp, const void *in,
                      const void *residual, void *out, uint32_t act)
{
    if (mlp)
        mlp_forward(m, l, in, residual, out, act);
    else
        attention_forward(m, l, in, residual, out, act);
}

static void f_backward(struct bl_model *m, struct bl_layer *l, int mlp, const void *in,
                       const void *dout, void *din, uint32_t acc)
{
    if (mlp)
        mlp_backward(m, l, in, dout, din, acc);
    else
        attention_backward(m, l, in, dout, din, acc);
}

void bl_branch_forward(struct bl_model *m, struct bl_layer *l, int mlp)
{
    struct bl_branch *b = &l->branch[mlp];
    uint64_t n = m->rows * (uint64_t)m->options.width;

    switch (m->options.norm_placement) {
    case BL_PRE:
        bl_model_norm(m, &b->norm, b->x, b->n, m->act);
        f_forward(m, l, mlp, b->n, b->x, b->y, b->act_y);
        break;
    case BL_POST:
        f_forward(m, l, mlp, b->x, b->x, b->f, m->act);
        bl_model_norm(m, &b->norm, b->f, b->y, b->act_y);
        break;
    case BL_REORDERED:
        f_forward(m, l, mlp, b->x, NULL, b->f, m->act);
        bl_model_norm(m, &b->norm, b->f, b->y, m->act);
        m->backend->ops->add(m->backend, n, b->x, b->y, b->y, b->act_y);
        break;
    default: /* BL_PERI */
        bl_model_norm(m, &b->norm, b->x, b->n, m->act);
        f_forward(m, l, mlp, b->n, NULL, b->f, m->act);
        bl_model_norm(m, &b->post_norm, b->f, b->y, m->act);
        m->backend->ops->add(m->backend, n, b->x, b->y, b->y, b->act_y);
        break;
    }
}

/* m->dx holds dL/dy and leaves as dL/dx; m->dn is scratch. */
void bl_branch_backward(struct bl_model *m, struct bl_layer *l, int mlp)
{
    struct bl_branch *b = &l->branch[mlp];

    switch (m->options.norm_placement) {
    case BL_PRE:
        f_backward(m, l, mlp, b->n, m->dx, m->dn, 0);
        bl_model_norm_grad(m, &b->norm, m->dn, b->x, m->dx, 1);
        break;
    case BL_POST:
        bl_model_norm_grad(m, &b->norm, m->dx, b->f, m->dx, 0);
        f_backward(m, l, mlp, b->x, m->dx, m->dx, 1);
        break;
    case BL_REORDERED:
        bl_model_norm_grad(m, &b->norm, m->dx, b->f, m->dn, 0);
        f_backward(m, l, mlp, b->x, m->dn, m->dx, 1);
        break;
    default: /* BL_PERI */
        bl_model_norm_grad(m, &b->post_norm, m->dx, b->f, m->dn, 0);
        f_backward(m, l, mlp, b->n, m->dn, m->dn, 0);
        bl_model_norm_grad(m, &b->norm, m->dn, b->x, m->dx, 1);
        break;
    }
}
