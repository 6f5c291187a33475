#include <stdlib.h>
#include <string.h>

#include "config/internal.h"
#include "config/schema.h"

/* A preset is the text of a model group: any key of it, in libconfig syntax. Keys that a
 * configuration writes win over it. */
struct preset {
    const char *name, *text;
};

static const struct preset presets[] = {
    /* Radford et al. 2019, the smallest of the four. */
    {"gpt2-124m", "layers = 12; width = 768; heads = 12; context = 1024; vocab = 50257;"
                  "norm = \"layernorm\"; norm_placement = \"pre\"; position = \"learned\";"
                  "mlp = \"gelu\"; bias = true; tied = true; init = \"gpt2\";"},
};
#define PRESETS (sizeof presets / sizeof presets[0])

static const struct preset *find_preset(const struct bl_node *group, const char *name,
                                        struct bl_error *err)
{
    const char *names[PRESETS + 1] = {NULL};
    struct bl_text list = {0};
    for (size_t i = 0; i < PRESETS; i++) {
        if (strcmp(presets[i].name, name) == 0)
            return bl_text_free(&list), &presets[i];
        names[i] = presets[i].name;
        bl_text_add(&list, "%s%s", i ? ", " : "", presets[i].name);
    }
    const char *near = bl_nearest(name, names);
    if (near)
        bl_schema_refuse(group, "preset", "model", err, "no preset \"%s\"; did you mean \"%s\"?",
                         name, near);
    else
        bl_schema_refuse(group, "preset", "model", err, "no preset \"%s\"; there are: %s", name,
                         list.text ? list.text : "none");
    bl_text_free(&list);
    return NULL;
}

/* The group as if the preset's keys that it lacks had been written in it. */
static int fill_with_preset(struct bl_config *c, const struct bl_node *group, const char *name,
                            struct bl_options **out, struct bl_error *err)
{
    struct bl_node *defaults = NULL;
    const struct preset *p = find_preset(group, name, err);
    if (!p || bl_node_parse_text(p->text, p->name, 0, &defaults, err) != 0)
        return -1;
    struct bl_node merged = *group;
    merged.count = 0;
    merged.children = calloc(group->count + defaults->count, sizeof(struct bl_node *));
    int rc = -1;
    if (!merged.children) {
        bl_error_set(err, BL_EXIT_FAILED, "model: out of memory");
    } else {
        for (size_t i = 0; i < group->count; i++)
            merged.children[merged.count++] = group->children[i];
        for (size_t i = 0; i < defaults->count; i++)
            if (!bl_node_find(group, defaults->children[i]->name))
                merged.children[merged.count++] = defaults->children[i];
        rc = bl_schema_fill(c, BL_SCHEMA_MODEL, &merged, 0, "model", out, err);
    }
    free(merged.children);
    bl_node_free(defaults);
    return rc;
}

static int64_t nearest_divisor(int64_t n, int64_t from, int step)
{
    for (int64_t d = from; d >= 1 && d <= n; d += step)
        if (n % d == 0)
            return d;
    return step > 0 ? n : 1;
}

/* " (2 or 3 would work)": the divisors of n around value. */
static const char *divisors(int64_t n, int64_t value, char *buffer, size_t size)
{
    int64_t below = nearest_divisor(n, value < n ? value : n, -1);
    int64_t above = nearest_divisor(n, value, 1);
    if (below == above)
        snprintf(buffer, size, "%lld", (long long)below);
    else
        snprintf(buffer, size, "%lld or %lld", (long long)below, (long long)above);
    return buffer;
}

static int check_heads(struct bl_model_options *m, const struct bl_node *group,
                       struct bl_error *err)
{
    char works[64];
    if (m->head_dim == 0) {
        if (m->width % m->heads != 0)
            return bl_schema_refuse(group, "heads", "model", err,
                                    "width %lld is not divisible by heads %lld; heads = %s would "
                                    "work, or write head_dim",
                                    (long long)m->width, (long long)m->heads,
                                    divisors(m->width, m->heads, works, sizeof works));
        m->head_dim = m->width / m->heads;
    }
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads != 0)
        return bl_schema_refuse(group, "kv_heads", "model", err,
                                "heads %lld is not divisible by kv_heads %lld; kv_heads = %s "
                                "would work",
                                (long long)m->heads, (long long)m->kv_heads,
                                divisors(m->heads, m->kv_heads, works, sizeof works));
    if (m->position == BL_ROPE && m->head_dim % 2 != 0)
        return bl_schema_refuse(group, "head_dim", "model", err,
                                "position = \"rope\" turns pairs: a head of %lld numbers is odd; "
                                "head_dim = %lld or %lld would work",
                                (long long)m->head_dim,
                                (long long)m->head_dim - 1 + 2 * (m->head_dim == 1),
                                (long long)m->head_dim + 1);
    if (m->heads * m->head_dim > 1 << 20)
        return bl_schema_refuse(group, "head_dim", "model", err,
                                "heads * head_dim = %lld is more than %d",
                                (long long)(m->heads * m->head_dim), 1 << 20);
    return 0;
}

