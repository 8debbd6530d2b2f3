/* Reads vocabularies with scores into tokenizer tables.
 *
 * "vocab" is [[piece, score], ...] in Unigram models of tokenizer.json, the index being the id;
 * with SentencePiece data (spmodel.h) [[piece, score, type], ...], which implies normalizer,
 * decoder and template. */
#include "text/import/tok_build.h"

#include <float.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sodium.h>

#include "base/text_util.h"
#include "text/tokenizer/tok_tables.h"
#include "text/import/tok_components.h"
#include "text/import/tok_writer.h"
#include "text/tokenizer/tok_model.h"
#include "text/utf8.h"

/* SentencePiece's piece types. */
enum tok_piece_type {
    PIECE_NORMAL = 1,
    PIECE_UNKNOWN,
    PIECE_CONTROL,
    PIECE_USER_DEFINED,
    PIECE_UNUSED,
    PIECE_BYTE,
};

struct tok_piece {
    size_t id;
    const char *text;
    size_t len;
    double score;
    enum tok_piece_type type;
};

/* What the pieces of a vocabulary have in all. */
struct summary {
    double least; /* lowest score of a normal piece */
    size_t bytes;
    int64_t unk;
};

/* How far the score of the unknown token is below the lowest score, as in SentencePiece and the
 * tokenizers library. */
static const double unk_penalty = 10;

/* True if the vocabulary has SentencePiece's piece types. Then normalizer, decoder and
 * template are implied, and pieces_add_components() adds them. */
static bool pieces_are_sentencepiece(const json_t *model)
{
    const json_t *type = json_object_get(model, "type");
    const json_t *first = json_array_get(json_object_get(model, "vocab"), 0);
    return (json_is_string(type) && strcmp(json_string_value(type), "SPM") == 0) ||
           json_array_size(first) == 3;
}

static int parse_piece(const struct tok_writer *writer, const json_t *entry, bool typed,
                       struct tok_piece *piece, struct err *err)
{
    const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
    const json_t *type = json_array_get(entry, 2);
    if (json_array_size(entry) != (typed ? 3U : 2U) || !json_is_string(text) ||
        !json_is_number(score) || (typed && !json_is_integer(type)))
        return err_set(err, "%s: token %zu is not %s", writer->where, piece->id,
                       typed ? "a piece, its score and its type" : "a piece and its score");
    json_int_t number = typed ? json_integer_value(type) : PIECE_NORMAL;
    if (number < PIECE_NORMAL || number > PIECE_BYTE)
        return err_set(err, "%s: token %zu has type %lld, expected 1 to 6", writer->where, piece->id,
                       (long long)number);
    piece->text = json_string_value(text);
    piece->len = json_string_length(text);
    piece->score = json_number_value(score);
    piece->type = (enum tok_piece_type)number;
    if (typed && (piece->score < -FLT_MAX || piece->score > FLT_MAX))
        return err_set(err, "%s: the score of token %zu is out of range", writer->where, piece->id);
    piece->score = typed ? (float)piece->score : piece->score;
    return 0;
}

static void summarise(struct summary *summary, const struct tok_piece *piece)
{
    if (piece->type == PIECE_NORMAL && piece->score < summary->least)
        summary->least = piece->score;
    if (piece->type == PIECE_UNKNOWN && summary->unk < 0)
        summary->unk = (int64_t)piece->id;
    summary->bytes += piece->type == PIECE_BYTE;
}

/* The token flags (enum tok_flag) for a type of SentencePiece's pieces. */
static uint8_t flags_of(const struct tok_writer *writer, enum tok_piece_type type)
{
    bool unigram = writer->kind == KIND_UNIGRAM;
    switch (type) {
    case PIECE_NORMAL: return TOK_MODEL;
    case PIECE_USER_DEFINED: return unigram ? TOK_MODEL | TOK_USER : 0;
    case PIECE_UNUSED: return unigram ? 0 : TOK_MODEL | TOK_UNUSED;
    case PIECE_BYTE: return TOK_BYTE;
    default: return TOK_SPECIAL;
    }
}

/* SentencePiece's score for user-defined pieces of Unigram models: high enough to be nearly
 * always chosen. */
static double user_defined_score(size_t len) { return (float)len * 0.1F - 0.1F; }

static int add_piece(struct tok_writer *writer, const struct tok_piece *piece, struct err *err)
{
    int64_t id = (int64_t)piece->id;
    uint8_t flags = flags_of(writer, piece->type);
    double score = flags & TOK_USER ? user_defined_score(piece->len) : piece->score;
    if (tok_writer_set_token(writer, id, piece->text, piece->len, flags, err) < 0 ||
        tok_writer_set_score(writer, piece->id, score, err) < 0)
        return -1;
    writer->flags |= flags & TOK_UNUSED ? TOK_HAS_UNUSED : 0;
    if (flags & TOK_SPECIAL && piece->len)
        return tok_writer_add_added(writer, id, piece->text, piece->len, 0, false, true, err);
    if (piece->type == PIECE_USER_DEFINED && !flags && piece->len)
        return tok_writer_add_user_defined(writer, id, piece->text, piece->len, err);
    return 0;
}

