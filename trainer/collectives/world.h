/* The processes of a job and messages among them.
 *
 * How the others are found, the first way that applies:
 *   "pmi2"         started by `srun --mpi=pmi2`: PMI_FD is set; libpmi2 is loaded at run time
 *   "environment"  BALLAST_PROCESS, BALLAST_PROCESSES, BALLAST_MEET=<folder that all of them see>
 *   "alone"        one process, no transport
 * A Slurm step of several tasks whose PMI2 says 1 is refused (srun without --mpi=pmi2).
 *
 * Calls are made by one thread. While it computes, a background thread keeps the connections alive:
 * a busy peer is not a lost one. A peer that is dead, stopped or cut off for `timeout` seconds, or
 * that said goodbye with an error, fails every call that waits, with BL_EXIT_PEER and one line that
 * names process and host. After such an error only bl_world_abort and bl_world_free may be called.
 *
 * Nothing spins: a wait blocks in the kernel. */
#ifndef BL_COLLECTIVES_WORLD_H
#define BL_COLLECTIVES_WORLD_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct bl_world;

/* Collective over all processes. A failure of one (its own `err`) fails all. timeout: seconds. */
int bl_world_make(double timeout, struct bl_world **out, struct bl_error *err);
/* Ends the connections; leaves others alone. NULL is fine. */
void bl_world_free(struct bl_world *w);
/* From here on; every process passes the same. */
void bl_world_set_timeout(struct bl_world *w, double seconds);

uint32_t bl_world_process(const struct bl_world *w); /* 0 ... processes - 1 */
uint32_t bl_world_processes(const struct bl_world *w);
const char *bl_world_method(const struct bl_world *w);    /* "pmi2", "environment", "alone" */
const char *bl_world_transport(const struct bl_world *w); /* "UCX 1.13.1 tcp"; "" alone */
const char *bl_world_host(const struct bl_world *w, uint32_t process);
uint32_t bl_world_node(const struct bl_world *w,
                       uint32_t process); /* by first appearance of host */
uint32_t bl_world_local(const struct bl_world *w, uint32_t process); /* index among its node's */

/* ---- messages: matched by (peer, tag), in order of their start where both are equal. Buffers stay
 * the caller's and untouched until the wait. Exactly `bytes` must arrive, else BL_EXIT_PEER.
 * Sending to oneself is allowed. Tags are below 2^40. */
struct bl_message;
int bl_world_send(struct bl_world *w, uint32_t to, uint64_t tag, const void *data, size_t bytes,
                  struct bl_message **out, struct bl_error *err);
int bl_world_receive(struct bl_world *w, uint32_t from, uint64_t tag, void *data, size_t bytes,
                     struct bl_message **out, struct bl_error *err);
/* Until all are done; sets them to NULL. NULL entries are skipped. On an error they are all over.
 */
int bl_world_wait(struct bl_world *w, struct bl_message **messages, size_t count,
                  struct bl_error *err);

/* ---- collectives: every process calls them in the same order. Alone they return at once. */
int bl_world_barrier(struct bl_world *w, struct bl_error *err);
int bl_world_broadcast(struct bl_world *w, uint32_t root, void *data, size_t bytes,
                       struct bl_error *err);
/* all (processes * bytes) := the `mine` of every process, in their order. */
int bl_world_gather(struct bl_world *w, const void *mine, size_t bytes, void *all,
                    struct bl_error *err);
/* In place: data + begin[p] ... data + begin[p + 1] is what process p has; afterwards all have all.
 * begin: (processes + 1) byte offsets, not decreasing. A ring: bytes cross each link once. */
int bl_world_gather_parts(struct bl_world *w, void *data, const uint64_t *begin,
                          struct bl_error *err);
/* 0 when every process passes 0. Otherwise -1 everywhere with the code of the lowest process that
 * failed; process 0 has its text, prefixed by "process 3 (n2): " when it is another's, and the
 * others an empty one, so that one process reports. `mine`: 0 or -1, its text in err. */
int bl_world_agree(struct bl_world *w, int mine, struct bl_error *err);

/* Tells all others, as far as they can be reached, that this process ends with `cause`: they fail
 * with BL_EXIT_PEER "process 3 (n2): <cause>". Nothing to tell when they just agreed on a failure.
 * Never blocks for longer than a second. */
void bl_world_abort(struct bl_world *w, const char *cause);

/* Bytes sent so far to other processes, and seconds spent in waits. */
uint64_t bl_world_sent(const struct bl_world *w);
double bl_world_waited(const struct bl_world *w);

#endif
