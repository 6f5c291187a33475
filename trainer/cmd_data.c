#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "cmd.h"
#include "data/data.h"

static const char usage[] =
    "usage: ballast data pack [--validation SHARE] OUT_PREFIX INPUT...\n"
    "\n"
    "Makes token shards for data.source = \"tokens\" from text files: every byte is one token id\n"
    "(0 ... 255). Writes OUT_PREFIX-train.bin and OUT_PREFIX-val.bin in llm.c's format.\n"
    "\n"
    "  --validation SHARE   part of the bytes, at the end, that is held out: 0 ... 0.5,\n"
    "                       default 0.1; cut at a line end; 0 = no validation file\n";

static const char hint[] = "see: ballast data --help";

static int pack(int argc, char **argv, struct bl_error *err)
{
    double share = 0.1;
    char *train, *validation;
    int first = 1, answer = -1;

    for (; first < argc && strncmp(argv[first], "--", 2) == 0; first++) {
        const char *value;
        if (strcmp(argv[first], "--") == 0) {
            first++;
            break;
        }
        if (strcmp(argv[first], "--validation") == 0 && first + 1 < argc)
            value = argv[++first];
        else if (strncmp(argv[first], "--validation=", 13) == 0)
            value = argv[first] + 13;
        else if (strcmp(argv[first], "--validation") == 0)
            return bl_error_set(err, BL_EXIT_USAGE, "--validation needs a share; %s", hint);
        else
            return bl_error_set(err, BL_EXIT_USAGE, "unknown option %s; %s", argv[first], hint);
        if (bl_parse_double(value, &share) != 0 || !(share >= 0.0 && share <= 0.5))
            return bl_error_set(err, BL_EXIT_USAGE, "--validation %s: a share in 0 ... 0.5; %s",
                                value, hint);
    }
    if (argc - first < 2)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "data pack needs OUT_PREFIX and at least one INPUT; %s", hint);
    size_t length = strlen(argv[first]);
    if (length == 0 || argv[first][length - 1] == '/')
        return bl_error_set(err, BL_EXIT_USAGE,
                            "OUT_PREFIX \"%s\" ends in no name; data/text, for one, makes "
                            "data/text-train.bin; %s",
                            argv[first], hint);
    train = bl_format("%s-train.bin", argv[first]);
    validation = bl_format("%s-val.bin", argv[first]);
    if (!train || !validation)
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
    else
        answer = bl_data_pack((const char *const *)(argv + first + 1), (size_t)(argc - first - 1),
                              train, share > 0.0 ? validation : NULL, share, err);
    if (answer == 0 && share > 0.0)
        printf("wrote %s and %s\n", train, validation);
    else if (answer == 0)
        printf("wrote %s\n", train);
    free(train);
    free(validation);
    return answer;
}

int bl_cmd_data(int argc, char **argv, struct bl_error *err)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
    }
    if (argc < 2)
        return bl_error_set(err, BL_EXIT_USAGE, "data needs a command: pack; %s", hint);
    if (strcmp(argv[1], "pack") != 0)
        return bl_error_set(err, BL_EXIT_USAGE, "data has no command %s, only pack; %s", argv[1],
                            hint);
    return pack(argc - 1, argv + 1, err);
}
