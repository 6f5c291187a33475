/* Shared by the writer and the reader of checkpoints. */
#ifndef BL_CHECKPOINT_INTERNAL_H
#define BL_CHECKPOINT_INTERNAL_H

#include <stdint.h>

#include <jansson.h>

enum { BL_CHECKPOINT_FORMAT = 1 };
enum { BL_FILE_MODEL, BL_FILE_OPTIMIZER, BL_FILE_PLUGINS, BL_FILE_COUNT };

extern const char *const bl_checkpoint_files[BL_FILE_COUNT];

/* XXH64 (seed 0) of a regular file; 0, or -1 with errno. */
int bl_checkpoint_checksum(const char *path, uint64_t *out);
/* XXH64 of what state.json says, its key "self" left out, as 16 digits; -1: no memory. */
int bl_checkpoint_state_sum(json_t *root, char hex[24]);

#endif
