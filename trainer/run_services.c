/* The host table over a run: tensors, metrics, threads. */
#include <math.h>

#include "run_internal.h"

static void parallel_for(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument)
{
    struct bl_run *r = context;
    r->backend->ops->parallel_for(r->backend, n, body, argument);
}

static void metric(void *context, const char *name, double value)
{
    struct bl_run *r = context;
    if (r->metrics != NULL)
        bl_metrics_set(r->metrics, name, value);
}

static uint64_t tensor_count(void *context)
{
    const struct bl_run *r = context;
    return r->s->params.count;
}

static float *array_of(struct bl_run *r, uint64_t index, uint32_t which)
{
    const struct bl_param *p = &r->s->params.items[index];
    if (r->model == NULL)
        return NULL;
    if (which == BL_WEIGHT)
        return bl_model_weights(r->model) + p->offset;
    if (which == BL_GRADIENT)
        return r->gradients_ready && r->lost.code == 0 && bl_run_whole_gradient(r, &r->lost) == 0
                   ? r->gradient + p->offset
                   : NULL;
    if (which == BL_CE_GRADIENT)
        return r->ce_ready && (int64_t)index == r->head ? r->ce_gradient : NULL;
    uint32_t state = which - BL_STATE0;
    if (r->border != NULL)
        return NULL; /* the same answer in every process, whoever has it */
    if (r->update != NULL && which >= BL_STATE0 && state < bl_update_states(r->update))
        return bl_update_tensor(r->update, state, index);
    return NULL;
}

int bl_run_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out)
{
    struct bl_run *r = context;
    if (index >= r->s->params.count)
        return -1;
    const struct bl_param *p = &r->s->params.items[index];
    float *data = array_of(r, index, which);
    if (data == NULL)
        return -1;
    *out = (struct bl_tensor){
        .size = sizeof *out,
        .dtype = BL_FP32,
        .device = BL_DEVICE_CPU,
        .group = p->group,
        .ndim = p->ndim,
        .dims = {p->dims[0], p->ndim > 1 ? p->dims[1] : 0, 0, 0},
        .count = p->count,
        .key = p->key,
        .data = data,
        .name = p->name,
    };
    return 0;
}

static double update_squares(void *context, uint64_t index)
{
    const struct bl_run *r = context;
    return r->update != NULL && index < r->s->params.count ? bl_update_squares(r->update, index)
                                                           : NAN;
}

static int reduction(void *context, uint32_t group, struct bl_reduction *out)
{
    const struct bl_run *r = context;
    struct bl_sum_statistics m;
    if (r->sum == NULL || !r->measured)
        return -1;
    bl_sum_measured(r->sum, group, &m);
    if (m.squares == 0)
        return -1; /* no such elements */
    out->error = m.error;
    out->bias = m.bias;
    out->lost_share = m.lost;
    return 0;
}

void bl_run_services(struct bl_run *r)
{
    struct bl_services *s = &r->s->services;
    s->context = r;
    s->parallel_for = parallel_for;
    s->metric = metric;
    s->tensor_count = tensor_count;
    s->tensor = bl_run_tensor;
    s->update_squares = update_squares;
    s->reduction = reduction;
}
