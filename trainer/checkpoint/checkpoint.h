/* Checkpoints: a folder <directory>/<step>/ with
 *     model.safetensors             working weights by parameter name
 *     optimizer-1-of-1.safetensors  "<param>.master" and "<param>.<state name>"; written by P
 *                                   processes: optimizer-<p>-of-<P>, slices of them in one
 *                                   dimension; metadata "<tensor>" says which elements of which
 *                                   shape: {"begin":4096,"end":8192,"shape":[64,768]}
 *     plugins.safetensors           no tensors; metadata "kind.name" -> state bytes in hex
 *     state.json                    written last: step, sample, layout, config, XXH64 of the others
 *
 * A folder becomes visible by one rename, after everything in it is on disk. Errors of reading have
 * the code BL_EXIT_CHECKPOINT, errors of writing BL_EXIT_FAILED. */
#ifndef BL_CHECKPOINT_CHECKPOINT_H
#define BL_CHECKPOINT_CHECKPOINT_H

#include <stdio.h>

#include <ballast/tensor.h>

#include "base/error.h"

struct bl_checkpoint_plugin {
    const char *key; /* "kind.name", unique */
    const void *bytes;
    uint64_t count;
};

struct bl_checkpoint_info {
    uint64_t step;    /* steps done, skipped updates counted */
    uint64_t updates; /* updates made: what the bias correction counts */
    uint64_t sample;  /* next global sample */
    uint64_t seed;    /* run.seed */
    uint32_t attempt; /* that wrote it */
    uint32_t ranks;   /* logical layout: W ... */
    uint64_t micro;   /* ... and sequences per forward pass */
    uint64_t plan;    /* hash of the plan (config/plan.h); 0: an older program wrote it */
};

/* A plugin that was loaded when the checkpoint was written, with state or without. */
struct bl_checkpoint_loaded {
    const char *key;   /* "kind.name", unique */
    uint64_t checksum; /* XXH64 of its file */
};

/* Elements [begin, end) of a tensor of this shape, row-major. */
struct bl_checkpoint_slice {
    uint64_t begin, end;
    uint32_t ndim;
    uint64_t dims[4];
};

/* What is written. Tensors live on the CPU; dims are logical (no padding). A tensor with dtype
 * BL_BF16 has 2-byte elements: fp32 storage of bf16 values is passed as BL_FP32. */
struct bl_checkpoint {
    struct bl_checkpoint_info info;
    const struct bl_tensor *weights; /* of shard 0, as the plugins are */
    size_t weight_count;
    const struct bl_tensor *states;
    size_t state_count;
    const struct bl_checkpoint_slice *slices; /* (state_count); NULL: states are whole */
    uint32_t shard, shards;                   /* 0-based; shards 0 is 1 */
    const char *config;                       /* the effective configuration; NULL: not kept */
    const char *from;                         /* where the run was forked from; NULL: nowhere */
    const struct bl_checkpoint_plugin *plugins;
    size_t plugin_count;
    const struct bl_checkpoint_loaded *loaded;
    size_t loaded_count;
};

/* All folders named by a step, ascending, whole or not; malloc'd. */
int bl_checkpoint_steps(const char *directory, uint64_t **out, size_t *count, struct bl_error *err);
/* Puts back a checkpoint whose replacement was cut off by a kill: before steps are looked for, by
 * the one process that may write. */
void bl_checkpoint_recover(const char *directory);

struct bl_checkpoint_reader;

/* Opens the folder of one checkpoint. Everything is checked first: state.json, the checksums, every
 * file's structure. */
int bl_checkpoint_open(const char *path, struct bl_checkpoint_reader **out, struct bl_error *err);
void bl_checkpoint_close(struct bl_checkpoint_reader *r);
const struct bl_checkpoint_info *bl_checkpoint_info(const struct bl_checkpoint_reader *r);
/* The configuration it was written under and where its run was forked from, owned by the reader;
 * NULL when it does not say. */
const char *bl_checkpoint_config(const struct bl_checkpoint_reader *r);
const char *bl_checkpoint_from(const struct bl_checkpoint_reader *r);
/* XXH64 of state.json, which holds those of the other files: 16 digits that name the checkpoint. */
const char *bl_checkpoint_self(const struct bl_checkpoint_reader *r);

/* Where a checkpoint's numbers go to. Either array may be NULL with a count of 0: that file is not
 * looked at. */
struct bl_checkpoint_tensors {
    const struct bl_tensor *weights;
    size_t weight_count;
    const struct bl_tensor *states; /* all of them: one of which nothing is wanted has count 0 */
    size_t state_count;
    const struct bl_checkpoint_slice *slices; /* (state_count) what is wanted; NULL: everything */
};
/* Whether names, dtypes and shapes are exactly those of the files, however many shards wrote them;
 * the error names the first difference. */
int bl_checkpoint_fits(const struct bl_checkpoint_reader *r, const struct bl_checkpoint_tensors *to,
                       struct bl_error *err);
/* Copies into the data of the tensors; nothing has been copied when they do not fit. */
int bl_checkpoint_read(const struct bl_checkpoint_reader *r, const struct bl_checkpoint_tensors *to,
                       struct bl_error *err);
/* State bytes of a plugin, owned by the reader; NULL when the checkpoint has none of that key. */
const void *bl_checkpoint_plugin(const struct bl_checkpoint_reader *r, const char *key,
                                 uint64_t *bytes);
/* All keys, in the order they were written, to find those nobody asked for. */
size_t bl_checkpoint_plugin_count(const struct bl_checkpoint_reader *r);
const char *bl_checkpoint_plugin_key(const struct bl_checkpoint_reader *r, size_t i);
/* What was loaded when it was written, owned by the reader; none when an older program wrote it. */
size_t bl_checkpoint_loaded_count(const struct bl_checkpoint_reader *r);
const struct bl_checkpoint_loaded *bl_checkpoint_loaded(const struct bl_checkpoint_reader *r,
                                                        size_t i);

/* Prints one line a tensor of two .safetensors files or checkpoint folders: identical, or the
 * maximum and rms difference, or what is missing. *different: 0 when every bit is the same. */
int bl_checkpoint_compare(const char *path_a, const char *path_b, FILE *out, int *different,
                          struct bl_error *err);
/* Prints name, shape, dtype, rms and mean of every tensor. */
int bl_checkpoint_list(const char *path, FILE *out, struct bl_error *err);

#endif
