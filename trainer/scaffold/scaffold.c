#include "scaffold/scaffold.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/strings.h"
#include "plugin/loader.h"

enum { LONGEST = 40 };

/* What a folder is made of; %s is the kind in `from` and the plugin's name in `to`. */
static const struct {
    const char *from, *to;
} parts[] = {
    {"%s.c", "%s.c"},         {"%s_test.c", "%s_test.c"}, {"%s.cfg", "example.cfg"},
    {"makefile", "Makefile"}, {"readme", "README"},
};
enum { PARTS = sizeof parts / sizeof parts[0] };

static int check_kind(const char *kind, struct bl_error *err)
{
    const char *names[BL_KIND_COUNT] = {NULL};
    struct bl_text list = {0};
    if (bl_kind_from_name(kind) != 0)
        return 0;
    for (uint32_t k = 1; k < BL_KIND_COUNT; k++) {
        names[k - 1] = bl_kind_name(k);
        bl_text_add(&list, "%s%s", k > 1 ? ", " : "", names[k - 1]);
    }
    const char *near = bl_nearest(kind, names);
    bl_error_set(err, BL_EXIT_USAGE, "no kind \"%.40s\" of plugin%s%s%s there are %s", kind,
                 near != NULL ? "; did you mean " : "", near != NULL ? near : "",
                 near != NULL ? "? If not," : ";", list.failed ? "nine" : list.text);
    bl_text_free(&list);
    return -1;
}

/* The name becomes a file name, a config value and part of identifiers in the test. */
static int check_name(const char *name, struct bl_error *err)
{
    static const char *const keywords[] = {
        "auto",     "break",  "case",   "char",     "const",    "continue", "default",  "do",
        "double",   "else",   "enum",   "extern",   "float",    "for",      "goto",     "if",
        "inline",   "int",    "long",   "register", "restrict", "return",   "short",    "signed",
        "sizeof",   "static", "struct", "switch",   "typedef",  "union",    "unsigned", "void",
        "volatile", "while",  "readme", "makefile"};
    size_t n = strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_");
    if (n == 0 || name[n] != '\0' || n > LONGEST || name[0] < 'a')
        return bl_error_set(err, BL_EXIT_USAGE,
                            "plugin name \"%.60s\": use a-z, 0-9 and _, beginning with a letter, "
                            "at most %d characters",
                            name, LONGEST);
    for (size_t i = 0; i < sizeof keywords / sizeof keywords[0]; i++)
        if (strcmp(name, keywords[i]) == 0)
            return bl_error_set(err, BL_EXIT_USAGE,
                                "plugin name \"%s\" is a word of C or of make; choose another",
                                name);
    return 0;
}

static const char *text_of(const char *file)
{
    for (const struct bl_template *t = bl_templates; t->file != NULL; t++)
        if (strcmp(t->file, file) == 0)
            return t->text;
    return NULL;
}

/* A template with its words replaced. */
static char *filled(const char *template, const char *kind, const char *name)
{
    const struct {
        const char *from, *to;
    } words[] = {{"my_plugin", name}, {"my_kind", kind}, {"MY_VERSION", BL_VERSION}};
    struct bl_text out = {0};
    for (const char *at = template; *at != '\0';) {
        size_t k = 0, n = strcspn(at, "mM");
        if (n > 0) {
            bl_text_add(&out, "%.*s", (int)n, at);
            at += n;
            continue;
        }
        while (k < 3 && strncmp(at, words[k].from, strlen(words[k].from)) != 0)
            k++;
        bl_text_add(&out, "%.*s", k < 3 ? (int)strlen(words[k].to) : 1, k < 3 ? words[k].to : at);
        at += k < 3 ? strlen(words[k].from) : 1;
    }
    if (out.failed) {
        bl_text_free(&out);
        return NULL;
    }
    return out.text;
}

/* "%s_test.c" and a word: the one place that a part's pattern is filled. */
static char *part_name(const char *pattern, const char *word)
{
    const char *hole = strstr(pattern, "%s");
    return hole == NULL ? strdup(pattern)
                        : bl_format("%.*s%s%s", (int)(hole - pattern), pattern, word, hole + 2);
}

static int write_part(size_t part, const char *kind, const char *name, const char *folder,
                      struct bl_error *err)
{
    char *from = part_name(parts[part].from, kind), *to = part_name(parts[part].to, name);
    const char *template = from != NULL ? text_of(from) : NULL;
    char *text = template != NULL ? filled(template, kind, name) : NULL;
    char *path = to != NULL ? bl_format("%s/%s", folder, to) : NULL;
    int rc = text == NULL || path == NULL ? bl_error_set(err, BL_EXIT_FAILED, "no memory")
                                          : bl_write_file(path, text, strlen(text), err);
    free(from);
    free(to);
    free(text);
    free(path);
    return rc;
}

static void remove_parts(const char *folder, const char *name)
{
    for (size_t i = 0; i < PARTS; i++) {
        char *to = part_name(parts[i].to, name);
        char *path = to != NULL ? bl_format("%s/%s", folder, to) : NULL;
        if (path != NULL)
            unlink(path);
        free(to);
        free(path);
    }
    rmdir(folder);
}

int bl_scaffold_write(const char *kind, const char *name, const char *dir, char **folder,
                      struct bl_error *err)
{
    struct stat st;
    char *target = NULL, *temporary = NULL;
    int rc = -1, made = 0;
    if (check_kind(kind, err) != 0 || check_name(name, err) != 0)
        return -1;
    target = strcmp(dir, ".") == 0 ? strdup(name) : bl_format("%s/%s", dir, name);
    temporary = bl_format("%s/.%s-XXXXXX", dir, name);
    if (target == NULL || temporary == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "no memory");
        goto done;
    }
    if (lstat(target, &st) == 0) {
        bl_error_set(err, BL_EXIT_USAGE, "%s is there already; choose another name or --dir",
                     target);
        goto done;
    }
    if (mkdtemp(temporary) == NULL) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: no folder can be made there: %s", dir,
                     strerror(errno));
        goto done;
    }
    made = 1;
    for (size_t i = 0; i < PARTS; i++)
        if (write_part(i, kind, name, temporary, err) != 0)
            goto done;
    mode_t mask = umask(0);
    umask(mask);
    chmod(temporary, 0777 & ~mask); /* mkdtemp made it private */
    /* rename would replace an empty folder that somebody made meanwhile; nothing is lost then. */
    if (rename(temporary, target) != 0) {
        bl_error_set(err, BL_EXIT_FAILED, "%s: %s", target, strerror(errno));
        goto done;
    }
    made = 0;
    rc = 0;
done:
    if (made)
        remove_parts(temporary, name);
    free(temporary);
    if (rc == 0)
        *folder = target;
    else
        free(target);
    return rc;
}
