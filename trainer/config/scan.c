#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "config/internal.h"

/* What is open at this point: one entry a bracket. */
struct open_bracket {
    char kind; /* as written: { ( [ */
    struct bl_line at;
};

struct open_file {
    dev_t device;
    ino_t inode;
};

/* The scan of a whole configuration. */
struct scanner {
    struct bl_scan *out;
    struct bl_error *err;
    struct open_bracket bracket[BL_CONFIG_DEPTH];
    int depth;
    struct open_file file[BL_CONFIG_INCLUDES + 1];
    int files; /* open now */
    int allow_includes;
    size_t settings, values, included;
    char last; /* last token: a letter of enum token, 0 at the start */
};

/* What the scan tells apart. Brackets, '=', ',' and ';' stand for themselves: '(' is both kinds of
 * list, ':' is '='. */
enum token { KEY = 'k', VALUE = 'v', STRING = 's' };

/* The scan of one of its files. */
struct cursor {
    const char *p, *end;
    struct bl_line at;
    int blank; /* nothing but blanks on this line so far */
};

#define REFUSE(s, where, ...) refuse(s, where, bl_format(__VA_ARGS__))

/* Takes the message. */
static int refuse(struct scanner *s, struct bl_line where, char *message)
{
    bl_error_set(s->err, BL_EXIT_USAGE, "%s:%d: %s", where.file, where.line,
                 message ? message : "out of memory");
    free(message);
    return -1;
}

/* The grammar, token by token. libconfig would refuse the same texts, but at a line further on,
 * without a reason and (in 1.5) losing the string it was at. */
static int take(struct scanner *s, struct bl_line at, char token, const char *text, size_t n)
{
    int in_list = s->depth > 0 && s->bracket[s->depth - 1].kind != '{';
    int after_value = s->last == VALUE || s->last == STRING || s->last == ')' || s->last == '}';
    int after_start = s->last == 0 || s->last == '{' || s->last == '(';
    int value_due = s->last == '=' || (in_list && (s->last == '(' || s->last == ','));
    int ok, shown = n > 60 ? 60 : (int)n;
    switch (token) {
    case KEY:
        ok = !in_list && s->last != KEY && s->last != '=';
        break;
    case '=':
        ok = s->last == KEY;
        break;
    case STRING: /* strings one after another are one string */
        ok = value_due || s->last == STRING;
        break;
    case ',':
        ok = after_value;
        break;
    case ';':
        ok = after_value && !in_list;
        break;
    case ')':
        ok = after_value || s->last == '(';
        break;
    case '}':
        ok = after_value || after_start || s->last == ',' || s->last == ';';
        break;
    default: /* VALUE, '(' and '{' */
        ok = value_due;
        break;
    }
    if (ok) {
        s->last = token;
        return 0;
    }
    if (token == ')' && s->last == ',')
        return REFUSE(s, at, "a comma before '%.*s'; a list ends without one", shown, text);
    return REFUSE(s, at, "syntax error: '%.*s' where %s is due", shown, text,
                  s->last == KEY ? "'='"
                  : value_due    ? "a value"
                  : in_list      ? "',' or the end of the list"
                  : after_value  ? "';' and the next key"
                                 : "a key");
}

static int begin_line(struct scanner *s, struct bl_line at)
{
    struct bl_scan *o = s->out;
    if (o->count == o->capacity) {
        size_t capacity = o->capacity ? 2 * o->capacity : 256;
        struct bl_line *lines = realloc(o->lines, capacity * sizeof *lines);
        if (!lines)
            return REFUSE(s, at, "out of memory");
        o->lines = lines;
        o->capacity = capacity;
    }
    o->lines[o->count++] = at;
    return 0;
}

static void put(struct scanner *s, const char *text, size_t n)
{
    bl_text_add(&s->out->text, "%.*s", (int)n, text);
}

/* Ends the output's line; the next one comes from `at`. */
static int new_line(struct scanner *s, struct bl_line at)
{
    put(s, "\n", 1);
    if (s->out->text.length > BL_CONFIG_BYTES)
        return REFUSE(s, at, "the configuration with its includes is larger than %zu bytes",
                      BL_CONFIG_BYTES);
    return begin_line(s, at);
}

static int advance_line(struct scanner *s, struct cursor *c)
{
    c->p++;
    c->at.line++;
    c->blank = 1;
    return new_line(s, c->at);
}

