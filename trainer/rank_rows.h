/* What differs between the ranks and the processes of a run, in each step: metrics of the spread,
 * and who is slow. */
#ifndef BL_RANK_ROWS_H
#define BL_RANK_ROWS_H

#include <stdint.h>

#include "base/error.h"

struct bl_rank_columns {
    const double *loss, *grad_norm;       /* (ranks) */
    const double *seconds, *wait_seconds; /* (processes) own work of a step; waits for others */
};

/* Late: in a step, whose own work exceeds BL_LATE_FACTOR times the median of all. Processes wait
 * for each other, so whole steps last equally long and tell nothing. */
enum { BL_LATE_STEPS = 10 };
#define BL_LATE_FACTOR 2.0

struct bl_straggler {
    uint32_t process;
    double seconds, median;
};

struct bl_rank_rows;

int bl_rank_rows_make(uint32_t ranks, uint32_t processes, struct bl_rank_rows **out,
                      struct bl_error *err);
void bl_rank_rows_free(struct bl_rank_rows *r);

typedef void bl_rank_emit_f(void *context, const char *name, double value);

/* Emits rank/loss/min, rank/loss/median, rank/loss/max, rank/loss/argmax, and so on for grad_norm,
 * step_seconds and wait_seconds: the median of an even number is the mean of the middle two; argmax
 * is the lowest rank or process that has the maximum. NaN counts as more than infinity, so that max
 * and argmax name it.
 *
 * 1 and *late: this process has been late in BL_LATE_STEPS steps in a row, or a multiple of them;
 * of several the slowest. Else 0. */
int bl_rank_rows_add(struct bl_rank_rows *r, const struct bl_rank_columns *values,
                     bl_rank_emit_f *emit, void *context, struct bl_straggler *late);
/* The warning; the log shows the 1st, 2nd, 4th ... of its kind. */
void bl_rank_rows_warn(const struct bl_straggler *late, const char *host, uint64_t step);

#endif
