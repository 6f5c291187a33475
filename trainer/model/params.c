#include "model/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* One dimension at most, so that BLAS indices and token ids fit 32 bits; one arena at most. */
#define LIMIT_DIM    ((int64_t)1 << 30)
#define LIMIT_LAYERS ((int64_t)1 << 20)
#define LIMIT_FLOATS ((uint64_t)1 << 48)

struct builder {
    const struct bl_model_options *m;
    struct bl_params *p;
    uint64_t capacity;
    int failed;              /* 1: no memory, 2: too large */
    struct bl_param nowhere; /* what callers write to after a failure */
};

enum fuse { ALONE, FUSED };

/* Appends a parameter of (rows, columns), columns 0 = a vector. `stored` rows lie in the arena. */
static struct bl_param *add(struct builder *b, enum fuse fuse, uint32_t group, uint64_t rows,
                            uint64_t columns, uint64_t stored, const char *format, int64_t layer)
{
    struct bl_params *p = b->p;
    uint64_t across = columns > 0 ? columns : 1, floats, end, offset = p->floats;

    if (b->failed)
        return &b->nowhere;
    if (fuse == ALONE)
        offset = (offset + 15) & ~(uint64_t)15;
    if (__builtin_mul_overflow(stored, across, &floats) ||
        __builtin_add_overflow(offset, floats, &end) || end > LIMIT_FLOATS) {
        b->failed = 2;
        return &b->nowhere;
    }
    if (p->count == b->capacity) {
        uint64_t capacity = b->capacity > 0 ? 2 * b->capacity : 64;
        struct bl_param *items = realloc(p->items, capacity * sizeof(*items));
        if (items == NULL) {
            b->failed = 1;
            return &b->nowhere;
        }
        p->items = items;
        b->capacity = capacity;
    }
    struct bl_param *q = &p->items[p->count++];
    memset(q, 0, sizeof(*q));
    snprintf(q->name, sizeof(q->name), format, (long)layer);
    q->key = bl_hash(q->name);
    q->group = group;
    q->ndim = columns > 0 ? 2 : 1;
    q->dims[0] = rows;
    q->dims[1] = across;
    q->count = rows * across;
    q->offset = offset;
    p->floats = end;
    p->elements += q->count;
    return q;
}

/* Standard deviations. "mitchell" is the scheme of the first OLMo models (Groeneveld et al. 2024,
 * arXiv:2402.00838): 1/sqrt(fan in), what writes to the residual stream of layer l (from 0)
 * 1/sqrt(2 fan_in (l + 1)), truncated at three standard deviations; an embedding counts its width
 * as fan in. "gpt2": what writes to the stream has init_std / sqrt(2 L) (Radford et al. 2019). */
static void spread(const struct builder *b, struct bl_param *q, uint64_t fan_in, int64_t layer,
                   int writes_stream)
{
    const struct bl_model_options *m = b->m;

    q->init_std = m->init_std;
    if (m->init == BL_INIT_GPT2 && writes_stream)
        q->init_std = m->init_std / sqrt(2.0 * (double)m->layers);
    if (m->init == BL_INIT_MITCHELL) {
        q->init_std = 1 / sqrt((double)fan_in);
        if (writes_stream)
            q->init_std /= sqrt(2.0 * (double)(layer + 1));
        q->init_cut = 3;
    }
}

static void add_norm(struct builder *b, const char *weight, const char *bias, int64_t layer,
                     uint64_t width)
{
    add(b, ALONE, BL_GROUP_NORM, width, 0, width, weight, layer)->init_value = 1;
    if (bias != NULL && b->m->norm == BL_LAYERNORM && b->m->bias)
        add(b, ALONE, BL_GROUP_NORM, width, 0, width, bias, layer);
}

/* n matrices that share their input, side by side; then their biases. */
static void add_matrices(struct builder *b, int64_t layer, size_t n, const char *const *weights,
                         const char *const *biases, const uint64_t *out, uint64_t in,
                         int writes_stream)
{
    for (size_t i = 0; i < n; i++)
        spread(
            b,
            add(b, i == 0 ? ALONE : FUSED, BL_GROUP_MATRIX, out[i], in, out[i], weights[i], layer),
            in, layer, writes_stream);
    for (size_t i = 0; i < n && b->m->bias; i++)
        add(b, i == 0 ? ALONE : FUSED, BL_GROUP_MATRIX, out[i], 0, out[i], biases[i], layer);
}

