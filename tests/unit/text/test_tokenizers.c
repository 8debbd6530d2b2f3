/* Tests of tokenizer models and pre-tokenizers: test_tokenizers FIXTURES
 *
 * FIXTURES is tests/fixtures. test_text compares ids for every folder; these tests need
 * internals of lib/text, or have no reference: pre-tokens, unsupported components, damaged
 * tables, long texts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/detok.h"
#include "text/tokenizer/tok_steps.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"

static int failures;

static void check(bool ok, const char *what)
{
    printf("%s - %s\n", ok ? "ok" : "not ok", what);
    failures += !ok;
}

static void read_file(const char *folder, const char *name, struct buf *buf)
{
    char path[5000], chunk[4096];
    struct err err;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    for (size_t got; file && (got = fread(chunk, 1, sizeof chunk, file)) > 0;)
        if (buf_add(buf, chunk, got, &err) < 0)
            abort();
    if (file)
        fclose(file);
}

/* Builds and opens a tokenizer.json; `blob` receives its tables. */
static struct tokenizer *open_json(const char *json, size_t size, const char *config, struct buf *blob,
                                   struct err *err)
{
    struct tokenizer_source source = {
        .folder = "F", .tokenizer_json = {json, size}, .vocab_rows = 1000};
    struct tokenizer *tok = NULL;
    if (config)
        source.tokenizer_config_json = (struct slice){config, strlen(config)};
    buf_clear(blob);
    if (tokenizer_build(&source, blob, err) < 0 || tokenizer_open(&tok, blob->data, blob->len, err) < 0)
        return NULL;
    return tok;
}

/* --- pre-tokenizers --- */

static bool same_pieces(struct pretok *pretok, const json_t *text, const json_t *pieces)
{
    struct err err;
    if (pretok_split(pretok, json_string_value(text), json_string_length(text), true, &err) < 0 ||
        pretok->pretokens.len != json_array_size(pieces))
        return false;
    for (size_t i = 0; i < pretok->pretokens.len; i++)
        if ((json_int_t)(pretok->pretokens.span[i].end - pretok->pretokens.span[i].start) !=
            json_integer_value(json_array_get(pieces, i)))
            return false;
    return true;
}

static void test_pretokenizer(const json_t *made, const json_t *texts)
{
    char json[20000], what[700];
    struct buf blob = {0};
    struct err err = {.text = ""};
    size_t bad = 0;
    char *part = json_dumps(json_object_get(made, "pre_tokenizer"), 0);
    int len = snprintf(json, sizeof json,
                       "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]},"
                       "\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":%s}",
                       part);
    struct tokenizer *tok = open_json(json, (size_t)len, NULL, &blob, &err);
    struct pretok pretok = {.tok = tok};
    for (size_t i = 0; tok && i < json_array_size(texts); i++) {
        bool same = same_pieces(&pretok, json_array_get(texts, i),
                                json_array_get(json_object_get(made, "pieces"), i));
        if (!same)
            printf("# text %zu\n", i);
        bad += !same;
    }
    snprintf(what, sizeof what, "pieces of %s: %s", json_string_value(json_object_get(made, "name")),
             err.text);
    check(tok && !bad && json_array_size(texts) >= 15, what);
    pretok_release(&pretok);
    tokenizer_free(tok);
    buf_release(&blob);
    free(part);
}

static void test_pretokenizers(const char *fixtures)
{
    struct buf file = {0};
    struct err err = {.text = ""};
    json_t *root = NULL;
    read_file(fixtures, "pretokenizers.json", &file);
    if (json_parse(file.data, file.len, "pretokenizers.json", &root, &err) < 0)
        check(false, err.text);
    const json_t *made = json_object_get(root, "made");
    check(json_array_size(made) >= 15, "there are pre-tokenizers");
    for (size_t i = 0; i < json_array_size(made); i++)
        test_pretokenizer(json_array_get(made, i), json_object_get(root, "texts"));
    json_decref(root);
    buf_release(&file);
}

/* --- normalizers --- */

static bool becomes(enum tok_form form, const char *text, const char *expected)
{
    struct normalizer norm = {0};
    struct tok_step step = {.kind = NORMALIZE_UNICODE, .option = form};
    const struct tokenizer tok = {.steps[LIST_NORMALIZER] = &step, .step_count[LIST_NORMALIZER] = 1};
    const char *got;
    size_t len;
    struct err err;
    bool ok = norm_run(&norm, &tok, text, strlen(text), &got, &len, &err) == 0 &&
              len == strlen(expected) && memcmp(got, expected, len) == 0;
    norm_release(&norm);
    return ok;
}

