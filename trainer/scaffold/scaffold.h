/* The folder that `ballast plugin new` writes. Its files are templates in this folder, built into
 * the program; my_plugin, my_kind and MY_VERSION in them stand for what was asked for. */
#ifndef BL_SCAFFOLD_SCAFFOLD_H
#define BL_SCAFFOLD_SCAFFOLD_H

#include "base/error.h"

struct bl_template {
    const char *file, *text;
};
extern const struct bl_template bl_templates[]; /* ends with a NULL file */

/* Writes DIR/NAME whole or not at all: a temporary folder beside it is renamed. *folder is malloc'd
 * and the caller's. Unknown kinds (with the nearest), names that cannot be one, and a folder that
 * exists have code BL_EXIT_USAGE. */
int bl_scaffold_write(const char *kind, const char *name, const char *dir, char **folder,
                      struct bl_error *err);

#endif
