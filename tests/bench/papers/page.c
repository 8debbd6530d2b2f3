/* Writes build/papers/index.html and index.md: what the papers say beside what was measured here.
 *
 *   page PAPERS.md RESULTS-FOLDER OUTPUT-FOLDER
 *
 * Every row of the index of the papers has a section; those with a result file also charts,
 * verdicts, machine, commit and command. Charts are SVG files beside the pages, and part of the HTML. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "chart.h"
#include "entry.h"
#include "page_text.h"

enum { MOST_LINKS = 200 };

struct writer {
    struct page page;
    const struct paper_rows *rows;
    const struct entries *entries;
    const char *folder;
    unsigned charts;
};

static const char style[] =
    "body{font:16px/1.45 system-ui,sans-serif;margin:0 auto;padding:0 12px;max-width:46em;color:#222}"
    "h1{font-size:1.4em}h2{font-size:1.2em;border-bottom:2px solid #ccc;margin-top:2em}"
    "h3{font-size:1.05em;margin:1.6em 0 .3em}p{margin:.4em "
    "0}code{font-size:.85em;overflow-wrap:anywhere}"
    ".wide{overflow-x:auto}table{border-collapse:collapse;font-size:.85em}"
    "td,th{border:1px solid #ccc;padding:2px "
    "6px;text-align:left}svg{width:100%;height:auto;max-width:560px}"
    "nav a{display:inline-block;min-width:1.9em;padding:3px "
    "4px;margin:2px;text-align:center;color:#fff;"
    "border-radius:4px;text-decoration:none}.tag{color:#fff;border-radius:4px;padding:1px "
    "7px;font-size:.8em;"
    "white-space:nowrap}.yes{background:#00694d}.part{background:#8a5a00}.no{background:#a52a00}"
    ".form{background:#005a92}.none{background:#666}.drawing{background:#aaa}.meta{color:#555;font-"
    "size:.85em}";

/* The colour of a verdict: a class of the style sheet. */
static const char *colour_of(const char *verdict)
{
    static const struct {
        const char *start, *colour;
    } table[] = {{"holds in part", "part"}, {"holds", "yes"},      {"does not hold", "no"},
                 {"failed", "no"},          {"form only", "form"}, {"arithmetic", "form"},
                 {"undecided", "part"},     {"the same", "part"},  {"drawing", "drawing"}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strncmp(verdict, table[i].start, strlen(table[i].start)) == 0)
            return table[i].colour;
    return "none";
}

/* The verdict to show for a row: that of this run, else the first words of the index's. */
static void verdict_of(const struct writer *w, const struct paper_row *row, char *text, size_t size)
{
    const struct entry *e = entry_of_row(w->entries, row);
    const char *index = row->cell[5];
    const size_t len = strcspn(index, ":;,(");
    if (e && strcmp(e->state, "done") == 0)
        snprintf(text, size, "%s", entry_verdict(e));
    else
        snprintf(text, size, "%.*s", (int)size_min(len, 24), index);
}

/* ---- index by paper and number ---- */

/* A table or figure of a paper, with the anchor of its row. */
struct link {
    char kind[32], number[128], verdict[64], anchor[160];
};

/* Order of kinds in the index, "" (anything else) last. */
static size_t kind_rank(const char *kind)
{
    static const char *const kinds[] = {"table", "figure", "eq.", "algorithm", "section"};
    size_t rank = 0;
    while (rank < ARRAY_LEN(kinds) && strcmp(kind, kinds[rank]) != 0)
        rank++;
    return rank;
}

/* A number, decimal or Roman below 40; 0 if it is none. */
static int number_of(const char *text)
{
    int value = 0;
    if (strspn(text, "IVX") != strlen(text))
        return (int)strtol(text, NULL, 10);
    for (; *text; text++) {
        const int one = *text == 'X' ? 10 : *text == 'V' ? 5 : 1;
        value += one == 1 && (text[1] == 'V' || text[1] == 'X') ? -1 : one;
    }
    return value;
}

static int by_number(const void *a, const void *b)
{
    const struct link *x = a, *y = b;
    const int kinds = (int)kind_rank(x->kind) - (int)kind_rank(y->kind);
    return kinds ? kinds : number_of(x->number) - number_of(y->number);
}

