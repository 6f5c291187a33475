/* The thread pool.
 *
 * A run is open while the caller works on it. A worker joins an open run by counting itself into
 * `state`, takes tasks from the one counter `next`, and counts itself out. The caller works too;
 * when the counter has run out it closes the run and waits for those who joined. A worker that
 * wakes late finds the run closed and holds nobody up. Fields of a run are written before it opens
 * and only change when it is closed and empty.
 */
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "base/log.h"
#include "base/memory.h"

#define OPEN      (1u << 31)
#define SPIN      1500 /* pauses before a thread sleeps: 20 to 60 microseconds */
#define MOST      1024
#define BUFFERS   2
#define CACHELINE 64

/* One per thread that has met the pool: its workers and its callers. */
struct member {
    struct member *next;
    int inside; /* it is running a task */
    void *buffer[BUFFERS];
    uint64_t capacity[BUFFERS];
};

struct bl_pool {
    unsigned threads; /* callers included */
    unsigned started;
    int spin;
    pthread_t *ids;
    pthread_key_t key; /* struct member of a thread */
    pthread_mutex_t run;
    pthread_mutex_t lock;
    pthread_cond_t work, idle;
    struct member *members; /* under lock */
    int stop;               /* under lock */

    void (*body)(void *, uint64_t);
    void *argument;
    uint64_t n;

    _Alignas(CACHELINE) atomic_uint generation; /* counts runs; changes under lock */
    _Alignas(CACHELINE) atomic_uint state;      /* OPEN and the number of workers inside */
    _Alignas(CACHELINE) atomic_ullong next;
};

static void relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

_Noreturn void bl_pool_no_memory(uint64_t bytes)
{
    bl_log(BL_LOG_ERROR, "no memory for %llu bytes of working space; lower the micro batch",
           (unsigned long long)bytes);
    _exit(BL_EXIT_FAILED);
}

static struct member *member_of(struct bl_pool *p)
{
    struct member *m = pthread_getspecific(p->key);

    if (m)
        return m;
    m = calloc(1, sizeof *m);
    if (!m || pthread_setspecific(p->key, m) != 0)
        bl_pool_no_memory(sizeof *m);
    pthread_mutex_lock(&p->lock);
    m->next = p->members;
    p->members = m;
    pthread_mutex_unlock(&p->lock);
    return m;
}

static void tasks(struct bl_pool *p, struct member *m)
{
    unsigned long long i;

    m->inside = 1;
    while ((i = atomic_fetch_add_explicit(&p->next, 1, memory_order_relaxed)) < p->n)
        p->body(p->argument, i);
    m->inside = 0;
}

/* Joins, works, leaves. */
static void help(struct bl_pool *p, struct member *m)
{
    unsigned s = atomic_load_explicit(&p->state, memory_order_relaxed);

    do {
        if (!(s & OPEN))
            return;
    } while (!atomic_compare_exchange_weak_explicit(&p->state, &s, s + 1, memory_order_acquire,
                                                    memory_order_relaxed));
    tasks(p, m);
    if (atomic_fetch_sub_explicit(&p->state, 1, memory_order_acq_rel) == 1) {
        pthread_mutex_lock(&p->lock);
        pthread_cond_signal(&p->idle);
        pthread_mutex_unlock(&p->lock);
    }
}

static void *worker(void *argument)
{
    struct bl_pool *p = argument;
    struct member *m = member_of(p);
    unsigned seen = 0;

    for (;;) {
        int stop;
        for (int i = 0; i < p->spin; i++) {
            if (atomic_load_explicit(&p->generation, memory_order_relaxed) != seen)
                break;
            relax();
        }
        pthread_mutex_lock(&p->lock);
        while (atomic_load_explicit(&p->generation, memory_order_relaxed) == seen && !p->stop)
            pthread_cond_wait(&p->work, &p->lock);
        seen = atomic_load_explicit(&p->generation, memory_order_relaxed);
        stop = p->stop;
        pthread_mutex_unlock(&p->lock);
        if (stop)
            return NULL;
        help(p, m);
    }
}

static unsigned available(void)
{
    cpu_set_t set;
    long n;

    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (unsigned)CPU_COUNT(&set);
    n = sysconf(_SC_NPROCESSORS_ONLN); /* more processors than a cpu_set_t holds */
    return n > 0 ? (unsigned)n : 1;
}

unsigned bl_pool_wanted(unsigned threads)
{
    if (threads == 0)
        threads = available();
    return threads < MOST ? threads : MOST;
}

