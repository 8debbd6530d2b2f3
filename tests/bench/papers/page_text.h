/* Two outputs at once: an HTML page and the same in Markdown. */
#ifndef BMC_PAGE_TEXT_H
#define BMC_PAGE_TEXT_H

#include "base/json.h"

/* Functions append until the first error, which sets rc to -1 and fills err. */
struct page {
    struct buf html, md;
    int rc;
    struct err *err;
};

/* Append formatted text, not escaped, to one of both. */
void page_html(struct page *page, const char *format, ...) PRINTF_LIKE(2, 3);
void page_md(struct page *page, const char *format, ...) PRINTF_LIKE(2, 3);

/* Appends text to the HTML page with <, > and & escaped. */
void page_escaped(struct page *page, const char *text);

/* Appends a cell of Markdown to the page: code spans and web links are kept, other links become
 * their text. */
void page_inline(struct page *page, const char *text);

/* A paragraph of both, of inline Markdown; `class_name` is of the HTML element. */
void page_paragraph(struct page *page, const char *class_name, const char *text);

/* A table of both: `head` is a list of strings, `rows` a list of lists of strings and numbers. */
void page_table(struct page *page, const json_t *head, const json_t *rows);

/* Lines of Markdown that a script printed: tables, and other lines as paragraphs. */
void page_markdown(struct page *page, const char *text);

#endif
