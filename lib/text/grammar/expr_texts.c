/* Lists of texts as trees: sorted, then split at the first byte that differs. */
#include "text/grammar/expr_texts.h"

#include <stdlib.h>
#include <string.h>

#include "text/slice.h"

void expr_texts_end(struct grammar *g, struct expr_texts *t)
{
    if (g->failed)
        return;
    if (mem_grow(&t->end, &t->cap, t->n, sizeof *t->end, &g->why) < 0)
        g->failed = true;
    else
        t->end[t->n++] = t->bytes.len;
}

static int by_bytes(const void *x, const void *y)
{
    const struct slice *a = x, *b = y;
    const size_t n = size_min(a->size, b->size);
    const int order = n ? memcmp(a->data, b->data, n) : 0;
    return order ? order : (a->size > b->size) - (a->size < b->size);
}

/* The rest, from byte `at` on, of sorted texts that are equal before it. */
static expr_id rest_of(struct grammar *g, const struct slice *text, size_t n, size_t at, size_t depth)
{
    enum { MAX_DEPTH = 64 }; /* beyond, texts are not joined */
    const struct slice *first = &text[0], *last = &text[n - 1];
    size_t common = at;
    struct expr_list list = {0};
    while (common < size_min(first->size, last->size) && first->data[common] == last->data[common])
        common++;
    const expr_id start = expr_bytes(g, first->data + at, common - at);
    for (size_t i = 0, end; i < n && !g->failed; i = end) {
        const struct slice *own = &text[i];
        for (end = i + 1; end < n && depth < MAX_DEPTH; end++)
            if ((own->size > common) != (text[end].size > common) ||
                (own->size > common && own->data[common] != text[end].data[common]))
                break;
        expr_list_add(g, &list,
                      own->size == common || depth == MAX_DEPTH
                          ? expr_bytes(g, own->data + common, own->size - common)
                          : rest_of(g, own, end - i, common, depth + 1));
    }
    const expr_id rest = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    return EXPR_SEQ(g, start, rest);
}

expr_id expr_texts(struct grammar *g, struct expr_texts *t)
{
    struct slice *text = mem_alloc(t->n + 1, sizeof *text);
    expr_id id = EXPR_NONE;
    if (!text)
        grammar_no_memory(g, "a list of texts");
    for (size_t i = 0; i < t->n && text; i++) {
        const size_t start = i ? t->end[i - 1] : 0;
        text[i] = (struct slice){buf_text(&t->bytes) + start, t->end[i] - start};
    }
    if (t->n > 1 && text)
        qsort(text, t->n, sizeof *text, by_bytes);
    if (t->n && !g->failed)
        id = rest_of(g, text, t->n, 0, 0);
    free(text);
    free(t->end);
    buf_release(&t->bytes);
    *t = (struct expr_texts){0};
    return id;
}
