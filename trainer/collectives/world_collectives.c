#include "collectives/world_internal.h"

#include <stdlib.h>
#include <string.h>

static uint64_t next_tag(struct bl_world *w)
{
    w->agreed = 0;
    return w->collectives++ % BL_TAG_LIMIT;
}

/* Sends to one, receives from another, waits for both. */
static int exchange(struct bl_world *w, uint64_t tag, uint32_t to, const void *data, size_t bytes,
                    uint32_t from, void *into, size_t expected, struct bl_error *err)
{
    struct bl_message *m[2] = {NULL, NULL};
    if (bl_world_start_receive(w, from, BL_TAG_COLLECTIVE, tag, into, expected, &m[0], err) != 0)
        return -1;
    if (bl_world_start_send(w, to, BL_TAG_COLLECTIVE, tag, data, bytes, &m[1], err) != 0)
        return -1;
    return bl_world_wait(w, m, 2, err);
}

/* Dissemination: after round k everybody knows of 2^(k+1) arrivals. */
int bl_world_barrier(struct bl_world *w, struct bl_error *err)
{
    uint64_t tag = next_tag(w);
    uint32_t n = w->processes, p = w->process;
    for (uint32_t distance = 1; distance < n; distance *= 2) {
        uint32_t to = (p + distance) % n, from = (p + n - distance % n) % n;
        if (exchange(w, tag, to, NULL, 0, from, NULL, 0, err) != 0)
            return -1;
    }
    return 0;
}

/* A binomial tree over the numbers relative to the root: v receives from v without its highest bit
 * and sends to v + 2^k for all 2^k above that bit. */
int bl_world_broadcast(struct bl_world *w, uint32_t root, void *data, size_t bytes,
                       struct bl_error *err)
{
    uint64_t tag = next_tag(w);
    uint32_t n = w->processes, v = (w->process + n - root) % n, above = 1;
    struct bl_message *sends[32] = {NULL};
    size_t count = 0;
    if (v > 0) {
        struct bl_message *m = NULL;
        while (above <= v / 2)
            above *= 2;
        uint32_t from = (v - above + root) % n;
        if (bl_world_start_receive(w, from, BL_TAG_COLLECTIVE, tag, data, bytes, &m, err) != 0 ||
            bl_world_wait(w, &m, 1, err) != 0)
            return -1;
        above *= 2;
    }
    for (; above < n && v < n - above; above *= 2)
        if (bl_world_start_send(w, (v + above + root) % n, BL_TAG_COLLECTIVE, tag, data, bytes,
                                &sends[count++], err) != 0)
            return -1;
    return bl_world_wait(w, sends, count, err);
}

int bl_world_gather_parts(struct bl_world *w, void *data, const uint64_t *begin,
                          struct bl_error *err)
{
    uint64_t tag = next_tag(w);
    uint32_t n = w->processes, p = w->process;
    uint32_t to = (p + 1) % n, from = (p + n - 1) % n;
    char *bytes = data;
    for (uint32_t hop = 0; hop + 1 < n; hop++) {
        uint32_t out = (p + n - hop) % n, in = (from + n - hop) % n;
        if (exchange(w, tag, to, bytes + begin[out], begin[out + 1] - begin[out], from,
                     bytes + begin[in], begin[in + 1] - begin[in], err) != 0)
            return -1;
    }
    return 0;
}

/* Each round doubles what a process has of its successors (Bruck et al. 1997,
 * doi:10.1109/71.642949): log2 of the processes in latencies, which is what counts for the few
 * bytes of every step. */
int bl_world_gather(struct bl_world *w, const void *mine, size_t bytes, void *all,
                    struct bl_error *err)
{
    uint64_t tag = next_tag(w);
    uint32_t n = w->processes, p = w->process;
    char *ring = malloc(n * bytes + 1); /* block i: of process p + i */
    int rc = 0;
    if (ring == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for a gather over %u processes", n);
    memcpy(ring, bytes > 0 ? mine : "", bytes);
    for (uint32_t have = 1, more; have < n && rc == 0; have += more) {
        more = have < n - have ? have : n - have;
        rc = exchange(w, tag, (p + n - have) % n, ring, more * bytes, (p + have) % n,
                      ring + have * bytes, more * bytes, err);
    }
    for (uint32_t i = 0; i < n && rc == 0; i++)
        memcpy((char *)all + (p + i) % n * bytes, ring + i * bytes, bytes);
    free(ring);
    return rc;
}

struct verdict {
    int32_t failed, code;
    char text[sizeof((struct bl_error *)NULL)->text];
};

int bl_world_agree(struct bl_world *w, int mine, struct bl_error *err)
{
    int32_t failed = mine != 0;
    int32_t *all = calloc(w->processes, sizeof *all);
    if (all == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory to agree over %u processes",
                            w->processes);
    if (bl_world_gather(w, &failed, sizeof failed, all, err) != 0) {
        free(all);
        return -1;
    }
    uint32_t first = 0;
    while (first < w->processes && all[first] == 0)
        first++;
    free(all);
    if (first == w->processes)
        return 0;

    struct verdict v;
    memset(&v, 0, sizeof v);
    if (first == w->process) {
        v.code = err != NULL && err->code != 0 ? err->code : BL_EXIT_FAILED;
        memcpy(v.text, err != NULL ? err->text : "", err != NULL ? sizeof v.text : 1);
    }
    if (bl_world_broadcast(w, first, &v, sizeof v, err) != 0)
        return -1;
    if (first != w->process) {
        v.text[sizeof v.text - 1] = '\0';
        bl_error_set(err, v.code, "process %u (%s): %s", first, bl_world_host(w, first), v.text);
    }
    if (w->process != 0 && err != NULL)
        err->text[0] = '\0'; /* process 0 says it */
    w->agreed = 1;
    return -1;
}