static int skip_comment(struct scanner *s, struct cursor *c)
{
    if (*c->p == '#' || c->p[1] == '/') {
        while (c->p < c->end && *c->p != '\n')
            c->p++;
        return 0;
    }
    struct bl_line start = c->at;
    put(s, " ", 1);
    for (c->p += 2; c->p < c->end;) {
        if (c->p[0] == '*' && c->p[1] == '/') {
            c->p += 2;
            return 0;
        }
        if (*c->p != '\n')
            c->p++;
        else if (advance_line(s, c) != 0)
            return -1;
    }
    return REFUSE(s, start, "the comment that begins here has no end; close it with */");
}

static int scan_string(struct scanner *s, struct cursor *c)
{
    const char *begin = c->p++;
    for (; c->p < c->end && *c->p != '"' && *c->p != '\n'; c->p++) {
        if (*c->p != '\\')
            continue;
        if (strncasecmp(c->p, "\\x00", 4) == 0)
            return REFUSE(s, c->at, "a string cannot hold \\x00");
        if (c->p[1] && c->p[1] != '\n')
            c->p++;
    }
    if (c->p >= c->end || *c->p != '"')
        return REFUSE(s, c->at,
                      "the string has no end on its line; close it with \" (strings one "
                      "after another are joined)");
    c->p++;
    put(s, begin, (size_t)(c->p - begin));
    return take(s, c->at, STRING, begin, (size_t)(c->p - begin));
}

/* 1: [+-]digits, 2: hex, 3: float, 0: none of them. `digits` ends before a suffix L or LL. */
static int number_kind(const char *t, size_t n)
{
    size_t i = 0, whole = 0, fraction = 0;
    if (n > 2 && t[0] == '0' && (t[1] == 'x' || t[1] == 'X')) {
        for (i = 2; i < n; i++)
            if (!isxdigit((unsigned char)t[i]))
                return 0;
        return 2;
    }
    if (i < n && (t[i] == '+' || t[i] == '-'))
        i++;
    for (; i < n && isdigit((unsigned char)t[i]); i++)
        whole++;
    if (i == n)
        return whole ? 1 : 0;
    if (t[i] == '.')
        for (i++; i < n && isdigit((unsigned char)t[i]); i++)
            fraction++;
    if (whole + fraction == 0)
        return 0;
    if (i < n && (t[i] == 'e' || t[i] == 'E')) {
        size_t exponent = 0;
        i++;
        if (i < n && (t[i] == '+' || t[i] == '-'))
            i++;
        for (; i < n && isdigit((unsigned char)t[i]); i++)
            exponent++;
        if (!exponent)
            return 0;
    }
    return i == n ? 3 : 0;
}

/* libconfig 1.5 wraps an integer beyond its type in silence; nothing like that gets past here. */
static int scan_number(struct scanner *s, struct cursor *c)
{
    const char *begin = c->p++;
    int hex = begin[0] == '0' && (begin[1] == 'x' || begin[1] == 'X');
    while (c->p < c->end &&
           (isalnum((unsigned char)*c->p) || strchr("._", *c->p) ||
            (!hex && (*c->p == '+' || *c->p == '-') && (c->p[-1] == 'e' || c->p[-1] == 'E'))))
        c->p++;
    size_t n = (size_t)(c->p - begin), digits = n;
    while (digits > 1 && n - digits < 2 && begin[digits - 1] == 'L')
        digits--;
    int kind = number_kind(begin, digits), show = n > 60 ? 60 : (int)n;
    if (kind == 0 || (kind == 3 && digits != n))
        return REFUSE(s, c->at, "\"%.*s\" is no number; a string needs quotes", show, begin);
    if (kind == 1 || kind == 2) {
        int64_t value = 0;
        char text[72];
        int fits = digits < sizeof text;
        if (fits) {
            memcpy(text, begin, digits);
            text[digits] = '\0';
            fits = bl_parse_int(text, &value) == 0;
        }
        if (!fits)
            return REFUSE(s, c->at, "the integer %.*s does not fit in 64 bits", show, begin);
        if (digits == n && (value > INT32_MAX || value < INT32_MIN))
            return REFUSE(s, c->at, "the integer %.*s does not fit in 32 bits; write %.*sL", show,
                          begin, show, begin);
    }
    put(s, begin, n);
    return take(s, c->at, VALUE, begin, n);
}

