#include <string.h>

#include <ballast/precision.h>

#include "config/schema.h"

const char *bl_group_name(uint32_t group)
{
    static const char *const names[BL_GROUP_COUNT] = {"matrix", "embedding", "norm", "head"};
    return group < BL_GROUP_COUNT ? names[group] : NULL;
}

static const struct bl_dial_info *info_of(uint32_t dial)
{
    for (unsigned i = 0; i < bl_dial_count; i++)
        if (bl_dials[i].dial == dial)
            return &bl_dials[i];
    return NULL;
}

const char *bl_dial_name(uint32_t dial)
{
    const struct bl_dial_info *d = info_of(dial);
    return d ? d->key : NULL;
}

int bl_dial_applies(uint32_t group, uint32_t dial)
{
    const struct bl_dial_info *d = info_of(dial);
    return d && group < BL_GROUP_COUNT && (d->groups & 1u << group);
}

static uint32_t dial_value(const struct bl_dial_info *d, int32_t word)
{
    static const uint32_t dtype[] = {BL_FP32, BL_BF16, BL_FP16};
    return d->is_dtype ? dtype[word] : (uint32_t)word;
}

/* Takes over the dials that a group writes into the table's rows of `groups`. */
static void take(struct bl_config *c, const struct bl_options *o, uint32_t groups)
{
    const struct bl_precision_keys *k = o->values;
    for (unsigned row = 0; o->table[row].key; row++) {
        if (!o->written[row])
            continue;
        for (unsigned i = 0; i < bl_dial_count; i++) {
            const struct bl_dial_info *d = &bl_dials[i];
            if (strcmp(d->key, o->table[row].key) != 0)
                continue;
            for (unsigned g = 0; g < BL_GROUP_COUNT; g++)
                if (groups & d->groups & 1u << g)
                    c->dials[g][d->dial] = dial_value(d, k->dial[d->dial]);
        }
    }
}

/* With tied weights there is one matrix, and its dials are those of the embedding: what is written
 * for the head alone must say the same. */
static int check_tied(const struct bl_config *c, const struct bl_node *head,
                      const struct bl_options *o, struct bl_error *err)
{
    for (unsigned row = 0; c->model.tied && o->table[row].key; row++) {
        for (unsigned i = 0; o->written[row] && i < bl_dial_count; i++) {
            const struct bl_dial_info *d = &bl_dials[i];
            if (strcmp(d->key, o->table[row].key) == 0 && (d->groups & 1u << BL_GROUP_EMBEDDING) &&
                c->dials[BL_GROUP_HEAD][d->dial] != c->dials[BL_GROUP_EMBEDDING][d->dial])
                return bl_schema_refuse(
                    head, d->key, "precision.head", err,
                    "with model.tied = true the output matrix is the embedding: "
                    "write precision.embedding.%s, or set model.tied = false",
                    d->key);
        }
    }
    return 0;
}

int bl_config_dials(struct bl_config *c, const struct bl_node *group, struct bl_error *err)
{
    struct bl_options *o;
    memset(c->dials, 0xff, sizeof c->dials); /* BL_DIAL_UNSET */
    if (!group)
        return 0;
    if (bl_schema_fill(c, BL_SCHEMA_PRECISION, group, 1, "precision", &o, err) != 0)
        return -1;
    take(c, o, (1u << BL_GROUP_COUNT) - 1);
    for (unsigned g = 0; g < BL_GROUP_COUNT; g++) {
        enum bl_schema_value s = (enum bl_schema_value)(BL_SCHEMA_PRECISION_MATRIX + g);
        struct bl_node *part = bl_node_find(group, bl_group_name(g));
        if (!part)
            continue;
        part->used = 1;
        if (bl_schema_fill(c, s, part, 0, bl_schema[s].name, &o, err) != 0)
            return -1;
        take(c, o, 1u << g);
        if (g == BL_GROUP_HEAD && check_tied(c, part, o, err) != 0)
            return -1;
    }
    for (unsigned i = 0; c->model.tied && i < bl_dial_count; i++)
        if (bl_dials[i].groups & 1u << BL_GROUP_EMBEDDING)
            c->dials[BL_GROUP_HEAD][bl_dials[i].dial] =
                c->dials[BL_GROUP_EMBEDDING][bl_dials[i].dial];
    return 0;
}
