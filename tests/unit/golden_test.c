/* Parity with PyTorch in float64: tests/golden/make_golden.py wrote the files. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <ballast/optimizer.h>

#include "base/strings.h"
#include "checkpoint/safetensors.h"
#include "plugin/host.h"

#define STEPS  10 /* batches in a file */
#define STRIDE 3  /* of stored final weights */
#define SGD_LR 0.1
#define LR     0.01 /* AdamW; betas 0.9, 0.95 are the plugin's defaults */
#define DECAY  0.1

/* Rounding error of a gradient, relative to the rms of its tensor. fp32 rounds by u = 2^-24
 * relative; a sum of K terms in any order is off by about u sqrt(K) of its rms, K <= 67 (the
 * vocabulary), and the chain from the embedding through two layers and back has about 60 such
 * sums, so sqrt(60 * 67) u = 3.8e-6 rms. The largest of 20,000 elements is 4 sigma: 1.5e-5.
 * Measured: 6.3e-6 at most. */
#define TOLERANCE 1.5e-5

static struct bl_model_options gpt2(void)
{
    struct bl_model_options o = tiny_options();

    o.width = 32;
    o.kv_heads = 4;
    o.head_dim = 8;
    o.mlp_width = 64;
    o.context = 16;
    o.vocab = 67;
    o.vocab_multiple = 64;
    o.rope_theta = 10000;
    return o;
}

static struct bl_model_options olmo2(void)
{
    struct bl_model_options o = gpt2();

    o.kv_heads = 2;
    o.mlp_width = 48;
    o.norm = BL_RMSNORM;
    o.norm_placement = BL_REORDERED;
    o.position = BL_ROPE;
    o.mlp = BL_SWIGLU;
    o.qk_norm = BL_QK_FULL;
    o.tied = 0;
    o.bias = 0;
    o.norm_eps = 1e-6;
    o.rope_theta = 500000;
    return o;
}

static struct bl_model_options peri(void)
{
    struct bl_model_options o = tiny_options();

    o.layers = 1;
    o.context = 8;
    o.norm_placement = BL_PERI;
    o.qk_norm = BL_QK_HEAD;
    o.embedding_norm = 1;
    o.embedding_scale = 3;
    o.logit_softcap = 2;
    o.attention_softcap = 1.5;
    o.mlp = BL_SWIGLU;
    o.position = BL_ROPE;
    return o;
}

static struct bl_model_options post(void)
{
    struct bl_model_options o = tiny_options();

    o.layers = 1;
    o.context = 8;
    o.norm_placement = BL_POST;
    o.norm = BL_RMSNORM;
    o.qk_norm = BL_QK_HEAD;
    o.tied = 0;
    o.embedding_scale = 0.5;
    o.attention_softcap = 2;
    return o;
}

static struct bl_model_options reordered(void)
{
    struct bl_model_options o = tiny_options();

    o.context = 8;
    o.norm_placement = BL_REORDERED;
    o.qk_norm = BL_QK_FULL;
    o.bias = 0;
    o.tied = 0;
    o.logit_softcap = 3;
    o.embedding_norm = 1;
    return o;
}

struct golden {
    struct bl_safetensors *file;
    struct fixture *f;
};

static const struct bl_tensor *find(const struct golden *g, const char *prefix, const char *name)
{
    char full[160];
    const struct bl_tensor *t;

    snprintf(full, sizeof(full), "%s%s", prefix, name);
    t = bl_safetensors_find(g->file, full);
    if (t == NULL)
        fail_msg("the golden file has no tensor %s", full);
    return t;
}

static double value(const struct bl_tensor *t, uint64_t i)
{
    uint32_t bits;
    uint16_t half;
    float f;
    double d;

    assert_true(i < t->count);
    switch (t->dtype) {
    case BL_FP64:
        memcpy(&d, (const char *)t->data + i * sizeof(d), sizeof(d));
        return d;
    case BL_BF16:
        memcpy(&half, (const char *)t->data + i * sizeof(half), sizeof(half));
        bits = (uint32_t)half << 16;
        memcpy(&f, &bits, sizeof(f));
        return f;
    default:
        memcpy(&f, (const char *)t->data + i * sizeof(f), sizeof(f));
        return f;
    }
}

