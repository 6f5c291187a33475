#include "model/internal.h"

void bl_model_linear(struct bl_model *m, const struct bl_matrix *w, uint64_t in, uint64_t out,
                     uint32_t act, const void *x, const void *residual, void *y)
{
    m->backend->ops->linear(m->backend, &(struct bl_linear){.rows = m->rows,
                                                            .in = in,
                                                            .out = out,
                                                            .act = act,
                                                            .x = x,
                                                            .w = bl_model_w(m, w->weight),
                                                            .bias = bl_model_w(m, w->bias),
                                                            .residual = residual,
                                                            .y = y});
}

void bl_model_linear_grad(struct bl_model *m, const struct bl_matrix *w, uint64_t in, uint64_t out,
                          const void *dy, const void *x, void *dx, uint32_t acc_x)
{
    m->backend->ops->linear_grad(m->backend,
                                 &(struct bl_linear_grad){.rows = m->rows,
                                                          .in = in,
                                                          .out = out,
                                                          .act = m->act,
                                                          .acc_x = acc_x,
                                                          .acc_w = m->acc,
                                                          .dy = dy,
                                                          .x = x,
                                                          .w = bl_model_w(m, w->weight),
                                                          .dx = dx,
                                                          .dw = bl_model_g(m, w->weight),
                                                          .dbias = bl_model_g(m, w->bias)});
}

void bl_model_norm(struct bl_model *m, const struct bl_gain *g, const void *x, void *y,
                   uint32_t act)
{
    uint64_t c = (uint64_t)m->options.width;

    m->backend->ops->norm(m->backend, &(struct bl_norm){.rows = m->rows,
                                                        .width = c,
                                                        .groups = 1,
                                                        .stride_x = c,
                                                        .stride_y = c,
                                                        .act = act,
                                                        .arithmetic = m->norm_arithmetic,
                                                        .eps = (float)m->options.norm_eps,
                                                        .x = x,
                                                        .weight = bl_model_w(m, g->weight),
                                                        .bias = bl_model_w(m, g->bias),
                                                        .y = y,
                                                        .mean = g->mean,
                                                        .rstd = g->rstd});
}

void bl_model_norm_grad(struct bl_model *m, const struct bl_gain *g, const void *dy, const void *x,
                        void *dx, uint32_t acc_x)
{
    uint64_t c = (uint64_t)m->options.width;

    m->backend->ops->norm_grad(m->backend,
                               &(struct bl_norm_grad){.rows = m->rows,
                                                      .width = c,
                                                      .groups = 1,
                                                      .stride_dy = c,
                                                      .stride_x = c,
                                                      .stride_dx = c,
                                                      .act = m->act,
                                                      .acc_x = acc_x,
                                                      .acc_w = m->acc,
                                                      .arithmetic = m->norm_arithmetic,
                                                      .dy = dy,
                                                      .x = x,
                                                      .weight = bl_model_w(m, g->weight),
                                                      .mean = g->mean,
                                                      .rstd = g->rstd,
                                                      .dx = dx,
                                                      .dweight = bl_model_g(m, g->weight),
                                                      .dbias = bl_model_g(m, g->bias)});
}
