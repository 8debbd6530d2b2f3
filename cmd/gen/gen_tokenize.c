/* bmc-gen --tokenize and --detokenize. */
#include "cli.h"
#include "gen/gen.h"
#include "text/tokenizer/detok.h"

/* Quotes a token's text once more, to show white space in tables. */
static json_t *quote(json_t *piece)
{
    AUTO(buf_release) struct buf quoted = {0};
    struct err err;
    json_t *text = NULL;
    if (piece && json_format(piece, 0, &quoted, &err) == 0)
        text = json_text(quoted.data, quoted.len);
    json_decref(piece);
    return text;
}

json_t *gen_piece(const struct gen *gen, uint32_t id, struct err *err)
{
    const int format = gen->options->format;
    const bool in_table = !gen->options->jsonl && (format == TABLE_TEXT || format == TABLE_MD);
    AUTO(buf_release) struct buf piece = {0};
    json_t *text = NULL;
    if (tokenizer_piece_printable(gen->model->tok, id, &piece, err) == 0) {
        text = json_text(piece.data, piece.len);
        if (in_table)
            text = quote(text);
        if (!text)
            err_no_memory(err, "a piece");
    }
    return text;
}

/* Calls `each` for every line of the input, without its line end. */
static int for_lines(struct gen *gen,
                     int (*each)(struct gen *, const char *, size_t, json_t *, struct err *),
                     json_t *rows, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    gen_hint_terminal(gen, "lines");
    int rc = gen_read_text(gen->options, true, &text, err);
    size_t number = 1;
    for (size_t at = 0; rc == 0 && at < text.len && !cli_interrupted; number++) {
        const char *end = memchr(text.data + at, '\n', text.len - at);
        const size_t len = end ? (size_t)(end - text.data) - at : text.len - at;
        rc = each(gen, text.data + at, len, rows, err);
        if (rc < 0)
            err_prefix(err, "line %zu", number);
        at += len + 1;
    }
    return rc;
}

/* Prints a line's tokens as a JSON object. */
static int put_tokens(const struct gen *gen, const struct ids *ids, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    json_t *id_list = json_array(), *pieces = json_array();
    AUTO(json_auto) json_t *object = json_pack("{s:o, s:o}", "ids", id_list, "pieces", pieces);
    int rc = object ? 0 : err_no_memory(err, "a line's tokens");
    for (size_t i = 0; rc == 0 && i < ids->len; i++) {
        json_t *piece = gen_piece(gen, ids->id[i], err);
        rc = piece ? json_push(pieces, piece, err) : -1;
        if (rc == 0)
            rc = json_push(id_list, json_integer(ids->id[i]), err);
    }
    if (rc == 0 && (rc = json_write_line(object, &text, err)) == 0)
        rc = gen_put(&text, err);
    return rc;
}

static int add_row(const struct gen *gen, uint32_t id, json_t *rows, struct err *err)
{
    json_t *piece = gen_piece(gen, id, err);
    return piece ? json_push(rows, json_pack("{s:I, s:o}", "id", (json_int_t)id, "piece", piece), err)
                 : -1;
}

/* Tokenizes a line: with --format jsonl prints an object, else adds a row (id, text) per token. */
static int tokenize_line(struct gen *gen, const char *line, size_t len, json_t *rows, struct err *err)
{
    AUTO(ids_release) struct ids ids = {0};
    int rc = serve_encode(gen->model, line, len, true, !gen->options->no_parse_special, &ids, err);
    if (rc == 0 && gen->options->format == TABLE_JSONL)
        rc = put_tokens(gen, &ids, err);
    else
        for (size_t i = 0; rc == 0 && i < ids.len; i++)
            rc = add_row(gen, ids.id[i], rows, err);
    return rc;
}

int gen_tokenize(struct gen *gen, struct err *err)
{
    const enum table_format format = (enum table_format)gen->options->format;
    AUTO(json_auto) json_t *rows = json_array();
    AUTO(buf_release) struct buf text = {0};
    int rc = rows ? for_lines(gen, tokenize_line, rows, err) : err_no_memory(err, "rows");
    if (rc == 0 && format != TABLE_JSONL && (json_array_size(rows) || format == TABLE_JSON))
        rc = table_write(rows, NULL, format, &text, err);
    return rc < 0 ? -1 : gen_put(&text, err);
}

static int detokenize_line(struct gen *gen, const char *line, size_t len, json_t *rows, struct err *err)
{
    struct ids ids = {0};
    struct buf text = {0};
    struct detok detok;
    int rc = -1;
    (void)rows;
    char *copy = strndup(line, len);
    if (!copy)
        return err_no_memory(err, "a line of %zu bytes", len);
    detok_init(&detok, gen->model->tok, gen->options->request.keep_special);
    if (ids_parse(&ids, copy, err) < 0)
        goto out;
    for (size_t i = 0; i < ids.len; i++) {
        if (ids.id[i] >= gen->model->config.vocab) {
            err_set(err, "id %u is outside the vocabulary of %zu", ids.id[i], gen->model->config.vocab);
            goto out;
        }
        if (detok_add(&detok, ids.id[i], &text, err) < 0)
            goto out;
    }
    if (detok_finish(&detok, &text, err) < 0 || buf_add(&text, "\n", 1, err) < 0)
        goto out;
    rc = gen_put(&text, err);
out:
    free(copy);
    ids_release(&ids);
    buf_release(&text);
    return rc;
}

int gen_detokenize(struct gen *gen, struct err *err)
{
    return for_lines(gen, detokenize_line, NULL, err);
}
