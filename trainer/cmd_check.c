/* ballast check: everything but training, printed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/strings.h"
#include "budget.h"
#include "cmd.h"
#include "config/presets.h"
#include "header.h"
#include "setup.h"

enum { MOST_PROCESSES = 65536 };

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

static int stores_bf16(const struct bl_precision *p)
{
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        if (p->dial[g][BL_DIAL_MASTER] == BL_BF16 || p->dial[g][BL_DIAL_MOMENTS] == BL_BF16)
            return 1;
    }
    return 0;
}

/* Nothing of it is allocated: a model larger than this machine can be checked here. */
static int print_memory(const struct bl_setup *s, uint32_t processes, struct bl_error *err)
{
    struct bl_backend *backend;
    struct bl_budget b;
    char each[32];
    uint64_t unused;
    if (bl_backend_cpu((uint32_t)s->config->run.threads, "auto", &backend, err) < 0)
        return -1;
    int rc = bl_budget_make(s, backend, processes, &b, err);
    if (rc == 0) {
        printf("\n# memory");
        if (processes > 1)
            printf(" of each of %u processes", processes);
        printf("\n");
        print_bytes("weights (master)", (double)b.model.weights);
        if (b.model.working > 0)
            print_bytes("weights (working copy)", (double)b.model.working);
        print_bytes("gradients", (double)b.model.gradients);
        print_bytes("activations", (double)b.model.activations);
        print_bytes("logits and their gradient", (double)b.model.head);
        print_bytes("optimizer state", (double)b.optimizer);
        if (b.ranks > 0)
            print_bytes("sum over ranks", (double)b.ranks);
        if (b.snapshot > 0)
            print_bytes("copy that is being saved", (double)b.snapshot);
        print_bytes("batch and its statistics", (double)b.batch);
        print_bytes("total", (double)b.total);
        if (stores_bf16(&s->dials))
            printf(
                "  bf16 master weights and moments are rounded but kept in fp32 storage on CPUs\n");
        unused = bl_memory_unused();
        if (unused > 0)
            printf("  %-26s %sB%s\n", "free here now", bl_human((double)unused, each),
                   b.total > unused ? ": NOT ENOUGH for this run" : "");
        printf("  device: %s\n", backend->description);
        if (processes > 1)
            printf("\n# messages\n  %-26s %sB: each process, at least\n", "sent in a step",
                   bl_human((double)b.sent, each));
        if (s->ranks > 1)
            printf("\n# sum over ranks\n  %s", b.order.text);
        printf("\n# disk\n");
        print_bytes("one checkpoint", (double)b.checkpoint);
        printf("  %-26s %sB: run.keep = %lld, and one more while it is written\n", "all of them",
               bl_human((double)b.checkpoint * (double)(s->config->run.keep + 1), each),
               (long long)s->config->run.keep);
        bl_budget_free(&b);
    }
    bl_backend_destroy(backend);
    return rc;
}

static void print_flops(const struct bl_setup *s)
{
    const struct bl_model_options *m = &s->config->model;
    double each = bl_model_flops(m, &s->params);
    double tokens = (double)(s->info.sequences * s->info.context);
    double attention =
        6 * (double)m->layers * (double)m->context * (double)(m->heads * m->head_dim);
    char a[32], b[32];
    printf("  FLOPs                      %s a token, %s an update, %.3g in the plan\n",
           bl_human(each, a), bl_human(each * tokens, b), each * tokens * (double)s->info.steps);
    printf("                             a token: 6 x %s weights of matrices (output matrix in, "
           "lookup tables out)\n"
           "                             + 6 x layers x context x heads x head_dim = %s "
           "(causal attention)\n",
           bl_human((each - attention) / 6, a), bl_human(attention, b));
}

static void print_plan(const struct bl_setup *s)
{
    double sequences = (double)s->info.sequences * (double)s->info.steps;
    char a[32], b[32];
    printf("  tokens in the plan         %s", bl_human(sequences * (double)s->info.context, a));
    if (s->train_info.sequences > 0)
        printf(" (%.3g epochs of %s)\n", sequences / (double)s->train_info.sequences,
               bl_human((double)s->train_info.tokens, b));
    else
        printf(" (epochs unknown: the data was not opened)\n");
    if (s->validation_first > 0)
        printf("  held out                   %llu of %llu sequences, the last ones\n",
               (unsigned long long)s->validation_info.sequences,
               (unsigned long long)(s->validation_first + s->validation_info.sequences));
    if (!isnan(s->train_info.entropy))
        printf("  entropy of the source      %.6f nats a token\n", s->train_info.entropy);
}