static int scan_word(struct scanner *s, struct cursor *c)
{
    const char *begin = c->p;
    while (c->p < c->end && (isalnum((unsigned char)*c->p) || strchr("-_*", *c->p)))
        c->p++;
    size_t n = (size_t)(c->p - begin);
    int truth = (n == 4 && strncasecmp(begin, "true", 4) == 0) ||
                (n == 5 && strncasecmp(begin, "false", 5) == 0);
    int in_list = s->depth > 0 && s->bracket[s->depth - 1].kind != '{';
    int value_due = s->last == '=' || (in_list && (s->last == '(' || s->last == ','));
    if (value_due && !truth)
        return REFUSE(s, c->at, "the string %.*s needs quotes: \"%.*s\"", n > 60 ? 60 : (int)n,
                      begin, n > 60 ? 60 : (int)n, begin);
    put(s, begin, n);
    return take(s, c->at, truth ? VALUE : KEY, begin, n);
}

static int scan_bracket(struct scanner *s, struct cursor *c)
{
    char b = *c->p++;
    if (b == '(' || b == '[' || b == '{') {
        if (s->depth == BL_CONFIG_DEPTH)
            return REFUSE(s, c->at, "groups and lists are nested deeper than %d", BL_CONFIG_DEPTH);
        const char *open = b == '{' ? "{" : "(";
        if (take(s, c->at, *open, c->p - 1, 1) != 0)
            return -1;
        s->bracket[s->depth++] = (struct open_bracket){b, c->at};
        put(s, open, 1);
    } else {
        if (s->depth == 0)
            return REFUSE(s, c->at, "'%c' closes nothing", b);
        struct open_bracket o = s->bracket[s->depth - 1];
        char want = o.kind == '{' ? '}' : o.kind == '(' ? ')' : ']';
        if (b != want)
            return REFUSE(s, c->at, "'%c' where '%c' is due: '%c' was opened at %s:%d", b, want,
                          o.kind, o.at.file, o.at.line);
        const char *close = b == '}' ? "}" : ")";
        if (take(s, c->at, *close, c->p - 1, 1) != 0)
            return -1;
        s->depth--;
        put(s, close, 1);
    }
    return 0;
}

static int scan_text(struct scanner *s, const char *text, size_t n, const char *name);
static int scan_file(struct scanner *s, const char *path, struct bl_line from);

static int scan_include(struct scanner *s, struct cursor *c)
{
    static const char word[] = "@include";
    const char *p = c->p;
    size_t left = (size_t)(c->end - p);
    if (left < sizeof word || strncmp(p, word, sizeof word - 1) != 0)
        return REFUSE(s, c->at, "'@' begins nothing but @include \"file\"");
    for (p += sizeof word - 1; p < c->end && (*p == ' ' || *p == '\t'); p++)
        ;
    const char *begin = p + 1, *quote = p;
    if (p < c->end && *p == '"')
        for (quote = begin; quote < c->end && *quote != '"' && *quote != '\n'; quote++)
            ;
    if (quote >= c->end || *quote != '"' || quote <= begin)
        return REFUSE(s, c->at, "write @include \"file\" with the file's name in quotes");
    if (!s->allow_includes)
        return REFUSE(s, c->at, "@include is not possible here");
    if (s->files > BL_CONFIG_INCLUDES || ++s->included > 1000)
        return REFUSE(s, c->at, "too many includes: at most %d deep and 1000 in all",
                      BL_CONFIG_INCLUDES);

    size_t length = (size_t)(quote - begin);
    const char *slash = *begin == '/' ? NULL : strrchr(c->at.file, '/');
    char *path = bl_format("%.*s%.*s", slash ? (int)(slash - c->at.file) + 1 : 0, c->at.file,
                           (int)length, begin);
    if (!path)
        return REFUSE(s, c->at, "out of memory");
    c->p = quote + 1;
    int rc = scan_file(s, path, c->at);
    free(path);
    if (rc == 0)
        rc = new_line(s, c->at); /* the rest of the line is a line of its own */
    if (rc != 0)
        return -1;
    for (p = c->p; p < c->end && (*p == ' ' || *p == '\t' || *p == '\r'); p++)
        ;
    if (p < c->end && *p != '\n' && *p != '#' && *p != '/')
        return REFUSE(s, c->at, "nothing may follow @include \"file\" on its line");
    return 0;
}

