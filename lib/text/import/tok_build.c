/* Reads vocabularies with scores into tokenizer tables.
 *
 * "vocab" is [[piece, score], ...] in Unigram models of tokenizer.json, the index being the id;
 * with SentencePiece data (spmodel.h) [[piece, score, type], ...], which implies normalizer,
 * decoder and template. */
#include "text/import/tok_build.h"

#include <float.h>

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

static void parse_piece(struct tok_writer *w, const json_t *entry, bool typed, struct tok_piece *piece)
{
    const json_t *text = json_array_get(entry, 0), *score = json_array_get(entry, 1);
    const json_t *type = json_array_get(entry, 2);
    if (json_array_size(entry) != (typed ? 3U : 2U) || !json_is_string(text) ||
        !json_is_number(score) || (typed && !json_is_integer(type))) {
        tok_writer_fail(w, "%s: token %zu is not %s", w->where, piece->id,
                        typed ? "a piece, its score and its type" : "a piece and its score");
        return;
    }
    json_int_t number = typed ? json_integer_value(type) : PIECE_NORMAL;
    if (number < PIECE_NORMAL || number > PIECE_BYTE)
        tok_writer_fail(w, "%s: token %zu has type %lld, expected 1 to 6", w->where, piece->id,
                        (long long)number);
    piece->text = json_string_value(text);
    piece->len = json_string_length(text);
    piece->score = json_number_value(score);
    piece->type = (enum tok_piece_type)number;
    if (typed && (piece->score < -FLT_MAX || piece->score > FLT_MAX))
        tok_writer_fail(w, "%s: the score of token %zu is out of range", w->where, piece->id);
    piece->score = typed ? (float)piece->score : piece->score;
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

static void add_piece(struct tok_writer *w, const struct tok_piece *piece)
{
    int64_t id = (int64_t)piece->id;
    uint8_t flags = flags_of(w, piece->type);
    double score = flags & TOK_USER ? user_defined_score(piece->len) : piece->score;
    tok_writer_set_token(w, id, piece->text, piece->len, flags);
    tok_writer_set_score(w, piece->id, score);
    w->flags |= flags & TOK_UNUSED ? TOK_HAS_UNUSED : 0;
    if (flags & TOK_SPECIAL && piece->len)
        tok_writer_add_added(w, id, piece->text, piece->len, 0, false, true);
    else if (piece->type == PIECE_USER_DEFINED && !flags && piece->len)
        tok_writer_add_user_defined(w, id, piece->text, piece->len);
}

static void read_unk(struct tok_writer *w, const json_t *model, const struct summary *summary)
{
    const json_t *id = json_object_get(model, "unk_id");
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : summary->unk;
    if (id && !json_is_null(id) && (!json_is_integer(id) || value < 0 || (size_t)value >= w->ids))
        tok_writer_fail(w, "%s: \"unk_id\" is not an id of the %zu tokens", w->where, w->ids);
    w->unk = value < 0 ? TOK_NONE : (uint32_t)value;
}

/* Reads vocabulary and options of a model of kind writer->kind, which the caller has set. */
static void pieces_read(struct tok_writer *w, const json_t *model)
{
    const json_t *vocab = json_object_get(model, "vocab");
    struct summary summary = {.least = DBL_MAX, .unk = -1};
    const bool typed = pieces_are_sentencepiece(model);
    if (!json_is_array(vocab) || !json_array_size(vocab))
        tok_writer_fail(w, "%s: the vocabulary is %s, expected an array of pieces", w->where,
                        json_is_array(vocab) ? "empty" : json_type_name(vocab));
    for (size_t i = 0; i < json_array_size(vocab); i++) {
        struct tok_piece piece = {.id = i};
        parse_piece(w, json_array_get(vocab, i), typed, &piece);
        if (w->failed)
            return;
        add_piece(w, &piece);
        summarise(&summary, &piece);
    }
    read_unk(w, model, &summary);
    w->flags |= component_bool(w, model, "byte_fallback", typed && summary.bytes == 256)
                    ? TOK_BYTE_FALLBACK
                    : 0U;
    w->flags |= typed && w->kind == KIND_UNIGRAM ? TOK_F32_SCORES : 0U;
    if (summary.least == DBL_MAX)
        summary.least = 0;
    w->unk_score = typed ? (float)summary.least - (float)unk_penalty : summary.least - unk_penalty;
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

static void add_steps(struct tok_writer *w, const json_t *model, const json_t *config)
{
    static const struct slice mark = {"\xe2\x96\x81", 3}, space = {" ", 1};
    bool prefix = component_bool(w, model, "add_prefix_space", true);
    if (pieces_of_llama_class(config))
        prefix = component_bool(w, config, "add_prefix_space", prefix);
    const bool collapse = component_bool(w, model, "remove_extra_whitespaces", false);
    uint32_t options = (prefix ? SENTENCEPIECE_PREFIX : 0U) | (collapse ? SENTENCEPIECE_COLLAPSE : 0U);
    tok_writer_add_step(w, LIST_NORMALIZER, NORMALIZE_SENTENCEPIECE, options, NULL, NULL);
    tok_writer_add_step(w, LIST_DECODER, DECODE_REPLACE, 0, &mark, &space);
    if (options)
        tok_writer_add_step(w, LIST_DECODER, DECODE_STRIP, collapse ? STRIP_UNTIL_TEXT : STRIP_OF_FIRST,
                            &space, NULL);
    tok_writer_add_step(w, LIST_DECODER, DECODE_BYTES, 0, NULL, NULL);
}

static void add_charsmap(struct tok_writer *w, const json_t *root)
{
    const json_t *map = json_object_get(root, "charsmap");
    if (!map || json_is_null(map) || (json_is_string(map) && !json_string_length(map)))
        return;
    if (json_is_string(map))
        tok_writer_set_charsmap(w, (struct slice){json_string_value(map), json_string_length(map)});
    else
        tok_writer_fail(w, "%s: \"charsmap\" is %s, expected a string", w->where, json_type_name(map));
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
static void add_bos_or_eos(struct tok_writer *w, const json_t *root, const json_t *config,
                           const char *const names[3], bool usual, struct ids *ids)
{
    const json_t *id = json_object_get(root, names[0]);
    json_int_t value = json_is_integer(id) ? json_integer_value(id) : -1;
    bool there = value >= 0 && (size_t)value < w->ids && w->token[value].flags;
    bool wanted = component_bool(w, config, names[2], usual && there);
    wanted = component_bool(w, root, names[1], wanted);
    if (wanted && !there)
        tok_writer_fail(w, "%s: \"%s\" is %lld, which does not exist, but the token is to be added",
                        w->where, names[0], (long long)value);
    if (wanted)
        TOK_TRY(w, ids_add(ids, (uint32_t)value, w->err));
}

/* Adds the normalizer, decoder and template that SentencePiece implies. `root` is the whole
 * tokenizer.json; `config`, tokenizer_config.json, may be NULL. */
static void pieces_add_components(struct tok_writer *w, const json_t *root, const json_t *config)
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
            tok_writer_fail(w, "%s: a %s with SentencePiece's piece types is not supported", w->where,
                            components[i]);
    }
    add_steps(w, json_object_get(root, "model"), config);
    add_charsmap(w, root);
    add_bos_or_eos(w, root, config, bos, start, &w->prefix);
    add_bos_or_eos(w, root, config, eos, end, &w->suffix);
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
static void read_vocab(struct build *build, json_t *vocab)
{
    struct tok_writer *w = &build->writer;
    if (!json_is_object(vocab))
        tok_writer_fail(w, "%s: the vocabulary is %s, expected an object", w->where,
                        json_type_name(vocab));
    build->vocab = vocab;
    for (void *at = json_object_iter(vocab); at && !w->failed; at = json_object_iter_next(vocab, at)) {
        const char *spelling = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        if (!json_is_integer(id))
            tok_writer_fail(w, "%s: the id of token \"%s\" is %s, expected an integer", w->where,
                            spelling, json_type_name(id));
        else
            tok_writer_set_token(w, json_integer_value(id), spelling, json_object_iter_key_len(at),
                                 TOK_MODEL);
    }
}

/* Adds the BPE merge of two tokens, given by spelling; `scratch` is a buffer for the result. */
static void add_merge(struct build *build, struct slice left, struct slice right, struct buf *scratch)
{
    struct tok_writer *w = &build->writer;
    buf_clear(scratch);
    TOK_TRY(w, buf_add(scratch, left.data, left.size, w->err));
    if (TOK_TRY(w, buf_add(scratch, right.data, right.size, w->err)))
        return;
    int64_t left_id = vocab_id(build, left.data, left.size),
            right_id = vocab_id(build, right.data, right.size);
    int64_t result = vocab_id(build, scratch->data, scratch->len);
    if (left_id < 0 || right_id < 0 || result < 0)
        tok_writer_fail(w, "%s: merge %zu, \"%.*s\" with \"%.*s\": %s not in the vocabulary", w->where,
                        w->merges, (int)size_min(left.size, 60), left.data,
                        (int)size_min(right.size, 60), right.data,
                        left_id < 0    ? "the first is"
                        : right_id < 0 ? "the second is"
                                       : "their union is");
    tok_writer_add_merge(w, (uint32_t)left_id, (uint32_t)right_id, (uint32_t)result, w->merges);
}

/* Adds the merge of a line "left right"; lines that start with "#version" are comments. */
static void add_merge_line(struct build *build, const char *line, size_t len, struct buf *scratch)
{
    struct tok_writer *w = &build->writer;
    const char *space = memchr(line, ' ', len);
    if (len >= 8 && memcmp(line, "#version", 8) == 0)
        return;
    size_t left_len = space ? (size_t)(space - line) : len;
    if (!space || memchr(space + 1, ' ', len - left_len - 1))
        tok_writer_fail(w, "%s: merge %zu is \"%.*s\", expected two tokens with one space between them",
                        w->where, w->merges, (int)size_min(len, 60), line);
    else
        add_merge(build, (struct slice){line, left_len}, (struct slice){space + 1, len - left_len - 1},
                  scratch);
}

static struct slice string_slice(const json_t *string)
{
    return (struct slice){json_string_value(string), json_string_length(string)};
}

static void read_merges(struct build *build, const json_t *merges)
{
    struct tok_writer *w = &build->writer;
    AUTO(buf_release) struct buf scratch = {0};
    if (!json_is_array(merges))
        tok_writer_fail(w, "%s: \"merges\" is %s, expected an array", w->where, json_type_name(merges));
    for (size_t i = 0; i < json_array_size(merges) && !w->failed; i++) {
        const json_t *merge = json_array_get(merges, i);
        const json_t *left = json_array_get(merge, 0), *right = json_array_get(merge, 1);
        if (json_is_string(merge))
            add_merge_line(build, json_string_value(merge), json_string_length(merge), &scratch);
        else if (json_is_string(left) && json_is_string(right) && json_array_size(merge) == 2)
            add_merge(build, string_slice(left), string_slice(right), &scratch);
        else
            tok_writer_fail(w, "%s: merge %zu is neither a string nor a pair of strings", w->where, i);
    }
}

/* Adds the merges of tiktoken: of all pairs whose union is a token, in order of its id. */
static void add_merges_by_id(struct build *build)
{
    struct tok_writer *w = &build->writer;
    for (size_t id = 0; id < w->ids && !w->failed; id++) {
        const char *spelling = w->spellings.data + w->token[id].spelling;
        const size_t len = w->token[id].flags & TOK_MODEL ? w->token[id].len : 0;
        if (len > MAX_SPLIT) {
            tok_writer_fail(w, "%s: token %zu is longer than %d bytes", w->where, id, (int)MAX_SPLIT);
            return;
        }
        for (size_t at = 0; at < len; at += (size_t)utf8_step(spelling + at, len - at)) {
            const int64_t left = vocab_id(build, spelling, at);
            const int64_t right = vocab_id(build, spelling + at, len - at);
            if (at > 0 && left >= 0 && right >= 0)
                tok_writer_add_merge(w, (uint32_t)left, (uint32_t)right, (uint32_t)id, id);
        }
    }
}

static void read_merges_txt(struct build *build, const struct slice *file)
{
    AUTO(buf_release) struct buf scratch = {0};
    for (size_t at = 0; at < file->size && !build->writer.failed;) {
        const char *line = file->data + at;
        const char *newline = memchr(line, '\n', file->size - at);
        size_t len = newline ? (size_t)(newline - line) : file->size - at;
        at += len + 1;
        len -= len > 0 && line[len - 1] == '\r';
        if (len > 0)
            add_merge_line(build, line, len, &scratch);
    }
}

/* Reads an added token of tokenizer.json or tokenizer_config.json. */
static void read_added(struct build *build, const json_t *json, int64_t id, bool special_default)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } options[] = {{"single_word", TOK_SINGLE_WORD}, {"lstrip", TOK_LSTRIP}, {"rstrip", TOK_RSTRIP}};
    struct tok_writer *w = &build->writer;
    const json_t *content = json_object_get(json, "content");
    uint32_t flags = 0;
    if (!json_is_string(content)) {
        tok_writer_fail(w, "%s: \"content\" of an added token is %s, expected a string", w->where,
                        json_type_name(content));
        return;
    }
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        flags |= component_bool(w, json, options[i].key, false) ? options[i].flag : 0;
    const bool special = component_bool(w, json, "special", special_default),
               normalized = component_bool(w, json, "normalized", !special);
    const char *spelling = json_string_value(content);
    size_t len = json_string_length(content);
    if (len == 0)
        return;
    int64_t there = vocab_id(build, spelling, len);
    if (there >= 0 && id >= 0 && there != id)
        tok_writer_fail(w, "%s: added token \"%s\" has id %lld, but %lld in the vocabulary", w->where,
                        spelling, (long long)id, (long long)there);
    tok_writer_add_added(w, id >= 0 ? id : there, spelling, len, flags,
                         normalized && !build->sentencepiece, special);
}

