#include "replicas.h"

#include <inttypes.h>
#include <stdio.h>
#include <xxhash.h>

#include "base/memory.h"

enum {
    PIECE = 1 << 18, /* floats of a hash: 1 MiB */
    NAMED = 3        /* deviating processes that a line names */
};

struct hashing {
    const float *array;
    uint64_t count;
    uint64_t *hashes; /* (pieces) */
};

static void hash_piece(void *argument, uint64_t i)
{
    const struct hashing *h = argument;
    uint64_t begin = i * PIECE, left = h->count - begin;
    h->hashes[i] = XXH64(h->array + begin, (left < PIECE ? left : PIECE) * sizeof(float), 0);
}

int bl_replicas_hash(struct bl_backend *backend, const float *array, uint64_t count, uint64_t *out,
                     struct bl_error *err)
{
    uint64_t pieces = (count + PIECE - 1) / PIECE;
    struct hashing h = {array, count, bl_alloc(pieces + 1, sizeof *h.hashes)};
    if (h.hashes == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory to compare the weights");
    if (backend != NULL)
        backend->ops->parallel_for(backend, pieces, hash_piece, &h);
    else
        for (uint64_t i = 0; i < pieces; i++)
            hash_piece(&h, i);
    *out = XXH64(h.hashes, pieces * sizeof *h.hashes, 0);
    bl_free(h.hashes);
    return 0;
}

static uint32_t alike(const uint64_t *hashes, uint32_t processes, uint32_t p)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < processes; i++)
        n += hashes[i] == hashes[p];
    return n;
}

/* "; checkpoints up to step 300 are good" */
static void advise(const struct bl_replicas_when *when, char *out, size_t size)
{
    if (when->equal > 0)
        snprintf(out, size,
                 "they were equal at step %" PRIu64 ": start again from a checkpoint of that step "
                 "or before",
                 when->equal);
    else
        snprintf(out, size,
                 "no earlier step of this start was compared: start again from the checkpoint that "
                 "it began with");
}

int bl_replicas_judge(const uint64_t *hashes, const char *const *hosts, uint32_t processes,
                      const struct bl_replicas_when *when, struct bl_error *err)
{
    uint32_t best = 0, most = 0, rival = 0, tied = 0;
    for (uint32_t p = 0; p < processes; p++) {
        uint32_t n = alike(hashes, processes, p);
        if (n > most) {
            best = p;
            most = n;
            tied = 0;
        } else if (n == most && hashes[p] != hashes[best] && !tied) {
            rival = p;
            tied = 1;
        }
    }
    if (most == processes)
        return 0;

    char advice[160], who[400];
    advise(when, advice, sizeof advice);
    if (tied)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "after step %" PRIu64 " the weights of process %" PRIu32
                            " (%s) and process %" PRIu32 " (%s) differ, as many of %" PRIu32
                            " hold those of the one as of the other: a fault of the hardware of "
                            "one? test both nodes; %s",
                            when->step, best, hosts[best], rival, hosts[rival], processes, advice);

    size_t at = 0;
    uint32_t others = processes - most, named = 0;
    for (uint32_t p = 0; p < processes && named < NAMED && at < sizeof who; p++) {
        if (hashes[p] == hashes[best])
            continue;
        at += (size_t)snprintf(who + at, sizeof who - at, "%s%" PRIu32 " (%.64s)",
                               named > 0 ? ", " : "", p, hosts[p]);
        named++;
    }
    if (others > named && at < sizeof who)
        snprintf(who + at, sizeof who - at, " and %" PRIu32 " more", others - named);
    return bl_error_set(err, BL_EXIT_FAILED,
                        "after step %" PRIu64 " the weights of process%s %s differ from those of "
                        "the other %" PRIu32 ", which are equal: a fault of its hardware? test the "
                        "node; %s",
                        when->step, others > 1 ? "es" : "", who, most, advice);
}

int bl_replicas_check(struct bl_world *world, struct bl_backend *backend, const float *array,
                      uint64_t count, const struct bl_replicas_when *when, struct bl_error *err)
{
    uint32_t processes = bl_world_processes(world);
    uint64_t mine = 0, *hashes = bl_alloc(processes, sizeof *hashes);
    const char **hosts = bl_alloc(processes, sizeof *hosts);
    int rc = -1;
    if (hashes == NULL || hosts == NULL)
        bl_error_set(err, BL_EXIT_FAILED, "no memory to compare the weights");
    else
        rc = bl_replicas_hash(backend, array, count, &mine, err);
    rc = bl_world_agree(world, rc, err);
    if (rc == 0)
        rc = bl_world_gather(world, &mine, sizeof mine, hashes, err);
    if (rc == 0) {
        for (uint32_t p = 0; p < processes; p++)
            hosts[p] = bl_world_host(world, p);
        rc = bl_replicas_judge(hashes, hosts, processes, when, err);
        if (rc < 0) /* so do all, from the same hashes: one of them says it */
            rc = bl_world_agree(world, rc, err);
    }
    bl_free(hosts);
    bl_free(hashes);
    return rc;
}
