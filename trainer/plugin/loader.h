/* Loading one plugin file: everything is checked in the file before dlopen. */
#ifndef BL_PLUGIN_LOADER_H
#define BL_PLUGIN_LOADER_H

#include <ballast/plugin.h>

#include "base/error.h"

struct bl_library; /* a loaded .so and its descriptor */

/* Reads the ELF file and refuses, before any of its code runs: not a regular file, not ELF, other
 * class / machine / type, PT_LOAD past the end of the file (cut), no BL_PLUGIN_SYMBOL in .dynsym,
 * wrong magic / major / minor / size / kind, constructors that the toolchain did not put there. */
int bl_plugin_precheck(const char *path, uint32_t kind, struct bl_error *err); /* kind 0: any */
/* precheck, dlopen (RTLD_NOW|RTLD_LOCAL), MXCSR compared before and after, descriptor and option
 * table checked. */
int bl_library_open(const char *path, uint32_t kind, struct bl_library **out, struct bl_error *err);
void bl_library_close(struct bl_library *l);
const struct bl_plugin *bl_library_plugin(const struct bl_library *l);
const char *bl_library_path(const struct bl_library *l);
uint64_t bl_library_checksum(const struct bl_library *l); /* XXH64 of the file */

/* "z_loss" or a path with '/' -> file, by: path itself; config plugin_path; BALLAST_PLUGIN_PATH
 * (colon list); the build tree's or installed folder. The error lists where it looked and the
 * nearest name. */
int bl_plugin_find(uint32_t kind, const char *name, const struct bl_strings *config_path,
                   char **path, struct bl_error *err);
/* The folders that bl_plugin_find looks into, in order, whether they exist or not; names and array
 * are malloc'd and the caller's. */
int bl_plugin_folders(const struct bl_strings *config_path, char ***folders, size_t *count,
                      struct bl_error *err);
const char *bl_kind_name(uint32_t kind);      /* "regularizer" */
uint32_t bl_kind_from_name(const char *name); /* 0 when unknown */

#endif
