#include "regularizers.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* Rows handed to an op at once: their outputs live on the stack of the thread that does them. */
enum { BLOCK = 256 };

struct member {
    struct bl_plugin_instance *instance;
    const struct bl_regularizer_ops *ops;
    void *self;
    double coefficient; /* of this step */
    double *values;     /* (capacity,) of rows; NULL without rows */
    double weight_value;
};

struct bl_regularizers {
    struct bl_backend *backend;
    struct member *members;
    double *sums; /* (count,) */
    size_t count;
    struct member **transforms; /* those with a transform that are not null, config order */
    uint64_t capacity, next;    /* rows */
    int overflow;               /* more rows came than there is room for */
    struct bl_head_hooks hooks, evaluation;
};

/* ---- hooks ----------------------------------------------------------------------------------- */

static uint32_t transform_kind(void *context, uint32_t t)
{
    const struct bl_regularizers *set = context;
    return set->transforms[t]->ops->element != NULL ? 1 : 2;
}

static void element(void *context, uint32_t t, uint64_t n, const float *x, float *y, float *dy)
{
    const struct member *m = ((const struct bl_regularizers *)context)->transforms[t];
    m->ops->element(m->self, n, x, y, dy);
}

struct scale_job {
    const struct member *member;
    const struct bl_row_stats *before;
    const struct bl_row_scale *out;
};

static uint64_t block_end(uint64_t block, uint64_t count)
{
    uint64_t end = (block + 1) * BLOCK;
    return end < count ? end : count;
}

static void scale_block(void *argument, uint64_t block)
{
    const struct scale_job *j = argument;
    uint64_t begin = block * BLOCK, end = block_end(block, j->before->count);
    for (uint64_t i = begin; i < end; i++) {
        j->out->scale[i] = 1;
        j->out->d_mean[i] = j->out->d_m2[i] = 0;
    }
    j->member->ops->row_scale(j->member->self, j->before, j->out, begin, end);
}

static void row_scale(void *context, uint32_t t, const struct bl_row_stats *before,
                      const struct bl_row_scale *out)
{
    const struct bl_regularizers *set = context;
    struct scale_job j = {set->transforms[t], before, out};
    set->backend->ops->parallel_for(set->backend, (before->count + BLOCK - 1) / BLOCK, scale_block,
                                    &j);
}

struct rows_job {
    struct bl_regularizers *set;
    const struct bl_row_stats *stats;
    const struct bl_row_grads *out;
};

static const double *from(const double *array, uint64_t begin)
{
    return array != NULL ? array + begin : NULL;
}

/* The rows from `begin` on as an op sees them. */
static struct bl_row_stats window(const struct bl_row_stats *s, uint64_t begin, uint64_t n)
{
    struct bl_row_stats w = {.size = sizeof w,
                             .count = n,
                             .vocab = s->vocab,
                             .lse = from(s->lse, begin),
                             .target = from(s->target, begin),
                             .mean = from(s->mean, begin),
                             .m2 = from(s->m2, begin),
                             .max = from(s->max, begin),
                             .argmax = s->argmax != NULL ? s->argmax + begin : NULL,
                             .pz = from(s->pz, begin),
                             .valid = s->valid + begin};
    return w;
}

static void add(double *sum, double c, const double *x, const struct bl_row_stats *w,
                uint64_t begin)
{
    for (uint64_t i = 0; sum != NULL && i < w->count; i++)
        if (w->valid[i])
            sum[begin + i] += c * x[i];
}

