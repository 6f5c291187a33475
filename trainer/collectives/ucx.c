/* Transport over UCX: https://openucx.org. Built as a module of its own, see transport.h. */
#include "collectives/ucx_internal.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"

#define TRANSPORTS "tcp"
/* From this size on a sender waits for its receiver. The library's own choice (128 KiB on TCP)
 * takes twice the time for messages of 128 KiB to 1 MiB; see tests/bench/README.md. */
#define RENDEZVOUS "1m"

enum {
    STEPS_AT_A_TIME = 64,      /* of the background thread between two looks at the caller */
    PARK_NS = 5 * 1000 * 1000, /* a wait of the caller that is longer parks it */
    BUSY_LIMIT = 1000,         /* looks at a worker that is busy with nothing */
    CLOSE_STEPS = 100000,      /* of an endpoint that is given up */
    LEAVE_SECONDS = 5,         /* for the answers to a goodbye */
};

/* ---- the two threads --------------------------------------------------------------------------*/

void bl_ucx_enter(struct bl_transport *t)
{
    atomic_store(&t->inside, 1);
    pthread_mutex_lock(&t->lock);
}

void bl_ucx_leave(struct bl_transport *t)
{
    atomic_store(&t->inside, 0);
    if (t->parked)
        pthread_cond_signal(&t->outside);
    pthread_mutex_unlock(&t->lock);
}

unsigned bl_ucx_progress(struct bl_transport *t)
{
    unsigned n = ucp_worker_progress(t->worker);
    if (t->heard_ready)
        bl_ucx_hear(t);
    return n;
}

void bl_ucx_block(struct bl_transport *t, double until, unsigned *busy)
{
    struct pollfd event = {.fd = t->event, .events = POLLIN};
    ucs_status_t status = ucp_worker_arm(t->worker);
    double rest = until - bl_clock();
    int wait_ms = rest <= 0 ? 0 : rest > 60 ? 60000 : (int)(rest * 1e3) + 1;
    /* Busy: there is something to do, or something cannot be sent yet and nobody will tell when. */
    if (status == UCS_ERR_BUSY) {
        if (++*busy < BUSY_LIMIT)
            return;
        wait_ms = 1;
    }
    pthread_mutex_unlock(&t->lock);
    poll(&event, status == UCS_ERR_BUSY ? 0 : 1, wait_ms);
    pthread_mutex_lock(&t->lock);
}

/* The caller is inside: away for a moment, or until it leaves when it takes longer. */
static void stand_aside(struct bl_transport *t)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_nsec += PARK_NS;
    if (end.tv_nsec >= 1000000000) {
        end.tv_sec++;
        end.tv_nsec -= 1000000000;
    }
    pthread_cond_timedwait(&t->outside, &t->lock, &end);
    t->parked = 1;
    while (atomic_load(&t->inside) && !t->stop)
        pthread_cond_wait(&t->outside, &t->lock);
    t->parked = 0;
}

static void *background(void *argument)
{
    struct bl_transport *t = argument;
    unsigned busy = 0;
    pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        if (atomic_load(&t->inside)) {
            stand_aside(t);
            continue;
        }
        unsigned steps = 0;
        while (steps < STEPS_AT_A_TIME && bl_ucx_progress(t) > 0)
            steps++;
        bl_ucx_duties(t);
        if (steps > 0) {
            busy = 0;
            pthread_mutex_unlock(&t->lock);
            pthread_mutex_lock(&t->lock);
        } else {
            bl_ucx_block(t, t->due, &busy);
        }
    }
    pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- begin and end ----------------------------------------------------------------------------*/

static int failed(ucs_status_t status, const char *what, struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_FAILED, "UCX: %s: %s", what, ucs_status_string(status));
}

/* A default of ours, where the user has set nothing. */
static void prefer(ucp_config_t *config, const char *variable, const char *value)
{
    if (getenv(variable) == NULL)
        ucp_config_modify(config, variable + strlen("UCX_"), value);
}

