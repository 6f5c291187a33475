/* Checks of regularizers. The mathematics of rows and transforms is in sample_rows.c. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "plugin/sample_rows.h"
#include "plugin/trial.h"

/* Head of the trial's model and a gradient for it. */
enum { HEAD = BL_TRIAL_TENSORS - 1, WEIGHT = 0, GRADIENT = 1, OTHER = 2 };

#define INSTANCE(t, i)                                                                             \
    struct bl_plugin_instance *i = NULL;                                                           \
    do {                                                                                           \
        enum bl_outcome made_ = bl_trial_instance(t, &i);                                          \
        if (made_ != BL_CHECK_OK)                                                                  \
            return made_;                                                                          \
    } while (0)

/* A check of sample_rows.c, with its message. */
static enum bl_outcome sampled(struct bl_trial *t, int (*check)(const struct bl_regularizer_ops *,
                                                                const void *, struct bl_error *))
{
    struct bl_error err = BL_ERROR_INIT;
    INSTANCE(t, i);
    return check(&i->ops.regularizer, i->self, &err) == 0 ? BL_CHECK_OK
                                                          : bl_trial_fail(t, "%s", err.text);
}

/* Only the ops struct is looked at: the plugin's own may be shorter than the host's. */
static int has(const struct bl_trial *t, size_t member)
{
    const char *ops = t->plugin->ops;
    void *op = NULL;
    if (member + sizeof op <= t->plugin->ops_size)
        memcpy(&op, ops + member, sizeof op);
    return op != NULL;
}
#define HAS(t, member) has(t, offsetof(struct bl_regularizer_ops, member))

static enum bl_outcome check_coefficient(struct bl_trial *t)
{
    if (!HAS(t, coefficient))
        return bl_trial_skip(t, "it has no coefficient");
    INSTANCE(t, i);
    const struct bl_regularizer_ops *o = &i->ops.regularizer;
    for (uint64_t step = 1; step <= t->info.steps + 1; step++) {
        double c = o->coefficient(i->self, step);
        BL_EXPECT(t, isfinite(c), "%g at update %llu", c, (unsigned long long)step);
    }
    double late = o->coefficient(i->self, 50), early = o->coefficient(i->self, 7);
    BL_EXPECT(t, o->coefficient(i->self, 50) == late && o->coefficient(i->self, 7) == early,
              "it depends on what was asked before; it must be a function of the update alone");
    return BL_CHECK_OK;
}

static enum bl_outcome check_rows(struct bl_trial *t)
{
    return HAS(t, rows) ? sampled(t, bl_sample_check_rows) : bl_trial_skip(t, "it has no rows");
}

static enum bl_outcome check_pieces(struct bl_trial *t)
{
    return HAS(t, rows) ? sampled(t, bl_sample_check_pieces) : bl_trial_skip(t, "it has no rows");
}

static enum bl_outcome check_masked(struct bl_trial *t)
{
    return HAS(t, rows) ? sampled(t, bl_sample_check_masked) : bl_trial_skip(t, "it has no rows");
}

static enum bl_outcome check_transform(struct bl_trial *t)
{
    if (HAS(t, element))
        return sampled(t, bl_sample_check_element);
    return HAS(t, row_scale) ? sampled(t, bl_sample_check_row_scale)
                             : bl_trial_skip(t, "it has neither element nor row_scale");
}

static enum bl_outcome check_weight_grad(struct bl_trial *t)
{
    if (!HAS(t, weight_grad))
        return bl_trial_skip(t, "it has no weight_grad");
    INSTANCE(t, i);
    struct bl_error err = BL_ERROR_INIT;
    struct bl_tensor head = bl_trial_tensor(t, HEAD, WEIGHT);
    struct bl_tensor gradient = bl_trial_tensor(t, HEAD, GRADIENT);
    struct bl_tensor other = bl_trial_tensor(t, HEAD, OTHER);
    return bl_sample_check_weight_grad(&i->ops.regularizer, i->self, &i->host, &head, &gradient,
                                       &other, &t->reversed, &err) == 0
               ? BL_CHECK_OK
               : bl_trial_fail(t, "%s", err.text);
}

/* A projection P has P P = P, and its bits do not depend on the order of parallel_for. */
static enum bl_outcome check_projection(struct bl_trial *t, int weight)
{
    INSTANCE(t, i);
    struct bl_error err = BL_ERROR_INIT;
    const struct bl_regularizer_ops *o = &i->ops.regularizer;
    int32_t (*project)(void *, const struct bl_host *, struct bl_tensor *, struct bl_error *) =
        weight ? o->project_weight : o->project_grad;
    struct bl_tensor a = bl_trial_tensor(t, HEAD, WEIGHT), b = bl_trial_tensor(t, HEAD, OTHER);
    float *x = a.data, *y = b.data;
    memcpy(y, x, a.count * sizeof *x);
    BL_EXPECT(t, project(i->self, &i->host, &a, &err) == 0, "%s", err.text);
    t->reversed = 1;
    BL_EXPECT(t, project(i->self, &i->host, &b, &err) == 0, "%s", err.text);
    BL_EXPECT(t, memcmp(x, y, a.count * sizeof *x) == 0,
              "its bits depend on the order of parallel_for");
    double top = 0;
    for (uint64_t k = 0; k < a.count; k++) {
        BL_EXPECT(t, isfinite(x[k]), "element %llu becomes %g", (unsigned long long)k,
                  (double)x[k]);
        top = fmax(top, fabs((double)x[k]));
    }
    BL_EXPECT(t, project(i->self, &i->host, &b, &err) == 0, "the second time: %s", err.text);
    /* What rounding to fp32 left the first time may be taken out the second time. */
    for (uint64_t k = 0; k < a.count; k++)
        BL_EXPECT(t, fabs((double)x[k] - (double)y[k]) <= 4 * (double)FLT_EPSILON * top,
                  "the second time element %llu goes from %.9g to %.9g: not a projection",
                  (unsigned long long)k, (double)x[k], (double)y[k]);
    return BL_CHECK_OK;
}

static enum bl_outcome check_project_grad(struct bl_trial *t)
{
    return HAS(t, project_grad) ? check_projection(t, 0)
                                : bl_trial_skip(t, "it has no project_grad");
}

static enum bl_outcome check_project_weight(struct bl_trial *t)
{
    return HAS(t, project_weight) ? check_projection(t, 1)
                                  : bl_trial_skip(t, "it has no project_weight");
}

const struct bl_check bl_checks_regularizer[] = {
    {"coefficient finite and pure", check_coefficient, 0},
    {"derivatives of rows", check_rows, 0},
    {"rows in pieces", check_pieces, 0},
    {"masked rows do not leak", check_masked, 0},
    {"derivative of the transform", check_transform, 0},
    {"derivative of weight_grad", check_weight_grad, 0},
    {"project_grad is a projection", check_project_grad, 0},
    {"project_weight is a projection", check_project_weight, 0},
    {NULL, NULL, 0},
};
