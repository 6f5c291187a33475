/* The log: lines on stderr and, once opened, in log.txt. The level is the only global. */
#ifndef BL_BASE_LOG_H
#define BL_BASE_LOG_H

#include <stdarg.h>

#include <ballast/plugin.h> /* enum bl_log_level */

void bl_log_level(int level);
/* Copies every line to this file too (append); NULL closes it. 0, or -1 with errno. Either way the
 * counts of repeated warnings begin anew, after a line for each that was not always shown. */
int bl_log_file(const char *path);
/* A live progress line on a terminal: shown in place, moved aside by log lines. "" removes it. */
void bl_log_progress(const char *line);
/* Warnings are of one kind when they come from the same `who` with the same format; of those only
 * the 1st, 2nd, 4th, 8th ... are shown, with how many there were. Other levels are always shown. */
void bl_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bl_log_by(int level, const char *who, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* A line for the file alone: what the caller prints elsewhere. */
void bl_log_record(int level, const char *text);
void bl_logv(int level, const char *who, const char *format, va_list args);

#endif
