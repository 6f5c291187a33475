/* Rows of logits for the tests of regularizers, and the checks of plugin/sample_rows.h as
 * assertions. The differences themselves are there: `ballast plugin test` makes the same ones. */
#include "tests/lib/plugin_test.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/random.h"
#include "plugin/sample_rows.h"

/* ---- rows and their statistics ----------------------------------------------------------------
 */

void bl_bench_rows_make(struct bl_bench_rows *r, uint64_t rows, uint64_t vocab)
{
    memset(r, 0, sizeof *r);
    r->rows = rows;
    r->vocab = vocab;
    double **arrays[] = {&r->lse,  &r->target_logit, &r->mean,  &r->m2,       &r->max,
                         &r->pz,   &r->value,        &r->d_lse, &r->d_target, &r->d_mean,
                         &r->d_m2, &r->d_max,        &r->d_pz};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        assert_non_null(*arrays[i] = calloc(rows, sizeof(double)));
    assert_non_null(r->z = calloc(rows * vocab, sizeof(double)));
    assert_non_null(r->target = calloc(rows, sizeof(int32_t)));
    assert_non_null(r->argmax = calloc(rows, sizeof(int32_t)));
    assert_non_null(r->valid = calloc(rows, 1));
    r->stats = (struct bl_row_stats){.size = sizeof r->stats,
                                     .count = rows,
                                     .vocab = vocab,
                                     .lse = r->lse,
                                     .target = r->target_logit,
                                     .mean = r->mean,
                                     .m2 = r->m2,
                                     .max = r->max,
                                     .argmax = r->argmax,
                                     .pz = r->pz,
                                     .valid = r->valid};
    r->grads = (struct bl_row_grads){.size = sizeof r->grads,
                                     .value = r->value,
                                     .d_lse = r->d_lse,
                                     .d_target = r->d_target,
                                     .d_mean = r->d_mean,
                                     .d_m2 = r->d_m2,
                                     .d_max = r->d_max,
                                     .d_pz = r->d_pz};
}

void bl_bench_rows_free(struct bl_bench_rows *r)
{
    void *arrays[] = {r->z,        r->target, r->lse,    r->target_logit, r->mean,  r->m2,
                      r->max,      r->pz,     r->argmax, r->valid,        r->value, r->d_lse,
                      r->d_target, r->d_mean, r->d_m2,   r->d_max,        r->d_pz};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        free(arrays[i]);
    memset(r, 0, sizeof *r);
}

void bl_bench_rows_stats(struct bl_bench_rows *r)
{
    for (uint64_t i = 0; i < r->rows; i++) {
        struct bl_sample_row s = bl_sample_statistics(r->vocab, r->z + i * r->vocab, r->target[i]);
        r->lse[i] = s.lse;
        r->target_logit[i] = s.target;
        r->mean[i] = s.mean;
        r->m2[i] = s.m2;
        r->max[i] = s.max;
        r->pz[i] = s.pz;
        r->argmax[i] = s.argmax;
        r->valid[i] = s.valid;
    }
}

void bl_bench_rows_fill(struct bl_bench_rows *r, uint64_t seed, double offset, double spread)
{
    for (uint64_t i = 0; i < r->rows; i++) {
        double *z = r->z + i * r->vocab;
        uint64_t top = 0;
        for (uint64_t v = 0; v < r->vocab; v++) {
            z[v] = offset + spread * bl_random_normal(seed, 1, i * r->vocab + v);
            top = z[v] > z[top] ? v : top;
        }
        /* A tie within the difference step would make the maximum's derivative ambiguous. */
        z[top] += 0.125;
        r->target[i] = i % 4 == 3 ? -1 : (int32_t)(bl_random(seed, 2, i) % r->vocab);
    }
    bl_bench_rows_stats(r);
}

static void clear_outputs(struct bl_bench_rows *r)
{
    double *outputs[] = {r->value, r->d_lse, r->d_target, r->d_mean, r->d_m2, r->d_max, r->d_pz};
    for (size_t i = 0; i < sizeof outputs / sizeof outputs[0]; i++)
        memset(outputs[i], 0, r->rows * sizeof(double));
}

void bl_bench_rows_call(const struct bl_bench *b, struct bl_bench_rows *r)
{
    clear_outputs(r);
    b->ops->regularizer.rows(b->self, &r->stats, &r->grads, 0, r->rows);
}