static double tensor_rms(const struct bl_tensor *t)
{
    double sum = 0;

    for (uint64_t i = 0; i < t->count; i++)
        sum += value(t, i) * value(t, i);
    return sqrt(sum / (double)t->count);
}

static void load_batch(struct golden *g, uint64_t step)
{
    const struct bl_tensor *tokens = find(g, "", "tokens"), *targets = find(g, "", "targets");

    g->f->valid = 0;
    for (uint64_t i = 0; i < g->f->rows; i++) {
        g->f->tokens[i] = (int32_t)value(tokens, step * g->f->rows + i);
        g->f->targets[i] = (int32_t)value(targets, step * g->f->rows + i);
        g->f->valid += g->f->targets[i] >= 0;
    }
}

static void load_weights(struct golden *g)
{
    const struct bl_params *p = g->f->params;

    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_tensor *t = find(g, "weight.", p->items[i].name);
        assert_int_equal(t->count, p->items[i].count);
        for (uint64_t e = 0; e < t->count; e++)
            g->f->weights[p->items[i].offset + e] = (float)value(t, e);
    }
    bl_model_refresh(g->f->model, 0, p->floats);
}

static struct golden golden_open(const char *name, const struct bl_model_options *o)
{
    struct golden g = {0};
    struct bl_error err = BL_ERROR_INIT;
    const char *top = getenv("top_srcdir");
    char *path = bl_format("%s/tests/golden/%s.safetensors", top != NULL ? top : ".", name);

    assert_non_null(path);
    if (bl_safetensors_open(path, &g.file, &err) != 0)
        fail_msg("%s", err.text);
    free(path);
    g.f = fixture_make(o, NULL, 2, 2, 1, 0);
    load_batch(&g, 0);
    load_weights(&g);
    return g;
}

static void golden_close(struct golden *g)
{
    fixture_free(g->f);
    bl_safetensors_close(g->file);
}

/* Statistics of each row against those of the golden logits; logits are of size 1 to 10, so that
 * 1e-5 is some 20 roundings of the largest. Measured: 2e-6 at most. */
static void check_statistics(struct golden *g)
{
    const struct bl_tensor *z = find(g, "", "logits");
    const struct bl_rows *r = &g->f->stats;
    uint64_t vocab = g->f->params->vocab;
    double worst = 0;

    for (uint64_t i = 0; i < g->f->rows; i++) {
        double sum = 0, mean = 0, m2 = 0, max = -INFINITY, pz = 0;
        for (uint64_t v = 0; v < vocab; v++) {
            double x = value(z, i * vocab + v);
            sum += exp(x);
            mean += x / (double)vocab;
            pz += exp(x) * x;
            max = x > max ? x : max;
        }
        for (uint64_t v = 0; v < vocab; v++)
            m2 += pow(value(z, i * vocab + v) - mean, 2);
        int32_t y = g->f->targets[i];
        double deltas[] = {r->lse[i] - log(sum),
                           r->mean[i] - mean,
                           (r->m2[i] - m2) / (double)vocab,
                           r->max[i] - max,
                           r->pz[i] - pz / sum,
                           y < 0 ? 0 : r->target[i] - value(z, i * vocab + (uint64_t)y)};
        for (size_t k = 0; k < sizeof(deltas) / sizeof(deltas[0]); k++) {
            if (!(fabs(deltas[k]) <= 1e-5))
                fail_msg("row %llu, statistic %zu is off by %g", (unsigned long long)i, k,
                         deltas[k]);
            worst = fmax(worst, fabs(deltas[k]));
        }
        assert_int_equal(r->valid[i], y >= 0);
        assert_true(fabs(value(z, i * vocab + (uint64_t)r->argmax[i]) - max) <= 1e-5);
    }
    print_message("  worst row statistic %.2g", worst);
}

/* What a gradient's error is measured against: the rms of its tensor. The gradient of a key bias is
 * zero in theory where no norm or rotation stands between it and the softmax, so that all of it is
 * noise. A bias sums the same rows as its weight does, with 1 in place of inputs of size 1: the
 * weight's rms counts for it too. */
