/* The tokenizer API: opening, encoding, queries.
 *
 * Encoding: added tokens -> normalizer -> added tokens of normalised text -> pre-tokenizer ->
 * model, pre-token by pre-token; the template is added at the ends. */
#include "text/tokenizer/tokenizer.h"

#include "text/tokenizer/added.h"
#include "text/tokenizer/detok.h"
#include "text/tokenizer/tok_tables.h"
#include "text/tokenizer/tok_steps.h"
#include "text/tokenizer/tok_model.h"
#include "text/utf8.h"

/* Maximum bytes of a text, so that offsets fit 32 bits even after normalisation. */
enum { MAX_TEXT = 1 << 30 };

int tokenizer_open(struct tokenizer **opened, const void *blob, size_t size, struct err *err)
{
    struct tokenizer *tok = *opened = calloc(1, sizeof *tok);
    int rc = tok ? tok_tables_open(tok, blob, size, err) : err_no_memory(err, "a tokenizer");
    if (rc == 0) {
        tok->patterns =
            patterns_new(tok->step_count[LIST_NORMALIZER] + tok->step_count[LIST_PRETOKENIZER]);
        rc = tok->patterns ? 0 : err_no_memory(err, "a tokenizer's patterns");
    }
    if (rc < 0) {
        tokenizer_free(tok);
        *opened = NULL;
    }
    return rc;
}

void tokenizer_free(struct tokenizer *tok)
{
    if (tok)
        patterns_free(tok->patterns);
    free(tok);
}

size_t tokenizer_vocab(const struct tokenizer *tok) { return tok->ids; }

bool tokenizer_has_template(const struct tokenizer *tok) { return tok->template_count > 0; }

bool tokenizer_is_special(const struct tokenizer *tok, uint32_t id)
{
    return (tok_flags(tok, id) & TOK_SPECIAL) != 0;
}

int64_t tokenizer_find(const struct tokenizer *tok, const char *content, size_t len)
{
    uint32_t id = TOK_NONE;
    if (utf8_valid(content, len) != len || len > tok->text_len * UTF8_MAX)
        return -1;
    if (tok->flags & TOK_BYTE_LEVEL) {
        size_t bytes_len;
        char *bytes = malloc(len + 1);
        if (bytes) {
            bool mapped = byte_alphabet_decode(content, len, bytes, &bytes_len);
            if (mapped)
                id = tok_lookup(tok, bytes, bytes_len, false, TOK_PRESENT);
            if (id == TOK_NONE) /* an added token may be stored as spelled */
                id = tok_lookup(tok, content, len, true, TOK_PRESENT);
        }
        free(bytes);
    } else {
        id = tok_lookup(tok, content, len, false, TOK_PRESENT);
    }
    return id == TOK_NONE ? -1 : (int64_t)id;
}

/* --- encode --- */

/* State of one call of tokenizer_encode(). */
struct encoder {
    const struct tokenizer *tok;
    struct normalizer norm;
    struct pretok pretok;
    const struct tok_model *model;
    union tok_scratch scratch;
    struct ids *ids;
    const struct added_filter *filter; /* for the whole text, or NULL */
};

/* Encodes a part of a text that begins at offset `at` of the input. */
typedef int encode_fn(struct encoder *encoder, const char *text, size_t len, size_t at,
                      struct err *err);

