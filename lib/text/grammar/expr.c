/* Building grammars from expressions: sets of characters, lists of texts, and texts that begin in a certain way. */
#include "text/grammar/expr.h"

#include <utf8proc.h>

#include "text/slice.h"
#include "text/utf8.h"

/* Largest size of a grammar, in expressions and members of lists. */
enum { GRAMMAR_MAX = 1 << 20 };

/* Appends a value to a list of `n`, or fails. */
#define PUSH(g, list, cap, n, value)                                                                   \
    do {                                                                                               \
        if (!(g)->failed && mem_grow(&(list), &(cap), (n), sizeof *(list), &(g)->why) < 0)             \
            (g)->failed = true;                                                                        \
        if (!(g)->failed)                                                                              \
            (list)[(n)++] = (value);                                                                   \
    } while (0)

static expr_id add_expr(struct grammar *g, const struct expr *expr)
{
    if (g->failed)
        return EXPR_NONE;
    if (g->n_exprs >= GRAMMAR_MAX)
        return grammar_fail(g, "the grammar is too large: it has more than %d expressions",
                            GRAMMAR_MAX);
    PUSH(g, g->expr, g->exprs_cap, g->n_exprs, *expr);
    return g->failed ? EXPR_NONE : (expr_id)g->n_exprs - 1;
}

void grammar_begin(struct grammar *g)
{
    *g = (struct grammar){0};
    add_expr(g, &(struct expr){.kind = EXPR_IS_NONE});
    add_expr(g, &(struct expr){.kind = EXPR_IS_EMPTY});
}

void grammar_release(struct grammar *g)
{
    free(g->expr);
    free(g->list);
    free(g->range);
    free(g->rule);
    free(g->token);
    buf_release(&g->bytes);
    buf_release(&g->names);
    *g = (struct grammar){0};
}

expr_id grammar_fail(struct grammar *g, const char *format, ...)
{
    va_list args;
    if (g->failed)
        return EXPR_NONE;
    va_start(args, format);
    err_vset(&g->why, ERR_FAILED, format, args);
    va_end(args);
    g->failed = true;
    return EXPR_NONE;
}

expr_id grammar_no_memory(struct grammar *g, const char *what)
{
    if (!g->failed)
        err_no_memory(&g->why, "%s", what);
    g->failed = true;
    return EXPR_NONE;
}

expr_id expr_bytes(struct grammar *g, const void *bytes, size_t len)
{
    const size_t at = g->bytes.len;
    if (len == 0)
        return EXPR_EMPTY;
    if (len > GRAMMAR_MAX || at > (size_t)64 * GRAMMAR_MAX)
        return grammar_fail(g, "the grammar is too large: its texts have more than %d bytes",
                            64 * GRAMMAR_MAX);
    if (!g->failed && buf_add(&g->bytes, bytes, len, &g->why) < 0)
        g->failed = true;
    return add_expr(g, &(struct expr){.kind = EXPR_IS_BYTES, .a = (uint32_t)at, .b = (uint32_t)len});
}

expr_id expr_text(struct grammar *g, const char *text) { return expr_bytes(g, text, strlen(text)); }

void expr_token_bytes(uint32_t id, char bytes[EXPR_TOKEN_BYTES + 1])
{
    snprintf(bytes, EXPR_TOKEN_BYTES + 1, "\xff%08x", id);
}

expr_id expr_token(struct grammar *g, uint32_t id)
{
    char bytes[EXPR_TOKEN_BYTES + 1];
    PUSH(g, g->token, g->tokens_cap, g->n_tokens, id);
    expr_token_bytes(id, bytes);
    return expr_bytes(g, bytes, EXPR_TOKEN_BYTES);
}

expr_id expr_class(struct grammar *g, const struct code_range *range, size_t n)
{
    const size_t at = g->n_ranges;
    for (size_t i = 0; i < n && !g->failed; i++) {
        if (g->n_ranges >= (size_t)4 * GRAMMAR_MAX)
            return grammar_fail(g, "the grammar is too large: it has more than %d ranges of characters",
                                4 * GRAMMAR_MAX);
        PUSH(g, g->range, g->ranges_cap, g->n_ranges, range[i]);
    }
    return n ? add_expr(g, &(struct expr){.kind = EXPR_IS_CLASS, .a = (uint32_t)at, .b = (uint32_t)n})
             : EXPR_NONE;
}

expr_id expr_range(struct grammar *g, uint32_t first, uint32_t last)
{
    return expr_class(g, &(struct code_range){first, last}, 1);
}

