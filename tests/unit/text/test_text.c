/* Tests of lib/text: test_text FIXTURES [MODEL-FOLDER REFERENCE.json]...
 *
 * FIXTURES is tests/fixtures/tokenizers. Expected ids there and in the references come from
 * other implementations; the rest are hand-made cases. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "text/tokenizer/detok.h"
#include "text/import/tok_build.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

static int failures;

static void check(bool ok, const char *what)
{
    printf("%s - %s\n", ok ? "ok" : "not ok", what);
    failures += !ok;
}

/* --- files --- */

/* Reads FOLDER/NAME, or NAME if there is no folder; empty if missing. */
static struct slice read_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s%s%s", folder ? folder : "", folder ? "/" : "", name);
    FILE *file = fopen(path, "rb");
    struct slice text = {0};
    struct buf buf = {0};
    struct err err;
    char chunk[4096];
    if (!file)
        return text;
    for (size_t got; (got = fread(chunk, 1, sizeof chunk, file)) > 0;)
        if (buf_add(&buf, chunk, got, &err) < 0)
            abort();
    fclose(file);
    return (struct slice){buf.data, buf.len};
}

static void drop_file(struct slice *file)
{
    union {
        const char *constant;
        char *owned;
    } data = {file->data};
    free(data.owned);
}

static struct tokenizer *open_source(struct tokenizer_source *source, struct buf *blob, struct err *err)
{
    struct tokenizer *tok = NULL;
    buf_clear(blob);
    if (tokenizer_build(source, blob, err) < 0 || tokenizer_open(&tok, blob->data, blob->len, err) < 0)
        return NULL;
    return tok;
}

static struct tokenizer *open_folder(const char *folder, size_t vocab_rows, struct buf *blob,
                                     struct err *err)
{
    struct tokenizer_source source = {
        .folder = folder,
        .tokenizer_json = read_file(folder, "tokenizer.json"),
        .vocab_json = read_file(folder, "vocab.json"),
        .merges_txt = read_file(folder, "merges.txt"),
        .tokenizer_config_json = read_file(folder, "tokenizer_config.json"),
        .special_tokens_map_json = read_file(folder, "special_tokens_map.json"),
        .vocab_rows = vocab_rows,
    };
    struct slice *files[] = {&source.tokenizer_json, &source.vocab_json, &source.merges_txt,
                             &source.tokenizer_config_json, &source.special_tokens_map_json};
    struct tokenizer *tok = open_source(&source, blob, err);
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        drop_file(files[i]);
    return tok;
}

/* --- expected results --- */

static bool same_ids(const struct ids *ids, const json_t *expected)
{
    bool same = ids->len == json_array_size(expected);
    for (size_t i = 0; same && i < ids->len; i++)
        same = ids->id[i] == json_integer_value(json_array_get(expected, i));
    return same;
}

static bool encodes(const struct tokenizer *tok, const json_t *text, bool with_template,
                    const json_t *expected)
{
    struct ids ids = {0};
    struct err err;
    bool ok = tokenizer_encode(tok, json_string_value(text), json_string_length(text), with_template,
                               &ids, &err) == 0 &&
              same_ids(&ids, expected);
    ids_release(&ids);
    return ok;
}

static int decode(const struct tokenizer *tok, const struct ids *ids, bool keep_special,
                  struct buf *out, struct err *err)
{
    struct detok detok;
    detok_init(&detok, tok, keep_special);
    for (size_t i = 0; i < ids->len; i++)
        if (detok_add(&detok, ids->id[i], out, err) < 0)
            return -1;
    return detok_finish(&detok, out, err);
}

static bool decodes(const struct tokenizer *tok, const json_t *list, const json_t *expected)
{
    struct ids ids = {0};
    struct buf text = {0};
    struct err err;
    bool ok = true;
    for (size_t i = 0; ok && i < json_array_size(list); i++)
        ok = ids_add(&ids, (uint32_t)json_integer_value(json_array_get(list, i)), &err) == 0;
    ok = ok && decode(tok, &ids, false, &text, &err) == 0 && text.len == json_string_length(expected) &&
         (text.len == 0 || memcmp(text.data, json_string_value(expected), text.len) == 0);
    ids_release(&ids);
    buf_release(&text);
    return ok;
}

