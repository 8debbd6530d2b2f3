/* Converting vocabularies of tiktoken: tiktoken.model and tekken.json. */
#include "format/hf/tiktoken.h"

#include "base/json.h"
#include "base/text_util.h"
#include "format/detect.h"
#include "format/gguf/gguf_pre.h"

enum { MAX_BYTES = 64 << 20, MAX_TOKENS = 1 << 24, MAX_SPECIALS = 1 << 16 };

/* Writes the tokenizer. Takes over the references to `vocab`, `added` and `post`. */
static int write_tokenizer(struct buf *out, const char *pattern, json_t *vocab, json_t *added,
                           json_t *post, const char *name, struct err *err)
{
    AUTO(json_auto)
    json_t *root = json_pack(
        "{s:{s:s, s:b, s:b, s:o}, s:o, s:o, s:{s:s, s:[{s:s, s:{s:s}, s:s}, {s:s, s:b, "
        "s:b}]}, s:{s:s}}",
        "model", "type", "BPE", "ignore_merges", true, "merges_by_id", true, "vocab_base64", vocab,
        "added_tokens", added, "post_processor", post, "pre_tokenizer", "type", "Sequence",
        "pretokenizers", "type", "Split", "pattern", "Regex", pattern, "behavior", "Isolated", "type",
        "ByteLevel", "add_prefix_space", false, "use_regex", false, "decoder", "type", "ByteLevel");
    if (!root)
        return err_no_memory(err, "%s: a tokenizer", name);
    return json_append(root, JSON_COMPACT, out, err);
}

/* Adds a special token; `like`, or NULL, has its other members. */
static int put_special(json_t *added, json_int_t id, const char *content, json_t *like, struct err *err)
{
    json_t *token = like ? json_copy(like) : json_object();
    int rc = json_put(token, "id", json_integer(id), err);
    if (rc == 0)
        rc = json_put(token, "content", json_text(content, strlen(content)), err);
    if (rc == 0 && !like)
        rc = json_put(token, "special", json_true(), err);
    if (rc == 0)
        return json_push(added, token, err);
    json_decref(token);
    return -1;
}

/* ---- tiktoken.model ---- */

/* Tokenizer classes whose code reads a tiktoken.model: their pre-tokenizer, by its name in GGUF files, and how
 * many ids after the vocabulary are special tokens, named or not. */
static const struct tokenizer_class {
    const char *name, *pre;
    json_int_t specials;
} classes[] = {
    {"TikTokenTokenizer", "kimi-k2", 256},
};

static const struct tokenizer_class *find_class(const json_t *config)
{
    const char *class = json_string_value(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; class && i < ARRAY_LEN(classes); i++)
        if (strcmp(class, classes[i].name) == 0)
            return &classes[i];
    return NULL;
}

static bool is_base64(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '+' ||
           c == '/' || c == '=';
}

/* Reads a line, "AA== 0"; returns false if it is another text. */
static bool read_line(const char *line, size_t len, size_t *token, json_int_t *id)
{
    size_t at = 0;
    while (at < len && is_base64(line[at]))
        at++;
    *token = at;
    *id = 0;
    if (at == 0 || at + 1 >= len || line[at] != ' ')
        return false;
    while (++at < len && line[at] >= '0' && line[at] <= '9' && *id < MAX_TOKENS)
        *id = 10 * *id + (line[at] - '0');
    return at == len && *id < MAX_TOKENS;
}

bool tiktoken_is(const char *data, size_t size)
{
    const char *end = size ? memchr(data, '\n', size) : NULL;
    size_t token;
    json_int_t id;
    return end && read_line(data, (size_t)(end - data), &token, &id);
}

