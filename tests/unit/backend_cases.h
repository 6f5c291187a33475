/* Cases of the op table. Each one builds inputs from fixed random numbers, runs an op and records
 * its outputs after comparing them with fp64 references and derived bounds. */
#ifndef BL_TESTS_BACKEND_CASES_H
#define BL_TESTS_BACKEND_CASES_H

#include "backend/backend.h"

struct record {
    struct bl_backend *b;
    struct block *blocks; /* of the case's own numbers */
    void *device[64];
    int devices;
    float *values; /* outputs in the order they were recorded */
    uint64_t count;
    int exact; /* the bits must not depend on the instruction set */
    uint64_t stream;
    char what[160];
};

struct variant {
    uint64_t rows, a, b; /* two more sizes, as the op needs them */
    uint32_t act;
    int flag, more;
};

struct op_case {
    void (*run)(struct record *r, const struct variant *v);
    struct variant v;
};

extern const struct op_case op_cases[];
extern const unsigned op_case_count;

void record_finish(struct record *r);

#endif
