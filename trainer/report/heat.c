#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/figures.h"
#include "report/gnuplot.h"
#include "report/plot.h"

enum { MOST_ROWS = 600, MOST_BINS = 240, WIDTH = 1000, TALLEST = 1500 };

/* A metric that exists for every tensor (or layer): prefix + tensor + suffix. */
struct kind {
    const char *prefix, *suffix, *file, *title, *caption;
};

static const struct kind kinds[] = {
    {"grad/", "/norm", "tensor_grad_norm.png", "Gradient norm by tensor",
     "L2 norm of the reduced gradient before guards."},
    {"grad/", "/share", "tensor_grad_share.png", "Share of the gradient by tensor",
     "Part of the squared gradient norm that each tensor owns."},
    {"param/", "/norm", "tensor_param_norm.png", "Parameter norm by tensor", "L2 norm of weights."},
    {"update/", "/ratio", "tensor_update_ratio.png", "Relative update by tensor",
     "Norm of the update divided by the norm of the weights."},
    {"effective_lr/", "", "tensor_effective_lr.png", "Effective learning rate by tensor", ""},
    {"moment2/", "/rms", "tensor_moment2.png", "Second moment by tensor",
     "RMS of the optimizer's second moment."},
    {"act/", "/rms", "layer_act_rms.png", "Activations by layer: RMS", ""},
    {"act/", "/max", "layer_act_max.png", "Activations by layer: largest", ""},
    {"attn/", "/logit_max", "layer_attn_logit_max.png", "Attention logits by layer: largest", ""},
    {"attn/", "/entropy", "layer_attn_entropy.png", "Attention entropy by layer", ""},
};

struct row {
    const struct bl_curve *curve;
    char name[64];
    long order; /* embedding, layers by number, the rest */
    size_t index;
};

static int by_order(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->order != y->order)
        return x->order < y->order ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static long order_of(const char *name)
{
    if (strncmp(name, "embed", 5) == 0 || strncmp(name, "position", 8) == 0)
        return -1;
    if (strncmp(name, "layers.", 7) == 0)
        name += 7;
    return *name >= '0' && *name <= '9' ? strtol(name, NULL, 10) : 1000000000;
}

/* Fills rows (NULL: only counts). */
static size_t find_rows(const struct bl_series *s, const struct kind *k, struct row *rows)
{
    size_t n = 0, prefix = strlen(k->prefix), suffix = strlen(k->suffix);
    for (size_t i = 0; i < s->count; i++) {
        const struct bl_curve *c = &s->curves[i];
        size_t length = strlen(c->name);
        if (c->count == 0 || length <= prefix + suffix ||
            strncmp(c->name, k->prefix, prefix) != 0 ||
            strcmp(c->name + length - suffix, k->suffix) != 0)
            continue;
        if (rows != NULL) {
            snprintf(rows[n].name, sizeof rows[n].name, "%.*s", (int)(length - prefix - suffix),
                     c->name + prefix);
            rows[n].curve = c;
            rows[n].order = order_of(rows[n].name);
            rows[n].index = n;
        }
        n++;
    }
    if (rows != NULL)
        qsort(rows, n, sizeof *rows, by_order);
    return n;
}

/* Steps in equal bins; a bin has the geometric mean of its positive values. */
struct grid {
    double first, last; /* centres of the first and the last bin */
    size_t rows, bins;
    double *cell; /* (rows, bins), NaN = nothing to show */
};

static void fill_row(struct grid *g, size_t row, const struct bl_curve *c)
{
    double *cell = g->cell + row * g->bins, sum = 0;
    size_t n = 0, previous = 0;
    for (size_t i = 0; i < c->count; i++) {
        size_t bin =
            g->bins == 1
                ? 0
                : (size_t)((c->step[i] - g->first) / (g->last - g->first) * (double)(g->bins - 1) +
                           0.5);
        if (bin != previous) {
            /* a monitor that looks more rarely than there are bins holds its last value */
            for (size_t b = previous + 1; b < bin; b++)
                cell[b] = cell[previous];
            sum = 0;
            n = 0;
            previous = bin;
        }
        if (isfinite(c->value[i]) && c->value[i] > 0) {
            sum += log(c->value[i]);
            n++;
        }
        cell[bin] = n > 0 ? exp(sum / (double)n) : NAN;
    }
}

