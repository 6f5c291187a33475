#include "report/axis.h"

#include <math.h>

/* gnuplot's arithmetic overflows near the largest double. */
#define LARGEST 1e300
/* A log axis shows at most this many decades below its top. */
#define DECADES 12

struct span {
    double low, high, positive; /* positive: the lowest value above 0 */
};

static struct span find_span(const struct bl_curve *const *curves, size_t count)
{
    struct span s = {INFINITY, -INFINITY, INFINITY};
    for (size_t c = 0; c < count; c++) {
        for (size_t i = 0; i < curves[c]->count; i++) {
            double v = curves[c]->value[i];
            if (!isfinite(v))
                continue;
            s.low = fmin(s.low, v);
            s.high = fmax(s.high, v);
            if (v > 0)
                s.positive = fmin(s.positive, v);
        }
    }
    return s;
}

/* Whether the middle 98% of all curves together span more than `ratio`. */
static int spans(const struct bl_curve *const *curves, size_t count, double ratio)
{
    double low = INFINITY, high = 0;
    for (size_t c = 0; c < count; c++) {
        low = fmin(low, bl_curve_quantile(curves[c], -INFINITY, 0.01));
        high = fmax(high, bl_curve_quantile(curves[c], -INFINITY, 0.99));
    }
    return low > 0 && high / low > ratio;
}

/* Cuts the top: the highest 0.5% after the first tenth of the steps may leave the picture, and what
 * came before does not count; but only where that gains a third of the height. */
static void zoom(const struct bl_curve *const *curves, size_t count, struct bl_axis *a)
{
    double first = INFINITY, last = -INFINITY, high = -INFINITY;
    size_t values = 0;
    for (size_t c = 0; c < count; c++) {
        if (curves[c]->count == 0)
            continue;
        first = fmin(first, curves[c]->step[0]);
        last = fmax(last, curves[c]->step[curves[c]->count - 1]);
        values = values > curves[c]->count ? values : curves[c]->count;
    }
    if (values < 20)
        return;
    for (size_t c = 0; c < count; c++) {
        double q = bl_curve_quantile(curves[c], first + (last - first) / 10, 0.995);
        high = fmax(high, q); /* fmax leaves a NaN out */
    }
    double cut = a->low + 1.1 * (high - a->low);
    if (!(high > a->low) || a->high - a->low < 1.5 * (cut - a->low))
        return;
    a->high = cut;
    for (size_t c = 0; c < count; c++) {
        size_t above = 0;
        for (size_t i = 0; i < curves[c]->count; i++)
            above += isfinite(curves[c]->value[i]) && curves[c]->value[i] > cut;
        a->hidden = above > a->hidden ? above : a->hidden;
    }
}

struct bl_axis bl_axis_make(const struct bl_curve *const *curves, size_t count,
                            enum bl_axis_kind kind)
{
    struct span s = find_span(curves, count);
    struct bl_axis a = {s.low, s.high, 0, 0, s.high};
    if (s.low > s.high)
        return (struct bl_axis){0, 1, 0, 0, 0};
    if (kind == BL_AXIS_ZOOM) {
        zoom(curves, count, &a);
        a.log = a.low > 0 && a.high / a.low > 100; /* it diverged: no range fits a linear axis */
    }
    if (kind == BL_AXIS_AUTO)
        a.log = s.low > 0 && spans(curves, count, 50);
    if (kind == BL_AXIS_LOG)
        a.log = isfinite(s.positive);
    a.low = fmin(fmax(a.low, -LARGEST), LARGEST);
    a.high = fmin(fmax(a.high, -LARGEST), LARGEST);
    if (a.log) {
        a.low = fmax(fmin(s.positive, a.high), a.high * pow(10, -DECADES));
        double margin = fmax(pow(a.high / a.low, 0.05), 1.05);
        a.low = fmax(a.low / margin, 1e-300);
        a.high *= margin;
        return a;
    }
    double margin = 0.05 * (a.high - a.low);
    if (margin == 0)
        margin = a.low == 0 ? 1 : fabs(a.low) / 10;
    if (a.hidden > 0) {
        a.low -= margin;
    } else {
        a.low -= margin;
        a.high += margin;
    }
    return a;
}

/* gnuplot labels decades only; an axis of one or two has too few labels then. */
static void add_log_tics(const struct bl_axis *a, const char *axis, struct bl_text *out)
{
    static const double digits[] = {1, 1.5, 2, 3, 5, 7};
    const char *separator = "";
    double decades = log10(a->high / a->low);
    bl_text_add(out, "set logscale %s\nset format %s '%s'\n", axis, axis,
                decades > 4 ? "10^{%T}" : "%g");
    if (decades > 3) {
        bl_text_add(out, "set %stics autofreq\n", axis);
        return;
    }
    bl_text_add(out, "set %stics (", axis);
    for (int e = (int)floor(log10(a->low)); e <= (int)ceil(log10(a->high)); e++) {
        for (size_t d = 0; d < sizeof digits / sizeof *digits; d++) {
            double tic = digits[d] * pow(10, e);
            int wanted = decades > 1.5 ? d == 0 : decades > 0.7 ? d == 0 || d == 2 || d == 4 : 1;
            if (!wanted || tic < a->low || tic > a->high)
                continue;
            bl_text_add(out, "%s%.6g", separator, tic);
            separator = ", ";
        }
    }
    bl_text_add(out, ")\n");
}

void bl_axis_add(const struct bl_axis *a, const char *axis, struct bl_text *out)
{
    bl_text_add(out, "set %srange [%.10g:%.10g]\n", axis, a->low, a->high);
    if (a->log)
        add_log_tics(a, axis, out);
    else
        bl_text_add(out, "unset logscale %s\nset format %s '%%g'\nset %stics autofreq\n", axis,
                    axis, axis);
}