static int make_context(struct bl_transport *t, struct bl_error *err)
{
    ucp_config_t *config;
    ucs_status_t status = ucp_config_read(NULL, NULL, &config);
    if (status != UCS_OK)
        return failed(status, "settings", err);
    prefer(config, "UCX_TLS", TRANSPORTS);
    prefer(config, "UCX_RNDV_THRESH", RENDEZVOUS);
    /* The watch decides when a peer that is cut off is lost, not TCP before it. */
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.0fs", 2 * t->timeout + 1);
    prefer(config, "UCX_TCP_KEEPIDLE", seconds);
    ucp_params_t params = {.field_mask =
                               UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_ESTIMATED_NUM_EPS,
                           .features = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP,
                           .estimated_num_eps = t->processes};
    status = ucp_init(&params, config, &t->context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        t->context = NULL;
        return failed(status, "no usable transport (UCX_TLS, UCX_NET_DEVICES)", err);
    }
    const char *version = ucp_get_version_string(), *tls = getenv("UCX_TLS");
    snprintf(t->name, sizeof t->name, "UCX %.*s %s", (int)strcspn(version, " "), version,
             tls != NULL ? tls : TRANSPORTS);
    return 0;
}

static int make_worker(struct bl_transport *t, struct bl_error *err)
{
    ucp_worker_params_t params = {.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE |
                                                UCP_WORKER_PARAM_FIELD_EVENTS,
                                  .thread_mode = UCS_THREAD_MODE_SERIALIZED,
                                  .events = UCP_WAKEUP_TAG_SEND | UCP_WAKEUP_TAG_RECV};
    ucs_status_t status = ucp_worker_create(t->context, &params, &t->worker);
    if (status != UCS_OK) {
        t->worker = NULL;
        return failed(status, "no worker", err);
    }
    status = ucp_worker_get_efd(t->worker, &t->event);
    if (status != UCS_OK)
        return failed(status, "no descriptor to wait on", err);
    status = ucp_worker_get_address(t->worker, &t->address, &t->address_bytes);
    if (status != UCS_OK) {
        t->address = NULL;
        return failed(status, "no address", err);
    }
    return 0;
}

static void destroy(struct bl_transport *t)
{
    if (t == NULL)
        return;
    if (t->worker != NULL && t->address != NULL)
        ucp_worker_release_address(t->worker, t->address);
    if (t->worker != NULL)
        ucp_worker_destroy(t->worker);
    if (t->context != NULL)
        ucp_cleanup(t->context);
    while (t->transfers != NULL) {
        struct bl_transfer *next = t->transfers->next;
        free(t->transfers);
        t->transfers = next;
    }
    free(t->peers);
    pthread_cond_destroy(&t->outside);
    pthread_mutex_destroy(&t->lock);
    free(t);
}

static int make(double timeout, uint32_t process, uint32_t processes, struct bl_transport **out,
                struct bl_error *err)
{
    struct bl_transport *t = calloc(1, sizeof *t);
    if (t == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "UCX: no memory");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&t->outside, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&t->lock, NULL);
    t->timeout = timeout;
    t->interval = timeout / 5;
    t->process = process;
    t->processes = processes;
    if (make_context(t, err) != 0 || make_worker(t, err) != 0) {
        destroy(t);
        return -1;
    }
    *out = t;
    return 0;
}

static void address(const struct bl_transport *t, const void **out, size_t *bytes)
{
    *out = t->address;
    *bytes = t->address_bytes;
}

static void on_endpoint_error(void *argument, ucp_ep_h ep, ucs_status_t status)
{
    struct bl_transport *t = argument;
    for (uint32_t p = 0; p < t->processes; p++)
        if (t->peers[p].ep == ep)
            bl_ucx_broken(t, p, status);
}

static int make_endpoint(struct bl_transport *t, uint32_t p, const struct bl_transport_peer *peer,
                         struct bl_error *err)
{
    ucp_ep_params_t params = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLER,
                              .address = peer->address,
                              .err_mode = UCP_ERR_HANDLING_MODE_PEER,
                              .err_handler = {.cb = on_endpoint_error, .arg = t}};
    ucs_status_t status = ucp_ep_create(t->worker, &params, &t->peers[p].ep);
    if (status == UCS_OK)
        return 0;
    t->peers[p].ep = NULL;
    return bl_error_set(err, BL_EXIT_FAILED, "UCX: no way to process %u (%s): %s; transports: %s",
                        p, peer->host, ucs_status_string(status), t->name);
}