static expr_id add_list(struct grammar *g, enum expr_kind kind, const expr_id *list, size_t n)
{
    const size_t at = g->n_list;
    for (size_t i = 0; i < n && !g->failed; i++) {
        if (g->n_list >= GRAMMAR_MAX)
            return grammar_fail(g, "the grammar is too large: its lists have more than %d members",
                                GRAMMAR_MAX);
        PUSH(g, g->list, g->list_cap, g->n_list, list[i]);
    }
    return add_expr(g, &(struct expr){.kind = kind, .a = (uint32_t)at, .b = (uint32_t)n});
}

expr_id expr_seq(struct grammar *g, const expr_id *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] == EXPR_NONE)
            return EXPR_NONE;
    return n == 0 ? EXPR_EMPTY : n == 1 ? list[0] : add_list(g, EXPR_IS_SEQ, list, n);
}

expr_id expr_alt(struct grammar *g, const expr_id *list, size_t n)
{
    struct expr_list some = {0};
    for (size_t i = 0; i < n; i++)
        if (list[i] != EXPR_NONE)
            expr_list_add(g, &some, list[i]);
    const expr_id id = some.n == 0   ? EXPR_NONE
                       : some.n == 1 ? some.id[0]
                                     : add_list(g, EXPR_IS_ALT, some.id, some.n);
    expr_list_release(&some);
    return id;
}

static expr_id repeat(struct grammar *g, expr_id id, uint32_t min, uint32_t max)
{
    if (max == 0 || id == EXPR_EMPTY || (id == EXPR_NONE && min == 0))
        return EXPR_EMPTY;
    if (id == EXPR_NONE || (min == 1 && max == 1))
        return id;
    return add_expr(g, &(struct expr){.kind = EXPR_IS_REPEAT, .a = id, .min = min, .max = max});
}

expr_id expr_as_rule(struct grammar *g, expr_id id, const char *name)
{
    if (g->failed || id == EXPR_NONE || g->expr[id].kind == EXPR_IS_RULE)
        return id;
    const uint32_t rule = grammar_add_rule(g, name, strlen(name));
    grammar_set_rule(g, rule, id);
    return expr_rule(g, rule);
}

/* Long repetitions, as repetitions of rules that have BLOCK of the next shorter ones: n digits in base BLOCK. */
enum { LONG_REPEAT = 4096, BLOCK = 256, LEVELS = 4 };

struct blocks {
    expr_id full[LEVELS], upto[LEVELS]; /* BLOCK ^ level times; fewer times than that */
};

static void make_blocks(struct grammar *g, expr_id id, struct blocks *b)
{
    static const char name[] = "repetition";
    b->full[0] = id;
    b->upto[0] = EXPR_EMPTY;
    for (size_t i = 1; i < LEVELS; i++) {
        b->full[i] = expr_as_rule(g, repeat(g, b->full[i - 1], BLOCK, BLOCK), name);
        b->upto[i] =
            expr_as_rule(g, EXPR_SEQ(g, repeat(g, b->full[i - 1], 0, BLOCK - 1), b->upto[i - 1]), name);
    }
}

/* Exactly n times, or up to n times. */
static expr_id repeat_blocks(struct grammar *g, const struct blocks *b, uint32_t n, bool exactly)
{
    expr_id id = EXPR_EMPTY;
    for (size_t i = 0; i < LEVELS; i++) {
        const uint32_t times = i + 1 < LEVELS ? n >> 8 * i & (BLOCK - 1) : n >> 8 * i;
        if (!times)
            continue;
        const expr_id all = EXPR_SEQ(g, repeat(g, b->full[i], times, times), id);
        id = exactly ? all
                     : EXPR_ALT(g, all, EXPR_SEQ(g, repeat(g, b->full[i], 0, times - 1), b->upto[i]));
    }
    return id;
}

expr_id expr_repeat(struct grammar *g, expr_id id, uint32_t min, uint32_t max)
{
    struct blocks b;
    if (g->failed || g->flat || id <= EXPR_EMPTY ||
        (min <= LONG_REPEAT && (max == EXPR_MANY || max <= LONG_REPEAT || max < min)))
        return repeat(g, id, min, max);
    make_blocks(g, id, &b);
    return EXPR_SEQ(g, repeat_blocks(g, &b, min, true),
                    max == EXPR_MANY ? repeat(g, id, 0, EXPR_MANY)
                                     : repeat_blocks(g, &b, max - min, false));
}

expr_id expr_rule(struct grammar *g, uint32_t rule)
{
    return add_expr(g, &(struct expr){.kind = EXPR_IS_RULE, .a = rule});
}

