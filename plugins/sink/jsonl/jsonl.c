/* Sink: metrics.jsonl in the run's directory, one JSON object a row.
 *
 *     {"run":"demo","attempt":1,"step":10,"time":1700000000.123456,"loss/ce":3.25,...}
 *
 * Numbers have the fewest digits that read back to the same double; NaN and infinities are the
 * strings "nan", "inf", "-inf". `every = N` keeps the rows of steps that N divides, the first and
 * the last step of the plan, rows with a held-out loss (loss/val...), and the last row before the
 * run ends for whatever reason; monitors that are due in other steps only are then not in the file.
 *
 * A row is one write(), so a killed run
 * leaves one cut line at most; the next start cuts it off, and so does a failed write. */
#include <ballast/sink.h>

#include <errno.h>
#include <fcntl.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct jsonl_options {
    int64_t every;
};

struct jsonl {
    const struct bl_host *host;
    char *path;
    int fd; /* -1: this instance writes nothing (no directory, or not rank 0) */
    uint64_t every;
    char *line; /* the row being made */
    size_t length, capacity;
    int no_memory;
    int held;      /* the row in `line` was left out: the last one is written in the end */
    uint64_t step; /* of the row in `line` */
    locale_t c;    /* numbers have a '.' whatever the program's locale is */
};

static void add(struct jsonl *j, const char *bytes, size_t n)
{
    if (j->no_memory)
        return;
    if (j->length + n > j->capacity) {
        size_t capacity = 2 * (j->length + n) + 1024;
        char *line = realloc(j->line, capacity);
        if (!line) {
            j->no_memory = 1;
            return;
        }
        j->line = line;
        j->capacity = capacity;
    }
    memcpy(j->line + j->length, bytes, n);
    j->length += n;
}

static void add_text(struct jsonl *j, const char *text)
{
    add(j, text, strlen(text));
}

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
static void add_string(struct jsonl *j, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;

    add(j, "\"", 1);
    while (*p) {
        size_t n = utf8_length(p);
        if (n == 0) {
            add_text(j, "\\ufffd");
            n = 1;
        } else if (*p == '"' || *p == '\\') {
            add(j, "\\", 1);
            add(j, (const char *)p, 1);
        } else if (*p < 0x20 || *p == 0x7f) {
            char escape[8];
            snprintf(escape, sizeof(escape), "\\u%04x", *p);
            add_text(j, escape);
        } else {
            add(j, (const char *)p, n);
        }
        p += n;
    }
    add(j, "\"", 1);
}

/* %g drops zeros at the end, so 15 digits are as short as it gets unless the number is subnormal.
 */