static int encode_plain(struct encoder *encoder, const char *text, size_t len, size_t at,
                        struct err *err)
{
    struct pretok *pretok = &encoder->pretok;
    if (pretok_split(pretok, text, len, at == 0, err) < 0)
        return -1;
    for (size_t i = 0; i < pretok->pretokens.len; i++) {
        const struct short_span piece = pretok->pretokens.span[i];
        if (encoder->model->encode(encoder->tok, &encoder->scratch, pretok->text + piece.start,
                                   piece.end - piece.start, encoder->ids, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the added tokens of a list that are in a text, and encodes what is between them by `encode`. */
static int encode_between(struct encoder *encoder, unsigned list, const struct added_filter *filter,
                          struct slice text, size_t at, encode_fn *encode, struct err *err)
{
    struct added_scan scan;
    size_t start, end;
    uint32_t id;
    int rc = 0;
    added_scan_init(&scan, encoder->tok, list, text.data, text.size, filter);
    while (rc == 0 && added_scan_next(&scan, &id, &start, &end))
        rc = id != TOK_NONE ? ids_add(encoder->ids, id, err)
                            : encode(encoder, text.data + start, end - start, at + start, err);
    return rc;
}

/* Encodes text that has no added tokens of list 0, which are matched before the normalizer. */
static int encode_normalized(struct encoder *encoder, const char *text, size_t len, size_t at,
                             struct err *err)
{
    const struct added_filter plain = {
        .plain = true, .delimiters = encoder->filter ? encoder->filter->delimiters : NULL};
    struct slice normal;
    if (norm_run(&encoder->norm, encoder->tok, text, len, &normal.data, &normal.size, err) < 0)
        return -1;
    if (normal.size > MAX_TEXT)
        return err_set(err, "a normalized text of %zu bytes is longer than %d", normal.size, MAX_TEXT);
    return encode_between(encoder, 1, encoder->filter ? &plain : NULL, normal, at, encode_plain, err);
}

/* Encodes text without added tokens of list 0. With a filter, whose ranges are of the input, special
 * tokens of list 1 are matched before normalisation. */
static int encode_rest(struct encoder *encoder, const char *text, size_t len, size_t at,
                       struct err *err)
{
    struct added_filter filter;
    if (!encoder->filter)
        return encode_normalized(encoder, text, len, at, err);
    filter = *encoder->filter;
    filter.plain = false;
    filter.at = at;
    return encode_between(encoder, 1, &filter, (struct slice){text, len}, at, encode_normalized, err);
}

static int add_template(const struct tokenizer *tok, size_t start, size_t end, struct ids *ids,
                        struct err *err)
{
    for (size_t i = start; i < end; i++)
        if (ids_add(ids, tok->template_ids[i], err) < 0)
            return -1;
    return 0;
}

static int encode(const struct tokenizer *tok, const char *text, size_t len, bool with_template,
                  const struct added_filter *filter, struct ids *ids, struct err *err)
{
    struct encoder encoder = {
        .tok = tok, .pretok.tok = tok, .model = &tok_models[tok->kind], .ids = ids, .filter = filter};
    const size_t before = ids->len, prefix = with_template ? tok->prefix : 0,
                 end = with_template ? tok->template_count : 0;
    if (len > MAX_TEXT)
        return err_set(err, "a text of %zu bytes is longer than %d", len, MAX_TEXT);
    const size_t valid = utf8_valid(text, len);
    if (valid != len)
        return err_set(err, "the text is not valid UTF-8 at byte %zu (0x%02x)", valid,
                       (unsigned char)text[valid]);
    int rc = add_template(tok, 0, prefix, ids, err);
    if (rc == 0)
        rc = encode_between(&encoder, 0, filter, (struct slice){text, len}, 0, encode_rest, err);
    if (rc == 0)
        rc = add_template(tok, prefix, end, ids, err);
    if (rc < 0)
        ids->len = before;
    encoder.model->release(&encoder.scratch);
    pretok_release(&encoder.pretok);
    norm_release(&encoder.norm);
    return rc;
}

int tokenizer_encode(const struct tokenizer *tok, const char *text, size_t len, bool with_template,
                     struct ids *ids, struct err *err)
{
    return encode(tok, text, len, with_template, NULL, ids, err);
}

int tokenizer_encode_plain(const struct tokenizer *tok, const char *text, size_t len,
                           bool with_template, struct ids *ids, struct err *err)
{
    const struct added_filter filter = {.special = false, .plain = true};
    return encode(tok, text, len, with_template, &filter, ids, err);
}

int tokenizer_encode_pair(const struct tokenizer *tok, struct slice first, struct slice second,
                          size_t gap, struct ids *ids, size_t *second_at, struct err *err)
{
    const size_t before = ids->len, end = tok->template_count;
    int rc = tokenizer_encode_plain(tok, first.data, first.size, true, ids, err);
    while (gap-- > 0 && rc == 0 && end > tok->prefix)
        rc = add_template(tok, end - 1, end, ids, err);
    *second_at = ids->len;
    if (rc == 0)
        rc = tokenizer_encode_plain(tok, second.data, second.size, false, ids, err);
    if (rc == 0)
        rc = add_template(tok, tok->prefix, end, ids, err);
    if (rc < 0)
        ids->len = before;
    return rc;
}

int tokenizer_encode_chat(const struct tokenizer *tok, const char *text, size_t len,
                          const struct span *content, size_t n_content, const struct ids *delimiters,
                          struct ids *ids, struct err *err)
{
    const struct added_filter filter = {.special = true,
                                        .plain = true,
                                        .delimiters = delimiters,
                                        .content = content,
                                        .n_content = n_content};
    return encode(tok, text, len, false, &filter, ids, err);
}

size_t tokenizer_leading(const struct tokenizer *tok, const uint32_t *id, size_t n)
{
    const bool leads =
        n >= tok->prefix && (!tok->prefix || !memcmp(id, tok->template_ids, tok->prefix * sizeof *id));
    return leads ? tok->prefix : 0;
}

int tokenizer_find_added(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                         struct err *err)
{
    struct added_scan scan;
    size_t start, end;
    uint32_t id;
    for (unsigned list = 0; list < 2; list++) {
        added_scan_init(&scan, tok, list, text, len, NULL);
        while (added_scan_next(&scan, &id, &start, &end))
            if (id != TOK_NONE && ids_add(ids, id, err) < 0)
                return -1;
    }
    return 0;
}

int tokenizer_piece(const struct tokenizer *tok, uint32_t id, struct buf *out, struct err *err)
{
    return detok_piece(tok, id, false, out, err);
}

int tokenizer_piece_printable(const struct tokenizer *tok, uint32_t id, struct buf *out,
                              struct err *err)
{
    struct buf piece = {0};
    int rc = -1;
    if (tokenizer_piece(tok, id, &piece, err) < 0)
        goto out;
    for (size_t at = 0; at < piece.len;) {
        size_t valid = utf8_valid(piece.data + at, piece.len - at);
        if (buf_add(out, piece.data + at, valid, err) < 0)
            goto out;
        at += valid;
        if (at < piece.len && buf_addf(out, err, "<0x%02X>", (unsigned char)piece.data[at++]) < 0)
            goto out;
    }
    rc = 0;
out:
    buf_release(&piece);
    return rc;
}
