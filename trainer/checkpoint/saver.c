#include "checkpoint/saver.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/strings.h"
#include "checkpoint/copy.h"
#include "checkpoint/internal.h"

enum phase { IDLE, WRITING, PUBLISHING };
enum outcome { RUNNING, DONE, FAILED, LOST }; /* LOST: the run belongs to another attempt */

struct bl_saver {
    struct bl_saver_setup setup;
    char *directory, *ring;
    uint32_t process, processes;
    struct bl_copy *copy;
    uint64_t *shard_sums; /* (processes) of the optimizer files */

    /* of the save under way */
    enum phase phase;
    const struct bl_checkpoint *c; /* the copy */
    uint32_t where;
    char *target, *temporary;
    uint32_t published; /* of `where`, what is there; process 0 knows */
    double began;
    struct bl_checkpoint_sums sums;

    pthread_t thread;
    int threaded;
    atomic_int outcome; /* of the phase; what follows is the thread's until it is not RUNNING */
    struct bl_error error;
};

/* ---- the two phases, in the writing thread --------------------------------------------------- */

static int make_folder(const char *path, struct bl_error *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) /* another process made it */
        return 0;
    return bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path, strerror(errno));
}

static enum outcome write_files(struct bl_saver *s)
{
    if (bl_checkpoint_check_numbers(&s->c->info, s->target, &s->error) != 0 ||
        bl_make_directories(s->target, &s->error) != 0 ||
        make_folder(s->temporary, &s->error) != 0 ||
        bl_checkpoint_write_files(s->temporary, s->c, &s->sums, &s->error) != 0)
        return FAILED;
    return DONE;
}

static enum outcome publish(struct bl_saver *s)
{
    const struct bl_checkpoint_info *i = &s->c->info;
    uint32_t both = BL_SAVE_CHECKPOINT | BL_SAVE_RING;

    if (bl_checkpoint_write_state(s->temporary, s->c, &s->sums, s->shard_sums, &s->error) != 0)
        return FAILED;
    if (s->setup.owns && s->setup.owns(s->setup.context, &s->error) != 0)
        return LOST;
    if (bl_checkpoint_publish(s->target, s->temporary, i->attempt, i->step, &s->error) != 0)
        return FAILED;
    s->published = s->where & BL_SAVE_CHECKPOINT ? BL_SAVE_CHECKPOINT : BL_SAVE_RING;
    if (s->where & BL_SAVE_CHECKPOINT)
        bl_checkpoint_prune(s->directory, s->setup.keep, s->setup.keep_every, i->step, i->attempt);
    if ((s->where & both) == both &&
        bl_checkpoint_link(s->directory, s->ring, i->attempt, i->step, &s->error) != 0)
        return FAILED;
    s->published = s->where;
    if (s->where & BL_SAVE_RING)
        bl_checkpoint_prune(s->ring, s->setup.ring, 0, i->step, i->attempt);
    return DONE;
}

static void *work(void *argument)
{
    struct bl_saver *s = argument;
    enum outcome outcome = s->phase == WRITING ? write_files(s) : DONE;

    if (outcome == DONE && s->phase == WRITING && s->processes == 1)
        s->shard_sums[0] = s->sums.optimizer;
    /* Alone there is nobody to wait for between the phases. */
    if (outcome == DONE && s->process == 0 && (s->phase == PUBLISHING || s->processes == 1))
        outcome = publish(s);
    atomic_store(&s->outcome, (int)outcome);
    return NULL;
}

/* Signals are the main thread's. Without a thread the work is done here. */
static void start(struct bl_saver *s, enum phase phase, int thread)
{
    sigset_t all, old;

    s->phase = phase;
    atomic_store(&s->outcome, RUNNING);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    s->threaded = thread && pthread_create(&s->thread, NULL, work, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!s->threaded)
        work(s);
}

static void join(struct bl_saver *s)
{
    if (s->threaded)
        pthread_join(s->thread, NULL);
    s->threaded = 0;
}

/* ---- the calls ------------------------------------------------------------------------------- */

int bl_saver_make(const struct bl_saver_setup *setup, struct bl_saver **out, struct bl_error *err)
{
    struct bl_saver *s = calloc(1, sizeof(*s));

    if (!s)
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoints: out of memory");
    s->setup = *setup;
    s->processes = setup->world ? bl_world_processes(setup->world) : 1;
    s->process = setup->world ? bl_world_process(setup->world) : 0;
    s->directory = strdup(setup->directory);
    s->ring = bl_format("%s/ring", setup->directory);
    s->shard_sums = calloc(s->processes, sizeof(*s->shard_sums));
    s->copy = bl_copy_make(setup->parallel_for, setup->parallel_context);
    if (!s->directory || !s->ring || !s->shard_sums || !s->copy) {
        bl_saver_free(s);
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoints: out of memory");
    }
    *out = s;
    return 0;
}

