/* THE op table: the only thing model code calls. backend/cpu implements it; a device backend
 * implements the same table, and both run the same table of test cases.
 *
 * Conventions
 *   - All matrices are row-major and contiguous unless a stride is given (in elements).
 *   - `act` is the dtype of activations, working weights and their gradients: BL_FP32 or BL_BF16.
 *     Pointers to them are void * on a device; on the CPU BL_BF16 is fp32 storage whose values are
 *     rounded to bf16 (nearest even) once, when an op writes them. Arithmetic inside an op is fp32.
 *   - Statistics (mean, rstd, lse) are fp32, weight gradients fp32.
 *   - "acc": 0 writes the output, 1 adds to it.
 *   - Same inputs give the same bits whatever the number of threads: work is cut by shape alone,
 *     sums over rows are taken in fixed blocks combined in index order.
 *   - Ops cannot fail: sizes are validated when the model is made.
 *   - Symbols: R rows (batch x time), C width, B sequences, T time, H query heads, K key/value
 *     heads, D head size, V true vocabulary, P padded vocabulary (row stride of logits).
 */
#ifndef BL_BACKEND_BACKEND_H
#define BL_BACKEND_BACKEND_H

#include <ballast/regularizer.h>
#include <ballast/tensor.h>

#include "base/error.h"

struct bl_backend {
    const struct bl_backend_ops *ops;
    uint32_t device;
    char description[256]; /* "cpu: 2 threads, avx2, OpenBLAS 0.3.21 ..." */
    void *state;
};

/* y (R, N) = x (R, K) w^T (N, K) [+ bias (N)] [+ residual (R, N)]; y may be residual. */
struct bl_linear {
    uint64_t rows, in, out;
    uint32_t act;
    const void *x, *w, *bias, *residual;
    void *y;
};

/* From dy (R, N): dx (R, K) = dy w (acc_x), dw (N, K) = dy^T x, dbias (N) = column sums (acc_w).
 * A NULL output is not computed. */
struct bl_linear_grad {
    uint64_t rows, in, out;
    uint32_t act, acc_x, acc_w;
    const void *dy, *x, *w;
    void *dx;
    float *dw, *dbias;
};

/* y = (x - mean) rstd weight + bias, or RMSNorm: y = x rstd weight [+ bias]; mean NULL = RMSNorm.
 * rstd = 1/sqrt(var + eps) with the biased variance (RMS: mean square). Rows start `stride_x`,
 * `stride_y` apart (0 = width): a per-head norm is rows = R heads, width = D inside a wider row
 * when `groups` > 1: row r, group g is at r * stride + g * width; statistics are (rows * groups).
 */
struct bl_norm {
    uint64_t rows, width, groups, stride_x, stride_y;
    uint32_t act;
    uint32_t arithmetic; /* BL_FP32, or BL_BF16: x_hat is rounded before the gain */
    float eps;
    const void *x, *weight, *bias; /* weight (width); bias may be NULL */
    void *y;                       /* may be x */
    float *mean, *rstd;            /* outputs; mean NULL = RMSNorm */
};

struct bl_norm_grad {
    uint64_t rows, width, groups, stride_dy, stride_x, stride_dx;
    uint32_t act, acc_x, acc_w;
    uint32_t arithmetic; /* the forward's; BL_BF16: x_hat and its gradient dy weight are rounded */
    const void *dy, *x, *weight;
    const float *mean, *rstd;
    void *dx;               /* may be dy */
    float *dweight, *dbias; /* dbias may be NULL */
};

/* Rotary embedding in place on `heads` heads of size D in rows of `stride`; row r has position
 * r % time. Pairs are (i, i + D/2) (the GPT-NeoX / Llama layout); angle = pos theta^(-2i/D).
 * direction +1 forward, -1 backward. */
struct bl_rope {
    uint64_t rows, time, heads, head_dim, stride;
    uint32_t act;
    int32_t direction;
    double theta;
    void *x;
};

/* Causal attention, s = softcap(scale q k^T), p = softmax(s), out = p v. Query head h reads
 * key/value head h / (H/K). Element strides between rows (tokens); head h starts at h * D.
 * lse (B, H, T). Never materialises T x T. softcap(s) = c tanh(s/c), 0 = none. */
struct bl_attention {
    uint64_t batch, time, heads, kv_heads, head_dim;
    uint64_t stride_q, stride_k, stride_v, stride_out;
    uint32_t act, act_out;
    float scale, softcap;
    const void *q, *k, *v;
    void *out;
    float *lse;
};

struct bl_attention_grad { /* strides of dq, dk, dv are those of q, k, v; dout's is stride_out */
    struct bl_attention forward; /* out and lse are inputs */
    const void *dout;
    void *dq, *dk, *dv; /* written, not added to */
};

/* x (R, C) = scale * embed[token] [+ position[r % T]]; a position table has T rows. */
struct bl_embedding {
    uint64_t rows, time, width;
    uint32_t act;
    float scale;
    const int32_t *tokens; /* (R) */
    const void *embed, *position;
    void *x;
};

struct bl_embedding_grad { /* adds to dembed (V, C) and dposition (T, C); sums in row order */
    uint64_t rows, time, width;
    uint32_t act;
    float scale;
    const int32_t *tokens;
    const void *dx;
    float *dembed, *dposition;
};

/* Statistics of rows of logits z (R, P), first V columns, into fp64 arrays (R); NULL = not wanted.
 * targets -1 = masked (target statistic 0). */
struct bl_logit_stats {
    uint64_t rows, vocab, stride;
    uint32_t act;
    const void *z;
    const int32_t *targets;
    double *lse, *target, *mean, *m2, *max, *pz;
    int32_t *argmax;
};

