/* Every precision dial does what it says, where it says, and nothing else.
 *
 * The model runs on a backend that looks at what goes into and comes out of each op. An array is
 * rounded when every element is a bf16 number; random fp32 numbers are that once in 65,536. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- a backend that looks -----------------------------------------------------------------------
 */

enum place {
    EMBED_W,
    EMBED_Y,
    EMBED_DX, /* read by the embedding's backward */
    NORM_W,
    NORM_Y, /* but for the last norm, whose output is HEAD_X */
    NORM_DX,
    NORM_DW,
    LINEAR_W,
    LINEAR_Y,
    LINEAR_DX,
    LINEAR_DW,
    ATTENTION_IN,
    ATTENTION_OUT,
    ATTENTION_DX,
    ACTIVATION_Y,
    ACTIVATION_DX,
    ADD_Y,
    HEAD_W,
    HEAD_X,
    HEAD_DX,
    HEAD_DW,
    LOGITS,
    DLOGITS,
    PLACES
};

static const char *const place_names[PLACES] = {
    "embed_w",       "embed_y",      "embed_dx",     "norm_w",        "norm_y",    "norm_dx",
    "norm_dw",       "linear_w",     "linear_y",     "linear_dx",     "linear_dw", "attention_in",
    "attention_out", "attention_dx", "activation_y", "activation_dx", "add_y",     "head_w",
    "head_x",        "head_dx",      "head_dw",      "logits",        "dlogits"};

#define BIT(place) (1u << (place))

struct spy {
    struct bl_backend_ops ops; /* first: an op finds the spy through its backend */
    const struct bl_backend_ops *real;
    uint64_t vocab;          /* padded: tells the head from the other products */
    uint32_t rounded, plain; /* places seen so, a bit each */
    uint32_t arithmetic;     /* of the norms, forward and backward: a bit per dtype */
    const void *last;        /* output of the last norm, not yet counted */
    uint32_t last_rounded;
};

static int is_bf16(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    return (bits & 0xffffu) == 0;
}

/* Nearest even by arithmetic: bf16 has 8 significant bits. No subnormals occur here. */
static float to_bf16(float x)
{
    int exponent;
    double fraction = frexp((double)x, &exponent);

    return (float)ldexp(nearbyint(ldexp(fraction, 8)), exponent - 8);
}

static int all_rounded(const void *x, uint64_t rows, uint64_t width, uint64_t stride)
{
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t i = 0; i < width; i++)
            if (!is_bf16(((const float *)x)[r * stride + i]))
                return 0;
    return 1;
}

static struct spy *spy_of(struct bl_backend *b)
{
    return (struct spy *)(uintptr_t)b->ops;
}

static void look(struct spy *s, enum place place, const void *x, uint64_t rows, uint64_t width,
                 uint64_t stride)
{
    if (x == NULL)
        return;
    if (all_rounded(x, rows, width, stride))
        s->rounded |= BIT(place);
    else
        s->plain |= BIT(place);
}

static void spy_linear(struct bl_backend *b, const struct bl_linear *a)
{
    struct spy *s = spy_of(b);
    int head = a->out == s->vocab;

    look(s, head ? HEAD_W : LINEAR_W, a->w, a->out, a->in, a->in);
    if (head) {
        look(s, HEAD_X, a->x, a->rows, a->in, a->in);
        s->last = NULL;
    }
    s->real->linear(b, a);
    look(s, head ? LOGITS : LINEAR_Y, a->y, a->rows, a->out, a->out);
}

static void spy_linear_grad(struct bl_backend *b, const struct bl_linear_grad *a)
{
    struct spy *s = spy_of(b);
    int head = a->out == s->vocab;

    if (head)
        look(s, DLOGITS, a->dy, a->rows, a->out, a->out);
    s->real->linear_grad(b, a);
    look(s, head ? HEAD_DX : LINEAR_DX, a->dx, a->rows, a->in, a->in);
    look(s, head ? HEAD_DW : LINEAR_DW, a->dw, a->out, a->in, a->in);
}

