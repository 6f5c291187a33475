#include "setup.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/log.h"
#include "base/memory.h"
#include "data/data.h"

static int load_list(struct bl_plugin_list *list, const struct bl_instance *configured, size_t n,
                     const struct bl_config *c, struct bl_error *err)
{
    if (n == 0)
        return 0;
    list->items = bl_alloc(n, sizeof *list->items);
    if (list->items == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (size_t i = 0; i < n; i++) {
        if (bl_instance_load(&configured[i], &c->plugin_path, &list->items[i], err) < 0)
            return -1;
        list->count++;
    }
    return 0;
}

static void free_list(struct bl_plugin_list *list)
{
    while (list->count > 0)
        bl_instance_destroy(list->items[--list->count]);
    bl_free(list->items);
    list->items = NULL;
}

static int load_plugins(struct bl_setup *s, struct bl_error *err)
{
    const struct bl_config *c = s->config;
    const struct bl_strings *path = &c->plugin_path;
    if (bl_instance_load(&c->source, path, &s->train, err) < 0 ||
        bl_instance_load(&c->precision_plugin, path, &s->precision, err) < 0 ||
        bl_instance_load(&c->schedule_plugin, path, &s->schedule, err) < 0 ||
        bl_instance_load(&c->optimizer_plugin, path, &s->optimizer, err) < 0 ||
        load_list(&s->regularizers, c->regularizers, c->regularizer_count, c, err) < 0 ||
        load_list(&s->guards, c->guards, c->guard_count, c, err) < 0 ||
        load_list(&s->monitors, c->monitors, c->monitor_count, c, err) < 0 ||
        load_list(&s->sinks, c->sinks, c->sink_count, c, err) < 0)
        return -1;
    /* A source that needs no files for training needs none for the held-out split. */
    if (c->data.validation.count > 0 || c->data.train.count == 0)
        return bl_instance_load(&c->source, path, &s->validation, err);
    return 0;
}

/* Both splits stay closed. */
static int skip_data(struct bl_setup *s, struct bl_error *err)
{
    struct bl_model_options *m = &s->config->model;
    s->train_info = (struct bl_source_info){.size = sizeof s->train_info, .entropy = NAN};
    s->validation_info = s->train_info;
    if (m->vocab == 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.vocab is not set, and without the data nothing else says how "
                            "many token ids there are; set it, e.g. model.vocab=50257, or name a "
                            "model.preset");
    s->info.vocab = (uint64_t)m->vocab;
    return 0;
}

/* Takes data.holdout of the training sequences, the last ones, for evaluation. */
static int hold_out(struct bl_setup *s, struct bl_error *err)
{
    uint64_t all = s->train_info.sequences, held;
    if (s->config->data.train.count == 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "data.holdout = %g: source %s reads no files and has held-out data of "
                            "its own; leave data.holdout out",
                            s->config->data.holdout, s->train->plugin->name);
    if (bl_data_hold_out(all, s->config->data.holdout, &held, err) < 0)
        return -1;
    s->validation = s->train;
    s->validation_first = all - held;
    s->validation_info = s->train_info;
    s->train_info.sequences = all - held;
    s->train_info.tokens = (all - held) * s->info.context;
    s->validation_info.sequences = held;
    s->validation_info.tokens = held * s->info.context;
    return 0;
}

/* Opens both splits; the vocabulary is what the config says, or else what the data says. */
static int open_data(struct bl_setup *s, struct bl_error *err)
{
    struct bl_model_options *m = &s->config->model;
    if (bl_instance_create(s->train, &s->services, err) < 0 ||
        bl_data_open(s->train, &s->config->data, 0, &s->train_info, err) < 0)
        return -1;
    if (s->validation != NULL &&
        (bl_instance_create(s->validation, &s->services, err) < 0 ||
         bl_data_open(s->validation, &s->config->data, 1, &s->validation_info, err) < 0))
        return -1;
    if (s->config->data.holdout > 0 && hold_out(s, err) < 0)
        return -1;
    if (m->vocab == 0) {
        if (s->train_info.vocab == 0)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "model.vocab is not set and the files of data.train do not say how "
                                "many token ids there are; set it, e.g. model.vocab=256 for bytes");
        m->vocab = (int64_t)s->train_info.vocab;
    } else if (s->train_info.vocab > (uint64_t)m->vocab) {
        return bl_error_set(err, BL_EXIT_USAGE,
                            "model.vocab is %lld but source %s makes ids up to %llu; set "
                            "model.vocab=%llu or leave it out",
                            (long long)m->vocab, s->train->plugin->name,
                            (unsigned long long)s->train_info.vocab - 1,
                            (unsigned long long)s->train_info.vocab);
    }
    s->info.vocab = (uint64_t)m->vocab;
    return 0;
}

