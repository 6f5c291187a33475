/* Checks of what acts in a training step: schedules, precision, optimizers, guards, monitors. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "config/schema.h"
#include "plugin/trial.h"

/* ---- schedule ---------------------------------------------------------------------------------*/

static double factor_at(const struct bl_plugin_instance *i, uint64_t update, uint64_t warmup,
                        uint64_t updates)
{
    struct bl_schedule_point point = {
        .size = sizeof point, .update = update, .warmup = warmup, .updates = updates};
    return i->ops.schedule.factor(i->self, &point);
}

static const struct {
    uint64_t warmup, updates;
} plans[] = {{0, 100}, {10, 100}, {100, 100}, {0, 1}, {99, 100}, {2000, 1000000}};
enum { PLANS = sizeof plans / sizeof plans[0], POINTS = 200 };

/* Point k of POINTS over a plan's curve; the last are its end and one past it (an evaluation of
 * a finished run asks for that). */
static uint64_t point_of(unsigned plan, unsigned k)
{
    uint64_t length = plans[plan].updates - plans[plan].warmup;
    return plans[plan].warmup + (length + 1) * k / (POINTS - 1);
}

static enum bl_outcome check_schedule(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    for (unsigned p = 0; outcome == BL_CHECK_OK && p < PLANS; p++)
        for (unsigned k = 0; k < POINTS; k++) {
            double f = factor_at(i, point_of(p, k), plans[p].warmup, plans[p].updates);
            BL_EXPECT(t, isfinite(f) && f >= 0, "%g at update %llu of %llu, warmup %llu", f,
                      (unsigned long long)point_of(p, k), (unsigned long long)plans[p].updates,
                      (unsigned long long)plans[p].warmup);
        }
    return outcome;
}

static enum bl_outcome check_pure(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL, *other = NULL;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome == BL_CHECK_OK)
        outcome = bl_trial_instance(t, &other);
    if (outcome != BL_CHECK_OK)
        return outcome;
    double up[POINTS];
    for (unsigned p = 0; p < PLANS; p++) {
        for (unsigned k = 0; k < POINTS; k++)
            up[k] = factor_at(i, point_of(p, k), plans[p].warmup, plans[p].updates);
        for (unsigned k = POINTS; k-- > 0;) {
            double down = factor_at(i, point_of(p, k), plans[p].warmup, plans[p].updates);
            double fresh = factor_at(other, point_of(p, k), plans[p].warmup, plans[p].updates);
            BL_EXPECT(t, memcmp(&down, &up[k], sizeof down) == 0,
                      "update %llu of %llu gives %.17g, and %.17g when asked again: a resumed run "
                      "would differ",
                      (unsigned long long)point_of(p, k), (unsigned long long)plans[p].updates,
                      up[k], down);
            BL_EXPECT(t, memcmp(&fresh, &up[k], sizeof fresh) == 0,
                      "another instance gives %.17g, not %.17g", fresh, up[k]);
        }
    }
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_schedule[] = {
    {"factor finite and not negative", check_schedule, 0},
    {"factor is pure", check_pure, 0},
    {NULL, NULL, 0},
};

/* ---- precision --------------------------------------------------------------------------------*/

/* Number of values of a dial whose value is no dtype; 0: a dtype. */
static uint32_t values_of(uint32_t dial)
{
    switch (dial) {
    case BL_DIAL_AVERAGE:
        return BL_AVERAGE_PREDIVIDE + 1;
    case BL_DIAL_ALGORITHM:
        return BL_ALGORITHM_HYBRID + 1;
    case BL_DIAL_COLLECTIVE:
        return BL_COLLECTIVE_REDUCE_SCATTER + 1;
    case BL_DIAL_ROUNDING:
        return BL_ROUND_KAHAN + 1;
    case BL_DIAL_SUM_ROUNDING:
        return BL_ROUND_STOCHASTIC + 1;
    default:
        return 0;
    }
}

