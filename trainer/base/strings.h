/* Small string and file helpers. */
#ifndef BL_BASE_STRINGS_H
#define BL_BASE_STRINGS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

/* A growing text buffer; text is NUL-terminated once something was added. */
struct bl_text {
    char *text;
    size_t length, capacity;
    int failed; /* out of memory happened: check once at the end */
};
void bl_text_add(struct bl_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
void bl_text_free(struct bl_text *t);

/* malloc'd printf; NULL when there is no memory. */
char *bl_format(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Shortest decimal text that reads back to the same double; always has '.', 'e', "inf" or "nan" so
 * that libconfig reads a float. buffer of at least 32 bytes. Independent of the locale. */
const char *bl_double_text(double value, char *buffer);
/* Locale-independent strtod over the whole string; 0 or -1. */
int bl_parse_double(const char *text, double *out);
int bl_parse_int(const char *text, int64_t *out);
/* A whole number above 0 in an environment variable; 0 for anything else. */
int64_t bl_environment_number(const char *name);
/* The candidate (NULL-terminated list) nearest to word by edit distance, NULL when none is near. */
const char *bl_nearest(const char *word, const char *const *candidates);
/* 12.3M, 4.56G ... for people. buffer of at least 32 bytes. */
const char *bl_human(double value, char *buffer);

/* mkdir -p. */
int bl_make_directories(const char *path, struct bl_error *err);
/* All n bytes, however many calls that takes; 0, or -1 with errno. */
int bl_write_all(int fd, const void *bytes, size_t n);
/* For a path that a user named, written beside and renamed over: refuses one that is there and no
 * regular file. A rename would replace the device, pipe or link (as root, one of /dev too). */
int bl_check_target(const char *path, struct bl_error *err);
/* Writes a whole file: temporary beside it, fsync, rename. A reader sees the old or the new.
 * Refuses what bl_check_target does, but replaces a symbolic link. */
int bl_write_file(const char *path, const void *bytes, size_t n, struct bl_error *err);
/* XXH64 (seed 0) of a regular file; 0, or -1 with errno. */
int bl_checksum_file(const char *path, uint64_t *out);
/* Reads a whole regular file (malloc'd, NUL after the end). Refuses more than `limit` bytes. */
int bl_read_file(const char *path, size_t limit, char **out, size_t *n, struct bl_error *err);

#endif