static void test_cases(const struct tokenizer *tok, const char *name, const json_t *cases)
{
    char what[400];
    size_t bad = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *one = json_array_get(cases, i), *text = json_object_get(one, "text");
        bool ids = encodes(tok, text, true, json_object_get(one, "ids"));
        bool plain = encodes(tok, text, false, json_object_get(one, "ids_plain"));
        bool back = decodes(tok, json_object_get(one, "ids"), json_object_get(one, "decoded"));
        if (ids && plain && back)
            continue;
        bad++;
        snprintf(what, sizeof what, "%s: case %zu:%s%s%s", name, i, ids ? "" : " ids",
                 plain ? "" : " ids_plain", back ? "" : " decoded");
        check(false, what);
    }
    snprintf(what, sizeof what, "%s: %zu cases", name, json_array_size(cases));
    check(bad == 0 && json_array_size(cases) >= 40, what);
}

static void test_fixture(const char *folder, const char *name)
{
    struct slice file = read_file(folder, "cases.json");
    struct buf blob = {0};
    struct err err = {.text = ""};
    json_t *root = NULL;
    struct tokenizer *tok = open_folder(folder, 1000, &blob, &err);
    if (tok && json_parse(file.data, file.size, folder, &root, &err) == 0)
        test_cases(tok, name, json_object_get(root, "cases"));
    else
        check(false, err.text);
    json_decref(root);
    tokenizer_free(tok);
    buf_release(&blob);
    drop_file(&file);
}

static void test_fixtures(const char *fixtures)
{
    struct dirent **entries;
    int count = scandir(fixtures, &entries, NULL, alphasort);
    int tested = 0;
    for (int i = 0; i < count; i++) {
        char folder[4096];
        snprintf(folder, sizeof folder, "%s/%s", fixtures, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.') {
            test_fixture(folder, entries[i]->d_name);
            tested++;
        }
        free(entries[i]);
    }
    if (count >= 0)
        free(entries);
    check(tested >= 6, "there are fixtures");
}

static void test_reference(const char *folder, const char *reference)
{
    struct slice file = read_file(NULL, reference);
    struct buf blob = {0};
    struct err err = {.text = "no such reference"};
    json_t *root = NULL;
    struct tokenizer *tok = open_folder(folder, 4096, &blob, &err);
    if (!tok || !file.data || json_parse(file.data, file.size, reference, &root, &err) < 0) {
        check(false, err.text);
    } else {
        const json_t *cases = json_object_get(root, "cases");
        for (size_t i = 0; i < json_array_size(cases); i++) {
            const json_t *one = json_array_get(cases, i);
            check(
                encodes(tok, json_object_get(one, "prompt"), true, json_object_get(one, "prompt_ids")),
                json_string_value(json_object_get(one, "prompt")));
            check(decodes(tok, json_object_get(one, "greedy_ids"), json_object_get(one, "greedy_text")),
                  "its continuation decodes");
        }
    }
    json_decref(root);
    tokenizer_free(tok);
    buf_release(&blob);
    drop_file(&file);
}

/* --- hand-made cases --- */

static void test_utf8(void)
{
    static const struct {
        const char *bytes;
        int step;
    } cases[] = {
        {"a", 1},         {"\xc3\xa9", 2},          {"\xe2\x82\xac", 3}, {"\xf0\x9f\x98\x80", 4},
        {"\xc3", 0},      {"\xe2\x82", 0},          {"\xf0\x9f\x98", 0}, {"\x80", -1},
        {"\xc0\x80", -1}, {"\xc1\xbf", -1},         {"\xe0\x80", -1},    {"\xed\xa0\x80", -1},
        {"\xf0\x80", -1}, {"\xf4\x90\x80\x80", -1}, {"\xf5", -1},        {"\xff", -1},
        {"\xe2\x28", -1}, {"\xf4\x8f\xbf\xbf", 4},  {"\xed\x9f\xbf", 3}, {"\xee\x80\x80", 3},
    };
    bool ok = true, round = true;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        ok &= utf8_step(cases[i].bytes, strlen(cases[i].bytes)) == cases[i].step;
    check(ok, "utf8_step is strict");
    for (uint32_t code = 0; code < 0x110000; code++) {
        char bytes[UTF8_MAX];
        uint32_t back;
        if (code >= 0xd800 && code < 0xe000)
            continue;
        unsigned len = utf8_write(code, bytes);
        round &= utf8_step(bytes, len) == (int)len && utf8_decode(bytes, &back) == len &&
                 back == code && utf8_before(bytes, len) == 0;
    }
    check(round, "every code point there and back");
}

