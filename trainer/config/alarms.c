/* The list of alarm rules. */
#include <math.h>
#include <stdlib.h>

#include "config/internal.h"
#include "config/schema.h"

const char *bl_alarm_action_name(int32_t action)
{
    static const char *const names[] = {"log", "checkpoint", "stop"};
    return names[action];
}

static int read_alarm(struct bl_config *c, struct bl_node *node, const char *what,
                      struct bl_alarm *out, struct bl_error *err)
{
    char found[128];
    struct bl_options *o;
    if (node->type != BL_NODE_GROUP)
        return bl_schema_refuse(node, NULL, what, err,
                                "expects a group { metric = \"...\"; above = ...; }, found %s",
                                bl_node_describe(node, found));
    node->used = 1;
    if (bl_schema_fill(c, BL_SCHEMA_ALARM, node, 0, what, &o, err) != 0)
        return -1;
    *out = *(const struct bl_alarm *)o->values;
    if (!*out->metric)
        return bl_schema_refuse(node, "metric", what, err,
                                "metric is empty; \"*\" matches every metric");
    if (!bl_node_find(node, "above"))
        out->above = NAN;
    if (!bl_node_find(node, "below"))
        out->below = NAN;
    if (isnan(out->above) && isnan(out->below))
        return bl_schema_refuse(node, NULL, what, err,
                                "neither above nor below is set; give at least one bound");
    if (out->below > out->above)
        return bl_schema_refuse(node, "below", what, err,
                                "below = %g is larger than above = %g: every value would be "
                                "outside",
                                out->below, out->above);
    return 0;
}

int bl_config_alarms(struct bl_config *c, struct bl_error *err)
{
    char what[64], found[128];
    struct bl_node *list = bl_node_find(c->root, "alarms");
    if (!list)
        return 0;
    if (list->type != BL_NODE_LIST)
        return bl_schema_refuse(list, NULL, "alarms", err,
                                "expects a list ( { metric = \"...\"; above = ...; } ), found %s",
                                bl_node_describe(list, found));
    list->used = 1;
    c->alarms = bl_keep_block(c, calloc(list->count + 1, sizeof *c->alarms), err);
    if (!c->alarms)
        return -1;
    for (size_t i = 0; i < list->count; i++) {
        snprintf(what, sizeof what, "alarms[%zu]", i);
        if (read_alarm(c, list->children[i], what, &c->alarms[i], err) != 0)
            return -1;
    }
    c->alarm_count = list->count;
    return 0;
}