static void spy_norm(struct bl_backend *b, const struct bl_norm *a)
{
    struct spy *s = spy_of(b);

    look(s, NORM_W, a->weight, 1, a->width, a->width);
    look(s, NORM_W, a->bias, 1, a->width, a->width);
    s->arithmetic |= BIT(a->arithmetic);
    s->real->norm(b, a);
    if (s->last != NULL) {
        s->rounded |= s->last_rounded ? BIT(NORM_Y) : 0;
        s->plain |= s->last_rounded ? 0 : BIT(NORM_Y);
    }
    s->last = a->y;
    s->last_rounded = (uint32_t)all_rounded(a->y, a->rows, a->width * a->groups, a->stride_y);
}

static void spy_norm_grad(struct bl_backend *b, const struct bl_norm_grad *a)
{
    struct spy *s = spy_of(b);

    s->arithmetic |= BIT(a->arithmetic);
    s->real->norm_grad(b, a);
    look(s, NORM_DX, a->dx, a->rows, a->width * a->groups, a->stride_dx);
    look(s, NORM_DW, a->dweight, 1, a->width, a->width);
}

static void spy_attention(struct bl_backend *b, const struct bl_attention *a)
{
    struct spy *s = spy_of(b);
    uint64_t rows = a->batch * a->time, width = a->heads * a->head_dim;

    look(s, ATTENTION_IN, a->q, rows, width, a->stride_q);
    look(s, ATTENTION_IN, a->k, rows, a->kv_heads * a->head_dim, a->stride_k);
    look(s, ATTENTION_IN, a->v, rows, a->kv_heads * a->head_dim, a->stride_v);
    s->real->attention(b, a);
    look(s, ATTENTION_OUT, a->out, rows, width, a->stride_out);
}

static void spy_attention_grad(struct bl_backend *b, const struct bl_attention_grad *g)
{
    struct spy *s = spy_of(b);
    const struct bl_attention *a = &g->forward;
    uint64_t rows = a->batch * a->time, width = a->kv_heads * a->head_dim;

    s->real->attention_grad(b, g);
    look(s, ATTENTION_DX, g->dq, rows, a->heads * a->head_dim, a->stride_q);
    look(s, ATTENTION_DX, g->dk, rows, width, a->stride_k);
    look(s, ATTENTION_DX, g->dv, rows, width, a->stride_v);
}

static void spy_embedding(struct bl_backend *b, const struct bl_embedding *a)
{
    struct spy *s = spy_of(b);

    look(s, EMBED_W, a->embed, s->vocab, a->width, a->width);
    look(s, EMBED_W, a->position, a->time, a->width, a->width);
    s->real->embedding(b, a);
    look(s, EMBED_Y, a->x, a->rows, a->width, a->width);
}

static void spy_embedding_grad(struct bl_backend *b, const struct bl_embedding_grad *a)
{
    look(spy_of(b), EMBED_DX, a->dx, a->rows, a->width, a->width);
    spy_of(b)->real->embedding_grad(b, a);
}

static void spy_gelu(struct bl_backend *b, uint64_t n, const void *x, void *y, uint32_t act)
{
    spy_of(b)->real->gelu(b, n, x, y, act);
    look(spy_of(b), ACTIVATION_Y, y, 1, n, n);
}

static void spy_gelu_grad(struct bl_backend *b, uint64_t n, const void *x, const void *dy, void *dx,
                          uint32_t act)
{
    spy_of(b)->real->gelu_grad(b, n, x, dy, dx, act);
    look(spy_of(b), ACTIVATION_DX, dx, 1, n, n);
}

static void spy_swiglu(struct bl_backend *b, uint64_t rows, uint64_t width, const void *gate_up,
                       void *y, uint32_t act)
{
    spy_of(b)->real->swiglu(b, rows, width, gate_up, y, act);
    look(spy_of(b), ACTIVATION_Y, y, rows, width, width);
}