static void read_added_tokens(struct build *build, const json_t *list)
{
    struct tok_writer *w = &build->writer;
    for (size_t i = 0; i < json_array_size(list) && !w->failed; i++) {
        const json_t *token = json_array_get(list, i), *id = json_object_get(token, "id");
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            tok_writer_fail(w, "%s: added token %zu has no id", w->where, i);
        else
            read_added(build, token, json_integer_value(id), false);
    }
}

/* --- the model and the configuration --- */

static void check_bpe(struct tok_writer *w, const json_t *model)
{
    static const char *const empty[] = {"continuing_subword_prefix", "end_of_word_suffix"};
    const json_t *dropout = json_object_get(model, "dropout");
    if (dropout && !json_is_null(dropout) && json_number_value(dropout) != 0)
        tok_writer_fail(w, "%s: model BPE with \"dropout\" is not supported", w->where);
    for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
        const json_t *value = json_object_get(model, empty[i]);
        if (value && !json_is_null(value) && json_string_length(value) != 0)
            tok_writer_fail(w, "%s: model BPE with \"%s\" is not supported", w->where, empty[i]);
    }
}

/* Adds a token given by its bytes in base64 to `vocab`, spelled in the byte alphabet. */
static void decode_token(struct tok_writer *w, const char *base64, size_t len, json_t *id,
                         json_t *vocab, size_t *single_bytes)
{
    unsigned char bytes[MAX_SPLIT];
    char spelling[2 * MAX_SPLIT];
    size_t count, spelled = 0;
    if (sodium_base642bin(bytes, sizeof bytes, base64, len, NULL, &count, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0 ||
        count == 0) {
        tok_writer_fail(w, "%s: token \"%s\" is not the base64 of at most %d bytes", w->where,
                        excerpt_of(base64, len).text, (int)MAX_SPLIT);
        return;
    }
    for (size_t i = 0; i < count; i++)
        spelled += utf8_write(byte_alphabet_letter(bytes[i]), spelling + spelled);
    *single_bytes += count == 1;
    if (json_object_setn_new(vocab, spelling, spelled, json_copy(id)) < 0)
        TOK_TRY(w, err_no_memory(w->err, "%s: a vocabulary", w->where));
}

/* Reads a vocabulary of bytes in base64, {"AA==": 0, ..}, which must have a token for each byte. */
static void read_base64(struct tok_writer *w, json_t *model)
{
    json_t *encoded = json_object_get(model, "vocab_base64"), *vocab = json_object();
    size_t single_bytes = 0;
    if (!encoded || TOK_TRY(w, json_put(model, "vocab", json_incref(vocab), w->err))) {
        json_decref(vocab);
        return;
    }
    for (void *at = json_object_iter(encoded); at && !w->failed;
         at = json_object_iter_next(encoded, at))
        decode_token(w, json_object_iter_key(at), json_object_iter_key_len(at),
                     json_object_iter_value(at), vocab, &single_bytes);
    if (single_bytes < BYTE_VALUES)
        tok_writer_fail(w, "%s: has tokens for %zu of %d bytes", w->where, single_bytes,
                        (int)BYTE_VALUES);
    json_decref(vocab);
}

/* Reads "unk_token" of a model whose vocabulary is known. */
static void read_unk_token(struct build *build, const json_t *model)
{
    struct tok_writer *w = &build->writer;
    const json_t *unk = json_object_get(model, "unk_token");
    if (json_is_string(unk)) {
        int64_t id = vocab_id(build, json_string_value(unk), json_string_length(unk));
        w->unk = id < 0 ? TOK_NONE : (uint32_t)id;
        w->flags |= id < 0 ? TOK_UNK_MISSING : 0;
    }
}

static void read_bpe(struct build *build, json_t *model)
{
    static const struct {
        const char *key;
        uint32_t flag;
    } options[] = {
        {"fuse_unk", TOK_FUSE_UNK},
        {"byte_fallback", TOK_BYTE_FALLBACK},
        {"ignore_merges", TOK_IGNORE_MERGES},
    };
    struct tok_writer *w = &build->writer;
    check_bpe(w, model);
    read_base64(w, model);
    if (!w->failed)
        read_vocab(build, json_object_get(model, "vocab"));
    if (component_bool(w, model, "merges_by_id", false))
        add_merges_by_id(build);
    else
        read_merges(build, json_object_get(model, "merges"));
    for (size_t i = 0; i < ARRAY_LEN(options); i++)
        w->flags |= component_bool(w, model, options[i].key, false) ? options[i].flag : 0;
    read_unk_token(build, model);
}

/* Reads the vocabulary of a WordPiece model, in which added tokens are not parts of words. */
static void read_wordpiece(struct build *build, json_t *model)
{
    struct tok_writer *w = &build->writer;
    AUTO(buf_release) struct buf spelling = {0};
    json_t *vocab = json_object_get(model, "vocab");
    const json_t *added = json_object_get(build->root, "added_tokens");
    const char *prefix = json_string_value(json_object_get(model, "continuing_subword_prefix"));
    /* spelled as in the tables: those that begin words with U+2581 before them */
    const bool spaces = json_is_true(json_object_get(model, "spelled_with_spaces"));
    const json_int_t most = json_integer_value(json_object_get(model, "max_input_chars_per_word"));
    if ((prefix && strcmp(prefix, "##") != 0) || (most && most != 100))
        tok_writer_fail(w,
                        "%s: a WordPiece model is supported with continuing_subword_prefix \"##\" and "
                        "max_input_chars_per_word 100 only",
                        w->where);
    if (!json_is_object(vocab))
        tok_writer_fail(w, "%s: the vocabulary is %s, expected an object", w->where,
                        json_type_name(vocab));
    build->vocab = vocab;
    read_unk_token(build, model);
    for (size_t i = 0; i < json_array_size(added); i++)
        (void)json_object_del(vocab,
                              json_string_value(json_object_get(json_array_get(added, i), "content")));
    for (void *at = json_object_iter(vocab); at && !w->failed; at = json_object_iter_next(vocab, at)) {
        const char *text = json_object_iter_key(at);
        const size_t len = json_object_iter_key_len(at);
        const bool continues = !spaces && len > 2 && memcmp(text, "##", 2) == 0;
        buf_clear(&spelling);
        if (!json_is_integer(json_object_iter_value(at)) || !len)
            tok_writer_fail(w, "%s: token \"%s\" is empty, or its id is not an integer", w->where,
                            text);
        const bool begins = !spaces && !continues;
        TOK_TRY(w, buf_add(&spelling, TOK_SPACE, begins ? sizeof TOK_SPACE - 1 : 0, w->err));
        TOK_TRY(w, buf_add(&spelling, text + (continues ? 2 : 0), len - (continues ? 2 : 0), w->err));
        if (!w->failed)
            tok_writer_set_token(w, json_integer_value(json_object_iter_value(at)), spelling.data,
                                 spelling.len, TOK_MODEL);
    }
}

static void read_pieces(struct build *build, json_t *model)
{
    build->sentencepiece = pieces_are_sentencepiece(model);
    pieces_read(&build->writer, model);
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

static void read_model(struct build *build, json_t *model)
{
    static void (*const readers[KIND_COUNT])(struct build *, json_t *) = {
        [KIND_BPE] = read_bpe,
        [KIND_SPM] = read_pieces,
        [KIND_UNIGRAM] = read_pieces,
        [KIND_WORDPIECE] = read_wordpiece,
    };
    struct tok_writer *w = &build->writer;
    const char *type = type_of_model(model);
    if (!json_is_object(model))
        tok_writer_fail(w, "%s: \"model\" is %s, expected an object", w->where, json_type_name(model));
    if (!type)
        tok_writer_fail(w, "%s: the model has neither a \"type\" nor \"merges\"", w->where);
    for (size_t kind = 0; kind < KIND_COUNT && !w->failed; kind++)
        if (strcmp(tok_models[kind].name, type) == 0) {
            w->kind = (enum tok_kind)kind;
            readers[kind](build, model);
            return;
        }
    tok_writer_fail(w,
                    "%s: model \"%s\" is not supported; supported are BPE, Unigram, SPM and WordPiece",
                    w->where, type);
}

/* The spelling of a token in a configuration: a string, or the "content" of an object. */
static const json_t *token_content(const json_t *value)
{
    return json_is_object(value) ? json_object_get(value, "content") : value;
}

/* Appends the id of the token that a configuration names under `key` ("bos_token"). */
static void add_named_token(struct build *build, const char *key, struct ids *ids)
{
    struct tok_writer *w = &build->writer;
    const json_t *name = token_content(json_object_get(build->config, key));
    if (!json_is_string(name))
        name = token_content(json_object_get(build->specials, key));
    if (!json_is_string(name)) {
        tok_writer_fail(w, "%s/tokenizer_config.json: a \"%s\" is to be added, but there is none",
                        build->source->folder, key);
        return;
    }
    int64_t id = find_id(build, json_string_value(name), json_string_length(name));
    if (id < 0)
        tok_writer_fail(w, "%s/tokenizer_config.json: \"%s\" is \"%s\", which is not in the vocabulary",
                        build->source->folder, key, json_string_value(name));
    TOK_TRY(w, ids_add(ids, (uint32_t)id, w->err));
}

static void apply_config(struct build *build, bool has_template)
{
    struct tok_writer *w = &build->writer;
    const json_t *config = build->config;
    bool given = json_object_get(config, "add_bos_token") || json_object_get(config, "add_eos_token");
    bool decides = given && pieces_of_llama_class(config);
    const bool add_bos = component_bool(w, config, "add_bos_token", decides),
               add_eos = component_bool(w, config, "add_eos_token", false);
    if (decides)
        w->prefix.len = w->suffix.len = 0;
    else if (has_template)
        return;
    if (add_bos)
        add_named_token(build, "bos_token", &w->prefix);
    if (decides && add_eos)
        add_named_token(build, "eos_token", &w->suffix);
}

/* --- vocab.json and merges.txt --- */

/* Adds a special token of a configuration; a new one gets the next free id, if the embedding has
 * a row for it. */
static void add_special(struct build *build, const json_t *value)
{
    const json_t *content = token_content(value);
    if (!json_is_string(content) || !json_string_length(content))
        return;
    int64_t id = find_id(build, json_string_value(content), json_string_length(content));
    if (id < 0)
        id = (int64_t)build->writer.ids;
    if ((uint64_t)id >= build->writer.vocab_rows)
        return;
    if (json_is_object(value))
        read_added(build, value, id, true);
    else
        tok_writer_add_added(&build->writer, id, json_string_value(content),
                             json_string_length(content), 0, false, true);
}

static const char *const special_keys[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                           "pad_token", "cls_token", "mask_token"};

static void add_specials(struct build *build, const json_t *map)
{
    for (size_t i = 0; i < ARRAY_LEN(special_keys); i++)
        add_special(build, json_object_get(map, special_keys[i]));
    const json_t *more = json_object_get(map, "additional_special_tokens");
    for (size_t i = 0; i < json_array_size(more); i++)
        add_special(build, json_array_get(more, i));
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
static void read_added_file(struct build *build)
{
    struct tok_writer *w = &build->writer;
    for (void *at = json_object_iter(build->added); at; at = json_object_iter_next(build->added, at)) {
        const char *text = json_object_iter_key(at);
        const json_t *id = json_object_iter_value(at);
        const bool special = names_special(build->config, text) || names_special(build->specials, text);
        if (!json_is_integer(id) || json_integer_value(id) < 0)
            tok_writer_fail(w,
                            "%s/added_tokens.json: the id of token \"%s\" is %s, expected an integer",
                            build->source->folder, text, json_type_name(id));
        if (*text)
            tok_writer_add_added(w, json_integer_value(id), text, json_object_iter_key_len(at), 0,
                                 !special && !build->sentencepiece, special);
    }
}

/* Reads the added tokens of "added_tokens_decoder": {"50257": {"content": ...}, ...}. */
static void read_added_decoder(struct build *build)
{
    json_t *map = json_object_get(build->config, "added_tokens_decoder");
    if (!map)
        read_added_file(build);
    for (void *at = json_object_iter(map); at; at = json_object_iter_next(map, at)) {
        char *end;
        const char *key = json_object_iter_key(at);
        long long id = strtoll(key, &end, 10);
        if (*end || end == key || id < 0)
            tok_writer_fail(&build->writer,
                            "%s/tokenizer_config.json: added token \"%s\" has no number as its id",
                            build->source->folder, key);
        read_added(build, json_object_iter_value(at), id, false);
    }
}

static void check_class(struct build *build)
{
    const char *class = json_string_value(json_object_get(build->config, "tokenizer_class"));
    if (class && !text_lists("GPT2Tokenizer GPT2TokenizerFast CodeGenTokenizer CodeGenTokenizerFast",
                             class, strlen(class)))
        tok_writer_fail(
            &build->writer,
            "%s/tokenizer_config.json: tokenizer_class \"%s\" without a tokenizer.json is not "
            "supported; supported are GPT2Tokenizer, CodeGenTokenizer",
            build->source->folder, class);
}

static void build_from_vocab_json(struct build *build)
{
    struct tok_writer *w = &build->writer;
    check_class(build);
    read_vocab(build, build->root);
    read_merges_txt(build, &build->source->merges_txt);
    read_added_decoder(build);
    add_specials(build, build->specials);
    add_specials(build, build->config);
    component_add_byte_level(w, component_bool(w, build->config, "add_prefix_space", false), true);
    apply_config(build, false);
}

static void build_from_sentencepiece(struct build *build)
{
    read_added_tokens(build, json_object_get(build->root, "added_tokens"));
    read_added_decoder(build);
    pieces_add_components(&build->writer, build->root, build->config);
}

static void build_from_tokenizer_json(struct build *build)
{
    struct tok_writer *w = &build->writer;
    read_model(build, json_object_get(build->root, "model"));
    if (w->failed)
        return;
    if (build->sentencepiece) {
        build_from_sentencepiece(build);
        return;
    }
    read_added_tokens(build, json_object_get(build->root, "added_tokens"));
    apply_config(build, tok_components_parse(w, build->root));
    if (w->kind != KIND_BPE && w->flags & TOK_BYTE_LEVEL)
        tok_writer_fail(w, "%s: model %s with \"ByteLevel\" is not supported", w->where,
                        tok_models[w->kind].name);
    if (w->steps[LIST_NORMALIZER] && !w->failed)
        tok_writer_normalize_added(w);
}

/* Parses a file of the folder, unless there is none. */
static void parse_file(struct build *build, const struct slice *file, const char *name, json_t **root)
{
    struct tok_writer *w = &build->writer;
    AUTO(buf_release) struct buf where = {0};
    if (file->data && !TOK_TRY(w, buf_addf(&where, w->err, "%s/%s", build->source->folder, name)))
        TOK_TRY(w, json_parse(file->data, file->size, where.data, root, w->err));
}

int tokenizer_build(const struct tokenizer_source *source, struct buf *blob, struct err *err)
{
    struct build build = {.source = source,
                          .writer = {.err = err, .vocab_rows = source->vocab_rows, .unk = TOK_NONE}};
    struct tok_writer *w = &build.writer;
    bool whole = source->tokenizer_json.data != NULL;
    const struct slice *file = whole ? &source->tokenizer_json : &source->vocab_json;
    if (!whole && (!source->vocab_json.data || !source->merges_txt.data))
        tok_writer_fail(w, "%s: there is neither a tokenizer.json nor a vocab.json with a merges.txt",
                        source->folder);
    /* the file name for errors */
    TOK_TRY(w, source->name ? buf_addf(&build.where, err, "%s", source->name)
                            : buf_addf(&build.where, err, "%s/%s", source->folder,
                                       whole ? "tokenizer.json" : "vocab.json"));
    w->where = build.where.data;
    TOK_TRY(w, json_parse(file->data, file->size, build.where.data, &build.root, err));
    parse_file(&build, &source->tokenizer_config_json, "tokenizer_config.json", &build.config);
    parse_file(&build, &source->added_tokens_json, "added_tokens.json", &build.added);
    parse_file(&build, &source->special_tokens_map_json, "special_tokens_map.json", &build.specials);
    if (!w->failed)
        (whole ? build_from_tokenizer_json : build_from_vocab_json)(&build);
    if (source->no_bos)
        w->prefix.len = 0;
    const int rc = w->failed ? -1 : tok_writer_write(w, blob);
    tok_writer_release(w);
    buf_release(&build.where);
    json_decref(build.root);
    json_decref(build.config);
    json_decref(build.specials);
    json_decref(build.added);
    return rc;
}

int tokenizer_build_bytes(size_t vocab_rows, struct buf *blob, struct err *err)
{
    struct tok_writer w = {.err = err,
                           .where = "stand-in tokenizer",
                           .vocab_rows = vocab_rows,
                           .flags = TOK_BYTE_LEVEL,
                           .unk = TOK_NONE};
    if (vocab_rows < 256)
        tok_writer_fail(&w,
                        "a stand-in tokenizer needs 256 rows of the embedding, one per byte, not %zu",
                        vocab_rows);
    for (size_t id = 0; id < vocab_rows && !w.failed; id++) {
        char name[40];
        bool is_byte = id < 256;
        int len = is_byte ? (int)utf8_write(byte_alphabet_letter((unsigned char)id), name)
                          : snprintf(name, sizeof name, "<synth-%zu>", id);
        tok_writer_set_token(&w, (int64_t)id, name, (size_t)len, is_byte ? TOK_MODEL : 0);
    }
    const int rc = w.failed ? -1 : tok_writer_write(&w, blob);
    tok_writer_release(&w);
    return rc;
}