int bl_pool_make(unsigned threads, struct bl_pool **out, struct bl_error *err)
{
    unsigned cpus = available();
    struct bl_pool *p = NULL;
    sigset_t all, old;

    if (threads > MOST)
        return bl_error_set(err, BL_EXIT_USAGE, "threads = %u: at most %d are possible", threads,
                            MOST);
    threads = bl_pool_wanted(threads);

    p = bl_alloc(1, sizeof *p);
    if (!p)
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the thread pool");
    p->threads = threads;
    p->spin = threads <= cpus ? SPIN : 0;
    p->ids = calloc(threads, sizeof *p->ids);
    if (!p->ids) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory for %u threads", threads);
        goto no_ids;
    }
    if (pthread_key_create(&p->key, NULL) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "no thread-specific key left for the thread pool");
        goto no_key;
    }
    pthread_mutex_init(&p->run, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->work, NULL);
    pthread_cond_init(&p->idle, NULL);

    /* Signals are for the program's own threads. */
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    for (; p->started + 1 < threads; p->started++) {
        int code = pthread_create(&p->ids[p->started], NULL, worker, p);
        if (code != 0) {
            pthread_sigmask(SIG_SETMASK, &old, NULL);
            bl_error_set(err, BL_EXIT_FAILED,
                         "cannot start thread %u of %u: %s; lower threads or raise the process "
                         "limit",
                         p->started + 2, threads, strerror(code));
            bl_pool_free(p);
            return -1;
        }
    }
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    *out = p;
    return 0;

no_key:
    free(p->ids);
no_ids:
    bl_free(p);
    return -1;
}

void bl_pool_free(struct bl_pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stop = 1;
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);
    for (unsigned i = 0; i < p->started; i++)
        pthread_join(p->ids[i], NULL);
    while (p->members) {
        struct member *m = p->members;
        p->members = m->next;
        for (int i = 0; i < BUFFERS; i++)
            bl_free(m->buffer[i]);
        free(m);
    }
    pthread_cond_destroy(&p->idle);
    pthread_cond_destroy(&p->work);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->run);
    pthread_key_delete(p->key);
    free(p->ids);
    bl_free(p);
}

unsigned bl_pool_threads(const struct bl_pool *p)
{
    return p->threads;
}

void bl_pool_run(struct bl_pool *p, uint64_t n, void (*body)(void *argument, uint64_t i),
                 void *argument)
{
    struct member *m = member_of(p);

    /* Nothing to share, a task's own loop, or another thread has the workers. */
    if (n < 2 || p->started == 0 || m->inside || pthread_mutex_trylock(&p->run) != 0) {
        for (uint64_t i = 0; i < n; i++)
            body(argument, i);
        return;
    }
    p->body = body;
    p->argument = argument;
    p->n = n;
    atomic_store_explicit(&p->next, 0, memory_order_relaxed);
    atomic_store_explicit(&p->state, OPEN, memory_order_release);

    pthread_mutex_lock(&p->lock);
    atomic_fetch_add_explicit(&p->generation, 1, memory_order_relaxed);
    pthread_cond_broadcast(&p->work);
    pthread_mutex_unlock(&p->lock);

    tasks(p, m);

    /* acquire pairs with the workers' count-out: their writes are visible to the caller */
    if (atomic_fetch_and_explicit(&p->state, ~OPEN, memory_order_acq_rel) != OPEN) {
        for (int i = 0; i < p->spin; i++) {
            if (atomic_load_explicit(&p->state, memory_order_acquire) == 0)
                break;
            relax();
        }
        pthread_mutex_lock(&p->lock);
        while (atomic_load_explicit(&p->state, memory_order_acquire) != 0)
            pthread_cond_wait(&p->idle, &p->lock);
        pthread_mutex_unlock(&p->lock);
    }
    pthread_mutex_unlock(&p->run);
}

static void *buffer(struct bl_pool *p, int which, uint64_t bytes)
{
    struct member *m = member_of(p);

    if (m->capacity[which] < bytes) {
        uint64_t room = bytes + bytes / 4;
        bl_free(m->buffer[which]);
        m->capacity[which] = 0;
        m->buffer[which] = bl_alloc(room, 1);
        if (!m->buffer[which])
            bl_pool_no_memory(room);
        m->capacity[which] = room;
    }
    return m->buffer[which];
}

void *bl_pool_scratch(struct bl_pool *p, uint64_t bytes)
{
    return buffer(p, 0, bytes);
}

void *bl_pool_results(struct bl_pool *p, uint64_t bytes)
{
    return buffer(p, 1, bytes);
}