static double gradient_size(const struct golden *g, const char *name)
{
    double size = tensor_rms(find(g, "gradient.", name));
    const char *dot = strrchr(name, '.');
    char weight[96];

    if (strcmp(dot, ".bias") != 0)
        return size;
    snprintf(weight, sizeof(weight), "%.*s.weight", (int)(dot - name), name);
    return fmax(size, tensor_rms(find(g, "gradient.", weight)));
}

static void check_gradients(struct golden *g)
{
    const struct bl_params *p = g->f->params;
    double worst = 0;

    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_tensor *t = find(g, "gradient.", p->items[i].name);
        double size = gradient_size(g, p->items[i].name);
        for (uint64_t e = 0; e < t->count; e++) {
            double d = g->f->gradients[p->items[i].offset + e] - value(t, e);
            if (!(fabs(d) <= TOLERANCE * size))
                fail_msg("gradient of %s element %llu is %g, golden %g: off by %g of the rms",
                         p->items[i].name, (unsigned long long)e,
                         g->f->gradients[p->items[i].offset + e], value(t, e), fabs(d) / size);
            worst = fmax(worst, fabs(d) / size);
        }
    }
    print_message(", gradient %.2g of its rms", worst);
}

static void check_one(const char *name, struct bl_model_options o)
{
    struct golden g = golden_open(name, &o);
    double loss = value(find(&g, "", "loss"), 0);

    fixture_train(g.f, 2, NULL, 0);
    check_statistics(&g);
    check_gradients(&g);
    print_message(", loss %.2g (%s)\n", cross_entropy(&g.f->stats) - loss, name);
    /* A mean over 27 rows or more of numbers of size 5: some roundings of 5 u = 3e-7. */
    assert_true(fabs(cross_entropy(&g.f->stats) - loss) <= 1e-6);
    golden_close(&g);
}

static void test_gpt2(void **state)
{
    (void)state;
    check_one("gpt2", gpt2());
}

static void test_olmo2(void **state)
{
    (void)state;
    check_one("olmo2", olmo2());
}

static void test_peri(void **state)
{
    (void)state;
    check_one("peri", peri());
}

static void test_post(void **state)
{
    (void)state;
    check_one("post", post());
}

static void test_reordered(void **state)
{
    (void)state;
    check_one("reordered", reordered());
}

/* ---- ten steps --------------------------------------------------------------------------------
 */

/* One parameter by the textbook, fp64 moments. eps NaN = SGD. */
static void plain_update(float *w, const float *g, double *m, double *v, uint64_t n, int step,
                         double eps)
{
    double b1 = 0.9, b2 = 0.95;

    for (uint64_t i = 0; i < n; i++) {
        double x = w[i], d = g[i];
        if (isnan(eps)) {
            w[i] = (float)(x - SGD_LR * d);
            continue;
        }
        m[i] = b1 * m[i] + (1 - b1) * d;
        v[i] = b2 * v[i] + (1 - b2) * d * d;
        x -= LR * DECAY * x;
        x -= LR * (m[i] / (1 - pow(b1, step))) / (sqrt(v[i] / (1 - pow(b2, step))) + eps);
        w[i] = (float)x;
    }
}

/* Elements whose first gradient is far above its rounding error d = TOLERANCE * rms: Adam's step
 * is m / sqrt(v), off by d / sqrt(v) at most, and sqrt(v) >= |g_1| sqrt(0.05 * 0.95^9 / 0.4) >=
 * |g_1| / 3.6. Ten steps: lr * 36 d / |g_1|; the gradient differs also because the weights already
 * do, which doubles it. Below that an element may have gone the other way: 2 sum(lr). With
 * eps = 1e-3 the step cannot exceed lr d / eps, and is well conditioned. */
static double allowed(double first, double d, double eps)
{
    if (isnan(eps))
        return 2e-6; /* measured: 4.0e-7; lr 0.1 * 10 steps * d, d <= 1.5e-5 * rms 0.05 = 7.5e-7 */
    double scale = fmax(fabs(first) / 3.6, eps);
    return fmin(2 * LR * STEPS, 2 * LR * STEPS * d / scale + 1e-6);
}

