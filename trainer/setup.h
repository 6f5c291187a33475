/* From a config file to everything a run is made of, short of allocating the model. */
#ifndef BL_SETUP_H
#define BL_SETUP_H

#include "config/config.h"
#include "model/model.h"
#include "plugin/host.h"
#include "update.h"

struct bl_plugin_list {
    struct bl_plugin_instance **items;
    size_t count;
};

struct bl_setup {
    struct bl_config *config;
    char *directory; /* run.dir/run.name */
    struct bl_run_info info;
    struct bl_services services;                   /* info is set; the run fills in the rest */
    struct bl_plugin_instance *train, *validation; /* opened; one instance with data.holdout */
    struct bl_plugin_instance *optimizer, *schedule, *precision;
    struct bl_plugin_list regularizers, guards, monitors, sinks;
    struct bl_source_info train_info, validation_info;
    uint64_t validation_first; /* in `validation`; with data.holdout the number trained on */
    struct bl_params params;
    struct bl_update_effect *effects; /* (params.count) what optimizer.rules make of each */
    struct bl_precision dials;        /* the plugin's table with written dials on top */
    uint64_t ranks;                   /* W: cluster.emulate, or the processes */
};

/* Reads the config, loads every plugin (options checked), creates source, precision and schedule,
 * opens the data, resolves the vocabulary and the parameter table. The other instances are created
 * by bl_setup_create once the services stand. processes: of the job (bl_config_read). */
int bl_setup_make(const char *path, int overrides, char *const *override, uint32_t processes,
                  struct bl_setup **out, struct bl_error *err);
/* The same with both splits closed, for a prediction: no file of data.* is looked at, train_info
 * and validation_info say nothing, and the config has to say the vocabulary. */
int bl_setup_make_without_data(const char *path, int overrides, char *const *override,
                               uint32_t processes, struct bl_setup **out, struct bl_error *err);
/* Creates optimizer, regularizers, guards and monitors; then sinks, which want the directory. */
int bl_setup_create(struct bl_setup *s, struct bl_error *err);
int bl_setup_create_sinks(struct bl_setup *s, struct bl_error *err);
/* 1 when a guard judges updates: each step is then prepared before it is applied. */
int bl_setup_has_update_guard(const struct bl_setup *s);
void bl_setup_free(struct bl_setup *s);

/* The effective configuration as text (malloc'd in out->text). */
int bl_setup_config_text(const struct bl_setup *s, struct bl_text *out, struct bl_error *err);
/* The learning rate of update `step` (1-based): peak x (warmup or schedule). */
double bl_setup_learning_rate(const struct bl_setup *s, uint64_t step);
/* "bf16", "divide_first" ...: the name of a dial's value; NULL = this program has no such one. */
const char *bl_dial_value_name(uint32_t dial, uint32_t value);
/* fp32, nearest, divide, all_reduce, alltoall: what a precision plugin starts from. */
uint32_t bl_dial_default(uint32_t dial);

#endif
