#include "report/figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "report/plot.h"

/* More panels than this in one figure are not looked at. */
#define MOST_PANELS 12
#define SMOOTHED                                                                                   \
    "Where values scatter, the line is a running median on top of the raw values in light (left "  \
    "out with more than four runs)."

/* One figure. Metrics of one panel are drawn together; a figure with a `choose` function takes
 * every metric that it accepts, a panel each. */
struct figure {
    const char *file, *title, *caption;
    int (*choose)(const char *metric);
    enum bl_axis_kind axis; /* of chosen metrics */
    struct {
        enum bl_axis_kind axis;
        const char *title;
        const char *metric[3], *label[3];
    } panel[6];
};

static int begins(const char *name, const char *prefix)
{
    return strncmp(name, prefix, strlen(prefix)) == 0;
}

static int is_regularizer(const char *name)
{
    static const char *const others[] = {"loss/ce", "loss/aux", "loss/total", "loss/val",
                                         "loss/val_perplexity"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        if (strcmp(name, others[i]) == 0)
            return 0;
    }
    return begins(name, "loss/") && strchr(name + 5, '/') == NULL;
}

/* What no other figure owns: metrics of plugins that this file has not heard of. */
static int is_other(const char *name)
{
    static const char *const owned[] = {"loss/", "optim/", "logits/",
                                        "perf/", "time/",  "effective_lr/"};
    const char *slash = strchr(name, '/');
    for (size_t i = 0; i < sizeof owned / sizeof *owned; i++) {
        if (begins(name, owned[i]))
            return 0;
    }
    return slash == NULL || strchr(slash + 1, '/') == NULL;
}

static const struct figure figures[] = {
    {"loss.png",
     "Loss",
     "Nats per token. Total is cross-entropy with the weighted regularizers; held-out is "
     "cross-entropy on validation data. " SMOOTHED
     " The axis leaves out what only the first steps, or a few outliers, reach.",
     NULL,
     0,
     {{BL_AXIS_ZOOM,
       "loss",
       {"loss/ce", "loss/total", "loss/val"},
       {"cross-entropy", "total", "held-out"}}}},
    {"learning_rate.png",
     "Learning rate",
     "What the schedule gave, step by step.",
     NULL,
     0,
     {{BL_AXIS_LINEAR, "learning rate", {"optim/lr"}, {"learning rate"}}}},
    {"gradient_norm.png",
     "Gradient norm",
     "L2 norm over all parameters after the reduction, before and after the guards. " SMOOTHED,
     NULL,
     0,
     {{BL_AXIS_LOG,
       "gradient norm",
       {"optim/grad_norm", "optim/grad_norm_clipped"},
       {"before guards", "after guards"}}}},
    {"regularizers.png",
     "Regularizers",
     "The value of each term before its coefficient.",
     is_regularizer,
     BL_AXIS_AUTO,
     {{0}}},
    {"logits.png",
     "Output logits",
     "Mean is the shift that the loss cannot see; spread is the RMS around each row's mean; log Z "
     "is the log-sum-exp; all are means over tokens. Gauge is the norm of the mean row of the "
     "output matrix, gauge leak the part of its cross-entropy gradient along that direction, which "
     "is zero in exact arithmetic.",
     NULL,
     0,
     {{BL_AXIS_LINEAR, "mean (shift)", {"logits/mean"}, {"mean"}},
      {BL_AXIS_AUTO, "spread", {"logits/centered_rms"}, {"spread"}},
      {BL_AXIS_AUTO, "max", {"logits/max"}, {"max"}},
      {BL_AXIS_LINEAR, "log Z", {"logits/log_z"}, {"log Z"}},
      {BL_AXIS_AUTO, "gauge", {"logits/gauge"}, {"gauge"}},
      {BL_AXIS_LOG, "gauge leak", {"logits/gauge_leak"}, {"gauge leak"}}}},
    {"norms.png",
     "Weights and updates",
     "L2 norms over all parameters: of the weights, and of what a step adds to them.",
     NULL,
     0,
     {{BL_AXIS_AUTO, "parameter norm", {"optim/param_norm"}, {"parameters"}},
      {BL_AXIS_LOG, "update norm", {"optim/update_norm"}, {"update"}}}},
    {"other.png", "Other metrics", "What monitors logged besides.", is_other, BL_AXIS_AUTO, {{0}}},
    {"speed.png",
     "Speed",
     "Tokens per second, of all ranks together.",
     NULL,
     0,
     {{BL_AXIS_LINEAR, "tokens per second", {"perf/tokens_per_second"}, {"tokens/s"}}}},
};

char *bl_figure_path(const struct bl_report *r, const char *file)
{
    return bl_format("%s/figures/%s", r->directory, file);
}