static void check_steps(const char *name, struct bl_model_options o, const char *run, double eps,
                        struct bl_plugin_instance *plugin)
{
    struct golden g = golden_open(name, &o);
    const struct bl_params *p = g.f->params;
    double *m = calloc(p->floats, sizeof(double)), *v = calloc(p->floats, sizeof(double));
    float *s0 = calloc(p->floats, sizeof(float)), *s1 = calloc(p->floats, sizeof(float));
    double worst_loss = 0, worst = 0, tight = 0;
    uint64_t bounded = 0, total = 0;
    char prefix[32];

    assert_true(m != NULL && v != NULL && s0 != NULL && s1 != NULL);
    snprintf(prefix, sizeof(prefix), "%s.", run);
    for (int step = 1; step <= STEPS; step++) {
        load_batch(&g, (uint64_t)step - 1);
        fixture_train(g.f, 2, NULL, 0);
        worst_loss = fmax(worst_loss, fabs(cross_entropy(&g.f->stats) -
                                           value(find(&g, prefix, "losses"), (uint64_t)step - 1)));
        for (uint64_t i = 0; i < p->count; i++) {
            uint64_t at = p->items[i].offset, n = p->items[i].count;
            if (plugin == NULL) {
                plain_update(g.f->weights + at, g.f->gradients + at, m + at, v + at, n, step, eps);
                continue;
            }
            float *states[] = {s0 + at, s1 + at};
            struct bl_update u = {.size = sizeof(u),
                                  .step = (uint64_t)step,
                                  .count = n,
                                  .key = p->items[i].key,
                                  .weight = g.f->weights + at,
                                  .gradient = g.f->gradients + at,
                                  .state = states,
                                  .gradient_scale = 1,
                                  .learning_rate = isnan(eps) ? SGD_LR : LR,
                                  .weight_decay = isnan(eps) ? 0 : DECAY,
                                  .epsilon = eps,
                                  .update_scale = 1};
            plugin->ops.optimizer.apply(plugin->self, &u, 0, n);
        }
        bl_model_refresh(g.f->model, 0, p->floats);
    }
    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_tensor *t = find(&g, prefix, p->items[i].name);
        const struct bl_tensor *g1 = find(&g, "gradient.", p->items[i].name);
        double d = TOLERANCE * gradient_size(&g, p->items[i].name);
        assert_int_equal(t->count, (p->items[i].count + STRIDE - 1) / STRIDE);
        for (uint64_t e = 0; e < t->count; e++) {
            double off = fabs(g.f->weights[p->items[i].offset + e * STRIDE] - value(t, e));
            double limit = allowed(value(g1, e * STRIDE), d, eps);
            if (!(off <= limit))
                fail_msg("%s %s: %s element %llu is off by %g, allowed %g", name, run,
                         p->items[i].name, (unsigned long long)e * STRIDE, off, limit);
            bounded += limit >= 2 * LR * STEPS;
            total++;
            worst = fmax(worst, off);
            if (limit < 1e-4)
                tight = fmax(tight, off / limit);
        }
    }
    print_message("  %s %s %s: worst loss %.2g, weight %.2g (%.2g of its limit where that is "
                  "below 1e-4); %llu of %llu only bounded\n",
                  name, run, plugin != NULL ? "plugin" : "plain", worst_loss, worst, tight,
                  (unsigned long long)bounded, (unsigned long long)total);
    assert_true(bounded * 100 <= total * 15); /* measured: 7.5% */
    assert_true(worst_loss <= 5e-6);          /* measured: 2.5e-6 */
    free(m);
    free(v);
    free(s0);
    free(s1);
    golden_close(&g);
}

static void test_steps(void **state)
{
    (void)state;
    check_steps("gpt2", gpt2(), "sgd", NAN, NULL);
    check_steps("olmo2", olmo2(), "sgd", NAN, NULL);
    check_steps("gpt2", gpt2(), "adamw3", 1e-3, NULL);
    check_steps("olmo2", olmo2(), "adamw3", 1e-3, NULL);
    check_steps("gpt2", gpt2(), "adamw8", 1e-8, NULL);
    check_steps("olmo2", olmo2(), "adamw8", 1e-8, NULL);
}

