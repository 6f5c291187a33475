/* One decoder with switches, written once on the op table. */
#ifndef BL_MODEL_MODEL_H
#define BL_MODEL_MODEL_H

#include <ballast/precision.h>

#include "backend/backend.h"
#include "config/config.h"

/* One named parameter: a contiguous slice of the weight arena. Fused storage (q,k,v; gate,up) is
 * several parameters that lie side by side. */
struct bl_param {
    char name[64];
    uint64_t key;   /* bl_hash(name) */
    uint32_t group; /* BL_GROUP_... */
    uint32_t ndim;
    uint64_t dims[2]; /* logical: the vocabulary without padding */
    uint64_t count;   /* dims[0] * dims[1] */
    uint64_t offset;  /* in floats, a multiple of 16 unless fused to the one before */
    double init_std;  /* 0: constant init_value */
    double init_value;
    double init_cut; /* truncation in standard deviations, 0 = none */
};

/* The parameter table alone: `ballast check` needs no memory for it. */
struct bl_params {
    struct bl_param *items;
    uint64_t count;
    uint64_t floats;   /* size of an arena, padding included (padding is and stays zero) */
    uint64_t elements; /* parameters, tied counted once */
    uint64_t vocab, padded_vocab;
};
int bl_params_make(const struct bl_model_options *m, struct bl_params *out, struct bl_error *err);
void bl_params_free(struct bl_params *p);
/* Index by name, or -1. */
int64_t bl_params_find(const struct bl_params *p, const char *name);
/* FLOPs of one training step per token: 6 x matrix parameters + 6 L T H D (causal,
 * forward+backward). */
double bl_model_flops(const struct bl_model_options *m, const struct bl_params *p);
/* Fills `weights` (params.floats, host memory) from (seed, name, element) alone. */
void bl_params_init(const struct bl_params *p, uint64_t seed, float *weights);
/* The same bits, on the backend's threads. */
void bl_params_init_threads(const struct bl_params *p, uint64_t seed, float *weights,
                            struct bl_backend *backend);

/* How the head treats logits; the regularizer set implements it, tests may too. NULL members = no
 * such thing. All arrays belong to one chunk of `count` rows. */
struct bl_head_hooks {
    void *context;
    uint32_t needs;      /* BL_NEED_PZ */
    uint32_t transforms; /* number of transforms, applied 0, 1, ... before the loss */
    /* kind of transform t: 1 element, 2 row_scale */
    uint32_t (*transform_kind)(void *context, uint32_t t);
    void (*element)(void *context, uint32_t t, uint64_t n, const float *x, float *y, float *dy);
    void (*row_scale)(void *context, uint32_t t, const struct bl_row_stats *before,
                      const struct bl_row_scale *out);
    /* Adds coefficient-weighted derivatives of the auxiliary terms to `out` (value unused) and
     * keeps its own sums of values over valid rows, weighted by nothing. */
    void (*rows)(void *context, const struct bl_row_stats *stats, const struct bl_row_grads *out);
};

/* Row statistics of the sequences seen since count was set to 0, in (sequence, time) order. Owned
 * by the caller; capacity in rows. */
struct bl_rows {
    uint64_t capacity, count;
    double *lse, *target, *mean, *m2, *max, *pz;
    int32_t *argmax;
    uint8_t *valid;
    /* before transforms; all NULL when there are none */
    double *pre_lse, *pre_target, *pre_mean, *pre_m2, *pre_max;
    int32_t *pre_argmax;
};
int bl_rows_make(uint64_t capacity, int pz, int before, struct bl_rows *out, struct bl_error *err);
void bl_rows_free(struct bl_rows *r);
uint64_t bl_rows_bytes(uint64_t capacity, int pz, int before); /* what bl_rows_make takes */

struct bl_model;

/* micro: sequences per forward/backward at most. Allocates arenas: weights (master), working
 * weights (the master itself when every compute dial is fp32), gradients, activations. */
int bl_model_make(struct bl_backend *backend, const struct bl_model_options *m,
                  const struct bl_precision *precision, uint64_t micro, struct bl_model **out,
                  struct bl_error *err);
void bl_model_free(struct bl_model *m);
const struct bl_params *bl_model_params(const struct bl_model *m);
float *bl_model_weights(struct bl_model *m); /* (params.floats) master */
/* Working weights: the master itself when every compute dial is fp32. Written by refresh only. */
float *bl_model_working(struct bl_model *m);
float *bl_model_gradients(struct bl_model *m); /* (params.floats) fp32 */
/* CE part of the untied output matrix's gradient (padded_vocab, C), NULL unless asked for: see
 * split_head. */
float *bl_model_ce_gradient(struct bl_model *m);
/* Working copy := rounded master, for the whole arena or one parameter's elements. */
void bl_model_refresh(struct bl_model *m, uint64_t offset, uint64_t count);
uint64_t bl_model_memory(const struct bl_model *m); /* bytes of all arenas */

/* Bytes of a model by purpose. */
struct bl_model_bytes {
    uint64_t weights;     /* master */
    uint64_t working;     /* 0 when every compute dial is fp32 */
    uint64_t gradients;   /* the micro-batch's own as well where a dial rounds them */
    uint64_t activations; /* of one micro-batch */
    uint64_t head;        /* logits of a chunk of rows, and what the hooks need */
    uint64_t total;
};
/* What bl_model_memory will be, without allocating any of it: of a model as made (hooks NULL,
 * split_head 0), or after passes with these hooks and split_head. */
int bl_model_size(struct bl_backend *backend, const struct bl_model_options *m,
                  const struct bl_precision *precision, uint64_t micro,
                  const struct bl_head_hooks *hooks, int split_head, struct bl_model_bytes *out,
                  struct bl_error *err);

struct bl_pass {
    const int32_t *tokens, *targets;   /* (sequences, context); target -1 = masked */
    uint64_t sequences;                /* <= micro */
    double weight;                     /* of each unmasked target in the gradient: W / N_global */
    uint32_t accumulate;               /* 0: the gradient arena is overwritten, 1: added to */
    uint32_t split_head;               /* 1: keep the CE part of the head gradient apart as well */
    const struct bl_head_hooks *hooks; /* NULL = plain cross-entropy */
    struct bl_rows *rows;              /* statistics are appended here */
};
/* Forward and backward of one micro-batch. */
int bl_model_train(struct bl_model *m, const struct bl_pass *pass, struct bl_error *err);
/* Forward only: appends row statistics. */
int bl_model_evaluate(struct bl_model *m, const struct bl_pass *pass, struct bl_error *err);

#endif
