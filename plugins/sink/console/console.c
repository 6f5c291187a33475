/* Sink: progress on standard output. On a terminal one line, redrawn in place; elsewhere plain
 * lines: the first row, about twenty over the run (or each `every` steps), and the last step. A
 * held-out loss that is of an earlier step has that step behind it: val 2.500 @50. */
#include <ballast/sink.h>

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const double redraw_seconds = 0.1;
static const double smoothing = 0.1; /* weight of the newest step in the mean step time */

struct console_options {
    int64_t every;
};

struct console {
    const struct bl_host *host;
    const struct console_options *options;
    int live, color;
    uint64_t step, first, printed; /* last row, first row, last plain line; 0 = none */
    uint64_t validated;            /* step of `validation` */
    double loss, validation, gradient, rate, own_seconds;
    double step_seconds; /* smoothed, NaN until it is known */
    double began, previous, drawn;
};

/* Everything of a text to standard output. A reader that does not read is waited for, one that is
 * gone is an error. */
static int32_t put(const struct console *c, const char *text, size_t n, struct bl_error *err)
{
    while (n > 0) {
        ssize_t wrote = write(STDOUT_FILENO, text, n);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
            struct pollfd ready = {STDOUT_FILENO, POLLOUT, 0};
            if (poll(&ready, 1, 200) > 0 || errno == EINTR)
                continue;
            return c->host->fail(c->host, err, "standard output: nobody reads it");
        }
        if (wrote <= 0)
            return c->host->fail(c->host, err, "standard output: %s",
                                 wrote < 0 ? strerror(errno) : "no room");
        text += wrote;
        n -= (size_t)wrote;
    }
    return 0;
}

struct line {
    char text[512];
    size_t length;
    int columns; /* printed width; colours have none */
};

