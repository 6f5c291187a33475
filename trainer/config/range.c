#include "config/range.h"

#include <math.h>
#include <string.h>

#include "base/strings.h"

/* One end; integers keep all their bits. */
static int parse_end(const char *text, size_t n, int open, int is_low, double *real, int64_t *whole)
{
    char buffer[64];
    if (n == 0 || n >= sizeof buffer)
        return -1;
    memcpy(buffer, text, n);
    buffer[n] = '\0';
    if (bl_parse_double(buffer, real) != 0 || isnan(*real))
        return -1;
    if (bl_parse_int(buffer, whole) != 0) {
        double r = is_low ? ceil(*real) : floor(*real);
        if (r >= 0x1p63)
            *whole = INT64_MAX;
        else if (r < -0x1p63)
            *whole = INT64_MIN;
        else
            *whole = (int64_t)r;
        if (r != *real || isinf(*real))
            open = 0; /* rounding to a whole number has left the end out already */
    }
    if (open && is_low && *whole < INT64_MAX)
        ++*whole;
    if (open && !is_low && *whole > INT64_MIN)
        --*whole;
    return 0;
}

int bl_range_parse(const char *text, struct bl_range *out)
{
    struct bl_range r = {INT64_MIN, INT64_MAX, -INFINITY, INFINITY, 1, 1};
    if (text) {
        size_t n = strlen(text);
        const char *comma = strchr(text, ',');
        if (n < 5 || !strchr("[(", text[0]) || !strchr("])", text[n - 1]) || !comma)
            return -1;
        r.open_low = text[0] == '(';
        r.open_high = text[n - 1] == ')';
        const char *high = comma + 1;
        while (*high == ' ')
            high++;
        if (high >= text + n - 1 ||
            parse_end(text + 1, (size_t)(comma - text) - 1, r.open_low, 1, &r.low, &r.int_low) !=
                0 ||
            parse_end(high, (size_t)(text + n - 1 - high), r.open_high, 0, &r.high, &r.int_high) !=
                0 ||
            !(r.low <= r.high))
            return -1;
    }
    *out = r;
    return 0;
}

int bl_range_has_int(const struct bl_range *r, int64_t value)
{
    return value >= r->int_low && value <= r->int_high;
}

int bl_range_has_double(const struct bl_range *r, double value)
{
    return (r->open_low ? value > r->low : value >= r->low) &&
           (r->open_high ? value < r->high : value <= r->high);
}

int bl_words_count(const char *words)
{
    int n = 1;
    if (!words || !*words)
        return 0;
    for (; *words; words++)
        n += *words == '|';
    return n;
}

const char *bl_words_get(const char *words, int i, int *length)
{
    for (; i > 0; i--)
        words = strchr(words, '|') + 1;
    *length = (int)strcspn(words, "|");
    return words;
}

int bl_words_find(const char *words, const char *word)
{
    int n = bl_words_count(words);
    for (int i = 0; i < n; i++) {
        int length;
        const char *w = bl_words_get(words, i, &length);
        if (strlen(word) == (size_t)length && memcmp(w, word, (size_t)length) == 0)
            return i;
    }
    return -1;
}
