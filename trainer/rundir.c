#include "rundir.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/strings.h"
#include "config/plan.h"
#include "job.h"

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
    static const char *const ours[] = {
        "checkpoints", "metrics.jsonl", "metrics.csv", "metrics.csv.new", "header.json", "log.txt",
        "report.html", "report.md",     "figures",     "attempts",        "config.cfg"};
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

static int compare_plan(const char *path, const char *text, struct bl_error *err)
{
    char *old = NULL;
    size_t n;
    struct bl_text difference = {0};
    if (access(path, F_OK) < 0 && errno == ENOENT)
        return 0;
    if (bl_read_file(path, (size_t)4 << 20, &old, &n, err) < 0)
        return -1;
    int rc = bl_plan_compare(old, path, text, &difference, err);
    if (rc > 0)
        rc = bl_error_set(err, BL_EXIT_CHECKPOINT,
                          "%s holds another plan: %s; give this run another run.name, start over "
                          "with --fresh, or go on under the new plan with --replan",
                          path, difference.text);
    else if (rc < 0 && err != NULL && err->code == BL_EXIT_USAGE)
        bl_error_set(err, BL_EXIT_CHECKPOINT,
                     "%s; the plan of the run is stored there: repair the file, or start over with "
                     "--fresh",
                     err->text);
    bl_text_free(&difference);
    free(old);
    return rc;
}

/* What bl_write_file was killed over: whoever wrote these holds the lock or is a dead attempt.
 * Before the claim, so that where there are no locks none is of a later attempt than this one. */
static void remove_cut_off(const struct bl_rundir *d)
{
    static const char *const begin[] = {"config.cfg.tmp-", "header.json.tmp-"};
    DIR *folder = opendir(d->path);
    struct dirent *entry;
    while (folder != NULL && (entry = readdir(folder)) != NULL)
        for (size_t i = 0; i < sizeof begin / sizeof *begin; i++)
            if (strncmp(entry->d_name, begin[i], strlen(begin[i])) == 0)
                unlinkat(dirfd(folder), entry->d_name, 0);
    if (folder != NULL)
        closedir(folder);
}

/* The number of the newest attempt, 0 = none, or -1 with errno. */
static int64_t newest_attempt(const char *folder)
{
    DIR *attempts = opendir(folder);
    struct dirent *entry;
    int64_t newest = 0;
    if (attempts == NULL)
        return -1;
    while (errno = 0, (entry = readdir(attempts)) != NULL) {
        int64_t n;
        if (isdigit((unsigned char)entry->d_name[0]) && bl_parse_int(entry->d_name, &n) == 0 &&
            n > newest && n < UINT32_MAX)
            newest = n;
    }
    int cause = errno;
    closedir(attempts);
    errno = cause;
    return cause == 0 ? newest : -1;
}