static void start_table(struct bl_precision *table)
{
    memset(table, 0, sizeof *table);
    table->size = sizeof *table;
    for (uint32_t g = 0; g < 8; g++)
        for (uint32_t d = 0; d < BL_DIAL_COUNT; d++)
            table->dial[g][d] = values_of(d) == 0 ? BL_FP32 : 0;
}

static enum bl_outcome check_precision(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    struct bl_precision first, again;
    start_table(&first);
    start_table(&again);
    i->ops.precision.fill(i->self, &first);
    i->ops.precision.fill(i->self, &again);
    BL_EXPECT(t, memcmp(&first, &again, sizeof first) == 0, "fill gives two tables");
    BL_EXPECT(t, first.size == sizeof first, "fill wrote to the table's size");
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++)
        for (uint32_t d = 0; d < BL_DIAL_COUNT; d++) {
            uint32_t value = first.dial[g][d], count = values_of(d);
            int known = count > 0 ? value < count : value == BL_FP32 || value == BL_BF16;
            BL_EXPECT(t, known, "%s.%s = %u, which no dial value is", bl_group_name(g),
                      bl_dial_name(d) != NULL ? bl_dial_name(d) : "?", (unsigned)value);
        }
    struct bl_precision blank;
    start_table(&blank);
    for (uint32_t g = 0; g < 8; g++)
        for (uint32_t d = g < BL_GROUP_COUNT ? BL_DIAL_COUNT : 0; d < 32; d++)
            BL_EXPECT(t, first.dial[g][d] == blank.dial[g][d],
                      "it sets dial %u of group %u, which this version does not have", (unsigned)d,
                      (unsigned)g);
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_precision[] = {
    {"table of known values", check_precision, 0},
    {NULL, NULL, 0},
};

/* ---- optimizer --------------------------------------------------------------------------------*/

enum { ELEMENTS = 1000, PIECE = 64, STATES = 8 };

/* One parameter on the quadratic sum (w - 3)^2 / 2, whose gradient is w - 3. */
struct parameter {
    float w[ELEMENTS], g[ELEMENTS], state[STATES][ELEMENTS];
};

static void start_parameter(struct parameter *p)
{
    memset(p, 0, sizeof *p);
    for (uint64_t k = 0; k < ELEMENTS; k++)
        p->w[k] = (float)bl_trial_normal(60, k);
}

/* As the host does before prepare and apply; an error shows as a result that is not finite. */
static void look(const struct bl_plugin_instance *i, struct bl_update *u)
{
    struct bl_error err = BL_ERROR_INIT;
    if (i->ops.optimizer.survey != NULL &&
        i->ops.optimizer.survey(i->self, &i->host, u, &u->surveyed, &err) != 0)
        u->surveyed = NAN;
}

static void update(const struct bl_plugin_instance *i, struct parameter *p, uint64_t step,
                   double rate, double scale, int reversed, double *squares)
{
    float *state[STATES];
    const struct bl_optimizer_ops *o = &i->ops.optimizer;
    for (uint32_t s = 0; s < STATES; s++)
        state[s] = p->state[s];
    for (uint64_t k = 0; k < ELEMENTS; k++)
        p->g[k] = p->w[k] - 3;
    struct bl_update u = {.size = sizeof u,
                          .step = step,
                          .count = ELEMENTS,
                          .key = 7,
                          .weight = p->w,
                          .gradient = p->g,
                          .state = state,
                          .gradient_scale = 1,
                          .learning_rate = rate,
                          .epsilon = NAN,
                          .update_scale = scale,
                          .peak_learning_rate = rate,
                          .ndim = 1,
                          .rows = ELEMENTS,
                          .columns = 1,
                          .name = "trial"};
    look(i, &u);
    *squares = o->prepare != NULL ? o->prepare(i->self, &u, 0, ELEMENTS) : NAN;
    const uint64_t pieces = (ELEMENTS + PIECE - 1) / PIECE;
    for (uint64_t n = 0; n < pieces; n++) {
        uint64_t begin = (reversed ? pieces - 1 - n : n) * PIECE;
        uint64_t end = begin + PIECE < ELEMENTS ? begin + PIECE : ELEMENTS;
        o->apply(i->self, &u, begin, end);
    }
}