#ifndef WITHOUT_PLUGINS
static struct bl_plugin_instance *load_optimizer(const char *name,
                                                 const struct bl_services *services)
{
    struct bl_instance configured = {.kind = BL_KIND_OPTIMIZER, .plugin = name, .name = name};
    struct bl_strings nowhere = {0};
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;

    if (bl_instance_load(&configured, &nowhere, &i, &err) != 0 ||
        bl_instance_create(i, services, &err) != 0)
        fail_msg("%s", err.text);
    return i;
}

static void test_steps_of_plugins(void **state)
{
    struct bl_run_info info = {.size = sizeof(info), .name = "golden", .head = "head.weight"};
    struct bl_services services = {.device = BL_DEVICE_CPU, .ranks = 1, .info = &info};
    struct bl_plugin_instance *sgd = load_optimizer("sgd", &services);
    struct bl_plugin_instance *adamw = load_optimizer("adamw", &services);

    (void)state;
    check_steps("gpt2", gpt2(), "sgd", NAN, sgd);
    check_steps("olmo2", olmo2(), "adamw3", 1e-3, adamw);
    check_steps("gpt2", gpt2(), "adamw8", 1e-8, adamw);
    bl_instance_destroy(sgd);
    bl_instance_destroy(adamw);
}

/* One update fed with the golden gradient, every element, against the closed form of a first step:
 * w (1 - lr decay) - lr g / (|g| + eps). Nothing is conditioned on the size of g here; an update
 * has some ten roundings of numbers of size lr and one of w (below 5): 5 u + 10 lr u < 1e-6. */
static void test_one_step_of_golden_gradients(void **state)
{
    struct bl_run_info info = {.size = sizeof(info), .name = "golden", .head = "head.weight"};
    struct bl_services services = {.device = BL_DEVICE_CPU, .ranks = 1, .info = &info};
    struct bl_plugin_instance *adamw = load_optimizer("adamw", &services);
    struct bl_model_options o = gpt2();
    struct golden g = golden_open("gpt2", &o);

    (void)state;
    for (uint64_t i = 0; i < g.f->params->count; i++) {
        const struct bl_param *q = &g.f->params->items[i];
        const struct bl_tensor *t = find(&g, "gradient.", q->name);
        float *w = g.f->weights + q->offset, *old = malloc(q->count * sizeof(float));
        float *s[] = {calloc(q->count, sizeof(float)), calloc(q->count, sizeof(float))};
        float *gradient = malloc(q->count * sizeof(float));
        assert_true(old != NULL && s[0] != NULL && s[1] != NULL && gradient != NULL);
        memcpy(old, w, q->count * sizeof(float));
        for (uint64_t e = 0; e < q->count; e++)
            gradient[e] = (float)value(t, e);
        struct bl_update u = {.size = sizeof(u),
                              .step = 1,
                              .count = q->count,
                              .weight = w,
                              .gradient = gradient,
                              .state = s,
                              .gradient_scale = 1,
                              .learning_rate = LR,
                              .weight_decay = DECAY,
                              .epsilon = 1e-8,
                              .update_scale = 1};
        adamw->ops.optimizer.apply(adamw->self, &u, 0, q->count);
        for (uint64_t e = 0; e < q->count; e++) {
            double x = value(t, e);
            double want = old[e] * (1 - LR * DECAY) - LR * x / (fabs(x) + 1e-8);
            if (!(fabs(w[e] - want) <= 1e-6))
                fail_msg("%s element %llu: %g, want %g, gradient %g", q->name,
                         (unsigned long long)e, w[e], want, x);
        }
        free(old);
        free(s[0]);
        free(s[1]);
        free(gradient);
    }
    bl_instance_destroy(adamw);
    golden_close(&g);
}
#endif

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gpt2),
        cmocka_unit_test(test_olmo2),
        cmocka_unit_test(test_peri),
        cmocka_unit_test(test_post),
        cmocka_unit_test(test_reordered),
        cmocka_unit_test(test_steps),
#ifndef WITHOUT_PLUGINS
        cmocka_unit_test(test_steps_of_plugins),
        cmocka_unit_test(test_one_step_of_golden_gradients),
#endif
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