static int read_unk(struct tok_writer *writer, const json_t *model, const struct summary *summary,
                    struct err *err)
{
    const json_t *id = json_object_get(model, "unk_id");
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : summary->unk;
    if (id && !json_is_null(id) && (!json_is_integer(id) || value < 0 || (size_t)value >= writer->ids))
        return err_set(err, "%s: \"unk_id\" is not an id of the %zu tokens", writer->where,
                       writer->ids);
    writer->unk = value < 0 ? TOK_NONE : (uint32_t)value;
    return 0;
}

/* Reads vocabulary and options of a model of kind writer->kind, which the caller has set. */
static int pieces_read(struct tok_writer *writer, const json_t *model, struct err *err)
{
    const json_t *vocab = json_object_get(model, "vocab");
    struct summary summary = {.least = DBL_MAX, .unk = -1};
    bool typed = pieces_are_sentencepiece(model), fallback;
    if (!json_is_array(vocab) || !json_array_size(vocab))
        return err_set(err, "%s: the vocabulary is %s, expected an array of pieces", writer->where,
                       json_is_array(vocab) ? "empty" : json_type_name(vocab));
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        struct tok_piece piece = {.id = i};
        if (parse_piece(writer, json_array_get(vocab, i), typed, &piece, err) < 0 ||
            add_piece(writer, &piece, err) < 0)
            return -1;
        summarise(&summary, &piece);
    }
    if (read_unk(writer, model, &summary, err) < 0 ||
        component_bool(writer, model, "byte_fallback", typed && summary.bytes == 256, &fallback, err) <
            0)
        return -1;
    writer->flags |= (fallback ? TOK_BYTE_FALLBACK : 0U) |
                     (typed && writer->kind == KIND_UNIGRAM ? TOK_F32_SCORES : 0U);
    if (summary.least == DBL_MAX)
        summary.least = 0;
    writer->unk_score = typed ? (float)summary.least - (float)unk_penalty : summary.least - unk_penalty;
    return 0;
}

/* True for tokenizer classes whose add_bos_token, add_eos_token and add_prefix_space in
 * tokenizer_config.json decide. */
static bool pieces_of_llama_class(const json_t *config)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    return class && text_lists("LlamaTokenizer LlamaTokenizerFast CodeLlamaTokenizer "
                               "CodeLlamaTokenizerFast GemmaTokenizer GemmaTokenizerFast",
                               class, strlen(class));
}

static int add_steps(struct tok_writer *writer, const json_t *model, const json_t *config,
                     struct err *err)
{
    static const struct slice mark = {"\xe2\x96\x81", 3}, space = {" ", 1};
    bool prefix, collapse;
    if (component_bool(writer, model, "add_prefix_space", true, &prefix, err) < 0 ||
        (pieces_of_llama_class(config) &&
         component_bool(writer, config, "add_prefix_space", prefix, &prefix, err) < 0) ||
        component_bool(writer, model, "remove_extra_whitespaces", false, &collapse, err) < 0)
        return -1;
    uint32_t options = (prefix ? SENTENCEPIECE_PREFIX : 0U) | (collapse ? SENTENCEPIECE_COLLAPSE : 0U);
    if (tok_writer_add_step(writer, LIST_NORMALIZER, NORMALIZE_SENTENCEPIECE, options, NULL, NULL,
                            err) < 0 ||
        tok_writer_add_step(writer, LIST_DECODER, DECODE_REPLACE, 0, &mark, &space, err) < 0 ||
        (options &&
         tok_writer_add_step(writer, LIST_DECODER, DECODE_STRIP,
                             collapse ? STRIP_UNTIL_TEXT : STRIP_OF_FIRST, &space, NULL, err) < 0))
        return -1;
    return tok_writer_add_step(writer, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL, err);
}

static int add_charsmap(struct tok_writer *writer, const json_t *root, struct err *err)
{
    const json_t *map = json_object_get(root, "charsmap");
    if (!map || json_is_null(map) || (json_is_string(map) && !json_string_length(map)))
        return 0;
    if (!json_is_string(map))
        return err_set(err, "%s: \"charsmap\" is %s, expected a string", writer->where,
                       json_type_name(map));
    return tok_writer_set_charsmap(
        writer, (struct slice){json_string_value(map), json_string_length(map)}, err);
}

