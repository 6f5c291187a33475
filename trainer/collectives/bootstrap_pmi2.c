/* Slurm's PMI2, the client library loaded at run time: no header and no library of Slurm is needed
 * to build, and none to run elsewhere.
 *
 * Of its key-value space: a value has at most 1024 characters, ends silently at a ';', and one that
 * is cut is told by a negative length alone. So a text is stored in parts, the first one with the
 * length of the whole before it: "1234:text". */
#include "collectives/bootstrap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>

#include "base/strings.h"

#define LIBRARY "libpmi2.so.0"

enum { PART = 1000, VALUE = 1024 + 1, KEY = 40, JOB = 256, ANY_PROCESS = -1 };

struct pmi2 {
    void *library;
    int started;
    char job[JOB];
    int (*init)(int *spawned, int *size, int *rank, int *appnum);
    int (*finalize)(void);
    int (*job_id)(char *out, int size);
    int (*put)(const char *key, const char *value);
    int (*get)(const char *job, int process, const char *key, char *value, int size, int *length);
    int (*fence)(void);
};

static int symbol(struct pmi2 *p, const char *name, void *out, struct bl_error *err)
{
    void *address = dlsym(p->library, name);
    if (address == NULL)
        return bl_error_set(err, BL_EXIT_FAILED,
                            LIBRARY ": no function %s; it is not Slurm's PMI2 client", name);
    memcpy(out, &address, sizeof address);
    return 0;
}

static int load(struct pmi2 *p, struct bl_error *err)
{
    p->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (p->library == NULL)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "several tasks under PMI2, but %s cannot be loaded (%s); install "
                            "Slurm's PMI2 client (Debian: libpmi2-0)",
                            LIBRARY, dlerror());
    if (symbol(p, "PMI2_Init", &p->init, err) != 0 ||
        symbol(p, "PMI2_Finalize", &p->finalize, err) != 0 ||
        symbol(p, "PMI2_Job_GetId", &p->job_id, err) != 0 ||
        symbol(p, "PMI2_KVS_Put", &p->put, err) != 0 ||
        symbol(p, "PMI2_KVS_Get", &p->get, err) != 0 ||
        symbol(p, "PMI2_KVS_Fence", &p->fence, err) != 0)
        return -1;
    return 0;
}

/* The client waits for answers without a limit; its descriptor is a socket, which can have one. */
static void limit_waits(int fd, double timeout)
{
    struct timeval limit = {.tv_sec = (time_t)timeout,
                            .tv_usec = (suseconds_t)(1e6 * (timeout - (double)(time_t)timeout))};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
}

static int put_text(struct pmi2 *p, uint32_t process, const char *text, struct bl_error *err)
{
    size_t length = strlen(text), at = 0;
    for (uint32_t part = 0; part == 0 || at < length; part++) {
        char key[KEY], value[VALUE];
        int head = part == 0 ? snprintf(value, sizeof value, "%zu:", length) : 0;
        size_t n = length - at < PART ? length - at : PART;
        memcpy(value + head, text + at, n);
        value[(size_t)head + n] = '\0';
        at += n;
        snprintf(key, sizeof key, "ballast-%u-%u", process, part);
        int rc = p->put(key, value);
        if (rc != 0)
            return bl_error_set(err, BL_EXIT_PEER, "PMI2: storing %s failed with code %d", key, rc);
    }
    return 0;
}

/* One value, whole: its length must be the one that the text has. */
static int get_part(struct pmi2 *p, uint32_t process, uint32_t part, char *value,
                    struct bl_error *err)
{
    char key[KEY];
    int length = 0;
    snprintf(key, sizeof key, "ballast-%u-%u", process, part);
    int rc = p->get(p->job, ANY_PROCESS, key, value, VALUE, &length);
    if (rc != 0)
        return bl_error_set(err, BL_EXIT_PEER,
                            "PMI2: process %u left no address (%s, code %d); did it end early?",
                            process, key, rc);
    if (length < 0 || length >= VALUE || strlen(value) != (size_t)length)
        return bl_error_set(err, BL_EXIT_PEER, "PMI2: the value of %s is cut (length %d)", key,
                            length);
    return 0;
}

static char *get_text(struct pmi2 *p, uint32_t process, struct bl_error *err)
{
    char value[VALUE], *end;
    if (get_part(p, process, 0, value, err) != 0)
        return NULL;
    unsigned long length = strtoul(value, &end, 10);
    char *text = *end == ':' && length <= BL_CARD_LIMIT ? calloc(1, length + 1) : NULL;
    size_t at = 0;
    const char *from = end + 1;
    for (uint32_t part = 1; text != NULL; part++) {
        size_t n = strlen(from);
        if (n > length - at || (n == 0 && at < length))
            break;
        memcpy(text + at, from, n);
        at += n;
        if (at == length)
            return text;
        if (get_part(p, process, part, value, err) != 0) {
            free(text);
            return NULL;
        }
        from = value;
    }
    bl_error_set(err, BL_EXIT_PEER, "PMI2: what process %u stored is not an address of it",
                 process);
    free(text);
    return NULL;
}

static int gather(struct bl_bootstrap *b, const char *mine, char **cards, struct bl_error *err)
{
    struct pmi2 *p = b->state;
    if (put_text(p, b->process, mine, err) != 0)
        return -1;
    int rc = p->fence();
    if (rc != 0)
        return bl_error_set(err, BL_EXIT_PEER,
                            "PMI2: not all of the %u processes have come within %g s (code %d)",
                            b->processes, b->timeout, rc);
    for (uint32_t q = 0; q < b->processes; q++) {
        cards[q] = get_text(p, q, err);
        if (cards[q] == NULL) {
            while (q-- > 0) {
                free(cards[q]);
                cards[q] = NULL;
            }
            return -1;
        }
    }
    return 0;
}

static void close_pmi2(struct bl_bootstrap *b)
{
    struct pmi2 *p = b->state;
    if (p == NULL)
        return;
    if (p->started)
        p->finalize();
    if (p->library != NULL)
        dlclose(p->library);
    free(p);
}

int bl_bootstrap_pmi2(struct bl_bootstrap *b, struct bl_error *err)
{
    int64_t fd, size = 0;
    int spawned, processes, process, appnum;
    const char *text = getenv("PMI_FD");
    if (text == NULL || bl_parse_int(text, &fd) != 0 || fd < 0)
        return 0;
    int told = bl_bootstrap_number("PMI_SIZE", 1, BL_PROCESS_LIMIT, &size, err);
    if (told < 0)
        return -1;
    if (told == 1 && size == 1)
        return 0;
    struct pmi2 *p = calloc(1, sizeof *p);
    if (p == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "PMI2: no memory");
    b->state = p;
    b->close = close_pmi2;
    if (load(p, err) != 0)
        return -1;
    limit_waits((int)fd, b->timeout);
    int rc = p->init(&spawned, &processes, &process, &appnum);
    if (rc != 0)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "PMI2 does not answer (code %d); was this started by "
                            "`srun --mpi=pmi2`?",
                            rc);
    p->started = 1;
    if (processes < 1 || processes > BL_PROCESS_LIMIT || process < 0 || process >= processes)
        return bl_error_set(err, BL_EXIT_FAILED, "PMI2 says process %d of %d", process, processes);
    rc = p->job_id(p->job, sizeof p->job);
    if (rc != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "PMI2 does not tell the job (code %d)", rc);
    if (processes == 1) {
        bl_bootstrap_close(b);
        return 0;
    }
    b->method = "pmi2";
    b->process = (uint32_t)process;
    b->processes = (uint32_t)processes;
    b->gather = gather;
    return 1;
}
