/* Sink: metrics.csv in the run's directory, one line a row, one column a metric.
 *
 *     step,attempt,time,loss/ce,optim/lr,loss/val
 *     1,1,1700000000.125000,5.25,0.001,
 *     2,1,1700000000.250000,5.125,0.002,5.5
 *
 * every    steps between rows, default 1: steps that `every` divides, rows with a held-out loss
 *          (loss/val...), step 1, and the last step that the run comes to
 * columns  fnmatch patterns of the metrics that get a column, default [ ]: all
 *
 * Read it with pandas.read_csv, R's read.csv(check.names = FALSE), or gnuplot: set datafile
 * separator ","; plot "metrics.csv" using "step":"loss/ce". A metric that a row does not have is an
 * empty field. NaN and infinities are nan, inf, -inf, as in metrics.jsonl. Numbers have the digits
 * that give the same double back. Fields are quoted as in RFC 4180; lines end in a bare newline,
 * and control characters in a name become '_', so that a line is a row.
 *
 * Columns stay where they are. A metric that turns up later, as loss/val does at the first
 * evaluation, gets the next column at the right: the file is then written anew beside the old one,
 * each older line with the missing commas, and renamed over it. That happens once or twice in a run
 * as a rule; a plugin that invents a name a step would make it happen at each one.
 *
 * A resumed run appends, after an incomplete last line has been cut off. Rows that it repeats are
 * there twice: the higher attempt holds.
 *
 * What it cannot do: keep the names of the run and of tensors apart, or hold text. metrics.jsonl is
 * the complete record, and what `ballast report` reads.
 */
#include "../lines.h"

#include <fnmatch.h>
#include <math.h>

struct options {
    int64_t every;
    struct bl_strings columns;
};

static const char *const fixed[] = {"step", "attempt", "time"};
enum { FIXED = 3 };

struct csv {
    struct lines lines; /* first */
    const struct options *options;
    int header;      /* the file has one */
    size_t in_file;  /* columns that it names, after the fixed ones */
    size_t count;    /* columns known, >= in_file */
    size_t capacity; /* of the three arrays */
    char **names;
    double *values;
    unsigned char *present; /* 1: the row being made has a value */
    int pending;            /* the row being made is not in the file */
    uint64_t step;          /* of it */
    uint32_t attempt;
    double time;
};

/* ---- columns -------------------------------------------------------------------------------- */

static char plain(char c)
{
    unsigned char u = (unsigned char)c;
    return (u > 0 && u < 0x20) || u == 0x7f ? '_' : c;
}

static int same(const char *column, const char *name)
{
    while (*column && *column == plain(*name)) {
        column++;
        name++;
    }
    return *column == plain(*name);
}

/* The column of a metric, made if need be; SIZE_MAX: no memory. `hint` is where it probably is. */
static size_t column_of(struct csv *c, const char *name, size_t hint)
{
    if (hint < c->count && same(c->names[hint], name))
        return hint;
    for (size_t i = 0; i < c->count; i++)
        if (same(c->names[i], name))
            return i;
    if (c->count == c->capacity) {
        size_t capacity = 2 * c->capacity + 64;
        char **names = realloc(c->names, capacity * sizeof(*names));
        if (names)
            c->names = names;
        double *values = realloc(c->values, capacity * sizeof(*values));
        if (values)
            c->values = values;
        unsigned char *present = realloc(c->present, capacity);
        if (present)
            c->present = present;
        if (!names || !values || !present)
            return SIZE_MAX;
        c->capacity = capacity;
    }
    char *copy = strdup(name);
    if (!copy)
        return SIZE_MAX;
    for (char *p = copy; *p; p++)
        *p = plain(*p);
    c->names[c->count] = copy;
    c->present[c->count] = 0;
    return c->count++;
}

static int wanted(const struct csv *c, const char *name)
{
    const struct bl_strings *patterns = &c->options->columns;
    int some = patterns->count == 0;

    for (int i = 0; i < FIXED; i++)
        if (strcmp(name, fixed[i]) == 0)
            return 0;
    for (uint64_t i = 0; !some && i < patterns->count; i++)
        some = fnmatch(patterns->values[i], name, 0) == 0;
    return some;
}

/* ---- the header of a file that is there ------------------------------------------------------ */

/* Everything up to the first newline, NULL: no memory or not readable (errno says). *text is "" for
 * an empty file. */
