/* The gradient of loss/total, as a run with regularizers has it, against finite differences of
 * loss/total: the built plugins behind the real set, tied and untied. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "regularizers.h"
#include "tests/lib/plugin_test.h"

enum { MOST = 5 };

struct setting {
    const char *label;
    const char *plugins[MOST][2]; /* name, options */
};

static const struct setting settings[] = {
    {"z_loss, label_smoothing, norm_softmax",
     {{"z_loss", "coefficient = 0.05;"},
      {"label_smoothing", "alpha = 0.1;"},
      {"norm_softmax", "temperature = 1.5;"}}},
    {"all of them",
     {{"norm_softmax", "temperature = 1.5;"},
      {"mean_logit", "coefficient = 0.3;"},
      {"logit_penalty", "coefficient = 0.02;"},
      {"z_loss", "coefficient = 0.05;"},
      {"label_smoothing", "alpha = 0.1;"}}},
};

struct total {
    struct fixture *f;
    struct bl_bench bench[MOST];
    size_t count;
    struct bl_regularizers *set;
};

static void total_make(struct total *t, const struct bl_model_options *o, const struct setting *s)
{
    struct bl_plugin_instance *instances[MOST];
    struct bl_error err = BL_ERROR_INIT;

    memset(t, 0, sizeof(*t));
    t->f = fixture_make(o, NULL, 2, 1, 1, 1);
    for (; t->count < MOST && s->plugins[t->count][0] != NULL; t->count++) {
        struct bl_bench *b = &t->bench[t->count];
        bl_bench_start(b);
        b->info.tied = (uint32_t)o->tied;
        b->info.vocab = (uint64_t)o->vocab;
        bl_bench_open(b, BL_KIND_REGULARIZER, s->plugins[t->count][0], s->plugins[t->count][1]);
        instances[t->count] = b->instance;
    }
    if (bl_regularizers_make(instances, t->count, t->f->backend, t->f->rows, &t->set, &err) != 0)
        fail_msg("%s", err.text);
}

static void total_free(struct total *t)
{
    bl_regularizers_free(t->set);
    for (size_t i = 0; i < t->count; i++)
        bl_bench_stop(&t->bench[i]);
    fixture_free(t->f);
}

/* loss/total of the batch in micro-batches of one sequence; leaves its gradient in the arena. */
static double total_loss(struct total *t)
{
    bl_regularizers_begin(t->set, 1);
    fixture_train(t->f, 1, bl_regularizers_hooks(t->set), 0);
    double sums[8];
    assert_true(t->count <= 8);
    bl_regularizers_sums(t->set, 0, t->f->rows, sums);
    for (size_t i = 0; i < t->count; i++)
        bl_regularizers_set_sum(t->set, i, sums[i]);
    return cross_entropy(&t->f->stats) + bl_regularizers_aux(t->set, t->f->valid);
}

static double loss_at(struct total *t, const float *base, const float *g, double h)
{
    for (uint64_t i = 0; i < t->f->params->floats; i++)
        t->f->weights[i] = (float)(base[i] + h * g[i]);
    return total_loss(t);
}

/* The noise of one evaluation: a mean of numbers of size 5 from fp32 logits, as in
 * derivative_test.c. The terms add numbers of that size once more. */
#define NOISE 6e-7

/* Along each tensor's own gradient: the derivative is its length. Central differences at h, h/2,
 * h/4, extrapolated twice; what is left of the truncation is below the last one's change. */
static void check(const struct setting *s, int tied, int softcap)
{
    struct bl_model_options o = tiny_options();
    struct total t;
    double worst = 0, blunt = 0;

    o.layers = 1;
    o.tied = tied;
    o.logit_softcap = softcap ? 2.5 : 0;
    total_make(&t, &o, s);
    const struct bl_params *p = t.f->params;
    float *base = malloc(p->floats * sizeof(float)), *all = malloc(p->floats * sizeof(float));
    float *g = calloc(p->floats, sizeof(float));
    assert_true(base != NULL && all != NULL && g != NULL);
    memcpy(base, t.f->weights, p->floats * sizeof(float));
    double total = total_loss(&t);
    memcpy(all, t.f->gradients, p->floats * sizeof(float));
    assert_true(total - cross_entropy(&t.f->stats) > 0.01); /* the terms are there */
    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_param *q = &p->items[i];
        double n = sqrt((double)q->count), length = n * rms(all + q->offset, q->count), c[3];
        double h = 0.004 * n * rms(base + q->offset, q->count);
        for (uint64_t e = q->offset; e < q->offset + q->count; e++)
            g[e] = (float)(all[e] / length);
        for (int k = 0; k < 3; k++) {
            double step = h / (1 << k);
            c[k] = (loss_at(&t, base, g, step) - loss_at(&t, base, g, -step)) / (2 * step);
        }
        double first = (4 * c[1] - c[0]) / 3, second = (4 * c[2] - c[1]) / 3;
        double both = (16 * second - first) / 15;
        double tolerance = 6 * NOISE / h + fabs(both - second);
        if (!(fabs(both - length) <= tolerance))
            fail_msg("%s, tied %d, softcap %d: derivative along %s is %.9g, its gradient's length "
                     "%.9g (tolerance %.2g)",
                     s->label, tied, softcap, q->name, both, length, tolerance);
        worst = fmax(worst, fabs(both - length) / tolerance);
        blunt += tolerance > 0.02 * length;
        memset(g, 0, p->floats * sizeof(float));
    }
    print_message("  %s, tied %d, softcap %d: worst %.2f of the tolerance, %.0f of %llu blunt\n",
                  s->label, tied, softcap, worst, blunt, (unsigned long long)p->count);
    assert_true(blunt * 5 <= (double)p->count);
    free(base);
    free(all);
    free(g);
    total_free(&t);
}

static void test_total_loss(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof(settings) / sizeof(settings[0]); i++)
        for (int bits = 0; bits < 4; bits++)
            check(&settings[i], bits & 1, bits >> 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_total_loss)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
