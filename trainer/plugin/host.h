/* The host table handed to plugins, and plugin instances made from the configuration. */
#ifndef BL_PLUGIN_HOST_H
#define BL_PLUGIN_HOST_H

#include <ballast/guard.h>
#include <ballast/monitor.h>
#include <ballast/optimizer.h>
#include <ballast/precision.h>
#include <ballast/regularizer.h>
#include <ballast/schedule.h>
#include <ballast/sink.h>
#include <ballast/source.h>
#include <ballast/tokenizer.h>

#include "config/config.h"
#include "plugin/loader.h"

/* What stands behind the host table; tests bring their own. Any member may be NULL: the service
 * then answers "absent" (metric drops, tensor returns -1, parallel_for runs in this thread, ...).*/
struct bl_services {
    void *context;
    void (*parallel_for)(void *context, uint64_t n, void (*body)(void *, uint64_t), void *argument);
    void (*metric)(void *context, const char *name, double value);
    int (*all_reduce)(void *context, double *values, uint64_t n, struct bl_error *err);
    uint64_t (*tensor_count)(void *context);
    int (*tensor)(void *context, uint64_t index, uint32_t which, struct bl_tensor *out);
    double (*update_squares)(void *context, uint64_t index);
    int (*reduction)(void *context, uint32_t group, struct bl_reduction *out);
    uint32_t device, rank, ranks;
    const struct bl_run_info *info; /* seed also drives host->random */
    /* Both or none; NULL: bl_alloc and bl_free. */
    void *(*allocate)(void *context, uint64_t bytes);
    void (*release)(void *context, void *pointer);
};

union bl_ops { /* copied, zero-extended */
    struct bl_common_ops common;
    struct bl_regularizer_ops regularizer;
    struct bl_precision_ops precision;
    struct bl_schedule_ops schedule;
    struct bl_monitor_ops monitor;
    struct bl_optimizer_ops optimizer;
    struct bl_guard_ops guard;
    struct bl_sink_ops sink;
    struct bl_source_ops source;
    struct bl_tokenizer_ops tokenizer;
};

/* A live plugin instance. */
struct bl_plugin_instance {
    const struct bl_plugin *plugin;
    struct bl_library *library;
    union bl_ops ops;
    struct bl_options options;
    void *self;
    char *name; /* instance name */
    int64_t every;
    int null; /* at its null setting */
    struct bl_host host;
    const struct bl_services *services;
    int created;
};

/* Finds, loads, fills options (config keys of the plugin; file:line errors), does not create. */
int bl_instance_load(const struct bl_instance *configured, const struct bl_strings *plugin_path,
                     struct bl_plugin_instance **out, struct bl_error *err);
/* Calls create with the host table over `services` (which outlives the instance). */
int bl_instance_create(struct bl_plugin_instance *i, const struct bl_services *services,
                       struct bl_error *err);
void bl_instance_destroy(struct bl_plugin_instance *i);
/* bl_config_dump's callback needs this: the plugin's own keys. */
void bl_instance_dump_options(const struct bl_plugin_instance *i, int indent, struct bl_text *out);

#endif
