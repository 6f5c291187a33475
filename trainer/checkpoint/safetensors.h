/* safetensors files: 8-byte little-endian header length, JSON header, raw tensors. */
#ifndef BL_CHECKPOINT_SAFETENSORS_H
#define BL_CHECKPOINT_SAFETENSORS_H

#include <ballast/tensor.h>

#include "base/error.h"

struct bl_safetensors; /* an open file, read through mmap */

/* The file is on disk when this returns, its name once the caller syncs the folder; after an error
 * it is removed. metadata: NULL-terminated key, value, key, value ... *checksum: XXH64 (seed 0) of
 * the file. */
int bl_safetensors_write(const char *path, const struct bl_tensor *tensors, size_t count,
                         const char *const *metadata, uint64_t *checksum, struct bl_error *err);
/* Validates everything: header length, JSON, dtypes, shapes, offsets inside the file, no overlap,
 * no hole. Code BL_EXIT_CHECKPOINT. */
int bl_safetensors_open(const char *path, struct bl_safetensors **out, struct bl_error *err);
void bl_safetensors_close(struct bl_safetensors *s);
size_t bl_safetensors_count(const struct bl_safetensors *s);
/* View of tensor i; data points into the mapping, which is read-only. */
const struct bl_tensor *bl_safetensors_tensor(const struct bl_safetensors *s, size_t i);
const struct bl_tensor *bl_safetensors_find(const struct bl_safetensors *s, const char *name);
const char *bl_safetensors_metadata(const struct bl_safetensors *s, const char *key);

#endif
