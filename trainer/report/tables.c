#include "report/tables.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report/plot.h"

enum { CELL = 48, MOST_SPIKES = 20, MOST_KEYS = 60 };

/* Seven digits, and what is not finite by its name. */
static const char *number(double v, char *out)
{
    if (isnan(v))
        snprintf(out, CELL, "nan");
    else
        snprintf(out, CELL, "%.6g", v);
    return out;
}

static const char *const shown[] = {"loss/ce",
                                    "loss/val",
                                    "loss/total",
                                    "loss/aux",
                                    "optim/lr",
                                    "optim/grad_norm",
                                    "optim/param_norm",
                                    "optim/update_norm",
                                    "logits/mean",
                                    "logits/max",
                                    "logits/centered_rms",
                                    "logits/log_z",
                                    "logits/gauge",
                                    "logits/gauge_leak",
                                    "perf/tokens_per_second"};
#define SHOWN (sizeof shown / sizeof *shown)

struct summary {
    double last, last_step, mean, low, low_step, high, high_step;
    size_t values;
};

/* Over the steps up to `until`; the mean over the last tenth of them. NaN where there is nothing.
 */
static struct summary summarize(const struct bl_curve *c, double until)
{
    struct summary s = {NAN, 0, NAN, NAN, 0, NAN, 0, 0};
    double sum = 0, from = until - (until - (c->count > 0 ? c->step[0] : 0)) / 10;
    for (size_t i = 0; i < c->count && c->step[i] <= until; i++) {
        double v = c->value[i];
        s.last = v;
        s.last_step = c->step[i];
        if (!isfinite(v))
            continue;
        if (!(v >= s.low)) {
            s.low = v;
            s.low_step = c->step[i];
        }
        if (!(v <= s.high)) {
            s.high = v;
            s.high_step = c->step[i];
        }
        if (c->step[i] >= from) {
            sum += v;
            s.values++;
        }
    }
    if (s.values > 0)
        s.mean = sum / (double)s.values;
    return s;
}

void bl_table_values(struct bl_document *d, const struct bl_input *in)
{
    static const char align[] = "lrrrrrrr";
    static const char *const head[] = {"metric", "last",    "step",    "mean of last tenth",
                                       "lowest", "at step", "highest", "at step"};
    bl_document_heading(d, "Values");
    bl_document_table(d, align, head);
    for (size_t i = 0; i < SHOWN; i++) {
        const struct bl_curve *c = bl_series_find(&in->series, shown[i]);
        char text[7][CELL];
        if (c == NULL)
            continue;
        struct summary s = summarize(c, c->step[c->count - 1]);
        const char *cells[] = {shown[i],
                               number(s.last, text[0]),
                               number(s.last_step, text[1]),
                               number(s.mean, text[2]),
                               number(s.low, text[3]),
                               isnan(s.low) ? "" : number(s.low_step, text[4]),
                               number(s.high, text[5]),
                               isnan(s.high) ? "" : number(s.high_step, text[6])};
        bl_document_row(d, align, cells);
    }
    bl_document_table_end(d);
}

static void make_align(char *align, size_t columns)
{
    memset(align, 'r', columns);
    align[0] = 'l';
    align[columns] = '\0';
}

/* One value a run; behind it, from the second run on, the difference to the first. */
static void add_comparison(struct bl_document *d, const char *align, const char *name,
                           const double *v, size_t count)
{
    char text[BL_PLOT_LINES][2 * CELL], difference[CELL] = "", value[CELL];
    const char *cells[BL_PLOT_LINES + 1] = {name};
    int any = 0;
    for (size_t i = 0; i < count; i++) {
        any |= !isnan(v[i]);
        if (i > 0 && isfinite(v[i]) && isfinite(v[0]))
            snprintf(difference, sizeof difference, " (%+.4g)", v[i] - v[0]);
        else
            difference[0] = '\0';
        snprintf(text[i], sizeof text[i], "%s%s", isnan(v[i]) ? "–" : number(v[i], value),
                 difference);
        cells[i + 1] = text[i];
    }
    if (any)
        bl_document_row(d, align, cells);
}

static double last_step(const struct bl_input *in)
{
    return in->series.rows.step[in->series.rows.count - 1];
}

