/* NCCL 2.30, src/enqueue.cc: how many channels a collective that is launched alone uses
 * (thresholds of calcCollChunking's callers), how scheduleCollTasksToPlan cuts the buffer into
 * their parts, and which chunks device/all_reduce.h makes of a part. */
#include "collectives/order_internal.h"

enum {
    LEAST = 32768,               /* bytes of traffic below which a channel is not worth it */
    STEPS = 8,                   /* of a protocol's buffer */
    LL_BUFFER = 524288,          /* bytes, of flags and data in equal shares */
    LL128_BUFFER = 4915200,      /* 15 of 16 bytes are data */
    SIMPLE_GRAIN = 512,          /* chunks are multiples of so many bytes */
    LL_GRAIN = 16,               /* " */
    LL128_GRAIN = 1920,          /* " */
    SIMPLE_THRESHOLD = 512 * 64, /* threads * bytes a thread, for a channel */
    LL_THRESHOLD = 512 * 8,
    LL128_THRESHOLD = 640 * 8
};

static uint64_t round_up(uint64_t n, uint64_t unit)
{
    return bl_order_divide_up(n, unit) * unit;
}

/* As many as there are, one less while their share is below the protocol's threshold. */
static uint32_t channels_for(const struct bl_order_setup *s, uint64_t bytes, uint32_t ring)
{
    uint64_t threshold = SIMPLE_THRESHOLD;
    if (s->cluster->channels > 0)
        return (uint32_t)s->cluster->channels;
    if (s->cluster->protocol == BL_PROTOCOL_LL)
        threshold = (uint64_t)LL_THRESHOLD * ring;
    else if (s->cluster->protocol == BL_PROTOCOL_LL128)
        threshold = LL128_THRESHOLD;
    uint64_t n = bytes / threshold;
    return n < 1 ? 1 : n > 16 ? 16 : (uint32_t)n;
}

void bl_channels_make(const struct bl_order_setup *s, uint64_t elements, uint32_t traffic,
                      uint32_t ring, struct bl_channels *out)
{
    uint64_t bytes = elements * s->element_bytes;
    uint64_t most = channels_for(s, traffic == 2 ? bytes : bytes * traffic, ring);
    uint64_t cost = (uint64_t)traffic * (s->cluster->protocol == BL_PROTOCOL_LL ? 4 : 1);
    /* The buffer is dealt out in cells; middle channels have `middle` each, the first as many. */
    uint64_t cell = round_up(bl_order_divide_up(LEAST, cost), 16);
    uint64_t cells = bl_order_divide_up(bytes, cell);
    uint64_t total = bytes * cost > LEAST ? bytes * cost : LEAST;
    uint64_t middle =
        bl_order_less(bl_order_divide_up(round_up(total / most, 16), cell * cost), cells);
    uint64_t first = most == 1 ? cells : middle;
    uint64_t middles = (cells - first) / middle, last = (cells - first) % middle;
    if (1 + middles + (last != 0) > most) {
        middles = most - 2;
        middle = (cells - first) / (middles + 1);
        last = middle + (cells - first) % (middles + 1);
    }
    out->count = (uint32_t)(1 + middles + (last != 0));
    out->begin[0] = 0;
    for (uint32_t k = 1; k < out->count; k++)
        out->begin[k] = (first + (k - 1) * middle) * (cell / s->element_bytes);
    out->begin[out->count] = elements;
}

static uint64_t chunk_bytes(const struct bl_cluster_options *c)
{
    switch (c->protocol) {
    case BL_PROTOCOL_LL:
        return LL_BUFFER / STEPS / 2 / LL_GRAIN * LL_GRAIN;
    case BL_PROTOCOL_LL128:
        return LL128_BUFFER / STEPS / 16 * 15 / LL128_GRAIN * LL128_GRAIN;
    default: /* half of the steps are in flight */
        return (uint64_t)c->buffer / STEPS * (STEPS / 2) / SIMPLE_GRAIN * SIMPLE_GRAIN;
    }
}

static uint64_t short_chunk(const struct bl_chunks *c, uint64_t rest)
{
    return round_up(bl_order_divide_up(rest, c->ranks), c->unit);
}

void bl_chunks_make(const struct bl_order_setup *s, uint64_t elements, uint32_t ranks,
                    struct bl_chunks *out)
{
    uint64_t bytes = s->cluster->chunk > 0 ? (uint64_t)s->cluster->chunk : chunk_bytes(s->cluster);
    bl_channels_make(s, elements, 2, ranks, &out->channels);
    out->ranks = ranks;
    out->unit = 16 / s->element_bytes;
    out->chunk = bytes < s->element_bytes ? 1 : bytes / s->element_bytes;
    out->first[0] = 0;
    for (uint32_t k = 0; k < out->channels.count; k++) {
        uint64_t size = out->channels.begin[k + 1] - out->channels.begin[k];
        uint64_t loop = out->chunk * ranks, rest = size % loop;
        out->first[k + 1] = out->first[k] + size / loop * ranks;
        if (rest > 0)
            out->first[k + 1] += bl_order_divide_up(rest, short_chunk(out, rest));
    }
}

uint64_t bl_chunks_count(const struct bl_chunks *c)
{
    return c->first[c->channels.count];
}

void bl_chunks_at(const struct bl_chunks *c, uint64_t index, struct bl_chunk *out)
{
    uint32_t k = 0;
    while (index >= c->first[k + 1])
        k++;
    uint64_t begin = c->channels.begin[k], size = c->channels.begin[k + 1] - begin;
    uint64_t local = index - c->first[k], loop = c->chunk * c->ranks, whole = size / loop;
    uint64_t length = c->chunk, at;
    out->channel = k;
    out->position = (uint32_t)(local % c->ranks);
    if (local < whole * c->ranks) {
        at = local * length;
    } else {
        length = short_chunk(c, size % loop);
        at = whole * loop + out->position * length;
    }
    out->begin = begin + at;
    out->end = begin + bl_order_less(at + length, size);
}
