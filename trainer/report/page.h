/* Reports: figures/ with PNGs, report.html and report.md in one directory. */
#ifndef BL_REPORT_PAGE_H
#define BL_REPORT_PAGE_H

#include <stddef.h>

#include "base/error.h"

/* So many runs can be told apart in one panel. */
#define BL_REPORT_MOST 8

/* One run: its own report, in its directory. Several: compared, in the folder that holds the first.
 * `out` (NULL: as said) is another directory to write into; it is made. Prints what it wrote. */
int bl_report(char *const *runs, size_t count, const char *out, struct bl_error *err);

#endif
