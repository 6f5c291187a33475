#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config/range.h"
#include "config/schema.h"
#include "lab/lab.h"
#include "report/gnuplot.h"
#include "report/plot.h"

/* ---- words ---- */

static const struct bl_option *key_of(const char *key)
{
    const struct bl_option *o = bl_schema[BL_SCHEMA_PRECISION].table;
    while (o->key != NULL && strcmp(o->key, key) != 0)
        o++;
    return o;
}

static int is_dtype(const char *key)
{
    return strcmp(key, "wire") == 0 || strcmp(key, "sum") == 0;
}

const char *bl_lab_word(const char *key, uint32_t value, char *buffer)
{
    int index = (int)value, n = 0;
    if (is_dtype(key))
        index = value == BL_FP32 ? 0 : value == BL_BF16 ? 1 : 2;
    const char *word = bl_words_get(key_of(key)->range, index, &n);
    snprintf(buffer, 32, "%.*s", n, word);
    return buffer;
}

int bl_lab_find(const char *key, const char *word)
{
    static const int dtype[] = {BL_FP32, BL_BF16, BL_FP16};
    int index = bl_words_find(key_of(key)->range, word);
    return index >= 0 && is_dtype(key) ? dtype[index] : index;
}

/* ---- the table ---- */

static const char *number(const char *format, double value, char *buffer)
{
    if (isnan(value))
        return strcpy(buffer, "-");
    snprintf(buffer, 32, format, value);
    return buffer;
}

static void print_formats(const struct bl_lab_setup *s, FILE *out)
{
    char wire[32], sum[32], collective[32], rounding[32];
    fprintf(out, "# wire %s, sum %s (%s), %s, %" PRIu64 " elements, seed %" PRIu64 "\n",
            bl_lab_word("wire", s->format->wire, wire), bl_lab_word("sum", s->format->sum, sum),
            bl_lab_word("sum_rounding", s->format->sum_rounding, rounding),
            bl_lab_word("collective", s->format->collective, collective), s->elements, s->seed);
}

static void print_rows(const struct bl_lab_result *r, FILE *out)
{
    int ones = 0;
    for (size_t i = 0; i < r->row_count; i++)
        ones |= r->rows[i].values->kind == BL_LAB_ONES;
    fprintf(out, "%-14s %6s %-9s %-13s %9s %10s %10s %7s %9s %8s %8s%s\n", "values", "W",
            "algorithm", "average", "K", "error", "law", "ratio", "bias", "lost", "scale",
            ones ? "          sum" : "");
    for (size_t i = 0; i < r->row_count; i++) {
        const struct bl_lab_row *w = &r->rows[i];
        int premultiplied = w->average == BL_AVERAGE_PREMULTIPLY;
        char b[9][32];
        fprintf(out, "%-14s %6" PRIu32 " %-9s %-13s %9.3f %10s %10s %7s %9s %8s %8s",
                w->values->name, w->ranks, bl_lab_word("algorithm", w->algorithm, b[0]),
                bl_lab_word("average", w->average, b[1]), w->law.k,
                number("%.3e", w->measured.error, b[2]), number("%.3e", w->law.error, b[3]),
                number("%.3f", w->measured.error / w->law.error, b[4]),
                number("%+.3f%%", 100 * w->measured.bias, b[5]),
                number("%.2f%%", 100 * w->measured.lost, b[6]),
                number("%+.3f%%", premultiplied ? 100 * w->law.scale : NAN, b[7]));
        if (ones)
            fprintf(out, " %12s",
                    number("%.9g", w->values->kind == BL_LAB_ONES ? w->first : NAN, b[8]));
        fputc('\n', out);
    }
}

