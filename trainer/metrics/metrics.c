#include "metrics/metrics.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"

enum { FAILURES_IN_A_ROW = 10, LONGEST_PAUSE = 1024 };

/* A name that was ever set. Rows name the same few hundred metrics again and again: names are
 * copied and hashed once for the whole run. */
struct name {
    char *text;
    uint64_t hash;
    uint32_t id;  /* counts names */
    size_t at;    /* place in the current row ... */
    uint64_t row; /* ... when this is its number */
};

struct sink {
    struct bl_plugin_instance *instance;
    unsigned in_a_row; /* failures */
    unsigned pause;    /* rows between two tries; 0: it gets all of them */
    unsigned left;     /* rows until the next try */
};

struct bl_metrics {
    struct sink *sinks;
    size_t sink_count;
    struct name *table; /* open addressing; text NULL = free; at most half full */
    size_t capacity, used;
    const char **names; /* the row; room for capacity / 2 */
    double *values;
    uint32_t *ids;
    size_t count;
    uint64_t row, failures;
    double wall, monotonic; /* both clocks at the first row; 0: there was none */
    int no_memory;          /* a value of this row was dropped */
};

static struct name *slot(struct name *table, size_t capacity, const char *text, uint64_t hash)
{
    size_t i = hash & (capacity - 1);

    while (table[i].text && (table[i].hash != hash || strcmp(table[i].text, text) != 0))
        i = (i + 1) & (capacity - 1);
    return &table[i];
}

static int grow(struct bl_metrics *m)
{
    size_t capacity = m->capacity ? 2 * m->capacity : 512;
    struct name *table = calloc(capacity, sizeof(*table));
    const char **names = malloc(capacity / 2 * sizeof(*names));
    double *values = malloc(capacity / 2 * sizeof(*values));
    uint32_t *ids = malloc(capacity / 2 * sizeof(*ids));

    if (!table || !names || !values || !ids) {
        free(table);
        free(names);
        free(values);
        free(ids);
        return -1;
    }
    for (size_t i = 0; i < m->capacity; i++)
        if (m->table[i].text)
            *slot(table, capacity, m->table[i].text, m->table[i].hash) = m->table[i];
    for (size_t i = 0; i < m->count; i++) {
        names[i] = m->names[i];
        values[i] = m->values[i];
        ids[i] = m->ids[i];
    }
    free(m->table);
    free(m->names);
    free(m->values);
    free(m->ids);
    m->table = table;
    m->capacity = capacity;
    m->names = names;
    m->values = values;
    m->ids = ids;
    return 0;
}

int bl_metrics_make(struct bl_plugin_instance *const *sinks, size_t count, struct bl_metrics **out,
                    struct bl_error *err)
{
    struct bl_metrics *m = calloc(1, sizeof(*m));

    if (!m || !(m->sinks = calloc(count + 1, sizeof(*m->sinks))) || grow(m) != 0) {
        bl_metrics_free(m);
        return bl_error_set(err, BL_EXIT_FAILED, "no memory for metrics");
    }
    m->row = 1;
    m->sink_count = count;
    for (size_t i = 0; i < count; i++)
        m->sinks[i].instance = sinks[i];
    *out = m;
    return 0;
}

void bl_metrics_set(struct bl_metrics *m, const char *name, double value)
{
    uint64_t hash = bl_hash(name);
    struct name *n = slot(m->table, m->capacity, name, hash);

    if (!n->text) {
        if (2 * (m->used + 1) > m->capacity) {
            if (grow(m) != 0) {
                m->no_memory = 1;
                return;
            }
            n = slot(m->table, m->capacity, name, hash);
        }
        n->text = strdup(name);
        if (!n->text) {
            m->no_memory = 1;
            return;
        }
        n->hash = hash;
        n->id = (uint32_t)m->used++;
    }
    if (n->row != m->row) {
        n->row = m->row;
        n->at = m->count++;
        m->names[n->at] = n->text;
        m->ids[n->at] = n->id;
    }
    m->values[n->at] = value;
}

void bl_metrics_row(const struct bl_metrics *m, struct bl_metrics_row *out)
{
    *out = (struct bl_metrics_row){m->count, m->names, m->values, m->ids};
}

static double row_time(struct bl_metrics *m)
{
    if (m->wall == 0.0) {
        m->wall = bl_clock_wall();
        m->monotonic = bl_clock();
    }
    return m->wall + (bl_clock() - m->monotonic);
}

static void took(struct bl_metrics *m, struct sink *s, int failed, const struct bl_error *err)
{
    if (!failed) {
        if (s->pause > 0)
            bl_log(BL_LOG_INFO, "sink %s works again", s->instance->name);
        s->in_a_row = s->pause = 0;
        return;
    }
    m->failures++;
    s->in_a_row++;
    bl_log_by(BL_LOG_WARNING, s->instance->name, "%s; the run goes on",
              err->text[0] ? err->text : "the sink failed without saying why");
    if (s->in_a_row < FAILURES_IN_A_ROW)
        return;
    if (s->pause == 0)
        bl_log(BL_LOG_WARNING,
               "sink %s failed %d times in a row: it is tried less and less often, and misses the "
               "rows between",
               s->instance->name, FAILURES_IN_A_ROW);
    s->pause = s->pause == 0 ? FAILURES_IN_A_ROW : 2 * s->pause;
    if (s->pause > LONGEST_PAUSE)
        s->pause = LONGEST_PAUSE;
    s->left = s->pause;
}

void bl_metrics_emit(struct bl_metrics *m, uint64_t step, uint32_t attempt)
{
    struct bl_record record = {.size = sizeof(record),
                               .attempt = attempt,
                               .step = step,
                               .time = row_time(m),
                               .count = m->count,
                               .names = m->names,
                               .values = m->values};

    if (m->no_memory) {
        m->failures++;
        bl_log(BL_LOG_WARNING, "step %llu: no memory for some metrics", (unsigned long long)step);
    }
    for (size_t i = 0; i < m->sink_count; i++) {
        struct sink *s = &m->sinks[i];
        struct bl_error err = BL_ERROR_INIT;
        if (s->left > 0) {
            s->left--;
            m->failures++; /* not tried, lost all the same */
        } else
            took(m, s, s->instance->ops.sink.write(s->instance->self, &record, &err) != 0, &err);
    }
    m->count = 0;
    m->row++;
    m->no_memory = 0;
}

void bl_metrics_finish(struct bl_metrics *m)
{
    for (size_t i = 0; m && i < m->sink_count; i++) {
        struct sink *s = &m->sinks[i];
        struct bl_error err = BL_ERROR_INIT;
        if (s->instance->ops.sink.finish &&
            s->instance->ops.sink.finish(s->instance->self, &err) != 0)
            took(m, s, 1, &err);
    }
}

uint64_t bl_metrics_failures(const struct bl_metrics *m)
{
    return m->failures;
}

void bl_metrics_free(struct bl_metrics *m)
{
    if (!m)
        return;
    for (size_t i = 0; i < m->capacity; i++)
        free(m->table[i].text);
    free(m->table);
    free(m->names);
    free(m->values);
    free(m->ids);
    free(m->sinks);
    free(m);
}
