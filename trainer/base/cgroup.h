/* The memory limit of the control group that a process is in: a job's, a container's. */
#ifndef BL_BASE_CGROUP_H
#define BL_BASE_CGROUP_H

#include <stdint.h>

/* Bytes that may still be taken before a limit of the group or of one above it: limit less use,
 * where file pages that can be dropped are not use. UINT64_MAX: there is no limit, or it cannot be
 * told. Versions 1 and 2, as `groups` (/proc/self/cgroup) and the folder `root` (/sys/fs/cgroup)
 * show them; a group's folder that is not there, as within a container, counts as the nearest one
 * above that is. */
uint64_t bl_cgroup_memory_left(const char *groups, const char *root);

#endif
