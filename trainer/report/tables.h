/* The tables of a report. */
#ifndef BL_REPORT_TABLES_H
#define BL_REPORT_TABLES_H

#include "report/document.h"
#include "report/input.h"

/* Last, mean, lowest and highest values of one run. */
void bl_table_values(struct bl_document *d, const struct bl_input *in);
/* Values of several runs at their last common step, with differences to the first run. */
void bl_table_compare(struct bl_document *d, const struct bl_input *in, size_t count);
/* The keys of config.cfg and header.json whose values differ. */
void bl_table_differences(struct bl_document *d, const struct bl_input *in, size_t count);
/* The rule of the detector, and what it found. */
void bl_table_spikes(struct bl_document *d, const struct bl_input *in, size_t count);

/* header_tables.c: what ran, from header.json: facts, precision dials, decay groups, plugins. */
void bl_table_header(struct bl_document *d, const struct bl_input *in);

#endif
