#include "plugin/host.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"

enum { BLOCK = 4096, LANES = 8 };

static const struct bl_services no_services;
static const struct bl_run_info no_info = {
    .size = sizeof(struct bl_run_info), .name = "", .directory = "", .head = ""};
static const struct bl_option no_options[] = {{0}};

static const struct bl_plugin_instance *owner(const struct bl_host *host)
{
    return host->context;
}

/* ---- the host table ---------------------------------------------------------------------------*/

static void host_log(const struct bl_host *host, int32_t level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bl_logv(level, owner(host)->name, format, args);
    va_end(args);
}

static int32_t host_fail(const struct bl_host *host, struct bl_error *err, const char *format, ...)
{
    char text[sizeof err->text];
    va_list args;
    (void)host;
    va_start(args, format);
    if (vsnprintf(text, sizeof text, format, args) < 0)
        text[0] = '\0';
    va_end(args);
    return bl_error_set(err, 0, "%s", text);
}

static void *host_allocate(const struct bl_host *host, uint64_t bytes)
{
    const struct bl_services *s = owner(host)->services;
    if (s->allocate != NULL)
        return s->allocate(s->context, bytes);
    return bytes > SIZE_MAX ? NULL : bl_alloc(bytes > 0 ? (size_t)bytes : 1, 1);
}

static void host_release(const struct bl_host *host, void *pointer)
{
    const struct bl_services *s = owner(host)->services;
    if (s->release != NULL)
        s->release(s->context, pointer);
    else
        bl_free(pointer);
}

static void run_all(const struct bl_services *s, uint64_t n, void (*body)(void *, uint64_t),
                    void *argument)
{
    if (s->parallel_for != NULL) {
        s->parallel_for(s->context, n, body, argument);
        return;
    }
    for (uint64_t i = 0; i < n; i++)
        body(argument, i);
}

static void host_parallel_for(const struct bl_host *host, uint64_t n,
                              void (*body)(void *argument, uint64_t i), void *argument)
{
    run_all(owner(host)->services, n, body, argument);
}

static void host_metric(const struct bl_host *host, const char *name, double value)
{
    const struct bl_services *s = owner(host)->services;
    if (s->metric != NULL)
        s->metric(s->context, name, value);
}

static int32_t host_all_reduce(const struct bl_host *host, double *values, uint64_t n,
                               struct bl_error *err)
{
    const struct bl_services *s = owner(host)->services;
    if (s->all_reduce != NULL)
        return s->all_reduce(s->context, values, n, err);
    if (host->ranks == 1)
        return 0; /* the sum over one rank */
    return bl_error_set(err, BL_EXIT_FAILED, "no sum over ranks is possible here");
}

static uint64_t host_random(const struct bl_host *host, uint64_t stream, uint64_t counter)
{
    return bl_random(host->info->seed, stream, counter);
}

struct sum {
    const struct bl_tensor *a, *b;
    double *blocks;
};

static double element(const struct bl_tensor *t, uint64_t i)
{
    return t->dtype == BL_FP64 ? ((const double *)t->data)[i] : ((const float *)t->data)[i];
}

/* One block: lane k adds elements k, k + 8, ...; the lanes are then added in order. The order
 * depends on nothing but the position, and the compiler may use vectors without changing a bit. */
static double block_sum(const struct sum *s, uint64_t block)
{
    uint64_t begin = block * BLOCK, end = begin + BLOCK;
    double lane[LANES] = {0}, total = 0;
    if (end > s->a->count)
        end = s->a->count;
    if (s->a->dtype != BL_FP64 && s->b->dtype != BL_FP64) {
        const float *a = s->a->data, *b = s->b->data;
        uint64_t i = begin;
        for (; i + LANES <= end; i += LANES)
            for (int k = 0; k < LANES; k++)
                lane[k] += (double)a[i + k] * (double)b[i + k];
        for (int k = 0; i < end; i++, k++)
            lane[k] += (double)a[i] * (double)b[i];
    } else {
        for (uint64_t i = begin; i < end; i++)
            lane[(i - begin) % LANES] += element(s->a, i) * element(s->b, i);
    }
    for (int k = 0; k < LANES; k++)
        total += lane[k];
    return total;
}

