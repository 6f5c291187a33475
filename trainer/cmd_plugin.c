/* ballast plugin: for those who write one. new writes a folder to start from, test runs the checks
 * that hold for every plugin. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "plugin/conformance.h"
#include "plugin/loader.h"
#include "scaffold/scaffold.h"

static const char help[] =
    "usage: ballast plugin new KIND NAME [--dir DIR]\n"
    "       ballast plugin test FILE.so [KEY=VALUE...] [--data FILE...] [--seconds N] [--verbose]\n"
    "\n"
    "new   writes the folder DIR/NAME (DIR: the current one) with a plugin that compiles, passes\n"
    "      the checks and does something small, a test to fill in, Makefile, README and a config.\n"
    "      KIND is regularizer, precision, schedule, monitor, optimizer, guard, sink, source or\n"
    "      tokenizer. NAME has a-z, 0-9 and _, begins with a letter, at most 40 characters.\n"
    "test  checks what holds for every plugin and what holds for its kind: options, instances,\n"
    "      memory, state; derivatives against finite differences, order of threads, extreme\n"
    "      values. Each check runs in a process of its own. KEY=VALUE sets an option of the\n"
    "      plugin (needed for those without a default).\n"
    "        --data FILE   a file for a source to open; may be given several times\n"
    "        --seconds N   time a check may take (default 30)\n"
    "        --verbose     shows on stderr what the plugin prints and logs\n"
    "      Exit code 0 when all checks passed, 3 when one failed.\n";

static int run_new(int argc, char **argv, struct bl_error *err)
{
    const char *words[2] = {NULL, NULL}, *dir = ".";
    int count = 0;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--dir") == 0 && i + 1 < argc)
            dir = argv[++i];
        else if (argv[i][0] == '-' || count == 2)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "plugin new: unexpected %s; usage: ballast plugin new KIND NAME "
                                "[--dir DIR]",
                                argv[i]);
        else
            words[count++] = argv[i];
    }
    if (count < 2)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "plugin new: KIND and NAME are needed; usage: ballast plugin new KIND "
                            "NAME [--dir DIR]");
    char *folder = NULL;
    if (bl_scaffold_write(words[0], words[1], dir, &folder, err) != 0)
        return -1;
    printf("%s\n"
           "  %s.c         the plugin: change it\n"
           "  %s_test.c    a test with a number to work out by hand: fill it in\n"
           "  example.cfg  a run that uses it\n"
           "  README       what is where, and the rules\n"
           "Next: cd %s && make test\n",
           folder, words[1], words[1], folder);
    free(folder);
    return 0;
}

static int run_test(int argc, char **argv, struct bl_error *err)
{
    struct bl_conformance c = {.seconds = 30};
    int rc = -1;
    char **assignment = calloc((size_t)argc, sizeof *assignment);
    char **data = calloc((size_t)argc, sizeof *data);
    if (assignment == NULL || data == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
        goto done;
    }
    for (int i = 1; i < argc; i++) {
        char *end = NULL;
        if (strcmp(argv[i], "--verbose") == 0) {
            c.verbose = 1;
        } else if (strcmp(argv[i], "--data") == 0 && i + 1 < argc) {
            data[c.data_count++] = argv[++i];
        } else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc) {
            c.seconds = strtod(argv[++i], &end);
            if (*end != '\0' || !(c.seconds > 0 && c.seconds <= 86400)) {
                bl_error_set(err, BL_EXIT_USAGE,
                             "plugin test: --seconds %s: a number in (0, 86400]", argv[i]);
                goto done;
            }
        } else if (argv[i][0] == '-') {
            bl_error_set(err, BL_EXIT_USAGE,
                         "plugin test: unknown option %s, or its value is missing; `ballast plugin "
                         "--help` lists them",
                         argv[i]);
            goto done;
        } else if (c.path == NULL) {
            c.path = argv[i];
        } else if (strchr(argv[i], '=') != NULL) {
            assignment[c.assignments++] = argv[i];
        } else {
            bl_error_set(err, BL_EXIT_USAGE, "plugin test: \"%s\" is no KEY=VALUE; one file a call",
                         argv[i]);
            goto done;
        }
    }
    if (c.path == NULL) {
        bl_error_set(err, BL_EXIT_USAGE,
                     "plugin test: a file is needed; usage: ballast plugin test FILE.so "
                     "[KEY=VALUE...]");
        goto done;
    }
    c.assignment = assignment;
    c.data = data;
    rc = bl_conformance_run(&c, stdout, err);
done:
    free(assignment);
    free(data);
    return rc;
}

int bl_cmd_plugin(int argc, char **argv, struct bl_error *err)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "--help") == 0) {
            fputs(help, stdout);
            return 0;
        }
    if (argc >= 2 && strcmp(argv[1], "new") == 0)
        return run_new(argc - 1, argv + 1, err);
    if (argc >= 2 && strcmp(argv[1], "test") == 0)
        return run_test(argc - 1, argv + 1, err);
    return bl_error_set(
        err, BL_EXIT_USAGE,
        "plugin: say new or test (`ballast plugin --help`); `ballast plugins` lists "
        "what there is");
}
