/* header.json: what a reader must know before the curves of a run mean anything. */
#ifndef BL_HEADER_H
#define BL_HEADER_H

#include <jansson.h>

#include "backend/backend.h"
#include "collectives/sum.h"
#include "setup.h"

/* Versions, device, plugins with checksums, dtypes, decay groups, warmup convention, world layout,
 * order of the sum over ranks, parameter count, FLOPs formula, alarms, the attempts (an array,
 * taken also on failure) and the state that the run was forked from (NULL: none). */
int bl_header_write(const struct bl_setup *s, const struct bl_backend *backend,
                    const struct bl_world *world, const struct bl_sum *sum, json_t *attempts,
                    json_t *fork, const char *path, struct bl_error *err);
/* For people: the default of every dial, then the dials of the group that differ from it. */
void bl_dials_text(const struct bl_precision *p, uint32_t group, struct bl_text *out);

#endif
