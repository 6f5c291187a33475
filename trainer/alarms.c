#include "alarms.h"

#include <fnmatch.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <jansson.h>

#include "base/log.h"
#include "base/random.h"
#include "base/strings.h"

enum match { UNKNOWN, NO, YES };

/* One rule looking at one metric. */
struct watch {
    const char *name; /* of a metric that matches; the metrics own it */
    uint64_t count;   /* rows outside, in a row */
    enum match match;
};

struct rule {
    const struct bl_alarm *alarm;
    char label[32];        /* "alarms[2]" */
    char key[24];          /* everything that makes it this rule */
    struct watch *watches; /* (room,) by the id of the metric */
    size_t room;
    size_t episodes; /* that last */
    json_t *loaded;  /* counts of metrics that no row had yet: name -> number */
};

struct bl_alarms {
    struct rule *rules;
    size_t count;
};

int bl_alarms_make(const struct bl_alarm *rules, size_t count, struct bl_alarms **out,
                   struct bl_error *err)
{
    struct bl_alarms *a = calloc(1, sizeof *a);
    if (!a || !(a->rules = calloc(count + 1, sizeof *a->rules)))
        goto fail;
    for (size_t i = 0; i < count; i++) {
        struct rule *r = &a->rules[i];
        a->count++;
        r->alarm = &rules[i];
        snprintf(r->label, sizeof r->label, "alarms[%zu]", i);
        char *text =
            bl_format("%s above %.17g below %.17g for %lld from %lld action %d", rules[i].metric,
                      rules[i].above, rules[i].below, (long long)rules[i].in_a_row,
                      (long long)rules[i].from, rules[i].action);
        r->loaded = json_object();
        if (text)
            snprintf(r->key, sizeof r->key, "%016llx", (unsigned long long)bl_hash(text));
        free(text);
        if (!text || !r->loaded)
            goto fail;
    }
    *out = a;
    return 0;
fail:
    bl_alarms_free(a);
    return bl_error_set(err, BL_EXIT_FAILED, "alarms: out of memory");
}

void bl_alarms_free(struct bl_alarms *a)
{
    if (!a)
        return;
    for (size_t i = 0; i < a->count; i++) {
        json_decref(a->rules[i].loaded);
        free(a->rules[i].watches);
    }
    free(a->rules);
    free(a);
}

/* NULL: no memory. */
static struct watch *watch_of(struct rule *r, uint32_t id, const char *name)
{
    if (id >= r->room) {
        size_t room = 2 * (size_t)id + 64;
        struct watch *grown = realloc(r->watches, room * sizeof *grown);
        if (!grown)
            return NULL;
        memset(grown + r->room, 0, (room - r->room) * sizeof *grown);
        r->watches = grown;
        r->room = room;
    }
    struct watch *w = &r->watches[id];
    if (w->match == UNKNOWN) {
        w->match = fnmatch(r->alarm->metric, name, 0) == 0 ? YES : NO;
        if (w->match == YES) {
            w->name = name;
            w->count = (uint64_t)json_integer_value(json_object_get(r->loaded, name));
            json_object_del(r->loaded, name);
        }
    }
    return w;
}

static int is_outside(const struct bl_alarm *a, double value)
{
    return !isfinite(value) || value > a->above || value < a->below; /* a NaN bound: false */
}

/* "loss/ce is 13.2 at step 512, above 12" */
static void describe(const struct rule *r, uint64_t step, const char *name, double value,
                     size_t others, char *out, size_t size)
{
    const struct bl_alarm *a = r->alarm;
    char bound[64] = "not a finite number", rows[48] = "", more[64] = "";
    if (value > a->above)
        snprintf(bound, sizeof bound, "above %g", a->above);
    else if (value < a->below)
        snprintf(bound, sizeof bound, "below %g", a->below);
    if (a->in_a_row > 1)
        snprintf(rows, sizeof rows, " for %lld rows", (long long)a->in_a_row);
    if (others > 0)
        snprintf(more, sizeof more, "; %zu more of its metrics are outside too", others);
    snprintf(out, size, "%.120s is %g at step %llu, %s%s%s", name,
             isnan(value) ? (double)NAN : value /* no sign */, (unsigned long long)step, bound,
             rows, more);
}

struct findings {
    size_t begun, lasting; /* episodes that begin in this row, and older ones that go on */
    const char *name;      /* the first that begins, else the first that lasts */
    double value;
};

