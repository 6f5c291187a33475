/* What a transport module (transport_ucx.so) gives the world. It is loaded only when there are
 * several processes, so that one process runs without the library behind it and its hooks. */
#ifndef BL_COLLECTIVES_TRANSPORT_H
#define BL_COLLECTIVES_TRANSPORT_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define BL_TRANSPORT_SYMBOL  "ballast_transport_v1"
#define BL_TRANSPORT_VERSION 1u

/* Tags have 40 bits; `space` keeps those of the world's own collectives apart. */
#define BL_TAG_LIMIT ((uint64_t)1 << 40)
enum bl_tag_space { BL_TAG_CALLER, BL_TAG_COLLECTIVE };

struct bl_transport;
struct bl_transfer; /* a send or receive that was started; the transport's until waited for */

struct bl_transport_peer {
    const char *host;    /* outlives the transport */
    const void *address; /* of `bytes` bytes; needed during connect only */
    size_t bytes;
};

struct bl_transport_ops {
    uint32_t size, version;
    int (*make)(double timeout, uint32_t process, uint32_t processes, struct bl_transport **out,
                struct bl_error *err);
    void (*address)(const struct bl_transport *t, const void **out, size_t *bytes);
    /* peers: (processes) with one's own. Starts to watch over them. */
    int (*connect)(struct bl_transport *t, const struct bl_transport_peer *peers,
                   struct bl_error *err);
    /* Another timeout, of which every peer hears at about the same moment. */
    void (*limit)(struct bl_transport *t, double timeout);
    const char *(*name)(const struct bl_transport *t);
    int (*send)(struct bl_transport *t, uint32_t to, int space, uint64_t tag, const void *data,
                size_t bytes, struct bl_transfer **out, struct bl_error *err);
    int (*receive)(struct bl_transport *t, uint32_t from, int space, uint64_t tag, void *data,
                   size_t bytes, struct bl_transfer **out, struct bl_error *err);
    /* NULL entries are skipped. After an error no buffer is touched any more, and nothing but
     * give_up and free may follow. */
    int (*wait)(struct bl_transport *t, struct bl_transfer *const *transfers, size_t count,
                struct bl_error *err);
    /* Tells the peers, within a second, that this process ends and why. */
    void (*give_up)(struct bl_transport *t, const char *cause);
    uint64_t (*sent)(const struct bl_transport *t);
    void (*free)(struct bl_transport *t);
};

#endif
