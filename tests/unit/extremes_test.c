/* The whole model and head at the edge: logits with a large common offset, one token, and weights
 * that are no numbers. */
#include "model_support.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bl_precision mixed(void)
{
    struct bl_precision p = all_fp32();

    for (int g = 0; g < BL_GROUP_COUNT; g++)
        p.dial[g][BL_DIAL_COMPUTE] = BL_BF16;
    p.dial[BL_GROUP_HEAD][BL_DIAL_LOGITS] = p.dial[BL_GROUP_HEAD][BL_DIAL_DLOGITS] = BL_BF16;
    p.dial[BL_GROUP_MATRIX][BL_DIAL_ATTENTION_OUTPUT] = BL_BF16;
    return p;
}

/* ---- a common offset ----------------------------------------------------------------------------
 */

enum { VOCAB = 12 };

/* Logits of every row: the statistic of the target shows one of them a pass. */
static void read_logits(struct fixture *f, double z[][VOCAB])
{
    for (int v = 0; v < VOCAB; v++) {
        for (uint64_t i = 0; i < f->rows; i++)
            f->targets[i] = v;
        evaluate_loss(f, NULL);
        for (uint64_t i = 0; i < f->rows; i++)
            z[i][v] = f->stats.target[i];
    }
    for (uint64_t i = 0; i < f->rows; i++)
        f->targets[i] = (int32_t)(i % VOCAB);
}

/* The last norm has gain 0 in its first column and shift 1, and that column of the output matrix is
 * the offset. At 1e8 an fp32 logit is a multiple of 8: `spread` makes them differ by more. */
static void check_offset(double offset, double spread)
{
    enum { ROWS = 12 };
    struct bl_model_options o = tiny_options();
    double z[ROWS][VOCAB], want[VOCAB] = {0}, ce = 0;

    o.tied = 0;
    o.vocab = VOCAB;
    struct fixture *f = fixture_make(&o, NULL, 2, 2, 1, 0);
    const struct bl_params *p = f->params;
    uint64_t head = p->items[bl_params_find(p, "head.weight")].offset;
    assert_int_equal(f->rows, ROWS);
    f->weights[p->items[bl_params_find(p, "final_norm.weight")].offset] = 0;
    f->weights[p->items[bl_params_find(p, "final_norm.bias")].offset] = 1;
    for (uint64_t v = 0; v < VOCAB; v++) {
        for (uint64_t c = 1; c < 16; c++)
            f->weights[head + v * 16 + c] *= (float)spread;
        f->weights[head + v * 16] = (float)offset;
    }
    f->valid = ROWS;
    read_logits(f, z);
    fixture_train(f, 2, NULL, 0);

    /* exp and its sum are fp32 in the lanes: some u = 6e-8. The rest is fp64. */
    double ulp = ldexp(fabs(offset) + 1, -52);
    for (int i = 0; i < ROWS; i++) {
        double top = -INFINITY, sum = 0, mean = 0, m2 = 0;
        for (int v = 0; v < VOCAB; v++) {
            assert_true(fabs(z[i][v] - offset) < 100 * spread);
            top = fmax(top, z[i][v]);
            mean += z[i][v] / VOCAB;
        }
        for (int v = 0; v < VOCAB; v++) {
            sum += exp(z[i][v] - top);
            m2 += (z[i][v] - mean) * (z[i][v] - mean);
        }
        assert_true(m2 > 1);
        double lse = top + log(sum);
        if (!(fabs(f->stats.lse[i] - lse) <= 4e-7 + 2 * ulp))
            fail_msg("offset %g, row %d: lse is %.17g, wanted %.17g", offset, i, f->stats.lse[i],
                     lse);
        assert_true(fabs(f->stats.mean[i] - mean) <= 1e-6 * sqrt(m2) + 4 * ulp);
        assert_true(fabs(f->stats.m2[i] - m2) <= 1e-6 * m2);
        assert_true(f->stats.max[i] == top);
        ce += (lse - z[i][f->targets[i]]) / ROWS;
        for (int v = 0; v < VOCAB; v++)
            want[v] += (exp(z[i][v] - lse) - (v == f->targets[i])) / ROWS;
    }
    assert_true(fabs(cross_entropy(&f->stats) - ce) <= 4e-7 + 2 * ulp);
    /* In the column of ones the gradient is the mean of p - y; p has some u and the ulp of lse. */
    for (uint64_t v = 0; v < VOCAB; v++)
        if (!(fabs(f->gradients[head + v * 16] - want[v]) <= 1e-6 + 2 * ulp))
            fail_msg("offset %g: gradient of token %d is %g, wanted %g", offset, (int)v,
                     (double)f->gradients[head + v * 16], want[v]);
    fixture_free(f);
}