static void rows_block(void *argument, uint64_t block)
{
    const struct rows_job *j = argument;
    struct bl_regularizers *set = j->set;
    const struct bl_row_grads *out = j->out;
    double value[BLOCK], d_lse[BLOCK], d_target[BLOCK], d_mean[BLOCK], d_m2[BLOCK], d_max[BLOCK],
        d_pz[BLOCK];
    double *const arrays[] = {value, d_lse, d_target, d_mean, d_m2, d_max, d_pz};
    const struct bl_row_grads local = {sizeof local, 0,    value, d_lse, d_target,
                                       d_mean,       d_m2, d_max, d_pz};
    uint64_t begin = block * BLOCK;
    struct bl_row_stats w = window(j->stats, begin, block_end(block, j->stats->count) - begin);
    for (size_t k = 0; k < set->count; k++) {
        const struct member *m = &set->members[k];
        if (m->ops->rows == NULL)
            continue;
        for (size_t a = 0; a < sizeof arrays / sizeof arrays[0]; a++)
            memset(arrays[a], 0, w.count * sizeof(double));
        m->ops->rows(m->self, &w, &local, 0, w.count);
        for (uint64_t i = 0; !set->overflow && i < w.count; i++)
            m->values[set->next + begin + i] = w.valid[i] ? value[i] : 0;
        if (m->instance->null || m->coefficient == 0)
            continue;
        add(out->d_lse, m->coefficient, d_lse, &w, begin);
        add(out->d_target, m->coefficient, d_target, &w, begin);
        add(out->d_mean, m->coefficient, d_mean, &w, begin);
        add(out->d_m2, m->coefficient, d_m2, &w, begin);
        add(out->d_max, m->coefficient, d_max, &w, begin);
        add(out->d_pz, m->coefficient, d_pz, &w, begin);
    }
}

static void rows(void *context, const struct bl_row_stats *stats, const struct bl_row_grads *out)
{
    struct bl_regularizers *set = context;
    struct rows_job j = {set, stats, out};
    if (stats->count > set->capacity - set->next)
        set->overflow = 1;
    set->backend->ops->parallel_for(set->backend, (stats->count + BLOCK - 1) / BLOCK, rows_block,
                                    &j);
    if (!set->overflow)
        set->next += stats->count;
}

/* ---- the set --------------------------------------------------------------------------------- */

static void fill_hooks(struct bl_regularizers *set)
{
    struct bl_head_hooks *h = &set->hooks;
    h->context = set;
    h->transform_kind = transform_kind;
    h->element = element;
    h->row_scale = row_scale;
    for (size_t i = 0; i < set->count; i++) {
        struct member *m = &set->members[i];
        if (!m->instance->null && (m->ops->element != NULL || m->ops->row_scale != NULL))
            set->transforms[h->transforms++] = m;
    }
    set->evaluation = *h;
    for (size_t i = 0; i < set->count; i++) {
        if (set->members[i].ops->rows == NULL)
            continue;
        h->needs |= set->members[i].ops->needs;
        h->rows = rows;
    }
}

int bl_regularizers_make(struct bl_plugin_instance *const *instances, size_t count,
                         struct bl_backend *backend, uint64_t capacity,
                         struct bl_regularizers **out, struct bl_error *err)
{
    struct bl_regularizers *set = bl_alloc(1, sizeof *set);
    if (set == NULL)
        goto no_memory;
    set->backend = backend;
    set->capacity = capacity;
    set->members = bl_alloc(count + 1, sizeof *set->members);
    set->transforms = bl_alloc(count + 1, sizeof(struct member *));
    set->sums = bl_alloc(count + 1, sizeof *set->sums);
    if (set->members == NULL || set->transforms == NULL || set->sums == NULL)
        goto no_memory;
    for (size_t i = 0; i < count; i++) {
        struct member *m = &set->members[i];
        m->instance = instances[i];
        m->ops = &instances[i]->ops.regularizer;
        m->self = instances[i]->self;
        set->count++;
        if (m->ops->rows == NULL)
            continue;
        m->values = bl_alloc(capacity + 1, sizeof *m->values);
        if (m->values == NULL)
            goto no_memory;
    }
    fill_hooks(set);
    bl_regularizers_begin(set, 1);
    *out = set;
    return 0;
no_memory:
    bl_error_set(err, BL_EXIT_FAILED,
                 "out of memory for the regularizers' values of %llu rows; use a smaller batch",
                 (unsigned long long)capacity);
    bl_regularizers_free(set);
    return -1;
}

void bl_regularizers_free(struct bl_regularizers *set)
{
    if (set == NULL)
        return;
    for (size_t i = 0; i < set->count; i++)
        bl_free(set->members[i].values);
    bl_free(set->sums);
    bl_free(set->transforms);
    bl_free(set->members);
    bl_free(set);
}

void bl_regularizers_begin(struct bl_regularizers *set, uint64_t step)
{
    set->next = 0;
    set->overflow = 0;
    for (size_t i = 0; i < set->count; i++) {
        struct member *m = &set->members[i];
        m->coefficient = m->ops->coefficient != NULL ? m->ops->coefficient(m->self, step) : 0;
        m->weight_value = 0;
        set->sums[i] = 0;
        if (m->values != NULL)
            memset(m->values, 0, set->capacity * sizeof *m->values);
    }
}

