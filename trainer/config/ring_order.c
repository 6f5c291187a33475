/* cluster.ring_order: a list of the ranks in ring order for each channel, in turn. */
#include <stdlib.h>

#include "config/internal.h"
#include "config/schema.h"

#define RINGS 64 /* NCCL's most channels */

static int read_ring(const struct bl_node *ring, size_t index, uint32_t ranks, uint8_t *seen,
                     uint32_t *out, struct bl_error *err)
{
    char what[64], found[128];
    snprintf(what, sizeof what, "cluster.ring_order[%zu]", index);
    if (ring->type != BL_NODE_LIST)
        return bl_schema_refuse(ring, NULL, what, err,
                                "expects a list of ranks (0, 1, ...), found %s",
                                bl_node_describe(ring, found));
    if (ring->count != ranks)
        return bl_schema_refuse(ring, NULL, what, err,
                                "has %zu ranks, but there are %u: a list names each of 0 ... %u "
                                "once",
                                ring->count, ranks, ranks - 1);
    for (size_t i = 0; i < ring->count; i++) {
        const struct bl_node *n = ring->children[i];
        if (n->type != BL_NODE_INT || n->integer < 0 || n->integer >= ranks)
            return bl_schema_refuse(n, NULL, what, err, "expects a rank, 0 ... %u, found %s",
                                    ranks - 1, bl_node_describe(n, found));
        if (seen[n->integer])
            return bl_schema_refuse(n, NULL, what, err,
                                    "rank %lld is there twice: a list names each of 0 ... %u once",
                                    (long long)n->integer, ranks - 1);
        seen[n->integer] = 1;
        out[i] = (uint32_t)n->integer;
    }
    return 0;
}

int bl_config_ring_order(struct bl_config *c, const struct bl_node *group, struct bl_error *err)
{
    static const char what[] = "cluster.ring_order";
    char found[128];
    struct bl_node *list = bl_node_find(group, "ring_order");
    if (!list)
        return 0;
    if (list->type != BL_NODE_LIST)
        return bl_schema_refuse(list, NULL, what, err,
                                "expects a list of lists ( (0, 1, ...), ... ), found %s",
                                bl_node_describe(list, found));
    list->used = 1;
    if (list->count == 0)
        return 0;
    if (list->count > RINGS)
        return bl_schema_refuse(list, NULL, what, err,
                                "has %zu lists; NCCL has %d channels at most", list->count, RINGS);
    uint32_t *order = bl_keep_block(c, calloc(list->count * (size_t)c->ranks, sizeof *order), err);
    if (!order)
        return -1;
    for (size_t k = 0; k < list->count; k++) {
        uint8_t *seen = calloc(c->ranks, 1);
        int rc = seen ? read_ring(list->children[k], k, c->ranks, seen, order + k * c->ranks, err)
                      : bl_error_set(err, BL_EXIT_FAILED, "configuration: out of memory");
        free(seen);
        if (rc != 0)
            return -1;
    }
    c->cluster.ring_order = order;
    c->cluster.rings = list->count;
    c->cluster.ring_length = c->ranks;
    return 0;
}

void bl_ring_order_dump(const struct bl_cluster_options *c, struct bl_text *out)
{
    bl_text_add(out, "    ring_order = (");
    for (size_t k = 0; k < c->rings; k++) {
        bl_text_add(out, k ? ",\n        (" : "\n        (");
        for (size_t i = 0; i < c->ring_length; i++)
            bl_text_add(out, "%s%u", i ? ", " : "", c->ring_order[k * c->ring_length + i]);
        bl_text_add(out, ")");
    }
    bl_text_add(out, c->rings ? "\n    );\n" : " );\n");
}
