/* Converts GGUF vocabularies to tokenizer.json, written as text since vocabularies are large. */
#include "format/gguf/gguf_tokenizer.h"

#include "base/text_util.h"
#include "format/gguf/gguf_pre.h"

enum { MAX_TOKENS = 1 << 24 };

struct vocab_job {
    const struct gguf *gguf;
    const char *path;
    struct buf *text;
    const struct gguf_value *tokens, *types, *scores;
};

/* Appends a JSON string. Bytes must be UTF-8 without 0, which jansson rejects in keys. */
static int add_string(const struct vocab_job *job, const char *bytes, size_t len, const char *part,
                      size_t index, struct err *err)
{
    AUTO(json_auto) json_t *string = memchr(bytes, 0, len) ? NULL : json_stringn(len ? bytes : "", len);
    return string ? json_append(string, 0, job->text, err)
                  : err_set(err, "%s: %s %zu is not valid UTF-8", job->path, part, index);
}

static int add_text(const struct vocab_job *job, const char *text, struct err *err)
{
    return buf_add(job->text, text, strlen(text), err);
}

/* ---- the vocabulary ---- */

/* Iterator over tokens with their types and scores. */
struct token {
    struct gguf_element name, type, score;
    size_t id; /* id of the next token */
};

static struct token first_token(const struct vocab_job *job)
{
    return (struct token){gguf_elements(job->tokens), gguf_elements(job->types),
                          gguf_elements(job->scores), 0};
}

static bool next_token(struct token *token)
{
    if (!gguf_next(&token->name))
        return false;
    if (!gguf_next(&token->type))
        token->type.integer = NORMAL_TOKEN;
    if (!gguf_next(&token->score))
        token->score.real = 0;
    token->id++;
    return true;
}

/* Sets of token types. Control tokens and unused ones, the padding of the embedding, are not in a BPE vocabulary,
 * whose tokens merges can produce. */
enum token_types {
    ADDED = 1 << UNKNOWN_TOKEN | 1 << CONTROL_TOKEN | 1 << USER_TOKEN,
    NOT_TEXT = 1 << CONTROL_TOKEN | 1 << UNUSED_TOKEN,
};

static bool is_one_of(const struct token *token, unsigned types)
{
    return token->type.integer >= 0 && token->type.integer < 32 && types >> token->type.integer & 1;
}

static int add_added(const struct vocab_job *job, struct err *err)
{
    const char *comma = "";
    struct token token = first_token(job);
    if (add_text(job, "\"added_tokens\":[", err) < 0)
        return -1;
    while (next_token(&token)) {
        if (!is_one_of(&token, ADDED) || token.name.len == 0)
            continue;
        if (buf_addf(job->text, err, "%s{\"id\":%zu,\"special\":%s,\"normalized\":false,\"content\":",
                     comma, token.id - 1, token.type.integer == USER_TOKEN ? "false" : "true") < 0 ||
            add_string(job, token.name.text, token.name.len, "token", token.id - 1, err) < 0 ||
            add_text(job, "}", err) < 0)
            return -1;
        comma = ",";
    }
    return add_text(job, "],", err);
}

/* Adds the vocabulary, without tokens of some types. */
static int add_vocab(const struct vocab_job *job, unsigned without, struct err *err)
{
    const char *comma = "";
    struct token token = first_token(job);
    if (add_text(job, "\"vocab\":{", err) < 0)
        return -1;
    while (next_token(&token)) {
        if (is_one_of(&token, without))
            continue;
        if (add_text(job, comma, err) < 0 ||
            add_string(job, token.name.text, token.name.len, "token", token.id - 1, err) < 0 ||
            buf_addf(job->text, err, ":%zu", token.id - 1) < 0)
            return -1;
        comma = ",";
    }
    return add_text(job, "},", err);
}

static int add_merges(const struct vocab_job *job, struct err *err)
{
    const struct gguf_value *merges = gguf_value(job->gguf, "tokenizer.ggml.merges");
    struct gguf_element merge = gguf_elements(merges);
    if (!merges || !merges->is_array || merges->type != GGUF_STRING)
        return err_set(err, "%s: tokenizer.ggml.merges is missing", job->path);
    if (add_text(job, "\"merges\":[", err) < 0)
        return -1;
    while (gguf_next(&merge))
        if ((merge.index > 1 && add_text(job, ",", err) < 0) ||
            add_string(job, merge.text, merge.len, "merge", merge.index - 1, err) < 0)
            return -1;
    return add_text(job, "]", err);
}

