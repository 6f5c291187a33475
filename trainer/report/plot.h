/* Figures, drawn by gnuplot. */
#ifndef BL_REPORT_PLOT_H
#define BL_REPORT_PLOT_H

#include "report/series.h"

struct bl_line {
    const struct bl_curve *curve;
    const char *label;
};

struct bl_panel {
    const char *title, *y_label;
    struct bl_line lines[4];
    size_t count;
    int log_y; /* where every drawn value is positive */
};

/* Draws panels below each other into a PNG (written beside, then renamed). Lines are dashed or
 * solid as well as coloured, so that they can be told apart in grey. Needs gnuplot in PATH. */
int bl_plot(const char *path, const struct bl_panel *panels, size_t count, struct bl_error *err);

#endif
