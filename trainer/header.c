#include "header.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "attempts.h"
#include "base/strings.h"

void bl_dials_text(const struct bl_precision *p, uint32_t group, struct bl_text *out)
{
    const char *separator = " but ";
    bl_text_add(out, "fp32, divide, all_reduce by alltoall, nearest");
    for (uint32_t d = 0; d < BL_DIAL_COUNT; d++) {
        uint32_t v = p->dial[group][d];
        if (!bl_dial_applies(group, d) || v == bl_dial_default(d))
            continue;
        bl_text_add(out, "%s%s %s", separator, bl_dial_name(d), bl_dial_value_name(d, v));
        separator = ", ";
    }
}

static int add_plugin(void *context, const char *key, const struct bl_plugin_instance *i)
{
    char checksum[32];
    (void)key;
    snprintf(checksum, sizeof checksum, "%016llx",
             (unsigned long long)bl_library_checksum(i->library));
    json_t *j = json_object();
    json_object_set_new(j, "kind", json_string(bl_kind_name(i->plugin->kind)));
    json_object_set_new(j, "plugin", json_string(i->plugin->name));
    json_object_set_new(j, "name", json_string(i->name));
    json_object_set_new(j, "version", json_string(i->plugin->version));
    json_object_set_new(j, "build", json_string(i->plugin->build));
    json_object_set_new(j, "file", json_string(bl_library_path(i->library)));
    json_object_set_new(j, "xxh64", json_string(checksum));
    json_object_set_new(j, "null", json_boolean(i->null));
    return json_array_append_new(context, j);
}

static json_t *plugins_json(const struct bl_setup *s)
{
    json_t *array = json_array();
    bl_attempts_each_plugin(s, add_plugin, array);
    return array;
}

static json_t *precision_json(const struct bl_precision *p)
{
    json_t *groups = json_object();
    for (uint32_t g = 0; g < BL_GROUP_COUNT; g++) {
        json_t *dials = json_object();
        for (uint32_t d = 0; d < BL_DIAL_COUNT; d++) {
            if (bl_dial_applies(g, d))
                json_object_set_new(dials, bl_dial_name(d),
                                    json_string(bl_dial_value_name(d, p->dial[g][d])));
        }
        json_object_set_new(groups, bl_group_name(g), dials);
    }
    return groups;
}

/* Parameters by their (lr_scale, weight_decay, eps): one object a group, names listed. */
static json_t *decay_groups_json(const struct bl_setup *s)
{
    json_t *groups = json_array();
    for (uint64_t i = 0; i < s->params.count; i++) {
        const struct bl_update_effect *e = &s->effects[i];
        json_t *found = NULL, *g;
        size_t k;
        json_array_foreach(groups, k, g)
        {
            if (json_integer_value(json_object_get(g, "rule")) == e->rule)
                found = g;
        }
        if (found == NULL) {
            found = json_object();
            json_object_set_new(found, "rule", json_integer(e->rule));
            json_object_set_new(found, "lr_scale", json_real(e->lr_scale));
            json_object_set_new(found, "weight_decay", json_real(e->weight_decay));
            if (!isnan(e->epsilon))
                json_object_set_new(found, "eps", json_real(e->epsilon));
            json_object_set_new(found, "parameters", json_array());
            json_array_append_new(groups, found);
        }
        json_array_append_new(json_object_get(found, "parameters"),
                              json_string(s->params.items[i].name));
    }
    return groups;
}

static json_t *alarms_json(const struct bl_config *c)
{
    json_t *all = json_array();
    for (size_t i = 0; i < c->alarm_count; i++) {
        const struct bl_alarm *a = &c->alarms[i];
        json_t *j =
            json_pack("{s:s, s:I, s:I, s:s}", "metric", a->metric, "for", (json_int_t)a->in_a_row,
                      "from", (json_int_t)a->from, "action", bl_alarm_action_name(a->action));
        if (!isnan(a->above))
            json_object_set_new(j, "above", json_real(a->above));
        if (!isnan(a->below))
            json_object_set_new(j, "below", json_real(a->below));
        json_array_append_new(all, j);
    }
    return all;
}

