#include "report/document.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char style[] =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:1060px;margin:2rem auto;padding:0 1rem;"
    "color:#1c1c1c;background:#fff}"
    "h1{font-size:1.6rem;margin:0 0 .5rem;overflow-wrap:anywhere}"
    "h2{font-size:1.15rem;margin:2.2rem 0 .6rem;padding-top:.4rem;border-top:1px solid #ddd}"
    "p{max-width:52rem;margin:.5rem 0}"
    "figure{margin:1rem 0 1.6rem;break-inside:avoid}img{width:100%;height:auto;display:block}"
    "figcaption{color:#444;font-size:14px;max-width:52rem}"
    ".table{overflow-x:auto}table{border-collapse:collapse;font-size:14px;margin:.4rem 0}"
    "th,td{padding:.22rem 1.1rem .22rem 0;vertical-align:top;text-align:left;"
    "border-bottom:1px solid #e8e8e8;overflow-wrap:break-word;max-width:34rem}"
    "th{border-bottom:1px solid #999;font-weight:600}tr{break-inside:avoid}"
    ".r{text-align:right;font-variant-numeric:tabular-nums}"
    "pre{font-size:12.5px;line-height:1.4;overflow-x:auto;background:#f6f6f6;padding:.8rem}"
    "summary{cursor:pointer}"
    "@media print{body{margin:0;font-size:11pt}.table{overflow:visible}table{font-size:9pt}"
    "h2{break-after:avoid}}";

size_t bl_document_character(const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t n = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : 4;
    if (p[0] > 0xf4)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    }
    if ((p[0] == 0xe0 && p[1] < 0xa0) || (p[0] == 0xed && p[1] > 0x9f) ||
        (p[0] == 0xf0 && p[1] < 0x90) || (p[0] == 0xf4 && p[1] > 0x8f))
        return 0;
    return n == 3 && p[0] == 0xef && p[1] == 0xbf && p[2] >= 0xbe ? 0 : n; /* no characters */
}

static const char *html_entity(unsigned char c)
{
    switch (c) {
    case '<':
        return "&lt;";
    case '>':
        return "&gt;";
    case '&':
        return "&amp;";
    case '"':
        return "&quot;";
    default:
        return NULL;
    }
}

static void add_html(struct bl_text *t, const char *text, int keep_lines)
{
    const unsigned char *p = (const unsigned char *)text;
    while (*p) {
        size_t n = bl_document_character((const char *)p);
        const char *entity = html_entity(*p);
        int line = keep_lines && (*p == '\n' || *p == '\t');
        if (n == 0) {
            bl_text_add(t, "\xef\xbf\xbd"); /* U+FFFD */
            n = 1;
        } else if (entity != NULL) {
            bl_text_add(t, "%s", entity);
        } else if ((*p < ' ' && !line) || *p == 0x7f) {
            bl_text_add(t, " ");
        } else {
            bl_text_add(t, "%.*s", (int)n, (const char *)p);
        }
        p += n;
    }
}

static int is_word(unsigned char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c >= 0x80;
}

/* An underscore between letters needs no backslash in GitHub's Markdown and reads better without;
 * '@' would call people, '#' link issues. */
static void add_markdown(struct bl_text *t, const char *text)
{
    const unsigned char *p = (const unsigned char *)text;
    for (unsigned char before = ' '; *p; p++) {
        size_t n = bl_document_character((const char *)p);
        if (n == 0)
            bl_text_add(t, "\xef\xbf\xbd");
        else if (*p < ' ' || *p == 0x7f)
            bl_text_add(t, " ");
        else if (n == 1 && (strchr("\\`*[]<>|~", *p) != NULL ||
                            (*p == '_' && !(is_word(before) && is_word(p[1])))))
            bl_text_add(t, "\\%c", *p);
        else if (*p == '@' || (*p == '#' && p[1] >= '0' && p[1] <= '9'))
            bl_text_add(t, "&#%d;", *p);
        else if (*p == '&')
            bl_text_add(t, "&amp;");
        else
            bl_text_add(t, "%.*s", (int)n, (const char *)p);
        before = *p;
        p += n > 1 ? n - 1 : 0;
    }
}

/* Between < and > of a link's destination. */
static void add_destination(struct bl_text *t, const char *text)
{
    for (const unsigned char *p = (const unsigned char *)text; *p; p++) {
        if (*p <= ' ' || strchr("<>\\%\"&", *p) != NULL || *p == 0x7f)
            bl_text_add(t, "%%%02X", *p);
        else
            bl_text_add(t, "%c", *p);
    }
}

static void add_base64(struct bl_text *t, const unsigned char *p, size_t n)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char out[4096];
    size_t k = 0;
    for (size_t i = 0; i < n; i += 3) {
        unsigned long w = (unsigned long)p[i] << 16;
        if (i + 1 < n)
            w |= (unsigned long)p[i + 1] << 8;
        if (i + 2 < n)
            w |= p[i + 2];
        out[k++] = digits[w >> 18];
        out[k++] = digits[w >> 12 & 63];
        out[k++] = i + 1 < n ? digits[w >> 6 & 63] : '=';
        out[k++] = i + 2 < n ? digits[w & 63] : '=';
        if (k == sizeof out || i + 3 >= n) {
            bl_text_add(t, "%.*s", (int)k, out);
            k = 0;
        }
    }
}