/* Detokenisation with a stand-in vocabulary where id = byte. */
static bool streams(const struct tokenizer *tok, const char *bytes, const char *expected)
{
    struct buf text = {0};
    struct ids ids = {0};
    struct err err;
    bool ok = true;
    for (const char *b = bytes; *b; b++)
        ok &= ids_add(&ids, (unsigned char)*b, &err) == 0;
    ok = ok && decode(tok, &ids, false, &text, &err) == 0 && text.len == strlen(expected) &&
         memcmp(text.data, expected, text.len) == 0;
    buf_release(&text);
    ids_release(&ids);
    return ok;
}

static void test_stand_in(void)
{
    struct buf blob = {0}, again = {0}, text = {0};
    struct ids ids = {0};
    struct err err = {.text = ""};
    struct tokenizer *tok = NULL;
    check(tokenizer_build_bytes(255, &blob, &err) < 0, "a stand-in needs 256 rows");
    buf_clear(&blob);
    bool built = tokenizer_build_bytes(300, &blob, &err) == 0 &&
                 tokenizer_build_bytes(300, &again, &err) == 0 &&
                 tokenizer_open(&tok, blob.data, blob.len, &err) == 0;
    check(built && blob.len == again.len && memcmp(blob.data, again.data, blob.len) == 0,
          "a stand-in is built, the same bytes each time");
    if (built) {
        check(tokenizer_vocab(tok) == 300 && !tokenizer_has_template(tok), "a stand-in's size");
        check(tokenizer_find(tok, "<synth-299>", 11) == 299 &&
                  tokenizer_find(tok, "<synth-300>", 11) < 0 &&
                  tokenizer_find(tok, "\xc4\xa0", 2) == ' ' && tokenizer_find(tok, " ", 1) < 0 &&
                  tokenizer_find(tok, "\xff", 1) < 0,
              "tokens are found by their spelling");
        check(tokenizer_encode(tok, "\xc3\xa9<synth-299>", 13, true, &ids, &err) == 0 &&
                  ids.len == 13 && ids.id[0] == 0xc3 && ids.id[1] == 0xa9,
              "a stand-in encodes bytes");
        check(tokenizer_encode(tok, "ab\xed\xa0\x80", 5, false, &ids, &err) < 0 && ids.len == 13 &&
                  strstr(err.text, "byte 2"),
              "invalid UTF-8 is named by its place and adds nothing");
        check(tokenizer_piece(tok, 0xe2, &text, &err) == 0 && text.len == 1 &&
                  tokenizer_piece_printable(tok, 0xe2, &text, &err) == 0 &&
                  tokenizer_piece(tok, 300, &text, &err) == 0 && text.len == 7 &&
                  memcmp(text.data, "\xe2<0xE2>", 7) == 0,
              "pieces, plain and printable");
        check(streams(tok, "\xe2\x82\xac", "\xe2\x82\xac") &&
                  streams(tok, "\xe2\x82", "\xef\xbf\xbd") &&
                  streams(tok, "\xe2\x82z", "\xef\xbf\xbdz") &&
                  streams(tok, "\xe2\xe2\x82\xac", "\xef\xbf\xbd\xe2\x82\xac") &&
                  streams(tok, "\x80\xff", "\xef\xbf\xbd\xef\xbf\xbd") &&
                  streams(tok, "\xf0\x9f\x98\x80\xf0\x9f\x98", "\xf0\x9f\x98\x80\xef\xbf\xbd"),
              "whole characters only, the rest is U+FFFD");
    }
    tokenizer_free(tok);
    buf_release(&blob);
    buf_release(&again);
    buf_release(&text);
    ids_release(&ids);
}