/* One more than the newest; of two that try the same number one gets it and the other the next. */
static int claim_attempt(struct bl_rundir *d, struct bl_error *err)
{
    char *folder = bl_format("%s/attempts", d->path), *path = NULL;
    int64_t n = -1;
    int rc = -1;
    if (folder == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    if (bl_make_directories(folder, err) < 0)
        goto done;
    n = newest_attempt(folder);
    if (n < 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", folder, strerror(errno));
        goto done;
    }
    do {
        free(path);
        path = bl_format("%s/%lld", folder, (long long)++n);
        if (path == NULL) {
            bl_error_set(err, BL_EXIT_FAILED, "out of memory");
            goto done;
        }
        d->claim = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    } while (d->claim < 0 && errno == EEXIST && n < UINT32_MAX - 1);
    if (d->claim < 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
        goto done;
    }
    d->attempt = (uint32_t)n;
    rc = 0;
done:
    free(path);
    free(folder);
    return rc;
}

/* Whether attempts/<attempt> is the file that this process claimed: --fresh removes those of an
 * earlier life of the directory. */
static int is_our_claim(const struct bl_rundir *d, const char *path)
{
    struct stat claimed, there;
    if (stat(path, &there) < 0)
        return errno != ENOENT;
    return fstat(d->claim, &claimed) < 0 ||
           (claimed.st_ino == there.st_ino && claimed.st_dev == there.st_dev);
}

/* A start that was refused wrote nothing into its file, and was no attempt. */
static void give_up_claim(const struct bl_rundir *d)
{
    struct stat claimed;
    char *path = bl_format("%s/attempts/%u", d->path, d->attempt);
    if (path != NULL && fstat(d->claim, &claimed) == 0 && claimed.st_size == 0 &&
        is_our_claim(d, path))
        unlink(path);
    free(path);
}

static int not_locked(const char *folder, const char *file, int cause, struct bl_error *err)
{
    if (cause == EWOULDBLOCK)
        return bl_error_set(err, BL_EXIT_FAILED,
                            "%s: another process trains there; wait for it or use another run.name",
                            folder);
    if (cause != ENOSYS && cause != EOPNOTSUPP)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: cannot be locked: %s", file, strerror(cause));
    /* Lustre that is mounted without its option "flock" */
    bl_log(BL_LOG_WARNING,
           "%s: this file system has no locks, so nothing keeps a second process out of this run: "
           "start it once at a time",
           folder);
    return 0;
}

/* .lock holds "812 2": the job of its owner, and how often that had been requeued; nothing outside
 * of a job. */
static void sign_lock(int lock)
{
    struct bl_job_facts job;
    char id_text[64], line[128];
    int n = 0;
    if (bl_job_facts(&job, id_text))
        n = snprintf(line, sizeof line, "%.63s %u\n", job.id, job.restarts);
    /* Unsigned, it is the lock of somebody else: the refusal that needs no file. */
    if (ftruncate(lock, 0) < 0 || pwrite(lock, line, (size_t)n, 0) != n)
        bl_log(BL_LOG_DEBUG, "the lock stays unsigned: %s", strerror(errno));
}

/* Whether the lock is that of an attempt of this same job which Slurm has given up: its node was
 * out of reach, and it goes on there. */
static int is_given_up(int lock)
{
    struct bl_job_facts job;
    char id_text[64], line[128], id[64];
    unsigned restarts;
    if (!bl_job_facts(&job, id_text))
        return 0;
    ssize_t n = pread(lock, line, sizeof line - 1, 0);
    line[n > 0 ? n : 0] = '\0';
    return sscanf(line, "%63s %u", id, &restarts) == 2 && strcmp(id, job.id) == 0 &&
           restarts < job.restarts;
}

/* Its owner sees the claim of this attempt and ends. One that is stuck may keep the lock: after the
 * claim it can publish nothing. */
static void await_lock(struct bl_rundir *d)
{
    const double patience = 3 * BL_RUNDIR_LOOK;
    const struct timespec pause = {0, 100000000};
    double begun = bl_clock();
    bl_log(BL_LOG_WARNING,
           "%s: an earlier attempt of this job is still running there; attempt %u takes over",
           d->path, d->attempt);
    while (flock(d->lock, LOCK_EX | LOCK_NB) < 0) {
        if (bl_clock() - begun > patience) {
            bl_log(BL_LOG_WARNING,
                   "%s: the earlier attempt does not end within %.0f s; it can publish nothing "
                   "more, and this one goes on",
                   d->path, patience);
            return;
        }
        nanosleep(&pause, NULL);
    }
    sign_lock(d->lock);
}

/* A file and not the folder itself: NFS locks only what is open for writing. The folder stays open
 * too, to notice when another takes its place. 1: it is to be waited for, after the claim. */
static int take_lock(struct bl_rundir *d, int fresh, struct bl_error *err)
{
    char *path = bl_format("%s/.lock", d->path);
    if (path == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    int rc = 0, cause = 0;
    d->folder = open(d->path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    d->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (d->folder < 0 || d->lock < 0)
        rc = bl_error_set(err, BL_EXIT_FAILED, "%s: %s", d->folder < 0 ? d->path : path,
                          strerror(errno));
    else if (flock(d->lock, LOCK_EX | LOCK_NB) == 0)
        sign_lock(d->lock);
    else if ((cause = errno) == EWOULDBLOCK && !fresh && is_given_up(d->lock))
        rc = 1;
    else
        rc = not_locked(d->path, path, cause, err);
    free(path);
    return rc;
}

/* --fresh must not remove what --from needs. */
static int check_from(const char *directory, const char *from, struct bl_error *err)
{
    char *run = realpath(directory, NULL), *state = realpath(from, NULL);
    size_t n = run != NULL ? strlen(run) : 0;
    int inside = run != NULL && state != NULL && strncmp(run, state, n) == 0 && state[n] == '/';
    free(run);
    free(state);
    return inside
               ? bl_error_set(err, BL_EXIT_USAGE,
                              "--fresh removes %s, and --from %s is in it: give the fork another "
                              "run.name",
                              directory, from)
               : 0;
}

int bl_rundir_open(const struct bl_setup *s, const struct bl_start *how, struct bl_rundir *out,
                   struct bl_error *err)
{
    struct bl_rundir d = {.path = strdup(s->directory), .folder = -1, .lock = -1, .claim = -1};
    struct bl_text text = {0};
    char *config = bl_format("%s/config.cfg", s->directory);
    int rc = -1, held = 0;
    if (d.path == NULL || config == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    if (bl_setup_config_text(s, &text, err) < 0 || bl_plan_hash(text.text, &d.plan, err) < 0 ||
        bl_make_directories(d.path, err) < 0 || (held = take_lock(&d, how->fresh, err)) < 0)
        goto done;
    if (how->fresh && ((how->from != NULL && check_from(d.path, how->from, err) < 0) ||
                       remove_old(d.path, err) < 0))
        goto done;
    d.planned = access(config, F_OK) == 0;
    if (!how->replan && compare_plan(config, text.text, err) < 0)
        goto done;
    remove_cut_off(&d);
    if (claim_attempt(&d, err) < 0)
        goto done;
    if (held)
        await_lock(&d);
    d.config = text.text;
    text = (struct bl_text){0};
    *out = d;
    rc = 0;
done:
    bl_text_free(&text);
    free(config);
    if (rc < 0)
        bl_rundir_close(&d);
    return rc;
}

int bl_rundir_keep_config(const struct bl_rundir *d, struct bl_error *err)
{
    if (bl_rundir_owns(d, err) < 0)
        return -1;
    char *path = bl_format("%s/config.cfg", d->path);
    int rc = path != NULL ? bl_write_file(path, d->config, strlen(d->config), err)
                          : bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    free(path);
    return rc;
}

static int still_there(const struct bl_rundir *d, struct bl_error *err)
{
    struct stat ours, there;
    int gone = stat(d->path, &there) < 0;
    if (gone && errno != ENOENT && errno != ENOTDIR)
        return 0; /* a file server that does not answer now may do so later */
    if (!gone && (fstat(d->folder, &ours) < 0 ||
                  (ours.st_dev == there.st_dev && ours.st_ino == there.st_ino)))
        return 0;
    return bl_error_set(
        err, BL_EXIT_FAILED,
        "%s: was %s while the run was using it; the run ends here, the same command "
        "starts with what is there",
        d->path, gone ? "removed or moved" : "replaced");
}

int bl_rundir_owns(const struct bl_rundir *d, struct bl_error *err)
{
    if (still_there(d, err) < 0)
        return -1;
    char *folder = bl_format("%s/attempts", d->path);
    char *ours = bl_format("%s/attempts/%u", d->path, d->attempt);
    int rc = 0;
    if (folder == NULL || ours == NULL) {
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    } else {
        static const char over[] = "ends here and leaves everything as it is";
        int64_t newest = newest_attempt(folder); /* -1: not known now */
        if (newest > d->attempt)
            rc = bl_error_set(
                err, BL_EXIT_FAILED,
                "%s: attempt %u %s: a later start, attempt %lld, has taken the run over", d->path,
                d->attempt, over, (long long)newest);
        else if (!is_our_claim(d, ours))
            rc = bl_error_set(err, BL_EXIT_FAILED,
                              "%s: attempt %u %s: its attempts/%u was removed, as a start with "
                              "--fresh does",
                              d->path, d->attempt, over, d->attempt);
    }
    free(ours);
    free(folder);
    return rc;
}

int bl_rundir_check(struct bl_rundir *d, struct bl_error *err)
{
    double now = bl_clock();
    if (d->looked != 0 && now - d->looked < BL_RUNDIR_LOOK)
        return still_there(d, err);
    d->looked = now;
    return bl_rundir_owns(d, err);
}

void bl_rundir_close(struct bl_rundir *d)
{
    if (d->claim >= 0) {
        give_up_claim(d);
        close(d->claim);
    }
    if (d->lock >= 0)
        close(d->lock);
    if (d->folder >= 0)
        close(d->folder);
    free(d->path);
    free(d->config);
    *d = (struct bl_rundir){.folder = -1, .lock = -1, .claim = -1};
}