/* Fills links[MOST_LINKS] with all items of a paper, sorted, and returns their number. */
static size_t links_of(const struct writer *w, const char *paper, struct link *links)
{
    size_t n = 0;
    for (size_t i = 0; i < w->rows->n; i++) {
        const struct paper_row *row = &w->rows->row[i];
        const char *at = row->cell[1];
        char kind[32] = "", item[128], name[160];
        if (strcmp(row->cell[0], paper) != 0)
            continue;
        snprintf(name, sizeof name, "%s %s", paper, row->cell[1]);
        while (n < MOST_LINKS && paper_next_item(&at, kind, sizeof kind, item, sizeof item)) {
            struct link *link = &links[n++];
            snprintf(link->kind, sizeof link->kind, "%s", kind);
            snprintf(link->number, sizeof link->number, "%s", kind[0] ? item + strlen(kind) + 1 : item);
            verdict_of(w, row, link->verdict, sizeof link->verdict);
            paper_anchor(name, link->anchor, sizeof link->anchor);
        }
    }
    qsort(links, n, sizeof *links, by_number);
    return n;
}

static void write_links(struct writer *w, const char *paper)
{
    struct link links[MOST_LINKS];
    const size_t n = links_of(w, paper, links);
    for (size_t i = 0; i < n; i++) {
        const struct link *link = &links[i];
        const char *kind = link->kind[0] ? link->kind : "other";
        if (i == 0 || strcmp(link->kind, links[i - 1].kind) != 0) {
            page_html(&w->page, "%s%s ", i ? "<br>" : "", kind);
            page_md(&w->page, "\n- %s:", kind);
        }
        page_html(&w->page, "<a class=%s href=\"#%s\" title=\"%s\">", colour_of(link->verdict),
                  link->anchor, link->verdict);
        page_escaped(&w->page, link->number);
        page_html(&w->page, "</a>");
        page_md(&w->page, " [%s](#%s)", link->number, link->anchor);
    }
}

/* ---- a section ---- */

/* Adds the chart in `svg` to both pages, and writes its file. */
static void write_chart(struct writer *w, struct buf *svg, const char *key)
{
    char name[128], path[4096];
    paper_anchor(key, name, sizeof name - 16);
    snprintf(name + strlen(name), 16, "-%u.svg", ++w->charts);
    snprintf(path, sizeof path, "%s/%s", w->folder, name);
    if (w->page.rc == 0)
        w->page.rc = outfile_save(path, svg->data, svg->len, w->page.err);
    const char *body = strstr(buf_text(svg), "<svg");
    page_html(&w->page, "%s", body ? body : "");
    page_md(&w->page, "![%s](%s)\n\n", key, name);
}

static void ratio_text(const struct ratio *r, char *text, size_t size)
{
    if (r->n == 0)
        snprintf(text, size, "-");
    else if (r->coverage == 100)
        snprintf(text, size, "%.3g (counted)", r->median);
    else
        snprintf(text, size, "%.3g [%.3g, %.3g]", r->median, r->lo, r->hi);
}

static void paper_text(const struct judged *j, char *text, size_t size)
{
    if (!isfinite(j->paper_lo))
        snprintf(text, size, "direction only");
    else if (j->paper_lo < j->paper_hi)
        snprintf(text, size, "%.3g to %.3g", j->paper_lo, j->paper_hi);
    else
        snprintf(text, size, "%.3g", j->paper_lo);
}

/* The table of claims: paper, measured ratio with its interval, verdict. */
static void write_claims(struct writer *w, const struct entry *e)
{
    struct buf svg = {0};
    json_t *head = json_pack("[ssss]", "ratio", "paper", "here", "verdict"), *rows = json_array();
    int least = 100, most = 0;
    for (size_t i = 0; i < e->n_claims; i++) {
        char paper[64], ours[96];
        paper_text(&e->judged[i], paper, sizeof paper);
        ratio_text(&e->judged[i].ratio, ours, sizeof ours);
        json_array_append_new(rows, json_pack("[ssss]", entry_text(e->claim[i], "name"), paper, ours,
                                              verdict_name(e->judged[i].outcome)));
        if (e->judged[i].ratio.n && e->judged[i].ratio.coverage < 100) {
            least = e->judged[i].ratio.coverage < least ? e->judged[i].ratio.coverage : least;
            most = e->judged[i].ratio.coverage > most ? e->judged[i].ratio.coverage : most;
        }
    }
    if (w->page.rc == 0)
        w->page.rc = chart_ratios(e->claim, e->judged, e->n_claims, &svg, w->page.err);
    if (svg.len)
        write_chart(w, &svg, e->key);
    if (json_array_size(rows))
        page_table(&w->page, head, rows);
    if (most) {
        char text[160];
        snprintf(text, sizeof text,
                 least == most
                     ? "Medians of ratios of alternating rounds; intervals cover the median with %d %%."
                     : "Medians of ratios of alternating rounds; intervals cover the median with %d to "
                       "%d %%.",
                 least, most);
        page_paragraph(&w->page, "meta", text);
    }
    json_decref(head);
    json_decref(rows);
    buf_release(&svg);
}

