/* The metrics of a run as curves: metrics.jsonl read back. */
#ifndef BL_REPORT_SERIES_H
#define BL_REPORT_SERIES_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

struct bl_curve {
    char *name; /* "loss/ce" */
    size_t count, capacity;
    double *step, *value; /* steps ascend strictly; value may be NaN or infinite */
};

struct bl_series {
    struct bl_curve *curves; /* in order of first appearance */
    size_t count, capacity;
    struct bl_curve rows; /* the rows that count; value = seconds since 1970, NaN unknown */
    size_t superseded;    /* rows that a later attempt has overtaken */
    size_t skipped;       /* lines that were cut, not JSON, or out of order */
    size_t first_skipped; /* number of the first such line, from 1 */
    double *resumes;      /* (resume_count,) first steps of the attempts after the first */
    size_t resume_count;
    size_t expected; /* which curve the next name of a row probably is */
};

/* Rows that a later attempt has overtaken are left out: from the first step of an attempt on, rows
 * of earlier attempts do not count. A line that cannot be read is skipped and counted. Takes 16
 * bytes a value, which is less than the text of the file. */
int bl_series_read(const char *path, struct bl_series *out, struct bl_error *err);
void bl_series_free(struct bl_series *s);
const struct bl_curve *bl_series_find(const struct bl_series *s, const char *name);

/* Appends; 0, or -1 without memory. */
int bl_curve_add(struct bl_curve *c, double step, double value);
void bl_curve_free(struct bl_curve *c);

#endif
