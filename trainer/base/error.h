/* Errors: caller-owned struct bl_error as the last argument, 0 / -1 as the answer. */
#ifndef BL_BASE_ERROR_H
#define BL_BASE_ERROR_H

#include <ballast/plugin.h>

/* Exit codes of the program; bl_error.code holds one of them. */
enum bl_exit {
    BL_EXIT_DONE = 0,
    BL_EXIT_FAILED = 1,
    BL_EXIT_USAGE = 2,      /* usage or configuration */
    BL_EXIT_PLUGIN = 3,     /* plugin refused */
    BL_EXIT_DATA = 4,       /* data refused */
    BL_EXIT_CHECKPOINT = 5, /* checkpoint refused */
    BL_EXIT_PEER = 6,       /* a peer was lost */
    BL_EXIT_DIVERGED = 7,   /* non-finite, cause named */
    BL_EXIT_REQUEUE = 75,   /* stopped early with a checkpoint */
    BL_EXIT_INTERRUPTED = 130
};

#define BL_ERROR_INIT                                                                              \
    {                                                                                              \
        sizeof(struct bl_error), 0,                                                                \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Fills err (NULL is fine) with a one-line message; returns -1. Keeps errno. A message that is
 * already there is replaced. */
int bl_error_set(struct bl_error *err, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Puts "prefix: " before the message that is there; returns -1. */
int bl_error_prefix(struct bl_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
