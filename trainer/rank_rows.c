#include "rank_rows.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"

struct bl_rank_rows {
    uint32_t ranks, processes;
    double *sorted; /* (ranks) of one column */
    uint64_t *late; /* (processes) steps in a row */
};

int bl_rank_rows_make(uint32_t ranks, uint32_t processes, struct bl_rank_rows **out,
                      struct bl_error *err)
{
    struct bl_rank_rows *r = bl_alloc(1, sizeof *r);
    if (r == NULL)
        goto no_memory;
    r->ranks = ranks;
    r->processes = processes;
    r->sorted = bl_alloc(ranks > processes ? ranks : processes, sizeof *r->sorted);
    r->late = bl_alloc(processes, sizeof *r->late);
    if (r->sorted == NULL || r->late == NULL)
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

/* The median; r->sorted is what its name says. */
static double sort(struct bl_rank_rows *r, const double *values, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        r->sorted[i] = values[i];
    qsort(r->sorted, n, sizeof *r->sorted, compare);
    double low = r->sorted[(n - 1) / 2], high = r->sorted[n / 2];
    return low == high ? low : 0.5 * (low + high);
}

static int same(double a, double b)
{
    return a == b || (isnan(a) && isnan(b));
}

static void emit_column(struct bl_rank_rows *r, const char *column, const double *values,
                        uint32_t n, bl_rank_emit_f *emit, void *context)
{
    double median = sort(r, values, n), max = r->sorted[n - 1];
    uint32_t at = 0;
    while (!same(values[at], max))
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

int bl_rank_rows_add(struct bl_rank_rows *r, const struct bl_rank_columns *v, bl_rank_emit_f *emit,
                     void *context, struct bl_straggler *late)
{
    emit_column(r, "loss", v->loss, r->ranks, emit, context);
    emit_column(r, "grad_norm", v->grad_norm, r->ranks, emit, context);
    emit_column(r, "step_seconds", v->seconds, r->processes, emit, context);
    emit_column(r, "wait_seconds", v->wait_seconds, r->processes, emit, context);

    int found = 0;
    double median = sort(r, v->seconds, r->processes);
    for (uint32_t p = 0; p < r->processes; p++) {
        r->late[p] = v->seconds[p] > BL_LATE_FACTOR * median ? r->late[p] + 1 : 0;
        if (r->late[p] == 0 || r->late[p] % BL_LATE_STEPS != 0)
            continue;
        if (found && late->seconds >= v->seconds[p])
            continue;
        *late = (struct bl_straggler){p, v->seconds[p], median};
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