static void spy_swiglu_grad(struct bl_backend *b, uint64_t rows, uint64_t width,
                            const void *gate_up, const void *dy, void *dgate_up, uint32_t act)
{
    spy_of(b)->real->swiglu_grad(b, rows, width, gate_up, dy, dgate_up, act);
    look(spy_of(b), ACTIVATION_DX, dgate_up, rows, 2 * width, 2 * width);
}

static void spy_add(struct bl_backend *b, uint64_t n, const void *a, const void *c, void *y,
                    uint32_t act)
{
    spy_of(b)->real->add(b, n, a, c, y, act);
    look(spy_of(b), ADD_Y, y, 1, n, n);
}

static void spy_start(struct spy *s, struct fixture *f)
{
    *s = (struct spy){.ops = *f->backend->ops, .real = f->backend->ops};
    s->vocab = f->params->padded_vocab;
    s->ops.linear = spy_linear;
    s->ops.linear_grad = spy_linear_grad;
    s->ops.norm = spy_norm;
    s->ops.norm_grad = spy_norm_grad;
    s->ops.attention = spy_attention;
    s->ops.attention_grad = spy_attention_grad;
    s->ops.embedding = spy_embedding;
    s->ops.embedding_grad = spy_embedding_grad;
    s->ops.gelu = spy_gelu;
    s->ops.gelu_grad = spy_gelu_grad;
    s->ops.swiglu = spy_swiglu;
    s->ops.swiglu_grad = spy_swiglu_grad;
    s->ops.add = spy_add;
    f->backend->ops = &s->ops;
}

static void spy_stop(struct spy *s, struct fixture *f)
{
    f->backend->ops = s->real;
}

/* ---- one dial at a time -------------------------------------------------------------------------
 */

#define ACTIVATIONS                                                                                \
    (BIT(EMBED_Y) | BIT(EMBED_DX) | BIT(NORM_Y) | BIT(NORM_DX) | BIT(LINEAR_Y) | BIT(LINEAR_DX) |  \
     BIT(ATTENTION_IN) | BIT(ATTENTION_DX) | BIT(ACTIVATION_Y) | BIT(ACTIVATION_DX) | BIT(ADD_Y))
#define HEAD (BIT(HEAD_W) | BIT(HEAD_X) | BIT(HEAD_DX))

#define ALL_GROUPS (-1)

struct scenario {
    int group; /* ALL_GROUPS: the dials of precision plugin "mixed" */
    uint32_t dial;
    uint32_t rounded; /* the places that are, and no other one */
};

static const struct scenario scenarios[] = {
    {BL_GROUP_MATRIX, BL_DIAL_COMPUTE, ACTIVATIONS | BIT(LINEAR_W)},
    {BL_GROUP_EMBEDDING, BL_DIAL_COMPUTE, BIT(EMBED_W)},
    {BL_GROUP_NORM, BL_DIAL_COMPUTE, BIT(NORM_W)},
    {BL_GROUP_HEAD, BL_DIAL_COMPUTE, HEAD},
    {BL_GROUP_HEAD, BL_DIAL_LOGITS, BIT(LOGITS)},
    {BL_GROUP_HEAD, BL_DIAL_DLOGITS, BIT(DLOGITS)},
    {BL_GROUP_MATRIX, BL_DIAL_ATTENTION_OUTPUT, BIT(ATTENTION_OUT)},
    {BL_GROUP_NORM, BL_DIAL_ARITHMETIC, 0}, /* the gain comes after the rounding */
    {ALL_GROUPS, 0,
     ACTIVATIONS | HEAD | BIT(LINEAR_W) | BIT(EMBED_W) | BIT(NORM_W) | BIT(LOGITS) | BIT(DLOGITS) |
         BIT(ATTENTION_OUT)},
};

/* GPT-2's shape, then OLMo 2's, then Peri-LN with per-head norms: every op of the table. */
static struct bl_model_options shape(int i)
{
    struct bl_model_options o = tiny_options();

