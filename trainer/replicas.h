/* Do all processes hold the same weights? They compute the same bits, so a difference is a fault:
 * of memory, of a processor, of the program. */
#ifndef BL_REPLICAS_H
#define BL_REPLICAS_H

#include "backend/backend.h"
#include "collectives/world.h"

/* XXH64 of an array: of each MiB, then of those hashes. backend: its threads; NULL = the calling
 * thread; the same hash either way. */
int bl_replicas_hash(struct bl_backend *backend, const float *array, uint64_t count, uint64_t *out,
                     struct bl_error *err);

/* What is known of the steps, for the message. */
struct bl_replicas_when {
    uint64_t step;  /* whose weights are compared */
    uint64_t equal; /* newest step at which all were equal; 0: none was compared */
};

/* hashes, hosts (processes). 0 when all hashes are equal. Else -1 with BL_EXIT_FAILED and a line
 * that names who deviates: all but the largest set of equal ones; where two sets are the largest,
 * the first process of each. */
int bl_replicas_judge(const uint64_t *hashes, const char *const *hosts, uint32_t processes,
                      const struct bl_replicas_when *when, struct bl_error *err);

/* Hash, exchange, judge; collective, the same answer everywhere. */
int bl_replicas_check(struct bl_world *world, struct bl_backend *backend, const float *array,
                      uint64_t count, const struct bl_replicas_when *when, struct bl_error *err);

#endif