static void add_number(struct jsonl *j, double value)
{
    char text[40];

    if (isnan(value)) {
        add_text(j, "\"nan\"");
        return;
    }
    if (isinf(value)) {
        add_text(j, value > 0 ? "\"inf\"" : "\"-inf\"");
        return;
    }
    for (int digits = fabs(value) < DBL_MIN ? 1 : 15; digits <= 17; digits++) {
        snprintf(text, sizeof(text), "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    add_text(j, text);
}

/* Cuts off what follows the last newline. */
static int repair(int fd, off_t size, off_t *end)
{
    char piece[65536];
    off_t at = size;

    while (at > 0) {
        size_t n = at < (off_t)sizeof(piece) ? (size_t)at : sizeof(piece);
        ssize_t got = pread(fd, piece, n, at - (off_t)n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got != (ssize_t)n) {
            if (got >= 0)
                errno = EIO;
            return -1;
        }
        for (size_t i = n; i > 0; i--) {
            if (piece[i - 1] == '\n') {
                at = at - (off_t)n + (off_t)i;
                goto found;
            }
        }
        at -= (off_t)n;
    }
found:
    *end = at;
    return at == size ? 0 : ftruncate(fd, at);
}

static int32_t open_file(struct jsonl *j, struct bl_error *err)
{
    const struct bl_host *host = j->host;
    const char *directory = host->info->directory;
    size_t size = strlen(directory) + sizeof("/metrics.jsonl");
    struct stat st;
    off_t end;

    j->path = host->allocate(host, size);
    if (!j->path)
        return host->fail(host, err, "no memory");
    snprintf(j->path, size, "%s/metrics.jsonl", directory);
    /* O_NONBLOCK: opening a FIFO must not wait for its other side. */
    j->fd = open(j->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, 0666);
    if (j->fd < 0 || fstat(j->fd, &st) != 0)
        return host->fail(host, err, "%s: %s", j->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return host->fail(host, err, "%s: not a regular file: move it away", j->path);
    if (repair(j->fd, st.st_size, &end) != 0)
        return host->fail(host, err, "%s: cutting off an incomplete last line: %s", j->path,
                          strerror(errno));
    if (end != st.st_size)
        host->log(host, BL_LOG_WARNING, "%s: cut off an incomplete last line of %lld bytes",
                  j->path, (long long)(st.st_size - end));
    return 0;
}

static void destroy(void *self)
{
    struct jsonl *j = self;

    if (!j)
        return;
    if (j->fd >= 0)
        close(j->fd);
    if (j->c)
        freelocale(j->c);
    free(j->line);
    j->host->release(j->host, j->path);
    j->host->release(j->host, j);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct jsonl *j = host->allocate(host, sizeof(*j));

    if (!j)
        return host->fail(host, err, "no memory");
    j->host = host;
    j->every = (uint64_t)((const struct jsonl_options *)options)->every;
    j->fd = -1;
    j->c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!j->c) {
        host->fail(host, err, "no C locale: %s", strerror(errno));
        destroy(j);
        return -1;
    }
    if (host->rank == 0 && host->info->directory && host->info->directory[0] != '\0' &&
        open_file(j, err) != 0) {
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
    char text[128];

    j->length = 0;
    j->no_memory = 0;
    add_text(j, "{\"run\":");
    add_string(j, j->host->info->name ? j->host->info->name : "");
    snprintf(text, sizeof(text), ",\"attempt\":%lu,\"step\":%llu,\"time\":%.6f",
             (unsigned long)r->attempt, (unsigned long long)r->step,
             isfinite(r->time) && fabs(r->time) < 1e15 ? r->time : 0.0);
    add_text(j, text);
    for (uint64_t i = 0; i < r->count; i++) {
        if (reserved(r->names[i]))
            continue; /* a second key of that name would hide the row's own */
        add(j, ",", 1);
        add_string(j, r->names[i]);
        add(j, ":", 1);
        add_number(j, r->values[i]);
    }
    add_text(j, "}\n");
}

static int is_kept(const struct jsonl *j, const struct bl_record *r)
{
    if (r->step % j->every == 0 || r->step == 1 || r->step == j->host->info->steps)
        return 1;
    for (uint64_t i = 0; i < r->count; i++)
        if (strncmp(r->names[i], "loss/val", 8) == 0)
            return 1;
    return 0;
}

static int32_t put_row(struct jsonl *j, struct bl_error *err)
{
    const struct bl_host *host = j->host;
    ssize_t wrote;
    int cause;

    do
        wrote = write(j->fd, j->line, j->length);
    while (wrote < 0 && errno == EINTR);
    if (wrote == (ssize_t)j->length)
        return 0;
    cause = wrote < 0 ? errno : ENOSPC;
    /* The part that was written must not run into the next row. */
    if (wrote > 0) {
        off_t at = lseek(j->fd, 0, SEEK_CUR);
        if (at < wrote || ftruncate(j->fd, at - wrote) != 0)
            cause = errno;
    }
    return host->fail(host, err, "%s: step %llu not written: %s", j->path,
                      (unsigned long long)j->step, strerror(cause));
}

static int32_t write_row(void *self, const struct bl_record *record, struct bl_error *err)
{
    struct jsonl *j = self;
    const struct bl_host *host = j->host;
    locale_t before;

    if (j->fd < 0)
        return 0;
    before = uselocale(j->c);
    make_row(j, record);
    uselocale(before);
    j->step = record->step;
    j->held = 0;
    if (j->no_memory)
        return host->fail(host, err, "no memory for a row of %llu metrics",
                          (unsigned long long)record->count);
    if (is_kept(j, record))
        return put_row(j, err);
    j->held = 1;
    return 0;
}

static int32_t finish(void *self, struct bl_error *err)
{
    struct jsonl *j = self;

    if (j->held && put_row(j, err) != 0)
        return -1;
    j->held = 0;
    if (j->fd >= 0 && fsync(j->fd) != 0)
        return j->host->fail(j->host, err, "%s: %s", j->path, strerror(errno));
    return 0;
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
