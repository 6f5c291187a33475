/* The host's option tables: every key of the configuration that is no plugin's. */
#ifndef BL_CONFIG_SCHEMA_H
#define BL_CONFIG_SCHEMA_H

#include "base/strings.h"
#include "config/config.h"

/* Groups whose struct in config.h does not hold all of their host keys. */
struct bl_optimizer_keys {
    struct bl_optimizer_options options;
    const char *plugin;
};
struct bl_schedule_keys {
    struct bl_schedule_options options;
    const char *plugin;
};
struct bl_precision_keys {
    const char *plugin;
    int32_t dial[32]; /* index of the word in the dial's choice */
};
struct bl_list_keys { /* an element of regularizers, guards, monitors, sinks */
    const char *plugin, *name;
    int64_t every;
};

enum bl_schema_value {
    BL_SCHEMA_ROOT, /* struct bl_strings: plugin_path */
    BL_SCHEMA_RUN,
    BL_SCHEMA_MODEL,
    BL_SCHEMA_DATA,
    BL_SCHEMA_BATCH,
    BL_SCHEMA_OPTIMIZER,
    BL_SCHEMA_RULE, /* struct bl_rule */
    BL_SCHEMA_SCHEDULE,
    BL_SCHEMA_PRECISION,
    BL_SCHEMA_PRECISION_MATRIX, /* four, in the order of enum bl_group_value */
    BL_SCHEMA_PRECISION_EMBEDDING,
    BL_SCHEMA_PRECISION_NORM,
    BL_SCHEMA_PRECISION_HEAD,
    BL_SCHEMA_CLUSTER,
    BL_SCHEMA_LIST,    /* regularizers, guards, sinks */
    BL_SCHEMA_MONITOR, /* monitors */
    BL_SCHEMA_ALARM,   /* struct bl_alarm */
    BL_SCHEMA_COUNT
};

struct bl_schema {
    const char *name; /* as a path: "precision.head" */
    const struct bl_option *table;
    uint64_t size;
    const char *const *also; /* host keys that no table can hold (groups, lists); NULL = none */
};
extern const struct bl_schema bl_schema[BL_SCHEMA_COUNT];

/* The dial that a key of a precision group sets, and the groups (bits) it exists for. */
struct bl_dial_info {
    const char *key;
    uint32_t dial;   /* enum bl_dial_value */
    uint32_t groups; /* bit g: enum bl_group_value */
    int is_dtype;    /* words fp32|bf16 stand for BL_FP32|BL_BF16, else for their index */
};
extern const struct bl_dial_info bl_dials[];
extern const unsigned bl_dial_count;

/* The lists of plugin instances. */
struct bl_list_info {
    const char *group; /* "regularizers" */
    uint32_t kind;
    enum bl_schema_value schema;
    size_t list, count; /* offsets in struct bl_config */
};
extern const struct bl_list_info bl_lists[4];

/* ---- steps of bl_config_read, each in a file of its name ---- */

/* Memory that lives as long as a configuration (struct bl_config.private_state). */
struct bl_keep {
    struct bl_keep *next;
    struct bl_options options;
    void *block;
};
/* Both take what they are given, also when they fail. NULL / -1: no memory. */
struct bl_options *bl_keep_options(struct bl_config *c, struct bl_options *o, struct bl_error *err);
void *bl_keep_block(struct bl_config *c, void *block, struct bl_error *err);

/* Fills from a group by its host table. open: other keys are a plugin's and left alone. */
int bl_schema_fill(struct bl_config *c, enum bl_schema_value s, const struct bl_node *group,
                   int open, const char *what, struct bl_options **out, struct bl_error *err);
/* The host keys of a group as bl_instance.host_keys. */
int bl_schema_host_keys(struct bl_config *c, enum bl_schema_value s, const char *const **out,
                        struct bl_error *err);
/* A group's child of that name as a group, marked as used; NULL when it is absent. -1: wrong type.
 */
int bl_schema_group(const struct bl_node *parent, const char *name, struct bl_node **out,
                    struct bl_error *err);
/* "FILE:LINE: what: message" about a key of a group (NULL: about the group); returns -1. */
int bl_schema_refuse(const struct bl_node *group, const char *key, const char *what,
                     struct bl_error *err, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* What to blame when a check of several keys fails: the first of `paths` ("model.width", ends with
 * NULL) that an override wrote, else the first that a file wrote, else `otherwise`. */
const struct bl_node *bl_schema_cause(const struct bl_config *c, const char *const *paths,
                                      const struct bl_node *otherwise);

int bl_config_model(struct bl_config *c, struct bl_error *err);
int bl_config_batch(struct bl_config *c, struct bl_error *err);
int bl_config_dials(struct bl_config *c, const struct bl_node *group, struct bl_error *err);
int bl_config_lists(struct bl_config *c, struct bl_error *err);
int bl_config_alarms(struct bl_config *c, struct bl_error *err);
/* cluster.ring_order; after the number of ranks is known. */
int bl_config_ring_order(struct bl_config *c, const struct bl_node *group, struct bl_error *err);
void bl_ring_order_dump(const struct bl_cluster_options *c, struct bl_text *out);
int bl_instance_fill(struct bl_config *c, struct bl_instance *i, uint32_t kind, const char *plugin,
                     const char *name, const struct bl_node *node, enum bl_schema_value s,
                     const char *what, struct bl_error *err);

#endif