/* Unicode examples: a ligature, composed and decomposed, reordered marks, Hangul. */
static void test_forms(void)
{
#define DECOMPOSED "e\xcc\x81 a\xcc\xa3\xcc\x88 \xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab "
#define COMPOSED   "\xc3\xa9 \xe1\xba\xa1\xcc\x88 \xed\x95\x9c "
    static const char text[] = "\xc3\xa9 a\xcc\x88\xcc\xa3 \xed\x95\x9c \xef\xac\x81";
    check(becomes(FORM_NFC, text, COMPOSED "\xef\xac\x81") &&
              becomes(FORM_NFD, text, DECOMPOSED "\xef\xac\x81") &&
              becomes(FORM_NFKC, text, COMPOSED "fi") && becomes(FORM_NFKD, text, DECOMPOSED "fi") &&
              becomes(FORM_NFKC, "\xc2\xa0\xef\xb7\xba",
                      " \xd8\xb5\xd9\x84\xd9\x89 \xd8\xa7\xd9\x84\xd9\x84\xd9\x87 "
                      "\xd8\xb9\xd9\x84\xd9\x8a\xd9\x87 \xd9\x88\xd8\xb3\xd9\x84\xd9\x85"),
          "Unicode's normal forms");
}

/* --- valid and unsupported files --- */

#define PIECES  "\"vocab\":[[\"<unk>\",0,2],[\"<s>\",0,3],[\"</s>\",0,3],[\"a\",-1,1],[\"ab\",-2,1]]"
#define SPM     "\"model\":{\"type\":\"SPM\"," PIECES "}"
#define UNIGRAM "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5]]}"
#define FUSE    "\"decoder\":{\"type\":\"Fuse\"}"

static void test_refusals(void)
{
    static const struct {
        const char *json;
        const char *says; /* NULL: valid */
    } cases[] = {
        {"{" SPM "}", NULL},
        {"{" UNIGRAM "," FUSE "}", NULL},
        {"{\"model\":{\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5]]}," FUSE "}", NULL},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}," FUSE "}",
         "F/tokenizer.json: model \"WordLevel\" is not supported; supported are BPE, Unigram, "
         "SPM and WordPiece"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}," FUSE "}", "model \"WordLevel\""},
        {"{\"model\":{\"type\":\"SPM\",\"vocab\":[]}}", "the vocabulary is empty"},
        {"{\"model\":{\"type\":\"SPM\",\"vocab\":{\"a\":0}}}", "the vocabulary is an object"},
        {"{\"model\":{\"type\":\"SPM\",\"vocab\":[[\"a\",0]]}}",
         "token 0 is not a piece, its score and its type"},
        {"{\"model\":{\"type\":\"SPM\",\"vocab\":[[\"a\",0,7]]}}",
         "token 0 has type 7, expected 1 to 6"},
        {"{\"model\":{\"type\":\"SPM\",\"vocab\":[[\"a\",1e39,1]]}}",
         "the score of token 0 is out of range"},
        {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[[\"a\",0],[\"b\",0,1]]}," FUSE "}",
         "token 1 is not a piece and its score"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":2,\"vocab\":[[\"a\",0]]}," FUSE "}",
         "\"unk_id\" is not an id of the 1 tokens"},
        {"{" SPM ",\"bos_id\":9,\"add_bos\":true}", "\"bos_id\" is 9, which does not exist"},
        {"{" SPM ",\"normalizer\":{\"type\":\"NFC\"}}",
         "a normalizer with SentencePiece's piece types"},
        {"{" SPM ",\"charsmap\":\"AAAA\"}", "the charsmap of the normalizer is damaged"},
        {"{" SPM ",\"charsmap\":\"!\"}", "the charsmap of the normalizer is damaged"},
        {"{" SPM ",\"charsmap\":7}", "\"charsmap\" is an integer, expected a string"},
        {"{" UNIGRAM "}", "without a decoder"},
        {"{" UNIGRAM
         ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"},\"decoder\":{\"type\":\"ByteLevel\"}}",
         "model Unigram with \"ByteLevel\" is not supported"},
        {"{" UNIGRAM "," FUSE ",\"normalizer\":{\"type\":\"Nmt\"}}", "normalizer \"Nmt\""},
        {"{" UNIGRAM "," FUSE
         ",\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}}",
         "the charsmap of the normalizer is damaged"},
        {"{" UNIGRAM "," FUSE ",\"pre_tokenizer\":{\"type\":\"UnicodeScripts\"}}",
         "pre_tokenizer \"UnicodeScripts\" is not supported; supported are BertPreTokenizer, "
         "ByteLevel, "
         "Digits, "
         "Metaspace, Punctuation, Sequence, Split, WhitespaceSplit"},
        {"{" UNIGRAM "," FUSE ",\"pre_tokenizer\":{\"type\":\"Punctuation\",\"behavior\":\"Odd\"}}",
         "behavior \"Odd\""},
        {"{" UNIGRAM "," FUSE ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":["
         "{\"type\":\"ByteLevel\"},{\"type\":\"Metaspace\",\"replacement\":\"_\"}]}}",
         "pre_tokenizer \"Metaspace\" after \"ByteLevel\""},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf blob = {0};
        struct err err = {.text = ""};
        struct tokenizer *tok = open_json(cases[i].json, strlen(cases[i].json), NULL, &blob, &err);
        bool ok = cases[i].says ? !tok && strstr(err.text, cases[i].says) : tok != NULL;
        check(ok, cases[i].says ? cases[i].says : "a small tokenizer");
        if (!ok)
            printf("# found: %s\n", err.text);
        tokenizer_free(tok);
        buf_release(&blob);
    }
}