static int make_grid(const struct row *rows, size_t count, struct grid *out, struct bl_error *err)
{
    struct grid g = {INFINITY, -INFINITY, count, 1, NULL};
    for (size_t i = 0; i < count; i++) {
        const struct bl_curve *c = rows[i].curve;
        g.first = fmin(g.first, c->step[0]);
        g.last = fmax(g.last, c->step[c->count - 1]);
        g.bins = c->count > g.bins ? c->count : g.bins;
    }
    g.bins = g.first == g.last ? 1 : g.bins < MOST_BINS ? g.bins : MOST_BINS;
    g.cell = malloc(g.rows * g.bins * sizeof *g.cell);
    if (g.cell == NULL)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    for (size_t i = 0; i < g.rows * g.bins; i++)
        g.cell[i] = NAN;
    for (size_t i = 0; i < count; i++)
        fill_row(&g, i, rows[i].curve);
    *out = g;
    return 0;
}

/* From the 2nd percentile up: a gradient that is zero but for rounding would take the colours. */
static struct bl_axis colour_axis(const struct grid *g)
{
    size_t n = g->rows * g->bins;
    struct bl_curve all = {.count = n, .step = g->cell, .value = g->cell};
    double low = bl_curve_quantile(&all, -INFINITY, 0.02);
    double high = bl_curve_quantile(&all, -INFINITY, 1);
    if (!(low > 0))
        return (struct bl_axis){.low = 0.1, .high = 1, .log = 1};
    if (high / low < 1.2) {
        low /= 1.1;
        high *= 1.1;
    }
    return (struct bl_axis){.low = low, .high = high, .log = 1};
}

static void add_cells(struct bl_text *t, const struct grid *g, const struct bl_axis *a)
{
    double width = g->bins > 1 ? (g->last - g->first) / (double)(g->bins - 1) : 1;
    bl_text_add(t, "$h << EOD\n");
    for (size_t r = 0; r < g->rows; r++) {
        /* gnuplot wants two columns at least */
        for (size_t b = 0; b < g->bins || b < 2; b++) {
            double v = g->cell[r * g->bins + (b < g->bins ? b : 0)];
            double x = g->bins > 1 ? g->first + width * (double)b : g->first + (double)b - 0.5;
            if (isnan(v))
                bl_text_add(t, "%.8g %zu NaN\n", x, r);
            else
                bl_text_add(t, "%.8g %zu %.5g\n", x, r, fmax(v, a->low));
        }
    }
    bl_text_add(t, "EOD\n");
}

/* Viridis of van der Walt and Smith at nine places: even in lightness for every eye. */
static const char palette[] =
    "set palette defined (0 '#440154', 1 '#472D7B', 2 '#3B528B', 3 '#2C728E', 4 '#21918C', "
    "5 '#28AE80', 6 '#5EC962', 7 '#ADDC30', 8 '#FDE725')\n";

