/* Small models for the model's tests. */
#ifndef TESTS_MODEL_SUPPORT_H
#define TESTS_MODEL_SUPPORT_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "model/model.h"

/* A tiny model with every size different: 2 layers, width 16, 4 heads on 2 of size 6, context 6,
 * vocabulary 19. */
struct bl_model_options tiny_options(void);
/* A tiny model number i: placement and norm are crossed, the other switches drawn. */
struct bl_model_options switched_options(uint64_t i);
/* Every dial fp32, nearest. */
struct bl_precision all_fp32(void);
struct bl_backend *make_backend(uint32_t threads);

/* A model with weights of a size that leaves no derivative tiny, some tokens, some targets masked,
 * and row statistics. */
struct fixture {
    struct bl_backend *backend;
    struct bl_model *model;
    const struct bl_params *params;
    float *weights, *gradients;
    uint64_t sequences, context, rows, valid;
    int32_t *tokens, *targets;
    struct bl_rows stats;
};
struct fixture *fixture_make(const struct bl_model_options *o, const struct bl_precision *p,
                             uint64_t sequences, uint64_t micro, uint32_t threads, int before);
void fixture_free(struct fixture *f);
void draw_weights(const struct bl_params *p, float *weights);
/* Whole batch of the fixture as one or several micro-batches. */
void fixture_train(struct fixture *f, uint64_t micro, const struct bl_head_hooks *hooks,
                   uint32_t split);
/* Mean of lse - target over unmasked rows seen. */
double cross_entropy(const struct bl_rows *r);
/* Cross-entropy of the whole batch plus, with hooks, the mean of their terms; no backward pass. */
double evaluate_loss(struct fixture *f, const struct bl_head_hooks *hooks);
double rms(const float *x, uint64_t n);
/* max |a - b| over n elements. */
double distance(const float *a, const float *b, uint64_t n);

/* A regularizer set: a term of every statistic, a_m2 m2 and a x^2 of the others, and up to three
 * transforms: 1 element, y = 2 tanh(x/2) + x/10; 2 row scale (1 + mean^2 + m2/V)^(-1/2). */
struct terms {
    uint32_t kinds[3];
    double a_lse, a_target, a_mean, a_m2, a_max, a_pz;
};
struct bl_head_hooks hooks_of(struct terms *s);

#endif