static int look(struct rule *r, uint64_t step, const struct bl_metrics_row *row, struct findings *f,
                struct bl_error *err)
{
    uint64_t need = (uint64_t)r->alarm->in_a_row;
    for (size_t i = 0; i < row->count; i++) {
        struct watch *w = watch_of(r, row->ids[i], row->names[i]);
        if (!w)
            return bl_error_set(err, BL_EXIT_FAILED, "alarms: out of memory");
        if (w->match == NO || step < (uint64_t)r->alarm->from)
            continue;
        if (!is_outside(r->alarm, row->values[i])) {
            r->episodes -= w->count >= need;
            w->count = 0;
            continue;
        }
        w->count++;
        if (w->count < need)
            continue;
        int begins = w->count == need;
        if (f->begun + f->lasting == 0 || (begins && f->begun == 0)) {
            f->name = row->names[i];
            f->value = row->values[i];
        }
        f->begun += (size_t)begins;
        f->lasting += (size_t)!begins;
    }
    return 0;
}

int bl_alarms_check(struct bl_alarms *a, uint64_t step, const struct bl_metrics_row *row,
                    struct bl_alarms_verdict *out, struct bl_error *err)
{
    struct bl_alarms_verdict v = {0, ""};
    for (size_t i = 0; i < a->count; i++) {
        struct rule *r = &a->rules[i];
        struct findings f = {0, 0, NULL, 0};
        char text[360];
        if (look(r, step, row, &f, err) != 0)
            return -1;
        int quiet = r->episodes == 0;
        r->episodes += f.begun;
        if (f.name == NULL)
            continue;
        describe(r, step, f.name, f.value, f.begun + f.lasting - 1, text, sizeof text);
        if (r->alarm->action == BL_ALARM_STOP) {
            v.checkpoint = 1;
            if (!v.stop[0])
                snprintf(v.stop, sizeof v.stop, "%s: %s", r->label, text);
        } else if (f.begun > 0) {
            bl_log_by(BL_LOG_WARNING, r->label, "%s", text);
            v.checkpoint |= r->alarm->action == BL_ALARM_CHECKPOINT && quiet;
        }
    }
    *out = v;
    return 0;
}

static int is_seen(const struct rule *r, const char *const *later)
{
    for (size_t i = 0; i < r->room; i++)
        if (r->watches[i].match == YES)
            return 1;
    for (; *later; later++)
        if (fnmatch(r->alarm->metric, *later, 0) == 0)
            return 1;
    return 0;
}

void bl_alarms_check_names(const struct bl_alarms *a, const struct bl_metrics_row *row,
                           const char *const *later)
{
    const char **names = calloc(row->count + 1, sizeof *names);
    for (size_t i = 0; names && i < row->count; i++)
        names[i] = row->names[i];
    for (size_t i = 0; i < a->count; i++) {
        const struct rule *r = &a->rules[i];
        const char *metric = r->alarm->metric;
        if (is_seen(r, later))
            continue;
        const char *near = names && !strpbrk(metric, "*?[") ? bl_nearest(metric, names) : NULL;
        bl_log_by(BL_LOG_WARNING, r->label, "no metric of this run matches \"%s\" so far; %s%s%s",
                  metric, near ? "did you mean \"" : "metrics.jsonl has the names",
                  near ? near : "", near ? "\"?" : "");
    }
    free(names);
}

/* ---- in checkpoints -------------------------------------------------------------------------- */

int bl_alarms_save(const struct bl_alarms *a, char **out, struct bl_error *err)
{
    json_t *root = json_object();
    int failed = root == NULL;
    for (size_t i = 0; !failed && i < a->count; i++) {
        const struct rule *r = &a->rules[i];
        json_t *counts = json_copy(r->loaded);
        for (size_t k = 0; k < r->room; k++) {
            const struct watch *w = &r->watches[k];
            /* A name that is no UTF-8 cannot be kept: its count begins anew. */
            if (w->match == YES && w->count > 0)
                json_object_set_new(counts, w->name, json_integer((json_int_t)w->count));
        }
        failed |= json_object_set_new(root, r->key, counts) != 0;
    }
    char *text = failed ? NULL : json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    json_decref(root);
    if (!text)
        return bl_error_set(err, BL_EXIT_FAILED, "alarms: out of memory");
    *out = text;
    return 0;
}

int bl_alarms_load(struct bl_alarms *a, const void *text, uint64_t bytes, struct bl_error *err)
{
    json_error_t where;
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &where);
    if (!json_is_object(root)) {
        json_decref(root);
        return bl_error_set(err, BL_EXIT_CHECKPOINT, "the state of the alarms cannot be read");
    }
    for (size_t i = 0; i < a->count; i++) {
        struct rule *r = &a->rules[i];
        const char *name;
        json_t *count;
        json_object_foreach(json_object_get(root, r->key), name, count)
        {
            if (json_integer_value(count) <= 0)
                continue;
            json_object_set(r->loaded, name, count);
            r->episodes += json_integer_value(count) >= r->alarm->in_a_row;
        }
    }
    json_decref(root);
    return 0;
}
