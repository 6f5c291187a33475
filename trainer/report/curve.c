#include "report/curve.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Fewer points than this are seen one by one. */
#define NOISE_LEAST 48
/* Scatter of more than this part of the axis can be seen as such. */
#define NOISE_VISIBLE 0.008

static int add_or_free(struct bl_curve *c, double step, double value)
{
    int rc = bl_curve_add(c, step, value);
    if (rc < 0)
        bl_curve_free(c);
    return rc;
}

int bl_curve_thin(const struct bl_curve *c, size_t bins, int positive, struct bl_curve *out)
{
    struct bl_curve thin = {0};
    size_t n = c->count, parts = n <= 2 * bins ? n : bins;
    for (size_t b = 0; b < parts; b++) {
        size_t first = b * n / parts, end = (b + 1) * n / parts, low = end, high = end, gap = end;
        for (size_t i = first; i < end; i++) {
            double v = c->value[i];
            if (!isfinite(v) || (positive && v <= 0)) {
                gap = i;
                continue;
            }
            if (low == end || v < c->value[low])
                low = i;
            if (high == end || v > c->value[high])
                high = i;
        }
        size_t a = low < high ? low : high, z = low < high ? high : low;
        if (a < end && add_or_free(&thin, c->step[a], c->value[a]) < 0)
            return -1;
        if (z < end && z != a && add_or_free(&thin, c->step[z], c->value[z]) < 0)
            return -1;
        if (gap < end && add_or_free(&thin, c->step[gap], NAN) < 0)
            return -1;
    }
    *out = thin;
    return 0;
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median of n values; sorts them. */
static double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, ascending);
    return n % 2 ? v[n / 2] : v[n / 2 - 1] / 2 + v[n / 2] / 2;
}

/* The half width of a window around i that stays inside [0, n) on both sides. */
static size_t half_width(size_t i, size_t n, size_t wanted)
{
    size_t half = wanted < i ? wanted : i;
    return half < n - 1 - i ? half : n - 1 - i;
}

int bl_curve_smooth(const struct bl_curve *c, size_t points, struct bl_curve *out)
{
    /* Medians are taken at most at 1024 places and over at most 65 values of each window: a window
     * of a long run holds far more than its median needs. */
    size_t n = 0, half = 0;
    struct bl_curve smooth = {0};
    double *value = malloc((c->count + 1) * sizeof *value);
    double *step = malloc((c->count + 1) * sizeof *step);
    double *centre = malloc((points + 1) * sizeof *centre);
    int rc = -1;
    if (value == NULL || step == NULL || centre == NULL)
        goto done;
    for (size_t i = 0; i < c->count; i++) {
        if (isfinite(c->value[i])) {
            value[n] = c->value[i];
            step[n++] = c->step[i];
        }
    }
    half = n / 100 + 2;
    size_t places = n < points ? n : points;
    for (size_t p = 0; p < places; p++) {
        double window[65];
        size_t i = places < 2 ? 0 : p * (n - 1) / (places - 1), k = 0;
        size_t h = half_width(i, n, half), stride = (2 * h) / 64 + 1;
        /* symmetric around i, so that a slope does not shift the median */
        window[k++] = value[i];
        for (size_t d = stride; d <= h; d += stride) {
            window[k++] = value[i - d];
            window[k++] = value[i + d];
        }
        centre[p] = median(window, k);
    }
    size_t mean_half = n == 0 ? 0 : half * places / n / 2 + 1;
    for (size_t p = 0; p < places; p++) {
        size_t h = half_width(p, places, mean_half);
        double sum = 0;
        for (size_t q = p - h; q <= p + h; q++)
            sum += centre[q] / (double)(2 * h + 1);
        size_t i = places < 2 ? 0 : p * (n - 1) / (places - 1);
        if (bl_curve_add(&smooth, step[i], sum) < 0)
            goto done;
    }
    *out = smooth;
    memset(&smooth, 0, sizeof smooth);
    rc = 0;
done:
    bl_curve_free(&smooth);
    free(value);
    free(step);
    free(centre);
    return rc;
}

/* Distances on a logarithmic axis are those of logarithms; NaN for what it cannot show. */
static double on_axis(double v, int is_log)
{
    return !is_log ? v : v > 0 ? log(v) : NAN;
}

int bl_curve_is_noisy(const struct bl_curve *c, const struct bl_curve *smooth, double low,
                      double high, int is_log)
{
    double height = on_axis(high, is_log) - on_axis(low, is_log), sum = 0;
    size_t n = 0, s = 0;
    if (c->count < NOISE_LEAST || smooth->count < 2 || !(height > 0))
        return 0;
    for (size_t i = 0; i < c->count; i++) {
        while (s + 2 < smooth->count && smooth->step[s + 1] < c->step[i])
            s++;
        double t = (c->step[i] - smooth->step[s]) / (smooth->step[s + 1] - smooth->step[s]);
        double line = smooth->value[s] + t * (smooth->value[s + 1] - smooth->value[s]);
        double d = fabs(on_axis(c->value[i], is_log) - on_axis(line, is_log));
        if (isfinite(d)) {
            sum += fmin(d, height); /* one outlier is not noise */
            n++;
        }
    }
    return n > 0 && sum / (double)n > NOISE_VISIBLE * height;
}

double bl_curve_quantile(const struct bl_curve *c, double from, double q)
{
    double *v = malloc((c->count + 1) * sizeof *v), answer = NAN;
    size_t n = 0;
    if (v == NULL)
        return NAN;
    for (size_t i = 0; i < c->count; i++) {
        if (c->step[i] >= from && isfinite(c->value[i]))
            v[n++] = c->value[i];
    }
    if (n > 0) {
        qsort(v, n, sizeof *v, ascending);
        answer = v[(size_t)((double)(n - 1) * q + 0.5)];
    }
    free(v);
    return answer;
}