static void sum_body(void *argument, uint64_t i)
{
    struct sum *s = argument;
    s->blocks[i] = block_sum(s, i);
}

static int summable(const struct bl_tensor *t)
{
    return t != NULL && t->device == BL_DEVICE_CPU && (t->data != NULL || t->count == 0);
}

static double host_dot(const struct bl_host *host, const struct bl_tensor *a,
                       const struct bl_tensor *b)
{
    double total = 0;
    if (!summable(a) || !summable(b) || a->count != b->count)
        return NAN;
    uint64_t n = a->count / BLOCK + (a->count % BLOCK != 0);
    struct sum s = {.a = a, .b = b, .blocks = n > 1 ? bl_alloc(n, sizeof(double)) : NULL};
    if (s.blocks == NULL) { /* one block, or no memory: the same sum in this thread */
        for (uint64_t i = 0; i < n; i++)
            total += block_sum(&s, i);
        return total;
    }
    run_all(owner(host)->services, n, sum_body, &s);
    for (uint64_t i = 0; i < n; i++)
        total += s.blocks[i];
    bl_free(s.blocks);
    return total;
}

static double host_sum_squares(const struct bl_host *host, const struct bl_tensor *x)
{
    return host_dot(host, x, x);
}

static uint64_t host_tensor_count(const struct bl_host *host)
{
    const struct bl_services *s = owner(host)->services;
    return s->tensor_count != NULL ? s->tensor_count(s->context) : 0;
}

/* The plugin's view may be older and shorter than this program's. */
static int32_t host_tensor(const struct bl_host *host, uint64_t index, uint32_t which,
                           struct bl_tensor *out)
{
    const struct bl_services *s = owner(host)->services;
    struct bl_tensor full = {.size = sizeof full};
    uint32_t size = out != NULL ? out->size : 0;
    if (s->tensor == NULL || size < sizeof size || index >= host_tensor_count(host) ||
        s->tensor(s->context, index, which, &full) != 0)
        return -1;
    memcpy(out, &full, size < sizeof full ? size : sizeof full);
    out->size = size;
    return 0;
}

static int32_t host_find(const struct bl_host *host, const char *name, uint32_t which,
                         struct bl_tensor *out)
{
    uint64_t n = host_tensor_count(host);
    for (uint64_t i = 0; name != NULL && i < n; i++) {
        struct bl_tensor t = {.size = sizeof t};
        if (host_tensor(host, i, BL_WEIGHT, &t) == 0 && t.name != NULL && strcmp(t.name, name) == 0)
            return host_tensor(host, i, which, out);
    }
    return -1;
}

static double host_update_squares(const struct bl_host *host, uint64_t index)
{
    const struct bl_services *s = owner(host)->services;
    return s->update_squares != NULL ? s->update_squares(s->context, index) : NAN;
}

static int32_t host_reduction(const struct bl_host *host, uint32_t group, struct bl_reduction *out)
{
    const struct bl_services *s = owner(host)->services;
    struct bl_reduction full = {.size = sizeof full, .error = NAN, .bias = NAN, .lost_share = NAN};
    uint32_t size = out != NULL ? out->size : 0;
    if (s->reduction == NULL || size < sizeof size || group > BL_GROUP_COUNT ||
        s->reduction(s->context, group, &full) != 0)
        return -1;
    memcpy(out, &full, size < sizeof full ? size : sizeof full);
    out->size = size;
    return 0;
}

static const struct bl_host host_table = {
    .size = sizeof(struct bl_host),
    .log = host_log,
    .fail = host_fail,
    .allocate = host_allocate,
    .release = host_release,
    .parallel_for = host_parallel_for,
    .metric = host_metric,
    .all_reduce = host_all_reduce,
    .random = host_random,
    .sum_squares = host_sum_squares,
    .dot = host_dot,
    .tensor_count = host_tensor_count,
    .tensor = host_tensor,
    .find = host_find,
    .update_squares = host_update_squares,
    .reduction = host_reduction,
};

/* ---- instances --------------------------------------------------------------------------------*/

