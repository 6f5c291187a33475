#include "report/page.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "report/plot.h"

static void add_base64(struct bl_text *t, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < n; i += 3) {
        unsigned long w = (unsigned long)p[i] << 16;
        if (i + 1 < n)
            w |= (unsigned long)p[i + 1] << 8;
        if (i + 2 < n)
            w |= p[i + 2];
        bl_text_add(t, "%c%c%c%c", digits[w >> 18], digits[w >> 12 & 63],
                    i + 1 < n ? digits[w >> 6 & 63] : '=', i + 2 < n ? digits[w & 63] : '=');
    }
}

static void add_escaped(struct bl_text *t, const char *text)
{
    for (; *text; text++) {
        switch (*text) {
        case '<':
            bl_text_add(t, "&lt;");
            break;
        case '>':
            bl_text_add(t, "&gt;");
            break;
        case '&':
            bl_text_add(t, "&amp;");
            break;
        case '"':
            bl_text_add(t, "&quot;");
            break;
        default:
            bl_text_add(t, "%c", *text);
        }
    }
}

/* One figure: which metrics, how they are named on it. Panels without data are left out. */
struct figure {
    const char *file, *title, *caption;
    struct {
        const char *title, *y_label;
        const char *metric[4], *label[4];
        int log_y;
    } panel[4];
};

static const struct figure figures[] = {
    {"loss.png",
     "Loss",
     "Cross-entropy without and with the auxiliary terms, and cross-entropy on held-out data.",
     {{"loss",
       "nats per token",
       {"loss/ce", "loss/total", "loss/val"},
       {"cross-entropy", "total", "held-out cross-entropy"},
       0}}},
    {"learning_rate.png",
     "Learning rate",
     "What the schedule gave, step by step.",
     {{"learning rate", "learning rate", {"optim/lr"}, {"learning rate"}, 0}}},
    {"gradient_norm.png",
     "Gradient norm",
     "Over all parameters, after the reduction: before and after the guards.",
     {{"gradient norm",
       "L2 norm",
       {"optim/grad_norm", "optim/grad_norm_clipped"},
       {"before guards", "after guards"},
       1}}},
    {"logits.png",
     "Output logits",
     "Mean is the shift that the loss cannot see (the gauge); spread is the RMS around each row's "
     "mean; log Z is the log-sum-exp. All are means over tokens.",
     {{"mean logit (shift)", "logit", {"logits/mean"}, {"mean"}, 0},
      {"spread", "RMS around the mean", {"logits/centered_rms"}, {"spread"}, 0},
      {"log-sum-exp", "log Z", {"logits/log_z"}, {"log Z"}, 0}}},
};

static size_t make_panels(const struct figure *f, const struct bl_series *s, struct bl_panel *out)
{
    size_t n = 0;
    for (size_t p = 0; p < 4 && f->panel[p].title; p++) {
        struct bl_panel panel = {
            f->panel[p].title, f->panel[p].y_label, {{0}}, 0, f->panel[p].log_y};
        for (size_t m = 0; m < 4 && f->panel[p].metric[m]; m++) {
            const struct bl_curve *c = bl_series_find(s, f->panel[p].metric[m]);
            if (c != NULL && c->count > 0)
                panel.lines[panel.count++] = (struct bl_line){c, f->panel[p].label[m]};
        }
        if (panel.count > 0)
            out[n++] = panel;
    }
    return n;
}

static void add_last_values(struct bl_text *t, const struct bl_series *s)
{
    static const char *const shown[] = {"loss/ce",         "loss/val",    "loss/aux",
                                        "optim/grad_norm", "logits/mean", "logits/centered_rms",
                                        "logits/log_z",    "logits/gauge"};
    bl_text_add(t, "<h2>Last values</h2><table>");
    for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) {
        const struct bl_curve *c = bl_series_find(s, shown[i]);
        if (c != NULL && c->count > 0)
            bl_text_add(t, "<tr><td>%s</td><td>%.6g</td><td>step %.0f</td></tr>", shown[i],
                        c->value[c->count - 1], c->step[c->count - 1]);
    }
    bl_text_add(t, "</table>");
}