static void print_differences(const struct bl_lab_setup *s, const struct bl_lab_result *r,
                              FILE *out)
{
    char a[32], b[32], c[32];
    fprintf(out, "%-14s %6s %-13s %-9s %-9s %9s %10s\n", "values", "W", "average", "A", "B",
            "differ", "distance");
    for (size_t i = 0; i < r->difference_count; i++) {
        const struct bl_lab_difference *d = &r->differences[i];
        fprintf(out, "%-14s %6" PRIu32 " %-13s %-9s %-9s %8.3f%% %10.3e\n", d->values->name,
                d->ranks, bl_lab_word("average", d->average, c),
                bl_lab_word("algorithm", s->algorithms[0], a),
                bl_lab_word("algorithm", s->algorithms[1], b), 100 * d->share, d->distance);
    }
}

void bl_lab_print(const struct bl_lab_setup *s, const struct bl_lab_result *r, FILE *out)
{
    print_formats(s, out);
    if (r->row_count > 0)
        print_rows(r, out);
    if (r->difference_count > 0)
        print_differences(s, r, out);
    fprintf(out, "%s# orders as in NCCL " BL_ORDER_NCCL "; nvls is a model, pairwise a reference\n",
            r->notes.text != NULL ? r->notes.text : "");
}

/* ---- JSON ---- */

static json_t *real(double value)
{
    return isfinite(value) ? json_real(value) : json_null();
}

static void add_word(json_t *o, const char *key, uint32_t value)
{
    char word[32];
    json_object_set_new(o, key, json_string(bl_lab_word(key, value, word)));
}

static json_t *row_json(const struct bl_lab_row *w)
{
    json_t *o = json_object();
    json_object_set_new(o, "values", json_string(w->values->name));
    json_object_set_new(o, "ranks", json_integer(w->ranks));
    add_word(o, "algorithm", w->algorithm);
    add_word(o, "average", w->average);
    json_object_set_new(o, "k", real(w->law.k));
    json_object_set_new(o, "scale_error", real(w->law.scale));
    json_object_set_new(o, "error", real(w->measured.error));
    json_object_set_new(o, "law", real(w->law.error));
    json_object_set_new(o, "bias", real(w->measured.bias));
    json_object_set_new(o, "lost_share", real(w->measured.lost));
    json_object_set_new(o, "first_sum", real(w->first));
    return o;
}

static json_t *difference_json(const struct bl_lab_setup *s, const struct bl_lab_difference *d)
{
    char word[32];
    json_t *o = json_object();
    json_object_set_new(o, "values", json_string(d->values->name));
    json_object_set_new(o, "ranks", json_integer(d->ranks));
    add_word(o, "average", d->average);
    json_object_set_new(o, "a", json_string(bl_lab_word("algorithm", s->algorithms[0], word)));
    json_object_set_new(o, "b", json_string(bl_lab_word("algorithm", s->algorithms[1], word)));
    json_object_set_new(o, "differ", real(d->share));
    json_object_set_new(o, "distance", real(d->distance));
    return o;
}

int bl_lab_json(const struct bl_lab_setup *s, const struct bl_lab_result *r, const char *path,
                struct bl_error *err)
{
    json_t *root = json_object(), *list = json_array();
    json_object_set_new(root, "nccl", json_string(BL_ORDER_NCCL));
    add_word(root, "wire", s->format->wire);
    add_word(root, "sum", s->format->sum);
    add_word(root, "sum_rounding", s->format->sum_rounding);
    add_word(root, "collective", s->format->collective);
    json_object_set_new(root, "elements", json_integer((json_int_t)s->elements));
    json_object_set_new(root, "seed", json_integer((json_int_t)s->seed));
    for (size_t i = 0; i < r->row_count; i++)
        json_array_append_new(list, row_json(&r->rows[i]));
    for (size_t i = 0; i < r->difference_count; i++)
        json_array_append_new(list, difference_json(s, &r->differences[i]));
    json_object_set_new(root, r->row_count > 0 ? "settings" : "differences", list);
    char *text = json_dumps(root, JSON_INDENT(1) | JSON_REAL_PRECISION(17));
    json_decref(root);
    int rc = text == NULL ? bl_error_set(err, BL_EXIT_FAILED, "%s: out of memory", path)
             : bl_check_target(path, err) != 0 ? -1
                                               : bl_write_file(path, text, strlen(text), err);
    free(text);
    return rc;
}