    o.tied = 0;
    if (i == 0)
        return o;
    o.norm = BL_RMSNORM;
    o.norm_placement = i == 1 ? BL_REORDERED : BL_PERI;
    o.position = BL_ROPE;
    o.embedding_scale = 1.7; /* a row of a bf16 table is fp32 behind it */
    o.mlp = BL_SWIGLU;
    o.qk_norm = i == 1 ? BL_QK_FULL : BL_QK_HEAD;
    o.bias = 0;
    return o;
}

static struct bl_precision dials_of(const struct scenario *s)
{
    struct bl_precision p = all_fp32();

    if (s->group != ALL_GROUPS) {
        p.dial[s->group][s->dial] = BL_BF16;
        return p;
    }
    for (int g = 0; g < BL_GROUP_COUNT; g++)
        p.dial[g][BL_DIAL_COMPUTE] = BL_BF16;
    p.dial[BL_GROUP_HEAD][BL_DIAL_LOGITS] = p.dial[BL_GROUP_HEAD][BL_DIAL_DLOGITS] = BL_BF16;
    p.dial[BL_GROUP_MATRIX][BL_DIAL_ATTENTION_OUTPUT] = BL_BF16;
    return p;
}

static void check_working_copy(struct fixture *f, const struct bl_precision *dials)
{
    const float *working = bl_model_working(f->model);

    for (uint64_t i = 0; i < f->params->count; i++) {
        const struct bl_param *p = &f->params->items[i];
        int rounds = dials->dial[p->group][BL_DIAL_COMPUTE] == BL_BF16;
        for (uint64_t e = p->offset; e < p->offset + p->count; e++) {
            float want = rounds ? to_bf16(f->weights[e]) : f->weights[e];
            if (memcmp(&working[e], &want, sizeof(want)) != 0)
                fail_msg("%s: working weight %.9g of master %.9g, wanted %.9g", p->name, working[e],
                         f->weights[e], want);
        }
    }
}

static void check_scenario(const struct bl_model_options *o, const struct bl_precision *dials,
                           uint32_t rounded, const char *label)
{
    struct fixture *f = fixture_make(o, dials, 2, 2, 1, 0);
    struct spy spy;

    check_working_copy(f, dials);
    spy_start(&spy, f);
    fixture_train(f, 2, NULL, 0);
    spy_stop(&spy, f);
    for (int p = 0; p < PLACES; p++) {
        uint32_t wrong = rounded & BIT(p) ? spy.plain : spy.rounded;
        if (wrong & BIT(p))
            fail_msg("%s: %s is %srounded", label, place_names[p], rounded & BIT(p) ? "not " : "");
    }
    /* Every place was seen: an add exists in two shapes only. */
    assert_int_equal((spy.rounded | spy.plain | BIT(ADD_Y)), BIT(PLACES) - 1);
    fixture_free(f);
}

static void test_where_a_dial_rounds(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct bl_model_options o = shape(i);
        struct bl_precision fp32 = all_fp32();
        check_scenario(&o, &fp32, 0, "fp32");
        for (size_t k = 0; k < sizeof(scenarios) / sizeof(scenarios[0]); k++) {
            struct bl_precision dials = dials_of(&scenarios[k]);
            char label[64];
            snprintf(label, sizeof(label), "shape %d, group %d, dial %u", i, scenarios[k].group,
                     scenarios[k].dial);
            check_scenario(&o, &dials, scenarios[k].rounded, label);
        }
    }
}

/* ---- exactly that number, rounded once
 * -----------------------------------------------------------
 */

/* The head reads ones: the last norm has gain 0 and shift 1. Then logit v is the sum of row v of
 * the output matrix, and with one target its gradient is dz_v in every column. */
static struct fixture *ones_before_the_head(uint32_t logits, uint32_t dlogits)
{
    struct bl_model_options o = tiny_options();
    struct bl_precision dials = all_fp32();