/* Defaults of add_bos and add_eos by prefix of tokenizer_class; else BOS only. */
static void default_bos_eos(const json_t *config, bool *start, bool *end)
{
    static const struct {
        const char *class;
        bool start, end;
    } classes[] = {
        {"T5", false, true},      {"MT5", false, true},        {"UMT5", false, true},
        {"Pegasus", false, true}, {"XLMRoberta", true, true},  {"Camembert", true, true},
        {"Albert", true, true},   {"Ernie4_5_", false, false},
    };
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    *start = true;
    *end = false;
    for (size_t i = 0; class && i < ARRAY_LEN(classes); i++)
        if (strncmp(class, classes[i].class, strlen(classes[i].class)) == 0) {
            *start = classes[i].start;
            *end = classes[i].end;
            return;
        }
}

/* Adds BOS or EOS to `ids` if tokenizer.json, tokenizer_config.json, or else `usual`, the default
 * of the tokenizer class, requests it. `names`: keys of its id and of the requests. */
static int add_bos_or_eos(struct tok_writer *writer, const json_t *root, const json_t *config,
                          const char *const names[3], bool usual, struct ids *ids, struct err *err)
{
    const json_t *id = json_object_get(root, names[0]);
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    bool there = value >= 0 && (size_t)value < writer->ids && writer->token[value].flags, wanted;
    if (component_bool(writer, config, names[2], usual && there, &wanted, err) < 0 ||
        component_bool(writer, root, names[1], wanted, &wanted, err) < 0)
        return -1;
    if (wanted && !there)
        return err_set(err, "%s: \"%s\" is %lld, which does not exist, but the token is to be added",
                       writer->where, names[0], (long long)value);
    return wanted ? ids_add(ids, (uint32_t)value, err) : 0;
}

/* Adds the normalizer, decoder and template that SentencePiece implies. `root` is the whole
 * tokenizer.json; `config`, tokenizer_config.json, may be NULL. */
static int pieces_add_components(struct tok_writer *writer, const json_t *root, const json_t *config,
                                 struct err *err)
{
    static const char *const components[] = {"normalizer", "pre_tokenizer", "post_processor",
                                             "decoder"};
    static const char *const bos[] = {"bos_id", "add_bos", "add_bos_token"};
    static const char *const eos[] = {"eos_id", "add_eos", "add_eos_token"};
    bool start, end;
    default_bos_eos(config, &start, &end);
    for (size_t i = 0; i < ARRAY_LEN(components); i++) {
        const json_t *component = json_object_get(root, components[i]);
        if (component && !json_is_null(component))
            return err_set(err, "%s: a %s with SentencePiece's piece types is not supported",
                           writer->where, components[i]);
    }
    if (add_steps(writer, json_object_get(root, "model"), config, err) < 0 ||
        add_charsmap(writer, root, err) < 0)
        return -1;
    if (add_bos_or_eos(writer, root, config, bos, start, &writer->prefix, err) < 0)
        return -1;
    return add_bos_or_eos(writer, root, config, eos, end, &writer->suffix, err);
}

/* Converts Hugging Face tokenizer files to tokenizer tables: vocabularies, merges, added tokens and
 * configuration. Components are parsed in tok_components.c. */

enum {
    MAX_SPLIT = 1024, /* bytes of the spelling of a token whose merges follow from its id */
    BYTE_VALUES = 256,
};

/* State of tokenizer_build(). */
struct build {
    const struct tokenizer_source *source;
    struct tok_writer writer;
    struct buf where;
    json_t *root;        /* tokenizer.json or vocab.json */
    const json_t *vocab; /* BPE: spelling -> id */
    bool sentencepiece;  /* `root` has piece types: a converted SentencePiece model */
    json_t *config;      /* tokenizer_config.json, or NULL */
    json_t *specials;    /* special_tokens_map.json, or NULL */
    json_t *added;       /* added_tokens.json, or NULL */
};

/* The id of the token with this spelling in the BPE vocabulary, or -1. */
static int64_t vocab_id(const struct build *build, const char *spelling, size_t len)
{
    const json_t *id = json_object_getn(build->vocab, spelling, len);
    return id ? json_integer_value(id) : -1;
}

/* The id of the token with this spelling, added tokens included, or -1. Linear search. */
static int64_t find_id(const struct build *build, const char *spelling, size_t len)
{
    int64_t id = vocab_id(build, spelling, len);
    for (size_t i = 0; id < 0 && i < build->writer.ids; i++) {
        const struct tok_writer_token *token = &build->writer.token[i];
        if (token->flags && token->len == len &&
            memcmp(build->writer.spellings.data + token->spelling, spelling, len) == 0)
            id = (int64_t)i;
    }
    return id;
}

/* Reads a BPE vocabulary, {spelling: id, ..}. It is not const since jansson's iterators take no
 * const. */