uint32_t bl_dial_default(uint32_t dial)
{
    switch (dial) {
    case BL_DIAL_AVERAGE:
        return BL_AVERAGE_DIVIDE;
    case BL_DIAL_ALGORITHM:
        return BL_ALGORITHM_ALLTOALL;
    case BL_DIAL_COLLECTIVE:
        return BL_COLLECTIVE_ALL_REDUCE;
    case BL_DIAL_ROUNDING:
    case BL_DIAL_SUM_ROUNDING:
        return BL_ROUND_NEAREST;
    default:
        return BL_FP32;
    }
}

static int fill_dials(struct bl_setup *s, struct bl_error *err)
{
    s->dials.size = sizeof s->dials;
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        for (uint32_t d = 0; d < BL_DIAL_COUNT; d++)
            s->dials.dial[g][d] = bl_dial_default(d);
    }
    if (bl_instance_create(s->precision, &s->services, err) < 0)
        return -1;
    s->precision->ops.precision.fill(s->precision->self, &s->dials);
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        for (uint32_t d = 0; d < BL_DIAL_COUNT; d++) {
            if (s->config->dials[g][d] != BL_DIAL_UNSET && bl_dial_applies(g, d))
                s->dials.dial[g][d] = s->config->dials[g][d];
            uint32_t v = s->dials.dial[g][d];
            if (bl_dial_value_name(d, v) == NULL)
                return bl_error_set(err, BL_EXIT_PLUGIN,
                                    "precision plugin %s sets %s.%s to %u, which this program does "
                                    "not know",
                                    s->precision->plugin->name, bl_group_name(g), bl_dial_name(d),
                                    v);
        }
    }
    uint32_t rounding = BL_ROUND_NEAREST;
    int stored = 0;
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        if (s->dials.dial[g][BL_DIAL_ROUNDING] != BL_ROUND_NEAREST)
            rounding = s->dials.dial[g][BL_DIAL_ROUNDING];
        stored |= s->dials.dial[g][BL_DIAL_MASTER] == BL_BF16;
    }
    if (rounding != BL_ROUND_NEAREST && !stored)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "precision.rounding = \"%s\" rounds weights that are stored in "
                            "bf16, and precision.master is fp32 everywhere; set precision.master = "
                            "\"bf16\", or leave rounding out",
                            bl_dial_value_name(BL_DIAL_ROUNDING, rounding));
    /* The tied output matrix is the embedding: one tensor, one policy. */
    if (s->config->model.tied) {
        for (uint32_t d = 0; d < BL_DIAL_LOGITS; d++)
            s->dials.dial[BL_GROUP_HEAD][d] = s->dials.dial[BL_GROUP_EMBEDDING][d];
    }
    return 0;
}

