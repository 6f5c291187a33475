#include <string.h>

#include <ballast/precision.h>

#include "config/schema.h"

static uint32_t dial_value(const struct bl_dial_info *d, int32_t word)
{
    static const uint32_t dtype[] = {BL_FP32, BL_BF16};
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

int bl_config_dials(struct bl_config *c, const struct bl_node *group, struct bl_error *err)
{
    static const char *const name[BL_GROUP_COUNT] = {"matrix", "embedding", "norm", "head"};
    struct bl_options *o;
    memset(c->dials, 0xff, sizeof c->dials); /* BL_DIAL_UNSET */
    if (!group)
        return 0;
    if (bl_schema_fill(c, BL_SCHEMA_PRECISION, group, 1, "precision", &o, err) != 0)
        return -1;
    take(c, o, (1u << BL_GROUP_COUNT) - 1);
    for (unsigned g = 0; g < BL_GROUP_COUNT; g++) {
        enum bl_schema_value s = (enum bl_schema_value)(BL_SCHEMA_PRECISION_MATRIX + g);
        struct bl_node *part;
        if (bl_schema_group(group, name[g], &part, err) != 0)
            return -1;
        if (!part)
            continue;
        if (bl_schema_fill(c, s, part, 0, bl_schema[s].name, &o, err) != 0)
            return -1;
        take(c, o, 1u << g);
    }
    return 0;
}
