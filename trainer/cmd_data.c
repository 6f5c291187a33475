#include <stdio.h>
#include <string.h>

#include "cmd.h"

static const char usage[] = "usage: ballast data info FILE...      format, tokens, range of ids\n"
                            "       ballast data pack OUT INPUT... text to token shards\n"
                            "       ballast data verify FILE...    checks structure and every id\n"
                            "\n"
                            "ballast data COMMAND --help says more.\n";

static const char hint[] = "see: ballast data --help";

int bl_cmd_data(int argc, char **argv, struct bl_error *err)
{
    static const struct {
        const char *name;
        int (*run)(int argc, char **argv, struct bl_error *err);
    } commands[] = {
        {"info", bl_cmd_data_info},
        {"pack", bl_cmd_data_pack},
        {"verify", bl_cmd_data_verify},
    };

    if (argc < 2)
        return bl_error_set(err, BL_EXIT_USAGE, "data needs a command: info, pack or verify; %s",
                            hint);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        fputs(usage, stdout);
        return 0;
    }
    for (size_t i = 0; i < sizeof(commands) / sizeof(commands[0]); i++)
        if (strcmp(argv[1], commands[i].name) == 0)
            return commands[i].run(argc - 1, argv + 1, err);
    return bl_error_set(err, BL_EXIT_USAGE,
                        "data has no command %s, only info, pack and verify; %s", argv[1], hint);
}
