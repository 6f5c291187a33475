#include "base/strings.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <locale.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void bl_text_add(struct bl_text *t, const char *format, ...)
{
    if (t->failed)
        return;
    va_list args;
    va_start(args, format);
    int need = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (need < 0) {
        t->failed = 1;
        return;
    }
    if (t->capacity - t->length <= (size_t)need) {
        size_t capacity = t->capacity * 2 + (size_t)need + 64;
        char *text = realloc(t->text, capacity);
        if (!text) {
            t->failed = 1;
            return;
        }
        t->text = text;
        t->capacity = capacity;
    }
    va_start(args, format);
    vsnprintf(t->text + t->length, t->capacity - t->length, format, args);
    va_end(args);
    t->length += (size_t)need;
}

void bl_text_free(struct bl_text *t)
{
    if (!t)
        return;
    free(t->text);
    *t = (struct bl_text){0};
}

char *bl_format(const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    return n < 0 ? NULL : text;
}

/* The C locale costs nothing in glibc (a constant object), so no cached copy is kept. */
static locale_t c_locale(void)
{
    return newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

const char *bl_double_text(double value, char *buffer)
{
    if (isnan(value))
        return strcpy(buffer, "nan");
    if (isinf(value))
        return strcpy(buffer, value > 0 ? "inf" : "-inf");

    /* A decimal of up to 15 digits survives the way through a normal double, so 15 digits with the
     * zeros cut are the shortest text if they read back at all. Subnormals have fewer digits. */
    locale_t c = c_locale(), old = uselocale(c);
    int digits = fabs(value) < DBL_MIN ? 1 : 15;
    char text[48];
    do
        snprintf(text, sizeof text, "%.*g", digits, value);
    while (digits++ < 17 && strtod(text, NULL) != value);
    memcpy(buffer, text, strlen(text) + 1); /* at most 24 characters: -1.2345678901234567e-308 */
    uselocale(old);
    freelocale(c);

    char *e = strchr(buffer, 'e');
    if (e) { /* e+07 -> e7, e-05 -> e-5 */
        char *to = e + 1, *from = e + 1;
        if (*from == '-')
            to++, from++;
        else if (*from == '+')
            from++;
        while (*from == '0' && from[1])
            from++;
        memmove(to, from, strlen(from) + 1);
    } else if (!strchr(buffer, '.')) {
        strcat(buffer, ".0");
    }
    return buffer;
}

int bl_parse_double(const char *text, double *out)
{
    if (!text || !*text || isspace((unsigned char)*text))
        return -1;
    locale_t c = c_locale();
    char *end;
    int saved = errno;
    errno = 0;
    double value = strtod_l(text, &end, c);
    int range = errno == ERANGE && isinf(value);
    errno = saved;
    freelocale(c);
    if (end == text || *end || range)
        return -1;
    *out = value;
    return 0;
}

int bl_parse_int(const char *text, int64_t *out)
{
    if (!text || !*text || isspace((unsigned char)*text))
        return -1;
    const char *digits = text + (*text == '-' || *text == '+');
    int base = digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X') ? 16 : 10;
    char *end;
    int saved = errno;
    errno = 0;
    long long value = strtoll(text, &end, base);
    int range = errno == ERANGE;
    errno = saved;
    if (end == text || *end || range)
        return -1;
    *out = value;
    return 0;
}

int64_t bl_environment_number(const char *name)
{
    int64_t n = 0;
    return bl_parse_int(getenv(name), &n) == 0 && n > 0 ? n : 0;
}

#define WORD_MAX 63

/* Edit distance with transpositions of neighbours (optimal string alignment), case ignored. */
static size_t distance(const char *a, size_t n, const char *b, size_t m)
{
    size_t row[3][WORD_MAX + 1];
    size_t *before = row[0], *above = row[1], *now = row[2];
    for (size_t j = 0; j <= m; j++)
        above[j] = j;
    for (size_t i = 1; i <= n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= m; j++) {
            int x = tolower((unsigned char)a[i - 1]), y = tolower((unsigned char)b[j - 1]);
            size_t best = above[j - 1] + (x != y);
            if (above[j] + 1 < best)
                best = above[j] + 1;
            if (now[j - 1] + 1 < best)
                best = now[j - 1] + 1;
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) &&
                y == tolower((unsigned char)a[i - 2]) && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        size_t *t = before;
        before = above;
        above = now;
        now = t;
    }
    return above[m];
}

/* "lr" stands for "learning_rate": first letters of the words between '_'. */
static int is_initials(const char *letters, const char *words)
{
    if (!strchr(words, '_'))
        return 0;
    int start = 1;
    for (; *words; words++) {
        if (*words == '_') {
            start = 1;
        } else if (start) {
            if (tolower((unsigned char)*letters) != tolower((unsigned char)*words))
                return 0;
            letters++;
            start = 0;
        }
    }
    return *letters == '\0';
}

const char *bl_nearest(const char *word, const char *const *candidates)
{
    size_t n = strlen(word);
    const char *best = NULL;
    size_t best_cost = SIZE_MAX;
    for (; *candidates; candidates++) {
        const char *candidate = *candidates;
        size_t m = strlen(candidate), shorter = n < m ? n : m;
        size_t cost = SIZE_MAX;
        if (n <= WORD_MAX && m <= WORD_MAX) {
            size_t longest = n > m ? n : m, allowed = longest <= 2 ? 1 : 1 + longest / 4;
            cost = distance(word, n, candidate, m);
            if (cost > allowed || cost >= longest)
                cost = SIZE_MAX;
        }
        const char *rest = n < m ? candidate + n : word + m; /* the longer one after the shorter */
        int is_prefix = strncasecmp(word, candidate, shorter) == 0 &&
                        (shorter >= 3 || (shorter == 2 && *rest == '_'));
        if (cost > 2 && (is_prefix || is_initials(candidate, word) || is_initials(word, candidate)))
            cost = 2;
        if (cost < best_cost) {
            best_cost = cost;
            best = candidate;
        }
    }
    return best;
}

const char *bl_human(double value, char *buffer)
{
    static const char unit[] = " kMGTPE";
    if (!isfinite(value))
        return bl_double_text(value, buffer);
    size_t u = 0;
    /* 999.5 and more would print as 1000 with three digits. */
    while (fabs(value) >= 999.5 && unit[u + 1]) {
        value /= 1000.0;
        u++;
    }
    double size = fabs(value);
    int decimals = size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2;
    if (u == 0 && value == floor(value))
        decimals = 0;
    locale_t c = c_locale(), old = uselocale(c);
    int used = size >= 1e6    ? snprintf(buffer, 32, "%.3g", value)
               : size < 0.005 ? snprintf(buffer, 32, "%.3g", value)
                              : snprintf(buffer, 32, "%.*f", decimals, value);
    uselocale(old);
    freelocale(c);
    if (u > 0 && used > 0 && used < 31) {
        buffer[used] = unit[u];
        buffer[used + 1] = '\0';
    }
    return buffer;
}