/* Everything else that the script printed, in order. */
static void write_part(struct writer *w, const struct entry *e, const json_t *part)
{
    const char *kind = entry_text(part, "kind"), *title = entry_text(part, "title");
    if (strcmp(kind, "table") == 0) {
        if (*title)
            page_paragraph(&w->page, "title", title);
        page_table(&w->page, json_object_get(part, "head"), json_object_get(part, "rows"));
    } else if (strcmp(kind, "figure") == 0) {
        struct buf svg = {0};
        if (w->page.rc == 0)
            w->page.rc = chart_figure(part, &svg, w->page.err);
        write_chart(w, &svg, e->key);
        buf_release(&svg);
    } else if (strcmp(kind, "markdown") == 0)
        page_markdown(&w->page, entry_text(part, "text"));
    else if (strcmp(kind, "note") == 0)
        page_paragraph(&w->page, "note", entry_text(part, "text"));
    else if (strcmp(kind, "equal") == 0) {
        char text[256];
        snprintf(text, sizeof text, "The same results (%s): %zu compared.", entry_text(part, "name"),
                 json_array_size(json_object_get(part, "values")));
        page_paragraph(&w->page, "note", text);
    }
}

static void write_result(struct writer *w, const struct entry *e, const char *index_verdict)
{
    const json_t *parts = json_object_get(e->root, "parts");
    struct buf text = {0};
    struct page *p = &w->page;
    const char *form = e->form ? e->form : "", *reason = entry_text(e->root, "reason");
    if (p->rc == 0)
        p->rc = buf_addf(&text, p->err, "**Verdict of this run: %s**%s%s%s%s%s", entry_verdict(e),
                         *form ? ": " : "", form, *reason ? ": " : "", reason,
                         e->differs ? ": results that should be the same differ" : "");
    page_html(p, "<p><strong class=\"tag %s\">this run: ", colour_of(entry_verdict(e)));
    page_escaped(p, entry_verdict(e));
    page_html(p, "</strong> ");
    page_inline(p, e->differs ? "results that should be the same differ" : *form ? form : reason);
    page_html(p, "</p>\n");
    page_md(p, "%s\n\n", buf_text(&text));
    if (entry_contradicts(e, index_verdict))
        page_paragraph(p, "note", "This run contradicts the verdict of the index.");
    write_claims(w, e);
    for (size_t i = 0; i < json_array_size(parts); i++)
        write_part(w, e, json_array_get(parts, i));
    buf_clear(&text);
    if (p->rc == 0)
        p->rc = buf_addf(&text, p->err, "%s, %lld threads; commit %s; %s; %lld s; `%s`",
                         entry_text(e->root, "cpu"),
                         (long long)json_integer_value(json_object_get(e->root, "threads")),
                         entry_text(e->root, "commit"), entry_text(e->root, "time"),
                         (long long)json_integer_value(json_object_get(e->root, "seconds")),
                         entry_text(e->root, "command"));
    page_paragraph(p, "meta", buf_text(&text));
    buf_release(&text);
}

/* For rows whose result is shown in the section of another row. */
static void write_elsewhere(struct page *p, const struct entry *e)
{
    const char *first = json_string_value(json_array_get(json_object_get(e->root, "items"), 0));
    char anchor[160];
    paper_anchor(first, anchor, sizeof anchor);
    page_html(p, "<p>Measured together with <a href=\"#%s\">", anchor);
    page_escaped(p, first);
    page_html(p, "</a>.</p>\n");
    page_md(p, "Measured together with [%s](#%s).\n\n", first, anchor);
}

static void write_row(struct writer *w, const struct paper_row *row)
{
    const struct entry *e = entry_of_row(w->entries, row);
    struct page *p = &w->page;
    char name[160], anchor[160], verdict[64];
    snprintf(name, sizeof name, "%s %s", row->cell[0], row->cell[1]);
    paper_anchor(name, anchor, sizeof anchor);
    verdict_of(w, row, verdict, sizeof verdict);
    page_html(p, "<section id=\"%s\"><h3>", anchor);
    page_escaped(p, name);
    page_html(p, " <span class=\"tag %s\">", colour_of(verdict));
    page_escaped(p, verdict);
    page_html(p, "</span></h3>\n");
    page_md(p, "<a id=\"%s\"></a>\n\n### %s\n\n", anchor, name);
    page_paragraph(p, "claim", row->cell[2]);
    if (e && strcmp(json_string_value(json_array_get(json_object_get(e->root, "items"), 0)), name) == 0)
        write_result(w, e, row->cell[5]);
    else if (e)
        write_elsewhere(p, e);
    static const char *const labels[] = {"Index: script", "Index: result", "Index: verdict"};
    for (size_t i = 0; i < ARRAY_LEN(labels); i++)
        if (row->cell[3 + i][0]) {
            page_html(p, "<p class=meta><b>%s:</b> ", labels[i]);
            page_inline(p, row->cell[3 + i]);
            page_html(p, "</p>\n");
            page_md(p, "%s: %s\n\n", labels[i], row->cell[3 + i]);
        }
    page_html(p, "</section>\n");
}