/* ---- figure ---- */

enum { WIDTH = 900, PANEL = 430 };

/* One algorithm and average in a panel: what was measured, marked, and its law, dashed. */
static void add_curve(const struct bl_lab_setup *s, const struct bl_lab_result *r, size_t panel,
                      size_t curve, struct bl_text *data, struct bl_text *command)
{
    /* Okabe and Ito (2008) */
    static const char *const colours[] = {"0072B2", "D55E00", "009E73",
                                          "CC79A7", "E69F00", "56B4E9"};
    uint32_t algorithm = s->algorithms[curve % s->algorithm_count];
    uint32_t average = s->averages[curve / s->algorithm_count];
    const char *colour = colours[algorithm % 6];
    char word[32], mean[32];
    size_t n = 0, laws = 0;
    for (size_t i = 0; i < r->row_count; i++) {
        const struct bl_lab_row *w = &r->rows[i];
        if (w->values != &s->values[panel] || w->algorithm != algorithm || w->average != average ||
            !isfinite(w->measured.error) || w->measured.error <= 0)
            continue;
        if (n++ == 0)
            bl_text_add(data, "$d%zu_%zu << EOD\n", panel, curve);
        laws += isfinite(w->law.error) && w->law.error > 0;
        bl_text_add(data, "%" PRIu32 " %.8g %.8g\n", w->ranks, w->measured.error,
                    isfinite(w->law.error) ? w->law.error : -1.0);
    }
    if (n == 0)
        return;
    bl_text_add(data, "EOD\n");
    bl_text_add(command, "%s$d%zu_%zu using 1:2 with points pt %zu ps 1 lw 2 lc rgb '#%s' title '",
                command->length > 0 ? ", " : "plot ", panel, curve, 4 + curve % 11, colour);
    bl_text_add(command, "%s", bl_lab_word("algorithm", algorithm, word));
    if (s->average_count > 1)
        bl_text_add(command, ", %s", bl_lab_word("average", average, mean));
    bl_text_add(command, "'");
    if (laws > 0)
        bl_text_add(command,
                    ", $d%zu_%zu using 1:3 with lines dt (6,4) lw 1.5 lc rgb '#%s' notitle", panel,
                    curve, colour);
}

int bl_lab_plot(const struct bl_lab_setup *s, const struct bl_lab_result *r, const char *path,
                struct bl_error *err)
{
    struct bl_text data = {0}, body = {0};
    bl_text_add(&body,
                "set multiplot layout %zu,1\nset logscale x 2\nset logscale y 10\n"
                "set format y '10^{%%T}'\nset mytics 10\nset grid xtics ytics mytics lc rgb "
                "'#E4E4E4' lt 1 lw 1, lc rgb '#F0F0F0' lt 1 lw 1\nset border 3 lc rgb '#555555'\n"
                "set tics nomirror\nset xlabel 'ranks W'\nset ylabel 'relative rms error'\n"
                "set key outside right top noenhanced\nset offsets graph 0.03, graph 0.03, 0, 0\n"
                "set yrange [*:*]\n",
                s->value_count);
    for (size_t panel = 0; panel < s->value_count; panel++) {
        struct bl_text command = {0};
        for (size_t c = 0; c < s->algorithm_count * s->average_count; c++)
            add_curve(s, r, panel, c, &data, &command);
        bl_text_add(&body, "set title '%s: points measured, lines the law' noenhanced\n%s\n",
                    s->values[panel].name,
                    command.text != NULL ? command.text : "plot [1:2] [1:2] NaN notitle");
        body.failed |= command.failed;
        bl_text_free(&command);
    }
    bl_text_add(&body, "unset multiplot\n");
    struct bl_image image = {WIDTH, PANEL * (int)s->value_count, &data, &body};
    int rc = bl_image_draw(&image, path, NULL, NULL, err);
    bl_text_free(&data);
    bl_text_free(&body);
    return rc;
}