/* Settings that are allowed and seldom meant. */
static void warn(const struct bl_config *c)
{
    const struct bl_node *micro = bl_node_find(bl_node_find(c->root, "batch"), "micro");
    if (micro != NULL && micro->integer > c->batch.micro)
        bl_log(BL_LOG_WARNING,
               "batch.micro = %lld becomes %lld: a rank's %lld sequences are cut into equal parts "
               "of at most that many",
               (long long)micro->integer, (long long)c->batch.micro,
               (long long)(c->batch.sequences / c->ranks));
    if (c->schedule.warmup > c->run.steps)
        bl_log(BL_LOG_WARNING, "schedule.warmup = %lld is longer than run.steps = %lld",
               (long long)c->schedule.warmup, (long long)c->run.steps);
    for (uint64_t i = 0; i < c->plugin_path.count; i++) {
        struct stat st;
        const char *folder = c->plugin_path.values[i];
        if (stat(folder, &st) < 0 || !S_ISDIR(st.st_mode))
            bl_log(BL_LOG_WARNING, "plugin_path: there is no folder \"%s\"", folder);
    }
}

static int make(const char *path, int overrides, char *const *override, uint32_t processes,
                int data, struct bl_setup **out, struct bl_error *err)
{
    struct bl_setup *s = bl_alloc(1, sizeof *s);
    if (s == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    if (bl_config_read(path, overrides, override, processes, &s->config, err) < 0)
        goto fail;
    const struct bl_config *c = s->config;
    s->directory = bl_format("%s/%s", c->run.dir, c->run.name);
    if (s->directory == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto fail;
    }
    s->ranks = c->ranks;
    s->info = (struct bl_run_info){
        .size = sizeof s->info,
        .tied = (uint32_t)c->model.tied,
        .name = c->run.name,
        .directory = s->directory,
        .seed = (uint64_t)c->run.seed,
        .steps = (uint64_t)c->run.steps,
        .sequences = (uint64_t)c->batch.sequences,
        .context = (uint64_t)c->model.context,
        .vocab = (uint64_t)c->model.vocab,
        .width = (uint64_t)c->model.width,
        .layers = (uint64_t)c->model.layers,
        .head = c->model.tied ? "embed.weight" : "head.weight",
    };
    s->services.info = &s->info;
    s->services.device = BL_DEVICE_CPU;
    s->services.ranks = 1;
    /* A source without files, such as a synthetic one, has nothing to leave out. */
    if (c->data.train.count == 0 && c->data.validation.count == 0)
        data = 1;
    if (load_plugins(s, err) < 0 || (data ? open_data(s, err) : skip_data(s, err)) < 0 ||
        fill_dials(s, err) < 0 || bl_params_make(&c->model, &s->params, err) < 0)
        goto fail;
    s->info.parameters = s->params.elements;
    s->effects = bl_alloc(s->params.count, sizeof *s->effects);
    if (s->effects == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto fail;
    }
    if (bl_update_effects(&s->params, c->rules, c->rule_count, c->optimizer.weight_decay,
                          s->optimizer->plugin, s->effects, err) < 0)
        goto fail;
    if (bl_instance_create(s->schedule, &s->services, err) < 0)
        goto fail;
    warn(c);
    *out = s;
    return 0;
fail:
    bl_setup_free(s);
    return -1;
}

int bl_setup_make(const char *path, int overrides, char *const *override, uint32_t processes,
                  struct bl_setup **out, struct bl_error *err)
{
    return make(path, overrides, override, processes, 1, out, err);
}

int bl_setup_make_without_data(const char *path, int overrides, char *const *override,
                               uint32_t processes, struct bl_setup **out, struct bl_error *err)
{
    return make(path, overrides, override, processes, 0, out, err);
}

static int create_list(const struct bl_plugin_list *list, const struct bl_services *services,
                       struct bl_error *err)
{
    for (size_t i = 0; i < list->count; i++) {
        if (bl_instance_create(list->items[i], services, err) < 0)
            return -1;
    }
    return 0;
}

int bl_setup_has_update_guard(const struct bl_setup *s)
{
    for (size_t i = 0; i < s->guards.count; i++) {
        if (s->guards.items[i]->ops.guard.update != NULL && !s->guards.items[i]->null)
            return 1;
    }
    return 0;
}

/* What no plugin can know alone. */
static int check_together(const struct bl_setup *s, struct bl_error *err)
{
    if (bl_setup_has_update_guard(s) && s->optimizer->ops.optimizer.prepare == NULL)
        return bl_error_set(err, BL_EXIT_PLUGIN,
                            "optimizer %s has no op `prepare`, which a guard on updates needs; use "
                            "another optimizer or leave that guard out",
                            s->optimizer->plugin->name);
    if (s->config->cluster.shard == BL_SHARD_OPTIMIZER &&
        s->optimizer->ops.optimizer.survey != NULL)
        return bl_error_set(
            err, BL_EXIT_USAGE,
            "optimizer %s looks at parameters as a whole, and cluster.shard = "
            "\"optimizer\" cuts them: set cluster.shard = \"none\", or take another "
            "optimizer",
            s->optimizer->plugin->name);
    for (size_t i = 0; s->info.tied && i < s->regularizers.count; i++) {
        const struct bl_plugin_instance *r = s->regularizers.items[i];
        if (r->ops.regularizer.project_grad != NULL && !r->null)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "regularizer %s projects the head's gradient, which needs an "
                                "untied head; set model.tied = false",
                                r->name);
    }
    return 0;
}

