/* The gradient of the whole model against finite differences of its loss, for every switch. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"

/* ---- finite differences ------------------------------------------------------------------------
 */

static double loss_along(struct fixture *f, const struct bl_head_hooks *hooks, const float *base,
                         const double *d, double h)
{
    for (uint64_t i = 0; i < f->params->floats; i++)
        f->weights[i] = (float)(base[i] + h * d[i]);
    bl_model_refresh(f->model, 0, f->params->floats);
    return evaluate_loss(f, hooks);
}

/* The loss is a mean of rows of size 5 from fp32 logits: a few roundings u = 6e-8 of 5, say 3e-7 at
 * worst per evaluation (measured on the spread of neighbours: 5e-8). Central differences at h, h/2,
 * h/4, extrapolated twice (Romberg), multiply it by 4 * 16/15 * 4/3 / h < 6 / h. What is left of
 * the truncation is less than the last extrapolation's change. */
#define NOISE 3e-7

/* The maximum has a kink where the first place changes hands; there is no derivative to compare
 * with when that happens within the step, and NaN says so. */
static double derivative(struct fixture *f, const struct bl_head_hooks *hooks, const float *base,
                         const double *d, double h, double *tolerance)
{
    double c[3], first, second, both;
    int32_t winners[64];
    int kink = 0;

    assert_true(f->rows <= 64);
    for (uint64_t i = 0; i < f->rows; i++)
        winners[i] = f->stats.argmax[i];
    for (int k = 0; k < 3; k++) {
        double s = h / (1 << k);
        c[k] = loss_along(f, hooks, base, d, s);
        kink |= memcmp(winners, f->stats.argmax, f->rows * sizeof(int32_t)) != 0;
        c[k] = (c[k] - loss_along(f, hooks, base, d, -s)) / (2 * s);
        kink |= memcmp(winners, f->stats.argmax, f->rows * sizeof(int32_t)) != 0;
    }
    first = (4 * c[1] - c[0]) / 3;
    second = (4 * c[2] - c[1]) / 3;
    both = (16 * second - first) / 15;
    *tolerance = 6 * NOISE / h + fabs(both - second);
    memcpy(f->stats.argmax, winners, f->rows * sizeof(int32_t));
    return kink && hooks != NULL ? NAN : both;
}

struct verdict {
    double worst; /* |difference| / tolerance */
    uint64_t blunt, kinks, directions;
};

static void judge(struct verdict *v, const char *label, const char *what, double got, double want,
                  double size, double tolerance)
{
    v->directions++;
    if (isnan(got)) {
        v->kinks++;
        return;
    }
    if (!(fabs(got - want) <= tolerance))
        fail_msg("%s: derivative along %s is %.9g, the gradient says %.9g (tolerance %.2g)", label,
                 what, got, want, tolerance);
    v->worst = fmax(v->worst, fabs(got - want) / tolerance);
    if (tolerance > 0.02 * size)
        v->blunt++; /* a derivative so small that noise hides it */
}

/* Along every tensor's own gradient (length 1) and along random directions through all weights. */
static struct verdict check_derivatives(struct fixture *f, const struct bl_head_hooks *hooks,
                                        const char *label, int directions)
{
    const struct bl_params *p = f->params;
    float *base = malloc(p->floats * sizeof(float)), *g = malloc(p->floats * sizeof(float));
    double *d = calloc(p->floats, sizeof(double));
    struct verdict v = {0};
    double tolerance, got;

    assert_true(base != NULL && g != NULL && d != NULL);
    fixture_train(f, f->sequences, hooks, 0);
    memcpy(base, f->weights, p->floats * sizeof(float));
    memcpy(g, f->gradients, p->floats * sizeof(float));
    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_param *q = &p->items[i];
        double n = sqrt((double)q->count), length = n * rms(g + q->offset, q->count);
        if (length == 0)
            continue;
        for (uint64_t e = 0; e < q->count; e++)
            d[q->offset + e] = g[q->offset + e] / length;
        got =
            derivative(f, hooks, base, d, 0.004 * n * rms(base + q->offset, q->count), &tolerance);
        judge(&v, label, q->name, got, length, length, tolerance);
        memset(d, 0, p->floats * sizeof(double));
    }
    for (int k = 0; k < directions; k++) {
        double want = 0, size = 0;
        for (uint64_t i = 0; i < p->count; i++) {
            const struct bl_param *q = &p->items[i];
            double scale = rms(base + q->offset, q->count);
            for (uint64_t e = q->offset; e < q->offset + q->count; e++) {
                d[e] = scale * bl_random_normal(11, (uint64_t)k, e);
                want += g[e] * d[e];
                size += g[e] * d[e] * g[e] * d[e];
            }
        }
        got = derivative(f, hooks, base, d, 0.004, &tolerance);
        judge(&v, label, "a random direction", got, want, sqrt(size), tolerance);
    }
    memcpy(f->weights, base, p->floats * sizeof(float));
    bl_model_refresh(f->model, 0, p->floats);
    free(base);
    free(g);
    free(d);
    return v;
}

