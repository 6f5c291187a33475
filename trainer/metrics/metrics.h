/* One step's row of metrics and the sinks it goes to. */
#ifndef BL_METRICS_METRICS_H
#define BL_METRICS_METRICS_H

#include "plugin/host.h"

struct bl_metrics;

int bl_metrics_make(struct bl_plugin_instance *const *sinks, size_t count, struct bl_metrics **out,
                    struct bl_error *err);
/* Adds or replaces a value in the current row; the name is copied. */
void bl_metrics_set(struct bl_metrics *m, const char *name, double value);

/* The row so far, valid until the next set or emit. An id is small and stands for the same name in
 * every row. */
struct bl_metrics_row {
    size_t count;
    const char *const *names; /* in the order they were set first */
    const double *values;
    const uint32_t *ids;
};
void bl_metrics_row(const struct bl_metrics *m, struct bl_metrics_row *out);

/* Hands the row to every sink and clears it. Its time is the clock on the wall at the first row,
 * plus what the monotonic clock says has gone by since: a wall clock that is set back cannot make
 * rows go back. A sink that fails is logged and counted; after 10 failures in a row it is tried
 * only after a pause of 10 rows, then 20, 40, up to 1024, until it works again. The rows that it
 * misses count too. */
void bl_metrics_emit(struct bl_metrics *m, uint64_t step, uint32_t attempt);
void bl_metrics_finish(struct bl_metrics *m);
uint64_t bl_metrics_failures(const struct bl_metrics *m);
void bl_metrics_free(struct bl_metrics *m);

#endif