/* Truncated or overwritten tables: an error or wrong ids, nothing else. Run with sanitizers. */
static void test_damage(const char *fixtures)
{
    char folder[4096];
    struct buf blob = {0}, damaged = {0};
    struct err err = {.text = ""};
    size_t opened = 0;
    snprintf(folder, sizeof folder, "%s/added", fixtures);
    struct tokenizer *tok = open_folder(folder, 1000, &blob, &err);
    check(tok != NULL, "tables to damage");
    tokenizer_free(tok);
    for (size_t i = 0; tok && i < blob.len; i += i < 256 ? 1 : 61) {
        struct ids ids = {0};
        struct buf text = {0};
        struct tokenizer *bad = NULL;
        buf_clear(&damaged);
        if (buf_add(&damaged, blob.data, blob.len, &err) < 0)
            abort();
        damaged.data[i] = (char)~damaged.data[i];
        if (tokenizer_open(&bad, damaged.data, i % 2 ? blob.len : i, &err) == 0 &&
            tokenizer_encode(bad, "  new york caf\xc3\xa9 123 <lead>", 26, true, &ids, &err) == 0 &&
            decode(bad, &ids, true, &text, &err) == 0)
            opened++;
        tokenizer_free(bad);
        ids_release(&ids);
        buf_release(&text);
    }
    check(!tok || opened > 0, "damaged tables do no harm");
    buf_release(&blob);
    buf_release(&damaged);
}

#define VOCAB "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define MODEL "\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"a b\"]}"
#define FUSE  "\"decoder\":{\"type\":\"Fuse\"}"

static void test_refusals(void)
{
    static const struct {
        const char *json;
        const char *says; /* NULL: valid */
    } cases[] = {
        {"{" MODEL "," FUSE "}", NULL},
        {"{\"model\":{" VOCAB ",\"merges\":[[\"a\",\"b\"]]}," FUSE "}", NULL},
        {"{" MODEL "}", "without a decoder"},
        {"{" MODEL "," FUSE ",\"normalizer\":{\"type\":\"Nmt\"}}",
         "F/tokenizer.json: normalizer \"Nmt\" is not supported; supported are "
         "BertNormalizer, Lowercase, "
         "NFC, NFD, NFKC, NFKD, Precompiled, Prepend, Replace, Sequence, Strip, StripAccents"},
        {"{" MODEL "," FUSE ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}",
         "pre_tokenizer \"Whitespace\""},
        {"{" MODEL "," FUSE ",\"post_processor\":{\"type\":\"BertProcessing\"}}", "\"BertProcessing\""},
        {"{" MODEL ",\"decoder\":{\"type\":\"CTC\"}}", "decoder \"CTC\""},
        {"{" MODEL ",\"decoder\":{\"type\":\"ByteLevel\"}}", "without a pre_tokenizer"},
        {"{" MODEL ",\"decoder\":{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}}",
         "Strip"},
        {"{" MODEL "," FUSE ",\"pre_tokenizer\":{\"type\":\"ByteLevel\"}}", "without a decoder"},
        {"{\"model\":{\"type\":\"WordLevel\",\"vocab\":{}}," FUSE "}",
         "F/tokenizer.json: model \"WordLevel\" is not supported; supported are BPE, Unigram, "
         "SPM and WordPiece"},
        {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1," VOCAB ",\"merges\":[]}," FUSE "}", "dropout"},
        {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"," VOCAB ",\"merges\":[]}," FUSE
         "}",
         "end_of_word_suffix"},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"b a\"]}," FUSE "}",
         "not in the vocabulary"},
        {"{\"model\":{\"type\":\"BPE\"," VOCAB ",\"merges\":[\"ab\"]}," FUSE "}", "merge 0"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":4},\"merges\":[]}," FUSE "}", "has 4 rows"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}," FUSE "}", "id 1"},
        {"{" MODEL "," FUSE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
         "\"pattern\":{\"Regex\":\"a{2}+\"}}}",
         "\"{2}+\" at byte 1"},
        {"{" MODEL "," FUSE ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\","
         "\"pattern\":{\"Regex\":\"(a\"}}}",
         "cannot be compiled"},
        {"{" MODEL "," FUSE ",\"added_tokens\":[{\"id\":1,\"content\":\"c\"}]}", "id 1"},
        {"{\"model\":", "not valid JSON"},
        {"[]", "\"model\" is missing"},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct tokenizer_source source = {
            .folder = "F", .tokenizer_json = {cases[i].json, strlen(cases[i].json)}, .vocab_rows = 4};
        struct buf blob = {0};
        struct err err = {.text = ""};
        struct tokenizer *tok = open_source(&source, &blob, &err);
        bool ok = cases[i].says ? !tok && strstr(err.text, cases[i].says) : tok != NULL;
        check(ok, cases[i].says ? cases[i].says : "the smallest tokenizer");
        if (!ok)
            printf("# found: %s\n", err.text);
        tokenizer_free(tok);
        buf_release(&blob);
    }
}

