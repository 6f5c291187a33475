#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "base/random.h"
#include "base/repeat.h"

/* One process has one stderr: its state is here, behind one lock. */
static struct {
    pthread_mutex_t lock;
    int level;
    int file; /* -1: none */
    char progress[512];
    struct bl_repeats warnings;
} log_state = {.lock = PTHREAD_MUTEX_INITIALIZER, .level = BL_LOG_INFO, .file = -1};

void bl_log_level(int level)
{
    pthread_mutex_lock(&log_state.lock);
    log_state.level = level;
    pthread_mutex_unlock(&log_state.lock);
}

/* One write a line, so that lines of several processes do not mix. Nothing can be done about a
 * log that cannot be written, and it must not stop a run. */
static void put(int fd, const char *text, size_t n)
{
    while (n > 0) {
        ssize_t done = write(fd, text, n);
        if (done < 0 && errno == EINTR)
            continue;
        if (done <= 0)
            return;
        text += done;
        n -= (size_t)done;
    }
}

static int is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0;
}

/* Bytes of text that fit in the terminal's width, one column kept free; whole UTF-8 characters. */
static size_t fitting(const char *text)
{
    struct winsize w;
    size_t columns = 80, used = 0, i = 0;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col > 1)
        columns = w.ws_col;
    for (; text[i]; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && ++used >= columns)
            break;
    return i;
}

/* A message is one line: newlines and control bytes in it are replaced. */
static void clean(char *text)
{
    for (; *text; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '\n' || c == '\t' || c == '\r')
            *text = ' ';
        else if (c < 0x20 || c == 0x7f)
            *text = '?';
    }
}

static void draw_progress(void)
{
    char line[sizeof log_state.progress + 8];
    int n = snprintf(line, sizeof line, "\r\033[K%.*s", (int)fitting(log_state.progress),
                     log_state.progress);
    if (n > 0)
        put(STDERR_FILENO, line, (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

void bl_log_progress(const char *line)
{
    int saved = errno;
    if (!line)
        line = "";
    pthread_mutex_lock(&log_state.lock);
    if (is_terminal() && (line[0] || log_state.progress[0])) {
        snprintf(log_state.progress, sizeof log_state.progress, "%s", line);
        clean(log_state.progress);
        draw_progress();
    }
    pthread_mutex_unlock(&log_state.lock);
    errno = saved;
}

static const char *level_name(int level)
{
    switch (level) {
    case BL_LOG_ERROR:
        return "error";
    case BL_LOG_WARNING:
        return "warning";
    case BL_LOG_INFO:
        return "info";
    default:
        return "debug";
    }
}

static void write_file(int level, const char *who, const char *between, const char *text,
                       char *line, size_t n)
{
    struct timespec now = {0, 0};
    struct tm utc;
    char stamp[32];
    if (log_state.file < 0)
        return;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S", &utc);
    int used = snprintf(line, n, "%s.%03ldZ %s %s%s%s\n", stamp, now.tv_nsec / 1000000,
                        level_name(level), who, between, text);
    put(log_state.file, line, (size_t)used);
}

static void emit(int level, const char *who, const char *text, int file_only)
{
    static const char plain[] = "";
    const char *between = who && who[0] ? ": " : plain;
    size_t n = strlen(text) + (who ? strlen(who) : 0) + 96;
    char *line = malloc(n);
    if (!line)
        return;
    if (!who)
        who = plain;

    write_file(level, who, between, text, line, n);
    if (file_only) {
        free(line);
        return;
    }

    int used;
    if (level == BL_LOG_INFO)
        used = snprintf(line, n, "%s%s%s\n", who, between, text);
    else
        used = snprintf(line, n, "ballast: %s: %s%s%s\n", level_name(level), who, between, text);

    int erase = log_state.progress[0] != '\0';
    if (erase)
        put(STDERR_FILENO, "\r\033[K", 4);
    put(STDERR_FILENO, line, (size_t)used);
    if (erase)
        draw_progress();
    free(line);
}

/* What a kind of warning came to, when some of it was not shown. */
static void summarize(const struct bl_repeat *k)
{
    char text[BL_REPEAT_TEXT + 100];
    if (k->shown == k->count)
        return;
    snprintf(text, sizeof text, "%s (the last of %llu, %llu were not shown)", k->last,
             (unsigned long long)k->count, (unsigned long long)(k->count - k->shown));
    emit(BL_LOG_WARNING, NULL, text, 0);
}

static uint64_t kind_of(const char *who, const char *format)
{
    return 31 * bl_hash(who ? who : "") + bl_hash(format);
}

/* A warning: counted, shown if it is its turn. */
static void warn(const char *who, const char *format, char *text)
{
    char *message = NULL, *counted = NULL;
    struct bl_repeat gone;
    uint64_t count;
    int between = who && who[0];
    if (asprintf(&message, "%s%s%s", between ? who : "", between ? ": " : "", text) < 0)
        return;
    int show = bl_repeat_add(&log_state.warnings, kind_of(who, format), message, &count, &gone);
    free(message);
    if (gone.count > 0)
        summarize(&gone);
    if (!show)
        return;
    if (count > 1 &&
        asprintf(&counted, "%s (%llu times so far)", text, (unsigned long long)count) >= 0) {
        emit(BL_LOG_WARNING, who, counted, 0);
        free(counted);
        return;
    }
    emit(BL_LOG_WARNING, who, text, 0);
}

void bl_logv(int level, const char *who, const char *format, va_list args)
{
    int saved = errno;
    pthread_mutex_lock(&log_state.lock);
    int wanted = level <= log_state.level;
    pthread_mutex_unlock(&log_state.lock);
    char *text = NULL;
    if (wanted && vasprintf(&text, format, args) >= 0) {
        clean(text);
        pthread_mutex_lock(&log_state.lock);
        if (level == BL_LOG_WARNING)
            warn(who, format, text);
        else
            emit(level, who, text, 0);
        pthread_mutex_unlock(&log_state.lock);
        free(text);
    }
    errno = saved;
}

void bl_log(int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bl_logv(level, NULL, format, args);
    va_end(args);
}

void bl_log_by(int level, const char *who, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    bl_logv(level, who, format, args);
    va_end(args);
}

void bl_log_record(int level, const char *text)
{
    char *copy = strdup(text);
    if (!copy)
        return;
    clean(copy);
    pthread_mutex_lock(&log_state.lock);
    emit(level, NULL, copy, 1);
    pthread_mutex_unlock(&log_state.lock);
    free(copy);
}

int bl_log_file(const char *path)
{
    int fd = -1;
    if (path) {
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
        if (fd < 0)
            return -1;
    }
    pthread_mutex_lock(&log_state.lock);
    for (int i = 0; i < BL_REPEAT_KINDS; i++)
        summarize(&log_state.warnings.kinds[i]);
    memset(&log_state.warnings, 0, sizeof log_state.warnings);
    int old = log_state.file;
    log_state.file = fd;
    pthread_mutex_unlock(&log_state.lock);
    if (old >= 0)
        close(old);
    return 0;
}
