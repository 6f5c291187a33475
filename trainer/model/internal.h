/* Inside of the model: where each parameter and each activation lies. */
#ifndef BL_MODEL_INTERNAL_H
#define BL_MODEL_INTERNAL_H

#include "model/model.h"

#define BL_NONE UINT64_MAX /* offset of a parameter that this model does not have */

/* A norm: its parameters, and the statistics of the pass (rows * groups). */
struct bl_gain {
    uint64_t weight, bias; /* offsets in the arena, BL_NONE = absent */
    float *mean, *rstd;    /* mean NULL = RMSNorm */
};

/* A linear layer; fused ones start at their first slice. */
struct bl_matrix {
    uint64_t weight, bias;
};

/* One residual branch y = x (+) f(x): attention or MLP. Which buffers exist depends on the
 * placement: n is a norm's output that f reads, f a branch's output that a norm reads. */
struct bl_branch {
    struct bl_gain norm, post_norm;
    void *x, *y, *n, *f; /* (R, C) */
    uint32_t act_y;      /* dtype of y */
};

struct bl_layer {
    struct bl_branch branch[2]; /* attention, MLP */
    struct bl_gain q_norm, k_norm;
    struct bl_matrix qkv, o, up, down;
    void *qkv_x; /* (R, (H + 2K) D) */
    void *qk;    /* (R, (H + K) D) after the q/k norms; NULL without them */
    void *att;   /* (R, H D) */
    float *lse;  /* (B, H, T) */
    void *up_x;  /* (R, F) or, with swiglu, (R, 2F) */
    void *act;   /* (R, F) */
};

struct bl_head_scale { /* (chunk) each; lse ... argmax: statistics before the transform */
    double *scale, *d_mean, *d_m2, *lse, *target, *mean, *m2, *max;
    int32_t *argmax;
};

/* Buffers of the output head, by chunks of rows. stage[0] holds the model's logits, stage[t + 1]
 * what transform t made of them; dz their gradient (NULL: it takes the place of stage[0]). */
struct bl_head {
    uint64_t chunk; /* rows */
    uint64_t stages;
    float **stage; /* (chunk, P) each */
    float *dz;
    /* (chunk) fp64 each */
    double *d_lse, *d_target, *d_mean, *d_m2, *d_max, *d_pz;
    struct bl_head_scale *scale; /* (stages - 1): of row_scale transforms */
    float *ce;                   /* (P, C) */
    float *ce_micro;             /* the same of one micro-batch, where dials round it */
};

struct bl_model {
    struct bl_backend *backend;
    struct bl_model_options options;
    struct bl_params params;
    uint64_t micro;
    uint64_t memory;
    uint64_t needs; /* what memory will be once the model is made */
    uint64_t rows;  /* of the pass under way */
    uint64_t sequences;

    /* dtypes, from the precision table */
    uint32_t act, act_head, act_attention, logits, dlogits, norm_arithmetic;
    uint32_t compute[BL_GROUP_COUNT], gradient[BL_GROUP_COUNT], accumulate[BL_GROUP_COUNT];
    int rounds_gradients; /* any gradient or accumulate dial is not fp32 */

    float *master, *working; /* the same arena when every compute dial is fp32 */
    float *gradients;
    float *micro_gradients; /* NULL unless rounds_gradients */
    float *target;          /* the arena that this pass writes */
    uint32_t acc;           /* and whether it adds */

    void *arena; /* all activations */
    struct bl_layer *layers;
    uint64_t embed, position; /* offsets */
    struct bl_gain embed_norm, final_norm;
    uint64_t head_weight;
    int32_t *tokens, *targets; /* (R) */
    void *embedded;            /* (R, C) before embed_norm, NULL without it */
    void *x0;                  /* (R, C) input of layer 0 */
    void *out;                 /* (R, C) what the head reads */
    void *dx, *dn;             /* (R, C) gradients of the stream and of a branch */
    void *dwide;               /* (R, max(F, H D)) */
    void *dqkv;                /* (R, (H + 2K) D) */
    void *dqk;                 /* (R, (H + K) D), NULL without q/k norms */
    struct bl_head head;
};

static inline const void *bl_model_w(const struct bl_model *m, uint64_t offset)
{
    return offset == BL_NONE ? NULL : m->working + offset;
}

static inline float *bl_model_g(const struct bl_model *m, uint64_t offset)
{
    return offset == BL_NONE ? NULL : m->target + offset;
}

/* apply.c: ops with the model's conventions filled in. */
void bl_model_linear(struct bl_model *m, const struct bl_matrix *w, uint64_t in, uint64_t out,
                     uint32_t act, const void *x, const void *residual, void *y);
void bl_model_linear_grad(struct bl_model *m, const struct bl_matrix *w, uint64_t in, uint64_t out,
                          const void *dy, const void *x, void *dx, uint32_t acc_x);
void bl_model_norm(struct bl_model *m, const struct bl_gain *g, const void *x, void *y,
                   uint32_t act);
void bl_model_norm_grad(struct bl_model *m, const struct bl_gain *g, const void *dy, const void *x,
                        void *dx, uint32_t acc_x);

/* block.c: one branch of one layer; the gradient of the stream is in m->dx. */
void bl_branch_forward(struct bl_model *m, struct bl_layer *l, int mlp);
void bl_branch_backward(struct bl_model *m, struct bl_layer *l, int mlp);

/* head.c */
int bl_head_make(struct bl_model *m, struct bl_error *err);
/* Bytes of the head after passes with these hooks (NULL: none) and split_head. */
uint64_t bl_head_bytes(const struct bl_model *m, const struct bl_head_hooks *hooks, int split_head);
void bl_head_free(struct bl_model *m);
/* Allocates what the pass needs beyond what is there. */
int bl_head_reserve(struct bl_model *m, const struct bl_pass *pass, int backward,
                    struct bl_error *err);
/* Statistics into pass->rows and, backward, the output matrix's gradient and m->dx. */
void bl_head_run(struct bl_model *m, const struct bl_pass *pass, int backward);
/* After the micro-batch's gradients were combined: completes the cross-entropy part. */
void bl_head_finish(struct bl_model *m, const struct bl_pass *pass);

/* Counted allocation from the backend; NULL with err set. */
void *bl_model_allocate(struct bl_model *m, uint64_t n, uint64_t size, const char *what,
                        struct bl_error *err);

#endif
