/* gnuplot as a program that reads a script. */
#ifndef BL_REPORT_GNUPLOT_H
#define BL_REPORT_GNUPLOT_H

#include "base/strings.h"

/* Runs the script; user settings (~/.gnuplot) do not count. What gnuplot prints is kept from the
 * terminal; its last line is in the error message when it fails. */
int bl_gnuplot(const struct bl_text *script, struct bl_error *err);
/* Text to be drawn, in gnuplot's single quotes, where only the quote itself is special. Control
 * characters become spaces; bytes that are not UTF-8 become U+FFFD, since one of them makes the
 * whole SVG file unreadable. */
void bl_gnuplot_quote(struct bl_text *t, const char *text);
/* The name of a file, byte for byte. */
void bl_gnuplot_path(struct bl_text *t, const char *path);

#endif
