/* Added tokens of a tokenizer under construction. Those that are matched in normalised text are
 * normalised by a temporary tokenizer that has only the normalizers. */
#include "text/import/tok_added.h"

#include "text/tokenizer/norm.h"
#include "text/tokenizer/tokenizer.h"

int tok_writer_add_added(struct tok_writer *writer, int64_t id, const char *content, size_t len,
                         uint32_t flags, bool normalized, bool special, struct err *err)
{
    struct tok_writer_added added = {(uint32_t)id, flags, normalized, 0, (uint32_t)len};
    if (len > TOK_MAX_ADDED_BYTES)
        return err_set(err, "%s: added token %lld has %zu bytes, more than %d", writer->where,
                       (long long)id, len, (int)TOK_MAX_ADDED_BYTES);
    if (tok_writer_set_token(writer, id, content, len, special ? TOK_SPECIAL : 0, err) < 0 ||
        tok_writer_keep_text(writer, content, len, &added.text, err) < 0)
        return -1;
    struct tok_writer_token *token = &writer->token[id];
    if (token->added) {
        writer->added[token->added - 1] = added;
        return 0;
    }
    if (mem_grow(&writer->added, &writer->added_cap, writer->added_count, sizeof writer->added[0],
                 err) < 0)
        return -1;
    writer->added[writer->added_count++] = added;
    token->added = (uint32_t)writer->added_count;
    return 0;
}

int tok_writer_add_user_defined(struct tok_writer *writer, int64_t id, const char *content, size_t len,
                                struct err *err)
{
    struct buf spelling = {0};
    int rc = -1;
    if (tok_writer_add_added(writer, id, content, len, 0, true, false, err) < 0)
        goto out;
    struct tok_writer_added *added = &writer->added[writer->token[id].added - 1];
    if (slice_replace((struct slice){content, len}, (struct slice){" ", 1},
                      (struct slice){"\xe2\x96\x81", 3}, 3 * len, &spelling, err) < 0 ||
        tok_writer_keep_text(writer, spelling.data, spelling.len, &added->text, err) < 0)
        goto out;
    added->len = (uint32_t)spelling.len;
    if (added->len > TOK_MAX_ADDED_BYTES) {
        err_set(err, "%s: token %u has %u bytes, more than %d", writer->where, added->id, added->len,
                (int)TOK_MAX_ADDED_BYTES);
        goto out;
    }
    rc = 0;
out:
    buf_release(&spelling);
    return rc;
}

int tok_writer_normalize_added(struct tok_writer *writer, struct err *err)
{
    struct tok_writer bare = {
        .where = writer->where, .unk = TOK_NONE, .texts = writer->texts, .charsmap = writer->charsmap};
    struct buf blob = {0};
    struct tokenizer *tok = NULL;
    struct normalizer norm = {0};
    int rc = -1;
    bare.steps[LIST_NORMALIZER] = writer->steps[LIST_NORMALIZER];
    memcpy(bare.step[LIST_NORMALIZER], writer->step[LIST_NORMALIZER],
           sizeof bare.step[LIST_NORMALIZER]);
    if (tok_writer_write(&bare, &blob, err) < 0 || tokenizer_open(&tok, blob.data, blob.len, err) < 0)
        goto out;
    for (size_t i = 0; i < writer->added_count; i++) {
        struct tok_writer_added *added = &writer->added[i];
        const char *normal;
        size_t len;
        if (!added->normalized)
            continue;
        if (norm_run(&norm, tok, writer->texts.data + added->text, added->len, &normal, &len, err) < 0)
            goto out;
        if (len == 0 || len > TOK_MAX_ADDED_BYTES) {
            err_set(err, "%s: added token %u has %zu bytes when normalized, expected 1 to %d",
                    writer->where, added->id, len, (int)TOK_MAX_ADDED_BYTES);
            goto out;
        }
        added->len = (uint32_t)len;
        if (tok_writer_keep_text(writer, normal, len, &added->text, err) < 0)
            goto out;
    }
    rc = 0;
out:
    norm_release(&norm);
    tokenizer_free(tok);
    buf_release(&blob);
    return rc;
}