static double distance(const struct parameter *p)
{
    double sum = 0;
    for (uint64_t k = 0; k < ELEMENTS; k++)
        sum += ((double)p->w[k] - 3) * ((double)p->w[k] - 3);
    return sum;
}

static enum bl_outcome all_finite(struct bl_trial *t, const struct bl_plugin_instance *i,
                                  const struct parameter *p)
{
    uint32_t states = i->ops.optimizer.states(i->self);
    for (uint64_t k = 0; k < ELEMENTS; k++)
        BL_EXPECT(t, isfinite(p->w[k]), "weight %llu becomes %g", (unsigned long long)k,
                  (double)p->w[k]);
    for (uint32_t s = 0; s < states; s++)
        for (uint64_t k = 0; k < ELEMENTS; k++)
            BL_EXPECT(t, isfinite(p->state[s][k]), "element %llu of state %s becomes %g",
                      (unsigned long long)k, i->ops.optimizer.state_name(i->self, s),
                      (double)p->state[s][k]);
    return BL_CHECK_OK;
}

static enum bl_outcome check_descent(struct bl_trial *t)
{
    struct parameter p;
    struct bl_plugin_instance *i = NULL;
    double squares;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    start_parameter(&p);
    double before = distance(&p);
    for (uint64_t step = 1; step <= 2; step++)
        update(i, &p, step, 1e-3, 1, 0, &squares);
    outcome = all_finite(t, i, &p);
    if (outcome != BL_CHECK_OK)
        return outcome;
    BL_EXPECT(t, distance(&p) < before,
              "two steps with learning rate 1e-3 on sum (w - 3)^2 / 2 bring the weights no nearer "
              "to 3 (squared distance %.9g, before %.9g)",
              distance(&p), before);
    return BL_CHECK_OK;
}

static enum bl_outcome check_order(struct bl_trial *t)
{
    struct parameter a, b;
    struct bl_plugin_instance *i = NULL;
    double squares;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    start_parameter(&a);
    start_parameter(&b);
    for (uint64_t step = 1; step <= 3; step++) {
        update(i, &a, step, 1e-2, 1, 0, &squares);
        update(i, &b, step, 1e-2, 1, 1, &squares);
    }
    BL_EXPECT(t, memcmp(&a, &b, sizeof a) == 0,
              "weights or states have other bits when the ranges come in reversed order");
    return BL_CHECK_OK;
}

static enum bl_outcome check_zero(struct bl_trial *t)
{
    struct parameter a, before;
    struct bl_plugin_instance *i = NULL;
    double squares;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    for (int skip = 0; skip < 2; skip++) {
        start_parameter(&a);
        before = a;
        for (uint64_t step = 1; step <= 2; step++)
            update(i, &a, step, skip ? 1e-2 : 0, skip ? 0 : 1, 0, &squares);
        BL_EXPECT(t, memcmp(a.w, before.w, sizeof a.w) == 0, "%s changes weights",
                  skip ? "update_scale 0" : "a learning rate of 0");
        outcome = all_finite(t, i, &a);
        if (outcome != BL_CHECK_OK)
            return outcome;
    }
    return BL_CHECK_OK;
}

