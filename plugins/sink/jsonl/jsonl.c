/* Sink: metrics.jsonl in the run's directory, one JSON object a row.
 *
 *     {"run":"demo","attempt":1,"step":10,"time":1700000000.123456,"loss/ce":3.25,...}
 *
 * Numbers have the fewest digits that read back to the same double; NaN and infinities are the
 * strings "nan", "inf", "-inf". `every = N` keeps the rows of steps that N divides, the first and
 * the last step of the plan, rows with a held-out loss (loss/val...), and the last row before the
 * run ends for whatever reason; monitors that are due in other steps only are then not in the file.
 */
#include "../lines.h"

#include <math.h>

struct jsonl_options {
    int64_t every;
};

struct jsonl {
    struct lines lines;
    uint64_t every;
    int held;      /* the row in `lines` was left out: the last one is written in the end */
    uint64_t step; /* of that row */
};

/* Bytes of the well-formed UTF-8 sequence at p, 0 when there is none (RFC 3629, table in 4). */
static size_t utf8_length(const unsigned char *p)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t n;

    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    n = p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] == 0xe0)
        low = 0xa0;
    else if (p[0] == 0xed)
        high = 0x9f;
    else if (p[0] == 0xf0)
        low = 0x90;
    else if (p[0] == 0xf4)
        high = 0x8f;
    for (size_t i = 1; i < n; i++) {
        if (p[i] < low || p[i] > high) /* the NUL at the end fails here */
            return 0;
        low = 0x80;
        high = 0xbf;
    }
    return n;
}

/* A JSON string; bytes that are no UTF-8 become U+FFFD. */
static void add_string(struct lines *l, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    lines_add(l, "\"", 1);
    while (*p) {
        size_t n = utf8_length(p);
        if (n == 0) {
            lines_text(l, "\\ufffd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            lines_add(l, "\\", 1);
            lines_add(l, (const char *)p, 1);
        } else if (*p < 0x20 || *p == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", *p);
            lines_text(l, escape);
        } else {
            lines_add(l, (const char *)p, n);
        }
        p += n;
    }
    lines_add(l, "\"", 1);
}

static void add_number(struct lines *l, double value)
{
    if (isnan(value))
        lines_text(l, "\"nan\"");
    else if (isinf(value))
        lines_text(l, value > 0 ? "\"inf\"" : "\"-inf\"");
    else
        lines_number(l, value);
}

static void destroy(void *self)
{
    struct jsonl *j = self;

    if (!j)
        return;
    lines_close(&j->lines);
    j->lines.host->release(j->lines.host, j);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct jsonl *j = host->allocate(host, sizeof(*j));

    if (!j)
        return host->fail(host, err, "no memory");
    j->every = (uint64_t)((const struct jsonl_options *)options)->every;
    if (lines_open(&j->lines, host, "metrics.jsonl", err) != 0) {
        destroy(j);
        return -1;
    }
    *self = j;
    return 0;
}

static int reserved(const char *name)
{
    return strcmp(name, "run") == 0 || strcmp(name, "attempt") == 0 || strcmp(name, "step") == 0 ||
           strcmp(name, "time") == 0;
}

static void make_row(struct jsonl *j, const struct bl_record *r)
{
    struct lines *l = &j->lines;
    const char *run = l->host->info->name;
    char text[128];

    l->length = 0;
    l->no_memory = 0;
    lines_text(l, "{\"run\":");
    add_string(l, run ? run : "");
    snprintf(text, sizeof(text), ",\"attempt\":%lu,\"step\":%llu,\"time\":%.6f",
             (unsigned long)r->attempt, (unsigned long long)r->step,
             isfinite(r->time) && fabs(r->time) < 1e15 ? r->time : 0.0);
    lines_text(l, text);
    for (uint64_t i = 0; i < r->count; i++) {
        if (reserved(r->names[i]))
            continue; /* a second key of that name would hide the row's own */
        lines_add(l, ",", 1);
        add_string(l, r->names[i]);
        lines_add(l, ":", 1);
        add_number(l, r->values[i]);
    }
    lines_text(l, "}\n");
}

static int is_kept(const struct jsonl *j, const struct bl_record *r)
{
    if (r->step % j->every == 0 || r->step == 1 || r->step == j->lines.host->info->steps)
        return 1;
    for (uint64_t i = 0; i < r->count; i++)
        if (strncmp(r->names[i], "loss/val", 8) == 0)
            return 1;
    return 0;
}

static int32_t write_row(void *self, const struct bl_record *record, struct bl_error *err)
{
    struct jsonl *j = self;
    locale_t before;

    if (j->lines.fd < 0)
        return 0;
    before = uselocale(j->lines.c);
    make_row(j, record);
    uselocale(before);
    j->step = record->step;
    j->held = !is_kept(j, record);
    return j->held ? 0 : lines_write(&j->lines, j->step, err);
}

static int32_t finish(void *self, struct bl_error *err)
{
    struct jsonl *j = self;

    if (j->held && lines_write(&j->lines, j->step, err) != 0)
        return -1;
    j->held = 0;
    return lines_finish(&j->lines, err);
}

static const struct bl_option options[] = {
    {"every", BL_OPTION_INT, 0, "1", "[1,inf)",
     "keeps rows of steps that this divides, with a held-out loss, the first and the last",
     offsetof(struct jsonl_options, every)},
    {NULL, 0, 0, NULL, NULL, NULL, 0},
};

static const struct bl_sink_ops ops = {create, destroy, NULL, NULL, write_row, finish};

BL_PLUGIN(BL_KIND_SINK, "jsonl", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct jsonl_options), NULL);