static int read_vocab(struct build *build, json_t *vocab, struct err *err)
{
    const char *where = build->writer.where;
    if (!json_is_object(vocab))
        return err_set(err, "%s: the vocabulary is %s, expected an object", where,
                       json_type_name(vocab));
    build->vocab = vocab;
    for (void *at = json_object_iter(vocab); at; at = json_object_iter_next(vocab, at)) {
        const char *spelling = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        if (!json_is_integer(id))
            return err_set(err, "%s: the id of token \"%s\" is %s, expected an integer", where,
                           spelling, json_type_name(id));
        if (tok_writer_set_token(&build->writer, json_integer_value(id), spelling,
                                 json_object_iter_key_len(at), TOK_MODEL, err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the BPE merge of two tokens, given by spelling; `scratch` is a buffer for the result. */
static int add_merge(struct build *build, const char *left, size_t left_len, const char *right,
                     size_t right_len, struct buf *scratch, struct err *err)
{
    buf_clear(scratch);
    if (buf_add(scratch, left, left_len, err) < 0 || buf_add(scratch, right, right_len, err) < 0)
        return -1;
    int64_t left_id = vocab_id(build, left, left_len), right_id = vocab_id(build, right, right_len);
    int64_t result = vocab_id(build, scratch->data, scratch->len);
    if (left_id < 0 || right_id < 0 || result < 0)
        return err_set(err, "%s: merge %zu, \"%.*s\" with \"%.*s\": %s not in the vocabulary",
                       build->writer.where, build->writer.merges, (int)size_min(left_len, 60), left,
                       (int)size_min(right_len, 60), right,
                       left_id < 0    ? "the first is"
                       : right_id < 0 ? "the second is"
                                      : "their union is");
    return tok_writer_add_merge(&build->writer, (uint32_t)left_id, (uint32_t)right_id, (uint32_t)result,
                                build->writer.merges, err);
}

/* Adds the merge of a line "left right"; lines that start with "#version" are comments. */
static int add_merge_line(struct build *build, const char *line, size_t len, struct buf *scratch,
                          struct err *err)
{
    const char *space = memchr(line, ' ', len);
    if (len >= 8 && memcmp(line, "#version", 8) == 0)
        return 0;
    size_t left_len = space ? (size_t)(space - line) : len;
    if (!space || memchr(space + 1, ' ', len - left_len - 1))
        return err_set(err,
                       "%s: merge %zu is \"%.*s\", expected two tokens with one space between them",
                       build->writer.where, build->writer.merges, (int)size_min(len, 60), line);
    return add_merge(build, line, left_len, space + 1, len - left_len - 1, scratch, err);
}

static int read_merges(struct build *build, const json_t *merges, struct err *err)
{
    struct buf scratch = {0};
    int rc = 0;
    if (!json_is_array(merges))
        return err_set(err, "%s: \"merges\" is %s, expected an array", build->writer.where,
                       json_type_name(merges));
    for (size_t i = 0; i < json_array_size(merges) && rc == 0; i++) {
        const json_t *merge = json_array_get(merges, i);
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            rc = add_merge_line(build, json_string_value(merge), json_string_length(merge), &scratch,
                                err);
        else if (json_is_string(left) && json_is_string(right) && json_array_size(merge) == 2)
            rc = add_merge(build, json_string_value(left), json_string_length(left),
                           json_string_value(right), json_string_length(right), &scratch, err);
        else
            rc = err_set(err, "%s: merge %zu is neither a string nor a pair of strings",
                         build->writer.where, i);
    }
    buf_release(&scratch);
    return rc;
}

/* Adds the merges of tiktoken: of all pairs whose union is a token, in order of its id. */
static int add_merges_by_id(struct build *build, struct err *err)
{
    const struct tok_writer *writer = &build->writer;
    for (size_t id = 0; id < writer->ids; id++) {
        const char *spelling = writer->spellings.data + writer->token[id].spelling;
        const size_t len = writer->token[id].flags & TOK_MODEL ? writer->token[id].len : 0;
        if (len > MAX_SPLIT)
            return err_set(err, "%s: token %zu is longer than %d bytes", writer->where, id,
                           (int)MAX_SPLIT);
        for (size_t at = 0; at < len; at += (size_t)utf8_step(spelling + at, len - at)) {
            const int64_t left = vocab_id(build, spelling, at);
            const int64_t right = vocab_id(build, spelling + at, len - at);
            if (at > 0 && left >= 0 && right >= 0 &&
                tok_writer_add_merge(&build->writer, (uint32_t)left, (uint32_t)right, (uint32_t)id, id,
                                     err) < 0)
                return -1;
        }
    }
    return 0;
}

static int read_merges_txt(struct build *build, const struct slice *file, struct err *err)
{
    struct buf scratch = {0};
    int rc = 0;
    for (size_t at = 0; at < file->size && rc == 0;) {
        const char *line = file->data + at;
        const char *newline = memchr(line, '\n', file->size - at);
        size_t len = newline ? (size_t)(newline - line) : file->size - at;
        at += len + 1;
        len -= len > 0 && line[len - 1] == '\r';
        if (len > 0)
            rc = add_merge_line(build, line, len, &scratch, err);
    }
    buf_release(&scratch);
    return rc;
}

/* Reads an added token of tokenizer.json or tokenizer_config.json. */
static int read_added(struct build *build, const json_t *json, int64_t id, bool special_default,
                      struct err *err)
{
    const struct tok_writer *writer = &build->writer;
    const json_t *content = json_object_get(json, "content");
    bool single_word, lstrip, rstrip, normalized, special;
    if (!json_is_string(content))
        return err_set(err, "%s: \"content\" of an added token is %s, expected a string", writer->where,
                       json_type_name(content));
    if (component_bool(writer, json, "single_word", false, &single_word, err) < 0 ||
        component_bool(writer, json, "lstrip", false, &lstrip, err) < 0 ||
        component_bool(writer, json, "rstrip", false, &rstrip, err) < 0 ||
        component_bool(writer, json, "special", special_default, &special, err) < 0 ||
        component_bool(writer, json, "normalized", !special, &normalized, err) < 0)
        return -1;
    const char *spelling = json_string_value(content);
    size_t len = json_string_length(content);
    if (len == 0)
        return 0;
    int64_t there = vocab_id(build, spelling, len);
    if (there >= 0 && id >= 0 && there != id)
        return err_set(err, "%s: added token \"%s\" has id %lld, but %lld in the vocabulary",
                       writer->where, spelling, (long long)id, (long long)there);
    return tok_writer_add_added(&build->writer, id >= 0 ? id : there, spelling, len,
                                (single_word ? TOK_SINGLE_WORD : 0U) | (lstrip ? TOK_LSTRIP : 0U) |
                                    (rstrip ? TOK_RSTRIP : 0U),
                                normalized && !build->sentencepiece, special, err);
}

static int read_added_tokens(struct build *build, const json_t *list, struct err *err)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *token = json_array_get(list, i), *id = json_object_get(token, "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return err_set(err, "%s: added token %zu has no id", build->writer.where, i);
        if (read_added(build, token, json_integer_value(id), false, err) < 0)
            return -1;
    }
    return 0;
}

/* --- the model and the configuration --- */

static int check_bpe(const struct build *build, const json_t *model, struct err *err)
{
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const char *where = build->writer.where;
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        return err_set(err, "%s: model BPE with \"dropout\" is not supported", where);
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        const json_t *value = json_object_get(model, empty[i]);
        if (value && !json_is_null(value) && json_string_length(value) != 0)
            return err_set(err, "%s: model BPE with \"%s\" is not supported", where, empty[i]);
    }
    return 0;
}

/* Adds a token given by its bytes in base64 to `vocab`, spelled in the byte alphabet. */
static int decode_token(const char *base64, size_t len, json_t *id, json_t *vocab, size_t *single_bytes,
                        struct err *err)
{
    unsigned char bytes[MAX_SPLIT];
    char spelling[2 * MAX_SPLIT];
    size_t count, spelled = 0;
    if (sodium_base642bin(bytes, sizeof bytes, base64, len, NULL, &count, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0 ||
        count == 0)
        return err_set(err, "token \"%s\" is not the base64 of at most %d bytes",
                       excerpt_of(base64, len).text, (int)MAX_SPLIT);
    for (size_t i = 0; i < count; i++)
        spelled += utf8_write(byte_alphabet_letter(bytes[i]), spelling + spelled);
    *single_bytes += count == 1;
    if (json_object_setn_new(vocab, spelling, spelled, json_copy(id)) < 0)
        return err_no_memory(err, "a vocabulary");
    return 0;
}

/* Reads a vocabulary of bytes in base64, {"AA==": 0, ..}, which must have a token for each byte. */
static int read_base64(struct build *build, json_t *model, struct err *err)
{
    json_t *encoded = json_object_get(model, "vocab_base64"), *vocab = json_object();
    size_t single_bytes = 0;
    if (json_put(model, "vocab", vocab, err) < 0)
        return -1;
    for (void *at = json_object_iter(encoded); at; at = json_object_iter_next(encoded, at))
        if (decode_token(json_object_iter_key(at), json_object_iter_key_len(at),
                         json_object_iter_value(at), vocab, &single_bytes, err) < 0)
            return err_prefix(err, "%s", build->writer.where);
    return single_bytes >= BYTE_VALUES ? 0
                                       : err_set(err, "%s: has tokens for %zu of %d bytes",
                                                 build->writer.where, single_bytes, (int)BYTE_VALUES);
}

static int read_bpe(struct build *build, json_t *model, struct err *err)
{
    bool by_id;
    static const struct {
        const char *key;
        uint32_t flag;
    } options[] = {
        {"fuse_unk", TOK_FUSE_UNK},
        {"byte_fallback", TOK_BYTE_FALLBACK},
        {"ignore_merges", TOK_IGNORE_MERGES},
    };
    if (check_bpe(build, model, err) < 0 ||
        (json_object_get(model, "vocab_base64") && read_base64(build, model, err) < 0) ||
        read_vocab(build, json_object_get(model, "vocab"), err) < 0 ||
        component_bool(&build->writer, model, "merges_by_id", false, &by_id, err) < 0)
        return -1;
    if (by_id ? add_merges_by_id(build, err) < 0
              : read_merges(build, json_object_get(model, "merges"), err) < 0)
        return -1;
    for (size_t i = 0; i < ARRAY_LEN(options); i++) {
        bool set;
        if (component_bool(&build->writer, model, options[i].key, false, &set, err) < 0)
            return -1;
        build->writer.flags |= set ? options[i].flag : 0;
    }
    const json_t *unk = json_object_get(model, "unk_token");
    if (json_is_string(unk)) {
        int64_t id = vocab_id(build, json_string_value(unk), json_string_length(unk));
        build->writer.unk = id < 0 ? TOK_NONE : (uint32_t)id;
        build->writer.flags |= id < 0 ? TOK_UNK_MISSING : 0;
    }
    return 0;
}

static int read_pieces(struct build *build, json_t *model, struct err *err)
{
    build->sentencepiece = pieces_are_sentencepiece(model);
    return pieces_read(&build->writer, model, err);
}

/* The "type" of a model; old files without it are recognised by their members. */
static const char *type_of_model(const json_t *model)
{
    const json_t *type = json_object_get(model, "type");
    if (json_is_string(type))
        return json_string_value(type);
    return json_object_get(model, "merges")                 ? "BPE"
           : json_is_array(json_object_get(model, "vocab")) ? "Unigram"
                                                            : NULL;
}

static int read_model(struct build *build, json_t *model, struct err *err)
{
    static int (*const readers[KIND_COUNT])(struct build *, json_t *, struct err *) = {
        [KIND_BPE] = read_bpe,
        [KIND_SPM] = read_pieces,
        [KIND_UNIGRAM] = read_pieces,
    };
    const char *where = build->writer.where, *type = type_of_model(model);
    if (!json_is_object(model))
        return err_set(err, "%s: \"model\" is %s, expected an object", where, json_type_name(model));
    if (!type)
        return err_set(err, "%s: the model has neither a \"type\" nor \"merges\"", where);
    for (size_t kind = 0; kind < KIND_COUNT; kind++)
        if (strcmp(tok_models[kind].name, type) == 0) {
            build->writer.kind = (enum tok_kind)kind;
            return readers[kind](build, model, err);
        }
    return err_set(err, "%s: model \"%s\" is not supported; supported are BPE, Unigram and SPM", where,
                   type);
}

/* The spelling of a token in a configuration: a string, or the "content" of an object. */
static const json_t *token_content(const json_t *value)
{
    return json_is_object(value) ? json_object_get(value, "content") : value;
}

/* Appends the id of the token that a configuration names under `key` ("bos_token"). */
static int add_named_token(struct build *build, const char *key, struct ids *ids, struct err *err)
{
    const json_t *name = token_content(json_object_get(build->config, key));
    if (!json_is_string(name))
        name = token_content(json_object_get(build->specials, key));
    if (!json_is_string(name))
        return err_set(err, "%s/tokenizer_config.json: a \"%s\" is to be added, but there is none",
                       build->source->folder, key);
    int64_t id = find_id(build, json_string_value(name), json_string_length(name));
    if (id < 0)
        return err_set(err,
                       "%s/tokenizer_config.json: \"%s\" is \"%s\", which is not in the vocabulary",
                       build->source->folder, key, json_string_value(name));
    return ids_add(ids, (uint32_t)id, err);
}

static int apply_config(struct build *build, bool has_template, struct err *err)
{
    struct tok_writer *writer = &build->writer;
    const json_t *config = build->config;
    bool given = json_object_get(config, "add_bos_token") || json_object_get(config, "add_eos_token");
    bool decides = given && pieces_of_llama_class(config);
    bool add_bos, add_eos;
    if (component_bool(writer, config, "add_bos_token", decides, &add_bos, err) < 0 ||
        component_bool(writer, config, "add_eos_token", false, &add_eos, err) < 0)
        return -1;
    if (decides)
        writer->prefix.len = writer->suffix.len = 0;
    else if (has_template)
        return 0;
    if (add_bos && add_named_token(build, "bos_token", &writer->prefix, err) < 0)
        return -1;
    return decides && add_eos ? add_named_token(build, "eos_token", &writer->suffix, err) : 0;
}

/* --- vocab.json and merges.txt --- */

/* Adds a special token of a configuration; a new one gets the next free id, if the embedding has
 * a row for it. */
static int add_special(struct build *build, const json_t *value, struct err *err)
{
    const json_t *content = token_content(value);
    if (!json_is_string(content) || !json_string_length(content))
        return 0;
    int64_t id = find_id(build, json_string_value(content), json_string_length(content));
    if (id < 0)
        id = (int64_t)build->writer.ids;
    if ((uint64_t)id >= build->writer.vocab_rows)
        return 0;
    if (json_is_object(value))
        return read_added(build, value, id, true, err);
    return tok_writer_add_added(&build->writer, id, json_string_value(content),
                                json_string_length(content), 0, false, true, err);
}

static const char *const special_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};

static int add_specials(struct build *build, const json_t *map, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(special_keys); i++)
        if (add_special(build, json_object_get(map, special_keys[i]), err) < 0)
            return -1;
    const json_t *more = json_object_get(map, "additional_special_tokens");
    for (size_t i = 0; i < json_array_size(more); i++)
        if (add_special(build, json_array_get(more, i), err) < 0)
            return -1;
    return 0;
}

/* True if a configuration names this token as one of its special tokens. */
static bool names_special(const json_t *map, const char *text)
{
    const char *key;
    const json_t *value, *name;
    size_t i;
    for (size_t k = 0; k < ARRAY_LEN(special_keys); k++) {
        key = json_string_value(token_content(json_object_get(map, special_keys[k])));
        if (key && strcmp(key, text) == 0)
            return true;
    }
    value = json_object_get(map, "additional_special_tokens");
    json_array_foreach(value, i, name)
    {
        key = json_string_value(token_content(name));
        if (key && strcmp(key, text) == 0)
            return true;
    }
    return false;
}

/* Reads added_tokens.json, {"<|im_end|>": 32000, ..}, of folders without added_tokens_decoder. */
static int read_added_file(struct build *build, struct err *err)
{
    for (void *at = json_object_iter(build->added); at; at = json_object_iter_next(build->added, at)) {
        const char *text = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        const bool special = names_special(build->config, text) || names_special(build->specials, text);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            return err_set(err,
                           "%s/added_tokens.json: the id of token \"%s\" is %s, expected an integer",
                           build->source->folder, text, json_type_name(id));
        if (*text && tok_writer_add_added(&build->writer, json_integer_value(id), text,
                                          json_object_iter_key_len(at), 0,
                                          !special && !build->sentencepiece, special, err) < 0)
            return -1;
    }
    return 0;
}

/* Reads the added tokens of "added_tokens_decoder": {"50257": {"content": ...}, ...}. */
static int read_added_decoder(struct build *build, struct err *err)
{
    json_t *map = json_object_get(build->config, "added_tokens_decoder");
    if (!map)
        return read_added_file(build, err);
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        char *end;
        const char *key = json_object_iter_key(at);
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || id < 0)
            return err_set(err, "%s/tokenizer_config.json: added token \"%s\" has no number as its id",
                           build->source->folder, key);
        if (read_added(build, json_object_iter_value(at), id, false, err) < 0)
            return -1;
    }
    return 0;
}

