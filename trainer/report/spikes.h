/* Spikes: values far above what their recent past was spread over.
 *
 * A value x is flagged when
 *
 *     x > median + 6 s,    s = 1.4826 MAD,    MAD = median |h - median|
 *
 * over the history h: the previous 128 accepted values, once there are 16. 1.4826 MAD estimates the
 * standard deviation of normal noise (Hampel 1974). s is at least 1e-6 |median|, so that rounding
 * of a constant is no spike. Non-finite values are flagged always. Flagged values do not enter the
 * history; after 128 of them in a row the level has changed for good and the history starts anew.
 * Only upwards: a fall is what training is for. */
#ifndef BL_REPORT_SPIKES_H
#define BL_REPORT_SPIKES_H

#include "report/series.h"

#define BL_SPIKE_HISTORY   128
#define BL_SPIKE_LEAST     16
#define BL_SPIKE_THRESHOLD 6.0

/* Flagged values that follow each other are one spike. */
struct bl_spike {
    double first, last; /* steps */
    double step, value; /* where it was highest (a non-finite value is) */
    double score;       /* (value - median) / s there; infinite when not finite */
    size_t rows;
};

struct bl_spikes {
    struct bl_spike *items;
    size_t count, capacity;
};

int bl_spikes_find(const struct bl_curve *c, struct bl_spikes *out, struct bl_error *err);
void bl_spikes_free(struct bl_spikes *s);

#endif
