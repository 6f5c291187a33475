#include "rundir.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

/* Only what runs write; anything else that somebody put there stays. */
static int remove_old(const char *path, struct bl_error *err)
{
    /* Checkpoints first, the plan last: a kill in between must not leave checkpoints without the
     * config.cfg that says which plan they belong to. */
    static const char *const ours[] = {"checkpoints", "metrics.jsonl", "header.json", "log.txt",
                                       "report.html", "figures",       "attempts",    "config.cfg"};
    for (size_t i = 0; i < sizeof ours / sizeof *ours; i++) {
        char *entry = bl_format("%s/%s", path, ours[i]);
        if (entry == NULL)
            return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        int rc = nftw(entry, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        int failed = rc != 0 && errno != ENOENT;
        if (failed)
            bl_error_set(err, BL_EXIT_FAILED, "%s: cannot be removed: %s", entry, strerror(errno));
        free(entry);
        if (failed)
            return -1;
    }
    return 0;
}

/* Lines that may change between attempts without making another plan. */
static int is_free_line(const char *line, size_t n)
{
    static const char *const keys[] = {"threads",          "backend",    "keep",       "dir",
                                       "checkpoint_every", "eval_every", "eval_tokens"};
    while (n > 0 && *line == ' ') {
        line++;
        n--;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        size_t k = strlen(keys[i]);
        if (n > k && strncmp(line, keys[i], k) == 0 && line[k] == ' ')
            return 1;
    }
    return 0;
}

/* The first line in which the plans differ, or NULL. *line_of_a and _b point into the texts. */
static int first_difference(const char *a, const char *b, const char **line_a, const char **line_b,
                            size_t *n_a, size_t *n_b)
{
    while (*a || *b) {
        *line_a = a;
        *line_b = b;
        *n_a = strcspn(a, "\n");
        *n_b = strcspn(b, "\n");
        if ((*n_a != *n_b || strncmp(a, b, *n_a) != 0) &&
            !(is_free_line(a, *n_a) && is_free_line(b, *n_b)))
            return 1;
        a += *n_a + (a[*n_a] == '\n');
        b += *n_b + (b[*n_b] == '\n');
    }
    return 0;
}

static int compare_plan(const char *path, const char *text, struct bl_error *err)
{
    char *old = NULL;
    size_t n;
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (bl_read_file(path, (size_t)16 << 20, &old, &n, err) < 0)
        return -1;
    const char *a, *b;
    size_t n_a, n_b;
    int rc = 0;
    if (first_difference(old, text, &a, &b, &n_a, &n_b)) {
        a += strspn(a, " ");
        b += strspn(b, " ");
        rc = bl_error_set(
            err, BL_EXIT_CHECKPOINT,
            "%s holds another plan: there \"%.*s\", now \"%.*s\"; give this run another "
            "run.name, or start over with --fresh",
            path, (int)strcspn(a, "\n"), a, (int)strcspn(b, "\n"), b);
    }
    free(old);
    return rc;
}

static int claim_attempt(struct bl_rundir *d, struct bl_error *err)
{
    char *folder = bl_format("%s/attempts", d->path);
    if (folder == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    int rc = bl_make_directories(folder, err);
    for (uint32_t n = 1; rc == 0; n++) {
        char *path = bl_format("%s/%u", folder, n);
        if (path == NULL) {
            rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
            break;
        }
        int fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
        if (fd >= 0) {
            close(fd);
            free(path);
            d->attempt = n;
            break;
        }
        if (errno != EEXIST)
            rc = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
        free(path);
    }
    free(folder);
    return rc;
}

static int take_lock(struct bl_rundir *d, struct bl_error *err)
{
    d->lock = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (d->lock < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: %s", d->path, strerror(errno));
    if (flock(d->lock, LOCK_EX | LOCK_NB) < 0)
        return bl_error_set(
            err, BL_EXIT_FAILED,
            errno == EWOULDBLOCK
                ? "%s: another process trains there; wait for it or use another run.name"
                : "%s: cannot be locked",
            d->path);
    return 0;
}

int bl_rundir_open(const struct bl_setup *s, int fresh, struct bl_rundir *out, struct bl_error *err)
{
    struct bl_rundir d = {strdup(s->directory), -1, 0};
    struct bl_text text = {0};
    char *config = bl_format("%s/config.cfg", s->directory);
    if (d.path == NULL || config == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto fail;
    }
    if (bl_setup_config_text(s, &text, err) < 0 || bl_make_directories(d.path, err) < 0 ||
        take_lock(&d, err) < 0)
        goto fail;
    if (fresh && remove_old(d.path, err) < 0)
        goto fail;
    if (compare_plan(config, text.text, err) < 0 ||
        bl_write_file(config, text.text, text.length, err) < 0 || claim_attempt(&d, err) < 0)
        goto fail;
    bl_text_free(&text);
    free(config);
    *out = d;
    return 0;
fail:
    bl_text_free(&text);
    free(config);
    bl_rundir_close(&d);
    return -1;
}

void bl_rundir_close(struct bl_rundir *d)
{
    if (d->lock >= 0)
        close(d->lock);
    free(d->path);
    d->lock = -1;
    d->path = NULL;
}