/* Whether the loss sees the same when one number is added to all logits of a row. */
static int keeps_offset(const struct bl_plugin_instance *r)
{
    const double one = 1;
    double scale = 0, d_mean = 0, d_m2 = 0;
    const struct bl_row_stats row = {.size = sizeof row,
                                     .count = 1,
                                     .vocab = 2,
                                     .lse = &one,
                                     .target = &one,
                                     .mean = &one,
                                     .m2 = &one,
                                     .max = &one,
                                     .argmax = (const int32_t[]){0},
                                     .valid = (const uint8_t[]){1}};
    const struct bl_row_scale out = {
        .size = sizeof out, .scale = &scale, .d_mean = &d_mean, .d_m2 = &d_m2};
    if (r->null || (r->ops.regularizer.element == NULL && r->ops.regularizer.row_scale == NULL))
        return 1;
    if (r->ops.regularizer.element != NULL)
        return 0;
    r->ops.regularizer.row_scale(r->self, &row, &out, 0, 1);
    return d_mean == 0;
}

/* A projection of the head's gradient takes out what the loss cannot feel. Where it can, that is a
 * force. */
static int check_projection(const struct bl_setup *s, struct bl_error *err)
{
    const char *projects = NULL;
    for (size_t i = 0; i < s->regularizers.count; i++) {
        const struct bl_plugin_instance *r = s->regularizers.items[i];
        if (r->ops.regularizer.project_grad != NULL && !r->null)
            projects = r->name;
    }
    if (projects == NULL)
        return 0;
    if (s->config->model.logit_softcap > 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "regularizer %s takes out a direction that the loss does not feel, and "
                            "with model.logit_softcap it does: leave one of the two out",
                            projects);
    for (size_t i = 0; i < s->regularizers.count; i++)
        if (!keeps_offset(s->regularizers.items[i]))
            return bl_error_set(err, BL_EXIT_USAGE,
                                "regularizer %s takes out a direction that the loss does not feel, "
                                "and under %s it does: leave one of the two out",
                                projects, s->regularizers.items[i]->name);
    return 0;
}

int bl_setup_create(struct bl_setup *s, struct bl_error *err)
{
    if (check_together(s, err) < 0)
        return -1;
    if (bl_instance_create(s->optimizer, &s->services, err) < 0 ||
        create_list(&s->regularizers, &s->services, err) < 0 || check_projection(s, err) < 0 ||
        create_list(&s->guards, &s->services, err) < 0 ||
        create_list(&s->monitors, &s->services, err) < 0)
        return -1;
    return 0;
}

int bl_setup_create_sinks(struct bl_setup *s, struct bl_error *err)
{
    if (create_list(&s->sinks, &s->services, err) == 0)
        return 0;
    /* Their options were checked long ago: what fails here is a file that cannot be opened. */
    if (err != NULL && err->code == BL_EXIT_USAGE)
        err->code = BL_EXIT_FAILED;
    return -1;
}

