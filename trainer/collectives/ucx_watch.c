/* Who lives: signs of life, goodbyes, and the end. */
#include "collectives/ucx_internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* An endpoint that fails right after its process said why is not lost but ended: time for the
 * words that came with it. */
#define GRACE 0.2
/* Signs of life that may be missing before an answer is not worth waiting for. */
#define SILENT 2.5

void bl_ucx_fail(struct bl_transport *t, const char *format, ...)
{
    if (t->failed)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(t->cause, sizeof t->cause, format, args);
    va_end(args);
    t->failed = 1;
}

void bl_ucx_broken(struct bl_transport *t, uint32_t peer, ucs_status_t why)
{
    struct peer *p = &t->peers[peer];
    if (p->broken > 0 || p->left || t->over)
        return;
    p->broken = bl_clock();
    p->why = ucs_status_string(why);
    t->due = 0;
}

/* ---- notes ------------------------------------------------------------------------------------*/

struct outgoing {
    struct bl_transport *t;
    uint32_t to;
    struct note note;
};

static void on_note_sent(void *request, ucs_status_t status, void *argument)
{
    struct outgoing *o = argument;
    if (o->note.word == WORD_ALIVE)
        o->t->peers[o->to].beating = 0;
    if (status != UCS_OK)
        bl_ucx_broken(o->t, o->to, status);
    ucp_request_free(request);
    free(o);
}

static void tell(struct bl_transport *t, uint32_t to, uint32_t word, const char *text)
{
    struct outgoing *o = calloc(1, sizeof *o);
    if (o == NULL)
        return; /* the next sign of life may have more luck */
    o->t = t;
    o->to = to;
    o->note.word = word;
    o->note.from = t->process;
    snprintf(o->note.text, sizeof o->note.text, "%s", text);
    ucp_request_param_t how = {.op_attr_mask =
                                   UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA,
                               .cb.send = on_note_sent,
                               .user_data = o};
    uint64_t tag = (uint64_t)KIND_CONTROL << TAG_KIND_SHIFT;
    size_t bytes = offsetof(struct note, text) + strlen(o->note.text) + 1;
    void *request = ucp_tag_send_nbx(t->peers[to].ep, &o->note, bytes, tag, &how);
    if (UCS_PTR_IS_PTR(request)) {
        t->peers[to].beating |= word == WORD_ALIVE;
        return;
    }
    free(o);
    if (UCS_PTR_IS_ERR(request))
        bl_ucx_broken(t, to, UCS_PTR_STATUS(request));
}

static void on_note(void *request, ucs_status_t status, const ucp_tag_recv_info_t *info,
                    void *argument)
{
    struct bl_transport *t = argument;
    t->heard_ready = status == UCS_OK;
    t->heard_bytes = info->length;
    ucp_request_free(request);
}

static ucs_status_t listen_once(struct bl_transport *t)
{
    ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK |
                                               UCP_OP_ATTR_FIELD_USER_DATA |
                                               UCP_OP_ATTR_FLAG_NO_IMM_CMPL,
                               .cb.recv = on_note,
                               .user_data = t};
    uint64_t tag = (uint64_t)KIND_CONTROL << TAG_KIND_SHIFT, mask = (uint64_t)3 << TAG_KIND_SHIFT;
    memset(&t->heard, 0, sizeof t->heard);
    void *request = ucp_tag_recv_nbx(t->worker, &t->heard, sizeof t->heard, tag, mask, &how);
    return UCS_PTR_IS_ERR(request) ? UCS_PTR_STATUS(request) : UCS_OK;
}

int bl_ucx_listen(struct bl_transport *t, struct bl_error *err)
{
    ucs_status_t status = listen_once(t);
    if (status != UCS_OK)
        return bl_error_set(err, BL_EXIT_FAILED, "UCX: cannot receive: %s",
                            ucs_status_string(status));
    return 0;
}

static void understand(struct bl_transport *t, const struct note *n)
{
    if (t->heard_bytes <= offsetof(struct note, text) || n->from >= t->processes)
        return;
    struct peer *p = &t->peers[n->from];
    p->heard = bl_clock();
    switch (n->word) {
    case WORD_ABORT:
        bl_ucx_fail(t, "process %u (%s): %.*s", n->from, p->host, (int)sizeof t->cause - 300,
                    n->text);
        p->left = p->answered = 1;
        tell(t, n->from, WORD_ANSWER, "");
        break;
    case WORD_LEAVE:
        p->left = p->answered = 1;
        tell(t, n->from, WORD_ANSWER, "");
        break;
    case WORD_ANSWER:
        p->answered = 1;
        break;
    default:
        break;
    }
}

void bl_ucx_hear(struct bl_transport *t)
{
    while (t->heard_ready) {
        t->heard_ready = 0;
        understand(t, &t->heard);
        listen_once(t);
    }
}

/* ---- duties -----------------------------------------------------------------------------------*/

static void judge(struct bl_transport *t, uint32_t process, double now)
{
    struct peer *p = &t->peers[process];
    if (process == t->process || p->left)
        return;
    if (p->broken > 0 && now - p->broken >= GRACE) {
        p->lost = 1;
        bl_ucx_fail(t, "process %u (%s) was lost: its connection ended (%s)", process, p->host,
                    p->why);
    } else if (p->broken > 0) {
        if (t->due > p->broken + GRACE)
            t->due = p->broken + GRACE;
    } else if (now - p->heard > t->timeout) {
        p->lost = 1;
        bl_ucx_fail(t, "process %u (%s) was lost: nothing heard of it for %.3g s", process, p->host,
                    now - p->heard);
    }
}

/* Signs of life go on after a failure that the caller has not seen yet: it tells the others why. */
void bl_ucx_duties(struct bl_transport *t)
{
    double now = bl_clock();
    if (now < t->due)
        return;
    /* Whoever was stopped itself has not listened: the others get their time anew. */
    if (now - t->watched > t->timeout / 2)
        for (uint32_t p = 0; p < t->processes; p++)
            t->peers[p].heard = now;
    t->watched = now;
    if (now >= t->beat) {
        t->beat = now + t->interval;
        for (uint32_t p = 0; p < t->processes; p++)
            if (p != t->process && !t->peers[p].left && t->peers[p].broken == 0 &&
                !t->peers[p].beating)
                tell(t, p, WORD_ALIVE, "");
    }
    t->due = t->beat;
    for (uint32_t p = 0; p < t->processes && !t->failed; p++)
        judge(t, p, now);
}

void bl_ucx_announce(struct bl_transport *t, uint32_t word, const char *text, double limit)
{
    double now = bl_clock(), end = now + limit;
    unsigned busy = 0;
    if (t->over || t->peers == NULL)
        return;
    for (uint32_t p = 0; p < t->processes; p++) {
        struct peer *q = &t->peers[p];
        if (p == t->process || q->left || q->lost || q->broken > 0)
            q->answered = 1;
        else
            tell(t, p, word, text);
        if (now - q->heard > SILENT * t->interval)
            q->answered = 1; /* told, in case, but not waited for */
    }
    for (uint32_t p = 0; p < t->processes && bl_clock() < end;) {
        if (t->peers[p].answered || t->peers[p].broken > 0)
            p++;
        else if (bl_ucx_progress(t) == 0)
            bl_ucx_block(t, end, &busy);
    }
}
