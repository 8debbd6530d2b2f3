/* SentencePiece's normalizer: characters, white space and U+2581 in one pass, as in its
 * own implementation; user-defined tokens are left alone. */
#include "text/tokenizer/norm_chars.h"

#include "text/tokenizer/added.h"
#include "text/tokenizer/charsmap.h"
#include "text/tokenizer/tok_steps.h"
#include "text/utf8.h"

static const struct slice mark = {"\xe2\x96\x81", 3}; /* U+2581 */

/* Length of the longest user-defined token of a Unigram model at the start of `text`, or 0. */
static size_t user_defined_in_trie(const struct tokenizer *tok, struct slice text)
{
    size_t found = 0;
    uint32_t node = 0;
    for (size_t i = 0; i < size_min(text.size, tok->longest); i++) {
        node = tok_trie_child(tok, node, text.data[i]);
        if (node == TOK_NONE)
            break;
        if (tok_flags(tok, tok->trie_id[node]) & TOK_USER)
            found = i + 1;
    }
    return found;
}

/* Length of the longest user-defined token at the start of `text`, or 0, for any model: in BPE they
 * are added tokens. */
static size_t user_defined(const struct tokenizer *tok, struct slice text)
{
    if (tok->kind == KIND_UNIGRAM)
        return user_defined_in_trie(tok, text);
    const struct tok_added *added = added_longest(tok, 1, text.data, text.size);
    return added ? added->len : 0;
}

/* Gets the next normalised chunk of `text`, and the number of bytes that it replaces. */
static int next_chunk(const struct tokenizer *tok, struct slice text, struct slice *chunk, size_t *used,
                      struct err *err)
{
    uint32_t code;
    *used = user_defined(tok, text);
    if (!*used) {
        int found = charsmap_find(tok, text, true, chunk, used, err);
        if (found)
            return found < 0 ? -1 : 0;
        *used = utf8_decode(text.data, &code);
    }
    *chunk = (struct slice){text.data, *used};
    return 0;
}

static int add_escaped(struct slice chunk, struct buf *out, struct err *err)
{
    for (size_t i = 0; i < chunk.size; i++) {
        bool space = chunk.data[i] == ' ';
        if (buf_add(out, space ? mark.data : chunk.data + i, space ? mark.size : 1, err) < 0)
            return -1;
    }
    return 0;
}

static bool ends_with_mark(const struct buf *out)
{
    return out->len >= mark.size && !memcmp(out->data + out->len - mark.size, mark.data, mark.size);
}

static struct slice skip(struct slice text, size_t count)
{
    return (struct slice){text.data + count, text.size - count};
}

/* Skips leading characters of `text` that are normalised to a space. */
static int skip_spaces(const struct tokenizer *tok, struct slice *text, struct err *err)
{
    while (text->size) {
        struct slice chunk;
        size_t used;
        if (next_chunk(tok, *text, &chunk, &used, err) < 0)
            return -1;
        if (chunk.size != 1 || chunk.data[0] != ' ')
            break;
        *text = skip(*text, used);
    }
    return 0;
}

int normalize_sentencepiece(const struct norm_work *work, struct slice text, struct buf *out,
                            struct err *err)
{
    const struct tokenizer *tok = work->tok;
    const uint32_t options = work->step->option;
    bool collapse = (options & SENTENCEPIECE_COLLAPSE) != 0, after_space = collapse;
    if (collapse && skip_spaces(tok, &text, err) < 0)
        return -1;
    if (!text.size)
        return 0;
    if (options & SENTENCEPIECE_PREFIX && buf_add(out, mark.data, mark.size, err) < 0)
        return -1;
    while (text.size) {
        struct slice chunk;
        size_t used;
        if (next_chunk(tok, text, &chunk, &used, err) < 0)
            return -1;
        text = skip(text, used);
        while (after_space && chunk.size && chunk.data[0] == ' ')
            chunk = skip(chunk, 1);
        if (add_escaped(chunk, out, err) < 0 || step_check_growth(work->limit, out->len, err) < 0)
            return -1;
        if (collapse && chunk.size)
            after_space = chunk.data[chunk.size - 1] == ' ';
    }
    while (collapse && ends_with_mark(out))
        out->len -= mark.size;
    return 0;
}