static int scan_one(struct scanner *s, struct cursor *c)
{
    char ch = *c->p;
    if (ch == '\n')
        return advance_line(s, c);
    if (ch == ' ' || ch == '\t' || ch == '\r' || ch == '\f') {
        put(s, " ", 1);
        c->p++;
        return 0;
    }
    if (ch == '#' || (ch == '/' && (c->p[1] == '/' || c->p[1] == '*')))
        return skip_comment(s, c);
    if (ch == '@' && c->blank)
        return scan_include(s, c);
    c->blank = 0;
    if (ch == '"')
        return scan_string(s, c);
    if (isdigit((unsigned char)ch) ||
        (strchr("+-.", ch) && (isdigit((unsigned char)c->p[1]) || c->p[1] == '.')))
        return scan_number(s, c);
    if (isalpha((unsigned char)ch) || ch == '*')
        return scan_word(s, c);
    if (strchr("()[]{}", ch))
        return scan_bracket(s, c);
    if ((unsigned char)ch >= 0x80)
        return REFUSE(s, c->at, "byte 0x%02x outside of a string; a string needs quotes",
                      (unsigned char)ch);
    if (!strchr("=:,;", ch))
        return REFUSE(s, c->at, "unexpected character '%c'; a string needs quotes", ch);
    if ((ch == '=' || ch == ':') && ++s->settings > BL_CONFIG_SETTINGS)
        return REFUSE(s, c->at, "more than %d settings", BL_CONFIG_SETTINGS);
    if (ch == ',' && ++s->values > BL_CONFIG_VALUES)
        return REFUSE(s, c->at, "more than %d values", BL_CONFIG_VALUES);
    put(s, c->p++, 1);
    return take(s, c->at, ch == ':' ? '=' : ch, c->p - 1, 1);
}

static int scan_text(struct scanner *s, const char *text, size_t n, const char *name)
{
    const char *file = bl_file_table_add(&s->out->files, name);
    struct cursor c = {text, text + n, {file ? file : name, 1}, 1};
    if (!file)
        return REFUSE(s, c.at, "out of memory");
    const char *zero = memchr(text, '\0', n);
    if (zero) {
        for (const char *p = text; p < zero; p++)
            c.at.line += *p == '\n';
        return REFUSE(s, c.at, "a zero byte: this is no text file");
    }
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
        c.p += 3; /* byte order mark */
    if (s->out->count == 0 ? begin_line(s, c.at) != 0 : new_line(s, c.at) != 0)
        return -1;
    while (c.p < c.end)
        if (scan_one(s, &c) != 0)
            return -1;
    return 0;
}

static int scan_file(struct scanner *s, const char *path, struct bl_line from)
{
    struct stat st;
    char *text = NULL;
    size_t n = 0;
    if (stat(path, &st) == 0) {
        for (int i = 0; i < s->files; i++)
            if (s->file[i].device == st.st_dev && s->file[i].inode == st.st_ino)
                return REFUSE(s, from, "%s includes itself (a cycle of @include)", path);
        s->file[s->files] = (struct open_file){st.st_dev, st.st_ino};
    } else {
        s->file[s->files] = (struct open_file){0, 0};
    }
    if (bl_read_file(path, BL_CONFIG_BYTES, &text, &n, s->err) != 0) {
        if (from.file)
            bl_error_prefix(s->err, "%s:%d", from.file, from.line);
        if (s->err)
            s->err->code = BL_EXIT_USAGE;
        return -1;
    }
    s->files++;
    int rc = scan_text(s, text, n, path);
    s->files--;
    free(text);
    return rc;
}

int bl_scan_config(struct bl_scan *out, const char *path, const char *text, const char *name,
                   int includes, struct bl_error *err)
{
    struct scanner *s = calloc(1, sizeof *s);
    *out = (struct bl_scan){0};
    if (!s)
        return bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    s->out = out;
    s->err = err;
    s->allow_includes = includes;
    int rc = path ? scan_file(s, path, (struct bl_line){NULL, 0})
                  : scan_text(s, text, strlen(text), name);
    if (rc == 0 && s->depth > 0) {
        struct open_bracket o = s->bracket[s->depth - 1];
        rc = REFUSE(s, o.at, "'%c' is never closed", o.kind);
    }
    if (rc == 0 && (s->last == KEY || s->last == '='))
        rc = REFUSE(s, out->lines[out->count - 1], "the file ends in the middle of a setting");
    if (rc == 0 && out->text.failed)
        rc = bl_error_set(err, BL_EXIT_FAILED, "out of memory");
    free(s);
    if (rc != 0)
        bl_scan_free(out);
    return rc;
}

void bl_scan_free(struct bl_scan *s)
{
    bl_text_free(&s->text);
    free(s->lines);
    bl_file_table_free(&s->files);
    *s = (struct bl_scan){0};
}
