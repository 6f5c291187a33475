#include "report/plot.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/gnuplot.h"

enum { WIDTH = 1000, PANEL = 270, LEFT = 78, RIGHT = 22, TOP = 34, BOTTOM = 44, LEGEND = 22 };

/* Up to this many points each is marked: one alone has no line. */
#define FEW_POINTS 40
/* Raw values of so many runs can still be seen through each other. */
#define MOST_RAW 4
/* More marks than this beside each other cannot be told apart. */
#define MOST_MARKS 300

/* Seven colours of Okabe and Ito (2008), distinguishable with every common colour blindness, and
 * grey: their yellow cannot be seen on white. Dash patterns tell the same in grey. */
static const char *const colours[BL_PLOT_LINES] = {"0072B2", "D55E00", "009E73", "CC79A7",
                                                   "E69F00", "56B4E9", "000000", "808080"};
static const char *const dashes[BL_PLOT_LINES] = {"1",      "(12,4)",        "(4,3)", "(14,4,3,4)",
                                                  "(20,4)", "(7,3,2,3,2,3)", "(2,2)", "(9,7)"};

struct frame {
    double first, last; /* steps */
    size_t bins;        /* points of a curve, halved */
};

static void add_points(struct bl_text *t, size_t panel, size_t line, char kind,
                       const struct bl_curve *c)
{
    bl_text_add(t, "$%c%zu_%zu << EOD\n", kind, panel, line);
    int any = 0;
    for (size_t i = 0; i < c->count; i++) {
        if (isfinite(c->value[i])) {
            bl_text_add(t, "%.10g %.8g\n", c->step[i], c->value[i]);
            any = 1;
        } else {
            bl_text_add(t, "\n");
        }
    }
    /* gnuplot refuses an empty block; this point is outside of every range. */
    bl_text_add(t, any ? "EOD\n" : "-1e9 -1e300\nEOD\n");
}

/* Triangles are kept inside the picture; what is not finite has its at the top. */
static void add_spikes(struct bl_text *t, size_t panel, size_t line, const struct bl_spikes *s,
                       const struct bl_axis *a)
{
    size_t stride = s->count / MOST_MARKS + 1;
    double below =
        a->log ? a->high / pow(a->high / a->low, 0.03) : a->high - 0.03 * (a->high - a->low);
    bl_text_add(t, "$t%zu_%zu << EOD\n", panel, line);
    for (size_t i = 0; i < s->count; i += stride) {
        double v = s->items[i].value;
        bl_text_add(t, "%.10g %.8g\n", s->items[i].step,
                    isfinite(v) ? fmax(fmin(v, below), a->low) : below);
    }
    bl_text_add(t, "EOD\n");
}

static size_t add_skipped(struct bl_text *t, size_t panel, size_t line, const struct bl_line *l,
                          const struct bl_axis *a, const struct frame *f)
{
    double at = a->log ? a->low * pow(a->high / a->low, 0.02) : a->low + 0.02 * (a->high - a->low);
    double previous = -INFINITY, distance = (f->last - f->first) / MOST_MARKS;
    size_t n = 0;
    for (size_t i = 0; l->skipped != NULL && i < l->skipped->count; i++) {
        if (l->skipped->value[i] == 0 || l->skipped->step[i] - previous < distance)
            continue;
        previous = l->skipped->step[i];
        if (n++ == 0)
            bl_text_add(t, "$k%zu_%zu << EOD\n", panel, line);
        bl_text_add(t, "%.10g %.8g\n", previous, at);
    }
    if (n > 0)
        bl_text_add(t, "EOD\n");
    return n;
}

static void add_resumes(struct bl_text *t, const struct bl_panel *p, const struct frame *f)
{
    for (size_t l = 0; l < p->count; l++) {
        const struct bl_series *run = p->lines[l].run;
        double previous = -INFINITY, distance = (f->last - f->first) / MOST_MARKS;
        for (size_t i = 0; run != NULL && i < run->resume_count; i++) {
            if (run->resumes[i] - previous < distance)
                continue;
            previous = run->resumes[i];
            bl_text_add(t,
                        "set arrow from %.10g, graph 0 to %.10g, graph 1 nohead back lw 1 dt (4,4) "
                        "lc rgb '#%s'\n",
                        previous, previous, p->count > 1 ? colours[p->lines[l].style] : "777777");
        }
    }
}

