/* The set of regularizers over small regularizers made here: no plugin file, no model. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "regularizers.h"

/* ---- a backend that only loops, forwards or backwards -----------------------------------------
 */

static void loop(struct bl_backend *b, uint64_t n, void (*body)(void *, uint64_t), void *argument)
{
    for (uint64_t i = 0; i < n; i++)
        body(argument, b->state != NULL ? n - 1 - i : i);
}

static const struct bl_backend_ops backend_ops = {.name = "loop", .parallel_for = loop};

/* ---- regularizers -----------------------------------------------------------------------------
 */

struct fake {
    double coefficient;
    double weight_value;
    int fails;
    char *calls; /* trace of this fake's letter */
    char letter;
    int saw_gradient;
};

static void trace(struct fake *f)
{
    if (f->calls != NULL)
        strncat(f->calls, &f->letter, 1);
}

static double constant(const void *self, uint64_t step)
{
    (void)step;
    return ((const struct fake *)self)->coefficient;
}

static double by_step(const void *self, uint64_t step)
{
    return ((const struct fake *)self)->coefficient * (double)step;
}

/* value = lse^2 */
static void square(const void *self, const struct bl_row_stats *s, const struct bl_row_grads *out,
                   uint64_t begin, uint64_t end)
{
    (void)self;
    for (uint64_t i = begin; i < end; i++) {
        out->value[i] = s->lse[i] * s->lse[i];
        out->d_lse[i] = 2 * s->lse[i];
    }
}

/* value = target - mean: garbage where the target is masked */
static void margin(const void *self, const struct bl_row_stats *s, const struct bl_row_grads *out,
                   uint64_t begin, uint64_t end)
{
    (void)self;
    for (uint64_t i = begin; i < end; i++) {
        out->value[i] = s->target[i] - s->mean[i];
        out->d_target[i] = s->target[i] / s->target[i]; /* 1, or NaN where masked */
        out->d_mean[i] = -1;
    }
}

/* Every derivative is a statistic of its row. */
static void all_of_them(const void *self, const struct bl_row_stats *s,
                        const struct bl_row_grads *out, uint64_t begin, uint64_t end)
{
    (void)self;
    for (uint64_t i = begin; i < end; i++) {
        out->d_lse[i] = s->lse[i];
        out->d_target[i] = s->target[i];
        out->d_mean[i] = s->mean[i];
        out->d_m2[i] = s->m2[i];
        out->d_max[i] = s->max[i] + s->argmax[i];
        out->d_pz[i] = s->pz[i];
    }
}

static void half(const void *self, const struct bl_row_stats *before,
                 const struct bl_row_scale *out, uint64_t begin, uint64_t end)
{
    (void)self;
    (void)before;
    for (uint64_t i = begin; i < end; i++)
        out->scale[i] = 0.5;
}

static void negate(const void *self, uint64_t n, const float *x, float *y, float *dy)
{
    (void)self;
    for (uint64_t i = 0; i < n; i++) {
        if (dy != NULL)
            dy[i] = -1;
        if (y != NULL)
            y[i] = -x[i];
    }
}

static double on_matrix(void *self, const struct bl_host *host, const struct bl_tensor *head,
                        struct bl_tensor *gradient, double coefficient)
{
    struct fake *f = self;
    (void)host;
    (void)head;
    f->saw_gradient = gradient != NULL;
    if (gradient != NULL)
        ((float *)gradient->data)[0] += (float)coefficient;
    return f->weight_value;
}

static int32_t project(void *self, const struct bl_host *host, struct bl_tensor *t,
                       struct bl_error *err)
{
    struct fake *f = self;
    (void)host;
    trace(f);
    ((float *)t->data)[0] += 1;
    return f->fails ? bl_error_set(err, BL_EXIT_FAILED, "this went wrong") : 0;
}

/* ---- a set under test -------------------------------------------------------------------------
 */

enum { MAX = 4, ROWS = 1000 };

struct world {
    struct bl_backend backend;
    struct fake fakes[MAX];
    struct bl_plugin_instance items[MAX], *pointers[MAX];
    char names[MAX][16], calls[32];
    size_t count;
    struct bl_regularizers *set;
    double lse[ROWS], target[ROWS], mean[ROWS], sums[MAX];
    uint8_t valid[ROWS];
    double d_lse[ROWS], d_target[ROWS], d_mean[ROWS]; /* d_m2, d_max, d_pz: not wanted */
};

static struct world *world_new(void)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->backend.ops = &backend_ops;
    for (uint64_t i = 0; i < ROWS; i++) {
        w->lse[i] = 5 + bl_random_normal(1, 1, i);
        w->target[i] = bl_random_normal(1, 2, i);
        w->mean[i] = bl_random_normal(1, 3, i);
        w->valid[i] = i % 5 != 4;
        if (!w->valid[i])
            w->target[i] = NAN;
    }
    return w;
}