static void test_offsets(void **state)
{
    (void)state;
    check_offset(0, 1);
    check_offset(1e3, 1);
    check_offset(-1e3, 1);
    check_offset(1e8, 30);
    check_offset(-1e8, 30);
}

/* One token has probability 1 whatever its logit and whatever is rounded. */
static void test_one_token(void **state)
{
    struct bl_model_options o = tiny_options();
    struct bl_precision dials = mixed();

    (void)state;
    o.vocab = 1;
    for (o.tied = 0; o.tied < 2; o.tied++) {
        struct fixture *f = fixture_make(&o, &dials, 2, 2, 1, 0);
        const char *head = o.tied ? "embed.weight" : "head.weight";
        float *w = f->weights + f->params->items[bl_params_find(f->params, head)].offset;
        for (int c = 0; c < 16; c++)
            w[c] *= 1e6f;
        bl_model_refresh(f->model, 0, f->params->floats);
        fixture_train(f, 2, NULL, 0);
        assert_true(fabs(f->stats.lse[0]) > 1e4);
        assert_true(cross_entropy(&f->stats) == 0);
        for (uint64_t i = 0; i < f->params->floats; i++)
            assert_true(f->gradients[i] == 0);
        fixture_free(f);
    }
}

/* ---- no numbers ---------------------------------------------------------------------------------
 */

/* What a run stops at: a loss or a gradient norm that is not finite. */
static int shows(struct fixture *f)
{
    const struct bl_backend_ops *ops = f->backend->ops;
    double norm = 0;

    fixture_train(f, 2, NULL, 0);
    for (uint64_t i = 0; i < f->params->count; i++)
        norm += ops->sum_squares(f->backend, f->params->items[i].count,
                                 f->gradients + f->params->items[i].offset);
    return !isfinite(cross_entropy(&f->stats)) || !isfinite(norm);
}

static void test_no_numbers_are_not_hidden(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};

    (void)state;
    for (uint64_t i = 0; i < 16; i++) {
        struct bl_model_options o = switched_options(i);
        struct bl_precision dials = i % 2 ? mixed() : all_fp32();
        struct fixture *f = fixture_make(&o, &dials, 2, 2, 1, 0);
        assert_true(!shows(f));
        for (uint64_t k = 0; k < f->params->count; k++) {
            const struct bl_param *p = &f->params->items[k];
            uint64_t row = strcmp(p->name, "embed.weight") == 0 ? (uint64_t)f->tokens[0] : 0;
            float *w = f->weights + p->offset + row * (p->ndim == 2 ? p->dims[1] : 0), old = *w;
            for (size_t b = 0; b < sizeof(bad) / sizeof(bad[0]); b++) {
                *w = bad[b];
                bl_model_refresh(f->model, 0, f->params->floats);
                if (!shows(f))
                    fail_msg("model %d: %g in %s: loss %g", (int)i, (double)bad[b], p->name,
                             cross_entropy(&f->stats));
            }
            *w = old;
        }
        bl_model_refresh(f->model, 0, f->params->floats);
        assert_true(!shows(f)); /* nothing of it stays */
        fixture_free(f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_offsets),
        cmocka_unit_test(test_one_token),
        cmocka_unit_test(test_no_numbers_are_not_hidden),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
