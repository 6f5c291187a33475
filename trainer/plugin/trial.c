#include "plugin/trial.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/memory.h"
#include "base/random.h"
#include "plugin/sample_rows.h"

static const struct {
    const char *name;
    uint32_t group;
    uint64_t rows, cols; /* cols 0: one dimension */
} model[BL_TRIAL_TENSORS] = {
    {"embed.weight", BL_GROUP_EMBEDDING, BL_TRIAL_VOCAB, 8},
    {"layers.0.mlp.up.weight", BL_GROUP_MATRIX, 640, 8},
    {"final_norm.weight", BL_GROUP_NORM, 8, 0},
    {"head.weight", BL_GROUP_HEAD, BL_TRIAL_VOCAB, 8},
};

static enum bl_outcome set_reason(struct bl_trial *t, enum bl_outcome outcome, const char *format,
                                  va_list args)
{
    if (vsnprintf(t->reason, sizeof t->reason, format, args) < 0)
        t->reason[0] = '\0';
    for (char *c = t->reason; *c != '\0'; c++)
        if (*c == '\n' || *c == '\r')
            *c = ' ';
    return outcome;
}

enum bl_outcome bl_trial_fail(struct bl_trial *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum bl_outcome outcome = set_reason(t, BL_CHECK_FAILED, format, args);
    va_end(args);
    return outcome;
}

enum bl_outcome bl_trial_skip(struct bl_trial *t, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    enum bl_outcome outcome = set_reason(t, BL_CHECK_SKIPPED, format, args);
    va_end(args);
    return outcome;
}

/* ---- services ---------------------------------------------------------------------------------*/

static void service_parallel_for(void *context, uint64_t n, void (*body)(void *, uint64_t),
                                 void *argument)
{
    const struct bl_trial *t = context;
    for (uint64_t i = 0; i < n; i++)
        body(argument, t->reversed ? n - 1 - i : i);
}

static void service_metric(void *context, const char *name, double value)
{
    struct bl_trial *t = context;
    t->metrics++;
    if (!isfinite(value) && t->bad_metric[0] == '\0')
        snprintf(t->bad_metric, sizeof t->bad_metric, "%s", name);
}

static uint64_t service_tensor_count(void *context)
{
    (void)context;
    return BL_TRIAL_TENSORS;
}

static int service_tensor(void *context, uint64_t index, uint32_t which, struct bl_tensor *out)
{
    unsigned array = which == BL_CE_GRADIENT ? BL_TRIAL_ARRAYS - 1 : which;
    int head = index < BL_TRIAL_TENSORS && model[index].group == BL_GROUP_HEAD;
    if (index >= BL_TRIAL_TENSORS || array >= BL_TRIAL_ARRAYS ||
        (array == BL_TRIAL_ARRAYS - 1 && (which != BL_CE_GRADIENT || !head)))
        return -1;
    *out = bl_trial_tensor(context, (unsigned)index, array);
    return 0;
}

static double service_update_squares(void *context, uint64_t index)
{
    (void)context;
    return index < BL_TRIAL_TENSORS ? 1e-4 * (double)(index + 1) : NAN;
}

/* Every group has numbers; nobody counts what was lost, as over several processes. */
static int service_reduction(void *context, uint32_t group, struct bl_reduction *out)
{
    (void)context;
    out->error = 1e-3 * (double)(group + 1);
    out->bias = -1e-4;
    return 0;
}

static void *service_allocate(void *context, uint64_t bytes)
{
    struct bl_trial *t = context;
    void *p = bytes > SIZE_MAX ? NULL : bl_alloc(bytes > 0 ? (size_t)bytes : 1, 1);
    if (p != NULL)
        __atomic_add_fetch(&t->live, 1, __ATOMIC_RELAXED);
    return p;
}

static void service_release(void *context, void *pointer)
{
    struct bl_trial *t = context;
    if (pointer != NULL)
        __atomic_sub_fetch(&t->live, 1, __ATOMIC_RELAXED);
    bl_free(pointer);
}

/* ---- the trial --------------------------------------------------------------------------------*/

void bl_trial_start(struct bl_trial *t, const struct bl_conformance *c, const char *path,
                    const char *directory, struct bl_node *config)
{
    t->conformance = c;
    t->path = path;
    t->directory = directory;
    t->config = config;
    t->info = (struct bl_run_info){.size = sizeof t->info,
                                   .name = "conformance",
                                   .directory = directory,
                                   .seed = 42,
                                   .steps = 100,
                                   .sequences = 8,
                                   .context = 16,
                                   .vocab = BL_TRIAL_VOCAB,
                                   .width = 8,
                                   .layers = 1,
                                   .head = "head.weight"};
    t->services = (struct bl_services){.context = t,
                                       .parallel_for = service_parallel_for,
                                       .metric = service_metric,
                                       .tensor_count = service_tensor_count,
                                       .tensor = service_tensor,
                                       .update_squares = service_update_squares,
                                       .reduction = service_reduction,
                                       .device = BL_DEVICE_CPU,
                                       .ranks = 1,
                                       .info = &t->info,
                                       .allocate = service_allocate,
                                       .release = service_release};
    for (unsigned i = 0; i < BL_TRIAL_TENSORS; i++) {
        t->info.parameters += model[i].rows * (model[i].cols > 0 ? model[i].cols : 1);
        for (unsigned a = 0; a < BL_TRIAL_ARRAYS; a++)
            for (unsigned k = 0; k < BL_TRIAL_ELEMENTS; k++)
                t->data[i][a][k] = (float)(0.1 * bl_trial_normal(8 * i + a, k));
    }
}