uint32_t grammar_add_rule(struct grammar *g, const char *name, size_t len)
{
    const size_t at = g->names.len;
    if (g->failed)
        return 0;
    if (g->n_rules >= GRAMMAR_MAX / 4) {
        grammar_fail(g, "the grammar is too large: it has more than %d rules", GRAMMAR_MAX / 4);
        return 0;
    }
    if (buf_add(&g->names, name, len, &g->why) < 0 || buf_add(&g->names, "", 1, &g->why) < 0)
        g->failed = true;
    PUSH(g, g->rule, g->rules_cap, g->n_rules, ((struct grammar_rule){EXPR_NONE, at}));
    return g->failed ? 0 : (uint32_t)g->n_rules - 1;
}

void grammar_set_rule(struct grammar *g, uint32_t rule, expr_id body)
{
    if (!g->failed)
        g->rule[rule].body = body;
}

const char *grammar_rule_name(const struct grammar *g, uint32_t rule)
{
    return g->names.data + g->rule[rule].name;
}

void expr_list_add(struct grammar *g, struct expr_list *list, expr_id id)
{
    PUSH(g, list->id, list->cap, list->n, id);
}

expr_id expr_list_seq(struct grammar *g, struct expr_list *list)
{
    const expr_id id = expr_seq(g, list->id, list->n);
    expr_list_release(list);
    return id;
}

expr_id expr_list_alt(struct grammar *g, struct expr_list *list)
{
    const expr_id id = expr_alt(g, list->id, list->n);
    expr_list_release(list);
    return id;
}

void expr_list_release(struct expr_list *list)
{
    free(list->id);
    *list = (struct expr_list){0};
}

/* ---- sets of characters ---- */

void char_class_add(struct grammar *g, struct char_class *set, uint32_t first, uint32_t last)
{
    PUSH(g, set->range, set->cap, set->n, ((struct code_range){first, last}));
}

