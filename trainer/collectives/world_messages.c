/* Messages: to oneself here, to others by the transport. */
#include "collectives/world_internal.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Takes the oldest counterpart out of a queue. */
static struct bl_message *take(struct bl_message **queue, const struct bl_message *m)
{
    while (*queue != NULL && ((*queue)->tag != m->tag || (*queue)->space != m->space))
        queue = &(*queue)->next;
    struct bl_message *found = *queue;
    if (found != NULL)
        *queue = found->next;
    return found;
}

static void append(struct bl_message **queue, struct bl_message *m)
{
    while (*queue != NULL)
        queue = &(*queue)->next;
    *queue = m;
}

static void deliver(struct bl_message *send, struct bl_message *receive)
{
    size_t n = send->bytes < receive->bytes ? send->bytes : receive->bytes;
    if (n > 0)
        memcpy(receive->data, send->data, n);
    receive->came = send->bytes;
    send->came = send->bytes;
    send->done = receive->done = 1;
    send->next = receive->next = NULL;
}

static struct bl_message *start(struct bl_world *w, uint32_t peer, int space, uint64_t tag,
                                void *data, size_t bytes, struct bl_error *err)
{
    if (peer >= w->processes) {
        bl_error_set(err, BL_EXIT_FAILED, "a message for process %u of %u", peer, w->processes);
        return NULL;
    }
    if (tag >= BL_TAG_LIMIT) {
        bl_error_set(err, BL_EXIT_FAILED, "a message with tag %llu, the limit is 2^40",
                     (unsigned long long)tag);
        return NULL;
    }
    struct bl_message *m = calloc(1, sizeof *m);
    if (m == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for a message");
        return NULL;
    }
    m->space = space;
    m->tag = tag;
    m->data = data;
    m->bytes = bytes;
    return m;
}

int bl_world_start_send(struct bl_world *w, uint32_t to, int space, uint64_t tag, const void *data,
                        size_t bytes, struct bl_message **out, struct bl_error *err)
{
    struct bl_message *m = start(w, to, space, tag, (void *)(uintptr_t)data, bytes, err);
    if (m == NULL)
        return -1;
    if (to != w->process) {
        if (w->ops->send(w->transport, to, space, tag, data, bytes, &m->transfer, err) != 0) {
            free(m);
            return -1;
        }
    } else {
        struct bl_message *receive = take(&w->receives, m);
        if (receive != NULL)
            deliver(m, receive);
        else
            append(&w->sends, m);
    }
    *out = m;
    return 0;
}

int bl_world_start_receive(struct bl_world *w, uint32_t from, int space, uint64_t tag, void *data,
                           size_t bytes, struct bl_message **out, struct bl_error *err)
{
    struct bl_message *m = start(w, from, space, tag, data, bytes, err);
    if (m == NULL)
        return -1;
    if (from != w->process) {
        if (w->ops->receive(w->transport, from, space, tag, data, bytes, &m->transfer, err) != 0) {
            free(m);
            return -1;
        }
    } else {
        struct bl_message *send = take(&w->sends, m);
        if (send != NULL)
            deliver(send, m);
        else
            append(&w->receives, m);
    }
    *out = m;
    return 0;
}

int bl_world_send(struct bl_world *w, uint32_t to, uint64_t tag, const void *data, size_t bytes,
                  struct bl_message **out, struct bl_error *err)
{
    return bl_world_start_send(w, to, BL_TAG_CALLER, tag, data, bytes, out, err);
}

int bl_world_receive(struct bl_world *w, uint32_t from, uint64_t tag, void *data, size_t bytes,
                     struct bl_message **out, struct bl_error *err)
{
    return bl_world_start_receive(w, from, BL_TAG_CALLER, tag, data, bytes, out, err);
}

static void remove_from(struct bl_message **queue, const struct bl_message *m)
{
    while (*queue != NULL && *queue != m)
        queue = &(*queue)->next;
    if (*queue != NULL)
        *queue = m->next;
}

/* A message to oneself is done once both ends were started. */
static int check_own(const struct bl_message *m, struct bl_error *err)
{
    if (!m->done)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "a message to oneself (tag %llu) has no other end: it would be waited "
                            "for without end",
                            (unsigned long long)m->tag);
    if (m->came != m->bytes)
        return bl_error_set(err, BL_EXIT_PEER,
                            "a message to oneself (tag %llu) has %zu bytes, %zu were expected",
                            (unsigned long long)m->tag, m->came, m->bytes);
    return 0;
}

enum { GROUP = 64 }; /* transfers that are handed on at a time */

int bl_world_wait(struct bl_world *w, struct bl_message **messages, size_t count,
                  struct bl_error *err)
{
    int rc = 0;
    double begin = bl_clock();
    for (size_t i = 0; i < count && rc == 0;) {
        struct bl_transfer *group[GROUP];
        size_t n = 0;
        for (; i < count && n < GROUP && rc == 0; i++) {
            if (messages[i] == NULL)
                continue;
            if (messages[i]->transfer != NULL)
                group[n++] = messages[i]->transfer;
            else
                rc = check_own(messages[i], err);
        }
        if (rc == 0 && n > 0)
            rc = w->ops->wait(w->transport, group, n, err);
    }
    for (size_t i = 0; i < count; i++) {
        if (messages[i] == NULL)
            continue;
        remove_from(&w->sends, messages[i]);
        remove_from(&w->receives, messages[i]);
        free(messages[i]);
        messages[i] = NULL;
    }
    w->waited += bl_clock() - begin;
    return rc;
}