static int check_class(const struct build *build, struct err *err)
{
    const char *class = json_string_value(json_object_get(build->config, "tokenizer_class"));
    if (!class || text_lists("GPT2Tokenizer GPT2TokenizerFast CodeGenTokenizer CodeGenTokenizerFast",
                             class, strlen(class)))
        return 0;
    return err_set(err,
                   "%s/tokenizer_config.json: tokenizer_class \"%s\" without a tokenizer.json is not "
                   "supported; supported are GPT2Tokenizer, CodeGenTokenizer",
                   build->source->folder, class);
}

static int build_from_vocab_json(struct build *build, struct err *err)
{
    bool add_prefix_space;
    if (check_class(build, err) < 0 || read_vocab(build, build->root, err) < 0 ||
        read_merges_txt(build, &build->source->merges_txt, err) < 0 ||
        read_added_decoder(build, err) < 0 || add_specials(build, build->specials, err) < 0 ||
        add_specials(build, build->config, err) < 0)
        return -1;
    if (component_bool(&build->writer, build->config, "add_prefix_space", false, &add_prefix_space,
                       err) < 0 ||
        component_add_byte_level(&build->writer, add_prefix_space, err) < 0)
        return -1;
    return apply_config(build, false, err);
}

static int build_from_sentencepiece(struct build *build, struct err *err)
{
    if (read_added_tokens(build, json_object_get(build->root, "added_tokens"), err) < 0 ||
        read_added_decoder(build, err) < 0)
        return -1;
    return pieces_add_components(&build->writer, build->root, build->config, err);
}