void bl_bench_rows_dz(const struct bl_bench_rows *r, uint64_t i, double *dz)
{
    const double *z = r->z + i * r->vocab;
    for (uint64_t v = 0; v < r->vocab; v++) {
        double p = exp(z[v] - r->lse[i]);
        dz[v] = r->d_lse[i] * p + r->d_mean[i] / (double)r->vocab +
                2 * r->d_m2[i] * (z[v] - r->mean[i]) + r->d_pz[i] * p * (1 + z[v] - r->pz[i]);
        dz[v] += (int64_t)v == r->target[i] ? r->d_target[i] : 0;
        dz[v] += (int64_t)v == r->argmax[i] ? r->d_max[i] : 0;
    }
}

double bl_bench_row_value(const struct bl_bench *b, uint64_t vocab, const double *z, int32_t target)
{
    struct bl_sample_row s = bl_sample_statistics(vocab, z, target);
    double out[7] = {0};
    struct bl_row_stats stats = {.size = sizeof stats,
                                 .count = 1,
                                 .vocab = vocab,
                                 .lse = &s.lse,
                                 .target = &s.target,
                                 .mean = &s.mean,
                                 .m2 = &s.m2,
                                 .max = &s.max,
                                 .argmax = &s.argmax,
                                 .pz = &s.pz,
                                 .valid = &s.valid};
    struct bl_row_grads grads = {.size = sizeof grads,
                                 .value = &out[0],
                                 .d_lse = &out[1],
                                 .d_target = &out[2],
                                 .d_mean = &out[3],
                                 .d_m2 = &out[4],
                                 .d_max = &out[5],
                                 .d_pz = &out[6]};
    b->ops->regularizer.rows(b->self, &stats, &grads, 0, 1);
    return out[0];
}

/* ---- checks -----------------------------------------------------------------------------------
 */

static void passes(const struct bl_bench *b,
                   int (*check)(const struct bl_regularizer_ops *, const void *, struct bl_error *))
{
    struct bl_error err = BL_ERROR_INIT;
    if (check(&b->ops->regularizer, b->self, &err) != 0)
        fail_msg("%s", err.text);
}

void bl_bench_check_rows(const struct bl_bench *b)
{
    assert_non_null(b->ops->regularizer.rows);
    assert_non_null(b->ops->regularizer.coefficient);
    passes(b, bl_sample_check_rows);
    passes(b, bl_sample_check_pieces);
    passes(b, bl_sample_check_masked);
}

void bl_bench_check_shift(const struct bl_bench *b, int changes)
{
    enum { V = 37 };
    static const double shifts[] = {1, 10, 1000};
    double z[V];
    for (uint64_t k = 0; k < sizeof shifts / sizeof shifts[0]; k++) {
        for (uint64_t v = 0; v < V; v++)
            z[v] = 1 + bl_bench_normal(3, v);
        double before = bl_bench_row_value(b, V, z, 5);
        for (uint64_t v = 0; v < V; v++)
            z[v] += shifts[k];
        double change = fabs(bl_bench_row_value(b, V, z, 5) - before);
        /* No change: what rounding each shifted logit to fp64 may leave. */
        double tolerance = 16 * DBL_EPSILON * (1 + shifts[k]) * (1 + fabs(before));
        if (changes ? change < 1e-3 * shifts[k] : change > tolerance)
            fail_msg("adding %g to all logits changes the value by %.3g", shifts[k], change);
    }
}

void bl_bench_check_transform(const struct bl_bench *b)
{
    const struct bl_regularizer_ops *ops = &b->ops->regularizer;
    assert_true((ops->row_scale != NULL) != (ops->element != NULL));
    passes(b, ops->row_scale != NULL ? bl_sample_check_row_scale : bl_sample_check_element);
}

/* ---- the output matrix ------------------------------------------------------------------------
 */

void bl_bench_check_weight_grad(struct bl_bench *b, uint64_t rows, uint64_t cols)
{
    const struct bl_regularizer_ops *ops = &b->ops->regularizer;
    struct bl_error err = BL_ERROR_INIT;
    float *data = calloc(3 * rows * cols, sizeof *data);
    struct bl_tensor t[3];
    assert_non_null(data);
    assert_non_null(ops->weight_grad);
    assert_non_null(ops->coefficient);
    for (uint64_t k = 0; k < 3; k++)
        t[k] = bl_bench_view("head.weight", BL_GROUP_HEAD, rows, cols, data + k * rows * cols);
    if (bl_sample_check_weight_grad(ops, b->self, b->host, &t[0], &t[1], &t[2], &b->reversed,
                                    &err) != 0)
        fail_msg("%s", err.text);
    free(data);
}
