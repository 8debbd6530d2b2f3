/* bmc-prof heads: which heads look far on a text, as a table, and as a list for bmc-gen --heads. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "cli.h"
#include "prof.h"
#include "prof/reach.h"
#include "prof/rows.h"
#include "text/tokenizer.h"

static int add_row(const struct prof *prof, const struct reach_head *head, size_t tokens, json_t *rows,
                   struct err *err)
{
    const struct prof_options *o = prof->options;
    json_t *row = json_object();
    int rc =
        row ? rows_add_setup(&prof->report, NULL, row, err) : err_set(err, "out of memory for a row");
    if (rc == 0)
        rc = rows_merge(row,
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:b}", "tokens", (json_int_t)tokens,
                                  "sink", (json_int_t)o->sink, "recent", (json_int_t)o->recent, "layer",
                                  (json_int_t)head->layer, "head", (json_int_t)head->head, "beyond",
                                  head->beyond, "sparse", head->sparse),
                        err);
    if (rc < 0)
        json_decref(row);
    return rc < 0 ? -1 : json_push(rows, row, err);
}

static int print(const struct prof *prof, const struct reach_head *head, size_t tokens, struct err *err)
{
    const size_t n = prof->model->config.layers * prof->model->config.kv_heads;
    json_t *rows = json_array();
    int rc = rows ? 0 : err_set(err, "out of memory for rows");
    for (size_t i = 0; rc == 0 && i < n; i++)
        rc = add_row(prof, &head[i], tokens, rows, err);
    if (rc == 0)
        rc = prof_print(prof, rows, "layer head beyond sparse", err);
    json_decref(rows);
    return rc;
}

static int save(const struct prof *prof, const struct reach_head *head,
                const struct reach_options *options, struct err *err)
{
    const char *path = prof->options->output;
    struct buf text = {0};
    int rc = path ? reach_list(head, options, prof->model, &text, err) : 0;
    if (rc == 0 && path)
        rc = outfile_save(path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

/* The tokens of the text, as many of them as are wanted. */
static int read_ids(struct prof *prof, struct ids *ids, struct err *err)
{
    const char *path = prof->options->text;
    struct buf text = {0};
    int rc = cli_read_all(path ? path : "-", &text, err);
    if (rc == 0 && tokenizer_encode(prof->model->tok, buf_text(&text), text.len, true, ids, err) < 0)
        rc = err_prefix(err, "%s", path ? path : "standard input");
    const size_t context = prof->report.run.config.context, most = prof->options->context;
    ids->len = size_min(ids->len, most ? size_min(most, context) : context);
    prof->report.run.N = ids->len;
    buf_release(&text);
    return rc;
}

static int measure(struct prof *prof, const struct ids *ids, struct err *err)
{
    const struct prof_options *o = prof->options;
    const struct reach_options options = {o->sink, o->recent, o->sparsity};
    const struct config *c = &prof->model->config;
    struct reach_head *head = mem_alloc(c->layers * c->kv_heads, sizeof *head);
    int rc = head
                 ? reach_measure(head, &options, &prof->report.run, prof->model, ids->id, ids->len, err)
                 : err_set(err, "out of memory for %zu heads", c->layers * c->kv_heads);
    if (rc == 0)
        rc = save(prof, head, &options, err);
    if (rc == 0)
        rc = print(prof, head, ids->len, err);
    free(head);
    return rc;
}

int prof_heads(const struct prof_options *options, struct err *err)
{
    struct prof prof;
    struct ids ids = {0};
    int rc = prof_open(&prof, options, true, err);
    if (rc == 0)
        rc = read_ids(&prof, &ids, err);
    if (rc == 0)
        rc = measure(&prof, &ids, err);
    ids_release(&ids);
    prof_close(&prof);
    return rc;
}
