#include "collectives/world_internal.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "collectives/bootstrap.h"

/* ---- members ----------------------------------------------------------------------------------*/

static void number_nodes(struct bl_world *w)
{
    uint32_t nodes = 0;
    for (uint32_t p = 0; p < w->processes; p++) {
        struct bl_member *m = &w->members[p];
        uint32_t q = p;
        while (q > 0 && strcmp(w->members[q - 1].host, m->host) != 0)
            q--;
        m->node = q > 0 ? w->members[q - 1].node : nodes++;
        m->local = q > 0 ? w->members[q - 1].local + 1 : 0;
    }
}

/* ---- cards ------------------------------------------------------------------------------------
 * What the processes tell each other before there is a transport, in hexadecimal digits since not
 * every way carries every byte: "1 <host> <address>", or "0 <host> <code> <text>" from one that
 * cannot take part. */

static void add_hex(struct bl_text *t, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        bl_text_add(t, "%02x", ((const unsigned char *)bytes)[i]);
}

static int digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* The bytes of the hexadecimal word at *text (malloc'd, a NUL after them); moves behind it. */
static void *take_hex(const char **text, size_t *bytes)
{
    const char *from = *text + strspn(*text, " ");
    size_t n = strcspn(from, " ");
    unsigned char *out = n > 0 && n % 2 == 0 ? malloc(n / 2 + 1) : NULL;
    for (size_t i = 0; out != NULL && i < n; i += 2) {
        int high = digit(from[i]), low = digit(from[i + 1]);
        if (high < 0 || low < 0) {
            free(out);
            return NULL;
        }
        out[i / 2] = (unsigned char)(16 * high + low);
    }
    if (out != NULL) {
        out[n / 2] = '\0';
        *bytes = n / 2;
        *text = from + n;
    }
    return out;
}

/* `failed`: the error of this process, NULL when it can take part. */
static char *make_card(const struct bl_world *w, const char *host, const struct bl_error *failed,
                       struct bl_error *err)
{
    struct bl_text card = {0};
    bl_text_add(&card, "%d ", failed == NULL);
    add_hex(&card, host, strlen(host));
    bl_text_add(&card, " ");
    if (failed != NULL) {
        unsigned char code = (unsigned char)failed->code;
        add_hex(&card, &code, 1);
        bl_text_add(&card, " ");
        add_hex(&card, failed->text, strlen(failed->text));
    } else {
        const void *address;
        size_t bytes;
        w->ops->address(w->transport, &address, &bytes);
        add_hex(&card, address, bytes);
    }
    if (card.failed) {
        bl_text_free(&card);
        bl_error_set(err, BL_EXIT_FAILED, "no memory for the address of this process");
    }
    return card.text;
}

/* Fills the member's host and the peer's address, or the error that the card tells. */
static int read_card(struct bl_world *w, uint32_t p, const char *card,
                     struct bl_transport_peer *peer, struct bl_error *err)
{
    size_t n;
    const char *at = card + 1;
    void *second = NULL;
    w->members[p].host = take_hex(&at, &n);
    if (w->members[p].host != NULL)
        second = take_hex(&at, &n);
    if (second == NULL)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "process %u: its address cannot be read; are all processes of the same "
                            "version?",
                            p);
    if (card[0] == '1') {
        peer->host = w->members[p].host;
        peer->address = second;
        peer->bytes = n;
        return 0;
    }
    int code = *(unsigned char *)second;
    char *text = take_hex(&at, &n);
    bl_error_set(err, code, "process %u (%s): %s", p, w->members[p].host,
                 text != NULL ? text : "cannot take part");
    free(second);
    free(text);
    return -1;
}

/* ---- begin and end ----------------------------------------------------------------------------*/

static int no_memory(struct bl_error *err)
{
    return bl_error_set(err, BL_EXIT_FAILED, "no memory for the processes of the job");
}

static void own_host(char *out, size_t size)
{
    if (gethostname(out, size - 1) != 0 || *out == '\0')
        snprintf(out, size, "localhost");
    out[size - 1] = '\0';
}

