/* The text that bmc-prof heads and cache-scales run. */
#include "base/mem.h"
#include "cli.h"
#include "prof/prof.h"
#include "text/tokenizer/tokenizer.h"

int prof_read_ids(struct prof *prof, struct ids *ids, struct err *err)
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
