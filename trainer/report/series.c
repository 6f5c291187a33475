#include "report/series.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct bl_curve *curve_get(struct bl_series *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->curves[i].name, name) == 0)
            return &s->curves[i];
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
    return c;
}

static int curve_add(struct bl_curve *c, double step, double value)
{
    if (c->count == c->capacity) {
        size_t capacity = c->capacity ? 2 * c->capacity : 256;
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

/* A new attempt starts at `step`: what earlier attempts wrote from there on is void. */
static void supersede(struct bl_series *s, double step)
{
    for (size_t i = 0; i < s->count; i++) {
        struct bl_curve *c = &s->curves[i];
        while (c->count > 0 && c->step[c->count - 1] >= step)
            c->count--;
    }
}

static int add_row(struct bl_series *s, json_t *row, double *attempt)
{
    double step, a = 1;
    if (!json_is_object(row) || number(json_object_get(row, "step"), &step) < 0)
        return 1;
    (void)number(json_object_get(row, "attempt"), &a);
    if (a > *attempt) {
        supersede(s, step);
        *attempt = a;
    } else if (a < *attempt) {
        return 0; /* a late line of an attempt that lost its claim */
    }
    const char *key;
    json_t *value;
    json_object_foreach(row, key, value)
    {
        double v;
        if (strcmp(key, "step") == 0 || strcmp(key, "attempt") == 0 || strcmp(key, "run") == 0 ||
            strcmp(key, "time") == 0 || number(value, &v) < 0)
            continue;
        struct bl_curve *c = curve_get(s, key);
        if (c == NULL || curve_add(c, step, v) < 0)
            return -1;
    }
    return 0;
}

int bl_series_read(const char *path, struct bl_series *out, struct bl_error *err)
{
    struct bl_series s = {0};
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return bl_error_set(err, BL_EXIT_USAGE, "%s: %s; name the directory of a run", path,
                            strerror(errno));
    char *line = NULL;
    size_t size = 0;
    ssize_t length;
    double attempt = 0;
    int rc = 0;
    while (rc >= 0 && (length = getline(&line, &size, f)) >= 0) {
        if (length == 1)
            continue;
        json_t *row = json_loadb(line, (size_t)length, JSON_REJECT_DUPLICATES, NULL);
        rc = row == NULL ? 1 : add_row(&s, row, &attempt);
        json_decref(row);
        if (rc == 0)
            s.rows++;
        else if (rc > 0)
            s.skipped++;
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
    for (size_t i = 0; i < s->count; i++) {
        free(s->curves[i].name);
        free(s->curves[i].step);
        free(s->curves[i].value);
    }
    free(s->curves);
    memset(s, 0, sizeof *s);
}

const struct bl_curve *bl_series_find(const struct bl_series *s, const char *name)
{
    for (size_t i = 0; i < s->count; i++) {
        if (strcmp(s->curves[i].name, name) == 0)
            return &s->curves[i];
    }
    return NULL;
}
