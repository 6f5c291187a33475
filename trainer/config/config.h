/* The whole configuration: typed structs for the host's groups, lists of plugin instances.
 *
 * config/schema.c holds the host's option tables; they are the only list of keys. */
#ifndef BL_CONFIG_CONFIG_H
#define BL_CONFIG_CONFIG_H

#include <ballast/plugin.h>

#include "config/node.h"
#include "config/options.h"

enum bl_save_mode { BL_SAVE_ASYNC, BL_SAVE_SYNC };

struct bl_run_options {
    const char *name, *dir;
    int64_t seed, steps, eval_every, eval_tokens, checkpoint_every, keep, threads;
    int64_t keep_every;       /* checkpoints of these steps are never removed; 0 = none */
    int64_t ring, ring_every; /* recent states for replay: how many, every how many steps */
    int32_t save;             /* enum bl_save_mode */
    int32_t backend;          /* CHOICE auto|cpu|cuda */
};

enum bl_norm_kind { BL_LAYERNORM, BL_RMSNORM };
enum bl_placement { BL_PRE, BL_POST, BL_REORDERED, BL_PERI };
enum bl_position { BL_LEARNED, BL_ROPE };
enum bl_mlp { BL_GELU, BL_SWIGLU };
enum bl_qk_norm { BL_QK_OFF, BL_QK_HEAD, BL_QK_FULL };
enum bl_init { BL_INIT_NORMAL, BL_INIT_GPT2, BL_INIT_MITCHELL };

struct bl_model_options { /* after bl_config_read: preset applied, zeros resolved */
    const char *preset;
    int64_t layers, width, heads, kv_heads, head_dim, mlp_width, context, vocab, vocab_multiple;
    int32_t norm, norm_placement, position, mlp, qk_norm, tied, bias, embedding_norm, init;
    double embedding_scale, logit_softcap, attention_softcap, init_std, norm_eps, rope_theta;
};

struct bl_data_options {
    const char *source, *format;
    struct bl_strings train, validation;
    double holdout; /* share of the training sequences that is kept for evaluation */
};

struct bl_batch_options {
    int64_t tokens, sequences, micro;
};

struct bl_rule {
    const char *match;
    double lr_scale, weight_decay, eps; /* NaN: not set by this rule */
};

enum bl_alarm_action { BL_ALARM_LOG, BL_ALARM_CHECKPOINT, BL_ALARM_STOP };
const char *bl_alarm_action_name(int32_t action); /* "log" */

/* What to do when a metric leaves [below, above]; a value that is not finite is always outside. */
struct bl_alarm {
    const char *metric;  /* fnmatch pattern */
    double above, below; /* NaN: no such bound; one of them is there */
    int64_t in_a_row;    /* `for`: so many rows that have the metric */
    int64_t from;        /* first step that counts */
    int32_t action;      /* CHOICE log|checkpoint|stop */
};

struct bl_optimizer_options {
    double lr, weight_decay;
};

struct bl_schedule_options {
    int64_t warmup;
    int32_t convention; /* CHOICE next|inclusive|current|tenth */
};

enum bl_protocol { BL_PROTOCOL_SIMPLE, BL_PROTOCOL_LL, BL_PROTOCOL_LL128 };
enum bl_shard { BL_SHARD_NONE, BL_SHARD_OPTIMIZER };

struct bl_cluster_options {
    int64_t emulate;        /* 0 = the ranks there are */
    int64_t ranks_per_node; /* of the logical layout */
    int64_t channels;       /* 0: by NCCL's rule from the size, 16 at most */
    int64_t chunk;          /* bytes of a rank's chunk in a loop of a ring; 0: by NCCL's rule */
    int64_t buffer;         /* NCCL_BUFFSIZE */
    int64_t bucket;         /* bytes of gradient that one collective call sums, whole tensors */
    int64_t keep;           /* bytes for contributions that a ring visits twice */
    int64_t tree_pattern;   /* 1 balanced, 2 split, 3 tree */
    int32_t protocol;       /* enum bl_protocol */
    int32_t shard;          /* enum bl_shard */
    double timeout;         /* seconds until a silent peer is lost */
    int64_t check_every;    /* steps between comparisons of the replicas' weights; 0 = never */
    uint32_t *ring_order;   /* (rings, ranks) one list a channel, in turn; NULL: 0 ... W-1 */
    size_t rings, ring_length;
};

/* One plugin as configured. In lists `every` is monitors' only (1 elsewhere). */
struct bl_instance {
    uint32_t kind;
    const char *plugin; /* plugin name or path with '/' */
    const char *name;   /* instance name: unique in its kind, default the plugin's */
    int64_t every;
    const struct bl_node *node;   /* the group it was written in; NULL when it is a default */
    const char *const *host_keys; /* keys of that group which the host owns */
};

#define BL_DIAL_UNSET 0xffffffffu

/* As they are written: "head", "wire"; NULL = there is no such one. */
const char *bl_group_name(uint32_t group);
const char *bl_dial_name(uint32_t dial);
/* 1 when the group has the dial. */
int bl_dial_applies(uint32_t group, uint32_t dial);

struct bl_config {
    struct bl_node *root;
    struct bl_run_options run;
    struct bl_model_options model;
    struct bl_data_options data;
    struct bl_batch_options batch;
    struct bl_optimizer_options optimizer;
    struct bl_schedule_options schedule;
    struct bl_cluster_options cluster;
    uint32_t ranks; /* W: cluster.emulate, or the processes */
    struct bl_rule *rules;
    size_t rule_count;
    uint32_t dials[8][32]; /* written dials, BL_DIAL_UNSET elsewhere (enum bl_dial_value) */
    struct bl_instance source, optimizer_plugin, schedule_plugin, precision_plugin;
    struct bl_instance *regularizers, *guards, *monitors, *sinks;
    size_t regularizer_count, guard_count, monitor_count, sink_count;
    struct bl_alarm *alarms;
    size_t alarm_count;
    struct bl_strings plugin_path;
    void *private_state;
};

/* File, overrides, host tables, presets, cross-checks that need no plugin. Leaves the keys of
 * plugins for the plugin layer (bl_instance.node + host_keys). */
/* processes: of this job; the ranks of the run unless cluster.emulate says how many. */
int bl_config_read(const char *path, int overrides, char *const *override, uint32_t processes,
                   struct bl_config **out, struct bl_error *err);
void bl_config_free(struct bl_config *c);

/* The effective configuration, complete and re-runnable: every host key and, through
 * `instance_dump`, every plugin's keys. */
typedef void bl_instance_dump_f(void *context, const struct bl_instance *i, int indent,
                                struct bl_text *out);
int bl_config_dump(const struct bl_config *c, bl_instance_dump_f *instance_dump, void *context,
                   struct bl_text *out, struct bl_error *err);

/* The table of a group ("model", "precision.head", "monitors"; "config": all), or -1. */
int bl_config_help(const char *topic, FILE *out);

#endif