/* The token id stored under a metadata key; -1 if missing or not in the vocabulary. */
static int64_t token_of_key(const struct vocab_job *job, const char *key)
{
    const int64_t id = gguf_integer(job->gguf, key, -1);
    return id >= 0 && (uint64_t)id < job->tokens->count ? id : -1;
}

static int add_if_id(const struct vocab_job *job, const char *place, int64_t id, struct err *err)
{
    return id < 0 ? 0 : buf_addf(job->text, err, "%s", place);
}

/* Adds a post-processor that adds BOS and EOS as the file requests; `start` is the default for
 * BOS, EOS is off by default. */
static int add_template(const struct vocab_job *job, bool start, struct err *err)
{
    const int64_t bos = token_of_key(job, "tokenizer.ggml.bos_token_id"),
                  eos = token_of_key(job, "tokenizer.ggml.eos_token_id");
    const bool first = bos >= 0 && gguf_integer(job->gguf, "tokenizer.ggml.add_bos_token", start);
    const bool last = eos >= 0 && gguf_integer(job->gguf, "tokenizer.ggml.add_eos_token", false);
    if (!first && !last)
        return 0;
    if (add_text(job, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[", err) < 0 ||
        add_if_id(job, "{\"SpecialToken\":{\"id\":\"bos\",\"type_id\":0}},", first ? bos : -1, err) <
            0 ||
        add_text(job, "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", err) < 0 ||
        add_if_id(job, ",{\"SpecialToken\":{\"id\":\"eos\",\"type_id\":0}}", last ? eos : -1, err) < 0)
        return -1;
    return buf_addf(job->text, err,
                    "],\"special_tokens\":{\"bos\":{\"id\":\"bos\",\"ids\":[%lld]},\"eos\":{\"id\":"
                    "\"eos\",\"ids\":[%lld]}}},",
                    (long long)bos, (long long)eos);
}

/* ---- models ---- */

static int add_pretokenizer(const struct vocab_job *job, const struct gguf_pre *pre, struct err *err)
{
    if (add_text(job, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[", err) < 0)
        return -1;
    for (size_t i = 0; i < GGUF_PRE_REGEXES && pre->regex[i]; i++)
        if (add_text(job,
                     "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"invert\":false,\"pattern\":{"
                     "\"Regex\":",
                     err) < 0 ||
            add_string(job, pre->regex[i], strlen(pre->regex[i]), "pattern", i, err) < 0 ||
            add_text(job, "}},", err) < 0)
            return -1;
    return add_text(job, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]},",
                    err);
}

static int write_bpe(const struct vocab_job *job, struct err *err)
{
    const struct gguf_value *name = gguf_value(job->gguf, "tokenizer.ggml.pre");
    struct gguf_element e = gguf_elements(name);
    const struct gguf_pre *pre = NULL;
    if (!gguf_is_text(name) || !gguf_next(&e))
        return err_set(err, "%s: tokenizer.ggml.pre is missing; convert the model to GGUF again",
                       job->path);
    if (gguf_pre_find(&pre, e.text, e.len, job->path, err) < 0)
        return -1;
    const bool by_id = pre->flags & PRE_MERGES_BY_ID;
    if (add_text(job, "{", err) < 0 || add_added(job, err) < 0 ||
        ((pre->flags & PRE_NFC) && add_text(job, "\"normalizer\":{\"type\":\"NFC\"},", err) < 0) ||
        add_pretokenizer(job, pre, err) < 0 || add_template(job, pre->flags & PRE_ADD_BOS, err) < 0 ||
        buf_addf(job->text, err,
                 "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\",\"ignore_"
                 "merges\":%s,",
                 pre->flags & PRE_IGNORE_MERGES ? "true" : "false") < 0 ||
        add_vocab(job, NOT_TEXT | (by_id ? ADDED : 1 << UNKNOWN_TOKEN), err) < 0)
        return -1;
    if (by_id ? add_text(job, "\"merges_by_id\":true", err) < 0 : add_merges(job, err) < 0)
        return -1;
    return add_text(job, "}}", err);
}

/* Adds the text of a token as a member of an object; nothing if `id` is below 0. */
static int add_token_name(const struct vocab_job *job, const char *key, int64_t id, struct err *err)
{
    struct gguf_element e = gguf_elements(job->tokens);
    for (int64_t i = 0; i <= id; i++)
        if (!gguf_next(&e))
            return 0;
    if (id < 0)
        return 0;
    if (buf_addf(job->text, err, "\"%s\":", key) < 0 ||
        add_string(job, e.text, e.len, "token", (size_t)id, err) < 0)
        return -1;
    return add_text(job, ",", err);
}

/* Gemma 4: merges of whole texts, in which blanks are U+2581; other characters are bytes. */
static int write_gemma4(const struct vocab_job *job, struct err *err)
{
    if (add_text(job, "{", err) < 0 || add_added(job, err) < 0 ||
        add_text(job,
                 "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":"
                 "\"\u2581\"},",
                 err) < 0 ||
        add_template(job, true, err) < 0 ||
        add_text(job,
                 "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{"
                 "\"String\":\"\u2581\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
                 "\"Fuse\"}]},\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,\"fuse_unk\":true,",
                 err) < 0 ||
        add_token_name(job, "unk_token", token_of_key(job, "tokenizer.ggml.unknown_token_id"), err) <
            0 ||
        add_vocab(job, NOT_TEXT, err) < 0 || add_merges(job, err) < 0)
        return -1;
    return add_text(job, "}}", err);
}

static int add_scored(const struct vocab_job *job, struct err *err)
{
    struct token token = first_token(job);
    if (add_text(job, "\"vocab\":[", err) < 0)
        return -1;
    while (next_token(&token)) {
        if (!isfinite(token.score.real))
            return err_set(err, "%s: the score of token %zu is not finite", job->path, token.id - 1);
        if (add_text(job, token.id > 1 ? ",[" : "[", err) < 0 ||
            add_string(job, token.name.text, token.name.len, "token", token.id - 1, err) < 0 ||
            buf_addf(job->text, err, ",%.9g,%lld]", token.score.real, (long long)token.type.integer) <
                0)
            return -1;
    }
    return add_text(job, "],", err);
}

/* Adds members "bos_id" and "add_bos", or those of EOS (`end` "eos"); `usual` if the file does not say whether it is
 * added, -1: the importer's default. */
static int add_end(const struct vocab_job *job, const char *end, int64_t usual, struct err *err)
{
    char key[64];
    snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", end);
    const int64_t id = token_of_key(job, key);
    snprintf(key, sizeof key, "tokenizer.ggml.add_%s_token", end);
    const int64_t around = gguf_integer(job->gguf, key, usual);
    if (id < 0)
        return 0;
    if (buf_addf(job->text, err, "\"%s_id\":%lld,", end, (long long)id) < 0)
        return -1;
    return around < 0 ? 0 : buf_addf(job->text, err, "\"add_%s\":%s,", end, around ? "true" : "false");
}

/* Adds SentencePiece's rules of normalisation, as base64. */
static int add_charsmap(const struct vocab_job *job, struct err *err)
{
    static const char key[] = "tokenizer.ggml.precompiled_charsmap";
    const int variant = sodium_base64_VARIANT_ORIGINAL;
    const struct gguf_value *map = gguf_value(job->gguf, key);
    AUTO(buf_release) struct buf bytes = {0}, text = {0};
    if (!map || !map->count)
        return 0;
    if (!map->is_array || !gguf_is_number(map))
        return err_set(err, "%s: %s is no list of bytes", job->path, key);
    struct gguf_element e = gguf_elements(map);
    while (gguf_next(&e)) {
        const char byte = (char)e.integer;
        if (buf_add(&bytes, &byte, 1, err) < 0)
            return -1;
    }
    const size_t room = sodium_base64_encoded_len(bytes.len, variant);
    if (buf_reserve(&text, room, err) < 0)
        return -1;
    sodium_bin2base64(text.data, room, (const unsigned char *)bytes.data, bytes.len, variant);
    return buf_addf(job->text, err, "\"charsmap\":\"%s\",", text.data);
}

/* Writes a tokenizer.json with scores instead of merges, in the form of spmodel_json(): type SPM, or Unigram, to which
 * EOS is added unless the file says otherwise. */
static int write_pieces(const struct vocab_job *job, const char *type, struct err *err)
{
    const bool unigram = strcmp(type, "Unigram") == 0;
    const bool prefix = gguf_integer(job->gguf, "tokenizer.ggml.add_space_prefix", true);
    const bool shrink = gguf_integer(job->gguf, "tokenizer.ggml.remove_extra_whitespaces", false);
    const int64_t unknown = token_of_key(job, "tokenizer.ggml.unknown_token_id");
    if (!job->scores)
        return err_set(err, "%s: tokenizer.ggml.scores is missing", job->path);
    if (add_text(job, "{", err) < 0 || add_end(job, "bos", unigram ? 0 : -1, err) < 0 ||
        add_end(job, "eos", unigram ? 1 : -1, err) < 0 || (unigram && add_charsmap(job, err) < 0) ||
        buf_addf(job->text, err, "\"model\":{\"type\":\"%s\",", type) < 0 || add_scored(job, err) < 0)
        return -1;
    return buf_addf(job->text, err,
                    "\"unk_id\":%lld,\"byte_fallback\":%s,\"add_prefix_space\":%s,"
                    "\"remove_extra_whitespaces\":%s}}",
                    (long long)(unknown < 0 ? 0 : unknown), unigram ? "false" : "true",
                    prefix ? "true" : "false", shrink ? "true" : "false");
}

static int write_spm(const struct vocab_job *job, struct err *err)
{
    return write_pieces(job, "SPM", err);
}

static int write_unigram(const struct vocab_job *job, struct err *err)
{
    return write_pieces(job, "Unigram", err);
}

/* BERT's, whose words are taken in lower case and without accents unless the file says otherwise; tokens are spelled as
 * in tokenizer.json, but those that begin a word with U+2581, and those that continue one without "##". */
static int write_wordpiece(const struct vocab_job *job, struct err *err)
{
    static const char *const around[] = {"tokenizer.ggml.cls_token_id",
                                         "tokenizer.ggml.seperator_token_id"};
    const bool lower = gguf_integer(job->gguf, "tokenizer.ggml.normalizer.lowercase", true),
               strip = gguf_integer(job->gguf, "tokenizer.ggml.normalizer.strip_accents", lower);
    int64_t id[2];
    for (size_t i = 0; i < 2; i++) {
        id[i] = token_of_key(job, around[i]);
        if (id[i] < 0)
            id[i] =
                token_of_key(job, i ? "tokenizer.ggml.eos_token_id" : "tokenizer.ggml.bos_token_id");
        if (id[i] < 0)
            return err_set(err, "%s: %s is missing", job->path, around[i]);
    }
    if (add_text(job, "{", err) < 0 || add_added(job, err) < 0 ||
        buf_addf(
            job->text, err,
            "\"normalizer\":{\"type\":\"BertNormalizer\",\"lowercase\":%s,\"strip_accents\":%s},"
            "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},"
            "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":"
            "\"cls\"}},"
            "{\"Sequence\":{\"id\":\"A\"}},{\"SpecialToken\":{\"id\":\"sep\"}}],\"special_tokens\":{"
            "\"cls\":{\"ids\":[%lld]},\"sep\":{\"ids\":[%lld]}}},\"decoder\":{\"type\":\"WordPiece\"},"
            "\"model\":{\"type\":\"WordPiece\",\"spelled_with_spaces\":true,",
            lower ? "true" : "false", strip ? "true" : "false", (long long)id[0],
            (long long)id[1]) < 0 ||
        add_token_name(job, "unk_token", token_of_key(job, "tokenizer.ggml.unknown_token_id"), err) <
            0 ||
        add_vocab(job, 0, err) < 0)
        return -1;
    return add_text(job, "\"max_input_chars_per_word\":100}}", err);
}

static const struct tokenizer_kind {
    const char *name;
    int (*write)(const struct vocab_job *job, struct err *err);
} models[] = {
    {"gpt2", write_bpe},      {"llama", write_spm},      {"t5", write_unigram},
    {"gemma4", write_gemma4}, {"bert", write_wordpiece},
};

static int check_lists(const struct vocab_job *job, struct err *err)
{
    if (!job->tokens || !job->tokens->is_array || job->tokens->type != GGUF_STRING)
        return err_set(err, "%s: tokenizer.ggml.tokens is missing or not a list of strings", job->path);
    if (job->tokens->count > MAX_TOKENS)
        return err_set(err, "%s: claims %zu tokens, more than %d", job->path, job->tokens->count,
                       (int)MAX_TOKENS);
    if (job->types && !(job->types->is_array && gguf_is_number(job->types) &&
                        job->types->count == job->tokens->count))
        return err_set(err, "%s: tokenizer.ggml.token_type needs one number for each of %zu tokens",
                       job->path, job->tokens->count);
    if (job->scores && !(job->scores->is_array && gguf_is_number(job->scores) &&
                         job->scores->count == job->tokens->count))
        return err_set(err, "%s: tokenizer.ggml.scores needs one number for each of %zu tokens",
                       job->path, job->tokens->count);
    return 0;
}

static int write_model(const struct vocab_job *job, const struct gguf_element *name, struct err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++)
        if (strlen(models[i].name) == name->len && memcmp(models[i].name, name->text, name->len) == 0)
            return check_lists(job, err) < 0 ? -1 : models[i].write(job, err);
    return err_set(err,
                   "%s: tokenizer model \"%s\" (tokenizer.ggml.model) is not supported; gpt2, "
                   "llama, t5, gemma4 and bert are",
                   job->path, excerpt_of(name->text, name->len).text);
}

int gguf_tokenizer_json(const struct gguf *gguf, const char *path, struct buf *text, struct err *err)
{
    const struct vocab_job job = {gguf,
                                  path,
                                  text,
                                  gguf_value(gguf, "tokenizer.ggml.tokens"),
                                  gguf_value(gguf, "tokenizer.ggml.token_type"),
                                  gguf_value(gguf, "tokenizer.ggml.scores")};
    const struct gguf_value *model = gguf_value(gguf, "tokenizer.ggml.model");
    struct gguf_element name = gguf_elements(model);
    if (!gguf_is_text(model) || !gguf_next(&name))
        return err_set(err, "%s: has no tokenizer: tokenizer.ggml.model is missing", path);
    return write_model(&job, &name, err);
}

/* The chat templates: the default one, tokenizer.chat_template, and others behind its name. */
static int put_templates(const struct gguf *gguf, json_t *config, struct err *err)
{
    static const char key[] = "tokenizer.chat_template";
    const size_t len = strlen(key);
    AUTO(json_auto) json_t *list = json_array();
    int rc = list ? 0 : err_no_memory(err, "a chat template");
    for (size_t i = 0; i < gguf->n_values && rc == 0; i++) {
        const struct gguf_value *value = &gguf->value[i];
        struct gguf_element e = gguf_elements(value);
        const bool named = value->key_len > len + 1 && value->key[len] == '.';
        if (value->key_len < len || memcmp(value->key, key, len) != 0 ||
            (value->key_len > len && !named) || !gguf_is_text(value) || !gguf_next(&e))
            continue;
        json_t *one = json_object();
        const char *name = named ? value->key + len + 1 : "default";
        rc = json_put(one, "name", json_text(name, named ? value->key_len - len - 1 : strlen(name)),
                      err);
        if (rc == 0)
            rc = json_put(one, "template", json_text(e.text, e.len), err);
        rc = rc == 0 ? json_push(list, one, err) : (json_decref(one), -1);
    }
    if (rc == 0 && json_array_size(list))
        rc = json_put(config, "chat_template", json_incref(list), err);
    return rc;
}

/* The special tokens that templates name, as an object of their own: where tokenizer_config.json has
 * them, they would change the tokenizer. */
static int put_tokens(const struct gguf *gguf, json_t *config, struct err *err)
{
    static const struct {
        const char *key, *name;
    } tokens[] = {
        {"tokenizer.ggml.bos_token_id", "bos_token"},
        {"tokenizer.ggml.eos_token_id", "eos_token"},
        {"tokenizer.ggml.unknown_token_id", "unk_token"},
        {"tokenizer.ggml.padding_token_id", "pad_token"},
        {"tokenizer.ggml.seperator_token_id", "sep_token"}, /* as GGUF spells it */
        {"tokenizer.ggml.cls_token_id", "cls_token"},
        {"tokenizer.ggml.mask_token_id", "mask_token"},
    };
    AUTO(json_auto) json_t *object = json_object();
    int rc = 0;
    for (size_t i = 0; i < ARRAY_LEN(tokens) && rc == 0; i++) {
        const struct gguf_value *names = gguf_value(gguf, "tokenizer.ggml.tokens");
        int64_t id = gguf_integer(gguf, tokens[i].key, -1);
        struct gguf_element e = gguf_elements(names);
        bool found = id >= 0 && names && names->type == GGUF_STRING;
        while (found && (found = gguf_next(&e)) && id-- > 0)
            continue;
        if (found)
            rc = json_put(object, tokens[i].name, json_text(e.text, e.len), err);
    }
    if (rc == 0)
        rc = json_put(config, "chat_tokens", json_incref(object), err);
    return rc;
}

int gguf_tokenizer_config(const struct gguf *gguf, struct buf *text, struct err *err)
{
    AUTO(json_auto) json_t *config = json_object();
    int rc = config ? 0 : err_no_memory(err, "a chat template");
    if (rc == 0)
        rc = put_templates(gguf, config, err);
    if (rc == 0)
        rc = put_tokens(gguf, config, err);
    return rc < 0 ? -1 : json_append(config, 0, text, err);
}