#define CONFIGS 24

static void test_derivatives_of_every_switch(void **state)
{
    int seen[9][4] = {{0}};
    struct verdict all = {0};

    (void)state;
    for (uint64_t i = 0; i < CONFIGS; i++) {
        struct bl_model_options o = switched_options(i);
        int values[] = {o.position,
                        o.mlp,
                        o.qk_norm,
                        o.tied,
                        o.bias,
                        o.embedding_norm,
                        o.embedding_scale != 1,
                        o.logit_softcap > 0,
                        o.attention_softcap > 0};
        char label[160];
        for (size_t k = 0; k < 9; k++)
            seen[k][values[k]]++;
        snprintf(label, sizeof(label),
                 "config %d: norm %d placement %d position %d mlp %d qk_norm %d tied %d bias %d "
                 "embedding_norm %d kv_heads %d",
                 (int)i, o.norm, o.norm_placement, o.position, o.mlp, o.qk_norm, o.tied, o.bias,
                 o.embedding_norm, (int)o.kv_heads);
        struct fixture *f = fixture_make(&o, NULL, 2, 2, 1, 0);
        struct verdict v = check_derivatives(f, NULL, label, 6);
        all.worst = fmax(all.worst, v.worst);
        all.blunt += v.blunt;
        all.directions += v.directions;
        assert_int_equal(v.kinks, 0);
        fixture_free(f);
    }
    for (size_t k = 0; k < 9; k++)
        for (int value = 0; value < (k == 2 ? 3 : 2); value++)
            assert_true(seen[k][value] >= 3);
    print_message("  %llu directions, worst %.2f of the tolerance, %llu blunt\n",
                  (unsigned long long)all.directions, all.worst, (unsigned long long)all.blunt);
    /* Key biases and some tensors of a small gradient cannot be measured to 2%. */
    assert_true(all.blunt * 20 <= all.directions);
}

static void test_derivatives_of_terms_and_transforms(void **state)
{
    static const uint32_t kinds[][3] = {{0}, {1}, {2}, {1, 2}, {2, 1}, {2, 1, 2}, {2, 2}, {1, 1}};

    uint64_t kinks = 0, total = 0;

    (void)state;
    for (int softcap = 0; softcap < 2; softcap++)
        for (size_t k = 0; k < sizeof(kinds) / sizeof(kinds[0]); k++) {
            struct terms s = {.a_lse = 0.05,
                              .a_target = 0.03,
                              .a_mean = 0.4,
                              .a_m2 = 0.01,
                              .a_max = 0.02,
                              .a_pz = 0.04};
            struct bl_model_options o = tiny_options();
            memcpy(s.kinds, kinds[k], sizeof(s.kinds));
            o.layers = 1;
            o.tied = k % 2 == 0;
            o.logit_softcap = softcap ? 2.5 : 0;
            struct bl_head_hooks hooks = hooks_of(&s);
            struct fixture *f = fixture_make(&o, NULL, 2, 2, 1, 0);
            char label[64];
            snprintf(label, sizeof(label), "transforms %u %u %u softcap %d", s.kinds[0], s.kinds[1],
                     s.kinds[2], softcap);
            struct verdict v = check_derivatives(f, &hooks, label, 6);
            assert_true(v.blunt * 6 <= v.directions);
            kinks += v.kinks;
            total += v.directions;
            fixture_free(f);
        }
    print_message("  %llu of %llu directions cross a kink of the maximum\n",
                  (unsigned long long)kinks, (unsigned long long)total);
    assert_true(kinks * 3 <= total);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_derivatives_of_every_switch),
        cmocka_unit_test(test_derivatives_of_terms_and_transforms),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
