/* bmc-gen --score, --tokenize and --detokenize. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "decode/score.h"
#include "gen.h"

static int put(const struct buf *text, struct err *err)
{
    if (text->len)
        fwrite(text->data, 1, text->len, stdout);
    return ferror(stdout) ? err_errno(err, "cannot write to standard output") : 0;
}

/* ---- --score ---- */

struct score_job {
    struct gen *gen;
    enum table_format format;
    json_t *rows; /* collected, unless they are printed as they come */
};

static json_t *score_row(const struct tokenizer *tok, size_t pos, uint32_t id, double logprob,
                         struct err *err)
{
    struct buf piece = {0};
    json_t *row = NULL;
    if (tokenizer_piece_printable(tok, id, &piece, err) == 0) {
        row = json_pack("{s:I, s:I, s:s%, s:o}", "pos", (json_int_t)pos, "id", (json_int_t)id, "piece",
                        piece.data ? piece.data : "", piece.len, "logprob",
                        isnan(logprob) ? json_null() : json_real(logprob));
        if (!row)
            err_set(err, "out of memory for a row");
    }
    buf_release(&piece);
    return row;
}

/* For people a space or a line end inside a piece must show. */
static int show_piece(json_t *row, struct err *err)
{
    struct buf quoted = {0};
    int rc = json_spell(json_object_get(row, "piece"), 0, &quoted, err);
    if (rc == 0)
        rc = json_put(row, "piece", json_text(quoted.data, quoted.len), err);
    buf_release(&quoted);
    return rc;
}

static int take_score(void *arg, size_t pos, uint32_t id, double logprob, struct err *err)
{
    struct score_job *job = arg;
    json_t *row = score_row(job->gen->model->tok, pos, id, logprob, err);
    int rc = 0;
    if (!row)
        return -1;
    if (job->format == TABLE_JSONL) {
        struct buf line = {0};
        rc = json_write_line(row, &line, err);
        if (rc == 0)
            rc = put(&line, err);
        buf_release(&line);
        json_decref(row);
        return rc;
    }
    if (job->format == TABLE_TEXT || job->format == TABLE_MD)
        rc = show_piece(row, err);
    return json_push(job->rows, row, err) < 0 ? -1 : rc;
}

static int print_scores(const struct score_job *job, const struct score_stats *score, struct err *err)
{
    const double perplexity = score->tokens ? exp(-score->sum_logprob / (double)score->tokens) : NAN;
    json_t *about = json_pack("{s:I, s:o}", "tokens", (json_int_t)score->tokens, "perplexity",
                              isnan(perplexity) ? json_null() : json_real(perplexity));
    if (about && cli_interrupted)
        json_object_set_new(about, "error", json_string("interrupted"));
    struct buf text = {0};
    int rc = job->format == TABLE_JSONL ? json_write_line(about, &text, err)
                                        : table_write(job->rows, about, job->format, &text, err);
    if (rc == 0 && job->format == TABLE_TEXT)
        rc = score->tokens ? buf_addf(&text, err, "\ntokens      %zu\nperplexity  %.4f\n",
                                      score->tokens, perplexity)
                           : buf_addf(&text, err, "\ntokens      0\nperplexity  -\n");
    if (rc == 0 && job->format == TABLE_TEXT && cli_interrupted)
        rc = buf_addf(&text, err, "interrupted before the end of the text\n");
    if (rc == 0)
        rc = put(&text, err);
    buf_release(&text);
    json_decref(about);
    return rc;
}

int gen_score(struct gen *gen, struct err *err)
{
    struct score_job job = {
        .gen = gen, .format = (enum table_format)gen->options->format, .rows = json_array()};
    struct buf text = {0};
    struct ids ids = {0};
    struct score_stats score;
    int rc = -1;
    if (gen_read_text(gen->options, true, &text, err) < 0)
        goto out;
    if (tokenizer_encode(gen->model->tok, text.data ? text.data : "", text.len, true, &ids, err) < 0) {
        err_prefix(err, "text");
        goto out;
    }
    if (gen_open_session(gen, 1, ids.len, err) < 0 ||
        score_ids(&gen->session, ids.id, ids.len, take_score, &job, &cli_interrupted, &score, err) <
            0 ||
        print_scores(&job, &score, err) < 0)
        goto out;
    const struct gen_stats stats = {
        .sequences = 1, .prefill_tokens = score.prefill_tokens, .prefill_ms = score.prefill_ms};
    rc = gen_report(gen, &stats, err);
out:
    json_decref(job.rows);
    buf_release(&text);
    ids_release(&ids);
    return rc;
}

/* ---- lines ---- */

/* Calls `each` for every line of the input, without its line end. */
static int for_lines(struct gen *gen,
                     int (*each)(struct gen *, const char *, size_t, json_t *, struct err *),
                     json_t *rows, struct err *err)
{
    struct buf text = {0};
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
    buf_release(&text);
    return rc;
}

static json_t *piece_json(const struct tokenizer *tok, uint32_t id, struct err *err)
{
    struct buf piece = {0};
    json_t *text = NULL;
    if (tokenizer_piece_printable(tok, id, &piece, err) == 0)
        text = json_stringn(piece.data ? piece.data : "", piece.len);
    buf_release(&piece);
    return text;
}

/* jsonl: an object per line; otherwise rows of id and piece. */
static int tokenize_line(struct gen *gen, const char *line, size_t len, json_t *rows, struct err *err)
{
    struct ids ids = {0};
    json_t *id_list = json_array(), *pieces = json_array();
    const bool jsonl = gen->options->format == TABLE_JSONL;
    int rc = tokenizer_encode(gen->model->tok, line, len, true, &ids, err);
    for (size_t i = 0; rc == 0 && i < ids.len; i++) {
        json_t *piece = piece_json(gen->model->tok, ids.id[i], err);
        if (!piece) {
            rc = err_set(err, "out of memory for pieces");
        } else if (jsonl) {
            rc = json_push(id_list, json_integer(ids.id[i]), err);
            if (json_push(pieces, piece, err) < 0)
                rc = -1;
        } else {
            json_t *row = json_pack("{s:I, s:o}", "id", (json_int_t)ids.id[i], "piece", piece);
            if (row && gen->options->format != TABLE_CSV && gen->options->format != TABLE_JSON)
                rc = show_piece(row, err);
            if (json_push(rows, row, err) < 0)
                rc = -1;
        }
    }
    if (rc == 0 && jsonl) {
        struct buf text = {0};
        json_t *object = json_pack("{s:O, s:O}", "ids", id_list, "pieces", pieces);
        rc = json_write_line(object, &text, err);
        if (rc == 0)
            rc = put(&text, err);
        json_decref(object);
        buf_release(&text);
    }
    json_decref(id_list);
    json_decref(pieces);
    ids_release(&ids);
    return rc;
}

int gen_tokenize(struct gen *gen, struct err *err)
{
    const enum table_format format = (enum table_format)gen->options->format;
    json_t *rows = json_array();
    struct buf text = {0};
    int rc = for_lines(gen, tokenize_line, rows, err);
    if (rc == 0 && format != TABLE_JSONL && (json_array_size(rows) || format == TABLE_JSON))
        rc = table_write(rows, NULL, format, &text, err);
    if (rc == 0)
        rc = put(&text, err);
    buf_release(&text);
    json_decref(rows);
    return rc;
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
        return err_set(err, "out of memory for a line of %zu bytes", len);
    detok_init(&detok, gen->model->tok, false);
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
    rc = put(&text, err);
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
