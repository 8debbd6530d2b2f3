/* Reads vocabularies with scores into tokenizer tables.
 *
 * "vocab" is [[piece, score], ...] in Unigram models of tokenizer.json, the index being the id;
 * with SentencePiece data (spmodel.h) [[piece, score, type], ...], which implies normalizer,
 * decoder and template. */
#include "text/import/tok_pieces.h"

#include <float.h>
#include <string.h>

#include "base/text_util.h"
#include "text/import/tok_added.h"
#include "text/import/tok_components.h"

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

bool pieces_are_sentencepiece(const json_t *model)
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

int pieces_read(struct tok_writer *writer, const json_t *model, struct err *err)
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

bool pieces_of_llama_class(const json_t *config)
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

int pieces_add_components(struct tok_writer *writer, const json_t *root, const json_t *config,
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
