/* The optimizer files of a checkpoint, as whole tensors however many shards there are. */
#ifndef BL_CHECKPOINT_MERGED_H
#define BL_CHECKPOINT_MERGED_H

#include <ballast/tensor.h>

#include "base/error.h"

struct bl_merged;

/* Every element of every tensor must be in exactly one shard, and shards must agree on shapes and
 * dtypes. Code BL_EXIT_CHECKPOINT. */
int bl_merged_open(const char *folder, uint32_t shards, struct bl_merged **out,
                   struct bl_error *err);
void bl_merged_close(struct bl_merged *m); /* NULL is fine */
size_t bl_merged_count(const struct bl_merged *m);
/* Name, dtype and whole shape; data is NULL unless one shard has all of it. */
const struct bl_tensor *bl_merged_tensor(const struct bl_merged *m, size_t i);
const struct bl_tensor *bl_merged_find(const struct bl_merged *m, const char *name);
/* Elements [begin, end) of a tensor of this set, as they are stored. */
void bl_merged_read(const struct bl_merged *m, const struct bl_tensor *t, uint64_t begin,
                    uint64_t end, void *to);

/* Shards of the checkpoint in a folder by its files' names; 0: there are none. */
uint32_t bl_merged_shards(const char *folder);

#endif