    o.tied = 0;
    dials.dial[BL_GROUP_HEAD][BL_DIAL_LOGITS] = logits;
    dials.dial[BL_GROUP_HEAD][BL_DIAL_DLOGITS] = dlogits;
    struct fixture *f = fixture_make(&o, &dials, 2, 2, 1, 0);
    const struct bl_param *gain = &f->params->items[bl_params_find(f->params, "final_norm.weight")];
    const struct bl_param *shift = &f->params->items[bl_params_find(f->params, "final_norm.bias")];
    for (uint64_t c = 0; c < 16; c++) {
        f->weights[gain->offset + c] = 0;
        f->weights[shift->offset + c] = 1;
    }
    for (uint64_t i = 0; i < f->rows; i++)
        f->targets[i] = (int32_t)i;
    fixture_train(f, 2, NULL, 0);
    return f;
}

static void test_logits_are_rounded_once(void **state)
{
    int moved = 0;

    (void)state;
    struct fixture *exact = ones_before_the_head(BL_FP32, BL_FP32);
    struct fixture *f = ones_before_the_head(BL_BF16, BL_FP32);
    for (uint64_t i = 0; i < f->rows; i++) {
        assert_true((float)f->stats.target[i] == to_bf16((float)exact->stats.target[i]));
        moved += f->stats.target[i] != exact->stats.target[i];
    }
    assert_true(moved > 8);
    fixture_free(f);
    fixture_free(exact);
}

static void one_target(struct fixture *f)
{
    for (uint64_t i = 1; i < f->rows; i++)
        f->targets[i] = -1;
    f->valid = 1;
    fixture_train(f, 2, NULL, 0);
}

static void test_dlogits_are_rounded_once(void **state)
{
    int moved = 0;

    (void)state;
    struct fixture *exact = ones_before_the_head(BL_FP32, BL_FP32);
    struct fixture *f = ones_before_the_head(BL_FP32, BL_BF16);
    one_target(exact);
    one_target(f);
    uint64_t head = f->params->items[bl_params_find(f->params, "head.weight")].offset;
    for (uint64_t e = head; e < head + 19 * 16; e++) {
        assert_true(f->gradients[e] == to_bf16(exact->gradients[e]));
        moved += f->gradients[e] != exact->gradients[e];
    }
    assert_true(moved > 18 * 16 / 2);
    assert_true(cross_entropy(&f->stats) == cross_entropy(&exact->stats));
    fixture_free(f);
    fixture_free(exact);
}

enum { ROWS = 3, WIDTH = 37 };

struct norm_case {
    float x[ROWS * WIDTH], dy[ROWS * WIDTH], gain[WIDTH], y[ROWS * WIDTH], dx[ROWS * WIDTH];
    float mean[ROWS], rstd[ROWS], dgain[WIDTH];
};

static void run_norm(struct bl_backend *b, struct norm_case *c, uint64_t rows, int layer,
                     uint32_t arithmetic)
{
    memset(c->dgain, 0, sizeof(c->dgain));
    b->ops->norm(b, &(struct bl_norm){.rows = rows,
                                      .width = WIDTH,
                                      .groups = 1,
                                      .act = BL_FP32,
                                      .arithmetic = arithmetic,
                                      .eps = 1e-5f,
                                      .x = c->x,
                                      .weight = c->gain,
                                      .y = c->y,
                                      .mean = layer ? c->mean : NULL,
                                      .rstd = c->rstd});
    b->ops->norm_grad(b, &(struct bl_norm_grad){.rows = rows,
                                                .width = WIDTH,
                                                .groups = 1,
                                                .act = BL_FP32,
                                                .arithmetic = arithmetic,
                                                .dy = c->dy,
                                                .x = c->x,
                                                .weight = c->gain,
                                                .mean = layer ? c->mean : NULL,
                                                .rstd = c->rstd,
                                                .dx = c->dx,
                                                .dweight = c->dgain});
}

