/* Writes HTML and Markdown. */
#include "page_text.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void append(struct page *page, struct buf *buf, const char *text, size_t len)
{
    if (page->rc == 0)
        page->rc = buf_add(buf, text, len, page->err);
}

static void append_format(struct page *page, struct buf *buf, const char *format, va_list args)
{
    char *text = NULL;
    const int len = vasprintf(&text, format, args);
    if (len < 0)
        page->rc = err_no_memory(page->err, "a page");
    else
        append(page, buf, text, (size_t)len);
    free(len < 0 ? NULL : text);
}

void page_html(struct page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append_format(page, &page->html, format, args);
    va_end(args);
}

void page_md(struct page *page, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    append_format(page, &page->md, format, args);
    va_end(args);
}

static void escape(struct page *page, const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        const char *as = text[i] == '<'   ? "&lt;"
                         : text[i] == '>' ? "&gt;"
                         : text[i] == '&' ? "&amp;"
                         : text[i] == '"' ? "&quot;"
                                          : NULL;
        append(page, &page->html, as ? as : text + i, as ? strlen(as) : 1);
    }
}

void page_escaped(struct page *page, const char *text) { escape(page, text, strlen(text)); }

/* Writes the code span at `text`; returns its length, 0 if there is none. */
static size_t code_span(struct page *page, const char *text)
{
    const char *end = *text == '`' ? strchr(text + 1, '`') : NULL;
    if (!end)
        return 0;
    page_html(page, "<code>");
    escape(page, text + 1, (size_t)(end - text - 1));
    page_html(page, "</code>");
    return (size_t)(end - text) + 1;
}

/* The same for a link [text](address). */
static size_t link_span(struct page *page, const char *text)
{
    const char *middle = *text == '[' ? strstr(text, "](") : NULL;
    const char *end = middle ? strchr(middle, ')') : NULL;
    if (!end)
        return 0;
    const bool web = strncmp(middle + 2, "https://", 8) == 0;
    if (web) {
        page_html(page, "<a href=\"");
        escape(page, middle + 2, (size_t)(end - middle - 2));
        page_html(page, "\">");
    }
    escape(page, text + 1, (size_t)(middle - text - 1));
    page_html(page, web ? "</a>" : "");
    return (size_t)(end - text) + 1;
}

void page_inline(struct page *page, const char *text)
{
    while (*text) {
        size_t len = code_span(page, text);
        if (!len)
            len = link_span(page, text);
        if (!len) {
            len = 1 + strcspn(text + 1, "`[");
            escape(page, text, len);
        }
        text += len;
    }
}

void page_paragraph(struct page *page, const char *class_name, const char *text)
{
    page_html(page, "<p class=\"%s\">", class_name);
    page_inline(page, text);
    page_html(page, "</p>\n");
    page_md(page, "%s\n\n", text);
}

/* A value of a table as text: numbers with three digits. */
static void cell_text(const json_t *value, char *text, size_t size)
{
    const double number = json_number_value(value);
    if (json_is_string(value))
        snprintf(text, size, "%s", json_string_value(value));
    else if (json_is_number(value))
        snprintf(text, size, fabs(number) >= 1000 ? "%.0f" : "%.3g", number);
    else
        snprintf(text, size, "%s", json_is_true(value) ? "yes" : json_is_false(value) ? "no" : "");
}

static void table_row(struct page *page, const json_t *cells, const char *tag)
{
    size_t i;
    const json_t *value;
    page_html(page, "<tr>");
    page_md(page, "|");
    json_array_foreach((json_t *)(uintptr_t)cells, i, value)
    {
        char text[512];
        cell_text(value, text, sizeof text);
        page_html(page, "<%s>", tag);
        page_inline(page, text);
        page_html(page, "</%s>", tag);
        page_md(page, " %s |", text);
    }
    page_html(page, "</tr>\n");
    page_md(page, "\n");
}

void page_table(struct page *page, const json_t *head, const json_t *rows)
{
    size_t i;
    const json_t *row;
    page_html(page, "<div class=wide><table>\n");
    table_row(page, head, "th");
    for (i = 0; i < json_array_size(head); i++)
        page_md(page, "%s---%s", i ? " " : "| ", i + 1 < json_array_size(head) ? " |" : " |\n");
    json_array_foreach((json_t *)(uintptr_t)rows, i, row) table_row(page, row, "td");
    page_html(page, "</table></div>\n");
    page_md(page, "\n");
}

/* A line "| a | b |" as a row of the page. */
static void markdown_row(struct page *page, const char *line, size_t len, const char *tag)
{
    const char *end = line + len;
    page_html(page, "<tr>");
    for (const char *at = line + 1; at < end;) {
        const char *bar = memchr(at, '|', (size_t)(end - at));
        if (!bar)
            break;
        char *cell = strndup(at, (size_t)(bar - at));
        page_html(page, "<%s>", tag);
        page_inline(page, cell ? cell : "");
        page_html(page, "</%s>", tag);
        free(cell);
        at = bar + 1;
    }
    page_html(page, "</tr>\n");
}

void page_markdown(struct page *page, const char *text)
{
    bool table = false;
    page_md(page, "%s\n", text);
    while (*text) {
        const size_t len = strcspn(text, "\n");
        const bool row = *text == '|';
        if (table != row)
            page_html(page, row ? "<div class=wide><table>\n" : "</table></div>\n");
        if (row && strncmp(text, "| ---", 5) != 0)
            markdown_row(page, text, len, table ? "td" : "th");
        if (!row && len) {
            page_html(page, "<p>");
            escape(page, text, len);
            page_html(page, "</p>\n");
        }
        table = row;
        text += len + (text[len] == '\n');
    }
    if (table)
        page_html(page, "</table></div>\n");
}