static enum bl_outcome check_prepare(struct bl_trial *t)
{
    struct parameter p, before, kept;
    struct bl_plugin_instance *i = NULL;
    double squares = NAN;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    if (i->ops.optimizer.prepare == NULL)
        return bl_trial_skip(t, "it has no prepare; guards on updates are refused with it");
    start_parameter(&p);
    for (uint64_t step = 1; step <= 3; step++) {
        before = p;
        update(i, &p, step, 1e-2, 1, 0, &squares);
        double sum = 0;
        for (uint64_t k = 0; k < ELEMENTS; k++) {
            double d = (double)p.w[k] - (double)before.w[k];
            sum += d * d;
        }
        /* Both are fp64 sums of the same fp32 differences, perhaps in another order. */
        BL_EXPECT(t, fabs(squares - sum) <= 1e-9 * sum,
                  "prepare says that the squared update is %.12g, apply makes it %.12g", squares,
                  sum);
    }
    kept = p;
    float *state[STATES];
    for (uint32_t s = 0; s < STATES; s++)
        state[s] = p.state[s];
    struct bl_update u = {.size = sizeof u,
                          .step = 4,
                          .count = ELEMENTS,
                          .weight = p.w,
                          .gradient = p.g,
                          .state = state,
                          .gradient_scale = 1,
                          .learning_rate = 1e-2,
                          .epsilon = NAN,
                          .update_scale = 1,
                          .peak_learning_rate = 1e-2,
                          .ndim = 1,
                          .rows = ELEMENTS,
                          .columns = 1,
                          .name = "trial"};
    look(i, &u);
    BL_EXPECT(t, memcmp(&kept, &p, sizeof p) == 0, "survey writes to weights or states");
    i->ops.optimizer.prepare(i->self, &u, 0, ELEMENTS);
    BL_EXPECT(t, memcmp(&kept, &p, sizeof p) == 0, "prepare writes to weights or states");
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_optimizer[] = {
    {"two steps on a quadratic", check_descent, 0},
    {"same bits in any order", check_order, 0},
    {"learning rate 0 and skipping leave weights", check_zero, 0},
    {"prepare agrees with apply", check_prepare, 0},
    {NULL, NULL, 0},
};

/* ---- guard ------------------------------------------------------------------------------------*/

static enum bl_outcome check_verdict(struct bl_trial *t, const char *op, double norm, double loss,
                                     const struct bl_verdict *v)
{
    BL_EXPECT(t, v->scale >= 0 && v->scale <= FLT_MAX, "%s: norm %g, loss %g: scale %g", op, norm,
              loss, v->scale);
    BL_EXPECT(t, v->skip <= 1, "%s: norm %g, loss %g: skip %u", op, norm, loss, (unsigned)v->skip);
    return BL_CHECK_OK;
}

static enum bl_outcome check_guard(struct bl_trial *t)
{
    const double norms[] = {1, 0, 1e-30, 1e6, INFINITY, NAN, 1, 1e300, 0.5};
    const double losses[] = {3, NAN, INFINITY};
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    /* Some guards judge only after a history. */
    for (int history = 0; outcome == BL_CHECK_OK && history < 2; history++) {
        if (bl_trial_use(t, i, history ? 200 : 0, &err) != 0)
            return bl_trial_fail(t, "%s", err.text);
        for (size_t k = 0; k < 27 && outcome == BL_CHECK_OK; k++) {
            const struct bl_guard_ops *o = &i->ops.guard;
            struct bl_guard_input in = {.size = sizeof in,
                                        .step = 201 + k,
                                        .loss = losses[k % 3],
                                        .norm = norms[k / 3],
                                        .learning_rate = 1e-3};
            struct bl_verdict a = {.size = sizeof a, .scale = 1}, b = a;
            uint32_t changed = 0;
            if (o->gradient != NULL && o->gradient(i->self, &i->host, &in, &a, &changed, &err) == 0)
                outcome = check_verdict(t, "gradient", in.norm, in.loss, &a);
            if (outcome == BL_CHECK_OK && o->update != NULL &&
                o->update(i->self, &i->host, &in, &b, &err) == 0)
                outcome = check_verdict(t, "update", in.norm, in.loss, &b);
            if (o->settle != NULL)
                o->settle(i->self, a.skip | b.skip);
        }
    }
    return outcome;
}

/* Two instances that saw the same give the same verdicts: a resumed run depends on it. */
static enum bl_outcome check_same(struct bl_trial *t)
{
    struct bl_plugin_instance *i[2] = {NULL, NULL};
    struct bl_verdict out[2];
    struct bl_error err = BL_ERROR_INIT;
    uint64_t hash[2];
    float kept[sizeof t->data / sizeof(float)];
    memcpy(kept, t->data, sizeof kept);
    for (int k = 0; k < 2; k++) {
        enum bl_outcome outcome = bl_trial_instance(t, &i[k]);
        if (outcome != BL_CHECK_OK)
            return outcome;
    }
    for (uint64_t step = 1; step <= 150; step++)
        for (int k = 0; k < 2; k++) {
            const struct bl_guard_ops *o = &i[k]->ops.guard;
            double norm = exp(bl_trial_normal(71, step));
            struct bl_guard_input in = {.size = sizeof in,
                                        .step = step,
                                        .loss = 3 + 0.1 * bl_trial_normal(72, step),
                                        .norm = norm,
                                        .learning_rate = 1e-3};
            uint32_t changed = 0;
            memcpy(t->data, kept, sizeof kept);
            out[k] = (struct bl_verdict){.size = sizeof out[k], .scale = 1};
            if (o->gradient != NULL)
                o->gradient(i[k]->self, &i[k]->host, &in, &out[k], &changed, &err);
            if (o->update != NULL && !out[k].skip)
                o->update(i[k]->self, &i[k]->host, &in, &out[k], &err);
            if (o->settle != NULL)
                o->settle(i[k]->self, out[k].skip);
            hash[k] = bl_trial_hash(t);
            t->reversed = !t->reversed;
            BL_EXPECT(t,
                      k == 0 || (out[0].scale == out[1].scale && out[0].skip == out[1].skip &&
                                 hash[0] == hash[1]),
                      "step %llu: two instances that saw the same say scale %.17g and %.17g",
                      (unsigned long long)step, out[0].scale, out[1].scale);
        }
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_guard[] = {
    {"verdicts finite for any norm", check_guard, 0},
    {"verdicts depend on what was seen alone", check_same, 0},
    {NULL, NULL, 0},
};

/* ---- monitor ----------------------------------------------------------------------------------*/

static enum bl_outcome check_monitor(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    t->metrics = 0;
    BL_EXPECT(t, bl_trial_use(t, i, 5, &err) == 0, "%s", err.text);
    BL_EXPECT(t, t->bad_metric[0] == '\0', "%s is not finite", t->bad_metric);
    BL_EXPECT(t, t->metrics > 0, "five steps, and no metric");
    return BL_CHECK_OK;
}

static enum bl_outcome check_untouched(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    struct bl_error err = BL_ERROR_INIT;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    uint64_t before = bl_trial_hash(t);
    BL_EXPECT(t, bl_trial_use(t, i, 3, &err) == 0, "%s", err.text);
    BL_EXPECT(t, bl_trial_hash(t) == before, "it wrote to weights, gradients or states");
    return BL_CHECK_OK;
}

static enum bl_outcome check_needs(struct bl_trial *t)
{
    struct bl_plugin_instance *i = NULL;
    enum bl_outcome outcome = bl_trial_instance(t, &i);
    if (outcome != BL_CHECK_OK)
        return outcome;
    if (i->ops.monitor.needs == NULL)
        return bl_trial_skip(t, "it has no needs");
    uint32_t needs = i->ops.monitor.needs(i->self);
    uint32_t known =
        BL_MONITOR_PZ | BL_MONITOR_UPDATES | BL_MONITOR_CE_GRADIENT | BL_MONITOR_REDUCTION;
    BL_EXPECT(t, (needs & ~known) == 0, "it needs 0x%x, and the known bits are 0x%x",
              (unsigned)needs, (unsigned)known);
    return BL_CHECK_OK;
}

const struct bl_check bl_checks_monitor[] = {
    {"needs known quantities", check_needs, 0},
    {"metrics finite", check_monitor, 0},
    {"changes nothing", check_untouched, 0},
    {NULL, NULL, 0},
};