/* x_hat is rounded, then multiplied; statistics are not rounded. Backward: the gain's gradient
 * takes that x_hat, and dy gain, the gradient of a bf16 number, is rounded. */
static void test_norm_arithmetic(void **state)
{
    (void)state;
    struct bl_backend *b = make_backend(1);
    for (int layer = 0; layer < 2; layer++) {
        struct norm_case exact, rounded;
        for (uint64_t i = 0; i < ROWS * WIDTH; i++) {
            exact.x[i] = (float)sin(1.7 * (double)i) + 0.3f;
            exact.dy[i] = (float)cos(2.3 * (double)i);
        }
        for (uint64_t i = 0; i < WIDTH; i++)
            exact.gain[i] = 1.0f;
        rounded = exact;
        run_norm(b, &exact, ROWS, layer, BL_FP32);
        run_norm(b, &rounded, ROWS, layer, BL_BF16);
        assert_memory_equal(exact.rstd, rounded.rstd, sizeof(exact.rstd));
        for (uint64_t i = 0; i < ROWS * WIDTH; i++)
            assert_true(rounded.y[i] == to_bf16(exact.y[i]) && rounded.y[i] != exact.y[i]);
        /* One row and dy = 1: the gain's gradient is x_hat as the forward pass had it. */
        for (uint64_t i = 0; i < WIDTH; i++)
            rounded.dy[i] = 1.0f;
        run_norm(b, &rounded, 1, layer, BL_BF16);
        assert_memory_equal(rounded.dgain, rounded.y, sizeof(rounded.dgain));
        /* dx from bf16(dy gain) equals that of fp32 arithmetic from the rounded product. */
        for (uint64_t i = 0; i < WIDTH; i++)
            rounded.gain[i] = 1.0f + 0.3f * (float)sin((double)i);
        memcpy(rounded.dy, exact.dy, sizeof(exact.dy));
        for (uint64_t i = 0; i < ROWS * WIDTH; i++)
            exact.dy[i] = to_bf16(exact.dy[i] * rounded.gain[i % WIDTH]);
        run_norm(b, &exact, ROWS, layer, BL_FP32);
        run_norm(b, &rounded, ROWS, layer, BL_BF16);
        assert_memory_equal(exact.dx, rounded.dx, sizeof(exact.dx));
    }
    bl_backend_destroy(b);
}

/* The whole model hands the dial on, forward and backward: with gains of 1 every norm but the last
 * leaves bf16 numbers, and so does the last. */
static void test_norm_arithmetic_of_the_model(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int on = 0; on < 2; on++) {
            struct bl_model_options o = shape(i);
            struct bl_precision dials = all_fp32();
            struct spy spy;
            o.bias = 0;
            dials.dial[BL_GROUP_NORM][BL_DIAL_ARITHMETIC] = on ? BL_BF16 : BL_FP32;
            struct fixture *f = fixture_make(&o, &dials, 2, 2, 1, 0);
            for (uint64_t k = 0; k < f->params->count; k++) {
                const struct bl_param *p = &f->params->items[k];
                for (uint64_t e = 0; p->group == BL_GROUP_NORM && e < p->count; e++)
                    f->weights[p->offset + e] = strstr(p->name, ".weight") != NULL ? 1 : 0;
            }
            spy_start(&spy, f);
            fixture_train(f, 2, NULL, 0);
            spy_stop(&spy, f);
            uint32_t norms = BIT(NORM_Y) | BIT(HEAD_X);
            assert_int_equal(spy.rounded & norms, on ? norms : 0);
            assert_int_equal(spy.plain & norms, on ? 0 : norms);
            assert_int_equal(spy.arithmetic, BIT(on ? BL_BF16 : BL_FP32));
            fixture_free(f);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_where_a_dial_rounds),
        cmocka_unit_test(test_logits_are_rounded_once),
        cmocka_unit_test(test_dlogits_are_rounded_once),
        cmocka_unit_test(test_norm_arithmetic),
        cmocka_unit_test(test_norm_arithmetic_of_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