/* add_bos_token and the classes that use it. */
static void test_config(void)
{
    static const struct {
        const char *config;
        const char *post_processor;
        size_t added;
    } cases[] = {
        {"{}", "null", 0},
        {"{\"add_bos_token\":true,\"bos_token\":\"a\"}", "null", 1},
        {"{\"add_bos_token\":true,\"bos_token\":{\"content\":\"b\"}}", "null", 1},
        {"{\"add_bos_token\":false,\"bos_token\":\"a\"}", "template", 1},
        {"{\"add_bos_token\":false,\"tokenizer_class\":\"LlamaTokenizer\"}", "template", 0},
        {"{\"add_eos_token\":true,\"bos_token\":\"a\",\"eos_token\":\"b\",\"tokenizer_class\":"
         "\"LlamaTokenizerFast\"}",
         "null", 2},
        {"{\"tokenizer_class\":\"LlamaTokenizer\"}", "template", 1},
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char json[1000];
        bool template = strcmp(cases[i].post_processor, "template") == 0;
        snprintf(json, sizeof json, "{" MODEL "," FUSE ",\"post_processor\":%s}",
                 template
                     ? "{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"a\"}},"
                       "{\"Sequence\":{\"id\":\"A\"}}],\"special_tokens\":{\"a\":{\"ids\":[0]}}}"
                     : "null");
        struct tokenizer_source source = {
            .folder = "F",
            .tokenizer_json = {json, strlen(json)},
            .tokenizer_config_json = {cases[i].config, strlen(cases[i].config)},
            .vocab_rows = 4};
        struct buf blob = {0};
        struct ids ids = {0};
        struct err err = {.text = ""};
        struct tokenizer *tok = open_source(&source, &blob, &err);
        check(tok && tokenizer_encode(tok, "ab", 2, true, &ids, &err) == 0 &&
                  ids.len == 1 + cases[i].added && tokenizer_has_template(tok) == (cases[i].added > 0),
              cases[i].config);
        tokenizer_free(tok);
        ids_release(&ids);
        buf_release(&blob);
    }
}

static bool overlap(const uint32_t *last, size_t n_last, const uint32_t *first, size_t n_first,
                    size_t wanted)
{
    const struct ids a = {(uint32_t *)(uintptr_t)last, n_last, 0},
                     b = {(uint32_t *)(uintptr_t)first, n_first, 0};
    struct err err;
    size_t n;
    return ids_overlap(&a, &b, &n, &err) == 0 && n == wanted;
}

/* Same result as brute force; linear time on long lists of equal ids. */
static void test_overlap(void)
{
    enum { MOST = 12, LONG = 1 << 20 };
    static uint32_t same[LONG];
    unsigned draw = 1;
    bool ok = true;
    for (int round = 0; round < 20000; round++) {
        uint32_t id[2 * MOST];
        for (size_t i = 0; i < 2 * MOST; i++)
            id[i] = (draw = draw * 1103515245 + 12345) >> 16 & 1;
        const size_t last = draw >> 17 & 7, first = (draw >> 20) % (MOST + 1);
        size_t wanted = size_min(last, first);
        while (wanted && memcmp(id + last - wanted, id + MOST, wanted * sizeof *id) != 0)
            wanted--;
        ok = ok && overlap(id, last, id + MOST, first, wanted);
    }
    check(ok, "ids overlap as far as they are the same");
    same[LONG - 1] = 1;
    check(overlap(same, LONG, same, LONG, LONG) && overlap(same, LONG - 1, same, LONG, LONG - 1) &&
              overlap(same + 1, LONG - 1, same, LONG, 0),
          "long lists of the same ids overlap");
}

int main(int argc, char **argv)
{
    if (argc < 2 || argc % 2) {
        fprintf(stderr, "usage: test_text FIXTURES [MODEL-FOLDER REFERENCE.json]...\n");
        return 2;
    }
    test_utf8();
    test_stand_in();
    test_overlap();
    test_refusals();
    test_config();
    test_fixtures(argv[1]);
    test_damage(argv[1]);
    for (int i = 2; i + 1 < argc; i += 2)
        test_reference(argv[i], argv[i + 1]);
    return failures ? 1 : 0;
}