void bl_table_compare(struct bl_document *d, const struct bl_input *in, size_t count)
{
    char align[BL_PLOT_LINES + 2];
    const char *head[BL_PLOT_LINES + 1] = {"metric"};
    double until = INFINITY, v[BL_PLOT_LINES];
    for (size_t i = 0; i < count; i++) {
        until = fmin(until, last_step(&in[i]));
        head[i + 1] = in[i].label;
    }
    make_align(align, count + 1);
    bl_document_heading(d, "Values");
    bl_document_paragraph(d,
                          "Up to step %.0f, the last one that all runs have. Differences to %s in "
                          "parentheses. Mean: over the last tenth of these steps.",
                          until, in[0].label);
    bl_document_table(d, align, head);
    for (size_t m = 0; m < SHOWN; m++) {
        static const char *const what[] = {"mean", "lowest", "last"};
        int validation = strcmp(shown[m], "loss/val") == 0;
        for (size_t w = 0; w < 3; w++) {
            char name[CELL];
            /* held-out losses are few: no mean of them; a lowest value is wanted of losses only */
            if ((w == 0 && validation) || (w == 1 && !validation) || (w == 2 && !validation))
                continue;
            for (size_t i = 0; i < count; i++) {
                const struct bl_curve *c = bl_series_find(&in[i].series, shown[m]);
                struct summary s = {.last = NAN, .mean = NAN, .low = NAN};
                if (c != NULL)
                    s = summarize(c, until);
                v[i] = w == 0 ? s.mean : w == 1 ? s.low : s.last;
            }
            snprintf(name, sizeof name, "%s, %s", shown[m], what[w]);
            add_comparison(d, align, name, v, count);
        }
    }
    for (size_t i = 0; i < count; i++)
        v[i] = (double)in[i].loss_spikes.count;
    add_comparison(d, align, "spikes of loss/ce", v, count);
    for (size_t i = 0; i < count; i++)
        v[i] = last_step(&in[i]);
    add_comparison(d, align, "last step of the run", v, count);
    bl_document_table_end(d);
}

static const struct bl_facts *facts_of(const struct bl_input *in, int header)
{
    return header ? &in->facts : &in->config;
}

/* 1 when not all runs that have the file say the same about this key. */
static int differs(const struct bl_input *in, size_t count, int header, const char *key)
{
    const char *first = NULL;
    size_t asked = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bl_facts *f = facts_of(&in[i], header);
        if (f->count == 0)
            continue;
        const char *value = bl_facts_find(f, key);
        if (asked++ > 0 &&
            ((first == NULL) != (value == NULL) || (first != NULL && strcmp(first, value) != 0)))
            return 1;
        first = value;
    }
    return 0;
}

/* What always differs, or repeats another row. */
static int is_expected(const char *key, int header)
{
    static const char *const config_keys[] = {"run.name", "run.dir", NULL};
    static const char *const header_keys[] = {"run", "seed", "steps", NULL};
    const char *const *keys = header ? header_keys : config_keys;
    for (; *keys; keys++) {
        if (strcmp(*keys, key) == 0)
            return 1;
    }
    /* what a plugin is called says its version and checksum already; in the configuration the key
     * has the name of the instance in it */
    static const char *const ends[] = {".name", ".kind", ".plugin", ".file", ".null", NULL};
    for (size_t i = 0; i < (header ? sizeof ends / sizeof *ends - 1 : 1); i++) {
        size_t n = strlen(key), m = strlen(ends[i]);
        if (n > m && strcmp(key + n - m, ends[i]) == 0)
            return 1;
    }
    /* lists of parameters: what changed them is a key of the configuration; when a run was started
     */
    return header && (strncmp(key, "decay_groups", 12) == 0 || strncmp(key, "attempts", 8) == 0);
}

/* A plugin that some runs do not have is a difference of the configuration, shown there. */
static int is_of_absent_plugin(const struct bl_input *in, size_t count, const char *key)
{
    if (strncmp(key, "plugins.", 8) != 0)
        return 0;
    for (size_t r = 0; r < count; r++) {
        if (bl_facts_find(facts_of(&in[r], 1), key) == NULL)
            return 1;
    }
    return 0;
}

