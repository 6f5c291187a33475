/* What a plugin must do whatever it computes: the checks behind `ballast plugin test`. */
#ifndef BL_PLUGIN_CONFORMANCE_H
#define BL_PLUGIN_CONFORMANCE_H

#include <stdio.h>

#include "base/error.h"

struct bl_conformance {
    const char *path;        /* of the .so */
    char *const *assignment; /* "key=value" of the plugin's own options */
    int assignments;
    char *const *data; /* files for a source to open; none: samples are made */
    int data_count;
    double seconds; /* a check that takes longer has failed */
    int verbose;    /* what the plugin prints and logs is let through */
};

/* Prints one line a check on `out`. Each check runs in a child process, so that a plugin that
 * crashes or hangs costs one check. 0: all passed; -1: code BL_EXIT_PLUGIN with the number of
 * failures, BL_EXIT_USAGE when the file is not there, an assignment is wrong or a required option
 * has none. */
int bl_conformance_run(const struct bl_conformance *c, FILE *out, struct bl_error *err);

#endif
