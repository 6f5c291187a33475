#include "report/series.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Rows name the same metrics in the same order, so the curve after the last one is tried first;
 * looking each name up from the start would make reading quadratic in the number of metrics. */
static struct bl_curve *curve_get(struct bl_series *s, const char *name)
{
    for (size_t n = 0; n < s->count; n++) {
        size_t i = (s->expected + n) % s->count;
        if (strcmp(s->curves[i].name, name) == 0) {
            s->expected = i + 1;
            return &s->curves[i];
        }
    }
    if (s->count == s->capacity) {
        size_t capacity = s->capacity ? 2 * s->capacity : 32;
        struct bl_curve *grown = realloc(s->curves, capacity * sizeof *grown);
        if (grown == NULL)
            return NULL;
        s->curves = grown;
        s->capacity = capacity;
    }
    struct bl_curve *c = &s->curves[s->count];
    memset(c, 0, sizeof *c);
    c->name = strdup(name);
    if (c->name == NULL)
        return NULL;
    s->count++;
    s->expected = s->count;
    return c;
}

int bl_curve_add(struct bl_curve *c, double step, double value)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 64;
        double *steps = realloc(c->step, capacity * sizeof *steps);
        if (steps == NULL)
            return -1;
        c->step = steps;
        double *values = realloc(c->value, capacity * sizeof *values);
        if (values == NULL)
            return -1;
        c->value = values;
        c->capacity = capacity;
    }
    c->step[c->count] = step;
    c->value[c->count] = value;
    c->count++;
    return 0;
}

void bl_curve_free(struct bl_curve *c)
{
    free(c->name);
    free(c->step);
    free(c->value);
    memset(c, 0, sizeof *c);
}

/* Numbers, and the strings that stand for non-finite ones. */
static int number(const json_t *j, double *out)
{
    if (json_is_number(j)) {
        *out = json_number_value(j);
        return 0;
    }
    const char *text = json_string_value(j);
    if (text == NULL)
        return -1;
    if (strcmp(text, "nan") == 0)
        *out = NAN;
    else if (strcmp(text, "inf") == 0)
        *out = INFINITY;
    else if (strcmp(text, "-inf") == 0)
        *out = -INFINITY;
    else
        return -1;
    return 0;
}

static size_t cut(struct bl_curve *c, double step)
{
    size_t before = c->count;
    while (c->count > 0 && c->step[c->count - 1] >= step)
        c->count--;
    return before - c->count;
}

/* A new attempt starts at `step`: what earlier attempts wrote from there on is void. */
static int begin_attempt(struct bl_series *s, double step)
{
    for (size_t i = 0; i < s->count; i++)
        cut(&s->curves[i], step);
    s->superseded += cut(&s->rows, step);
    while (s->resume_count > 0 && s->resumes[s->resume_count - 1] >= step)
        s->resume_count--;
    if (s->rows.count == 0)
        return 0; /* started over: nothing was gone on with */
    double *grown = realloc(s->resumes, (s->resume_count + 1) * sizeof *grown);
    if (grown == NULL)
        return -1;
    s->resumes = grown;
    s->resumes[s->resume_count++] = step;
    return 0;
}

/* 0 used, 1 unreadable, -1 no memory. */
static int add_row(struct bl_series *s, json_t *row, double *attempt)
{
    double step, a = 1, time = NAN;
    if (!json_is_object(row) || number(json_object_get(row, "step"), &step) < 0 || !isfinite(step))
        return 1;
    (void)number(json_object_get(row, "attempt"), &a);
    (void)number(json_object_get(row, "time"), &time);
    if (a < *attempt) { /* a late line of an attempt that lost its claim */
        s->superseded++;
        return 0;
    }
    if (a > *attempt) {
        if (begin_attempt(s, step) < 0)
            return -1;
        *attempt = a;
    }
    if (s->rows.count > 0 && s->rows.step[s->rows.count - 1] >= step)
        return 1;
    if (bl_curve_add(&s->rows, step, time) < 0)
        return -1;
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value)
    {
        double v;
        if (strcmp(key, "step") == 0 || strcmp(key, "attempt") == 0 || strcmp(key, "run") == 0 ||
            strcmp(key, "time") == 0 || number(value, &v) < 0)
            continue;
        struct bl_curve *c = curve_get(s, key);
        if (c == NULL || bl_curve_add(c, step, v) < 0)
            return -1;
    }
    return 0;
}

/* A FIFO must not be waited for, a directory is no file. */
static FILE *open_regular(const char *path)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return NULL;
    FILE *f = NULL;
    if (fstat(fd, &st) == 0) {
        if (S_ISREG(st.st_mode))
            f = fdopen(fd, "r");
        else
            errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
    }
    if (f == NULL) {
        int cause = errno;
        close(fd);
        errno = cause;
    }
    return f;
}

int bl_series_read(const char *path, struct bl_series *out, struct bl_error *err)
{
    struct bl_series s = {0};
    FILE *f = open_regular(path);
    if (f == NULL)
        return bl_error_set(err, BL_EXIT_USAGE, "%s: %s; name the directory of a run", path,
                            strerror(errno));
    char *line = NULL;
    size_t size = 0, number_of_line = 0;
    ssize_t length;
    double attempt = 0;
    int rc = 0;
    while (rc >= 0 && (length = getline(&line, &size, f)) >= 0) {
        number_of_line++;
        if (length == 1 && line[0] == '\n')
            continue;
        json_t *row = json_loadb(line, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        rc = row == NULL ? 1 : add_row(&s, row, &attempt);
        json_decref(row);
        if (rc > 0 && s.skipped++ == 0)
            s.first_skipped = number_of_line;
    }
    free(line);
    int failed = ferror(f);
    fclose(f);
    if (rc < 0 || failed) {
        bl_series_free(&s);
        return bl_error_set(err, BL_EXIT_FAILED, "%s: %s", path,
                            failed ? "read error" : "out of memory");
    }
    *out = s;
    return 0;
}

void bl_series_free(struct bl_series *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->count; i++)
        bl_curve_free(&s->curves[i]);
    free(s->curves);
    bl_curve_free(&s->rows);
    free(s->resumes);
    memset(s, 0, sizeof *s);
}

const struct bl_curve *bl_series_find(const struct bl_series *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->curves[i].name, name) == 0)
            return s->curves[i].count > 0 ? &s->curves[i] : NULL;
    }
    return NULL;
}
