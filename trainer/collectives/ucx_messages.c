/* Messages in pieces, and the wait for them. */
#include "collectives/ucx_internal.h"

#include <stdlib.h>

#include "base/clock.h"

static uint64_t tag_of(int space, uint32_t sender, uint64_t tag)
{
    return (uint64_t)space << TAG_KIND_SHIFT | (uint64_t)sender << TAG_SENDER_SHIFT | tag;
}

static struct bl_transfer *new_transfer(struct bl_transport *t, uint32_t peer, uint64_t tag,
                                        size_t bytes, struct bl_error *err)
{
    size_t pieces = bytes == 0 ? 1 : (bytes - 1) / PIECE_BYTES + 1;
    struct bl_transfer *x = calloc(1, sizeof *x + pieces * sizeof x->pieces[0]);
    if (x == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for a message of %zu bytes", bytes);
        return NULL;
    }
    x->t = t;
    x->peer = peer;
    x->tag = tag;
    x->bytes = bytes;
    x->left = x->piece_count = pieces;
    for (size_t i = 0; i < pieces; i++) {
        x->pieces[i].transfer = x;
        x->pieces[i].last = i + 1 == pieces;
        x->pieces[i].bytes = i + 1 < pieces ? PIECE_BYTES : bytes - i * PIECE_BYTES;
    }
    x->next = t->transfers;
    if (x->next != NULL)
        x->next->previous = x;
    t->transfers = x;
    return x;
}

static void give_back(struct bl_transport *t, struct bl_transfer *x)
{
    if (x->previous != NULL)
        x->previous->next = x->next;
    else
        t->transfers = x->next;
    if (x->next != NULL)
        x->next->previous = x->previous;
    free(x);
}

/* A piece that failed is never complete: what its peer's failure means is decided by the watch. */
static void complete(struct piece *p, ucs_status_t status)
{
    struct bl_transfer *x = p->transfer;
    if (status == UCS_OK || status == UCS_ERR_MESSAGE_TRUNCATED) {
        x->left--;
        x->t->peers[x->peer].heard = bl_clock();
    } else {
        bl_ucx_broken(x->t, x->peer, status);
    }
}

static void on_sent(void *request, ucs_status_t status, void *argument)
{
    complete(argument, status);
    ucp_request_free(request);
}

static void on_received(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                        void *argument)
{
    struct piece *p = argument;
    if (status == UCS_ERR_MESSAGE_TRUNCATED ||
        (status == UCS_OK &&
         (info->length != p->bytes || ((info->sender_tag & TAG_LAST) != 0) != p->last)))
        p->transfer->wrong++;
    complete(p, status);
    ucp_request_free(request);
}

static int over(const struct bl_transport *t, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_PEER, "%s",
                        t->failed ? t->cause : "the connections have been ended");
}

/* A transfer whose pieces are to be handed to UCX; NULL with an error. */
static struct bl_transfer *begin(struct bl_transport *t, uint32_t peer, uint64_t tag, size_t bytes,
                                 struct bl_error *err)
{
    if (t->over) {
        over(t, err);
        return NULL;
    }
    return new_transfer(t, peer, tag, bytes, err);
}

int bl_ucx_send(struct bl_transport *t, uint32_t to, int space, uint64_t tag, const void *data,
                size_t bytes, struct bl_transfer **out, struct bl_error *err)
{
    bl_ucx_enter(t);
    struct bl_transfer *x = begin(t, to, tag, bytes, err);
    for (size_t i = 0; x != NULL && i < x->piece_count; i++) {
        struct piece *p = &x->pieces[i];
        ucp_request_param_t how = {.op_attr_mask =
                                       UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                                   .cb.send = on_sent,
                                   .user_data = p};
        const char *from = bytes > 0 ? (const char *)data + i * PIECE_BYTES : NULL;
        void *request =
            ucp_tag_send_nbx(t->peers[to].ep, from, p->bytes,
                             tag_of(space, t->process, tag) | (p->last ? TAG_LAST : 0), &how);
        if (!UCS_PTR_IS_PTR(request))
            complete(p, UCS_PTR_STATUS(request));
    }
    if (x != NULL) {
        if (x->left > 0)
            ucp_worker_signal(t->worker); /* the background thread looks after it */
        t->sent += bytes;
        *out = x;
    }
    bl_ucx_leave(t);
    return x != NULL ? 0 : -1;
}

int bl_ucx_receive(struct bl_transport *t, uint32_t from, int space, uint64_t tag, void *data,
                   size_t bytes, struct bl_transfer **out, struct bl_error *err)
{
    bl_ucx_enter(t);
    struct bl_transfer *x = begin(t, from, tag, bytes, err);
    for (size_t i = 0; x != NULL && i < x->piece_count; i++) {
        struct piece *p = &x->pieces[i];
        /* UCX 1.13 tells size and tag of a message that was there already only to a callback. */
        ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                                   UCP_OP_ATTR_FIELD_USER_DATA |
                                                   UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                                   .cb.recv = on_received,
                                   .user_data = p};
        char *into = bytes > 0 ? (char *)data + i * PIECE_BYTES : NULL;
        void *request =
            ucp_tag_recv_nbx(t->worker, into, p->bytes, tag_of(space, from, tag), ~TAG_LAST, &how);
        if (UCS_PTR_IS_ERR(request))
            complete(p, UCS_PTR_STATUS(request));
    }
    if (x != NULL)
        *out = x;
    bl_ucx_leave(t);
    return x != NULL ? 0 : -1;
}

static void check(struct bl_transport *t, const struct bl_transfer *x)
{
    const struct peer *p = &t->peers[x->peer];
    if (x->wrong > 0)
        bl_ucx_fail(t,
                    "process %u (%s) sent a message of another size than the %zu bytes that are "
                    "expected (tag %llu)",
                    x->peer, p->host, x->bytes, (unsigned long long)x->tag);
    else if (x->left > 0 && p->left)
        bl_ucx_fail(t, "process %u (%s) has ended while process %u waits for it", x->peer, p->host,
                    t->process);
}

int bl_ucx_wait(struct bl_transport *t, struct bl_transfer *const *transfers, size_t count,
                struct bl_error *err)
{
    int rc = 0;
    unsigned busy = 0;
    bl_ucx_enter(t);
    if (t->over)
        rc = over(t, err);
    for (size_t i = 0; i < count && rc == 0; i++) {
        struct bl_transfer *x = transfers[i];
        while (x != NULL && x->left > 0 && x->wrong == 0 && !t->failed) {
            unsigned steps = bl_ucx_progress(t);
            bl_ucx_duties(t);
            if (steps > 0) {
                busy = 0;
                continue;
            }
            check(t, x);
            if (!t->failed)
                bl_ucx_block(t, t->due, &busy);
        }
        if (x != NULL && (x->left > 0 || x->wrong > 0)) {
            check(t, x);
            rc = over(t, err);
            bl_ucx_announce(t, WORD_ABORT, t->cause, 1.0);
            bl_ucx_end(t);
        }
    }
    /* What is not complete stays in the list until the end: UCX may still name it. */
    for (size_t i = 0; i < count && rc == 0; i++)
        if (transfers[i] != NULL)
            give_back(t, transfers[i]);
    bl_ucx_leave(t);
    return rc;
}