/* The data of one line and what the plot command says about it. */
static int add_line(struct bl_text *data, struct bl_text *command, size_t panel, size_t line,
                    const struct bl_panel *p, const struct bl_axis *a, const struct frame *f,
                    int own_key)
{
    const struct bl_line *l = &p->lines[line];
    const char *colour = colours[l->style], *dash = dashes[l->style];
    struct bl_curve thin = {0}, smooth = {0};
    if (bl_curve_thin(l->curve, f->bins, a->log, &thin) < 0 ||
        bl_curve_smooth(l->curve, f->bins, &smooth) < 0) {
        bl_curve_free(&thin);
        return -1;
    }
    int noisy = bl_curve_is_noisy(l->curve, &smooth, a->low, a->high, a->log);
    int few = l->curve->count <= FEW_POINTS;
    add_points(data, panel, line, 'r', &thin);
    if (noisy)
        add_points(data, panel, line, 's', &smooth);
    /* Several metrics of one run scatter together: the first one's raw values are enough. Those of
     * many runs are a smear. */
    if (noisy && (own_key ? line == 0 : p->count <= MOST_RAW))
        bl_text_add(command, "$r%zu_%zu using 1:2 with lines lw 1 dt 1 lc rgb '#B4%s' notitle, ",
                    panel, line, colour);
    bl_text_add(command, "$%c%zu_%zu using 1:2 with %s lw 2 dt %s lc rgb '#%s' title ",
                noisy ? 's' : 'r', panel, line, few ? "linespoints pt 7 ps 0.6" : "lines",
                few ? "1" : dash, colour);
    if (own_key)
        bl_gnuplot_quote(command, l->label);
    else
        bl_text_add(command, "''");
    if (l->spikes != NULL && l->spikes->count > 0) {
        add_spikes(data, panel, line, l->spikes, a);
        bl_text_add(command,
                    ", $t%zu_%zu using 1:2 with points pt 11 ps 1.1 lc rgb '#%s' title '%s'", panel,
                    line, own_key ? "B00020" : colour, own_key ? "spike" : "");
    }
    if (add_skipped(data, panel, line, l, a, f) > 0)
        bl_text_add(command,
                    ", $k%zu_%zu using 1:2 with points pt 2 ps 0.8 lc rgb '#%s' title '%s'", panel,
                    line, own_key ? "333333" : colour, own_key ? "skipped update" : "");
    bl_curve_free(&thin);
    bl_curve_free(&smooth);
    return 0;
}

/* Where a panel is, as parts of the whole image. */
static void add_place(struct bl_text *t, size_t index, size_t columns, int top, int height)
{
    int width = WIDTH / (int)columns, column = (int)(index % columns);
    int row = (int)(index / columns);
    double y = height - top - row * PANEL; /* upper edge of the panel, counted from below */
    bl_text_add(t,
                "set lmargin at screen %.5f\nset rmargin at screen %.5f\n"
                "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
                (double)(column * width + LEFT) / WIDTH,
                (double)((column + 1) * width - RIGHT) / WIDTH, (y - TOP) / height,
                (y - PANEL + BOTTOM) / height);
}

static int add_panel(struct bl_text *data, struct bl_text *body, const struct bl_panel *p,
                     size_t index, const struct frame *f, int own_key)
{
    const struct bl_curve *curves[BL_PLOT_LINES];
    struct bl_text command = {0};
    int marked = 0, rc = 0;
    for (size_t l = 0; l < p->count; l++) {
        curves[l] = p->lines[l].curve;
        marked |= p->lines[l].spikes != NULL && p->lines[l].spikes->count > 0;
        marked |= p->lines[l].skipped != NULL;
    }
    struct bl_axis a = bl_axis_make(curves, p->count, p->axis);
    for (size_t l = 0; l < p->count && rc == 0; l++) {
        bl_text_add(&command, "%s", l ? ", " : "plot ");
        rc = add_line(data, &command, index, l, p, &a, f, own_key);
    }
    bl_text_add(body, "unset arrow\nunset label\nset label 1 ");
    bl_gnuplot_quote(body, p->title);
    bl_text_add(body, " at graph 0, graph 1 offset 0,0.9 left noenhanced font ',13'\n");
    if (a.hidden > 0)
        bl_text_add(body,
                    "set label 2 '%zu %s above, up to %.4g' at graph 0.99, graph 0.95 right "
                    "font ',10' tc rgb '#666666'\n",
                    a.hidden, a.hidden == 1 ? "value" : "values", a.top);
    bl_axis_add(&a, "y", body);
    add_resumes(body, p, f);
    if (own_key && (p->count > 1 || marked))
        bl_text_add(body, "set key at graph 1, graph 1.02 right bottom horizontal noenhanced "
                          "samplen 2.5 maxrows 1 font ',11'\n");
    else
        bl_text_add(body, "unset key\n");
    bl_text_add(body, "%s\n", command.text != NULL ? command.text : "");
    rc = command.failed ? -1 : rc;
    bl_text_free(&command);
    return rc;
}