static void add_layer(struct builder *b, int64_t l)
{
    static const char *const qkv[] = {"layers.%ld.attn.q.weight", "layers.%ld.attn.k.weight",
                                      "layers.%ld.attn.v.weight"};
    static const char *const qkv_bias[] = {"layers.%ld.attn.q.bias", "layers.%ld.attn.k.bias",
                                           "layers.%ld.attn.v.bias"};
    static const char *const o[] = {"layers.%ld.attn.o.weight"};
    static const char *const o_bias[] = {"layers.%ld.attn.o.bias"};
    static const char *const up[] = {"layers.%ld.mlp.gate.weight", "layers.%ld.mlp.up.weight"};
    static const char *const up_bias[] = {"layers.%ld.mlp.gate.bias", "layers.%ld.mlp.up.bias"};
    static const char *const down[] = {"layers.%ld.mlp.down.weight"};
    static const char *const down_bias[] = {"layers.%ld.mlp.down.bias"};
    const struct bl_model_options *m = b->m;
    uint64_t c = (uint64_t)m->width, d = (uint64_t)m->head_dim, f = (uint64_t)m->mlp_width;
    uint64_t q = (uint64_t)m->heads * d, k = (uint64_t)m->kv_heads * d;
    size_t gated = m->mlp == BL_SWIGLU;

    add_norm(b, "layers.%ld.norm1.weight", "layers.%ld.norm1.bias", l, c);
    add_matrices(b, l, 3, qkv, qkv_bias, (const uint64_t[]){q, k, k}, c, 0);
    if (m->qk_norm != BL_QK_OFF) {
        int full = m->qk_norm == BL_QK_FULL;
        add_norm(b, "layers.%ld.attn.q_norm.weight", NULL, l, full ? q : d);
        add_norm(b, "layers.%ld.attn.k_norm.weight", NULL, l, full ? k : d);
    }
    add_matrices(b, l, 1, o, o_bias, &c, q, 1);
    if (m->norm_placement == BL_PERI)
        add_norm(b, "layers.%ld.post_norm1.weight", "layers.%ld.post_norm1.bias", l, c);
    add_norm(b, "layers.%ld.norm2.weight", "layers.%ld.norm2.bias", l, c);
    add_matrices(b, l, 1 + gated, up + !gated, up_bias + !gated, (const uint64_t[]){f, f}, c, 0);
    add_matrices(b, l, 1, down, down_bias, &c, f, 1);
    if (m->norm_placement == BL_PERI)
        add_norm(b, "layers.%ld.post_norm2.weight", "layers.%ld.post_norm2.bias", l, c);
}

static int check(const struct bl_model_options *m, struct bl_error *err)
{
    const struct {
        const char *key;
        int64_t value, limit;
    } sizes[] = {{"layers", m->layers, LIMIT_LAYERS},
                 {"width", m->width, LIMIT_DIM},
                 {"heads", m->heads, LIMIT_DIM},
                 {"kv_heads", m->kv_heads, LIMIT_DIM},
                 {"head_dim", m->head_dim, LIMIT_DIM},
                 {"mlp_width", m->mlp_width, LIMIT_DIM / 2},
                 {"context", m->context, LIMIT_DIM},
                 {"vocab", m->vocab, LIMIT_DIM},
                 {"vocab_multiple", m->vocab_multiple, LIMIT_DIM}};

    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
        if (sizes[i].value < 1 || sizes[i].value > sizes[i].limit)
            return bl_error_set(err, BL_EXIT_USAGE, "model.%s = %lld: must be in [1, %lld]",
                                sizes[i].key, (long long)sizes[i].value, (long long)sizes[i].limit);
    if (m->heads % m->kv_heads != 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.heads = %lld is not a multiple of model.kv_heads = %lld",
                            (long long)m->heads, (long long)m->kv_heads);
    if (m->position == BL_ROPE && m->head_dim % 2 != 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.head_dim = %lld is odd: position = \"rope\" turns pairs, make "
                            "it even",
                            (long long)m->head_dim);
    if ((m->heads + 2 * m->kv_heads) > LIMIT_DIM / m->head_dim)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.heads = %lld times model.head_dim = %lld is too large",
                            (long long)m->heads, (long long)m->head_dim);
    if (m->norm < BL_LAYERNORM || m->norm > BL_RMSNORM || m->norm_placement < BL_PRE ||
        m->norm_placement > BL_PERI || m->position < BL_LEARNED || m->position > BL_ROPE ||
        m->mlp < BL_GELU || m->mlp > BL_SWIGLU || m->qk_norm < BL_QK_OFF ||
        m->qk_norm > BL_QK_FULL || m->init < BL_INIT_NORMAL || m->init > BL_INIT_MITCHELL)
        return bl_error_set(err, BL_EXIT_USAGE, "model: a choice is outside its list");
    if (!(m->norm_eps >= 0) || !(m->init_std >= 0) || !(m->embedding_scale != 0) ||
        !(m->logit_softcap >= 0) || !(m->attention_softcap >= 0) || isinf(m->norm_eps) ||
        isinf(m->init_std) || !isfinite(m->embedding_scale) || isinf(m->logit_softcap) ||
        isinf(m->attention_softcap) ||
        (m->position == BL_ROPE && !(m->rope_theta > 0 && isfinite(m->rope_theta))))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model: norm_eps, init_std and the softcaps must be finite and >= 0, "
                            "embedding_scale finite and not 0, rope_theta > 0");
    return 0;
}