static char *first_line(int fd)
{
    size_t length = 0, capacity = 4096;
    char *text = malloc(capacity);

    while (text) {
        ssize_t got = pread(fd, text + length, capacity - length - 1, (off_t)length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0) {
            free(text);
            return NULL;
        }
        text[length + (size_t)got] = '\0';
        char *end = memchr(text + length, '\n', (size_t)got);
        length += (size_t)got;
        if (end)
            *end = '\0';
        if (end || got == 0)
            return text;
        if (length + 1 == capacity) {
            char *grown = realloc(text, capacity *= 2);
            if (!grown)
                free(text);
            text = grown;
        }
    }
    return NULL;
}

/* Takes one field off *at and unquotes it in place; NULL: it is no CSV. *at is NULL after the last
 * one. */
static char *next_field(char **at)
{
    char *field = *at, *from = field, *to = field;

    if (*from != '"') {
        from += strcspn(from, ",");
        *at = *from == ',' ? from + 1 : NULL;
        *from = '\0';
        return field;
    }
    for (from++; *from && (*from != '"' || from[1] == '"'); from++) {
        if (*from == '"')
            from++;
        *to++ = *from;
    }
    if (*from != '"' || (from[1] != ',' && from[1] != '\0'))
        return NULL;
    *at = from[1] == ',' ? from + 2 : NULL;
    *to = '\0';
    return field;
}