int bl_config_model(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "model", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_MODEL, group, 0, "model", &o, err) != 0)
        return -1;
    const char *preset = ((const struct bl_model_options *)o->values)->preset;
    if (*preset && fill_with_preset(c, group, preset, &o, err) != 0)
        return -1;

    struct bl_model_options *m = &c->model;
    *m = *(const struct bl_model_options *)o->values;
    if (check_heads(m, group, err) != 0)
        return -1;
    if (m->mlp_width == 0)
        m->mlp_width =
            m->mlp == BL_GELU ? 4 * m->width : (8 * m->width + 3 * 64 - 1) / (3 * 64) * 64;
    return 0;
}

/* ---- batch: needs the context and cluster.emulate ---- */

static int resolve_sequences(struct bl_config *c, const struct bl_node *group, int written,
                             struct bl_error *err)
{
    struct bl_batch_options *b = &c->batch;
    long long context = (long long)c->model.context, tokens = (long long)b->tokens;
    if (b->tokens != 0 && b->sequences != 0)
        return bl_schema_refuse(group, "tokens", "batch", err,
                                "tokens %lld and sequences %lld are both given; set one of them "
                                "to 0",
                                tokens, (long long)b->sequences);
    if (b->tokens == 0 && b->sequences == 0) {
        if (written)
            return bl_schema_refuse(group, "tokens", "batch", err,
                                    "tokens and sequences are both 0; give one of them");
        b->sequences = 32;
    }
    if (b->tokens != 0) {
        long long below = tokens / context * context;
        if (tokens % context != 0)
            return bl_schema_refuse(group, "tokens", "batch", err,
                                    "tokens %lld is no multiple of model.context %lld; %lld or "
                                    "%lld would work",
                                    tokens, context, below ? below : context,
                                    (below ? below : context) + context);
        b->sequences = b->tokens / c->model.context;
    }
    b->tokens = b->sequences * c->model.context;
    return 0;
}

int bl_config_batch(struct bl_config *c, struct bl_error *err)
{
    struct bl_node *group;
    struct bl_options *o;
    if (bl_schema_group(c->root, "batch", &group, err) != 0 ||
        bl_schema_fill(c, BL_SCHEMA_BATCH, group, 0, "batch", &o, err) != 0)
        return -1;
    struct bl_batch_options *b = &c->batch;
    *b = *(const struct bl_batch_options *)o->values;
    int by_tokens = b->tokens != 0;
    int written = bl_node_find(group, "tokens") || bl_node_find(group, "sequences");
    if (resolve_sequences(c, group, written, err) != 0)
        return -1;

    int64_t ranks = c->cluster.emulate > 1 ? c->cluster.emulate : 1;
    if (b->sequences % ranks != 0) {
        char works[64];
        int64_t below = b->sequences / ranks * ranks, unit = by_tokens ? c->model.context : 1;
        int64_t low = below ? below : ranks, high = low + ranks;
        return bl_schema_refuse(group, by_tokens ? "tokens" : "sequences", "batch", err,
                                "%lld sequences cannot be split over %lld ranks "
                                "(cluster.emulate); %s = %lld or %lld would work, or "
                                "cluster.emulate = %s",
                                (long long)b->sequences, (long long)ranks,
                                by_tokens ? "tokens" : "sequences", (long long)(low * unit),
                                (long long)(high * unit),
                                divisors(b->sequences, ranks, works, sizeof works));
    }
    int64_t share = b->sequences / ranks;
    b->micro = nearest_divisor(share, b->micro < share ? b->micro : share, -1);
    return 0;
}
