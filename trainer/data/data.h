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

/* How many of `sequences` a share of 0 ... 0.5 holds out: rounded down, at least one; an error when
 * none remains. */
int bl_data_hold_out(uint64_t sequences, double share, uint64_t *held, struct bl_error *err);

#endif
