/* Facts that processes find out about each other: a file in the run directory, their clocks. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/strings.h"
#include "collectives/world.h"
#include "doctor/doctor.h"

enum { PATH = 4096, PINGS = 5, TAG = 0xd0c };

/* What process 0 put there. */
struct sample {
    char path[PATH], folder[PATH];
    size_t kept; /* length of the part of `folder` that was there before */
    int fd;
};

/* The part of the path that is there. */
static size_t existing(const char *path)
{
    char part[PATH];
    size_t n = (size_t)snprintf(part, sizeof part, "%s", path);
    while (n > 0 && access(part, F_OK) != 0) {
        char *slash = strrchr(part, '/');
        n = slash != NULL ? (size_t)(slash - part) : 0;
        part[n] = '\0';
    }
    return n;
}

static void remove_sample(struct sample *s)
{
    if (s->fd >= 0) {
        unlink(s->path);
        close(s->fd);
    }
    /* Only folders that were made here, and only empty ones. */
    while (strlen(s->folder) > s->kept && (rmdir(s->folder) == 0 || errno == ENOENT)) {
        char *slash = strrchr(s->folder, '/');
        *(slash != NULL ? slash : s->folder) = '\0';
    }
}

static int make_sample(const char *folder, struct sample *s, struct bl_error *err)
{
    uint64_t nonce = 0;
    *s = (struct sample){.fd = -1};
    snprintf(s->folder, sizeof s->folder, "%s", folder);
    s->kept = existing(folder);
    if (getrandom(&nonce, sizeof nonce, 0) != sizeof nonce)
        nonce = (uint64_t)getpid();
    if ((size_t)snprintf(s->path, sizeof s->path, "%s/.doctor-%016llx", folder,
                         (unsigned long long)nonce) >= sizeof s->path)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: the name is too long", folder);
    if (bl_make_directories(folder, err) < 0)
        return -1;
    s->fd = open(s->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (s->fd < 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: no file can be made there: %s", folder,
                            strerror(errno));
    if (write(s->fd, "", 1) != 1 || fsync(s->fd) != 0)
        return bl_error_set(err, BL_EXIT_FAILED, "%s: cannot be written: %s", folder,
                            strerror(errno));
    return 0;
}

static void look_at_disk(const struct sample *s, struct bl_doctor_run *run)
{
    struct statvfs v;
    run->disk_free = run->inodes_free = BL_DOCTOR_NO_LIMIT;
    if (fstatvfs(s->fd, &v) != 0)
        return;
    run->disk_free = (uint64_t)v.f_bavail * v.f_frsize;
    if (v.f_files > 0) /* 0: made as they are needed (btrfs) */
        run->inodes_free = v.f_favail;
}

/* In a process that did not make the file. */
static void look_for(const char *path, double seconds, struct bl_doctor_facts *mine)
{
    char folder[PATH];
    double begun = bl_clock();
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = '\0';
    int fd = open(path, O_RDWR | O_CLOEXEC);
    while (fd < 0 && errno == ENOENT && bl_clock() - begun < seconds) {
        nanosleep(&(struct timespec){0, 100 * 1000000}, NULL);
        DIR *d = opendir(folder); /* makes NFS look at its server again */
        if (d != NULL) {
            (void)readdir(d);
            closedir(d);
        }
        fd = open(path, O_RDWR | O_CLOEXEC);
    }
    if (fd >= 0) {
        mine->sight = BL_SIGHT_SEEN;
        if (flock(fd, LOCK_EX | LOCK_NB) == 0)
            mine->lock = BL_LOCK_LOCAL;
        else
            mine->lock = errno == EWOULDBLOCK ? BL_LOCK_HOLDS : BL_LOCK_NONE;
        close(fd);
    } else {
        mine->sight = access(path, F_OK) == 0 ? BL_SIGHT_SEEN : BL_SIGHT_MISSING;
    }
    if (mine->sight == BL_SIGHT_SEEN && access(folder, W_OK | X_OK) != 0)
        mine->write_error = errno;
}

int bl_doctor_try_folder(struct bl_world *w, const char *folder, double seconds,
                         struct bl_doctor_facts *mine, struct bl_doctor_run *run, char *text,
                         size_t size, struct bl_error *err)
{
    struct sample s = {.fd = -1};
    int first = w == NULL || bl_world_process(w) == 0, rc = 0;
    if (first) {
        struct bl_error cause = BL_ERROR_INIT;
        text[0] = '\0';
        run->directory_error = text;
        run->disk_free = run->inodes_free = BL_DOCTOR_NO_LIMIT;
        if (folder == NULL) {
            ; /* an empty path tells the others */
        } else if (make_sample(folder, &s, &cause) < 0) {
            snprintf(text, size, "%s", cause.text);
            remove_sample(&s);
            s = (struct sample){.fd = -1};
        } else {
            look_at_disk(&s, run);
            mine->sight = BL_SIGHT_SEEN;
            mine->lock = flock(s.fd, LOCK_EX | LOCK_NB) == 0 ? BL_LOCK_HOLDS : BL_LOCK_NONE;
        }
    }
    if (w != NULL)
        rc = bl_world_broadcast(w, 0, s.path, sizeof s.path, err);
    if (rc == 0 && !first && *s.path != '\0')
        look_for(s.path, seconds, mine);
    if (rc == 0 && w != NULL)
        rc = bl_world_barrier(w, err);
    if (first)
        remove_sample(&s);
    return rc;
}

/* ---- clocks */

/* One message and its wait. */
static int pass(struct bl_world *w, uint32_t peer, int send, double *value, struct bl_error *err)
{
    struct bl_message *m = NULL;
    int rc = send ? bl_world_send(w, peer, TAG, value, sizeof *value, &m, err)
                  : bl_world_receive(w, peer, TAG, value, sizeof *value, &m, err);
    return rc < 0 ? -1 : bl_world_wait(w, &m, 1, err);
}

/* The answer that came back soonest is the surest: it was read on the other side between our two
 * times, so it is known within half of what lies between them. */
static int ask_clock(struct bl_world *w, uint32_t peer, struct bl_doctor_facts *f,
                     struct bl_error *err)
{
    for (int i = 0; i < PINGS; i++) {
        double sent = bl_clock_wall(), theirs = sent;
        if (pass(w, peer, 1, &theirs, err) < 0 || pass(w, peer, 0, &theirs, err) < 0)
            return -1;
        double back = bl_clock_wall(), half = (back - sent) / 2;
        if (!f->has_clock || half < f->clock_error) {
            f->clock = theirs - (sent + half);
            f->clock_error = half;
        }
        f->has_clock = 1;
    }
    return 0;
}

static int answer(struct bl_world *w, struct bl_error *err)
{
    for (int i = 0; i < PINGS; i++) {
        double value;
        if (pass(w, 0, 0, &value, err) < 0)
            return -1;
        value = bl_clock_wall();
        if (pass(w, 0, 1, &value, err) < 0)
            return -1;
    }
    return 0;
}

int bl_doctor_compare_clocks(struct bl_world *w, struct bl_doctor_facts *all, struct bl_error *err)
{
    uint32_t me = bl_world_process(w);
    for (uint32_t p = 0; me == 0 && p < bl_world_processes(w); p++) {
        if (bl_world_node(w, p) != bl_world_node(w, 0) && bl_world_local(w, p) == 0 &&
            ask_clock(w, p, &all[p], err) < 0)
            return -1;
    }
    if (bl_world_node(w, me) != bl_world_node(w, 0) && bl_world_local(w, me) == 0)
        return answer(w, err);
    return 0;
}
