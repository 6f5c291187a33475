#include <stdlib.h>
#include <string.h>

#include "config/internal.h"
#include "config/presets.h"
#include "config/schema.h"

/* The key of a check that several keys take part in; see bl_schema_cause. */
#define CAUSE(...) bl_schema_cause(c, (const char *const[]){__VA_ARGS__, NULL}, group)

static const struct bl_preset *find_preset(const struct bl_node *group, const char *name,
                                           struct bl_error *err)
{
    const struct bl_preset *found = bl_preset_find(name);
    const char *names[BL_PRESETS + 1] = {NULL};
    struct bl_text list = {0};
    if (found)
        return found;
    for (size_t i = 0; i < BL_PRESETS; i++) {
        names[i] = bl_presets[i].name;
        bl_text_add(&list, "%s%s", i ? ", " : "", bl_presets[i].name);
    }
    const char *near = bl_nearest(name, names), *all = list.text ? list.text : "";
    if (near)
        bl_schema_refuse(group, "preset", "model", err,
                         "no preset \"%s\"; did you mean \"%s\"? (there are: %s)", name, near, all);
    else
        bl_schema_refuse(group, "preset", "model", err, "no preset \"%s\"; there are: %s", name,
                         all);
    bl_text_free(&list);
    return NULL;
}

/* The group as if the preset's keys that it lacks had been written in it. */
static int fill_with_preset(struct bl_config *c, const struct bl_node *group, const char *name,
                            struct bl_options **out, struct bl_error *err)
{
    struct bl_node *defaults = NULL;
    const struct bl_preset *p = find_preset(group, name, err);
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

/* The divisor of n next to `from`, downward or upward; 1 or n when there is none. Divisors come in
 * pairs around sqrt(n), so that a large prime is no loop up to itself. */
static int64_t nearest_divisor(int64_t n, int64_t from, int step)
{
    int64_t best = step > 0 ? n : 1;
    for (int64_t d = 1; d <= n / d; d++) {
        if (n % d != 0)
            continue;
        const int64_t pair[2] = {d, n / d};
        for (int i = 0; i < 2; i++)
            if (step > 0 ? pair[i] >= from && pair[i] < best : pair[i] <= from && pair[i] > best)
                best = pair[i];
    }
    return best;
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

static int check_heads(struct bl_config *c, const struct bl_node *group, struct bl_error *err)
{
    struct bl_model_options *m = &c->model;
    char works[64];
    if (m->head_dim == 0) {
        if (m->width % m->heads != 0)
            return bl_schema_refuse(CAUSE("model.heads", "model.width"), NULL, "model", err,
                                    "width %lld is not divisible by heads %lld; heads = %s would "
                                    "work, or write head_dim",
                                    (long long)m->width, (long long)m->heads,
                                    divisors(m->width, m->heads, works, sizeof works));
        m->head_dim = m->width / m->heads;
    }
    if (m->kv_heads == 0)
        m->kv_heads = m->heads;
    if (m->heads % m->kv_heads != 0)
        return bl_schema_refuse(CAUSE("model.kv_heads", "model.heads"), NULL, "model", err,
                                "heads %lld is not divisible by kv_heads %lld; kv_heads = %s "
                                "would work",
                                (long long)m->heads, (long long)m->kv_heads,
                                divisors(m->heads, m->kv_heads, works, sizeof works));
    if (m->position == BL_ROPE && m->head_dim % 2 != 0)
        return bl_schema_refuse(
            CAUSE("model.head_dim", "model.position", "model.width", "model.heads"), NULL, "model",
            err,
            "position = \"rope\" turns pairs: a head of %lld numbers is odd; "
            "head_dim = %lld or %lld would work",
            (long long)m->head_dim, (long long)m->head_dim - 1 + 2 * (m->head_dim == 1),
            (long long)m->head_dim + 1);
    if (m->heads * m->head_dim > 1 << 20)
        return bl_schema_refuse(CAUSE("model.head_dim", "model.heads"), NULL, "model", err,
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
    if (check_heads(c, group, err) != 0)
        return -1;
    if (m->mlp_width == 0)
        m->mlp_width =
            m->mlp == BL_GELU ? 4 * m->width : (8 * m->width + 3 * 64 - 1) / (3 * 64) * 64;
    return 0;
}

/* ---- batch: needs the context and cluster.emulate ---- */

enum { MOST_SEQUENCES = 16777216 }; /* the range of batch.sequences in config/schema.c */

static int resolve_sequences(struct bl_config *c, const struct bl_node *group, int written,
                             struct bl_error *err)
{
    struct bl_batch_options *b = &c->batch;
    long long context = (long long)c->model.context, tokens = (long long)b->tokens;
    if (b->tokens != 0 && b->sequences != 0)
        return bl_schema_refuse(CAUSE("batch.tokens", "batch.sequences"), NULL, "batch", err,
                                "tokens %lld and sequences %lld are both given; set one of them "
                                "to 0",
                                tokens, (long long)b->sequences);
    if (b->tokens == 0 && b->sequences == 0) {
        if (written)
            return bl_schema_refuse(CAUSE("batch.tokens", "batch.sequences"), NULL, "batch", err,
                                    "tokens and sequences are both 0; give one of them");
        b->sequences = 32;
    }
    if (b->tokens != 0) {
        long long below = tokens / context * context;
        if (tokens % context != 0)
            return bl_schema_refuse(
                CAUSE("batch.tokens", "model.context", "model.preset"), NULL, "batch", err,
                "tokens %lld is no multiple of model.context %lld; %lld or "
                "%lld would work",
                tokens, context, below ? below : context, (below ? below : context) + context);
        if (tokens / context > MOST_SEQUENCES)
            return bl_schema_refuse(CAUSE("batch.tokens", "model.context", "model.preset"), NULL,
                                    "batch", err,
                                    "tokens %lld are %lld sequences of %lld; at most %d sequences "
                                    "are possible",
                                    tokens, tokens / context, context, MOST_SEQUENCES);
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

    int64_t ranks = c->ranks;
    if (b->sequences % ranks != 0) {
        char works[64];
        int64_t below = b->sequences / ranks * ranks, unit = by_tokens ? c->model.context : 1;
        int64_t low = below ? below : ranks, high = low + ranks;
        return bl_schema_refuse(CAUSE(by_tokens ? "batch.tokens" : "batch.sequences",
                                      "cluster.emulate", "model.context"),
                                NULL, "batch", err,
                                "%lld sequences cannot be split over %lld ranks "
                                "(%s); %s = %lld or %lld would work, or "
                                "cluster.emulate = %s",
                                (long long)b->sequences, (long long)ranks,
                                c->cluster.emulate > 0 ? "cluster.emulate" : "processes",
                                by_tokens ? "tokens" : "sequences", (long long)(low * unit),
                                (long long)(high * unit),
                                divisors(b->sequences, ranks, works, sizeof works));
    }
    int64_t share = b->sequences / ranks;
    b->micro = nearest_divisor(share, b->micro < share ? b->micro : share, -1);
    return 0;
}
