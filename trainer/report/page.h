/* The report of one run: PNGs in figures/ and report.html in its directory. */
#ifndef BL_REPORT_PAGE_H
#define BL_REPORT_PAGE_H

#include "base/error.h"

int bl_report_run(const char *directory, struct bl_error *err);

#endif