/* Tells the others this process's address or its error, and reads theirs. */
static int meet(struct bl_world *w, struct bl_bootstrap *b, const char *host,
                const struct bl_error *failed, struct bl_transport_peer *peers,
                struct bl_error *err)
{
    int rc = -1;
    char **cards = calloc(w->processes, sizeof *cards);
    char *mine = cards != NULL ? make_card(w, host, failed, err) : NULL;
    if (cards == NULL)
        no_memory(err);
    if (mine == NULL || b->gather(b, mine, cards, err) != 0)
        goto out;
    rc = 0;
    for (uint32_t p = 0; p < w->processes && rc == 0; p++)
        rc = read_card(w, p, cards[p], &peers[p], err);
out:
    for (uint32_t p = 0; cards != NULL && p < w->processes; p++)
        free(cards[p]);
    free(cards);
    free(mine);
    return rc;
}

static int join(struct bl_world *w, struct bl_bootstrap *b, const char *host, struct bl_error *err)
{
    struct bl_error own = BL_ERROR_INIT;
    struct bl_transport_peer *peers = calloc(w->processes, sizeof *peers);
    if (peers == NULL)
        return no_memory(err);
    int failed = bl_world_load(w, &own) != 0 ||
                 w->ops->make(b->timeout, w->process, w->processes, &w->transport, &own) != 0;
    int rc = meet(w, b, host, failed ? &own : NULL, peers, err);
    if (failed) { /* its own words, without its own number before them */
        rc = -1;
        if (err != NULL)
            *err = own;
    }
    if (rc == 0)
        rc = w->ops->connect(w->transport, peers, err);
    for (uint32_t p = 0; p < w->processes; p++)
        free((void *)(uintptr_t)peers[p].address);
    free(peers);
    if (rc != 0)
        return -1;
    number_nodes(w);
    return bl_world_barrier(w, err);
}

int bl_world_make(double timeout, struct bl_world **out, struct bl_error *err)
{
    char host[256];
    struct bl_bootstrap b;
    own_host(host, sizeof host);
    struct bl_world *w = calloc(1, sizeof *w);
    if (w == NULL)
        return no_memory(err);
    int rc = bl_bootstrap_open(timeout, &b, err);
    w->process = b.process;
    w->processes = b.processes;
    w->method = b.method;
    if (rc == 0 && (w->members = calloc(w->processes, sizeof *w->members)) == NULL)
        rc = no_memory(err);
    if (rc == 0 && w->processes == 1 && (w->members[0].host = strdup(host)) == NULL)
        rc = no_memory(err);
    if (rc == 0 && w->processes > 1)
        rc = join(w, &b, host, err);
    bl_bootstrap_close(&b);
    if (rc != 0) {
        bl_world_free(w);
        return -1;
    }
    *out = w;
    return 0;
}

static void free_queue(struct bl_message *m)
{
    while (m != NULL) {
        struct bl_message *next = m->next;
        free(m);
        m = next;
    }
}

void bl_world_free(struct bl_world *w)
{
    if (w == NULL)
        return;
    if (w->transport != NULL)
        w->ops->free(w->transport);
    if (w->module != NULL)
        dlclose(w->module);
    free_queue(w->sends);
    free_queue(w->receives);
    for (uint32_t p = 0; w->members != NULL && p < w->processes; p++)
        free(w->members[p].host);
    free(w->members);
    free(w);
}

void bl_world_set_timeout(struct bl_world *w, double seconds)
{
    if (w->transport != NULL)
        w->ops->limit(w->transport, seconds);
}

uint32_t bl_world_process(const struct bl_world *w)
{
    return w->process;
}

uint32_t bl_world_processes(const struct bl_world *w)
{
    return w->processes;
}

const char *bl_world_method(const struct bl_world *w)
{
    return w->method;
}

const char *bl_world_transport(const struct bl_world *w)
{
    return w->transport != NULL ? w->ops->name(w->transport) : "";
}

const char *bl_world_host(const struct bl_world *w, uint32_t process)
{
    return w->members[process].host;
}

uint32_t bl_world_node(const struct bl_world *w, uint32_t process)
{
    return w->members[process].node;
}

uint32_t bl_world_local(const struct bl_world *w, uint32_t process)
{
    return w->members[process].local;
}

uint64_t bl_world_sent(const struct bl_world *w)
{
    return w->transport != NULL ? w->ops->sent(w->transport) : 0;
}

double bl_world_waited(const struct bl_world *w)
{
    return w->waited;
}

void bl_world_abort(struct bl_world *w, const char *cause)
{
    if (w != NULL && w->transport != NULL && !w->agreed)
        w->ops->give_up(w->transport, cause);
}