/* A string a line of the text. */
static json_t *lines_json(char *text)
{
    json_t *all = json_array();
    for (char *line = text, *end; line != NULL && *line != '\0'; line = end) {
        end = line + strcspn(line, "\n");
        if (*end != '\0')
            *end++ = '\0';
        json_array_append_new(all, json_string(line));
    }
    return all;
}

static json_t *world_json(const struct bl_setup *s, const struct bl_world *world)
{
    uint32_t processes = bl_world_processes(world), nodes = 0;
    json_t *hosts = json_array();
    for (uint32_t p = 0; p < processes; p++) {
        if (bl_world_node(world, p) < nodes)
            continue;
        nodes++;
        json_array_append_new(hosts, json_string(bl_world_host(world, p)));
    }
    return json_pack("{s:i, s:i, s:i, s:i, s:s, s:s, s:o, s:I}", "ranks", (int)s->ranks,
                     "processes", (int)processes, "emulated", (int)(s->ranks > processes), "nodes",
                     (int)nodes, "found_by", bl_world_method(world), "transport",
                     bl_world_transport(world), "hosts", hosts, "micro",
                     (json_int_t)s->config->batch.micro);
}

int bl_header_write(const struct bl_setup *s, const struct bl_backend *backend,
                    const struct bl_world *world, const struct bl_sum *sum, json_t *attempts,
                    json_t *fork, const char *path, struct bl_error *err)
{
    struct bl_text order = {0};
    static const char *const conventions[] = {"next", "inclusive", "current", "tenth"};
    char host[256] = "", abi[16];
    gethostname(host, sizeof host - 1);
    snprintf(abi, sizeof abi, "%d.%d", BL_ABI_MAJOR, BL_ABI_MINOR);
    json_t *j = json_object();
    json_object_set_new(j, "program", json_string("ballast " BL_VERSION));
    json_object_set_new(j, "abi", json_string(abi));
    json_object_set_new(j, "compiler", json_string(BL_BUILD_TEXT));
    json_object_set_new(j, "host", json_string(host));
    json_object_set_new(j, "device", json_string(backend->description));
    json_object_set_new(j, "run", json_string(s->info.name));
    json_object_set_new(j, "seed", json_integer((json_int_t)s->info.seed));
    json_object_set_new(j, "steps", json_integer((json_int_t)s->info.steps));
    json_object_set_new(j, "parameters", json_integer((json_int_t)s->info.parameters));
    json_object_set_new(j, "vocab", json_integer((json_int_t)s->params.vocab));
    json_object_set_new(j, "padded_vocab", json_integer((json_int_t)s->params.padded_vocab));
    json_object_set_new(j, "tokens_per_update",
                        json_integer((json_int_t)(s->info.sequences * s->info.context)));
    json_object_set_new(j, "flops_per_token",
                        json_real(bl_model_flops(&s->config->model, &s->params)));
    json_object_set_new(j, "flops_formula", json_string("6 x matrix parameters + 6 L T H D"));
    json_object_set_new(j, "world", world_json(s, world));
    /* What the bits depend on, and whose rules say how. */
    bl_sum_text(sum, &order);
    json_object_set_new(j, "reduction", lines_json(order.text));
    json_object_set_new(j, "reduction_rules", json_string("NCCL " BL_ORDER_NCCL));
    bl_text_free(&order);
    json_object_set_new(j, "warmup_convention",
                        json_string(conventions[s->config->schedule.convention]));
    json_object_set_new(j, "train_sequences", json_integer((json_int_t)s->train_info.sequences));
    if (s->validation != NULL)
        json_object_set_new(j, "validation_sequences",
                            json_integer((json_int_t)s->validation_info.sequences));
    if (!isnan(s->train_info.entropy))
        json_object_set_new(j, "source_entropy", json_real(s->train_info.entropy));
    json_object_set_new(j, "precision", precision_json(&s->dials));
    json_object_set_new(j, "decay_groups", decay_groups_json(s));
    json_object_set_new(j, "plugins", plugins_json(s));
    json_object_set_new(j, "alarms", alarms_json(s->config));
    if (fork != NULL)
        json_object_set(j, "forked_from", fork);
    json_object_set_new(j, "attempts", attempts);
    char *text = json_dumps(j, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(j);
    if (text == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
    int rc = bl_write_file(path, text, strlen(text), err);
    free(text);
    return rc;
}
