#include "report/page.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/strings.h"
#include "report/figures.h"
#include "report/input.h"
#include "report/plot.h"
#include "report/tables.h"

_Static_assert(BL_REPORT_MOST == BL_PLOT_LINES, "every run has a style of line");

static void add_summary(struct bl_document *d, const struct bl_input *in)
{
    const struct bl_curve *rows = &in->series.rows, *skipped;
    size_t updates = 0;
    bl_document_paragraph(d, "%zu %s of metrics, steps %.0f to %.0f.", rows->count,
                          rows->count == 1 ? "row" : "rows", rows->step[0],
                          rows->step[rows->count - 1]);
    if (in->series.resume_count > 0)
        bl_document_paragraph(
            d,
            "Resumed %zu %s (dashed vertical lines); %zu %s of earlier attempts are superseded and "
            "left out.",
            in->series.resume_count, in->series.resume_count == 1 ? "time" : "times",
            in->series.superseded, in->series.superseded == 1 ? "row" : "rows");
    skipped = bl_series_find(&in->series, "optim/skipped");
    for (size_t i = 0; skipped != NULL && i < skipped->count; i++)
        updates += skipped->value[i] != 0;
    if (updates > 0)
        bl_document_paragraph(d, "%zu %s skipped (crosses in the figure of the gradient norm).",
                              updates, updates == 1 ? "update was" : "updates were");
    if (in->series.skipped > 0)
        bl_document_paragraph(d, "%zu unreadable %s of metrics.jsonl left out, first line %zu.",
                              in->series.skipped, in->series.skipped == 1 ? "line" : "lines",
                              in->series.first_skipped);
    if (in->header == NULL)
        bl_document_paragraph(d, "header.json is missing or cannot be read: versions, dials and "
                                 "plugins are unknown.");
}

static void begin(struct bl_report *r, const struct bl_input *in, size_t count)
{
    struct bl_document *d = &r->document;
    if (count == 1) {
        bl_document_begin(d, in->label);
        add_summary(d, in);
        bl_table_values(d, in);
        return;
    }
    struct bl_text title = {0};
    for (size_t i = 0; i < count && (i < 2 || count <= 3); i++)
        bl_text_add(&title, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " and ", in[i].label);
    if (count > 3)
        bl_text_add(&title, " and %zu more runs", count - 2);
    if (title.failed)
        d->html.failed = 1;
    else
        bl_document_begin(d, title.text);
    bl_text_free(&title);
    bl_table_compare(d, in, count);
    bl_table_differences(d, in, count);
}

static int write_part(const char *directory, const char *name, const struct bl_text *t,
                      struct bl_error *err)
{
    char *path = bl_format("%s/%s", directory, name);
    if (path == NULL || t->failed) {
        free(path);
        return bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", directory);
    }
    int rc = bl_write_file(path, t->text, t->length, err);
    if (rc == 0)
        printf("%s\n", path);
    free(path);
    return rc;
}

static int write_report(const struct bl_input *in, size_t count, const char *directory,
                        struct bl_error *err)
{
    struct bl_report r = {.directory = directory};
    int rc = -1;
    char *folder = bl_figure_path(&r, "");
    if (folder == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    folder[strlen(folder) - 1] = '\0';
    if (bl_make_directories(folder, err) < 0)
        goto done;
    begin(&r, in, count);
    if (bl_figures_add(&r, in, count, err) < 0 || bl_heat_add(&r, count == 1 ? in : NULL, err) < 0)
        goto done;
    bl_table_spikes(&r.document, in, count);
    if (count == 1) {
        bl_table_header(&r.document, in);
        if (in->config_text != NULL) {
            bl_document_heading(&r.document, "Configuration");
            bl_document_file(&r.document, "config.cfg", in->config_text);
        }
    }
    bl_document_end(&r.document);
    if (write_part(directory, "report.md", &r.document.markdown, err) < 0 ||
        write_part(directory, "report.html", &r.document.html, err) < 0)
        goto done;
    rc = 0;
done:
    bl_document_free(&r.document);
    free(folder);
    return rc;
}

/* The folder that holds the first run; the run itself when it is alone. */
static char *default_directory(const struct bl_input *in, size_t count)
{
    if (count == 1)
        return strdup(in->directory);
    const char *slash = strrchr(in->directory, '/');
    const char *name = slash != NULL ? slash + 1 : in->directory;
    if (*name == '\0' || strcmp(name, ".") == 0 || strcmp(name, "..") == 0)
        return bl_format("%s/..", in->directory);
    if (slash == NULL)
        return strdup(".");
    return slash == in->directory ? strdup("/")
                                  : strndup(in->directory, (size_t)(slash - in->directory));
}

int bl_report(char *const *runs, size_t count, const char *out, struct bl_error *err)
{
    struct bl_input in[BL_REPORT_MOST] = {{0}};
    char *directory = NULL;
    int rc = -1;
    if (count > BL_REPORT_MOST)
        return bl_error_set(err, BL_EXIT_USAGE,
                            "%zu runs; at most %d can be told apart in one figure", count,
                            BL_REPORT_MOST);
    for (size_t i = 0; i < count; i++) {
        if (bl_input_read(runs[i], &in[i], err) < 0)
            goto done;
    }
    if (bl_inputs_label(in, count, err) < 0)
        goto done;
    directory = out != NULL ? strdup(out) : default_directory(in, count);
    if (directory == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "out of memory");
        goto done;
    }
    rc = write_report(in, count, directory, err);
done:
    free(directory);
    for (size_t i = 0; i < count; i++)
        bl_input_free(&in[i]);
    return rc;
}
