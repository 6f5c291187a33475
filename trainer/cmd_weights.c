#include <stdio.h>
#include <string.h>

#include "checkpoint/checkpoint.h"
#include "cmd.h"

static const char usage[] =
    "usage: ballast weights A        list the tensors of A\n"
    "       ballast weights A B      compare A and B tensor by tensor\n"
    "\n"
    "A and B are .safetensors files or checkpoint folders (runs/NAME/checkpoints/STEP).\n"
    "Comparing ends with code 0 when every bit is the same, and 1 otherwise.\n";

int bl_cmd_weights(int argc, char **argv, struct bl_error *err)
{
    int different = 0;

    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            fputs(usage, stdout);
            return 0;
        }
        if (argv[i][0] == '-' && argv[i][1] == '-')
            return bl_error_set(err, BL_EXIT_USAGE,
                                "unknown option %s; see: ballast weights --help", argv[i]);
    }
    if (argc == 2)
        return bl_checkpoint_list(argv[1], stdout, err);
    if (argc != 3)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "weights needs one or two checkpoints; see: ballast weights --help");
    if (bl_checkpoint_compare(argv[1], argv[2], stdout, &different, err) != 0)
        return -1;
    if (different)
        return bl_error_set(err, BL_EXIT_FAILED, "%s and %s differ", argv[1], argv[2]);
    return 0;
}