/* Signals are for the caller's thread. */
static int start_thread(struct bl_transport *t, struct bl_error *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&t->thread, NULL, background, t);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "no thread for the connections: %s", strerror(rc));
    t->thread_runs = 1;
    return 0;
}

static int connect_all(struct bl_transport *t, const struct bl_transport_peer *peers,
                       struct bl_error *err)
{
    int rc = -1;
    double now = bl_clock();
    bl_ucx_enter(t);
    t->peers = calloc(t->processes, sizeof *t->peers);
    if (t->peers == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "UCX: no memory for %u peers", t->processes);
        goto out;
    }
    t->watched = now;
    for (uint32_t p = 0; p < t->processes; p++) {
        t->peers[p].host = peers[p].host;
        t->peers[p].heard = now;
    }
    for (uint32_t p = 0; p < t->processes; p++)
        if (p != t->process && make_endpoint(t, p, &peers[p], err) != 0)
            goto out;
    if (bl_ucx_listen(t, err) != 0)
        goto out;
    rc = start_thread(t, err);
out:
    bl_ucx_leave(t);
    return rc;
}

void bl_ucx_end(struct bl_transport *t)
{
    if (t->over)
        return;
    t->over = t->stop = 1;
    for (uint32_t p = 0; t->peers != NULL && p < t->processes; p++) {
        if (t->peers[p].ep == NULL)
            continue;
        ucp_request_param_t how = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                   .flags = UCP_EP_CLOSE_FLAG_FORCE};
        void *request = ucp_ep_close_nbx(t->peers[p].ep, &how);
        t->peers[p].ep = NULL;
        if (!UCS_PTR_IS_PTR(request))
            continue;
        for (int step = 0;
             step < CLOSE_STEPS && ucp_request_check_status(request) == UCS_INPROGRESS; step++)
            ucp_worker_progress(t->worker);
        ucp_request_free(request);
    }
    ucp_worker_signal(t->worker);
    pthread_cond_signal(&t->outside);
}

static void free_transport(struct bl_transport *t)
{
    if (t == NULL)
        return;
    bl_ucx_enter(t);
    if (!t->failed)
        bl_ucx_announce(t, WORD_LEAVE, "", t->timeout < LEAVE_SECONDS ? t->timeout : LEAVE_SECONDS);
    bl_ucx_end(t);
    bl_ucx_leave(t);
    if (t->thread_runs)
        pthread_join(t->thread, NULL);
    destroy(t);
}

static void give_up(struct bl_transport *t, const char *cause)
{
    bl_ucx_enter(t);
    bl_ucx_announce(t, WORD_ABORT, cause, 1.0);
    bl_ucx_end(t);
    bl_ucx_leave(t);
}

static void limit(struct bl_transport *t, double timeout)
{
    bl_ucx_enter(t);
    t->timeout = timeout;
    t->interval = timeout / 5;
    t->beat = t->due = 0; /* at once */
    for (uint32_t p = 0; p < t->processes; p++)
        t->peers[p].heard = bl_clock();
    ucp_worker_signal(t->worker);
    bl_ucx_leave(t);
}

static const char *name(const struct bl_transport *t)
{
    return t->name;
}

static uint64_t sent(const struct bl_transport *t)
{
    return t->sent;
}

extern const struct bl_transport_ops ballast_transport_v1;
const struct bl_transport_ops ballast_transport_v1 = {
    .size = sizeof(struct bl_transport_ops),
    .version = BL_TRANSPORT_VERSION,
    .make = make,
    .address = address,
    .connect = connect_all,
    .limit = limit,
    .name = name,
    .send = bl_ucx_send,
    .receive = bl_ucx_receive,
    .wait = bl_ucx_wait,
    .give_up = give_up,
    .sent = sent,
    .free = free_transport,
};
