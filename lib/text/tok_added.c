/* Added tokens of a tokenizer in the making.
 *
 * Those that are matched in normalized text are spelled as the normalizer spells them. The normalizer is
 * run as it will run later: in a tokenizer that has nothing but it. */
#include "text/tok_added.h"

#include "text/norm.h"
#include "text/tokenizer.h"

int tok_draft_add_added(struct tok_draft *draft, int64_t id, const char *content, size_t len,
                        uint32_t flags, bool normalized, bool special, struct err *err)
{
    struct tok_draft_added added = {(uint32_t)id, flags, normalized, 0, (uint32_t)len};
    if (len > TOK_MAX_ADDED_BYTES)
        return err_set(err, "%s: added token %lld has %zu bytes, more than %d", draft->where,
                       (long long)id, len, (int)TOK_MAX_ADDED_BYTES);
    if (tok_draft_set_token(draft, id, content, len, special ? TOK_SPECIAL : 0, err) < 0 ||
        tok_draft_keep_text(draft, content, len, &added.text, err) < 0)
        return -1;
    draft->token[id].added = true;
    for (size_t i = 0; i < draft->added_count; i++)
        if (draft->added[i].id == (uint32_t)id) {
            draft->added[i] = added;
            return 0;
        }
    if (mem_grow(&draft->added, &draft->added_cap, draft->added_count, sizeof draft->added[0], err) < 0)
        return -1;
    draft->added[draft->added_count++] = added;
    return 0;
}

int tok_draft_add_user(struct tok_draft *draft, int64_t id, const char *content, size_t len,
                       struct err *err)
{
    struct buf spelling = {0};
    int rc = -1;
    if (tok_draft_add_added(draft, id, content, len, 0, true, false, err) < 0)
        goto out;
    struct tok_draft_added *added = &draft->added[draft->added_count - 1];
    if (slice_replace((struct slice){content, len}, (struct slice){" ", 1},
                      (struct slice){"\xe2\x96\x81", 3}, 3 * len, &spelling, err) < 0 ||
        tok_draft_keep_text(draft, spelling.data, spelling.len, &added->text, err) < 0)
        goto out;
    added->len = (uint32_t)spelling.len;
    if (added->len > TOK_MAX_ADDED_BYTES) {
        err_set(err, "%s: token %u has %u bytes, more than %d", draft->where, added->id, added->len,
                (int)TOK_MAX_ADDED_BYTES);
        goto out;
    }
    rc = 0;
out:
    buf_release(&spelling);
    return rc;
}

int tok_draft_normalize_added(struct tok_draft *draft, struct err *err)
{
    struct tok_draft bare = {
        .where = draft->where, .unk = TOK_NONE, .texts = draft->texts, .charsmap = draft->charsmap};
    struct buf blob = {0};
    struct tokenizer *tok = NULL;
    struct norm norm = {0};
    int rc = -1;
    bare.steps[LIST_NORMALIZER] = draft->steps[LIST_NORMALIZER];
    memcpy(bare.step[LIST_NORMALIZER], draft->step[LIST_NORMALIZER], sizeof bare.step[LIST_NORMALIZER]);
    if (tok_draft_write(&bare, &blob, err) < 0 || tokenizer_open(&tok, blob.data, blob.len, err) < 0)
        goto out;
    for (size_t i = 0; i < draft->added_count; i++) {
        struct tok_draft_added *added = &draft->added[i];
        const char *normal;
        size_t len;
        if (!added->normalized)
            continue;
        if (norm_run(&norm, tok, draft->texts.data + added->text, added->len, &normal, &len, err) < 0)
            goto out;
        if (len == 0 || len > TOK_MAX_ADDED_BYTES) {
            err_set(err, "%s: added token %u has %zu bytes when normalized, expected 1 to %d",
                    draft->where, added->id, len, (int)TOK_MAX_ADDED_BYTES);
            goto out;
        }
        added->len = (uint32_t)len;
        if (tok_draft_keep_text(draft, normal, len, &added->text, err) < 0)
            goto out;
    }
    rc = 0;
out:
    norm_release(&norm);
    tokenizer_free(tok);
    buf_release(&blob);
    return rc;
}
