#include "rank_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"

struct bl_rank_rows {
    uint32_t processes;
    double *values, *sorted; /* (processes) of one column */
    uint64_t *late;          /* (processes) steps in a row */
};

int bl_rank_rows_make(uint32_t processes, struct bl_rank_rows **out, struct bl_error *err)
{
    struct bl_rank_rows *r = bl_alloc(1, sizeof *r);
    if (r == NULL)
        goto no_memory;
    r->processes = processes;
    r->values = bl_alloc(processes, sizeof *r->values);
    r->sorted = bl_alloc(processes, sizeof *r->sorted);
    r->late = bl_alloc(processes, sizeof *r->late);
    if (r->values == NULL || r->sorted == NULL || r->late == NULL)
        goto no_memory;
    *out = r;
    return 0;
no_memory:
    bl_rank_rows_free(r);
    return bl_error_set(err, BL_EXIT_FAILED, "no memory for the times of %" PRIu32 " processes",
                        processes);
}

void bl_rank_rows_free(struct bl_rank_rows *r)
{
    if (r == NULL)
        return;
    bl_free(r->late);
    bl_free(r->sorted);
    bl_free(r->values);
    bl_free(r);
}

/* NaN comes last. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    if (isnan(x) || isnan(y))
        return isnan(x) - isnan(y);
    return (x > y) - (x < y);
}

/* Of r->values, into r->sorted. */
static double sort(struct bl_rank_rows *r)
{
    uint32_t n = r->processes;
    for (uint32_t p = 0; p < n; p++)
        r->sorted[p] = r->values[p];
    qsort(r->sorted, n, sizeof *r->sorted, compare);
    double low = r->sorted[(n - 1) / 2], high = r->sorted[n / 2];
    return low == high ? low : 0.5 * (low + high);
}

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void emit_column(struct bl_rank_rows *r, const char *column, bl_rank_emit_f *emit,
                        void *context)
{
    double median = sort(r), max = r->sorted[r->processes - 1];
    uint32_t at = 0;
    while (!same(r->values[at], max))
        at++;
    const struct {
        const char *name;
        double value;
    } rows[] = {{"min", r->sorted[0]}, {"median", median}, {"max", max}, {"argmax", at}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char name[64];
        snprintf(name, sizeof name, "rank/%s/%s", column, rows[i].name);
        emit(context, name, rows[i].value);
    }
}

int bl_rank_rows_add(struct bl_rank_rows *r, const double *values, bl_rank_emit_f *emit,
                     void *context, struct bl_straggler *late)
{
    static const char *const columns[BL_RANK_VALUES] = {"loss", "grad_norm", "step_seconds",
                                                        "wait_seconds"};
    for (size_t c = 0; c < BL_RANK_VALUES; c++) {
        for (uint32_t p = 0; p < r->processes; p++)
            r->values[p] = values[(size_t)p * BL_RANK_VALUES + c];
        emit_column(r, columns[c], emit, context);
    }

    int found = 0;
    for (uint32_t p = 0; p < r->processes; p++) {
        const double *v = values + (size_t)p * BL_RANK_VALUES;
        r->values[p] = v[BL_RANK_STEP_SECONDS] - v[BL_RANK_WAIT_SECONDS];
    }
    double median = sort(r);
    for (uint32_t p = 0; p < r->processes; p++) {
        r->late[p] = r->values[p] > BL_LATE_FACTOR * median ? r->late[p] + 1 : 0;
        if (r->late[p] == 0 || r->late[p] % BL_LATE_STEPS != 0)
            continue;
        if (found && late->seconds >= r->values[p])
            continue;
        *late = (struct bl_straggler){p, r->values[p], median};
        found = 1;
    }
    return found;
}

void bl_rank_rows_warn(const struct bl_straggler *late, const char *host, uint64_t step)
{
    bl_log(BL_LOG_WARNING,
           "process %" PRIu32 " (%s) is slow: step %" PRIu64
           " took it %.3g s without waits, the median of all is %.3g s, and so for %d steps or "
           "more; look for other work on its cores, a throttled processor, a slow disk",
           late->process, host, step, late->seconds, late->median, (int)BL_LATE_STEPS);
}
