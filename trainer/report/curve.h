/* What has to be done to a curve before it can be drawn. Answers of type int: 0, or -1 without
 * memory. */
#ifndef BL_REPORT_CURVE_H
#define BL_REPORT_CURVE_H

#include "report/series.h"

/* At most 2 * bins points with the same silhouette: the lowest and the highest of each bin, in
 * order. A bin with a non-finite value (with positive != 0: also one that is not positive) has the
 * value NaN among its points: a gap, not a line drawn across it. */
int bl_curve_thin(const struct bl_curve *c, size_t bins, int positive, struct bl_curve *out);
/* Running median, then running mean, over windows that shrink towards the ends so that both ends
 * stay unbiased. Non-finite values are left out. At most `points` points. */
int bl_curve_smooth(const struct bl_curve *c, size_t points, struct bl_curve *out);
/* 1 when the curve has enough points, and enough scatter around `smooth` on an axis from low to
 * high (a logarithmic one with is_log != 0), that a smoothed line on top says more. */
int bl_curve_is_noisy(const struct bl_curve *c, const struct bl_curve *smooth, double low,
                      double high, int is_log);
/* The q-quantile of the finite values from the step `from` on; NaN without any (or no memory). */
double bl_curve_quantile(const struct bl_curve *c, double from, double q);

#endif