static int build_from_tokenizer_json(struct build *build, struct err *err)
{
    struct tok_writer *writer = &build->writer;
    bool has_template = false;
    if (read_model(build, json_object_get(build->root, "model"), err) < 0)
        return -1;
    if (build->sentencepiece)
        return build_from_sentencepiece(build, err);
    if (read_added_tokens(build, json_object_get(build->root, "added_tokens"), err) < 0 ||
        tok_components_parse(writer, build->root, &has_template, err) < 0 ||
        apply_config(build, has_template, err) < 0)
        return -1;
    if (writer->kind != KIND_BPE && writer->flags & TOK_BYTE_LEVEL)
        return err_set(err, "%s: model Unigram with \"ByteLevel\" is not supported", writer->where);
    return writer->steps[LIST_NORMALIZER] ? tok_writer_normalize_added(writer, err) : 0;
}

static int parse_optional(struct build *build, const struct slice *file, const char *name,
                          json_t **root, struct err *err)
{
    struct buf where = {0};
    if (!file->data)
        return 0;
    int rc = buf_addf(&where, err, "%s/%s", build->source->folder, name);
    if (rc == 0)
        rc = json_parse(file->data, file->size, where.data, root, err);
    buf_release(&where);
    return rc;
}

/* Sets the file name for errors: source->name, or `usual` in the folder. */
static int name_text(struct build *build, const char *usual, struct err *err)
{
    const struct tokenizer_source *source = build->source;
    const int rc = source->name ? buf_addf(&build->where, err, "%s", source->name)
                                : buf_addf(&build->where, err, "%s/%s", source->folder, usual);
    build->writer.where = build->where.data;
    return rc;
}

