#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/strings.h"
#include "cmd.h"
#include "run.h"
#include "stop.h"

/* Until the config says cluster.timeout. */
static const double meeting_seconds = 60;

/* Processes that were told different things would train different runs, and find it out, if at all,
 * by weights that differ. */
static int same_for_all(const struct bl_setup *s, struct bl_world *world,
                        const struct bl_start *how, struct bl_error *err)
{
    uint32_t processes = bl_world_processes(world), other = 1;
    struct bl_text text = {0};
    uint64_t mine = 0, *all = bl_alloc(processes, sizeof *all);
    int rc = all == NULL ? bl_error_set(err, BL_EXIT_FAILED, "no memory to compare the configs")
                         : bl_setup_config_text(s, &text, err);
    if (rc == 0) {
        bl_text_add(&text, "\n%d %d %llu %s", how->fresh, how->replan,
                    (unsigned long long)how->skip_samples, how->from != NULL ? how->from : "");
        rc =
            text.failed ? bl_error_set(err, BL_EXIT_FAILED, "no memory to compare the configs") : 0;
    }
    if (rc == 0)
        mine = bl_hash(text.text);
    bl_text_free(&text);
    rc = bl_world_agree(world, rc, err);
    if (rc == 0)
        rc = bl_world_gather(world, &mine, sizeof mine, all, err);
    if (rc == 0) {
        while (other < processes && all[other] == all[0])
            other++;
        if (other < processes)
            rc = bl_error_set(err, BL_EXIT_USAGE,
                              "the configuration or the options of process %u (%s) are not those "
                              "of process 0 (%s): give all processes the same file, overrides and "
                              "options",
                              other, bl_world_host(world, other), bl_world_host(world, 0));
        rc = bl_world_agree(world, rc, err);
    }
    bl_free(all);
    return rc;
}

static int train(const char *path, int overrides, char **override, const struct bl_start *how,
                 struct bl_error *err)
{
    struct bl_world *world;
    struct bl_setup *setup = NULL;
    if (bl_world_make(meeting_seconds, &world, err) < 0)
        return -1;
    uint32_t process = bl_world_process(world);
    if (process > 0)
        bl_log_level(BL_LOG_ERROR); /* process 0 speaks for all */
    int rc = bl_setup_make(path, overrides, override, bl_world_processes(world), &setup, err);
    rc = bl_world_agree(world, rc, err);
    if (rc == 0)
        rc = same_for_all(setup, world, how, err);
    if (rc == 0) {
        bl_world_set_timeout(world, setup->config->cluster.timeout);
        rc = bl_run_train(setup, world, how, err); /* frees setup */
    } else {
        bl_setup_free(setup);
    }
    if (rc < 0 && process > 0 && err != NULL && bl_run_ends_everywhere(err->code))
        err->text[0] = '\0'; /* process 0 says it */
    bl_world_free(world);
    return rc;
}

static const char usage[] =
    "usage: ballast train [--fresh] [--replan] [--from STATE] [--skip-samples N] CONFIG "
    "[KEY=VALUE...]";

static void help(void)
{
    printf(
        "%s\n\n"
        "Trains what CONFIG says in <run.dir>/<run.name>. A run that has a checkpoint goes on\n"
        "from the newest good one. Overrides are written like the config:\n"
        "optimizer.lr=3e-3 run.seed=7 regularizers[0].coefficient=1e-3\n\n"
        "  --fresh           remove what is there and start over\n"
        "  --replan          go on although the plan, the ranks or the micro-batch changed;\n"
        "                    every difference is logged\n"
        "  --from STATE      start a new run from STATE, the folder of a checkpoint or of a\n"
        "                    ring state of any run; the same command goes on with the new run\n"
        "  --skip-samples N  leave the next N sequences of the data out; with --from once, when\n"
        "                    the new run begins, else at every start that is given it\n\n"
        "SIGTERM and SIGUSR1 end it after the current step with a checkpoint (exit 75), SIGINT "
        "too\n"
        "(exit 130). When SIGINT comes twice it ends at once: a checkpoint that is being written "
        "is\n"
        "given up, those before it stay. Before the first step there is nothing to save: they end\n"
        "it at once. A run whose directory is removed, moved or replaced ends with "
        "1.\n",
        usage);
}

/* The value after option i, which is taken out of the arguments. */
static const char *value_of(int argc, char **argv, int *i, struct bl_error *err)
{
    if (*i + 1 < argc)
        return argv[++*i];
    bl_error_set(err, BL_EXIT_USAGE, "train: %s wants a value; %s", argv[*i], usage);
    return NULL;
}

/* Options may stand anywhere; the other arguments move to the front. Their number, or -1. */
static int parse(int argc, char **argv, struct bl_start *how, struct bl_error *err)
{
    const char *skip = NULL;
    int n = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--fresh") == 0) {
            how->fresh = 1;
        } else if (strcmp(argv[i], "--replan") == 0) {
            how->replan = 1;
        } else if (strcmp(argv[i], "--from") == 0) {
            if ((how->from = value_of(argc, argv, &i, err)) == NULL)
                return -1;
        } else if (strcmp(argv[i], "--skip-samples") == 0) {
            if ((skip = value_of(argc, argv, &i, err)) == NULL)
                return -1;
        } else if (argv[i][0] == '-') {
            return bl_error_set(err, BL_EXIT_USAGE, "train: unknown option %s; %s", argv[i], usage);
        } else {
            argv[n++] = argv[i];
        }
    }
    if (n == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "%s", usage);
    int64_t samples = 0;
    if (skip != NULL && (bl_parse_int(skip, &samples) < 0 || samples < 0))
        return bl_error_set(err, BL_EXIT_USAGE,
                            "train: --skip-samples %s: a number of sequences is due", skip);
    how->skip_samples = (uint64_t)samples;
    return n;
}

int bl_cmd_train(int argc, char **argv, struct bl_error *err)
{
    struct bl_start how = {0};
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        help();
        return 0;
    }
    int n = parse(argc, argv, &how, err);
    if (n < 0)
        return -1;
    bl_stop_watch();
    return train(argv[0], n - 1, argv + 1, &how, err);
}
