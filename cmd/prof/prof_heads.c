/* bmc-prof heads: finds retrieval heads on a text; prints a table and writes the list for bmc-gen
 * --retrieval-heads. */
#include <stdlib.h>

#include "base/file.h"
#include "base/mem.h"
#include "prof/prof.h"
#include "prof/retrieval_heads.h"
#include "prof/rows.h"
#include "text/tokenizer/tokenizer.h"

static int add_row(const struct prof *prof, const struct retrieval_head *head, size_t tokens,
                   struct err *err)
{
    const struct prof_options *o = prof->options;
    json_t *row = json_object();
    int rc = rows_add_setup(&prof->report, NULL, row, err);
    if (rc == 0)
        rc = rows_merge(row,
                        json_pack("{s:I, s:I, s:I, s:I, s:I, s:f, s:b}", "tokens", (json_int_t)tokens,
                                  "sink", (json_int_t)o->sink, "recent", (json_int_t)o->recent, "layer",
                                  (json_int_t)head->layer, "head", (json_int_t)head->head, "beyond",
                                  head->beyond, "sparse", head->sparse),
                        err);
    return rows_end(rc, row, prof->rows, err);
}

static int print(const struct prof *prof, const struct retrieval_head *head, size_t tokens,
                 struct err *err)
{
    const size_t n = prof->model->config.layers * prof->model->config.kv_heads;
    for (size_t i = 0; i < n; i++)
        if (add_row(prof, &head[i], tokens, err) < 0)
            return -1;
    return prof_print(prof, "layer head beyond sparse", err);
}

static int save(const struct prof *prof, const struct retrieval_head *head,
                const struct retrieval_options *options, struct err *err)
{
    const char *path = prof->options->output;
    struct buf text = {0};
    int rc = path ? retrieval_heads_list(head, options, prof->model, &text, err) : 0;
    if (rc == 0 && path)
        rc = outfile_save(path, text.data, text.len, err);
    buf_release(&text);
    return rc;
}

static int measure(struct prof *prof, const struct ids *ids, struct err *err)
{
    const struct prof_options *o = prof->options;
    const struct retrieval_options options = {o->sink, o->recent, o->sparsity};
    const struct config *c = &prof->model->config;
    struct retrieval_head *head = mem_alloc(c->layers * c->kv_heads, sizeof *head);
    int rc = head ? retrieval_heads_measure(head, &options, &prof->report.run, prof->model, ids->id,
                                            ids->len, err)
                  : err_no_memory(err, "%zu heads", c->layers * c->kv_heads);
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
        rc = prof_read_ids(&prof, &ids, err);
    if (rc == 0)
        rc = measure(&prof, &ids, err);
    ids_release(&ids);
    prof_close(&prof);
    return rc;
}
