#include <stdio.h>
#include <string.h>

#include "cmd.h"
#include "report/page.h"

int bl_cmd_report(int argc, char **argv, struct bl_error *err)
{
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        puts("usage: ballast report RUN...\n\n"
             "RUN is the directory of a run, e.g. runs/demo. Draws figures (PNG) in RUN/figures "
             "and\n"
             "writes RUN/report.html, one page with everything in it. Needs gnuplot.");
        return 0;
    }
    if (argc < 2)
        return bl_error_set(err, BL_EXIT_USAGE, "usage: ballast report RUN...");
    for (int i = 1; i < argc; i++) {
        if (bl_report_run(argv[i], err) < 0)
            return -1;
    }
    return 0;
}
