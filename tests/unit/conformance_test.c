/* The mathematics behind `ballast plugin test`: right ops pass, and each derivative that is a
 * thousandth wrong is told. tests/shell/plugin.t does the same through the command. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "plugin/conformance.h"
#include "plugin/sample_rows.h"

/* Which derivative is wrong: 0 none, 1 lse, 2 target, 3 mean, 4 m2, 5 max, 6 pz. */
static void rows(const void *self, const struct bl_row_stats *s, const struct bl_row_grads *out,
                 uint64_t begin, uint64_t end)
{
    const int wrong = *(const int *)self;
    for (uint64_t i = begin; i < end; i++) {
        double v = (double)s->vocab;
        out->value[i] = 0.3 * s->lse[i] * s->lse[i] - 0.7 * s->target[i] + sin(s->mean[i] / 50) +
                        s->m2[i] / v + 0.2 * s->max[i] + 0.4 * s->pz[i];
        out->d_lse[i] = 0.6 * s->lse[i] * (wrong == 1 ? 1.001 : 1);
        out->d_target[i] = -0.7 * (wrong == 2 ? 1.001 : 1);
        out->d_mean[i] = cos(s->mean[i] / 50) / 50 + (wrong == 3 ? 0.001 : 0);
        out->d_m2[i] = 1 / v * (wrong == 4 ? 1.001 : 1);
        out->d_max[i] = 0.2 * (wrong == 5 ? 1.001 : 1);
        out->d_pz[i] = 0.4 * (wrong == 6 ? 1.001 : 1);
    }
}

static const struct bl_regularizer_ops row_ops = {.needs = BL_NEED_PZ, .rows = rows};

static void test_every_derivative(void **state)
{
    (void)state;
    for (int wrong = 0; wrong <= 6; wrong++) {
        struct bl_error err = BL_ERROR_INIT;
        int rc = bl_sample_check_rows(&row_ops, &wrong, &err);
        if ((rc == 0) != (wrong == 0))
            fail_msg("derivative %d: answer %d: %s", wrong, rc, err.text);
        assert_true(wrong == 0 || strstr(err.text, "difference") != NULL);
    }
}

/* scale = 1 / sqrt(1 + m2 / V + mean^2) */
static void row_scale(const void *self, const struct bl_row_stats *s,
                      const struct bl_row_scale *out, uint64_t begin, uint64_t end)
{
    const int wrong = *(const int *)self;
    for (uint64_t i = begin; i < end; i++) {
        double v = (double)s->vocab, q = 1 + s->m2[i] / v + s->mean[i] * s->mean[i];
        double slope = -0.5 / (q * sqrt(q));
        out->scale[i] = 1 / sqrt(q);
        out->d_m2[i] = slope / v * (wrong == 1 ? 1.01 : 1);
        out->d_mean[i] = 2 * s->mean[i] * slope * (wrong == 2 ? 1.01 : 1);
    }
}

static void test_row_scale(void **state)
{
    static const struct bl_regularizer_ops ops = {.row_scale = row_scale};
    (void)state;
    for (int wrong = 0; wrong <= 2; wrong++) {
        struct bl_error err = BL_ERROR_INIT;
        int rc = bl_sample_check_row_scale(&ops, &wrong, &err);
        if ((rc == 0) != (wrong == 0))
            fail_msg("derivative %d: answer %d: %s", wrong, rc, err.text);
    }
}

static void element(const void *self, uint64_t n, const float *x, float *y, float *dy)
{
    const int wrong = *(const int *)self;
    for (uint64_t i = 0; i < n; i++) {
        float t = tanhf(x[i] / 30);
        if (dy != NULL)
            dy[i] = (1 - t * t) * (wrong == 1 ? 1.001f : 1) + (wrong == 2 && y != NULL ? 1e-6f : 0);
        if (y != NULL)
            y[i] = 30 * t;
    }
}

static void test_element(void **state)
{
    static const struct bl_regularizer_ops ops = {.element = element};
    (void)state;
    for (int wrong = 0; wrong <= 2; wrong++) {
        struct bl_error err = BL_ERROR_INIT;
        int rc = bl_sample_check_element(&ops, &wrong, &err);
        if ((rc == 0) != (wrong == 0))
            fail_msg("fault %d: answer %d: %s", wrong, rc, err.text);
    }
}

static void test_statistics(void **state)
{
    (void)state;
    /* z = (0, log 3): p = (1/4, 3/4) */
    const double z[2] = {0, log(3)};
    struct bl_sample_row r = bl_sample_statistics(2, z, 0);
    assert_true(fabs(r.lse - log(4)) < 1e-15);
    assert_true(fabs(r.mean - log(3) / 2) < 1e-15);
    assert_true(fabs(r.m2 - log(3) * log(3) / 2) < 1e-15);
    assert_true(fabs(r.pz - 0.75 * log(3)) < 1e-15);
    assert_true(r.max == z[1] && r.argmax == 1 && r.target == 0 && r.valid == 1);
    assert_true(isnan(bl_sample_statistics(2, z, -1).target));
}

/* Codes: the file is missing, an assignment is no path=value. */
static void test_usage(void **state)
{
    (void)state;
    char *bad[] = {(char[]){"=1"}};
    struct bl_conformance c = {.path = "/nowhere/x.so", .seconds = 10};
    struct bl_error err = BL_ERROR_INIT;
    FILE *out = tmpfile();
    assert_non_null(out);
    assert_int_equal(bl_conformance_run(&c, out, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    c.path = "/proc/self/exe";
    c.assignment = bad;
    c.assignments = 1;
    assert_int_equal(bl_conformance_run(&c, out, &err), -1);
    assert_int_equal(err.code, BL_EXIT_USAGE);
    /* This program is an ELF file and no plugin. */
    c.assignments = 0;
    assert_int_equal(bl_conformance_run(&c, out, &err), -1);
    assert_int_equal(err.code, BL_EXIT_PLUGIN);
    fclose(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_statistics), cmocka_unit_test(test_every_derivative),
        cmocka_unit_test(test_row_scale),  cmocka_unit_test(test_element),
        cmocka_unit_test(test_usage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