void bl_setup_free(struct bl_setup *s)
{
    if (s == NULL)
        return;
    free_list(&s->sinks);
    free_list(&s->monitors);
    free_list(&s->guards);
    free_list(&s->regularizers);
    bl_instance_destroy(s->optimizer);
    bl_instance_destroy(s->schedule);
    bl_instance_destroy(s->precision);
    if (s->validation != s->train)
        bl_instance_destroy(s->validation);
    bl_instance_destroy(s->train);
    bl_free(s->effects);
    bl_params_free(&s->params);
    bl_config_free(s->config);
    free(s->directory);
    bl_free(s);
}

static const struct bl_plugin_instance *find_in(const struct bl_plugin_list *list,
                                                const struct bl_instance *configured, size_t n,
                                                const struct bl_instance *wanted)
{
    return wanted >= configured && wanted < configured + n ? list->items[wanted - configured]
                                                           : NULL;
}

static void dump_instance(void *context, const struct bl_instance *i, int indent,
                          struct bl_text *out)
{
    const struct bl_setup *s = context;
    const struct bl_config *c = s->config;
    const struct bl_plugin_instance *live = NULL;
    if (i == &c->source)
        live = s->train;
    else if (i == &c->optimizer_plugin)
        live = s->optimizer;
    else if (i == &c->schedule_plugin)
        live = s->schedule;
    else if (i == &c->precision_plugin)
        live = s->precision;
    if (live == NULL)
        live = find_in(&s->regularizers, c->regularizers, c->regularizer_count, i);
    if (live == NULL)
        live = find_in(&s->guards, c->guards, c->guard_count, i);
    if (live == NULL)
        live = find_in(&s->monitors, c->monitors, c->monitor_count, i);
    if (live == NULL)
        live = find_in(&s->sinks, c->sinks, c->sink_count, i);
    if (live != NULL)
        bl_instance_dump_options(live, indent, out);
}

int bl_setup_config_text(const struct bl_setup *s, struct bl_text *out, struct bl_error *err)
{
    return bl_config_dump(s->config, dump_instance, (void *)(uintptr_t)s, out, err);
}

double bl_setup_learning_rate(const struct bl_setup *s, uint64_t step)
{
    uint64_t update = step - 1, warmup = (uint64_t)s->config->schedule.warmup;
    double factor;
    if (update < warmup) {
        factor = bl_warmup(s->config->schedule.convention, update, warmup);
    } else {
        struct bl_schedule_point p = {sizeof p, 0, update, warmup, s->info.steps};
        factor = s->schedule->ops.schedule.factor(s->schedule->self, &p);
    }
    return s->config->optimizer.lr * factor;
}

const char *bl_dial_value_name(uint32_t dial, uint32_t value)
{
    static const char *const averages[] = {"divide", "divide_first", "premultiply", "predivide"};
    static const char *const algorithms[] = {"alltoall", "ring",     "tree",
                                             "nvls",     "pairwise", "hybrid"};
    switch (dial) {
    case BL_DIAL_AVERAGE:
        return value < 4 ? averages[value] : NULL;
    case BL_DIAL_ALGORITHM:
        return value < 6 ? algorithms[value] : NULL;
    case BL_DIAL_COLLECTIVE:
        return value == BL_COLLECTIVE_ALL_REDUCE       ? "all_reduce"
               : value == BL_COLLECTIVE_REDUCE_SCATTER ? "reduce_scatter"
                                                       : NULL;
    case BL_DIAL_ROUNDING:
        if (value == BL_ROUND_KAHAN)
            return "kahan"; /* not for sums */
        /* fall through */
    case BL_DIAL_SUM_ROUNDING:
        return value == BL_ROUND_NEAREST      ? "nearest"
               : value == BL_ROUND_STOCHASTIC ? "stochastic"
                                              : NULL;
    case BL_DIAL_WIRE:
    case BL_DIAL_SUM:
        if (value == BL_FP16)
            return "fp16"; /* no other dial has it */
        /* fall through */
    default:
        return value == BL_FP32 ? "fp32" : value == BL_BF16 ? "bf16" : NULL;
    }
}