/* header.json as a table: the facts a reader must know before the curves mean anything. */
static void add_header(struct bl_text *t, const char *directory)
{
    char *path = bl_format("%s/header.json", directory);
    json_t *header = path != NULL ? json_load_file(path, 0, NULL) : NULL;
    free(path);
    if (!json_is_object(header)) {
        json_decref(header);
        return;
    }
    bl_text_add(t, "<h2>What ran</h2><table>");
    const char *key;
    json_t *value;
    json_object_foreach(header, key, value)
    {
        if (json_is_array(value) && json_array_size(value) > 24)
            continue;
        char *text = json_is_string(value)
                         ? strdup(json_string_value(value))
                         : json_dumps(value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(9));
        if (text != NULL) {
            bl_text_add(t, "<tr><td>");
            add_escaped(t, key);
            bl_text_add(t, "</td><td><code>");
            add_escaped(t, text);
            bl_text_add(t, "</code></td></tr>");
        }
        free(text);
    }
    bl_text_add(t, "</table>");
    json_decref(header);
}

static int add_figure(struct bl_text *t, const char *directory, const struct figure *f,
                      const struct bl_series *s, struct bl_error *err)
{
    struct bl_panel panels[4];
    size_t n = make_panels(f, s, panels);
    if (n == 0)
        return 0;
    char *path = bl_format("%s/figures/%s", directory, f->file);
    char *png = NULL;
    size_t bytes = 0;
    int rc = path == NULL ? bl_error_set(err, BL_EXIT_FAILED, "out of memory")
                          : bl_plot(path, panels, n, err);
    if (rc == 0)
        rc = bl_read_file(path, (size_t)64 << 20, &png, &bytes, err);
    if (rc == 0) {
        bl_text_add(t, "<h2>%s</h2><p>%s</p><img alt=\"%s\" src=\"data:image/png;base64,", f->title,
                    f->caption, f->title);
        add_base64(t, (const unsigned char *)png, bytes);
        bl_text_add(t, "\">");
        printf("%s\n", path);
    }
    free(png);
    free(path);
    return rc;
}

int bl_report_run(const char *directory, struct bl_error *err)
{
    struct bl_series s = {0};
    struct bl_text t = {0};
    int rc = -1;
    char *metrics = bl_format("%s/metrics.jsonl", directory);
    char *figures_path = bl_format("%s/figures", directory);
    char *page = bl_format("%s/report.html", directory);
    if (metrics == NULL || figures_path == NULL || page == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    if (bl_series_read(metrics, &s, err) < 0)
        goto done;
    if (s.rows == 0) {
        bl_error_set(err, BL_EXIT_USAGE, "%s: no rows yet; train first", metrics);
        goto done;
    }
    if (bl_make_directories(figures_path, err) < 0)
        goto done;
    bl_text_add(&t, "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>");
    add_escaped(&t, directory);
    bl_text_add(
        &t, "</title><style>body{font:15px/1.5 sans-serif;max-width:62rem;margin:2rem auto;"
            "padding:0 1rem;color:#222}img{max-width:100%%;border:1px solid #ddd}"
            "table{border-collapse:collapse}td{border-bottom:1px solid #eee;padding:.2rem .8rem "
            ".2rem 0;vertical-align:top}code{font-size:13px;overflow-wrap:anywhere}"
            "</style><h1>");
    add_escaped(&t, directory);
    bl_text_add(&t, "</h1><p>%zu rows of metrics", s.rows);
    if (s.skipped > 0)
        bl_text_add(&t, ", %zu unreadable lines left out", s.skipped);
    bl_text_add(&t, ".</p>");
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        if (add_figure(&t, directory, &figures[i], &s, err) < 0)
            goto done;
    }
    add_last_values(&t, &s);
    add_header(&t, directory);
    bl_text_add(&t, "</html>\n");
    if (t.failed) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    if (bl_write_file(page, t.text, t.length, err) < 0)
        goto done;
    printf("%s\n", page);
    rc = 0;
done:
    bl_text_free(&t);
    bl_series_free(&s);
    free(page);
    free(figures_path);
    free(metrics);
    return rc;
}