int tokenizer_build(const struct tokenizer_source *source, struct buf *blob, struct err *err)
{
    struct build build = {.source = source,
                          .writer = {.vocab_rows = source->vocab_rows, .unk = TOK_NONE}};
    bool whole = source->tokenizer_json.data != NULL;
    const struct slice *file = whole ? &source->tokenizer_json : &source->vocab_json;
    int rc = -1;
    if (!whole && (!source->vocab_json.data || !source->merges_txt.data)) {
        err_set(err, "%s: there is neither a tokenizer.json nor a vocab.json with a merges.txt",
                source->folder);
        goto out;
    }
    if (name_text(&build, whole ? "tokenizer.json" : "vocab.json", err) < 0)
        goto out;
    if (json_parse(file->data, file->size, build.where.data, &build.root, err) < 0 ||
        parse_optional(&build, &source->tokenizer_config_json, "tokenizer_config.json", &build.config,
                       err) < 0 ||
        parse_optional(&build, &source->added_tokens_json, "added_tokens.json", &build.added, err) <
            0 ||
        parse_optional(&build, &source->special_tokens_map_json, "special_tokens_map.json",
                       &build.specials, err) < 0)
        goto out;
    rc = whole ? build_from_tokenizer_json(&build, err) : build_from_vocab_json(&build, err);
    if (source->no_bos)
        build.writer.prefix.len = 0;
    if (rc == 0)
        rc = tok_writer_write(&build.writer, blob, err);
out:
    tok_writer_release(&build.writer);
    buf_release(&build.where);
    json_decref(build.root);
    json_decref(build.config);
    json_decref(build.specials);
    json_decref(build.added);
    return rc;
}

int tokenizer_build_bytes(size_t vocab_rows, struct buf *blob, struct err *err)
{
    struct tok_writer writer = {.where = "stand-in tokenizer",
                                .vocab_rows = vocab_rows,
                                .flags = TOK_BYTE_LEVEL,
                                .unk = TOK_NONE};
    int rc = -1;
    if (vocab_rows < 256) {
        err_set(err, "a stand-in tokenizer needs 256 rows of the embedding, one per byte, not %zu",
                vocab_rows);
        goto out;
    }
    for (size_t id = 0; id < vocab_rows; id++) {
        char name[40];
        bool is_byte = id < 256;
        int len = is_byte ? (int)utf8_write(byte_alphabet_letter((unsigned char)id), name)
                          : snprintf(name, sizeof name, "<synth-%zu>", id);
        if (tok_writer_set_token(&writer, (int64_t)id, name, (size_t)len, is_byte ? TOK_MODEL : 0,
                                 err) < 0)
            goto out;
    }
    rc = tok_writer_write(&writer, blob, err);
out:
    tok_writer_release(&writer);
    return rc;
}