static void world_free(struct world *w)
{
    bl_regularizers_free(w->set);
    free(w);
}

static struct bl_plugin_instance *add(struct world *w, double coefficient,
                                      struct bl_regularizer_ops ops)
{
    size_t i = w->count++;
    struct bl_plugin_instance *item = &w->items[i];
    w->fakes[i].coefficient = coefficient;
    w->fakes[i].letter = (char)('a' + i);
    w->fakes[i].calls = w->calls;
    snprintf(w->names[i], sizeof w->names[i], "fake%zu", i);
    item->ops.regularizer = ops;
    item->name = w->names[i];
    item->self = &w->fakes[i];
    w->pointers[i] = item;
    return item;
}

static void make(struct world *w, uint64_t capacity)
{
    struct bl_error err = BL_ERROR_INIT;
    if (bl_regularizers_make(w->pointers, w->count, &w->backend, capacity, &w->set, &err) != 0)
        fail_msg("%s", err.text);
}

/* Feeds all rows in chunks of `chunk`. */
static void feed(struct world *w, uint64_t chunk)
{
    const struct bl_head_hooks *h = bl_regularizers_hooks(w->set);
    memset(w->d_lse, 0, sizeof w->d_lse);
    memset(w->d_target, 0, sizeof w->d_target);
    memset(w->d_mean, 0, sizeof w->d_mean);
    for (uint64_t at = 0; at < ROWS; at += chunk) {
        struct bl_row_stats s = {.size = sizeof s,
                                 .count = at + chunk < ROWS ? chunk : ROWS - at,
                                 .vocab = 10,
                                 .lse = w->lse + at,
                                 .target = w->target + at,
                                 .mean = w->mean + at,
                                 .valid = w->valid + at};
        struct bl_row_grads g = {.size = sizeof g,
                                 .d_lse = w->d_lse + at,
                                 .d_target = w->d_target + at,
                                 .d_mean = w->d_mean + at};
        h->rows(h->context, &s, &g);
    }
}

static double squares(const struct world *w)
{
    double sum = 0;
    for (uint64_t i = 0; i < ROWS; i++)
        sum += w->valid[i] ? w->lse[i] * w->lse[i] : 0;
    return sum;
}

#define ROWS_OP(f, c) ((struct bl_regularizer_ops){.coefficient = (c), .rows = (f)})

/* ---- tests ------------------------------------------------------------------------------------
 */

/* As a run of one rank does it; the sums are valid until the next call. */
static double *sum_rows(struct world *w)
{
    bl_regularizers_sums(w->set, 0, ROWS, w->sums);
    for (size_t i = 0; i < w->count; i++)
        bl_regularizers_set_sum(w->set, i, w->sums[i]);
    return w->sums;
}

static void test_nothing(void **state)
{
    (void)state;
    struct world *w = world_new();
    make(w, 0);
    const struct bl_head_hooks *h = bl_regularizers_hooks(w->set);
    assert_true(h->rows == NULL && h->transforms == 0 && h->needs == 0);
    assert_false(bl_regularizers_has_project_weight(w->set));
    sum_rows(w);
    assert_true(bl_regularizers_aux(w->set, 10) == 0);
    world_free(w);
}

static void test_values_and_derivatives(void **state)
{
    (void)state;
    struct world *w = world_new();
    add(w, 0.5, ROWS_OP(square, constant));
    add(w, 0.25, ROWS_OP(margin, constant));
    make(w, ROWS);
    feed(w, ROWS);
    for (uint64_t i = 0; i < ROWS; i++) {
        int v = w->valid[i];
        assert_true(w->d_lse[i] == (v ? w->lse[i] : 0));
        assert_true(w->d_target[i] == (v ? 0.25 : 0));
        assert_true(w->d_mean[i] == (v ? -0.25 : 0));
    }
    double *sums = sum_rows(w), margins = 0;
    for (uint64_t i = 0; i < ROWS; i++)
        margins += w->valid[i] ? w->target[i] - w->mean[i] : 0;
    assert_true(sums[0] == squares(w) && sums[1] == margins);
    assert_true(bl_regularizers_value(w->set, 0, 800) == squares(w) / 800);
    double aux = 0.5 * (squares(w) / 800) + 0.25 * (margins / 800);
    assert_true(fabs(bl_regularizers_aux(w->set, 800) - aux) <= 1e-15 * fabs(aux));
    bl_regularizers_set_sum(w->set, 0, 1600); /* what a sum over ranks does */
    assert_true(bl_regularizers_value(w->set, 0, 800) == 2);
    world_free(w);
}

