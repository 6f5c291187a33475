/* Alarm rules: what to do when a metric leaves its bounds. They look at each row of metrics before
 * it is emitted and say what is due; the run does it. */
#ifndef BL_ALARMS_H
#define BL_ALARMS_H

#include "config/config.h"
#include "metrics/metrics.h"

struct bl_alarms;

struct bl_alarms_verdict {
    int checkpoint; /* a rule wants one of this step */
    char stop[400]; /* not empty: the run has to end, and this is why */
};

/* `rules` (and what they point to) outlive the alarms. */
int bl_alarms_make(const struct bl_alarm *rules, size_t count, struct bl_alarms **out,
                   struct bl_error *err);
void bl_alarms_free(struct bl_alarms *a);

/* An episode of a metric begins with the row that makes `for` rows outside in a row and ends with
 * the first one inside; rows without the metric change nothing. Each beginning is a warning. A
 * rule wants its checkpoint when an episode begins while it has no other; a rule that stops does so
 * in every row of an episode, so that a run started again does not slip past it. */
int bl_alarms_check(struct bl_alarms *a, uint64_t step, const struct bl_metrics_row *row,
                    struct bl_alarms_verdict *out, struct bl_error *err);
/* Warns of every rule that no name in the rows so far matches, nor one of `later` (ends with
 * NULL): names that rows to come will have. */
void bl_alarms_check_names(const struct bl_alarms *a, const struct bl_metrics_row *row,
                           const char *const *later);

/* The counts as text (malloc'd), so that a resumed run alarms where an uninterrupted one does.
 * Loading gives them to the rules that are the same as when they were saved. */
int bl_alarms_save(const struct bl_alarms *a, char **out, struct bl_error *err);
int bl_alarms_load(struct bl_alarms *a, const void *text, uint64_t bytes, struct bl_error *err);

#endif