const struct bl_head_hooks *bl_regularizers_hooks(const struct bl_regularizers *set)
{
    return &set->hooks;
}

const struct bl_head_hooks *bl_regularizers_transforms(const struct bl_regularizers *set)
{
    return &set->evaluation;
}

void bl_regularizers_at(struct bl_regularizers *set, uint64_t row)
{
    set->next = row;
}

void bl_regularizers_sums(const struct bl_regularizers *set, uint64_t first, uint64_t count,
                          double *out)
{
    for (size_t i = 0; i < set->count; i++) {
        const struct member *m = &set->members[i];
        out[i] = set->overflow && m->values != NULL ? NAN : 0;
        for (uint64_t r = first; m->values != NULL && r < first + count && r < set->capacity; r++)
            out[i] += m->values[r];
    }
}

void bl_regularizers_set_sum(struct bl_regularizers *set, size_t i, double sum)
{
    set->sums[i] = sum;
}

void bl_regularizers_weight_grad(struct bl_regularizers *set, const struct bl_tensor *head,
                                 struct bl_tensor *gradient)
{
    for (size_t i = 0; i < set->count; i++) {
        struct member *m = &set->members[i];
        if (m->ops->weight_grad == NULL)
            continue;
        int measured = m->instance->null || m->coefficient == 0;
        m->weight_value = m->ops->weight_grad(m->self, &m->instance->host, head,
                                              measured ? NULL : gradient, m->coefficient);
    }
}

static int project(struct bl_regularizers *set, int weight, struct bl_tensor *tensor,
                   struct bl_error *err)
{
    for (size_t i = 0; i < set->count; i++) {
        struct member *m = &set->members[i];
        int32_t (*op)(void *, const struct bl_host *, struct bl_tensor *, struct bl_error *) =
            weight ? m->ops->project_weight : m->ops->project_grad;
        if (op == NULL || m->instance->null)
            continue;
        if (op(m->self, &m->instance->host, tensor, err) != 0)
            return bl_error_prefix(err, "regularizer %s", m->instance->name);
    }
    return 0;
}

int bl_regularizers_project_grad(struct bl_regularizers *set, struct bl_tensor *gradient,
                                 struct bl_error *err)
{
    return project(set, 0, gradient, err);
}

int bl_regularizers_project_weight(struct bl_regularizers *set, struct bl_tensor *head,
                                   struct bl_error *err)
{
    return project(set, 1, head, err);
}

/* ---- answers --------------------------------------------------------------------------------- */

int bl_regularizers_has_value(const struct bl_regularizers *set, size_t i)
{
    const struct bl_regularizer_ops *ops = set->members[i].ops;
    return ops->rows != NULL || ops->weight_grad != NULL;
}

double bl_regularizers_value(const struct bl_regularizers *set, size_t i, uint64_t targets)
{
    if (!bl_regularizers_has_value(set, i))
        return NAN;
    double mean = targets > 0 ? set->sums[i] / (double)targets : 0;
    return mean + set->members[i].weight_value;
}

double bl_regularizers_aux(const struct bl_regularizers *set, uint64_t targets)
{
    double sum = 0;
    for (size_t i = 0; i < set->count; i++) {
        const struct member *m = &set->members[i];
        if (bl_regularizers_has_value(set, i) && !m->instance->null && m->coefficient != 0)
            sum += m->coefficient * bl_regularizers_value(set, i, targets);
    }
    return sum;
}

int bl_regularizers_has_weight_grad(const struct bl_regularizers *set)
{
    int has = 0;
    for (size_t i = 0; i < set->count; i++)
        has |= set->members[i].ops->weight_grad != NULL;
    return has;
}

int bl_regularizers_has_project_grad(const struct bl_regularizers *set)
{
    int has = 0;
    for (size_t i = 0; i < set->count; i++)
        has |= set->members[i].ops->project_grad != NULL && !set->members[i].instance->null;
    return has;
}

int bl_regularizers_has_project_weight(const struct bl_regularizers *set)
{
    int has = 0;
    for (size_t i = 0; i < set->count; i++)
        has |= set->members[i].ops->project_weight != NULL && !set->members[i].instance->null;
    return has;
}
