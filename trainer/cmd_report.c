#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "report/page.h"

static const char usage[] =
    "usage: ballast report [--out DIR] RUN...\n"
    "\n"
    "RUN is the directory of a run, e.g. runs/demo, with a metrics.jsonl in it.\n"
    "\n"
    "One RUN: draws its curves and writes into RUN\n"
    "  report.html    one page with everything in it; needs no network\n"
    "  report.md      the same to paste into an issue or a notebook\n"
    "  figures/*.png  the figures that report.md links to\n"
    "\n"
    "Several RUNs (at most 8): the same three, comparing them, in the folder that holds the first\n"
    "RUN: all curves in one picture, a table of values with differences to the first RUN, and a\n"
    "table of what differs between their configurations.\n"
    "\n"
    "  --out DIR      writes into DIR instead; it is made if it does not exist\n"
    "\n"
    "Needs gnuplot (package gnuplot-nox).\n";

int bl_cmd_report(int argc, char **argv, struct bl_error *err)
{
    const char *out = NULL;
    size_t count = 0;
    int options = 1, rc = -1;
    char **runs = calloc((size_t)argc, sizeof *runs);
    if (runs == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (int i = 1; i < argc; i++) {
        if (options && strcmp(argv[i], "--help") == 0) {
            fputs(usage, stdout);
            rc = 0;
            goto done;
        }
        if (options && strcmp(argv[i], "--") == 0) {
            options = 0;
        } else if (options && strncmp(argv[i], "--out=", 6) == 0 && argv[i][6]) {
            out = argv[i] + 6;
        } else if (options && strcmp(argv[i], "--out") == 0 && i + 1 < argc && argv[i + 1][0]) {
            out = argv[++i];
        } else if (options && argv[i][0] == '-' && argv[i][1]) {
            bl_error_set(
                err, BL_EXIT_USAGE,
                strncmp(argv[i], "--out", 5) == 0
                    ? "%s: a directory is missing; usage: ballast report [--out DIR] RUN..."
                    : "%s: no such option; usage: ballast report [--out DIR] RUN...",
                argv[i]);
            goto done;
        } else {
            runs[count++] = argv[i];
        }
    }
    if (count == 0)
        bl_error_set(err, BL_EXIT_USAGE, "no run named; usage: ballast report [--out DIR] RUN...");
    else
        rc = bl_report(runs, count, out, err);
done:
    free(runs);
    return rc;
}
