/* Processes that were started by hand, or by a launcher that Ballast does not know: their numbers
 * are in the environment, and they meet in a folder that all of them see.
 *
 * The folder may hold files of an older meeting. Whoever comes makes up a token; process 0 collects
 * all cards and publishes them as a round with a token of its own:
 *
 *     hello-<p>   "<token of p> <card>"
 *     round       "<token of the round>" and a line "<token of p> <card>" for each p
 *     seen-<p>    "<token of the round>": p found its own token in that round
 *     go          "<token of the round>": all did, so every card in it is of a process that lives
 *
 * A round that was made from an old hello is seen by nobody who lives, and made again as soon as
 * the new one is there. Files are replaced whole, so no reader finds half of one. */
#include "collectives/bootstrap.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"

enum { TOKEN = 16, PATH_SIZE = 4096 };

struct meeting {
    char folder[PATH_SIZE - 64];
    char token[TOKEN + 1];
    char round[TOKEN + 1]; /* the one that was seen last, or published by process 0 */
};

static int make_token(char *out, struct bl_error *err)
{
    uint64_t number;
    if (getrandom(&number, sizeof number, 0) != sizeof number)
        return bl_error_set(err, BL_EXIT_FAILED, "no random number: %s", strerror(errno));
    snprintf(out, TOKEN + 1, "%016" PRIx64, number);
    return 0;
}

/* A small file replaced whole. Not synced: it is for those who live now. */
static int publish(const struct meeting *m, const char *name, const char *text,
                   struct bl_error *err)
{
    char path[PATH_SIZE], temporary[PATH_SIZE];
    snprintf(path, sizeof path, "%s/%s", m->folder, name);
    snprintf(temporary, sizeof temporary, "%s/.%s-%s", m->folder, name, m->token);
    FILE *f = fopen(temporary, "we");
    if (f == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: %s: %s", temporary,
                            strerror(errno));
    int failed = fputs(text, f) < 0;
    failed |= fclose(f) != 0;
    if (failed || rename(temporary, path) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: %s: %s", path, strerror(errno));
        unlink(temporary);
        return -1;
    }
    return 0;
}

/* NULL: not there (yet). */
static char *look(const struct meeting *m, const char *name, size_t limit)
{
    char path[PATH_SIZE], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", m->folder, name);
    return bl_read_file(path, limit, &text, &n, NULL) == 0 ? text : NULL;
}

static int is_token(const char *text, const char *token)
{
    return text != NULL && strncmp(text, token, TOKEN) == 0;
}

static void pause_between_looks(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 10 * 1000 * 1000}, NULL);
}

static char *find_line(char *text, uint32_t number)
{
    while (text != NULL && number-- > 0) {
        text = strchr(text, '\n');
        text = text != NULL ? text + 1 : NULL;
    }
    return text;
}

/* The cards of a round that all have confirmed. */
static int take_cards(const struct bl_bootstrap *b, char *round, char **cards, struct bl_error *err)
{
    for (uint32_t p = 0; p < b->processes; p++) {
        char *line = find_line(round, p + 1);
        size_t n = line != NULL ? strcspn(line, "\n") : 0;
        cards[p] = n > TOKEN ? strndup(line + TOKEN + 1, n - TOKEN - 1) : NULL;
        if (cards[p] == NULL) {
            bl_error_set(err, BL_EXIT_USAGE,
                         "BALLAST_MEET=%s: the meeting is of %u processes, BALLAST_PROCESSES=%u "
                         "here: give all processes the same number",
                         ((struct meeting *)b->state)->folder, p, b->processes);
            while (p-- > 0) {
                free(cards[p]);
                cards[p] = NULL;
            }
            return -1;
        }
    }
    return 0;
}

/* ---- process 0 --------------------------------------------------------------------------------*/

/* Reads the hellos anew; *missing is the first process without one, or the count of processes.
 * 1: one differs from what was there before. */
static int collect(const struct bl_bootstrap *b, char **hellos, uint32_t *missing)
{
    int changed = 0;
    *missing = b->processes;
    for (uint32_t p = 1; p < b->processes; p++) {
        char name[32];
        snprintf(name, sizeof name, "hello-%u", p);
        char *text = look(b->state, name, BL_CARD_LIMIT + 64);
        if (text != NULL && (hellos[p] == NULL || strcmp(text, hellos[p]) != 0)) {
            free(hellos[p]);
            hellos[p] = text;
            changed = 1;
        } else {
            free(text);
        }
        if (hellos[p] == NULL && *missing == b->processes)
            *missing = p;
    }
    return changed;
}

static int publish_round(const struct bl_bootstrap *b, char **hellos, struct bl_text *round,
                         struct bl_error *err)
{
    struct meeting *m = b->state;
    if (make_token(m->round, err) != 0)
        return -1;
    bl_text_free(round);
    memset(round, 0, sizeof *round);
    bl_text_add(round, "%s\n", m->round);
    for (uint32_t p = 0; p < b->processes; p++)
        bl_text_add(round, "%s\n", hellos[p]);
    if (round->failed)
        return bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: no memory for %u cards",
                            b->processes);
    return publish(m, "round", round->text, err);
}

static uint32_t first_unseen(const struct bl_bootstrap *b)
{
    const struct meeting *m = b->state;
    uint32_t p = 1;
    for (; p < b->processes; p++) {
        char name[32];
        snprintf(name, sizeof name, "seen-%u", p);
        char *text = look(m, name, 64);
        int seen = is_token(text, m->round);
        free(text);
        if (!seen)
            break;
    }
    return p;
}

