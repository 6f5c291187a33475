/* Inside the UCX module: one worker, an endpoint for each peer, and who may touch them.
 *
 * `lock` guards the worker and all that is here. Two threads make progress: the caller's while it
 * waits, the background thread while the caller computes. The caller is `inside` from before it
 * takes the lock until after it left it; the background thread then stands aside.
 *
 * A UCP tag is, from the top: 2 bits kind, 5 bits nothing, 1 bit "last piece", 16 bits sender,
 * 40 bits tag. */
#ifndef BL_COLLECTIVES_UCX_INTERNAL_H
#define BL_COLLECTIVES_UCX_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include <ucp/api/ucp.h>

#include "collectives/transport.h"

/* A message travels in pieces: each one that arrives shows that its peer lives, so that a long
 * message on a slow link is not taken for silence. */
enum { PIECE_BYTES = 4 << 20 };

#define TAG_KIND_SHIFT   62
#define TAG_LAST         ((uint64_t)1 << 56)
#define TAG_SENDER_SHIFT 40

enum kind { KIND_CALLER = BL_TAG_CALLER, KIND_COLLECTIVE = BL_TAG_COLLECTIVE, KIND_CONTROL };

struct bl_transfer {
    struct bl_transport *t;
    struct bl_transfer *previous, *next; /* all that were started and not given back */
    uint32_t peer;
    uint64_t tag;
    size_t bytes;
    size_t left;  /* pieces that are not complete */
    size_t wrong; /* pieces of another size, or not the last where the last was expected */
    size_t piece_count;
    struct piece {
        struct bl_transfer *transfer;
        size_t bytes;
        int last;
    } pieces[];
};

/* What processes tell each other beside messages. */
enum word { WORD_ALIVE = 1, WORD_LEAVE, WORD_ABORT, WORD_ANSWER };
struct note {
    uint32_t word, from;
    char text[1016];
};

struct peer {
    ucp_ep_h ep;
    const char *host;
    double heard;    /* when it gave the last sign of life */
    double broken;   /* when its endpoint failed, 0: it did not */
    const char *why; /* it failed */
    int left;        /* it said goodbye */
    int answered;    /* to our goodbye */
    int beating;     /* our last sign of life is still on its way */
    int lost;
};

struct bl_transport {
    double timeout, interval; /* between signs of life */
    uint32_t process, processes;
    char name[128];
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_address_t *address;
    size_t address_bytes;
    int event;          /* of the worker */
    struct peer *peers; /* (processes); NULL before connect */
    struct bl_transfer *transfers;
    uint64_t sent;

    pthread_mutex_t lock;
    pthread_cond_t outside; /* the caller has left, or the end has come */
    pthread_t thread;
    int thread_runs, stop, parked;
    atomic_int inside;

    double due, beat, watched; /* next duties, next signs of life, last look at the peers */
    struct note heard;         /* buffer of the receive that is always there */
    size_t heard_bytes;
    int heard_ready;
    int failed; /* the world is lost: `cause` */
    int over;   /* nobody makes progress any more */
    char cause[900];
};

/* ---- ucx.c */
void bl_ucx_enter(struct bl_transport *t);
void bl_ucx_leave(struct bl_transport *t);
/* One step; nonzero: something happened. */
unsigned bl_ucx_progress(struct bl_transport *t);
/* Blocks with the lock released until something happens, or until `until` (bl_clock). busy: starts
 * as 0, and again after each step that did something. */
void bl_ucx_block(struct bl_transport *t, double until, unsigned *busy);
/* Gives all endpoints up; nobody makes progress afterwards. */
void bl_ucx_end(struct bl_transport *t);

/* ---- ucx_watch.c */
int bl_ucx_listen(struct bl_transport *t, struct bl_error *err);
void bl_ucx_hear(struct bl_transport *t); /* handles notes that came */
void bl_ucx_duties(struct bl_transport *t);
void bl_ucx_broken(struct bl_transport *t, uint32_t peer, ucs_status_t why);
void bl_ucx_fail(struct bl_transport *t, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Tells all that can hear it and waits for their answers, `limit` seconds at most. */
void bl_ucx_announce(struct bl_transport *t, uint32_t word, const char *text, double limit);

/* ---- ucx_messages.c */
int bl_ucx_send(struct bl_transport *t, uint32_t to, int space, uint64_t tag, const void *data,
                size_t bytes, struct bl_transfer **out, struct bl_error *err);
int bl_ucx_receive(struct bl_transport *t, uint32_t from, int space, uint64_t tag, void *data,
                   size_t bytes, struct bl_transfer **out, struct bl_error *err);
int bl_ucx_wait(struct bl_transport *t, struct bl_transfer *const *transfers, size_t count,
                struct bl_error *err);

#endif