/* The total says nothing where no regularizer has a weight. */
static int is_hidden(const struct bl_input *in, const char *metric)
{
    if (strcmp(metric, "loss/total") != 0)
        return 0;
    const struct bl_curve *aux = bl_series_find(&in->series, "loss/aux");
    for (size_t i = 0; aux != NULL && i < aux->count; i++) {
        if (aux->value[i] != 0)
            return 0;
    }
    return bl_series_find(&in->series, "loss/ce") != NULL;
}

static void add_line(struct bl_panel *p, const struct bl_input *in, const char *metric,
                     const char *label, size_t style, int marks)
{
    const struct bl_curve *c = bl_series_find(&in->series, metric);
    if (c == NULL || p->count == BL_PLOT_LINES || is_hidden(in, metric))
        return;
    struct bl_line *l = &p->lines[p->count++];
    *l = (struct bl_line){.curve = c, .label = label, .style = style};
    if (marks)
        l->run = &in->series;
    if (strcmp(metric, "loss/ce") == 0)
        l->spikes = &in->loss_spikes;
    if (strcmp(metric, "optim/grad_norm") == 0) {
        l->spikes = &in->norm_spikes;
        l->skipped = bl_series_find(&in->series, "optim/skipped");
    }
}

static void add_metric(struct bl_panel *panels, size_t *n, const struct bl_input *in, size_t count,
                       const char *title, const char *metric, enum bl_axis_kind axis)
{
    struct bl_panel p = {.axis = axis};
    snprintf(p.title, sizeof p.title, "%s", title);
    for (size_t i = 0; i < count; i++)
        add_line(&p, &in[i], metric, in[i].label, i, 1);
    if (p.count > 0 && *n < MOST_PANELS)
        panels[(*n)++] = p;
}

/* Metrics in the order in which the first run that has them named them. */
static size_t add_chosen(struct bl_panel *panels, const struct figure *f, const struct bl_input *in,
                         size_t count)
{
    size_t n = 0, accepted = 0;
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < in[i].series.count; k++) {
            const char *name = in[i].series.curves[k].name;
            int seen = in[i].series.curves[k].count == 0 || !f->choose(name);
            for (size_t before = 0; before < i && !seen; before++)
                seen = bl_series_find(&in[before].series, name) != NULL;
            if (seen)
                continue;
            accepted++;
            add_metric(panels, &n, in, count, name, name, f->axis);
        }
    }
    return accepted - n;
}

static size_t make_panels(struct bl_panel *panels, const struct figure *f,
                          const struct bl_input *in, size_t count)
{
    size_t n = 0;
    for (size_t p = 0; p < 6 && f->panel[p].title; p++) {
        struct bl_panel together = {.axis = f->panel[p].axis};
        snprintf(together.title, sizeof together.title, "%s", f->panel[p].title);
        for (size_t m = 0; m < 3 && f->panel[p].metric[m]; m++) {
            const char *metric = f->panel[p].metric[m], *label = f->panel[p].label[m];
            char title[96];
            snprintf(title, sizeof title, "%s (%s)", label, metric);
            if (count == 1)
                add_line(&together, in, metric, label, m, together.count == 0);
            else
                add_metric(panels, &n, in, count, title, metric, f->panel[p].axis);
        }
        if (together.count > 0)
            panels[n++] = together;
    }
    return n;
}

static int add_figure(struct bl_report *r, const struct figure *f, const struct bl_input *in,
                      size_t count, struct bl_error *err)
{
    const char *labels[BL_PLOT_LINES];
    char *svg = NULL, *link = NULL, *caption = NULL, *path = bl_figure_path(r, f->file);
    struct bl_panel *panels = calloc(MOST_PANELS, sizeof *panels);
    size_t bytes = 0, n = 0, left_out = 0;
    int rc = -1;
    if (path == NULL || panels == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    if (f->choose != NULL) {
        left_out = add_chosen(panels, f, in, count);
        while (n < MOST_PANELS && panels[n].count > 0)
            n++;
    } else {
        n = make_panels(panels, f, in, count);
    }
    if (n == 0) {
        unlink(path);
        rc = 0;
        goto done;
    }
    for (size_t i = 0; i < count; i++)
        labels[i] = in[i].label;
    struct bl_picture picture = {panels, n, labels, count > 1 ? count : 0};
    if (bl_plot(&picture, path, &svg, &bytes, err) < 0)
        goto done;
    link = bl_format("figures/%s", f->file);
    caption = left_out > 0 ? bl_format("%s %zu more are not drawn.", f->caption, left_out)
                           : strdup(f->caption);
    if (link == NULL || caption == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    bl_document_heading(&r->document, f->title);
    bl_document_figure(&r->document, link, f->title, caption, "image/svg+xml", svg, bytes);
    printf("%s\n", path);
    rc = 0;
done:
    free(caption);
    free(link);
    free(svg);
    free(panels);
    free(path);
    return rc;
}

int bl_figures_add(struct bl_report *r, const struct bl_input *in, size_t count,
                   struct bl_error *err)
{
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (add_figure(r, &figures[i], in, count, err) < 0)
            return -1;
    }
    return 0;
}
