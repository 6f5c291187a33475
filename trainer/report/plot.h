/* Figures of panels with curves. */
#ifndef BL_REPORT_PLOT_H
#define BL_REPORT_PLOT_H

#include "report/axis.h"
#include "report/series.h"
#include "report/spikes.h"

#define BL_PLOT_LINES 8

struct bl_line {
    const struct bl_curve *curve;
    const char *label;
    size_t style;                   /* colour and dash pattern, below BL_PLOT_LINES */
    const struct bl_spikes *spikes; /* triangles; NULL: none */
    const struct bl_series *run;    /* vertical lines where it was resumed; NULL: none */
    const struct bl_curve *skipped; /* a cross below every step with a non-zero value; or NULL */
};

struct bl_panel {
    char title[96];
    enum bl_axis_kind axis;
    struct bl_line lines[BL_PLOT_LINES];
    size_t count;
};

struct bl_picture {
    const struct bl_panel *panels;
    size_t count;
    /* (legend_count,) names of the styles 0, 1, ... above all panels; 0: each panel has its own */
    const char *const *legend;
    size_t legend_count;
};

/* An image that is drawn twice: as PNG in the file `path` (written beside it, then renamed) and as
 * SVG in memory (not when svg is NULL). `body` is the script after the terminal is set. */
struct bl_image {
    int width, height; /* pixels of the SVG; the PNG has 1.5 times as many */
    const struct bl_text *data, *body;
};
int bl_image_draw(const struct bl_image *image, const char *path, char **svg, size_t *bytes,
                  struct bl_error *err);

/* Draws panels below each other, two abreast from four on. Where the raw curve is noisy it is
 * light (left out where many runs share a panel), with a smoothed one on top. All panels have the
 * same range of steps. */
int bl_plot(const struct bl_picture *p, const char *path, char **svg, size_t *bytes,
            struct bl_error *err);

#endif