/* What was begun is over: nothing of it is left but what was published. */
static void forget(struct bl_saver *s)
{
    if (s->process == 0 && s->temporary)
        bl_checkpoint_remove(s->temporary);
    free(s->temporary);
    s->temporary = NULL;
    s->target = NULL;
    s->phase = IDLE;
}

void bl_saver_free(struct bl_saver *s)
{
    if (!s)
        return;
    join(s);
    if (s->phase != IDLE && s->processes == 1) /* others may still write there */
        forget(s);
    bl_copy_free(s->copy);
    free(s->temporary);
    free(s->shard_sums);
    free(s->directory);
    free(s->ring);
    free(s);
}

int bl_saver_busy(const struct bl_saver *s)
{
    return s->phase != IDLE;
}

int bl_saver_reserve(struct bl_saver *s, const struct bl_checkpoint *c)
{
    return bl_copy_reserve(s->copy, c);
}

int bl_saver_begin(struct bl_saver *s, const struct bl_checkpoint *c, uint32_t where,
                   struct bl_error *err)
{
    int copy = s->setup.copy && !(where & BL_SAVE_STILL), aside;

    s->began = bl_clock();
    if (bl_copy_take(s->copy, c, copy, &s->c, &aside, err) != 0)
        return -1;
    s->where = where & (BL_SAVE_CHECKPOINT | BL_SAVE_RING);
    s->target = where & BL_SAVE_CHECKPOINT ? s->directory : s->ring;
    s->temporary =
        bl_format("%s/.tmp-%" PRIu32 "-%" PRIu64, s->target, c->info.attempt, c->info.step);
    if (!s->temporary)
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoints: out of memory");
    s->error = (struct bl_error)BL_ERROR_INIT;
    s->published = 0;
    start(s, WRITING, aside);
    return 0;
}

struct news {
    int32_t outcome;
    uint32_t published;
    uint64_t sum;
    struct bl_error error;
};

/* What every process has to say of this phase: the worst of it, with its error in s->error. */
static int gather(struct bl_saver *s, enum outcome *out, struct bl_error *err)
{
    struct news mine = {.outcome = atomic_load(&s->outcome)}, *all;
    int worst = DONE, answer;

    if (mine.outcome != RUNNING) { /* else the thread may be writing them */
        mine.sum = s->sums.optimizer;
        mine.error = s->error;
        mine.published = s->published;
    }
    if (s->processes == 1) {
        *out = (enum outcome)mine.outcome;
        return 0;
    }
    all = calloc(s->processes, sizeof(*all));
    if (!all)
        return bl_error_set(err, BL_EXIT_FAILED, "checkpoints: out of memory");
    answer = bl_world_gather(s->setup.world, &mine, sizeof(mine), all, err);
    for (uint32_t p = 0; answer == 0 && p < s->processes; p++) {
        if (all[p].outcome == RUNNING) {
            worst = RUNNING; /* nothing is over before everybody is done */
            break;
        }
        if (all[p].outcome > worst) {
            worst = all[p].outcome;
            s->error = all[p].error;
            if (p > 0)
                bl_error_prefix(&s->error, "process %" PRIu32 " (%s)", p,
                                bl_world_host(s->setup.world, p));
        }
    }
    for (uint32_t p = 0; answer == 0 && worst == DONE && s->phase == WRITING && p < s->processes;
         p++)
        s->shard_sums[p] = all[p].sum;
    if (answer == 0)
        s->published = all[0].published;
    *out = (enum outcome)worst;
    free(all);
    return answer;
}

static int look(struct bl_saver *s, int wait, struct bl_saver_report *out, struct bl_error *err)
{
    *out = (struct bl_saver_report){.event = BL_SAVER_NOTHING};
    while (s->phase != IDLE) {
        enum outcome outcome;
        if (wait)
            join(s);
        if (gather(s, &outcome, err) != 0)
            return -1;
        if (outcome == RUNNING)
            return 0;
        join(s);
        if (outcome == DONE && s->phase == WRITING && s->processes > 1) {
            start(s, PUBLISHING, s->setup.copy && s->process == 0);
            if (wait)
                continue;
            return 0;
        }
        *out = (struct bl_saver_report){
            .event = outcome == DONE ? BL_SAVER_SAVED : BL_SAVER_FAILED,
            .step = s->c->info.step,
            .published = s->published,
            .seconds = bl_clock() - s->began,
            .bytes = bl_copy_bytes(s->copy),
            .error = s->error,
        };
        forget(s);
        if (outcome == LOST) {
            out->event = BL_SAVER_NOTHING;
            return bl_error_set(err, s->error.code, "%s", s->error.text);
        }
    }
    return 0;
}

int bl_saver_poll(struct bl_saver *s, struct bl_saver_report *out, struct bl_error *err)
{
    return look(s, 0, out, err);
}

int bl_saver_wait(struct bl_saver *s, struct bl_saver_report *out, struct bl_error *err)
{
    return look(s, 1, out, err);
}
