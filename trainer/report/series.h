/* The metrics of a run as curves: metrics.jsonl read back. */
#ifndef BL_REPORT_SERIES_H
#define BL_REPORT_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct bl_curve {
    char *name; /* "loss/ce" */
    size_t count, capacity;
    double *step, *value; /* steps ascend; value may be NaN or infinite */
};

struct bl_series {
    struct bl_curve *curves; /* in order of first appearance */
    size_t count, capacity;
    size_t rows, skipped; /* lines used; lines that were cut or not JSON */
};

/* Rows that a later attempt has overtaken are left out: from the first step of an attempt on, rows
 * of earlier attempts do not count. A cut last line is skipped and counted. */
int bl_series_read(const char *path, struct bl_series *out, struct bl_error *err);
void bl_series_free(struct bl_series *s);
const struct bl_curve *bl_series_find(const struct bl_series *s, const char *name);

#endif