static void test_chunks_and_order_do_not_matter(void **state)
{
    (void)state;
    static const uint64_t chunks[] = {1, 7, 256, 257, 999};
    struct world *w = world_new();
    double expected[2], derivative[ROWS];
    add(w, 0.5, ROWS_OP(square, constant));
    add(w, 0.25, ROWS_OP(margin, constant));
    make(w, ROWS);
    feed(w, ROWS);
    memcpy(expected, sum_rows(w), sizeof expected);
    memcpy(derivative, w->d_lse, sizeof derivative);
    for (size_t k = 0; k < 2 * sizeof chunks / sizeof chunks[0]; k++) {
        w->backend.state = k % 2 ? w : NULL; /* backwards */
        bl_regularizers_begin(w->set, 2);
        feed(w, chunks[k / 2]);
        assert_memory_equal(sum_rows(w), expected, sizeof expected);
        assert_memory_equal(w->d_lse, derivative, sizeof derivative);
    }
    world_free(w);
}

static void test_null_is_measured_only(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct bl_regularizer_ops all = ROWS_OP(square, constant);
    all.row_scale = half;
    all.weight_grad = on_matrix;
    all.project_grad = project;
    all.project_weight = project;
    add(w, 0.5, all)->null = 1;
    w->fakes[0].weight_value = 3;
    make(w, ROWS);
    assert_int_equal(bl_regularizers_hooks(w->set)->transforms, 0);
    assert_false(bl_regularizers_has_project_grad(w->set));
    assert_false(bl_regularizers_has_project_weight(w->set));
    feed(w, 100);
    for (uint64_t i = 0; i < ROWS; i++)
        assert_true(w->d_lse[i] == 0);
    sum_rows(w);
    float x[2] = {0, 0};
    struct bl_tensor t = {.size = sizeof t, .data = x};
    struct bl_error err = BL_ERROR_INIT;
    bl_regularizers_weight_grad(w->set, &t, &t);
    assert_false(w->fakes[0].saw_gradient);
    assert_int_equal(bl_regularizers_project_grad(w->set, &t, &err), 0);
    assert_int_equal(bl_regularizers_project_weight(w->set, &t, &err), 0);
    assert_true(x[0] == 0 && w->calls[0] == '\0');
    assert_true(bl_regularizers_value(w->set, 0, ROWS) == squares(w) / ROWS + 3);
    assert_true(bl_regularizers_aux(w->set, ROWS) == 0);
    world_free(w);
}

static void test_every_statistic_and_derivative(void **state)
{
    (void)state;
    enum { N = 600, ARRAYS = 6 };
    struct world *w = world_new();
    double in[ARRAYS][N], out[ARRAYS][N];
    int32_t argmax[N];
    uint8_t valid[N];
    add(w, 0.5, ROWS_OP(all_of_them, constant));
    make(w, N);
    for (int i = 0; i < N; i++) {
        for (int k = 0; k < ARRAYS; k++) {
            in[k][i] = 1000 * k + i;
            out[k][i] = 1;
        }
        argmax[i] = 3 * i;
        valid[i] = 1;
    }
    const struct bl_head_hooks *h = bl_regularizers_hooks(w->set);
    h->rows(h->context,
            &(struct bl_row_stats){sizeof(struct bl_row_stats), 0, N, 10, in[0], in[1], in[2],
                                   in[3], in[4], argmax, in[5], valid},
            &(struct bl_row_grads){sizeof(struct bl_row_grads), 0, NULL, out[0], out[1], out[2],
                                   out[3], out[4], out[5]});
    for (int i = 0; i < N; i++)
        for (int k = 0; k < ARRAYS; k++)
            assert_true(out[k][i] == 1 + 0.5 * (in[k][i] + (k == 4 ? argmax[i] : 0)));
    world_free(w);
}

static void test_coefficient_of_the_step(void **state)
{
    (void)state;
    struct world *w = world_new();
    add(w, 0.125, ROWS_OP(square, by_step));
    make(w, ROWS);
    for (uint64_t step = 1; step < 4; step++) {
        bl_regularizers_begin(w->set, step);
        feed(w, ROWS);
        sum_rows(w);
        assert_true(w->d_lse[0] == 0.125 * (double)step * 2 * w->lse[0]);
        assert_true(bl_regularizers_aux(w->set, 1) == 0.125 * (double)step * squares(w));
    }
    world_free(w);
}

