#include "doctor/say.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { NAMED = 6 }; /* hosts of a list; a long one is counted */

void bl_say(struct bl_doctor_finding *out, int state, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    out->state = state;
    out->fix[0] = '\0';
    vsnprintf(out->seen, sizeof out->seen, format, args);
    va_end(args);
}

void bl_say_fix(struct bl_doctor_finding *out, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(out->fix, sizeof out->fix, format, args);
    va_end(args);
}

const char *bl_doctor_no_config(const struct bl_doctor_case *c)
{
    return c->facts[0].setup_code != 0 ? "process 0 cannot use the config" : "no config given";
}

int bl_doctor_first_of_host(const struct bl_doctor_case *c, uint32_t p)
{
    for (uint32_t q = 0; q < p; q++) {
        if (strcmp(c->facts[q].host, c->facts[p].host) == 0)
            return 0;
    }
    return 1;
}

static int any(const struct bl_doctor_facts *f, const void *context)
{
    (void)f;
    (void)context;
    return 1;
}

uint32_t bl_doctor_hosts(const struct bl_doctor_case *c)
{
    char text[8];
    return bl_doctor_hosts_where(c, any, NULL, text, sizeof text);
}

/* Whether a process before p on the same host `is` too. */
static int counted(const struct bl_doctor_case *c, uint32_t p, bl_doctor_is_f *is,
                   const void *context)
{
    for (uint32_t q = 0; q < p; q++) {
        if (strcmp(c->facts[q].host, c->facts[p].host) == 0 && is(&c->facts[q], context))
            return 1;
    }
    return 0;
}

uint32_t bl_doctor_hosts_where(const struct bl_doctor_case *c, bl_doctor_is_f *is,
                               const void *context, char *text, size_t size)
{
    uint32_t n = 0;
    size_t used = 0;
    text[0] = '\0';
    for (uint32_t p = 0; p < c->count; p++) {
        if (!is(&c->facts[p], context) || counted(c, p, is, context))
            continue;
        if (n++ < NAMED && used < size)
            used += (size_t)snprintf(text + used, size - used, "%s%s", n > 1 ? ", " : "",
                                     c->facts[p].host);
    }
    if (n > NAMED && used < size)
        snprintf(text + used, size - used, " and %u more", n - NAMED);
    return n;
}