int bl_params_make(const struct bl_model_options *m, struct bl_params *out, struct bl_error *err)
{
    struct bl_params p = {0};
    struct builder b = {.m = m, .p = &p};

    if (check(m, err) != 0)
        return -1;
    uint64_t c = (uint64_t)m->width, t = (uint64_t)m->context;
    uint64_t multiple = (uint64_t)m->vocab_multiple;
    p.vocab = (uint64_t)m->vocab;
    p.padded_vocab = (p.vocab + multiple - 1) / multiple * multiple;
    if (p.padded_vocab > (uint64_t)LIMIT_DIM)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.vocab_multiple = %lld pads the vocabulary to %llu rows, more "
                            "than %lld",
                            (long long)m->vocab_multiple, (unsigned long long)p.padded_vocab,
                            (long long)LIMIT_DIM);

    spread(&b, add(&b, ALONE, BL_GROUP_EMBEDDING, p.vocab, c, p.padded_vocab, "embed.weight", 0), c,
           0, 0);
    if (m->position == BL_LEARNED)
        spread(&b, add(&b, ALONE, BL_GROUP_EMBEDDING, t, c, t, "position.weight", 0), c, 0, 0);
    if (m->embedding_norm)
        add_norm(&b, "embed_norm.weight", "embed_norm.bias", 0, c);
    for (int64_t l = 0; l < m->layers && !b.failed; l++)
        add_layer(&b, l);
    if (m->norm_placement != BL_POST)
        add_norm(&b, "final_norm.weight", "final_norm.bias", 0, c);
    if (!m->tied)
        spread(&b, add(&b, ALONE, BL_GROUP_HEAD, p.vocab, c, p.padded_vocab, "head.weight", 0), c,
               0, 0);
    p.floats = (p.floats + 15) & ~(uint64_t)15;
    if (b.failed) {
        bl_params_free(&p);
        return b.failed == 1
                   ? bl_error_set(err, BL_EXIT_FAILED, "no memory for the parameter table")
                   : bl_error_set(err, BL_EXIT_USAGE,
                                  "model: more than 2^48 parameters; make layers, width, mlp_width "
                                  "or vocab smaller");
    }
    *out = p;
    return 0;
}

void bl_params_free(struct bl_params *p)
{
    if (p == NULL)
        return;
    free(p->items);
    memset(p, 0, sizeof(*p));
}

int64_t bl_params_find(const struct bl_params *p, const char *name)
{
    for (uint64_t i = 0; i < p->count; i++)
        if (strcmp(p->items[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

/* A weight takes part in one multiply-add a token going forward and two going backward: 6 FLOPs.
 * The token and position tables are looked up, not multiplied; the output matrix is multiplied,
 * tied or not. Attention multiplies q k^T and p v: forward 4 T H D a token and layer if every token
 * saw all T, half of it under the causal mask, three times that with the backward pass:
 * 6 L T H D. */
double bl_model_flops(const struct bl_model_options *m, const struct bl_params *p)
{
    double matrix = (double)m->vocab * (double)m->width;

    for (uint64_t i = 0; i < p->count; i++)
        if (p->items[i].group == BL_GROUP_MATRIX && p->items[i].ndim == 2)
            matrix += (double)p->items[i].count;
    return 6 * matrix +
           6 * (double)m->layers * (double)m->context * (double)m->heads * (double)m->head_dim;
}