static void test_transforms_in_order(void **state)
{
    (void)state;
    struct world *w = world_new();
    add(w, 1, (struct bl_regularizer_ops){.row_scale = half});
    add(w, 1, (struct bl_regularizer_ops){.element = negate})->null = 1;
    add(w, 1, (struct bl_regularizer_ops){.element = negate});
    make(w, 0);
    const struct bl_head_hooks *h = bl_regularizers_hooks(w->set);
    assert_int_equal(h->transforms, 2);
    assert_null(h->rows);
    assert_int_equal(h->transform_kind(h->context, 0), 2);
    assert_int_equal(h->transform_kind(h->context, 1), 1);
    double scale[600], d_mean[600], d_m2[600];
    for (int i = 0; i < 600; i++)
        scale[i] = d_mean[i] = d_m2[i] = 9;
    h->row_scale(
        h->context, 0, &(struct bl_row_stats){.size = sizeof(struct bl_row_stats), .count = 600},
        &(struct bl_row_scale){
            .size = sizeof(struct bl_row_scale), .scale = scale, .d_mean = d_mean, .d_m2 = d_m2});
    for (int i = 0; i < 600; i++)
        assert_true(scale[i] == 0.5 && d_mean[i] == 0 && d_m2[i] == 0);
    float x[3] = {1, -2, 3}, dy[3];
    h->element(h->context, 1, 3, x, x, dy);
    assert_true(x[1] == 2 && dy[1] == -1);
    assert_true(isnan(bl_regularizers_value(w->set, 0, 1)));
    assert_false(bl_regularizers_has_value(w->set, 0));
    assert_true(bl_regularizers_aux(w->set, 1) == 0);
    world_free(w);
}

static void test_evaluation_counts_nothing(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct bl_regularizer_ops pz = ROWS_OP(square, constant);
    pz.needs = BL_NEED_PZ;
    add(w, 1, pz);
    add(w, 1, (struct bl_regularizer_ops){.element = negate});
    make(w, ROWS);
    assert_int_equal(bl_regularizers_hooks(w->set)->needs, BL_NEED_PZ);
    assert_non_null(bl_regularizers_hooks(w->set)->rows);
    assert_int_equal(bl_regularizers_transforms(w->set)->transforms, 1);
    assert_null(bl_regularizers_transforms(w->set)->rows);
    assert_int_equal(bl_regularizers_transforms(w->set)->needs, 0);
    world_free(w);
}

static void test_matrix(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct bl_regularizer_ops ops = {.coefficient = by_step, .weight_grad = on_matrix};
    add(w, 0.5, ops);
    w->fakes[0].weight_value = 7;
    make(w, 0);
    assert_true(bl_regularizers_has_weight_grad(w->set));
    bl_regularizers_begin(w->set, 3);
    sum_rows(w);
    float x[2] = {10, 0};
    struct bl_tensor t = {.size = sizeof t, .data = x};
    bl_regularizers_weight_grad(w->set, &t, &t);
    assert_true(x[0] == 11.5f);
    assert_true(bl_regularizers_value(w->set, 0, 4) == 7);
    assert_true(bl_regularizers_aux(w->set, 4) == 10.5);
    world_free(w);
}

static void test_projections(void **state)
{
    (void)state;
    struct world *w = world_new();
    struct bl_error err = BL_ERROR_INIT;
    float x[1] = {0};
    struct bl_tensor t = {.size = sizeof t, .data = x};
    for (int i = 0; i < 3; i++)
        add(w, 1, (struct bl_regularizer_ops){.project_weight = project});
    make(w, 0);
    assert_true(bl_regularizers_has_project_weight(w->set));
    assert_false(bl_regularizers_has_project_grad(w->set));
    assert_int_equal(bl_regularizers_project_grad(w->set, &t, &err), 0);
    assert_string_equal(w->calls, "");
    assert_int_equal(bl_regularizers_project_weight(w->set, &t, &err), 0);
    assert_string_equal(w->calls, "abc");
    w->calls[0] = '\0';
    w->fakes[1].fails = 1;
    assert_int_equal(bl_regularizers_project_weight(w->set, &t, &err), -1);
    assert_string_equal(w->calls, "ab");
    assert_non_null(strstr(err.text, "fake1"));
    assert_non_null(strstr(err.text, "this went wrong"));
    world_free(w);
}

static void test_too_many_rows_show(void **state)
{
    (void)state;
    struct world *w = world_new();
    add(w, 1, ROWS_OP(square, constant));
    make(w, ROWS - 1);
    feed(w, 100);
    assert_true(isnan(sum_rows(w)[0]));
    bl_regularizers_begin(w->set, 2);
    assert_true(sum_rows(w)[0] == 0);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_values_and_derivatives),
        cmocka_unit_test(test_chunks_and_order_do_not_matter),
        cmocka_unit_test(test_null_is_measured_only),
        cmocka_unit_test(test_every_statistic_and_derivative),
        cmocka_unit_test(test_coefficient_of_the_step),
        cmocka_unit_test(test_transforms_in_order),
        cmocka_unit_test(test_evaluation_counts_nothing),
        cmocka_unit_test(test_matrix),
        cmocka_unit_test(test_projections),
        cmocka_unit_test(test_too_many_rows_show),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
