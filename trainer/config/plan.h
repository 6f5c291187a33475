/* The plan of a run: what its configuration says, less what may change between two starts. */
#ifndef BL_CONFIG_PLAN_H
#define BL_CONFIG_PLAN_H

#include "base/strings.h"

/* Both read complete configurations, as bl_config_dump writes them.
 *
 * Not part of the plan: name and folder of the run, how often it evaluates and saves, threads and
 * backend, sinks, alarms, plugin_path. Everything else decides the numbers. */

/* XXH64 of the plan, never 0. */
int bl_plan_hash(const char *config, uint64_t *out, struct bl_error *err);
/* Configurations are complete, so a key that one of them lacks is one that the program which wrote
 * it did not know: its default counts, and where that is not known (a plugin's options) the key is
 * no difference. Precision and optimizer.rules have optional keys.
 * 1: the plans differ, and `out` says where first: "optimizer.lr is 3e-4 there, 1e-3 now"; 0: they
 * are the same; -1: one of them cannot be read (`name` is the file of `there`). */
int bl_plan_compare(const char *there, const char *name, const char *now, struct bl_text *out,
                    struct bl_error *err);

/* All differences, those of keys without a known default too, a line each: "run.steps: 10 -> 20".
 */
int bl_plan_differences(const char *there, const char *name, const char *now, struct bl_text *out,
                        struct bl_error *err);

#endif
