/* Constrained output: grammars, regular expressions, schemas and choices accept and reject what
 * tests/fixtures/constraints.jsonl says, and masks agree with trying every token. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "text/constrain/constraint.h"
#include "tests/unit/check.h"

enum { VOCAB = 256 + 400, MASK_WORDS = (VOCAB + 63) / 64 };

static uint64_t random_state;

static uint64_t random_below(uint64_t n) { return check_random(&random_state) % n; }

/* All bytes, and tokens of several bytes that are pieces of the texts of constraints. */
static struct vocab_trie *make_vocab(const json_t *cases)
{
    struct buf text = {0};
    struct err err;
    struct vocab_trie *trie;
    uint32_t *at = mem_zalloc(VOCAB + 1, sizeof *at);
    for (uint32_t id = 0; id < VOCAB; id++) {
        at[id] = (uint32_t)text.len;
        const char byte = (char)id;
        if (id < 256) {
            check(buf_add(&text, &byte, 1, &err) == 0, "%s", "byte");
            continue;
        }
        const json_t *accept = NULL;
        while (!json_array_size(accept))
            accept =
                json_object_get(json_array_get(cases, random_below(json_array_size(cases))), "accept");
        const char *from =
            json_string_value(json_array_get(accept, random_below(json_array_size(accept))));
        const size_t len = strlen(from), start = len ? random_below(len) : 0;
        check(buf_add(&text, from + start, size_min(len - start, 1 + random_below(12)), &err) == 0,
              "token");
    }
    at[VOCAB] = (uint32_t)text.len;
    check(vocab_trie_build(&trie, text.data, at, VOCAB, &err) == 0, "the trie of the vocabulary");
    return trie;
}

static enum constraint_kind kind_of(const char *name)
{
    static const char *const names[] = {"",      "json_schema", "json_object", "grammar",
                                        "regex", "choice",      "structure"};
    int kind = 0;
    while (strcmp(names[kind], name) != 0)
        kind++;
    return (enum constraint_kind)kind;
}

/* The state after a text, byte by byte; byte tokens have the bytes as ids. */
static bool accepts(struct constraint *c, const char *text, size_t len)
{
    struct constraint_cursor cursor = {0};
    struct err err;
    bool ok = constraint_begin(&cursor, c, &err) == 0;
    for (size_t i = 0; i < len && ok; i++)
        ok = constraint_advance(&cursor, (unsigned char)text[i], &err) == 0;
    ok = ok && constraint_accepts(c, cursor.state);
    constraint_end(&cursor);
    return ok;
}

/* Walks randomly: at each state the mask has exactly the tokens that can be followed, there is one
 * unless the text may end, and tokens of many bytes lead where their bytes do. */
static void check_masks(struct constraint *c, const struct vocab_trie *trie, const char *name)
{
    enum { STEPS = 40 };
    struct constraint_cursor cursor = {0};
    uint64_t mask[MASK_WORDS];
    struct err err;
    bool ok = constraint_begin(&cursor, c, &err) == 0;
    for (size_t step = 0; step < STEPS && ok; step++) {
        uint32_t allowed[VOCAB], n = 0;
        ok = constraint_mask(c, cursor.state, mask, &err) == 0;
        for (uint32_t id = 0; id < VOCAB && ok; id++) {
            const bool in = mask[id / 64] >> id % 64 & 1;
            size_t len;
            (void)vocab_trie_text(trie, id, &len);
            if (in != (constraint_next(c, cursor.state, id) != CONSTRAINT_DEAD))
                ok =
                    check(false, "%s: token %u is %s the mask", name, id, in ? "wrongly in" : "not in");
            if (in)
                allowed[n++] = id;
        }
        if (n == 0) {
            check(constraint_accepts(c, cursor.state), "%s: a state without tokens", name);
            check(constraint_is_complete(c, cursor.state),
                  "%s: nothing follows, but it is not complete", name);
            break;
        }
        ok = ok && constraint_advance(&cursor, allowed[random_below(n)], &err) == 0;
    }
    check(ok, "%s: a walk", name);
    constraint_end(&cursor);
}

static void check_case(const json_t *line, const struct vocab_trie *trie)
{
    const char *text = json_string_value(json_object_get(line, "text"));
    const char *message = json_string_value(json_object_get(line, "error"));
    const char *note = json_string_value(json_object_get(line, "note"));
    struct grammar grammar;
    struct constraint *c = NULL;
    struct err err = {.text = ""};
    char name[80];
    snprintf(name, sizeof name, "%.70s", text);
    const int rc =
        constraint_source_parse(&grammar, kind_of(json_string_value(json_object_get(line, "kind"))),
                                text, strlen(text), &err) < 0
            ? -1
            : constraint_open(&c, &grammar, trie, &err);
    check(note ? strstr(grammar.note.text, note) != NULL : !*grammar.note.text,
          "%s: the note \"%s\" is expected, found \"%s\"", name, note ? note : "", grammar.note.text);
    grammar_release(&grammar);
    if (message) {
        check(rc < 0 && strstr(err.text, message), "%s: \"%s\" is expected, found \"%s\"", name,
              message, err.text);
        constraint_close(c);
        return;
    }
    if (!check(rc == 0, "%s: %s", name, err.text))
        return;
    for (int reject = 0; reject < 2; reject++) {
        const json_t *list = json_object_get(line, reject ? "reject" : "accept");
        for (size_t i = 0; i < json_array_size(list); i++) {
            const json_t *example = json_array_get(list, i);
            check(accepts(c, json_string_value(example), json_string_length(example)) != reject,
                  "%s %s %s", name, reject ? "accepts" : "rejects", json_string_value(example));
        }
    }
    for (size_t i = 0; i < 8; i++)
        check_masks(c, trie, name);
    constraint_close(c);
}

/* A long text of which nearly every character leads to another set of states: those that are not needed are forgotten. */
static void check_long_text(const struct vocab_trie *trie)
{
    enum { LENGTH = 270000 };
    static const char regex[] = "(a|b)*a(a|b){24}";
    struct constraint_cursor cursor = {0};
    struct constraint *c = NULL;
    struct grammar grammar;
    struct err err;
    bool ok = constraint_source_parse(&grammar, CONSTRAINT_REGEX, regex, strlen(regex), &err) == 0 &&
              constraint_open(&c, &grammar, trie, &err) == 0 && constraint_begin(&cursor, c, &err) == 0;
    grammar_release(&grammar);
    uint32_t history = 0;
    for (size_t i = 0; i < LENGTH && ok; i++) {
        const bool b = random_below(2);
        history = history << 1 | !b;
        ok = constraint_advance(&cursor, b ? 'b' : 'a', &err) == 0 &&
             constraint_accepts(c, cursor.state) == (i >= 24 && history >> 24 & 1);
    }
    check(ok, "a long text: %s", err.text);
    constraint_end(&cursor);
    constraint_close(c);
}

int main(int argc, char **argv)
{
    struct err err;
    json_error_t why;
    random_state = check_state(check_seed(33));
    json_t *cases = json_array();
    FILE *file = argc > 1 ? fopen(argv[1], "r") : NULL;
    if (!check(file != NULL, "usage: test_constraint constraints.jsonl"))
        return check_result();
    json_t *line;
    while ((line = json_loadf(file, JSON_DISABLE_EOF_CHECK, &why)))
        check(json_push(cases, line, &err) == 0, "cases");
    fclose(file);
    struct vocab_trie *trie = make_vocab(cases);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i), trie);
    check_long_text(trie);
    vocab_trie_close(trie);
    json_decref(cases);
    return check_result();
}
