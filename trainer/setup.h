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
    struct bl_plugin_instance *train, *validation; /* two instances of data.source, opened */
    struct bl_plugin_instance *optimizer, *schedule, *precision;
    struct bl_plugin_list regularizers, guards, monitors, sinks;
    struct bl_source_info train_info, validation_info;
    struct bl_params params;
    struct bl_update_effect *effects; /* (params.count) what optimizer.rules make of each */
    struct bl_precision dials;        /* the plugin's table with written dials on top */
    uint64_t ranks;                   /* W: max(1, cluster.emulate) */
};

/* Reads the config, loads every plugin (options checked), creates source, precision and schedule,
 * opens the data, resolves the vocabulary and the parameter table. The other instances are created
 * by bl_setup_create once the services stand. */
int bl_setup_make(const char *path, int overrides, char *const *override, struct bl_setup **out,
                  struct bl_error *err);
/* Creates optimizer, regularizers, guards, monitors and, if asked, sinks. */
int bl_setup_create(struct bl_setup *s, int sinks, struct bl_error *err);
void bl_setup_free(struct bl_setup *s);

/* The effective configuration as text (malloc'd in out->text). */
int bl_setup_config_text(const struct bl_setup *s, struct bl_text *out, struct bl_error *err);
/* The learning rate of update `step` (1-based): peak x (warmup or schedule). */
double bl_setup_learning_rate(const struct bl_setup *s, uint64_t step);
/* "bf16", "divide_first" ...: the name of a dial's value, and of the dial. */
const char *bl_dial_value_name(uint32_t dial, uint32_t value);
const char *bl_dial_name(uint32_t dial);
/* 1 when the dial means something for the group. */
int bl_dial_applies(uint32_t group, uint32_t dial);
/* fp32, nearest, divide, all_reduce, alltoall: what a precision plugin starts from. */
uint32_t bl_dial_default(uint32_t dial);
const char *bl_group_name(uint32_t group);

#endif