static int draw(const struct row *rows, const struct grid *g, const char *path,
                struct bl_error *err)
{
    struct bl_text data = {0}, body = {0};
    int row_height = TALLEST / (int)g->rows, longest = 8, top = 12, bottom = 46;
    row_height = row_height > 17 ? 17 : row_height < 3 ? 3 : row_height;
    int inside = row_height * (int)g->rows < 60 ? 60 : row_height * (int)g->rows;
    int height = inside + top + bottom;
    size_t labelled = (size_t)(11 / row_height + 1); /* every how many rows a name fits */
    for (size_t i = 0; i < g->rows; i++) {
        int n = (int)strlen(rows[i].name);
        longest = n > longest ? n : longest;
    }
    struct bl_axis a = colour_axis(g);
    add_cells(&data, g, &a);
    double half = g->bins > 1 ? (g->last - g->first) / (double)(g->bins - 1) / 2 : 1;
    bl_text_add(&body,
                "%sset lmargin at screen %.5f\nset rmargin at screen %.5f\n"
                "set tmargin at screen %.5f\nset bmargin at screen %.5f\n",
                palette, (18 + 7.4 * longest) / WIDTH, 1 - 100.0 / WIDTH, 1 - (double)top / height,
                (double)bottom / height);
    bl_text_add(&body,
                "set xrange [%.10g:%.10g]\nset yrange [%zu.5:-0.5]\nset xlabel 'step' offset "
                "0,0.4\nset border 3 lc rgb '#555555'\nset tics out nomirror scale 0.4\n"
                "set object 1 rect from graph 0,0 to graph 1,1 behind fs solid noborder fc rgb "
                "'#D8D8D8'\nunset key\nset colorbox\n",
                g->first - half, g->last + half, g->rows - 1);
    bl_axis_add(&a, "cb", &body);
    bl_text_add(&body, "set ytics noenhanced font ',10' (");
    for (size_t i = 0; i < g->rows; i += labelled) {
        bl_text_add(&body, "%s", i ? ", " : "");
        bl_gnuplot_quote(&body, rows[i].name);
        bl_text_add(&body, " %zu", i);
    }
    bl_text_add(&body, ")\nplot $h using 1:2:3 with image\n");
    struct bl_image image = {WIDTH, height, &data, &body};
    int rc = bl_image_draw(&image, path, NULL, NULL, err);
    bl_text_free(&data);
    bl_text_free(&body);
    return rc;
}

static int add_to_document(struct bl_report *r, const struct kind *k, size_t shown, size_t all,
                           const char *path, struct bl_error *err)
{
    char *png = NULL, *link = bl_format("figures/%s", k->file);
    char *caption = bl_format("%s%sLogarithmic colours from the 2nd percentile (darkest: that and "
                              "below) to the highest value; grey: zero, negative or not finite.",
                              k->caption, *k->caption ? " " : "");
    size_t bytes = 0;
    int rc = link == NULL || caption == NULL
                 ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
                 : bl_read_file(path, (size_t)16 << 20, &png, &bytes, err);
    if (rc == 0) {
        bl_document_heading(&r->document, k->title);
        bl_document_figure(&r->document, link, k->title, caption, "image/png", png, bytes);
        if (shown < all)
            bl_document_paragraph(&r->document, "The first %zu of %zu are drawn.", shown, all);
        printf("%s\n", path);
    }
    free(png);
    free(caption);
    free(link);
    return rc;
}

static int add_kind(struct bl_report *r, const struct bl_input *run, const struct kind *k,
                    struct bl_error *err)
{
    struct grid g = {0};
    struct row *rows = NULL;
    char *path = bl_figure_path(r, k->file);
    size_t n = run != NULL ? find_rows(&run->series, k, NULL) : 0;
    int rc = -1;
    if (path == NULL || (rows = calloc(n + 1, sizeof *rows)) == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    if (n < 2) { /* one is a curve, not a map */
        unlink(path);
        rc = 0;
        goto done;
    }
    find_rows(&run->series, k, rows);
    size_t shown = n < MOST_ROWS ? n : MOST_ROWS;
    if (make_grid(rows, shown, &g, err) < 0 || draw(rows, &g, path, err) < 0)
        goto done;
    rc = add_to_document(r, k, shown, n, path, err);
done:
    free(g.cell);
    free(rows);
    free(path);
    return rc;
}

int bl_heat_add(struct bl_report *r, const struct bl_input *run, struct bl_error *err)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (add_kind(r, run, &kinds[i], err) < 0)
            return -1;
    }
    return 0;
}
