/* One document in two renderings: an HTML page with its figures inside, and Markdown with links to
 * them. Every text is escaped for both. */
#ifndef BL_REPORT_DOCUMENT_H
#define BL_REPORT_DOCUMENT_H

#include "base/strings.h"

struct bl_document {
    struct bl_text html, markdown;
};

void bl_document_begin(struct bl_document *d, const char *title);
void bl_document_end(struct bl_document *d);
void bl_document_free(struct bl_document *d);

void bl_document_heading(struct bl_document *d, const char *text);
void bl_document_paragraph(struct bl_document *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* `align` has a letter a column: l or r. Then rows of as many cells (NULL = empty), then the end.
 */
void bl_document_table(struct bl_document *d, const char *align, const char *const *head);
void bl_document_row(struct bl_document *d, const char *align, const char *const *cells);
void bl_document_table_end(struct bl_document *d);
/* link: where the PNG is, seen from the document. image: what the page shows, of this type
 * ("image/svg+xml"). */
void bl_document_figure(struct bl_document *d, const char *link, const char *alt,
                        const char *caption, const char *type, const void *image, size_t bytes);
/* A text file, folded away; in the page only. */
void bl_document_file(struct bl_document *d, const char *name, const char *text);

/* Bytes of the well-formed UTF-8 character at `text` that a page or a figure may hold; 0: none. */
size_t bl_document_character(const char *text);

#endif