/* dz (R, P) from z and its statistics: the formula of bl_row_grads with fp64 coefficients per row
 * (R; NULL = zero); columns V..P-1 become 0. dz may be z. Rounded to `act_out`. */
struct bl_logit_grad {
    uint64_t rows, vocab, stride;
    uint32_t act, act_out;
    const void *z;
    const int32_t *targets;
    const double *lse, *mean, *max, *pz;
    const int32_t *argmax;
    const double *d_lse, *d_target, *d_mean, *d_m2, *d_max, *d_pz;
    void *dz;
};

struct bl_backend_ops {
    const char *name;
    void (*destroy)(struct bl_backend *b);

    /* Memory: 64-byte aligned, zeroed. NULL when there is none. */
    void *(*allocate)(struct bl_backend *b, uint64_t bytes);
    void (*release)(struct bl_backend *b, void *pointer);
    uint64_t (*element_size)(struct bl_backend *b, uint32_t dtype); /* bytes as stored here */
    void (*zero)(struct bl_backend *b, void *x, uint64_t bytes);
    void (*upload)(struct bl_backend *b, void *device, const void *host, uint64_t bytes);
    void (*download)(struct bl_backend *b, void *host, const void *device, uint64_t bytes);
    void (*parallel_for)(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t),
                         void *argument); /* host threads */

    void (*linear)(struct bl_backend *b, const struct bl_linear *a);
    void (*linear_grad)(struct bl_backend *b, const struct bl_linear_grad *a);
    void (*norm)(struct bl_backend *b, const struct bl_norm *a);
    void (*norm_grad)(struct bl_backend *b, const struct bl_norm_grad *a);
    void (*rope)(struct bl_backend *b, const struct bl_rope *a);
    void (*attention)(struct bl_backend *b, const struct bl_attention *a);
    void (*attention_grad)(struct bl_backend *b, const struct bl_attention_grad *a);
    void (*embedding)(struct bl_backend *b, const struct bl_embedding *a);
    void (*embedding_grad)(struct bl_backend *b, const struct bl_embedding_grad *a);

    /* GELU, tanh form: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). n elements. */
    void (*gelu)(struct bl_backend *b, uint64_t n, const void *x, void *y, uint32_t act);
    void (*gelu_grad)(struct bl_backend *b, uint64_t n, const void *x, const void *dy, void *dx,
                      uint32_t act); /* dx may be dy */
    /* gate_up (R, 2F), gate in columns 0..F-1: y (R, F) = silu(gate) up. */
    void (*swiglu)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                   void *y, uint32_t act);
    void (*swiglu_grad)(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                        const void *dy, void *dgate_up, uint32_t act); /* dgate_up may be gate_up */
    /* y = a + b, n elements; y may be a or b. */
    void (*add)(struct bl_backend *b, uint64_t n, const void *a, const void *c, void *y,
                uint32_t act);

    void (*logit_stats)(struct bl_backend *b, const struct bl_logit_stats *a);
    void (*logit_grad)(struct bl_backend *b, const struct bl_logit_grad *a);
    /* z = c tanh(z / c) over rows x vocab of (R, P), in place. From the capped z itself
     * grad = grad (1 - (z/c)^2). */
    void (*softcap)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride, float c,
                    void *z, uint32_t act);
    void (*softcap_grad)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                         float c, const void *z, void *dz, uint32_t act);
    /* Row scale z' = s_r z in place, s fp64 (R). */
    void (*row_scale)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                      const double *scale, void *z, uint32_t act);
    /* Its backward in place on dz (= dL/dz'), with z' as left by row_scale: with
     * q_r = sum_v dz_v z'_v / s_r:
     * dz_v = s_r dz_v + q_r (d_mean_r / V + 2 d_m2_r (z'_v / s_r - mean_r)), mean before scaling.
     */
    void (*row_scale_grad)(struct bl_backend *b, uint64_t rows, uint64_t vocab, uint64_t stride,
                           const double *scale, const double *d_mean, const double *d_m2,
                           const double *mean, const void *z, void *dz, uint32_t act);

    /* Element-wise on fp32 arrays of n. */
    void (*round)(struct bl_backend *b, uint64_t n, const float *x, float *y, uint32_t dtype);
    void (*accumulate)(struct bl_backend *b, uint64_t n, const float *x, float *sum,
                       uint32_t dtype); /* sum = round(sum + x) */
    /* fp64, fixed 4096-element blocks summed in index order. */
    double (*sum_squares)(struct bl_backend *b, uint64_t n, const float *x);
    double (*dot)(struct bl_backend *b, uint64_t n, const float *x, const float *y);
    /* The blocks' sums of sum_squares: sums (ceil(n / 4096)). */
    void (*block_squares)(struct bl_backend *b, uint64_t n, const float *x, double *sums);
};

/* threads 0 = the processors this process may run on. Checks the BLAS against a plain product and
 * refuses a broken one. isa: "auto", "scalar", "avx2", "avx512" (BALLAST_ISA overrides). */
int bl_backend_cpu(uint32_t threads, const char *isa, struct bl_backend **out,
                   struct bl_error *err);
void bl_backend_destroy(struct bl_backend *b); /* NULL is fine */

/* parallel_for as a callback: `backend` is a struct bl_backend. */
static inline void bl_backend_parallel_for(void *backend, uint64_t n,
                                           void (*body)(void *, uint64_t), void *argument)
{
    struct bl_backend *b = backend;
    b->ops->parallel_for(b, n, body, argument);
}

#endif
