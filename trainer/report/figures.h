/* The figures of a report: which metrics are drawn, how, and what is said about them. */
#ifndef BL_REPORT_FIGURES_H
#define BL_REPORT_FIGURES_H

#include "report/document.h"
#include "report/input.h"

/* Where a report goes. */
struct bl_report {
    const char *directory; /* holds report.html, report.md, figures/ */
    struct bl_document document;
};

/* Curves: with one run the metrics of a panel overlaid, with several one metric a panel and the
 * runs overlaid. Panels and figures without data are left out, and what an earlier report drew for
 * them is removed. Prints the paths of what it wrote. */
int bl_figures_add(struct bl_report *r, const struct bl_input *in, size_t count,
                   struct bl_error *err);
/* Heat maps, tensor or layer by step, of the metrics that exist for each of them; with run NULL
 * only removes those that are there. */
int bl_heat_add(struct bl_report *r, const struct bl_input *run, struct bl_error *err);

/* DIRECTORY/figures/FILE; NULL without memory. */
char *bl_figure_path(const struct bl_report *r, const char *file);

#endif