int bl_trial_open(struct bl_trial *t, struct bl_error *err)
{
    if (bl_library_open(t->path, 0, &t->library, err) != 0)
        return -1;
    t->plugin = bl_library_plugin(t->library);
    t->kind = t->plugin->kind;
    snprintf(t->title, sizeof t->title, "%s %s %s", bl_kind_name(t->kind), t->plugin->name,
             t->plugin->version);
    return 0;
}

int bl_trial_make(struct bl_trial *t, const struct bl_node *config, struct bl_plugin_instance **out,
                  struct bl_error *err)
{
    static const char *const no_keys[] = {NULL};
    const struct bl_strings none = {0, NULL};
    struct bl_instance configured = {.kind = t->kind,
                                     .plugin = t->path,
                                     .name = t->plugin->name,
                                     .every = 1,
                                     .node = config != NULL ? config : t->config,
                                     .host_keys = no_keys};
    struct bl_plugin_instance *i = NULL;
    if (bl_instance_load(&configured, &none, &i, err) != 0)
        return -1;
    if (bl_instance_create(i, &t->services, err) != 0) {
        bl_instance_destroy(i);
        return -1;
    }
    *out = i;
    return 0;
}

enum bl_outcome bl_trial_instance(struct bl_trial *t, struct bl_plugin_instance **out)
{
    struct bl_error err = BL_ERROR_INIT;
    return bl_trial_make(t, NULL, out, &err) == 0 ? BL_CHECK_OK : bl_trial_fail(t, "%s", err.text);
}

struct bl_tensor bl_trial_tensor(struct bl_trial *t, unsigned i, unsigned array)
{
    uint64_t rows = model[i].rows, cols = model[i].cols;
    return (struct bl_tensor){.size = sizeof(struct bl_tensor),
                              .dtype = BL_FP32,
                              .device = BL_DEVICE_CPU,
                              .group = model[i].group,
                              .ndim = cols > 0 ? 2 : 1,
                              .dims = {rows, cols > 0 ? cols : 1, 1, 1},
                              .count = rows * (cols > 0 ? cols : 1),
                              .key = bl_hash(model[i].name),
                              .data = t->data[i][array],
                              .name = model[i].name};
}

double bl_trial_normal(uint64_t stream, uint64_t i)
{
    return bl_random_normal(42, stream, i);
}

uint64_t bl_trial_hash(const struct bl_trial *t)
{
    return XXH64(t->data, sizeof t->data, 0);
}

static int use_guard(struct bl_plugin_instance *i, uint64_t step, struct bl_error *err)
{
    const struct bl_guard_ops *o = &i->ops.guard;
    struct bl_guard_input in = {.size = sizeof in,
                                .step = step,
                                .loss = 3,
                                .norm = 1 + 0.1 * bl_trial_normal(70, step),
                                .learning_rate = 1e-3};
    struct bl_verdict out = {.size = sizeof out, .scale = 1};
    uint32_t changed = 0;
    if (o->gradient != NULL && o->gradient(i->self, &i->host, &in, &out, &changed, err) != 0)
        return -1;
    out = (struct bl_verdict){.size = sizeof out, .scale = 1};
    if (o->update != NULL && o->update(i->self, &i->host, &in, &out, err) != 0)
        return -1;
    if (o->settle != NULL)
        o->settle(i->self, step % 5 == 4);
    return 0;
}

static int use_monitor(struct bl_plugin_instance *i, uint64_t step, struct bl_error *err)
{
    const struct bl_monitor_ops *o = &i->ops.monitor;
    struct bl_sample_rows r;
    bl_sample_rows_start(&r, BL_TRIAL_ROWS, BL_TRIAL_VOCAB);
    bl_sample_rows_fill(&r, step, 0, 1);
    if (o->needs == NULL || (o->needs(i->self) & BL_MONITOR_PZ) == 0)
        r.stats.pz = NULL;
    struct bl_monitor_input in = {.size = sizeof in,
                                  .step = step,
                                  .rows = &r.stats,
                                  .targets = BL_TRIAL_ROWS * 3 / 4,
                                  .learning_rate = 1e-3,
                                  .loss = 3,
                                  .gradient_norm = 1 + 1.0 / (double)step,
                                  .rank_squares = 5,
                                  .logical_ranks = 4};
    uint64_t before = XXH64(&r, sizeof r, 0);
    int rc = o->observe != NULL ? o->observe(i->self, &i->host, &in, err) : 0;
    if (rc == 0 && o->after != NULL)
        rc = o->after(i->self, &i->host, &in, err);
    if (rc == 0 && XXH64(&r, sizeof r, 0) != before)
        return bl_error_set(err, BL_EXIT_PLUGIN, "it wrote to the row statistics");
    return rc;
}

int bl_trial_use(struct bl_trial *t, struct bl_plugin_instance *i, unsigned steps,
                 struct bl_error *err)
{
    for (uint64_t step = 1; step <= steps; step++) {
        if (t->kind == BL_KIND_GUARD && use_guard(i, step, err) != 0)
            return -1;
        if (t->kind == BL_KIND_MONITOR && use_monitor(i, step, err) != 0)
            return -1;
    }
    return 0;
}
