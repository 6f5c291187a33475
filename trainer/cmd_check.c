/* ballast check: everything but training, printed. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/strings.h"
#include "cmd.h"
#include "header.h"
#include "setup.h"

static void print_plugin(const struct bl_plugin_instance *i)
{
    printf("  %-12s %-18s %-8s %s%s\n", bl_kind_name(i->plugin->kind), i->name, i->plugin->version,
           bl_library_path(i->library), i->null ? "  (null setting: does nothing)" : "");
}

static void print_plugins(const struct bl_setup *s)
{
    const struct bl_plugin_list *lists[] = {&s->regularizers, &s->guards, &s->monitors, &s->sinks};
    printf("\n# plugins\n");
    print_plugin(s->train);
    print_plugin(s->precision);
    print_plugin(s->schedule);
    print_plugin(s->optimizer);
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t i = 0; i < lists[l]->count; i++)
            print_plugin(lists[l]->items[i]);
    }
}

static void print_parameters(const struct bl_setup *s)
{
    const struct bl_params *p = &s->params;
    const struct bl_update_effect *effects = s->effects;
    printf("\n# parameters\n  %-34s %-16s %-10s %-22s %-8s %s\n", "name", "shape", "group", "init",
           "lr x", "decay");
    for (uint64_t i = 0; i < p->count; i++) {
        const struct bl_param *q = &p->items[i];
        char shape[48], init[64];
        if (q->ndim > 1)
            snprintf(shape, sizeof shape, "%llu x %llu", (unsigned long long)q->dims[0],
                     (unsigned long long)q->dims[1]);
        else
            snprintf(shape, sizeof shape, "%llu", (unsigned long long)q->dims[0]);
        if (q->init_std > 0 && q->init_cut > 0)
            snprintf(init, sizeof init, "N(0, %.4g) cut %g sd", q->init_std, q->init_cut);
        else if (q->init_std > 0)
            snprintf(init, sizeof init, "N(0, %.4g)", q->init_std);
        else
            snprintf(init, sizeof init, "%g", q->init_value);
        printf("  %-34s %-16s %-10s %-22s %-8g %g", q->name, shape, bl_group_name(q->group), init,
               effects[i].lr_scale, effects[i].weight_decay);
        if (!isnan(effects[i].epsilon))
            printf("  eps %g", effects[i].epsilon);
        printf("\n");
    }
}

static void print_precision(const struct bl_setup *s)
{
    printf("\n# precision\n");
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        struct bl_text t = {0};
        bl_dials_text(&s->dials, g, &t);
        printf("  %-10s %s\n", bl_group_name(g), t.text != NULL ? t.text : "");
        bl_text_free(&t);
    }
}

static void print_bytes(const char *what, double bytes)
{
    char text[32];
    printf("  %-26s %sB\n", what, bl_human(bytes, text));
}

/* The model's arenas are reserved, not touched: their size is exact and costs nothing. */
static int print_memory(const struct bl_setup *s, struct bl_error *err)
{
    struct bl_backend *backend;
    struct bl_model *model = NULL;
    if (bl_backend_cpu((uint32_t)s->config->run.threads, "auto", &backend, err) < 0)
        return -1;
    int rc = bl_model_make(backend, &s->config->model, &s->dials, (uint64_t)s->config->batch.micro,
                           &model, err);
    if (rc == 0) {
        double arena = (double)s->params.floats * sizeof(float);
        double states = arena * s->optimizer->ops.optimizer.states(s->optimizer->self);
        double sums = s->ranks > 1 ? arena : 0;
        double model_bytes = (double)bl_model_memory(model);
        printf("\n# memory\n");
        print_bytes("weights (master)", arena);
        print_bytes("gradients", arena);
        print_bytes("activations and the rest", model_bytes - 2 * arena);
        print_bytes("optimizer state", states);
        if (sums > 0)
            print_bytes("sum over ranks", sums);
        print_bytes("total", model_bytes + states + sums);
        printf("  device: %s\n", backend->description);
    }
    bl_model_free(model);
    bl_backend_destroy(backend);
    return rc;
}

static void print_work(const struct bl_setup *s)
{
    char a[32], b[32], c[32];
    uint64_t tokens = s->info.sequences * s->info.context;
    double flops = bl_model_flops(&s->config->model, &s->params);
    printf("\n# work\n");
    printf("  parameters                 %llu (%s), vocabulary %llu padded to %llu\n",
           (unsigned long long)s->params.elements, bl_human((double)s->params.elements, a),
           (unsigned long long)s->params.vocab, (unsigned long long)s->params.padded_vocab);
    printf("  tokens per update          %llu = %llu sequences x %llu\n",
           (unsigned long long)tokens, (unsigned long long)s->info.sequences,
           (unsigned long long)s->info.context);
    printf("  layout                     %llu ranks x %llu micro-batches of %lld sequences\n",
           (unsigned long long)s->ranks,
           (unsigned long long)(s->info.sequences / s->ranks / (uint64_t)s->config->batch.micro),
           (long long)s->config->batch.micro);
    printf("  tokens in the plan         %s (%.3g epochs of %s)\n",
           bl_human((double)tokens * (double)s->info.steps, a),
           (double)s->info.sequences * (double)s->info.steps / (double)s->train_info.sequences,
           bl_human((double)s->train_info.tokens, b));
    printf("  FLOPs                      %s a token, %s an update, %s in the plan\n",
           bl_human(flops, a), bl_human(flops * (double)tokens, b),
           bl_human(flops * (double)tokens * (double)s->info.steps, c));
    if (!isnan(s->train_info.entropy))
        printf("  entropy of the source      %.6f nats a token\n", s->train_info.entropy);
    printf("  learning rate              first %g, peak %g, last %g\n",
           bl_setup_learning_rate(s, 1), s->config->optimizer.lr,
           bl_setup_learning_rate(s, s->info.steps));
}

int bl_cmd_check(int argc, char **argv, struct bl_error *err)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: ballast check CONFIG [KEY=VALUE...]\n\n"
             "Loads what `ballast train` would load and prints the effective configuration, "
             "plugins,\n"
             "parameter table, precision, work and memory. Trains and writes nothing.");
        return 0;
    }
    if (argc < 2 || argv[1][0] == '-')
        return bl_error_set(err, BL_EXIT_USAGE, "usage: ballast check CONFIG [KEY=VALUE...]");
    struct bl_setup *s;
    if (bl_setup_make(argv[1], argc - 2, argv + 2, &s, err) < 0)
        return -1;
    struct bl_text text = {0};
    /* Nothing is written, so no plugin may think that there is a directory. */
    s->info.directory = "";
    int rc = -1;
    if (bl_setup_create(s, err) < 0 || bl_setup_config_text(s, &text, err) < 0)
        goto done;
    printf("# effective configuration\n%s", text.text);
    print_plugins(s);
    print_parameters(s);
    print_precision(s);
    print_work(s);
    rc = print_memory(s, err);
done:
    bl_text_free(&text);
    bl_setup_free(s);
    return rc;
}
