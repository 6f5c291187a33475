#include "model/model.h"

#include <string.h>

#include "base/memory.h"

int bl_rows_make(uint64_t capacity, int pz, int before, struct bl_rows *out, struct bl_error *err)
{
    struct bl_rows r = {.capacity = capacity};
    size_t n = capacity > 0 ? (size_t)capacity : 1;
    double **wanted[] = {&r.lse, &r.target, &r.mean, &r.m2, &r.max};
    double **wanted_before[] = {&r.pre_lse, &r.pre_target, &r.pre_mean, &r.pre_m2, &r.pre_max};
    int failed = 0;

    for (size_t i = 0; i < sizeof(wanted) / sizeof(wanted[0]); i++) {
        failed |= (*wanted[i] = bl_alloc(n, sizeof(double))) == NULL;
        if (before)
            failed |= (*wanted_before[i] = bl_alloc(n, sizeof(double))) == NULL;
    }
    if (pz)
        failed |= (r.pz = bl_alloc(n, sizeof(double))) == NULL;
    failed |= (r.argmax = bl_alloc(n, sizeof(int32_t))) == NULL;
    failed |= (r.valid = bl_alloc(n, 1)) == NULL;
    if (before)
        failed |= (r.pre_argmax = bl_alloc(n, sizeof(int32_t))) == NULL;
    if (failed) {
        bl_rows_free(&r);
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for the statistics of %llu rows",
                            (unsigned long long)capacity);
    }
    *out = r;
    return 0;
}

uint64_t bl_rows_bytes(uint64_t capacity, int pz, int before)
{
    uint64_t set = 5 * sizeof(double) + sizeof(int32_t); /* lse ... max, argmax */

    return capacity * ((before ? 2 : 1) * set + (pz ? sizeof(double) : 0) + 1);
}

void bl_rows_free(struct bl_rows *r)
{
    if (r == NULL)
        return;
    bl_free(r->lse);
    bl_free(r->target);
    bl_free(r->mean);
    bl_free(r->m2);
    bl_free(r->max);
    bl_free(r->pz);
    bl_free(r->argmax);
    bl_free(r->valid);
    bl_free(r->pre_lse);
    bl_free(r->pre_target);
    bl_free(r->pre_mean);
    bl_free(r->pre_m2);
    bl_free(r->pre_max);
    bl_free(r->pre_argmax);
    memset(r, 0, sizeof(*r));
}
