/* Which part of the values an axis shows. */
#ifndef BL_REPORT_AXIS_H
#define BL_REPORT_AXIS_H

#include "base/strings.h"
#include "report/curve.h"

enum bl_axis_kind {
    BL_AXIS_LINEAR,
    BL_AXIS_ZOOM, /* linear; the top is cut off where the first tenth of the steps rules it */
    BL_AXIS_LOG,  /* values that are not positive are gaps; linear when there are no others */
    BL_AXIS_AUTO  /* LOG when all values are positive and their bulk spans more than 1:50 */
};

struct bl_axis {
    double low, high;
    int log;
    size_t hidden; /* values above `high`, of the curve with most of them */
    double top;    /* the highest value */
};

/* The range for these curves; a sensible one too when they are constant or never finite. */
struct bl_axis bl_axis_make(const struct bl_curve *const *curves, size_t count,
                            enum bl_axis_kind kind);
/* gnuplot's settings for it; axis is "y" or "cb". */
void bl_axis_add(const struct bl_axis *a, const char *axis, struct bl_text *out);

#endif