void bl_document_begin(struct bl_document *d, const char *title)
{
    bl_text_add(&d->html, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
                          "<meta name=\"viewport\" content=\"width=device-width\"/>\n<title>");
    add_html(&d->html, title, 0);
    bl_text_add(&d->html, "</title>\n<style>%s</style>\n</head>\n<body>\n<h1>", style);
    add_html(&d->html, title, 0);
    bl_text_add(&d->html, "</h1>\n");
    bl_text_add(&d->markdown, "# ");
    add_markdown(&d->markdown, title);
    bl_text_add(&d->markdown, "\n");
}

void bl_document_end(struct bl_document *d)
{
    bl_text_add(&d->html, "</body>\n</html>\n");
}

void bl_document_free(struct bl_document *d)
{
    if (d == NULL)
        return;
    bl_text_free(&d->html);
    bl_text_free(&d->markdown);
}

void bl_document_heading(struct bl_document *d, const char *text)
{
    bl_text_add(&d->html, "<h2>");
    add_html(&d->html, text, 0);
    bl_text_add(&d->html, "</h2>\n");
    bl_text_add(&d->markdown, "\n## ");
    add_markdown(&d->markdown, text);
    bl_text_add(&d->markdown, "\n");
}

void bl_document_paragraph(struct bl_document *d, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, format);
    int n = vasprintf(&text, format, args);
    va_end(args);
    if (n < 0) {
        d->html.failed = 1;
        return;
    }
    bl_text_add(&d->html, "<p>");
    add_html(&d->html, text, 0);
    bl_text_add(&d->html, "</p>\n");
    bl_text_add(&d->markdown, "\n");
    add_markdown(&d->markdown, text);
    bl_text_add(&d->markdown, "\n");
    free(text);
}

static void add_row(struct bl_document *d, const char *tag, const char *align,
                    const char *const *cells)
{
    bl_text_add(&d->html, "<tr>");
    bl_text_add(&d->markdown, "|");
    for (size_t i = 0; align[i]; i++) {
        const char *cell = cells[i] != NULL ? cells[i] : "";
        bl_text_add(&d->html, "<%s%s>", tag, align[i] == 'r' ? " class=\"r\"" : "");
        add_html(&d->html, cell, 0);
        bl_text_add(&d->html, "</%s>", tag);
        bl_text_add(&d->markdown, " ");
        add_markdown(&d->markdown, cell);
        bl_text_add(&d->markdown, " |");
    }
    bl_text_add(&d->html, "</tr>\n");
    bl_text_add(&d->markdown, "\n");
}

void bl_document_table(struct bl_document *d, const char *align, const char *const *head)
{
    bl_text_add(&d->html, "<div class=\"table\"><table>\n<thead>\n");
    bl_text_add(&d->markdown, "\n");
    add_row(d, "th", align, head);
    bl_text_add(&d->html, "</thead>\n<tbody>\n");
    bl_text_add(&d->markdown, "|");
    for (size_t i = 0; align[i]; i++)
        bl_text_add(&d->markdown, "%s", align[i] == 'r' ? " ---: |" : " --- |");
    bl_text_add(&d->markdown, "\n");
}

void bl_document_row(struct bl_document *d, const char *align, const char *const *cells)
{
    add_row(d, "td", align, cells);
}

void bl_document_table_end(struct bl_document *d)
{
    bl_text_add(&d->html, "</tbody>\n</table></div>\n");
}

void bl_document_figure(struct bl_document *d, const char *link, const char *alt,
                        const char *caption, const char *type, const void *image, size_t bytes)
{
    bl_text_add(&d->html, "<figure><img alt=\"");
    add_html(&d->html, alt, 0);
    bl_text_add(&d->html, "\" src=\"data:%s;base64,", type);
    add_base64(&d->html, image, bytes);
    bl_text_add(&d->html, "\"/>\n<figcaption>");
    add_html(&d->html, caption, 0);
    bl_text_add(&d->html, "</figcaption></figure>\n");
    bl_text_add(&d->markdown, "\n![");
    add_markdown(&d->markdown, alt);
    bl_text_add(&d->markdown, "](");
    add_destination(&d->markdown, link);
    bl_text_add(&d->markdown, ")\n\n");
    add_markdown(&d->markdown, caption);
    bl_text_add(&d->markdown, "\n");
}

void bl_document_file(struct bl_document *d, const char *name, const char *text)
{
    bl_text_add(&d->html, "<details><summary>");
    add_html(&d->html, name, 0);
    bl_text_add(&d->html, "</summary>\n<pre>");
    add_html(&d->html, text, 1);
    bl_text_add(&d->html, "</pre></details>\n");
}
