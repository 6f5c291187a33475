/* Named architectures: what model.preset stands for. */
#ifndef BL_CONFIG_PRESETS_H
#define BL_CONFIG_PRESETS_H

#include "base/strings.h"
#include "config/config.h"

/* A preset is the text of a model group: any key of it, in libconfig syntax. Keys that a
 * configuration writes win over it. */
struct bl_preset {
    const char *name, *text;
};
#define BL_PRESETS 10
extern const struct bl_preset bl_presets[BL_PRESETS];

/* NULL when there is no preset of that name. */
const struct bl_preset *bl_preset_find(const char *name);

/* Adds a line "key = value (preset: value)", after two spaces, for each key of the preset that the
 * configuration sets to another value. Nothing without a preset. */
int bl_preset_overrides(const struct bl_config *c, struct bl_text *out, struct bl_error *err);

#endif