static void add(struct line *l, int visible, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void add(struct line *l, int visible, const char *format, ...)
{
    size_t room = sizeof(l->text) - l->length;
    va_list args;
    int n;

    va_start(args, format);
    n = vsnprintf(l->text + l->length, room, format, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n >= room)
        n = (int)room - 1;
    l->length += (size_t)n;
    if (visible)
        l->columns += n;
}

static double monotonic(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* 42s, 1m42s, 3h07m, 2d04h */
static void add_time(struct line *l, double seconds)
{
    unsigned long long s;

    if (!(seconds >= 0.0) || seconds > 1e9) {
        add(l, 1, "?");
        return;
    }
    s = (unsigned long long)(seconds + 0.5);
    if (s < 60)
        add(l, 1, "%llus", s);
    else if (s < 3600)
        add(l, 1, "%llum%02llus", s / 60, s % 60);
    else if (s < 86400)
        add(l, 1, "%lluh%02llum", s / 3600, s / 60 % 60);
    else
        add(l, 1, "%llud%02lluh", s / 86400, s / 3600 % 24);
}

/* 873, 12.3k, 4.56M */
static void add_rate(struct line *l, double rate)
{
    static const char units[] = {0, 'k', 'M', 'G', 'T'};
    int unit = 0, digits;

    while (rate >= 999.5 && unit < 4) {
        rate /= 1000.0;
        unit++;
    }
    digits = unit == 0 || rate >= 99.95 ? 0 : rate >= 9.995 ? 1 : 2;
    add(l, 1, "%.*f", digits, rate);
    if (unit > 0)
        add(l, 1, "%c", units[unit]);
}

/* A loss with four significant digits that keeps its width while it falls. */
static void add_value(struct line *l, const char *name, double value)
{
    double size = fabs(value);

    add(l, 1, "  %s ", name);
    if (isnan(value))
        add(l, 1, "nan");
    else if (isinf(value))
        add(l, 1, value > 0 ? "inf" : "-inf");
    else if (size != 0.0 && (size < 1e-3 || size >= 1e5))
        add(l, 1, "%.3e", value);
    else
        add(l, 1, "%.*f", size >= 1000.0 ? 0 : size >= 100.0 ? 1 : size >= 10.0 ? 2 : 3, value);
}

static void add_validation(const struct console *c, struct line *l)
{
    if (c->validated == 0)
        return;
    add_value(l, "val", c->validation);
    if (c->validated != c->step)
        add(l, 1, " @%llu", (unsigned long long)c->validated);
}

static void add_facts(const struct console *c, struct line *l)
{
    uint64_t steps = c->host->info->steps;

    add(l, 1, "step %llu/%llu", (unsigned long long)c->step, (unsigned long long)steps);
    if (c->color && !isfinite(c->loss))
        add(l, 0, "\033[31m");
    add_value(l, "loss", c->loss);
    if (c->color && !isfinite(c->loss))
        add(l, 0, "\033[0m");
    add_validation(c, l);
    if (!isnan(c->gradient)) {
        add(l, 1, "  grad ");
        add(l, 1, isfinite(c->gradient) ? "%.3g" : "%f", c->gradient);
    }
    if (isfinite(c->rate) && c->rate >= 0.0) {
        add(l, 1, "  ");
        add_rate(l, c->rate);
        add(l, 1, " tok/s");
    }
}

static void add_left(const struct console *c, struct line *l)
{
    uint64_t steps = c->host->info->steps;

    if (isnan(c->step_seconds) || c->step > steps)
        return;
    add(l, 1, "  left ");
    add_time(l, c->step_seconds * (double)(steps - c->step));
}

static void add_bar(const struct console *c, struct line *l, int width)
{
    uint64_t steps = c->host->info->steps;
    double share = steps ? (double)c->step / (double)steps : 1.0;
    int full = (int)((share < 1.0 ? share : 1.0) * width);

    add(l, 1, "  [");
    if (c->color)
        add(l, 0, "\033[32m");
    for (int i = 0; i < width; i++) {
        if (c->color && i == full)
            add(l, 0, "\033[0m");
        add(l, 1, "%c", i < full ? '=' : i == full ? '>' : ' ');
    }
    if (c->color)
        add(l, 0, "\033[0m");
    add(l, 1, "]");
}

static int columns(void)
{
    struct winsize size;

    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0)
        return 80;
    return size.ws_col;
}

/* The cursor goes back to the first column, so that a log line writes over this one. */
static int32_t draw(struct console *c, struct bl_error *err)
{
    struct line l = {{0}, 0, 0};
    int width = columns(), room;

    add(&l, 0, "\r");
    add_facts(c, &l);
    add_left(c, &l);
    room = width - 1 - l.columns - 4;
    if (room >= 8)
        add_bar(c, &l, room < 24 ? room : 24);
    if (l.columns >= width) { /* a wrapped line could not be redrawn in place */
        struct line plain = {{0}, 0, 0};
        struct console bare = *c;
        bare.color = 0;
        add(&plain, 0, "\r");
        add_facts(&bare, &plain);
        plain.length = plain.length < (size_t)width ? plain.length : (size_t)width;
        l = plain;
    }
    add(&l, 0, "\033[K\r");
    return put(c, l.text, l.length, err);
}

static int32_t print(struct console *c, struct bl_error *err)
{
    struct line l = {{0}, 0, 0};

    add_facts(c, &l);
    if (c->step < c->host->info->steps)
        add_left(c, &l);
    add(&l, 0, "\n");
    return put(c, l.text, l.length, err);
}

static int32_t create(const struct bl_host *host, const void *options, void **self,
                      struct bl_error *err)
{
    struct console *c = host->allocate(host, sizeof(*c));
    const char *terminal = getenv("TERM"), *plain = getenv("NO_COLOR");

    if (!c)
        return host->fail(host, err, "no memory");
    c->host = host;
    c->options = options;
    c->live = isatty(STDOUT_FILENO) && terminal && strcmp(terminal, "dumb") != 0;
    c->color = c->live && !(plain && plain[0] != '\0');
    c->loss = c->validation = c->gradient = c->rate = c->step_seconds = c->own_seconds = NAN;
    *self = c;
    return 0;
}

static void destroy(void *self)
{
    struct console *c = self;

    if (c)
        c->host->release(c->host, c);
}

static void take(struct console *c, const struct bl_record *r)
{
    c->own_seconds = NAN;
    for (uint64_t i = 0; i < r->count; i++) {
        const char *name = r->names[i];
        double value = r->values[i];
        if (strcmp(name, "loss/total") == 0)
            c->loss = value;
        else if (strcmp(name, "loss/val") == 0) {
            c->validation = value;
            c->validated = r->step;
        } else if (strcmp(name, "optim/grad_norm") == 0)
            c->gradient = value;
        else if (strcmp(name, "perf/tokens_per_second") == 0)
            c->rate = value;
        else if (strcmp(name, "perf/step_seconds") == 0)
            c->own_seconds = value;
    }
}

/* The wall time between rows counts evaluations and checkpoints too; for the first row there is
 * only what the trainer says about the step. */
static void take_time(struct console *c, const struct bl_record *r)
{
    double seconds = c->own_seconds;

    if (c->first == 0) {
        c->first = r->step;
        c->began = r->time - (seconds > 0.0 ? seconds : 0.0);
    } else if (r->step > c->step && r->time >= c->previous) {
        seconds = (r->time - c->previous) / (double)(r->step - c->step);
    }
    c->previous = r->time;
    if (!isfinite(seconds) || seconds < 0.0)
        return;
    if (isnan(c->step_seconds) || c->step <= c->first + 1)
        c->step_seconds = seconds; /* the first step pays for warming up: forget it */
    else
        c->step_seconds += smoothing * (seconds - c->step_seconds);
}

static int32_t write_row(void *self, const struct bl_record *r, struct bl_error *err)
{
    struct console *c = self;
    uint64_t steps = c->host->info->steps;
    uint64_t every = c->options->every ? (uint64_t)c->options->every : (steps + 19) / 20;
    int last = r->step >= steps, first = c->first == 0;

    if (c->host->rank != 0)
        return 0;
    take(c, r);
    take_time(c, r);
    c->step = r->step;
    if (c->live) {
        double now = monotonic();
        if (!first && !last && now - c->drawn < redraw_seconds)
            return 0;
        c->drawn = now;
        return draw(c, err);
    }
    if (!first && !last && (every == 0 || r->step % every != 0))
        return 0;
    if (!first && r->step == c->printed)
        return 0;
    c->printed = r->step;
    return print(c, err);
}

static int32_t finish(void *self, struct bl_error *err)
{
    struct console *c = self;
    uint64_t steps = c->host->info->steps;
    struct line l = {{0}, 0, 0};
    double seconds = c->previous - c->began;

    if (c->host->rank != 0 || c->first == 0)
        return 0;
    if (c->live)
        add(&l, 0, "\r\033[K");
    if (c->step >= steps)
        add(&l, 1, "finished %llu steps", (unsigned long long)c->step);
    else
        add(&l, 1, "ended at step %llu of %llu", (unsigned long long)c->step,
            (unsigned long long)steps);
    add_value(&l, "loss", c->loss);
    add_validation(c, &l);
    add(&l, 1, "  time ");
    add_time(&l, seconds);
    if (seconds > 0.0) {
        double tokens = (double)(c->step - c->first + 1) * (double)c->host->info->sequences *
                        (double)c->host->info->context;
        add(&l, 1, "  ");
        add_rate(&l, tokens / seconds);
        add(&l, 1, " tok/s");
    }
    add(&l, 0, "\n");
    return put(c, l.text, l.length, err);
}

static const struct bl_option options[] = {
    {"every", BL_OPTION_INT, 0, "0", "[0,inf)",
     "steps between lines where the output is no terminal; 0 = a twentieth of the run",
     offsetof(struct console_options, every)},
    {NULL, 0, 0, NULL, NULL, NULL, 0}};

static const struct bl_sink_ops ops = {create, destroy, NULL, NULL, write_row, finish};

BL_PLUGIN(BL_KIND_SINK, "console", "1.0", BL_DEVICE_CPU | BL_DEVICE_CUDA, ops, options,
          sizeof(struct console_options), NULL);
