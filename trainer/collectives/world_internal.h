/* Inside a world: its members, and messages to oneself. */
#ifndef BL_COLLECTIVES_WORLD_INTERNAL_H
#define BL_COLLECTIVES_WORLD_INTERNAL_H

#include "collectives/transport.h"
#include "collectives/world.h"

struct bl_member {
    char *host;
    uint32_t node, local;
};

struct bl_message {
    struct bl_transfer *transfer; /* NULL: to or from oneself */
    struct bl_message *next;      /* in the queue of those that have no counterpart yet */
    void *data;
    size_t bytes, came;
    uint64_t tag;
    int space, done;
};

struct bl_world {
    uint32_t process, processes;
    const char *method;
    struct bl_member *members; /* (processes) */
    void *module;              /* of dlopen, NULL alone */
    const struct bl_transport_ops *ops;
    struct bl_transport *transport;
    struct bl_message *sends, *receives; /* to oneself, oldest first */
    double waited;
    int agreed;           /* the last collective told everybody of a failure */
    uint64_t collectives; /* how many there were: their tag */
};

/* The module: w->module and w->ops. */
int bl_world_load(struct bl_world *w, struct bl_error *err);

/* A message of the caller or of a collective, see enum bl_tag_space. */
int bl_world_start_send(struct bl_world *w, uint32_t to, int space, uint64_t tag, const void *data,
                        size_t bytes, struct bl_message **out, struct bl_error *err);
int bl_world_start_receive(struct bl_world *w, uint32_t from, int space, uint64_t tag, void *data,
                           size_t bytes, struct bl_message **out, struct bl_error *err);

#endif
