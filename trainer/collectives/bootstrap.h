/* How the processes of a job find each other: each one's number, how many they are, and one
 * exchange of short texts. */
#ifndef BL_COLLECTIVES_BOOTSTRAP_H
#define BL_COLLECTIVES_BOOTSTRAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { BL_PROCESS_LIMIT = 65536, BL_CARD_LIMIT = 65536 /* bytes of a text */ };

struct bl_bootstrap {
    const char *method;
    uint32_t process, processes;
    double timeout;
    void *state;
    /* cards[p] := what process p brought, malloc'd; on an error all are freed. A text has letters,
     * digits, spaces and ':' only. Called once. */
    int (*gather)(struct bl_bootstrap *b, const char *mine, char **cards, struct bl_error *err);
    void (*close)(struct bl_bootstrap *b);
};

/* The first method that applies; close with bl_bootstrap_close, also after an error. */
int bl_bootstrap_open(double timeout, struct bl_bootstrap *out, struct bl_error *err);
void bl_bootstrap_close(struct bl_bootstrap *b);

/* One method each: 1 it applies, 0 it does not, -1 it would but cannot. */
int bl_bootstrap_pmi2(struct bl_bootstrap *b, struct bl_error *err);
int bl_bootstrap_environment(struct bl_bootstrap *b, struct bl_error *err);

/* A whole number in [least, most] in an environment variable. 1, 0 when it is not set, -1. */
int bl_bootstrap_number(const char *name, int64_t least, int64_t most, int64_t *out,
                        struct bl_error *err);

#endif