static int put_lines(json_t *vocab, const char *data, size_t size, const char *name, struct err *err)
{
    for (size_t at = 0, number = 1, token; at < size; number++) {
        const char *line = data + at, *end = memchr(line, '\n', size - at);
        size_t len = end ? (size_t)(end - line) : size - at;
        json_int_t id;
        at += len + 1;
        len -= len > 0 && line[len - 1] == '\r';
        if (len == 0)
            continue;
        if (!read_line(line, len, &token, &id))
            return err_set(err, "%s: line %zu is \"%s\", expected a token in base64 and its id", name,
                           number, excerpt_of(line, len).text);
        if (json_object_setn_new(vocab, line, token, json_integer(id)) < 0)
            return err_no_memory(err, "%s: %zu tokens", name, number);
    }
    return 0;
}

static int put_specials(json_t *added, const json_t *config, json_int_t first, json_int_t count,
                        struct err *err)
{
    const json_t *named = json_object_get(config, "added_tokens_decoder");
    for (json_int_t id = first; id < first + count; id++) {
        char key[64];
        snprintf(key, sizeof key, "%lld", (long long)id);
        json_t *like = json_object_get(named, key);
        const char *content = json_string_value(json_object_get(like, "content"));
        snprintf(key, sizeof key, "<|reserved_token_%lld|>", (long long)id);
        if (put_special(added, id, content ? content : key, content ? like : NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int write_model(struct buf *out, const char *data, size_t size, const json_t *config,
                       const char *name, struct err *err)
{
    const struct tokenizer_class *class = find_class(config);
    const char *found = json_string_value(json_object_get(config, "tokenizer_class"));
    const struct gguf_pre *pre = NULL;
    json_t *vocab = json_object(), *added = json_array();
    int rc = -1;
    if (!class)
        err_set(
            err,
            "%s: tokenizer_class \"%s\" of tokenizer_config.json is not supported with a vocabulary of "
            "tiktoken; only \"%s\" is (Kimi K2, Moonlight); add the tokenizer.json of the model",
            name, found ? found : "", classes[0].name);
    else if (!vocab || !added)
        err_no_memory(err, "%s: a tokenizer", name);
    else
        rc = gguf_pre_find(&pre, class->pre, strlen(class->pre), name, err);
    if (rc == 0)
        rc = put_lines(vocab, data, size, name, err);
    if (rc == 0)
        rc = put_specials(added, config, (json_int_t)json_object_size(vocab), class->specials, err);
    if (rc == 0)
        return write_tokenizer(out, pre->regex[0], vocab, added, json_null(), name, err);
    json_decref(vocab);
    json_decref(added);
    return rc;
}

static int check_size(const void *data, size_t size, const char *name, struct err *err)
{
    if (detect_refuse(data, size, KIND_OTHER, "a tokenizer's vocabulary", name, err) < 0)
        return -1;
    return size <= MAX_BYTES ? 0
                             : err_set(err, "%s: %zu bytes are too large for a vocabulary", name, size);
}

int tiktoken_json(struct buf *out, const char *data, size_t size, const char *config,
                  size_t config_size, const char *name, struct err *err)
{
    AUTO(json_auto) json_t *root = NULL;
    int rc = check_size(data, size, name, err);
    if (rc == 0 && config)
        rc = json_parse(config, config_size, "tokenizer_config.json", &root, err);
    return rc < 0 ? -1 : write_model(out, data, size, root, name, err);
}

/* ---- tekken.json ---- */

struct tekken {
    const char *name;
    json_int_t specials, tokens; /* special tokens come first; tokens of the vocabulary */
    const json_t *special, *vocab;
    const char *pattern;
};

static int check_tekken(struct tekken *t, const json_t *root, struct err *err)
{
    const json_t *size = json_at(root, "config.default_vocab_size");
    const json_t *specials = json_at(root, "config.default_num_special_tokens");
    t->pattern = json_string_value(json_at(root, "config.pattern"));
    t->vocab = json_object_get(root, "vocab");
    t->special = json_object_get(root, "special_tokens");
    if (!t->pattern || !json_is_array(t->vocab))
        return err_set(err, "%s: not a tekken.json: has no config.pattern or no vocab", t->name);
    if (!json_is_array(t->special))
        return err_set(err,
                       "%s: has no special_tokens, as files before version 7 of the format; add the "
                       "tokenizer.json of the model",
                       t->name);
    t->specials = json_is_integer(specials) ? json_integer_value(specials)
                                            : (json_int_t)json_array_size(t->special);
    if (t->specials < (json_int_t)json_array_size(t->special) || t->specials > MAX_SPECIALS)
        return err_set(
            err, "%s: has %zu special tokens, and default_num_special_tokens is %lld of at most %d",
            t->name, json_array_size(t->special), (long long)t->specials, (int)MAX_SPECIALS);
    t->tokens = (json_int_t)json_array_size(t->vocab);
    if (json_is_integer(size) && json_integer_value(size) < t->specials + t->tokens)
        t->tokens = json_integer_value(size) < t->specials ? 0 : json_integer_value(size) - t->specials;
    return 0;
}

static int put_tekken_vocab(const struct tekken *t, json_t *vocab, struct err *err)
{
    for (json_int_t i = 0; i < t->tokens; i++) {
        const json_t *token = json_array_get(t->vocab, (size_t)i),
                     *rank = json_object_get(token, "rank");
        const char *bytes = json_string_value(json_object_get(token, "token_bytes"));
        if (!bytes || !json_is_integer(rank) || json_integer_value(rank) != i)
            return err_set(err, "%s: token %lld of vocab has no token_bytes, or another rank", t->name,
                           (long long)i);
        if (json_put(vocab, bytes, json_integer(t->specials + i), err) < 0)
            return -1;
    }
    return 0;
}

/* Adds the special tokens; `bos` receives the id of "<s>", or -1. */
static int put_tekken_specials(const struct tekken *t, json_t *added, json_int_t *bos, struct err *err)
{
    *bos = -1;
    for (json_int_t i = 0; i < t->specials; i++) {
        const json_t *token = json_array_get(t->special, (size_t)i),
                     *rank = json_object_get(token, "rank");
        const char *text = json_string_value(json_object_get(token, "token_str"));
        char filler[64];
        snprintf(filler, sizeof filler, "<SPECIAL_%lld>", (long long)i);
        if (token && (!text || !json_is_integer(rank) || json_integer_value(rank) != i))
            return err_set(err, "%s: special token %lld has no token_str, or another rank", t->name,
                           (long long)i);
        if (text && strcmp(text, "<s>") == 0)
            *bos = i;
        if (put_special(added, i, text ? text : filler, NULL, err) < 0)
            return -1;
    }
    return 0;
}

/* Texts begin with BOS, as mistral-common encodes them. */
static json_t *begin_with(json_int_t bos)
{
    return json_pack("{s:s, s:[{s:{s:s, s:i}}, {s:{s:s, s:i}}], s:{s:{s:s, s:[I]}}}", "type",
                     "TemplateProcessing", "single", "SpecialToken", "id", "<s>", "type_id", 0,
                     "Sequence", "id", "A", "type_id", 0, "special_tokens", "<s>", "id", "<s>", "ids",
                     bos);
}

static int write_tekken(struct buf *out, const json_t *root, const char *name, struct err *err)
{
    struct tekken t = {.name = name};
    json_t *vocab = json_object(), *added = json_array();
    json_int_t bos;
    int rc = vocab && added ? check_tekken(&t, root, err) : err_no_memory(err, "%s: a tokenizer", name);
    if (rc == 0)
        rc = put_tekken_vocab(&t, vocab, err);
    if (rc == 0)
        rc = put_tekken_specials(&t, added, &bos, err);
    if (rc == 0)
        return write_tokenizer(out, t.pattern, vocab, added, bos < 0 ? json_null() : begin_with(bos),
                               name, err);
    json_decref(vocab);
    json_decref(added);
    return rc;
}

int tekken_json(struct buf *out, const char *data, size_t size, const char *name, struct err *err)
{
    AUTO(json_auto) json_t *root = NULL;
    return check_size(data, size, name, err) < 0 || json_parse(data, size, name, &root, err) < 0
               ? -1
               : write_tekken(out, root, name, err);
}
