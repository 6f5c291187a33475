/* Batches: which sequence is where, as a function of (seed, epoch, sample) only. */
#ifndef BL_DATA_DATA_H
#define BL_DATA_DATA_H

#include "plugin/host.h"

/* Index in the source of global sample `sample` (0-based over the whole run): epoch
 * sample / sequences, position permuted by (seed, epoch). */
uint64_t bl_sample_index(uint64_t seed, uint64_t sequences, uint64_t sample);

/* Expands globs of a split (sorted, no duplicates) and opens the source on them; code
 * BL_EXIT_DATA; a pattern that matches nothing is an error. */
int bl_data_open(struct bl_plugin_instance *source, const struct bl_data_options *data,
                 int validation, struct bl_source_info *info, struct bl_error *err);

/* Packs text files into one llm.c .bin shard pair: bytes as uint16 ids, deterministic, atomic. The
 * last `validation_share` of the bytes (0..0.5), cut at a line end, goes to `validation_path`. */
int bl_data_pack(const char *const *inputs, size_t count, const char *train_path,
                 const char *validation_path, double validation_share, struct bl_error *err);

#endif
