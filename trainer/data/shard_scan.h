/* What is in a set of token shards: structure, and with a scan the range of the ids. */
#ifndef BL_DATA_SHARD_SCAN_H
#define BL_DATA_SHARD_SCAN_H

#include "base/error.h"
#include "data/shard_format.h"

struct bl_shard_report {
    const char *path; /* the caller's */
    uint64_t size;    /* bytes */
    struct bl_shard_layout layout;
    char why[BL_SHARD_WHY]; /* what is wrong with the file; "" when nothing is */

    /* Of a scan that read the whole file; items > 0. */
    int scanned;
    uint64_t limit; /* ids must be below it: asked for, or the header's, or 2^31 */
    uint64_t smallest, largest;
    uint64_t outside;                 /* ids >= limit */
    uint64_t first_at, first_outside; /* byte and value of the first of them */
};

/* Structure only; fills everything but the scan's part. A bad file is no error: see `why`. */
void bl_shard_report(const char *path, enum bl_shard_format wanted, struct bl_shard_report *out);
/* Reads every id of the good files among `count` reports, with all cores of this process and at
 * most 64 KiB of memory for each. vocab 0: the header's is taken. Fills `why` where ids are outside
 * or a file cannot be read. -1 only when there are no threads. */
int bl_shard_scan(struct bl_shard_report *reports, size_t count, uint64_t vocab,
                  struct bl_error *err);

#endif
