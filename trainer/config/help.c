/* What `ballast help GROUP` prints: the host's own tables, so it cannot be out of date. */
#include <string.h>

#include "config/options.h"
#include "config/schema.h"

/* Whether `topic` is the name of a schema, or one of the names "a, b, c". */
static int is_named(const char *names, const char *topic)
{
    size_t n = strlen(topic);
    for (const char *p = names; *p != '\0'; p += strspn(p, ", ")) {
        size_t length = strcspn(p, ", ");
        if (length == n && strncmp(p, topic, n) == 0)
            return 1;
        p += length;
    }
    return 0;
}

static void print_schema(const struct bl_schema *s, FILE *out)
{
    fprintf(out, "%s\n\n", s->name[0] != '\0' ? s->name : "top level");
    bl_options_help(s->table, out);
    if (s->also != NULL) {
        fprintf(out, "\nand the groups or lists:");
        for (const char *const *k = s->also; *k != NULL; k++)
            fprintf(out, " %s", *k);
        fprintf(out, "\n");
    }
}

int bl_config_help(const char *topic, FILE *out)
{
    int found = 0;
    for (size_t i = 0; i < BL_SCHEMA_COUNT; i++) {
        if (strcmp(topic, "config") != 0 && !is_named(bl_schema[i].name, topic))
            continue;
        if (found++)
            fprintf(out, "\n");
        print_schema(&bl_schema[i], out);
    }
    return found > 0 ? 0 : -1;
}