static const uint32_t ops_sizes[BL_KIND_COUNT] = {
    [BL_KIND_REGULARIZER] = sizeof(struct bl_regularizer_ops),
    [BL_KIND_PRECISION] = sizeof(struct bl_precision_ops),
    [BL_KIND_SCHEDULE] = sizeof(struct bl_schedule_ops),
    [BL_KIND_MONITOR] = sizeof(struct bl_monitor_ops),
    [BL_KIND_OPTIMIZER] = sizeof(struct bl_optimizer_ops),
    [BL_KIND_GUARD] = sizeof(struct bl_guard_ops),
    [BL_KIND_SINK] = sizeof(struct bl_sink_ops),
    [BL_KIND_SOURCE] = sizeof(struct bl_source_ops),
    [BL_KIND_TOKENIZER] = sizeof(struct bl_tokenizer_ops),
};

/* What is wrong with the ops of a kind, or NULL. */
static const char *ops_fault(uint32_t kind, const union bl_ops *o)
{
    const struct bl_regularizer_ops *r = &o->regularizer;
    switch (kind) {
    case BL_KIND_REGULARIZER:
        if (!r->rows && !r->element && !r->row_scale && !r->weight_grad && !r->project_grad &&
            !r->project_weight)
            return "it has none of rows, element, row_scale, weight_grad, project_grad, "
                   "project_weight";
        if ((r->rows || r->weight_grad) && !r->coefficient)
            return "rows and weight_grad need coefficient";
        if (r->element && r->row_scale)
            return "it has both element and row_scale";
        return (r->needs & ~(uint32_t)BL_NEED_PZ) != 0 ? "it needs an unknown statistic" : NULL;
    case BL_KIND_PRECISION:
        return o->precision.fill ? NULL : "it has no fill";
    case BL_KIND_SCHEDULE:
        return o->schedule.factor ? NULL : "it has no factor";
    case BL_KIND_MONITOR:
        return o->monitor.observe || o->monitor.after ? NULL : "it has neither observe nor after";
    case BL_KIND_OPTIMIZER:
        return o->optimizer.states && o->optimizer.apply ? NULL : "it lacks states or apply";
    case BL_KIND_GUARD:
        return o->guard.gradient || o->guard.update ? NULL : "it has neither gradient nor update";
    case BL_KIND_SINK:
        return o->sink.write ? NULL : "it has no write";
    case BL_KIND_SOURCE:
        return o->source.open && o->source.describe && o->source.read
                   ? NULL
                   : "it lacks open, describe or read";
    case BL_KIND_TOKENIZER:
        return o->tokenizer.describe && o->tokenizer.encode && o->tokenizer.decode
                   ? NULL
                   : "it lacks describe, encode or decode";
    default:
        return "its kind is unknown";
    }
}

static const struct bl_option *table_of(const struct bl_plugin *p)
{
    return p->options != NULL ? p->options : no_options;
}

static int check_plugin(const struct bl_plugin_instance *i, const char *const *host_keys,
                        struct bl_error *err)
{
    const struct bl_plugin *p = i->plugin;
    const char *path = bl_library_path(i->library);
    const char *fault = ops_fault(p->kind, &i->ops);
    if (fault != NULL)
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: refused: %s %s: %s", path,
                            bl_kind_name(p->kind), p->name, fault);
    for (const struct bl_option *row = table_of(p); row->key != NULL; row++)
        for (const char *const *k = host_keys; k != NULL && *k != NULL; k++)
            if (strcmp(row->key, *k) == 0)
                return bl_error_set(err, BL_EXIT_PLUGIN,
                                    "%s: refused: %s %s has an option '%s', a key of the host",
                                    path, bl_kind_name(p->kind), p->name, row->key);
    return 0;
}