static int32_t read_header(struct csv *c, struct bl_error *err)
{
    const struct bl_host *host = c->lines.host;
    char *text = first_line(c->lines.fd), *at = text, *field = NULL;
    int32_t rc = 0;

    if (!text)
        return host->fail(host, err, "%s: reading its first line: %s", c->lines.path,
                          strerror(errno));
    for (size_t i = 0; text[0] && at && rc == 0; i++) {
        field = next_field(&at);
        /* A name twice would shift all that follow. */
        if (!field ||
            (i < FIXED ? strcmp(field, fixed[i]) != 0 : column_of(c, field, c->count) != i - FIXED))
            rc = host->fail(host, err,
                            "%s: its first line is not that of a metrics.csv (\"%s\" in field "
                            "%zu): move the file away",
                            c->lines.path, field ? field : "a broken quote", i + 1);
    }
    if (rc == 0 && text[0] && c->count == 0 && (!field || strcmp(field, fixed[FIXED - 1]) != 0))
        rc = host->fail(host, err, "%s: its first line ends early: move the file away",
                        c->lines.path);
    c->header = text[0] != '\0';
    c->in_file = c->count;
    free(text);
    return rc;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void add_field(struct lines *l, const char *text)
{
    if (!strpbrk(text, ",\"")) {
        lines_text(l, text);
        return;
    }
    lines_add(l, "\"", 1);
    for (; *text; text++)
        lines_add(l, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1);
    lines_add(l, "\"", 1);
}

static void make_header(struct csv *c)
{
    struct lines *l = &c->lines;

    l->length = 0;
    l->no_memory = 0;
    lines_text(l, "step,attempt,time");
    for (size_t i = 0; i < c->count; i++) {
        lines_add(l, ",", 1);
        add_field(l, c->names[i]);
    }
    lines_add(l, "\n", 1);
}

static void make_row(struct csv *c)
{
    struct lines *l = &c->lines;
    char text[96];

    l->length = 0;
    l->no_memory = 0;
    snprintf(text, sizeof(text), "%llu,%lu,%.6f", (unsigned long long)c->step,
             (unsigned long)c->attempt, isfinite(c->time) && fabs(c->time) < 1e15 ? c->time : 0.0);
    lines_text(l, text);
    for (size_t i = 0; i < c->count; i++) {
        double value = c->values[i];
        lines_add(l, ",", 1);
        if (!c->present[i])
            continue;
        if (isnan(value))
            lines_text(l, "nan");
        else if (isinf(value))
            lines_text(l, value > 0 ? "inf" : "-inf");
        else
            lines_number(l, value);
    }
    lines_add(l, "\n", 1);
}

/* Writes what is in the buffer to fd and empties it. */
static int put(struct lines *l, int fd)
{
    size_t done = 0;

    while (!l->no_memory && done < l->length) {
        ssize_t wrote = write(fd, l->text + done, l->length - done);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return -1;
        done += (size_t)wrote;
    }
    if (l->no_memory)
        errno = ENOMEM;
    l->length = 0;
    return l->no_memory ? -1 : 0;
}

/* The whole file with all known columns, to fd. */
static int copy_wider(struct csv *c, int fd)
{
    struct lines *l = &c->lines;
    size_t missing = c->count - c->in_file;
    int in_header = c->header;
    char piece[65536];
    off_t at = 0;
    ssize_t got;

    make_header(c);
    while ((got = pread(l->fd, piece, sizeof(piece), at)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        at += got;
        for (ssize_t i = 0; i < got; i++) {
            if (piece[i] == '\n' && !in_header)
                for (size_t k = 0; k < missing; k++)
                    lines_add(l, ",", 1);
            if (!in_header)
                lines_add(l, &piece[i], 1);
            if (piece[i] == '\n')
                in_header = 0;
        }
        if (put(l, fd) != 0)
            return -1;
    }
    return put(l, fd) != 0 || fsync(fd) != 0 ? -1 : 0;
}

static int32_t widen(struct csv *c, struct bl_error *err)
{
    struct lines *l = &c->lines;
    size_t size = strlen(l->path) + sizeof(".new");
    char *path = malloc(size);
    int fd = -1;

    if (path) {
        snprintf(path, size, "%s.new", l->path);
        fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    }
    if (fd < 0 || copy_wider(c, fd) != 0 || rename(path, l->path) != 0) {
        l->host->fail(l->host, err, "%s: step %llu not written, more columns for it: %s", l->path,
                      (unsigned long long)c->step, strerror(errno));
        if (fd >= 0) {
            close(fd);
            unlink(path);
        }
        free(path);
        return -1;
    }
    free(path);
    close(l->fd);
    l->fd = fd;
    c->header = 1;
    c->in_file = c->count;
    return 0;
}

static int32_t emit(struct csv *c, struct bl_error *err)
{
    if ((!c->header || c->count > c->in_file) && widen(c, err) != 0)
        return -1;
    make_row(c);
    if (lines_write(&c->lines, c->step, err) != 0)
        return -1;
    c->pending = 0;
    return 0;
}

static int is_kept(const struct csv *c, const struct bl_record *r)
{
    int kept = r->step % (uint64_t)c->options->every == 0 || r->step == 1;

    for (uint64_t i = 0; !kept && i < r->count; i++)
        kept = strncmp(r->names[i], "loss/val", 8) == 0;
    return kept;
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void destroy(void *self)
{
    struct csv *c = self;

    if (!c)
        return;
    for (size_t i = 0; i < c->count; i++)
        free(c->names[i]);
    free(c->names);
    free(c->values);
    free(c->present);
    lines_close(&c->lines);
    c->lines.host->release(c->lines.host, c);
}

static int32_t create(const struct bl_host *host, const void *values, void **self,
                      struct bl_error *err)
{
    struct csv *c = host->allocate(host, sizeof(*c));

    if (!c)
        return host->fail(host, err, "no memory");
    c->options = values;
    if (lines_open(&c->lines, host, "metrics.csv", err) != 0 ||
        (c->lines.fd >= 0 && read_header(c, err) != 0)) {
        destroy(c);
        return -1;
    }
    *self = c;
    return 0;
}

static int32_t write_row(void *self, const struct bl_record *r, struct bl_error *err)
{
    struct csv *c = self;
    const struct bl_host *host = c->lines.host;
    size_t hint = 0;

    if (c->lines.fd < 0)
        return 0;
    if (c->count > 0)
        memset(c->present, 0, c->count);
    c->step = r->step;
    c->attempt = r->attempt;
    c->time = r->time;
    c->pending = 1;
    for (uint64_t i = 0; i < r->count; i++) {
        if (!wanted(c, r->names[i]))
            continue;
        size_t column = column_of(c, r->names[i], hint);
        if (column == SIZE_MAX)
            return host->fail(host, err, "no memory for the columns of step %llu",
                              (unsigned long long)r->step);
        c->values[column] = r->values[i];
        c->present[column] = 1;
        hint = column + 1;
    }
    if (!is_kept(c, r))
        return 0;
    locale_t before = uselocale(c->lines.c);
    int32_t rc = emit(c, err);
    uselocale(before);
    return rc;
}

/* The row that `every` left out is the run's last one now. */
static int32_t finish(void *self, struct bl_error *err)
{
    struct csv *c = self;
    int32_t rc = 0;

    if (c->pending) {
        locale_t before = uselocale(c->lines.c);
        rc = emit(c, err);
        uselocale(before);
    }
    return lines_finish(&c->lines, err) != 0 ? -1 : rc;
}

static const struct bl_option options[] = {
    {"every", BL_OPTION_INT, 0, "1", "[1,inf)",
     "keeps rows of steps that this divides, with a held-out loss, the first and the last",
     offsetof(struct options, every)},
    {"columns", BL_OPTION_STRINGS, 0, "", NULL,
     "patterns of the metrics that get a column; none = all", offsetof(struct options, columns)},
    {0}};

static const struct bl_sink_ops ops = {create, destroy, NULL, NULL, write_row, finish};

BL_PLUGIN(BL_KIND_SINK, "csv", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct options), NULL);