static int lead(struct bl_bootstrap *b, const char *mine, char **cards, struct bl_error *err)
{
    struct meeting *m = b->state;
    struct bl_text round = {0};
    double begin = bl_clock();
    uint32_t missing = 1;
    int rc = -1;
    char **hellos = calloc(b->processes, sizeof *hellos);
    if (hellos == NULL || (hellos[0] = bl_format("%s %s", m->token, mine)) == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: no memory");
        goto out;
    }
    for (;;) {
        int changed = collect(b, hellos, &missing);
        if (missing == b->processes) {
            if (changed && publish_round(b, hellos, &round, err) != 0)
                goto out;
            missing = first_unseen(b);
            if (missing == b->processes)
                break;
        }
        if (bl_clock() - begin > b->timeout) {
            bl_error_set(err, BL_EXIT_PEER,
                         "BALLAST_MEET=%s: process %u of %u has not come within %g s", m->folder,
                         missing, b->processes, b->timeout);
            goto out;
        }
        pause_between_looks();
    }
    if (publish(m, "go", m->round, err) != 0)
        goto out;
    rc = take_cards(b, round.text, cards, err);
out:
    for (uint32_t p = 0; hellos != NULL && p < b->processes; p++)
        free(hellos[p]);
    free(hellos);
    bl_text_free(&round);
    return rc;
}

/* ---- the others -------------------------------------------------------------------------------*/

/* The round with this process's own token in it, or NULL. */
static char *find_round(const struct bl_bootstrap *b)
{
    const struct meeting *m = b->state;
    char *text = look(m, "round", (size_t)b->processes * (BL_CARD_LIMIT + 64));
    if (text != NULL && is_token(find_line(text, b->process + 1), m->token))
        return text;
    free(text);
    return NULL;
}

static int follow(struct bl_bootstrap *b, const char *mine, char **cards, struct bl_error *err)
{
    struct meeting *m = b->state;
    char hello[32], seen[32], *round = NULL;
    double begin = bl_clock();
    snprintf(hello, sizeof hello, "hello-%u", b->process);
    snprintf(seen, sizeof seen, "seen-%u", b->process);
    char *text = bl_format("%s %s", m->token, mine);
    if (text == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: no memory");
    int rc = publish(m, hello, text, err);
    free(text);
    if (rc != 0)
        return -1;
    for (;;) {
        char *now = find_round(b);
        if (now != NULL && !is_token(now, m->round)) {
            memcpy(m->round, now, TOKEN);
            free(round);
            round = now;
            if (publish(m, seen, m->round, err) != 0) {
                rc = -1;
                break;
            }
        } else {
            free(now);
        }
        char *go = look(m, "go", 64);
        int complete = round != NULL && is_token(go, m->round);
        free(go);
        if (complete) {
            rc = take_cards(b, round, cards, err);
            break;
        }
        if (bl_clock() - begin > b->timeout) {
            rc =
                bl_error_set(err, BL_EXIT_PEER,
                             "BALLAST_MEET=%s: process %u of %u was not called to a meeting within "
                             "%g s; did process 0 and all others start with this folder?",
                             m->folder, b->process, b->processes, b->timeout);
            break;
        }
        pause_between_looks();
    }
    free(round);
    return rc;
}

static int gather(struct bl_bootstrap *b, const char *mine, char **cards, struct bl_error *err)
{
    return b->process == 0 ? lead(b, mine, cards, err) : follow(b, mine, cards, err);
}

static void close_meeting(struct bl_bootstrap *b)
{
    free(b->state);
}

int bl_bootstrap_environment(struct bl_bootstrap *b, struct bl_error *err)
{
    int64_t processes = 1, process = 0;
    int have = bl_bootstrap_number("BALLAST_PROCESSES", 1, BL_PROCESS_LIMIT, &processes, err);
    if (have < 0)
        return -1;
    int numbered = bl_bootstrap_number("BALLAST_PROCESS", 0, BL_PROCESS_LIMIT - 1, &process, err);
    if (numbered < 0)
        return -1;
    if (have == 0 && numbered == 0)
        return 0;
    if (have == 0 || numbered == 0)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "BALLAST_PROCESS and BALLAST_PROCESSES come together; %s is not set",
                            have == 0 ? "BALLAST_PROCESSES" : "BALLAST_PROCESS");
    if (process >= processes)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "BALLAST_PROCESS=%lld: with BALLAST_PROCESSES=%lld it is 0 to %lld",
                            (long long)process, (long long)processes, (long long)processes - 1);
    b->method = "environment";
    b->process = (uint32_t)process;
    b->processes = (uint32_t)processes;
    if (processes == 1)
        return 1;

    const char *folder = getenv("BALLAST_MEET");
    struct stat st;
    if (folder == NULL || *folder == '\0')
        return bl_error_set(err, BL_EXIT_USAGE,
                            "BALLAST_PROCESSES=%lld needs BALLAST_MEET, a folder that all of them "
                            "see",
                            (long long)processes);
    if (stat(folder, &st) != 0)
        return bl_error_set(err, BL_EXIT_USAGE, "BALLAST_MEET=%s: %s", folder, strerror(errno));
    if (!S_ISDIR(st.st_mode))
        return bl_error_set(err, BL_EXIT_USAGE, "BALLAST_MEET=%s: not a folder", folder);
    struct meeting *m = calloc(1, sizeof *m);
    if (m == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "BALLAST_MEET: no memory");
    b->state = m;
    b->close = close_meeting;
    if (strlen(folder) >= sizeof m->folder)
        return bl_error_set(err, BL_EXIT_USAGE, "BALLAST_MEET: a path of %zu bytes is too long",
                            strlen(folder));
    strcpy(m->folder, folder);
    if (make_token(m->token, err) != 0)
        return -1;
    b->gather = gather;
    return 1;
}