static size_t add_differences(struct bl_document *d, const struct bl_input *in, size_t count,
                              int header, const char *align, const char *const *head, size_t *rows)
{
    size_t left_out = 0;
    for (size_t i = 0; i < count; i++) {
        const struct bl_facts *f = facts_of(&in[i], header);
        for (size_t k = 0; k < f->count; k++) {
            const char *key = f->items[k].key, *cells[BL_PLOT_LINES + 1] = {key};
            int seen = is_expected(key, header) || (header && is_of_absent_plugin(in, count, key));
            for (size_t before = 0; before < i && !seen; before++)
                seen = bl_facts_find(facts_of(&in[before], header), key) != NULL;
            if (seen || !differs(in, count, header, key))
                continue;
            if (*rows == MOST_KEYS) {
                left_out++;
                continue;
            }
            for (size_t r = 0; r < count; r++) {
                const char *value = bl_facts_find(facts_of(&in[r], header), key);
                cells[r + 1] = value != NULL ? value : "–";
            }
            if ((*rows)++ == 0)
                bl_document_table(d, align, head);
            bl_document_row(d, align, cells);
        }
    }
    return left_out;
}

void bl_table_differences(struct bl_document *d, const struct bl_input *in, size_t count)
{
    char align[BL_PLOT_LINES + 2];
    const char *head[BL_PLOT_LINES + 1] = {"key"};
    size_t rows = 0, left_out = 0;
    memset(align, 'l', count + 1);
    align[count + 1] = '\0';
    for (size_t i = 0; i < count; i++)
        head[i + 1] = in[i].label;
    bl_document_heading(d, "What differs");
    bl_document_paragraph(d,
                          "Keys of config.cfg, then of header.json, that are not the same in all "
                          "runs; – where a run has no such key.");
    left_out += add_differences(d, in, count, 0, align, head, &rows);
    left_out += add_differences(d, in, count, 1, align, head, &rows);
    if (rows > 0)
        bl_document_table_end(d);
    else
        bl_document_paragraph(d, "Nothing but the names of the runs.");
    if (left_out > 0)
        bl_document_paragraph(d, "And %zu more.", left_out);
}

static size_t add_spikes(struct bl_document *d, const char *align, const struct bl_input *in,
                         const char *metric, const struct bl_spikes *s, int named)
{
    for (size_t i = 0; i < s->count && i < MOST_SPIKES; i++) {
        const struct bl_spike *p = &s->items[i];
        char steps[CELL], value[CELL], score[CELL], rows[CELL];
        snprintf(steps, sizeof steps, p->first == p->last ? "%.0f" : "%.0f to %.0f", p->first,
                 p->last);
        snprintf(score, sizeof score, isfinite(p->score) ? "%.3g" : "not finite", p->score);
        snprintf(rows, sizeof rows, "%zu", p->rows);
        const char *cells[] = {in->label, metric, steps, rows, number(p->value, value), score};
        bl_document_row(d, align, named ? cells : cells + 1);
    }
    return s->count > MOST_SPIKES ? s->count - MOST_SPIKES : 0;
}

void bl_table_spikes(struct bl_document *d, const struct bl_input *in, size_t count)
{
    static const char *const head[] = {"run", "metric", "steps", "rows", "highest value", "score"};
    const char *align = count > 1 ? "lllrrr" : "llrrr";
    size_t found = 0, left_out = 0;
    bl_document_heading(d, "Spikes");
    bl_document_paragraph(
        d,
        "A value of loss/ce or optim/grad_norm is a spike when it is above median + %g x 1.4826 "
        "MAD "
        "of the previous %d accepted rows (at least %d), or not finite; the score is its distance "
        "from the median in units of 1.4826 MAD. Flagged values do not enter the history; after %d "
        "of them in a row it starts anew. Falls are not flagged. Triangles mark them in the "
        "figures.",
        BL_SPIKE_THRESHOLD, BL_SPIKE_HISTORY, BL_SPIKE_LEAST, BL_SPIKE_HISTORY);
    for (size_t i = 0; i < count; i++)
        found += in[i].loss_spikes.count + in[i].norm_spikes.count;
    if (found == 0) {
        bl_document_paragraph(d, "None found.");
        return;
    }
    bl_document_table(d, align, count > 1 ? head : head + 1);
    for (size_t i = 0; i < count; i++) {
        left_out += add_spikes(d, align, &in[i], "loss/ce", &in[i].loss_spikes, count > 1);
        left_out += add_spikes(d, align, &in[i], "optim/grad_norm", &in[i].norm_spikes, count > 1);
    }
    bl_document_table_end(d);
    if (left_out > 0)
        bl_document_paragraph(d, "And %zu more.", left_out);
}