/* Precedence for BOS and EOS: the file, the configuration, the class of the tokenizer. */
static void test_ends(void)
{
    static const struct {
        const char *type, *more, *config;
        size_t bos, eos;
    } cases[] = {
        {"SPM", "", "{}", 1, 0},
        {"SPM", ",\"add_bos\":false", "{}", 0, 0},
        {"SPM", ",\"add_eos\":true", "{\"add_eos_token\":false}", 1, 1},
        {"SPM", "", "{\"add_bos_token\":false,\"add_eos_token\":true}", 0, 1},
        {"Unigram", "", "{}", 1, 0},
        {"Unigram", "", "{\"tokenizer_class\":\"LlamaTokenizer\"}", 1, 0},
        {"Unigram", "", "{\"tokenizer_class\":\"T5Tokenizer\"}", 0, 1},
        {"Unigram", "", "{\"tokenizer_class\":\"XLMRobertaTokenizer\"}", 1, 1},
        {"SPM", "", "{\"tokenizer_class\":\"T5TokenizerFast\",\"add_eos_token\":false}", 0, 0},
        {"Unigram", ",\"add_bos\":true,\"add_eos\":false", "{}", 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char json[1000];
        struct buf blob = {0};
        struct ids ids = {0};
        struct err err = {.text = ""};
        int len = snprintf(json, sizeof json,
                           "{\"model\":{\"type\":\"%s\",\"add_prefix_space\":false," PIECES "},"
                           "\"bos_id\":1,\"eos_id\":2%s}",
                           cases[i].type, cases[i].more);
        struct tokenizer *tok = open_json(json, (size_t)len, cases[i].config, &blob, &err);
        bool ok = tok && tokenizer_encode(tok, "ab", 2, true, &ids, &err) == 0 &&
                  ids.len == 1 + cases[i].bos + cases[i].eos && ids.id[cases[i].bos] == 4 &&
                  (!cases[i].bos || ids.id[0] == 1) && (!cases[i].eos || ids.id[ids.len - 1] == 2);
        check(ok, cases[i].config);
        tokenizer_free(tok);
        ids_release(&ids);
        buf_release(&blob);
    }
}

/* --- damaged tables --- */

static struct tokenizer *open_fixture(const char *fixtures, const char *name, struct buf *blob)
{
    char folder[4096];
    struct buf json = {0};
    struct err err = {.text = ""};
    snprintf(folder, sizeof folder, "%s/tokenizers/%s", fixtures, name);
    read_file(folder, "tokenizer.json", &json);
    struct tokenizer *tok = open_json(json.data, json.len, NULL, blob, &err);
    if (!tok)
        check(false, err.text);
    buf_release(&json);
    return tok;
}

static bool try_text(const struct tokenizer *tok)
{
    static const char text[] =
        "  the king\xc2\xa0 e\xcc\x81 1234 <u>[MASK] \xf0\x9f\x98\x80\xe4\xbd\xa0 <s>ness";
    struct ids ids = {0};
    struct buf out = {0};
    struct err err;
    struct detok detok;
    detok_init(&detok, tok, true);
    bool ok = tokenizer_encode(tok, text, sizeof text - 1, true, &ids, &err) == 0;
    for (size_t i = 0; ok && i < ids.len; i++)
        ok = ids.id[i] < tokenizer_vocab(tok) && detok_add(&detok, ids.id[i], &out, &err) == 0;
    ids_release(&ids);
    buf_release(&out);
    return ok;
}

/* Truncated or overwritten tables: an error or wrong ids, nothing else. Run with sanitizers. */
static void test_damage(const char *fixtures, const char *name)
{
    struct buf blob = {0}, damaged = {0};
    struct err err = {.text = ""};
    size_t opened = 0, refused = 0;
    struct tokenizer *tok = open_fixture(fixtures, name, &blob);
    check(tok && try_text(tok), name);
    tokenizer_free(tok);
    for (size_t i = 0; i < blob.len; i += i < 400 ? 1 : 97) {
        struct tokenizer *bad = NULL;
        buf_clear(&damaged);
        if (buf_add(&damaged, blob.data, blob.len, &err) < 0)
            abort();
        damaged.data[i] = (char)~damaged.data[i];
        if (tokenizer_open(&bad, damaged.data, i % 3 ? blob.len : i, &err) == 0)
            opened += try_text(bad);
        else
            refused++;
        tokenizer_free(bad);
    }
    check(opened > 0 && refused > 100, "damaged tables do no harm");
    buf_release(&blob);
    buf_release(&damaged);
}

/* --- long texts --- */

/* A text without spaces: quadratic algorithms would take minutes. */
static void test_long(const char *fixtures, const char *name)
{
    enum { REPEATS = 100000 };
    struct buf blob = {0}, text = {0}, back = {0};
    struct ids ids = {0};
    struct err err = {.text = ""};
    struct detok detok;
    struct tokenizer *tok = open_fixture(fixtures, name, &blob);
    for (size_t i = 0; i < REPEATS; i++)
        if (buf_add(&text, "the\xc3\xb6nd", 7, &err) < 0)
            abort();
    bool ok = tok && tokenizer_encode(tok, text.data, text.len, false, &ids, &err) == 0;
    detok_init(&detok, tok, false);
    for (size_t i = 0; ok && i < ids.len; i++)
        ok = detok_add(&detok, ids.id[i], &back, &err) == 0;
    check(ok && ids.len >= REPEATS && back.len == text.len && !memcmp(back.data, text.data, text.len),
          name);
    tokenizer_free(tok);
    ids_release(&ids);
    buf_release(&blob);
    buf_release(&text);
    buf_release(&back);
}

/* model_id includes the tables: those of BPE must not change. */
static void test_versions(const char *fixtures)
{
    static const struct {
        const char *name;
        uint32_t version, kind;
    } cases[] = {{"llama2", 1, 0}, {"qwen2", 1, 0}, {"falcon", 1, 0},     {"gemma", 1, 0},
                 {"spm", 2, 1},    {"t5", 2, 2},    {"spm-unigram", 2, 2}};
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct buf blob = {0};
        struct tokenizer *tok = open_fixture(fixtures, cases[i].name, &blob);
        const struct tok_header *header = (const void *)blob.data;
        check(tok && header->version == cases[i].version && header->kind == cases[i].kind,
              cases[i].name);
        tokenizer_free(tok);
        buf_release(&blob);
    }
}

int main(int argc, char **argv)
{
    static const char *const damaged[] = {"spm", "spm-words", "spm-unigram",
                                          "t5",  "falcon",    "wordpiece"};
    static const char *const long_ones[] = {"spm", "spm-words", "spm-unigram", "t5", "gemma"};
    if (argc != 2) {
        fprintf(stderr, "usage: test_tokenizers FIXTURES\n");
        return 2;
    }
    test_pretokenizers(argv[1]);
    test_forms();
    test_refusals();
    test_ends();
    test_versions(argv[1]);
    for (size_t i = 0; i < ARRAY_LEN(damaged); i++)
        test_damage(argv[1], damaged[i]);
    for (size_t i = 0; i < ARRAY_LEN(long_ones); i++)
        test_long(argv[1], long_ones[i]);
    return failures ? 1 : 0;
}
