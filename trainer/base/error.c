#include "base/error.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A message is one line and may quote bytes of a hostile file: no control byte reaches a terminal.
 */
static void store(struct bl_error *err, const char *text)
{
    size_t n = strlen(text);
    if (n >= sizeof err->text)
        n = sizeof err->text - 1;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)text[i];
        err->text[i] = c == '\n' || c == '\t' ? ' ' : c < 0x20 || c == 0x7f ? '?' : text[i];
    }
    err->text[n] = '\0';
}

int bl_error_set(struct bl_error *err, int code, const char *format, ...)
{
    int saved = errno;
    if (err) {
        /* Through a buffer of its own: the arguments may point into err->text. */
        char text[sizeof err->text];
        va_list args;
        va_start(args, format);
        if (vsnprintf(text, sizeof text, format, args) < 0)
            text[0] = '\0';
        va_end(args);
        store(err, text);
        err->size = (uint32_t)sizeof *err;
        err->code = code;
    }
    errno = saved;
    return -1;
}

int bl_error_prefix(struct bl_error *err, const char *format, ...)
{
    int saved = errno;
    if (err) {
        char text[sizeof err->text];
        va_list args;
        va_start(args, format);
        int n = vsnprintf(text, sizeof text, format, args);
        va_end(args);
        char joined[2 * sizeof err->text + 2];
        if (n >= 0) {
            snprintf(joined, sizeof joined, "%s: %s", text, err->text);
            store(err, joined);
        }
    }
    errno = saved;
    return -1;
}
