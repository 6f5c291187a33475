/* Shared by the writers and the readers of checkpoints. */
#ifndef BL_CHECKPOINT_INTERNAL_H
#define BL_CHECKPOINT_INTERNAL_H

#include <stdint.h>

#include <jansson.h>

#include "checkpoint/checkpoint.h"

enum { BL_CHECKPOINT_FORMAT = 1 };

/* Of an element, as it is stored: BL_FP64, BL_BF16 or BL_FP32. */
static inline uint64_t bl_checkpoint_element_bytes(uint32_t dtype)
{
    return dtype == BL_FP64 ? 8 : dtype == BL_BF16 ? 2 : 4;
}

extern const char bl_checkpoint_model[];   /* "model.safetensors" */
extern const char bl_checkpoint_plugins[]; /* "plugins.safetensors" */
/* "optimizer-<shard + 1>-of-<shards>.safetensors" */
enum { BL_SHARD_NAME = 64 };
const char *bl_checkpoint_shard_name(uint32_t shard, uint32_t shards, char out[BL_SHARD_NAME]);

/* XXH64 of what state.json says, its key "self" left out, as 16 digits; -1: no memory. */
int bl_checkpoint_state_sum(json_t *root, char hex[24]);

/* ---- writing, in the order of these calls ---------------------------------------------------- */

struct bl_checkpoint_sums {
    uint64_t model, plugins; /* of shard 0 */
    uint64_t optimizer;
};

/* Whether they can be written as JSON integers. */
int bl_checkpoint_check_numbers(const struct bl_checkpoint_info *i, const char *directory,
                                struct bl_error *err);
/* The files of c->shard into `folder`, which exists; on disk when it returns. */
int bl_checkpoint_write_files(const char *folder, const struct bl_checkpoint *c,
                              struct bl_checkpoint_sums *out, struct bl_error *err);
/* state.json; optimizer: (c->shards) checksums. */
int bl_checkpoint_write_state(const char *folder, const struct bl_checkpoint *c,
                              const struct bl_checkpoint_sums *sums, const uint64_t *optimizer,
                              struct bl_error *err);

/* ---- folders --------------------------------------------------------------------------------- */

/* Removes a folder of plain files, or a file; folders inside it are left and make this fail. 0 when
 * there is none; -1 with errno. */
int bl_checkpoint_remove(const char *path);
int bl_checkpoint_sync_folder(const char *path);
/* <directory>/<step> := the folder `temporary`; one of the same step is put aside before and
 * removed after. */
int bl_checkpoint_publish(const char *directory, const char *temporary, uint32_t attempt,
                          uint64_t step, struct bl_error *err);
/* A second name for every file of <from>/<step>, as <to>/<step>: published the same way. Copies
 * where the file system has only one name for a file. */
int bl_checkpoint_link(const char *from, const char *to, uint32_t attempt, uint64_t step,
                       struct bl_error *err);
/* Removes what lies before the `keep` newest steps up to `newest`, and leftovers of attempts up to
 * this one. Steps divisible by keep_every stay, and those after `newest`, which belong to nobody
 * that this process knows of. keep 0: all steps stay. */
void bl_checkpoint_prune(const char *directory, uint64_t keep, uint64_t keep_every, uint64_t newest,
                         uint32_t attempt);

#endif