int bl_instance_load(const struct bl_instance *configured, const struct bl_strings *plugin_path,
                     struct bl_plugin_instance **out, struct bl_error *err)
{
    struct bl_plugin_instance *i = bl_alloc(1, sizeof *i);
    char *path = NULL, *what = NULL, where[512];
    if (i == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for plugin %s", configured->plugin);

    if (bl_plugin_find(configured->kind, configured->plugin, plugin_path, &path, err) != 0 ||
        bl_library_open(path, configured->kind, &i->library, err) != 0) {
        if (configured->node != NULL)
            bl_error_prefix(err, "%s", bl_node_where(configured->node, where));
        goto fail;
    }
    i->plugin = bl_library_plugin(i->library);
    if (strchr(configured->plugin, '/') == NULL &&
        strcmp(configured->plugin, i->plugin->name) != 0) {
        bl_error_set(err, BL_EXIT_PLUGIN,
                     "%s: refused: it holds %s %s, not %s; was the file renamed or replaced?", path,
                     bl_kind_name(i->plugin->kind), i->plugin->name, configured->plugin);
        goto fail;
    }
    uint32_t own = ops_sizes[i->plugin->kind];
    memcpy(&i->ops, i->plugin->ops, i->plugin->ops_size < own ? i->plugin->ops_size : own);
    if (check_plugin(i, configured->host_keys, err) != 0)
        goto fail;

    const char *name = configured->name != NULL ? configured->name : i->plugin->name;
    i->name = bl_format("%s", name);
    what = bl_format("%s %s", bl_kind_name(i->plugin->kind), i->plugin->name);
    if (i->name == NULL || what == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for plugin %s", configured->plugin);
        goto fail;
    }
    i->every = configured->every > 0 ? configured->every : 1;
    if (bl_options_fill(&i->options, table_of(i->plugin), i->plugin->options_size, configured->node,
                        configured->host_keys, what, err) != 0)
        goto fail;
    i->null = bl_options_match(&i->options, i->plugin->null_setting);
    free(path);
    free(what);
    *out = i;
    return 0;
fail:
    free(path);
    free(what);
    bl_instance_destroy(i);
    return -1;
}

static int check_created(const struct bl_plugin_instance *i, struct bl_error *err)
{
    const struct bl_optimizer_ops *o = &i->ops.optimizer;
    if (i->plugin->kind != BL_KIND_OPTIMIZER)
        return 0;
    uint32_t states = o->states(i->self);
    if (states > 8 || (states > 0 && o->state_name == NULL))
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "%s: refused: %" PRIu32 " state arrays%s; at most 8, each with a name",
                            bl_library_path(i->library), states,
                            o->state_name == NULL ? " without state_name" : "");
    for (uint32_t k = 0; k < states; k++)
        if (o->state_name(i->self, k) == NULL)
            return bl_error_set(err, BL_EXIT_PLUGIN,
                                "%s: refused: state array %" PRIu32 " has no name",
                                bl_library_path(i->library), k);
    return 0;
}

int bl_instance_create(struct bl_plugin_instance *i, const struct bl_services *services,
                       struct bl_error *err)
{
    struct bl_error own = BL_ERROR_INIT;
    const struct bl_services *s = services != NULL ? services : &no_services;

    i->services = s;
    i->host = host_table;
    i->host.device = s->device != 0 ? s->device : BL_DEVICE_CPU;
    i->host.ranks = s->ranks != 0 ? s->ranks : 1;
    i->host.rank = s->rank;
    i->host.context = i;
    i->host.instance = i->name;
    i->host.info = s->info != NULL ? s->info : &no_info;
    if (i->host.device == BL_DEVICE_CPU && !(i->plugin->devices & BL_DEVICE_CPU))
        return bl_error_set(err, BL_EXIT_PLUGIN, "%s: %s %s is for CUDA only, this run is on CPUs",
                            bl_library_path(i->library), bl_kind_name(i->plugin->kind), i->name);
    if (i->ops.common.create != NULL &&
        i->ops.common.create(&i->host, i->options.values, &i->self, &own) != 0) {
        own.text[sizeof own.text - 1] = '\0';
        i->self = NULL;
        return bl_error_set(err, own.code > 0 ? own.code : BL_EXIT_USAGE, "%s %s: %s",
                            bl_kind_name(i->plugin->kind), i->name,
                            own.text[0] != '\0' ? own.text : "create failed and gave no reason");
    }
    i->created = 1;
    return check_created(i, err);
}

void bl_instance_destroy(struct bl_plugin_instance *i)
{
    if (i == NULL)
        return;
    if (i->created && i->ops.common.create != NULL && i->ops.common.destroy != NULL)
        i->ops.common.destroy(i->self);
    bl_options_free(&i->options);
    bl_library_close(i->library);
    free(i->name);
    bl_free(i);
}

void bl_instance_dump_options(const struct bl_plugin_instance *i, int indent, struct bl_text *out)
{
    bl_options_dump(&i->options, indent, out);
}
