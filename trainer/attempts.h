/* attempts/<n>: who started a run when, from which step, with which plugins. */
#ifndef BL_ATTEMPTS_H
#define BL_ATTEMPTS_H

#include <jansson.h>

#include "setup.h"

enum { BL_ATTEMPTS_KEPT = 16 };

/* Calls f for every plugin of the run, the source once; "kind.name" is unique among them. Stops at
 * an answer that is not 0 and returns it. */
int bl_attempts_each_plugin(const struct bl_setup *s,
                            int (*f)(void *context, const char *key,
                                     const struct bl_plugin_instance *plugin),
                            void *context);

/* Fills the file that claimed the attempt in the run directory `path`. notes: object of more keys,
 * NULL = none:
 *     changed  array of the plugins whose file is not the one that the checkpoint was made with
 *     replan   array of "key: before -> now" where the plan is not that of the checkpoint
 *     from     the state that the run was forked from: its folder, step and checksum
 *     skip_samples  how many sequences of the data were left out before this start */
int bl_attempts_write(const char *path, uint32_t attempt, const struct bl_setup *s, uint64_t step,
                      json_t *notes, struct bl_error *err);

/* What the newest BL_ATTEMPTS_KEPT attempts up to this one wrote, without their lists of plugins;
 * of a file that cannot be read, its number; starts that were refused have no file. NULL: no
 * memory. */
json_t *bl_attempts_history(const char *path, uint32_t attempt);

/* What the first attempt up to this one wrote that wrote anything, to be released; NULL: none did.
 * A run that was forked was so from its first attempt on. */
json_t *bl_attempts_first(const char *path, uint32_t attempt);

#endif