/* The strip above all panels: a piece of each line and its name. */
struct strip {
    size_t columns;
    int width, height; /* of a column; of the strip */
};

static struct strip make_strip(const struct bl_picture *p)
{
    size_t longest = 1, columns;
    if (p->legend_count == 0)
        return (struct strip){1, 0, 0};
    for (size_t i = 0; i < p->legend_count; i++) {
        size_t n = strlen(p->legend[i]);
        longest = n > longest ? n : longest;
    }
    columns = (WIDTH - LEFT) / (8 * longest + 72);
    columns = columns < 1 ? 1 : columns > p->legend_count ? p->legend_count : columns;
    size_t rows = (p->legend_count + columns - 1) / columns;
    return (struct strip){columns, (WIDTH - LEFT) / (int)columns, (int)rows * LEGEND + 8};
}

static void add_legend(struct bl_text *t, const struct bl_picture *p, const struct strip *s,
                       int height)
{
    for (size_t i = 0; i < p->legend_count; i++) {
        double x = LEFT + (int)(i % s->columns) * s->width;
        double y = height - 14 - (int)(i / s->columns) * LEGEND;
        bl_text_add(t,
                    "set arrow from screen %.5f, screen %.5f to screen %.5f, screen %.5f nohead "
                    "lw 2.5 dt %s lc rgb '#%s'\nset label ",
                    x / WIDTH, y / height, (x + 46) / WIDTH, y / height, dashes[i], colours[i]);
        bl_gnuplot_quote(t, p->legend[i]);
        bl_text_add(t, " at screen %.5f, screen %.5f left noenhanced font ',12'\n",
                    (x + 54) / WIDTH, y / height);
    }
    /* a plot of nothing has it drawn */
    bl_text_add(t, "unset border\nunset tics\nunset grid\nunset xlabel\nunset logscale\n"
                   "set yrange [0:1]\nunset key\nplot NaN notitle\n");
}

static struct frame make_frame(const struct bl_picture *p)
{
    struct frame f = {INFINITY, -INFINITY, 0};
    size_t lines = 1;
    for (size_t i = 0; i < p->count; i++) {
        for (size_t l = 0; l < p->panels[i].count; l++) {
            const struct bl_curve *c = p->panels[i].lines[l].curve;
            f.first = fmin(f.first, c->step[0]);
            f.last = fmax(f.last, c->step[c->count - 1]);
        }
        lines = p->panels[i].count > lines ? p->panels[i].count : lines;
    }
    f.bins = lines > 4 ? 300 : 600;
    return f;
}

int bl_plot(const struct bl_picture *p, const char *path, char **svg, size_t *bytes,
            struct bl_error *err)
{
    struct bl_text data = {0}, body = {0};
    size_t columns = p->count >= 4 ? 2 : 1, rows = (p->count + columns - 1) / columns;
    struct strip strip = make_strip(p);
    int height = strip.height + (int)rows * PANEL + 6, rc = 0;
    struct frame f = make_frame(p);
    bl_text_add(&body, "set multiplot\nset grid lc rgb '#E4E4E4' lt 1 lw 1\nset border 3 lc rgb "
                       "'#555555'\nset tics nomirror tc rgb '#222222'\n");
    double margin = f.first == f.last ? 1 : 0;
    bl_text_add(&body, "set xrange [%.10g:%.10g]\n", f.first - margin, f.last + margin);
    for (size_t i = 0; i < p->count && rc == 0; i++) {
        if (i + columns >= p->count)
            bl_text_add(&body, "set xlabel 'step' offset 0,0.4\n");
        add_place(&body, i, columns, strip.height, height);
        rc = add_panel(&data, &body, &p->panels[i], i, &f, p->legend_count == 0);
    }
    bl_text_add(&body, "unset arrow\nunset label\n");
    if (p->legend_count > 0)
        add_legend(&body, p, &strip, height);
    bl_text_add(&body, "unset multiplot\n");
    struct bl_image image = {WIDTH, height, &data, &body};
    if (rc < 0)
        bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path);
    else
        rc = bl_image_draw(&image, path, svg, bytes, err);
    bl_text_free(&data);
    bl_text_free(&body);
    return rc;
}
