/* What of a run a checkpoint holds. */
#include "run_state.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"

const char bl_run_alarms_key[] = "host.alarms"; /* "host" is no kind of plugin */

void bl_run_views_free(struct bl_run_views *v)
{
    for (size_t i = 0; i < v->state_count; i++)
        free((char *)(uintptr_t)v->states[i].name);
    bl_free(v->states);
    bl_free(v->weights);
    bl_free(v->slices);
    memset(v, 0, sizeof *v);
}

/* Elements [from, to) of an arena that begins at `array`: those of parameter p. Without any the
 * tensor is there with a count of 0. */
static int add_state(struct bl_run_views *v, const struct bl_param *p, float *array, uint64_t from,
                     uint64_t to, const char *suffix)
{
    struct bl_tensor *t = &v->states[v->state_count];
    struct bl_checkpoint_slice *s = &v->slices[v->state_count];
    uint64_t begin = 0, end = 0;
    char *name = bl_format("%s.%s", p->name, suffix);
    if (name == NULL)
        return -1;
    if (!bl_shard_part(p, from, to, &begin, &end))
        begin = end = 0;
    *s = (struct bl_checkpoint_slice){
        .begin = begin, .end = end, .ndim = p->ndim, .dims = {p->dims[0], p->dims[1], 0, 0}};
    *t = (struct bl_tensor){
        .size = sizeof *t,
        .dtype = BL_FP32,
        .device = BL_DEVICE_CPU,
        .group = p->group,
        .ndim = 1,
        .dims = {end - begin, 0, 0, 0},
        .count = end - begin,
        .key = p->key,
        .data = end > begin ? array + (p->offset + begin - from) : NULL,
        .name = name,
    };
    v->state_count++;
    return 0;
}

int bl_run_views_make(struct bl_run *r, uint64_t from, uint64_t to, struct bl_run_views *out,
                      struct bl_error *err)
{
    const struct bl_params *params = &r->s->params;
    uint64_t n = params->count;
    uint32_t states = bl_update_states(r->update);
    struct bl_run_views v = {bl_alloc(n, sizeof *v.weights),
                             bl_alloc(n * (1 + states), sizeof *v.states),
                             bl_alloc(n * (1 + states), sizeof *v.slices), 0, 0};
    if (v.weights == NULL || v.states == NULL || v.slices == NULL)
        goto fail;
    for (uint64_t i = 0; i < n; i++) {
        const struct bl_param *p = &params->items[i];
        if (bl_run_tensor(r, i, BL_WEIGHT, &v.weights[i]) < 0)
            goto fail;
        v.weights[i].data = bl_model_working(r->model) + p->offset;
        v.weight_count++;
        if (add_state(&v, p, bl_model_weights(r->model) + from, from, to, "master") < 0)
            goto fail;
        for (uint32_t k = 0; k < states; k++) {
            uint64_t here, count;
            float *array = bl_update_slice(r->update, k, &here, &count);
            uint64_t begin = from > here ? from : here;
            uint64_t end = to < here + count ? to : here + count;
            if (end < begin)
                end = begin;
            if (add_state(&v, p, array + (begin - here), begin, end,
                          bl_update_state_name(r->update, k)) < 0)
                goto fail;
        }
    }
    *out = v;
    return 0;
fail:
    bl_run_views_free(&v);
    return bl_error_set(err, BL_EXIT_FAILED, "checkpoint: out of memory");
}

void bl_run_views_whole(struct bl_run_views *v)
{
    for (size_t i = 0; i < v->state_count; i++) {
        v->states[i].ndim = v->slices[i].ndim;
        memcpy(v->states[i].dims, v->slices[i].dims, sizeof v->states[i].dims);
    }
}

void bl_run_views_drop_empty(struct bl_run_views *v)
{
    size_t kept = 0;
    for (size_t i = 0; i < v->state_count; i++) {
        if (v->states[i].count == 0) {
            free((char *)(uintptr_t)v->states[i].name);
            continue;
        }
        v->states[kept] = v->states[i];
        v->slices[kept++] = v->slices[i];
    }
    v->state_count = kept;
}

int bl_run_each_instance(struct bl_run *r,
                         int (*f)(struct bl_plugin_instance *i, void *context,
                                  struct bl_error *err),
                         void *context, struct bl_error *err)
{
    struct bl_setup *s = r->s;
    const struct bl_plugin_list *lists[] = {&s->regularizers, &s->guards, &s->monitors, &s->sinks};
    struct bl_plugin_instance *single[] = {s->precision, s->schedule, s->optimizer};
    for (size_t i = 0; i < sizeof single / sizeof *single; i++) {
        if (f(single[i], context, err) < 0)
            return -1;
    }
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t i = 0; i < lists[l]->count; i++) {
            if (!lists[l]->items[i]->created)
                continue; /* a sink elsewhere than in process 0 */
            if (f(lists[l]->items[i], context, err) < 0)
                return -1;
        }
    }
    return 0;
}

struct bl_checkpoint_info bl_run_info(const struct bl_run *r)
{
    const struct bl_setup *s = r->s;
    return (struct bl_checkpoint_info){
        .step = r->step,
        .updates = bl_update_steps(r->update),
        .sample = r->origin + r->step * s->info.sequences,
        .seed = s->info.seed,
        .attempt = r->directory.attempt,
        .ranks = (uint32_t)s->ranks,
        .micro = (uint64_t)s->config->batch.micro,
        .plan = r->directory.plan,
    };
}