static void print_work(const struct bl_setup *s)
{
    char a[32];
    printf("\n# work\n");
    printf("  parameters                 %llu (%s), vocabulary %llu padded to %llu\n",
           (unsigned long long)s->params.elements, bl_human((double)s->params.elements, a),
           (unsigned long long)s->params.vocab, (unsigned long long)s->params.padded_vocab);
    printf("  tokens per update          %llu = %llu sequences x %llu\n",
           (unsigned long long)(s->info.sequences * s->info.context),
           (unsigned long long)s->info.sequences, (unsigned long long)s->info.context);
    printf("  layout                     %llu ranks x %llu micro-batches of %lld sequences\n",
           (unsigned long long)s->ranks,
           (unsigned long long)(s->info.sequences / s->ranks / (uint64_t)s->config->batch.micro),
           (long long)s->config->batch.micro);
    print_plan(s);
    print_flops(s);
    printf("  learning rate              first %g, peak %g, last %g\n",
           bl_setup_learning_rate(s, 1), s->config->optimizer.lr,
           bl_setup_learning_rate(s, s->info.steps));
}

static int print_preset(const struct bl_config *c, struct bl_error *err)
{
    struct bl_text changed = {0};
    if (*c->model.preset == '\0')
        return 0;
    int rc = bl_preset_overrides(c, &changed, err);
    if (rc == 0)
        printf("\n# preset %s%s\n%s", c->model.preset,
               changed.length > 0 ? ", changed by the configuration" : "",
               changed.length > 0 ? changed.text : "  no key changed by the configuration\n");
    bl_text_free(&changed);
    return rc;
}

/* Above "# plugins" stands a configuration that can be run as it is. */
static int check(const struct bl_setup *s, int data, uint32_t processes, struct bl_error *err)
{
    struct bl_text text = {0};
    if (bl_setup_config_text(s, &text, err) < 0) {
        bl_text_free(&text);
        return -1;
    }
    printf("# effective configuration\n%s", text.text);
    bl_text_free(&text);
    if (!data)
        printf("\n# --no-data: the files of data.* were not looked at\n");
    print_plugins(s);
    if (print_preset(s->config, err) < 0)
        return -1;
    print_parameters(s);
    print_precision(s);
    print_work(s);
    return print_memory(s, processes, err);
}

static int read_processes(const char *text, uint32_t *out)
{
    char *end;
    long n = strtol(text, &end, 10);
    if (*text == '\0' || *end != '\0' || n < 1 || n > MOST_PROCESSES)
        return -1;
    *out = (uint32_t)n;
    return 0;
}

int bl_cmd_check(int argc, char **argv, struct bl_error *err)
{
    static const char usage[] = "usage: ballast check [--no-data] [--processes N] CONFIG "
                                "[KEY=VALUE...]";
    int data = 1, n = 0;
    uint32_t processes = 1;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf(
            "%s\n\n"
            "Loads what `ballast train` would load and prints the effective configuration, the\n"
            "plugins, the parameter table, the precision, and what the run will take: tokens,\n"
            "FLOPs, memory, disk. Trains and writes nothing, and takes no memory for the model:\n"
            "one that is too large for this machine can be checked here.\n\n"
            "  --no-data   leaves the files of data.* alone, for a config whose data is\n"
            "              elsewhere; model.vocab or model.preset has to say the vocabulary\n"
            "  --processes N   as for a job of N processes: memory of one of them, messages\n",
            usage);
        return 0;
    }
    for (int i = 1; i < argc; i++) { /* options may stand anywhere */
        if (strcmp(argv[i], "--no-data") == 0)
            data = 0;
        else if (strcmp(argv[i], "--processes") == 0) {
            if (i + 1 == argc || read_processes(argv[++i], &processes) < 0)
                return bl_error_set(err, BL_EXIT_USAGE,
                                    "check: --processes wants a number from 1 to %d; %s",
                                    MOST_PROCESSES, usage);
        } else if (argv[i][0] == '-')
            return bl_error_set(err, BL_EXIT_USAGE, "check: unknown option %s; %s", argv[i], usage);
        else
            argv[n++] = argv[i];
    }
    if (n == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "%s", usage);
    struct bl_setup *s;
    int made = data ? bl_setup_make(argv[0], n - 1, argv + 1, processes, &s, err)
                    : bl_setup_make_without_data(argv[0], n - 1, argv + 1, processes, &s, err);
    if (made < 0)
        return -1;
    /* Nothing is written, so no plugin may think that there is a directory. */
    s->info.directory = "";
    int rc = bl_setup_create(s, err) < 0 ? -1 : check(s, data, processes, err);
    bl_setup_free(s);
    return rc;
}
