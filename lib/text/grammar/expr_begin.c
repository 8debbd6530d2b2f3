/* Expressions that begin with certain characters. Both functions go down to the first character of each alternative;
 * grammars of JSON are not left-recursive, so that this ends. */
#include "text/grammar/expr_begin.h"

#include "text/utf8.h"

enum {
    MAX_DEPTH = 64,
    MAX_STEPS = 1 << 17, /* expressions that are looked at: rules may be used many times */
};

/* What is done with the first character: either it has to be in `set`, or it is `first`, which is left out. */
struct beginning {
    struct grammar *grammar;
    const struct char_class *set; /* NULL: `first` counts */
    char first;
    size_t depth, steps;
};

/* Enters an expression; false: there were too many. */
static bool enter(struct beginning *b)
{
    b->depth++;
    if (++b->steps > MAX_STEPS || b->depth > MAX_DEPTH)
        grammar_fail(b->grammar, "the grammar is nested too deeply, or has too many alternatives");
    return !b->grammar->failed;
}

static bool may_be_empty(struct beginning *b, expr_id id)
{
    const struct grammar *g = b->grammar;
    const struct expr *e = &g->expr[id];
    bool empty =
        e->kind == EXPR_IS_EMPTY || e->kind == EXPR_IS_SEQ || (e->kind == EXPR_IS_REPEAT && !e->min);
    if (!enter(b))
        return false;
    for (size_t i = 0; e->kind == EXPR_IS_SEQ && i < e->b && empty; i++)
        empty = may_be_empty(b, g->list[e->a + i]);
    for (size_t i = 0; e->kind == EXPR_IS_ALT && i < e->b && !empty; i++)
        empty = may_be_empty(b, g->list[e->a + i]);
    if (e->kind == EXPR_IS_REPEAT && !empty)
        empty = may_be_empty(b, e->a);
    if (e->kind == EXPR_IS_RULE)
        empty = may_be_empty(b, g->rule[e->a].body);
    b->depth--;
    return empty;
}

static expr_id begin_class(const struct beginning *b, struct expr e)
{
    struct grammar *g = b->grammar;
    struct char_class both = {0};
    for (size_t i = 0; i < e.b && !g->failed; i++) {
        const struct code_range r = g->range[e.a + i];
        if (!b->set && r.first <= (uint32_t)b->first && (uint32_t)b->first <= r.last)
            return EXPR_EMPTY;
        for (size_t k = 0; b->set && k < b->set->n; k++) {
            const struct code_range *s = &b->set->range[k];
            const uint32_t first = r.first > s->first ? r.first : s->first;
            const uint32_t last = r.last < s->last ? r.last : s->last;
            if (first <= last)
                char_class_add(g, &both, first, last);
        }
    }
    char_class_sort(&both);
    const expr_id id = expr_class(g, both.range, both.n);
    char_class_release(&both);
    return id;
}

static expr_id begin(struct beginning *b, expr_id id);

static expr_id begin_bytes(const struct beginning *b, expr_id id, struct expr e)
{
    const char *bytes = b->grammar->bytes.data + e.a;
    uint32_t code;
    if (b->set) {
        (void)utf8_decode(bytes, &code);
        return char_class_has(b->set, code) ? id : EXPR_NONE;
    }
    struct buf rest = {0};
    if (bytes[0] != b->first)
        return EXPR_NONE;
    if (buf_add(&rest, bytes + 1, e.b - 1, &b->grammar->why) < 0)
        b->grammar->failed = true;
    const expr_id after = expr_bytes(b->grammar, buf_text(&rest), e.b - 1);
    buf_release(&rest);
    return after;
}

/* The members of a sequence from `at` on. */
static expr_id begin_sequence(struct beginning *b, struct expr e, size_t at)
{
    struct grammar *g = b->grammar;
    struct expr_list list = {0};
    if (at == e.b || g->failed)
        return EXPR_NONE;
    const expr_id first = g->list[e.a + at];
    expr_list_add(g, &list, begin(b, first));
    for (size_t i = at + 1; i < e.b; i++)
        expr_list_add(g, &list, g->list[e.a + i]);
    expr_id both[] = {expr_seq(g, list.id, list.n), EXPR_NONE};
    expr_list_release(&list);
    if (may_be_empty(b, first))
        both[1] = begin_sequence(b, e, at + 1);
    return both[0] == EXPR_NONE ? both[1] : expr_alt(g, both, both[1] == EXPR_NONE ? 1 : 2);
}

static expr_id begin_alternatives(struct beginning *b, struct expr e)
{
    struct grammar *g = b->grammar;
    struct expr_list list = {0};
    for (size_t i = 0; i < e.b && !g->failed; i++) {
        const expr_id id = begin(b, g->list[e.a + i]);
        if (id != EXPR_NONE)
            expr_list_add(g, &list, id);
    }
    const expr_id id = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    return id;
}

static expr_id begin(struct beginning *b, expr_id id)
{
    struct grammar *g = b->grammar;
    const struct expr e = g->expr[id];
    expr_id out = EXPR_NONE;
    if (!enter(b))
        return EXPR_NONE;
    switch (e.kind) {
    case EXPR_IS_NONE:
    case EXPR_IS_EMPTY: break;
    case EXPR_IS_BYTES: out = begin_bytes(b, id, e); break;
    case EXPR_IS_CLASS: out = begin_class(b, e); break;
    case EXPR_IS_SEQ: out = begin_sequence(b, e, 0); break;
    case EXPR_IS_ALT: out = begin_alternatives(b, e); break;
    case EXPR_IS_REPEAT:
        out = EXPR_SEQ(
            g, begin(b, e.a),
            expr_repeat(g, e.a, e.min > 1 ? e.min - 1 : 0, e.max == EXPR_MANY ? EXPR_MANY : e.max - 1));
        break;
    case EXPR_IS_RULE: out = begin(b, g->rule[e.a].body); break;
    }
    b->depth--;
    return out;
}

expr_id expr_begin(struct grammar *g, expr_id id, const struct char_class *set)
{
    return begin(&(struct beginning){.grammar = g, .set = set}, id);
}

expr_id expr_after(struct grammar *g, expr_id id, char first)
{
    return begin(&(struct beginning){.grammar = g, .first = first}, id);
}
