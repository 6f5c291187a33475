#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "run.h"
#include "stop.h"

int bl_cmd_train(int argc, char **argv, struct bl_error *err)
{
    static const char usage[] = "usage: ballast train [--fresh] CONFIG [KEY=VALUE...]";
    int fresh = 0, n = 0;
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        printf(
            "%s\n\n"
            "Trains what CONFIG says in <run.dir>/<run.name>. A run that has a checkpoint goes on\n"
            "from it; --fresh removes what is there and starts over. Overrides are written like "
            "the\n"
            "config: optimizer.lr=3e-3 run.seed=7 regularizers[0].coefficient=1e-3\n\n"
            "SIGTERM and SIGUSR1 end it after the current step with a checkpoint (exit 75), SIGINT "
            "too\n"
            "(exit 130) and at once when it comes twice. Before the first step there is nothing to "
            "save:\n"
            "they end it at once. A run whose directory is removed, moved or replaced ends with "
            "1.\n",
            usage);
        return 0;
    }
    for (int i = 1; i < argc; i++) { /* options may stand anywhere */
        if (strcmp(argv[i], "--fresh") == 0)
            fresh = 1;
        else if (argv[i][0] == '-')
            return bl_error_set(err, BL_EXIT_USAGE, "train: unknown option %s; %s", argv[i], usage);
        else
            argv[n++] = argv[i];
    }
    if (n == 0)
        return bl_error_set(err, BL_EXIT_USAGE, "%s", usage);
    struct bl_setup *setup;
    bl_stop_watch();
    if (bl_setup_make(argv[0], n - 1, argv + 1, 1, &setup, err) < 0)
        return -1;
    return bl_run_train(setup, fresh, err); /* frees setup */
}