static int by_first(const void *a, const void *b)
{
    const struct code_range *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

void char_class_sort(struct char_class *set)
{
    size_t n = 0;
    if (set->n > 1)
        qsort(set->range, set->n, sizeof *set->range, by_first);
    for (size_t i = 0; i < set->n; i++)
        if (n && set->range[i].first <= set->range[n - 1].last + 1) {
            if (set->range[i].last > set->range[n - 1].last)
                set->range[n - 1].last = set->range[i].last;
        } else {
            set->range[n++] = set->range[i];
        }
    set->n = n;
}

void char_class_negate(struct grammar *g, struct char_class *set)
{
    struct char_class rest = {0};
    uint32_t from = 0;
    char_class_sort(set);
    for (size_t i = 0; i < set->n; i++) {
        if (set->range[i].first > from)
            char_class_add(g, &rest, from, set->range[i].first - 1);
        from = set->range[i].last + 1;
    }
    if (from <= CODE_MAX)
        char_class_add(g, &rest, from, CODE_MAX);
    char_class_release(set);
    *set = rest;
}

void char_class_meet(struct grammar *g, struct char_class *set, const struct code_range *a, size_t n_a,
                     const struct code_range *b, size_t n_b)
{
    for (size_t i = 0; i < n_a; i++)
        for (size_t k = 0; k < n_b; k++) {
            const uint32_t first = a[i].first > b[k].first ? a[i].first : b[k].first;
            const uint32_t last = a[i].last < b[k].last ? a[i].last : b[k].last;
            if (first <= last)
                char_class_add(g, set, first, last);
        }
}

expr_id char_class_expr(struct grammar *g, struct char_class *set)
{
    char_class_sort(set);
    const expr_id id = g->failed ? EXPR_NONE : expr_class(g, set->range, set->n);
    char_class_release(set);
    return id;
}

bool char_class_has(const struct char_class *set, uint32_t code)
{
    size_t lo = 0, hi = set->n;
    while (lo < hi) {
        const size_t mid = (lo + hi) / 2;
        if (set->range[mid].last < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo < set->n && set->range[lo].first <= code;
}

void char_class_release(struct char_class *set)
{
    free(set->range);
    *set = (struct char_class){0};
}

/* Adds all decimal digits of Unicode. */
static void add_digits(struct grammar *g, struct char_class *set)
{
    for (uint32_t code = 0x80; code < 0x20000; code++)
        if (utf8proc_category((utf8proc_int32_t)code) == UTF8PROC_CATEGORY_ND)
            char_class_add(g, set, code, code);
}

void char_class_add_shorthand(struct grammar *g, struct char_class *set, char letter, bool wide)
{
    static const struct code_range spaces[] = {{0x1c, 0x1f},     {0x85, 0x85},     {0xa0, 0xa0},
                                               {0x1680, 0x1680}, {0x180e, 0x180e}, {0x2000, 0x200b},
                                               {0x2028, 0x2029}, {0x202f, 0x202f}, {0x205f, 0x205f},
                                               {0x3000, 0x3000}, {0xfeff, 0xfeff}};
    switch (letter) {
    case 's':
        char_class_add(g, set, '\t', '\r');
        char_class_add(g, set, ' ', ' ');
        for (size_t i = 0; i < ARRAY_LEN(spaces) && wide; i++)
            char_class_add(g, set, spaces[i].first, spaces[i].last);
        break;
    case 'w':
        char_class_add(g, set, '0', '9');
        char_class_add(g, set, 'A', 'Z');
        char_class_add(g, set, '_', '_');
        char_class_add(g, set, 'a', 'z');
        if (wide)
            char_class_add(g, set, 0x80, CODE_MAX); /* dialects differ too much */
        break;
    default:
        char_class_add(g, set, '0', '9');
        if (wide)
            add_digits(g, set);
        break;
    }
}

/* ---- lists of texts as trees: sorted, then split at the first byte that differs ---- */

void expr_texts_end(struct grammar *g, struct expr_texts *t)
{
    PUSH(g, t->end, t->cap, t->n, t->bytes.len);
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
    const expr_id rest = expr_list_alt(g, &list);
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

/* Expressions that begin with certain characters. Both functions go down to the first character of each alternative;
 * grammars of JSON are not left-recursive, so that this ends. */

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
static bool enter_expr(struct beginning *b)
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
    if (!enter_expr(b))
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
    for (size_t i = 0; i < e.b && !b->set; i++)
        if (g->range[e.a + i].first <= (uint32_t)b->first &&
            (uint32_t)b->first <= g->range[e.a + i].last)
            return EXPR_EMPTY;
    if (b->set)
        char_class_meet(g, &both, &g->range[e.a], e.b, b->set->range, b->set->n);
    return char_class_expr(g, &both);
}

static expr_id expr_beginning(struct beginning *b, expr_id id);

static expr_id begin_bytes(const struct beginning *b, expr_id id, struct expr e)
{
    const char *bytes = b->grammar->bytes.data + e.a;
    uint32_t code;
    if (b->set) {
        (void)utf8_decode(bytes, &code);
        return char_class_has(b->set, code) ? id : EXPR_NONE;
    }
    AUTO(buf_release) struct buf rest = {0};
    if (bytes[0] != b->first)
        return EXPR_NONE;
    if (buf_add(&rest, bytes + 1, e.b - 1, &b->grammar->why) < 0)
        b->grammar->failed = true;
    const expr_id after = expr_bytes(b->grammar, buf_text(&rest), e.b - 1);
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
    expr_list_add(g, &list, expr_beginning(b, first));
    for (size_t i = at + 1; i < e.b; i++)
        expr_list_add(g, &list, g->list[e.a + i]);
    const expr_id whole = expr_list_seq(g, &list);
    return EXPR_ALT(g, whole, may_be_empty(b, first) ? begin_sequence(b, e, at + 1) : EXPR_NONE);
}

static expr_id begin_alternatives(struct beginning *b, struct expr e)
{
    struct grammar *g = b->grammar;
    struct expr_list list = {0};
    for (size_t i = 0; i < e.b && !g->failed; i++)
        expr_list_add(g, &list, expr_beginning(b, g->list[e.a + i]));
    return expr_list_alt(g, &list);
}

static expr_id expr_beginning(struct beginning *b, expr_id id)
{
    struct grammar *g = b->grammar;
    const struct expr e = g->expr[id];
    expr_id out = EXPR_NONE;
    if (!enter_expr(b))
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
            g, expr_beginning(b, e.a),
            expr_repeat(g, e.a, e.min > 1 ? e.min - 1 : 0, e.max == EXPR_MANY ? EXPR_MANY : e.max - 1));
        break;
    case EXPR_IS_RULE: out = expr_beginning(b, g->rule[e.a].body); break;
    }
    b->depth--;
    return out;
}

expr_id expr_begin(struct grammar *g, expr_id id, const struct char_class *set)
{
    return expr_beginning(&(struct beginning){.grammar = g, .set = set}, id);
}

expr_id expr_after(struct grammar *g, expr_id id, char first)
{
    return expr_beginning(&(struct beginning){.grammar = g, .first = first}, id);
}
