/* Random texts under constraints: constraint_texts COUNT <LINES, objects with kind and text as in
 * tests/fixtures/constraints.jsonl. Writes for each line an object with error, or with texts and, if there is one, note. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "tests/unit/check.h"
#include "text/constrain/constraint.h"

enum { BYTES = 256, WORDS = BYTES / 64 };

static uint64_t random_state;

static uint64_t random_below(uint64_t n) { return check_random(&random_state) % n; }

/* A vocabulary of single bytes. */
static struct vocab_trie *open_bytes(void)
{
    struct vocab_trie *trie = NULL;
    struct err err;
    char *text = mem_alloc(BYTES, 1);
    uint32_t *at = mem_alloc(BYTES + 1, sizeof *at);
    for (uint32_t i = 0; i <= BYTES; i++) {
        at[i] = i;
        if (i < BYTES)
            text[i] = (char)i;
    }
    if (vocab_trie_build(&trie, text, at, BYTES, &err) < 0)
        check(false, "%s", err.text);
    return trie;
}

/* One of the bytes of a mask; one that ends strings and lists, if there is any, the more often the longer the text. */
static int choose(const uint64_t *mask, size_t len)
{
    enum { LONG = 300 };
    uint8_t allowed[BYTES], ends[BYTES];
    size_t n = 0, n_ends = 0;
    for (unsigned b = 0; b < BYTES; b++)
        if (mask[b / 64] >> b % 64 & 1) {
            allowed[n++] = (uint8_t)b;
            if (strchr("\"]}", (int)b) && b)
                ends[n_ends++] = (uint8_t)b;
        }
    if (n_ends && (len > LONG || random_below(6) == 0))
        return ends[random_below(n_ends)];
    for (int tries = 0; n && tries < 3; tries++) { /* rarely bytes that are not ASCII */
        const uint8_t b = allowed[random_below(n)];
        if (b < 0x80)
            return b;
    }
    return n ? allowed[random_below(n)] : -1;
}

/* A random text; false: it did not end, or failed. */
static bool walk(struct constraint *c, struct buf *text, struct err *err)
{
    enum { LONGEST = 2000 };
    struct constraint_cursor cursor = {0};
    uint64_t mask[WORDS];
    bool done = false, ok = constraint_begin(&cursor, c, err) == 0;
    buf_clear(text);
    (void)err_set(err, "the text does not end");
    while (ok && !done && text->len < LONGEST) {
        ok = constraint_mask(c, cursor.state, mask, err) == 0;
        const int byte = ok ? choose(mask, text->len) : -1;
        const char c1 = (char)byte;
        done = constraint_accepts(c, cursor.state) && (byte < 0 || random_below(4) == 0);
        if (!done)
            ok = ok && byte >= 0 && constraint_advance(&cursor, (uint32_t)byte, err) == 0 &&
                 buf_add(text, &c1, 1, err) == 0;
    }
    constraint_end(&cursor);
    return ok && done;
}

static enum constraint_kind kind_of(const char *name)
{
    static const char *const names[] = {"",      "json_schema", "json_object", "grammar",
                                        "regex", "choice",      "structure"};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (strcmp(names[i], name) == 0)
            return (enum constraint_kind)i;
    return CONSTRAINT_NONE;
}

static json_t *try_line(const json_t *line, const struct vocab_trie *trie, size_t count)
{
    const json_t *source = json_object_get(line, "text");
    struct grammar grammar;
    struct constraint *c = NULL;
    struct buf text = {0};
    struct err err = {.text = ""};
    json_t *texts = json_array(), *out = json_object();
    if (constraint_source_parse(&grammar, kind_of(json_string_value(json_object_get(line, "kind"))),
                                json_string_value(source), json_string_length(source), &err) < 0 ||
        constraint_open(&c, &grammar, trie, &err) < 0)
        json_object_set_new(out, "error", json_string(err.text));
    if (grammar.note.text[0])
        json_object_set_new(out, "note", json_string(grammar.note.text));
    grammar_release(&grammar);
    for (size_t i = 0; i < count && c; i++)
        if (walk(c, &text, &err))
            json_array_append_new(texts, json_stringn(buf_text(&text), text.len));
        else
            json_object_set_new(out, "failed", json_string(err.text));
    json_object_set_new(out, "texts", texts);
    buf_release(&text);
    constraint_close(c);
    return out;
}

int main(int argc, char **argv)
{
    json_error_t why;
    json_t *line;
    random_state = check_state(check_seed(49));
    struct vocab_trie *trie = open_bytes();
    while ((line = json_loadf(stdin, JSON_DISABLE_EOF_CHECK | JSON_ALLOW_NUL, &why))) {
        json_t *out = try_line(line, trie, argc > 1 ? strtoul(argv[1], NULL, 10) : 10);
        json_dumpf(out, stdout, JSON_COMPACT);
        putchar('\n');
        fflush(stdout);
        json_decref(out);
        json_decref(line);
    }
    vocab_trie_close(trie);
    return 0;
}