/* How many rows have which kind of verdict. */
static void write_counts(struct writer *w)
{
    static const char *const kinds[] = {"holds in part", "holds",      "does not hold", "undecided",
                                        "form only",     "arithmetic", "not measured",  "failed",
                                        "drawing",       "the same"};
    size_t n[ARRAY_LEN(kinds)] = {0}, results = 0;
    struct buf text = {0};
    for (size_t i = 0; i < w->entries->n; i++)
        results += strcmp(w->entries->entry[i].state, "done") == 0;
    for (size_t i = 0; i < w->rows->n; i++) {
        char verdict[64];
        size_t k = 0;
        verdict_of(w, &w->rows->row[i], verdict, sizeof verdict);
        while (k < ARRAY_LEN(kinds) && strncmp(verdict, kinds[k], strlen(kinds[k])) != 0)
            k++;
        if (k < ARRAY_LEN(kinds))
            n[k]++;
    }
    if (w->page.rc == 0)
        w->page.rc =
            buf_addf(&text, w->page.err, "%zu scripts have results here. Rows by verdict", results);
    for (size_t k = 0, any = 0; k < ARRAY_LEN(kinds); k++)
        if (n[k] && w->page.rc == 0)
            w->page.rc = buf_addf(&text, w->page.err, "%s %s %zu", any++ ? "," : ":", kinds[k], n[k]);
    page_paragraph(&w->page, "note", buf_text(&text));
    buf_release(&text);
}

static void write_page(struct writer *w)
{
    struct page *p = &w->page;
    page_html(
        p,
        "<!doctype html>\n<html lang=en><meta charset=utf-8><meta name=viewport "
        "content=\"width=device-width, initial-scale=1\">\n<title>Papers</title><style>%s</style>\n"
        "<h1>Tables and figures of the papers, remade</h1>\n",
        style);
    page_md(p, "# Tables and figures of the papers, remade\n\n");
    write_counts(w);
    page_html(p, "<nav>\n");
    for (size_t i = 0; i < w->rows->n; i++) {
        const char *paper = w->rows->row[i].cell[0];
        if (i && strcmp(paper, w->rows->row[i - 1].cell[0]) == 0)
            continue;
        page_html(p, "<p><b>%s</b><br>", paper);
        page_md(p, "**%s**\n", paper);
        write_links(w, paper);
        page_html(p, "</p>\n");
        page_md(p, "\n\n");
    }
    page_html(
        p,
        "</nav>\n<p class=meta><span class=\"tag yes\">holds</span> <span class=\"tag part\">in part"
        "</span> <span class=\"tag no\">does not hold</span> <span class=\"tag form\">form, arithmetic"
        "</span> <span class=\"tag none\">no result</span> <span class=\"tag "
        "drawing\">illustration</span></p>\n");
    for (size_t i = 0; i < w->rows->n; i++) {
        const char *paper = w->rows->row[i].cell[0];
        if (!i || strcmp(paper, w->rows->row[i - 1].cell[0]) != 0) {
            const char *type = strcmp(paper, "HTP") == 0 ? "note" : "paper";
            page_html(p, "<h2>%s %s</h2>\n", paper, type);
            page_md(p, "## %s %s\n\n", paper, type);
        }
        write_row(w, &w->rows->row[i]);
    }
    page_html(p, "</html>\n");
}

static int save(const char *folder, const char *name, const struct buf *text, struct err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return outfile_save(path, text->data, text->len, err);
}

int main(int argc, char **argv)
{
    struct err err;
    struct paper_rows rows = {0};
    struct entries entries = {0};
    if (argc != 4) {
        fprintf(stderr, "usage: page PAPERS.md RESULTS-FOLDER OUTPUT-FOLDER\n");
        return 2;
    }
    struct writer w = {.page = {.err = &err}, .rows = &rows, .entries = &entries, .folder = argv[3]};
    int rc = paper_rows_read(&rows, argv[1], &err);
    if (rc == 0)
        rc = entries_read(&entries, argv[2], &err);
    if (rc == 0) {
        write_page(&w);
        rc = w.page.rc;
    }
    if (rc == 0)
        rc = save(argv[3], "index.html", &w.page.html, &err);
    if (rc == 0)
        rc = save(argv[3], "index.md", &w.page.md, &err);
    if (rc < 0)
        fprintf(stderr, "papers: %s\n", err.text);
    buf_release(&w.page.html);
    buf_release(&w.page.md);
    entries_close(&entries);
    paper_rows_close(&rows);
    return rc < 0;
}
