/* Constraints as users write them, masks of allowed tokens, and compiled constraints that are kept. */
#include "text/constrain/constraint.h"

#include "base/hash.h"
#include "text/constrain/automaton.h"
#include "text/grammar/expr.h"
#include "text/grammar/gbnf.h"
#include "text/grammar/json_schema.h"
#include "text/grammar/regex.h"
#include "text/grammar/structure.h"

/* ---- reads constraints of all kinds ---- */

enum { CONSTRAINTS_IDLE = 16 }; /* unused constraints that are kept */

/* Reads a value of JSON, and makes a grammar of it. */
static void parse_json(struct grammar *g, const char *text, size_t len,
                       void parse(struct grammar *g, const json_t *value))
{
    AUTO(json_auto) json_t *value = NULL;
    json_error_t why;
    if ((value = json_load(text, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &why)))
        parse(g, value);
    else if (json_error_code(&why) == json_error_out_of_memory)
        grammar_no_memory(g, "a JSON Schema");
    else
        grammar_fail(g, "JSON Schema: not valid JSON at line %d, column %d: %s", why.line, why.column,
                     why.text);
}

static void parse_schema(struct grammar *g, const char *text, size_t len)
{
    parse_json(g, text, len, json_schema_parse);
}

static void parse_structure(struct grammar *g, const char *text, size_t len)
{
    parse_json(g, text, len, structure_parse);
}

static void set_root(struct grammar *g, expr_id body)
{
    g->root = grammar_add_rule(g, "root", 4);
    grammar_set_rule(g, g->root, body);
}

static void parse_object(struct grammar *g, const char *text, size_t len)
{
    (void)text, (void)len;
    set_root(g, json_any_object(&(struct json_grammar){.grammar = g}));
}

static void parse_regex(struct grammar *g, const char *text, size_t len)
{
    struct json_grammar json = {.grammar = g};
    set_root(g, regex_parse(&json, text, len, REGEX_WHOLE));
}

static void parse_choice(struct grammar *g, const char *text, size_t len)
{
    struct expr_texts list = {0};
    AUTO(json_auto) json_t *choices = NULL;
    if (json_parse(text, len, "choice", &choices, &g->why) < 0)
        g->failed = true;
    for (size_t i = 0; i < json_array_size(choices); i++) {
        const json_t *choice = json_array_get(choices, i);
        if (!g->failed &&
            buf_add(&list.bytes, json_string_value(choice), json_string_length(choice), &g->why) < 0)
            g->failed = true;
        expr_texts_end(g, &list);
        if (!json_string_length(choice))
            grammar_fail(g, "alternative %zu of the choice is empty", i + 1);
    }
    if (!list.n)
        grammar_fail(g, "the choice has no alternatives");
    set_root(g, expr_texts(g, &list));
}

int constraint_source_parse(struct grammar *grammar, enum constraint_kind kind, const char *text,
                            size_t len, struct err *err)
{
    static void (*const parse[])(struct grammar *, const char *, size_t) = {
        [CONSTRAINT_JSON_SCHEMA] = parse_schema, [CONSTRAINT_JSON_OBJECT] = parse_object,
        [CONSTRAINT_GRAMMAR] = gbnf_parse,       [CONSTRAINT_REGEX] = parse_regex,
        [CONSTRAINT_CHOICE] = parse_choice,      [CONSTRAINT_STRUCTURE] = parse_structure,
    };
    grammar_begin(grammar);
    if (kind == CONSTRAINT_NONE)
        grammar_fail(grammar, "there is no constraint");
    else
        parse[kind](grammar, text, len);
    *err = grammar->why;
    return grammar->failed ? -1 : 0;
}

int constraint_split_choice(const char *text, struct buf *out, struct err *err)
{
    AUTO(json_auto) json_t *list = json_array();
    AUTO(buf_release) struct buf part = {0};
    int rc = list ? 0 : err_no_memory(err, "choices");
    for (const char *c = text; rc == 0; c++) {
        if (*c && *c != '|') {
            c += *c == '\\' && (c[1] == '|' || c[1] == '\\');
            rc = buf_add(&part, c, 1, err);
            continue;
        }
        rc = json_push(list, json_stringn(buf_text(&part), part.len), err);
        buf_clear(&part);
        if (!*c)
            break;
    }
    return rc < 0 ? -1 : json_append(list, JSON_COMPACT, out, err);
}

/* Masks of allowed tokens.
 *
 * In a state with the items (local state, frame), a token is allowed if one of them allows it. What a
 * local state allows without regard to its frame is computed once, as are the tokens' prefixes at
 * which its rule may end. From these, for each frame, the rest of the tokens is tried in the rules to
 * return to: few tokens, as most prefixes are long. */

/* Memory of local masks at which they are forgotten, and the longest time for a mask, in steps of the automaton. */
#define LOCAL_BYTES   ((size_t)48 << 20)
#define WORK_PER_MASK ((size_t)1 << 30)
/* Of automata with many states, masks along some texts are computed before one is generated: their longest time. */
#define WORK_AHEAD ((size_t)160 << 20)
enum {
    MANY_STATES = 2048,
    TEXTS_AHEAD = 3,
    STEPS_AHEAD = 16,
    RUN_STEPS = 24,      /* longest run of states that is looked at */
    ENDLESS = UINT16_MAX /* run length of a state that leads to itself */
};

/* What a local state allows, whatever its frame. */
struct local_mask {
    uint32_t *ids; /* allowed tokens: n_ids of them, or a bit mask of all */
    uint64_t *bits;
    uint32_t *ends; /* trie nodes where the rule may have ended */
    size_t n_ids, n_ends, bytes;
};

/* Characters after which a state leads to one other state, which does the same, and so on. */
struct token_run {
    uint64_t groups; /* of vocab_trie.groups */
    uint32_t to;     /* the state after one of these characters; AUTOMATON_DEAD: there is no run */
    uint16_t steps;  /* number of characters of these groups that are allowed */
    bool known, steps_known;
    bool closed;  /* no more than `steps` of them are allowed */
    bool returns; /* the rule may have ended after some of them */
};

/* A node on the path of a walk: its children that are still to come, and the state there. */
struct walk_level {
    uint32_t child, end, state;
};

/* Ranges of tokens, by their rank in vocab_trie.order. */
struct span_list {
    struct span *span;
    size_t n, cap, total;
};

struct constraint {
    struct automaton automaton;
    const struct vocab_trie *trie;
    struct local_mask **local; /* [local states] */
    size_t local_cap, local_bytes;
    struct token_run *run; /* [states] */
    size_t run_cap;
    struct constraint_cursor **cursor;
    size_t n_cursors, cursors_cap;
    struct walk_level level[TRIE_TOKEN_BYTES + 1];
    struct span_list spans;
    uint32_t *ends;
    size_t n_ends, ends_cap;
    uint64_t *all; /* mask of all tokens of the trie */
    /* Tokens that the grammar names, which are read as bytes that no text has. */
    struct named_token {
        uint32_t id;
        char bytes[EXPR_TOKEN_BYTES + 1];
    } * named;
    size_t n_named;
    struct marker_crossings {
        char *marker;
        struct crossing *crossing;
        size_t n, cap;
    } * marker;
    size_t n_markers, markers_cap;
    struct constraint_stats stats;
};

size_t constraint_mask_words(const struct constraint *c) { return div_up(c->trie->vocab, 64); }

static void forget_local(struct constraint *c)
{
    for (size_t i = 0; i < c->local_cap; i++) {
        struct local_mask *m = c->local[i];
        if (!m)
            continue;
        free(m->ids);
        free(m->bits);
        free(m->ends);
        free(m);
        c->local[i] = NULL;
    }
    c->local_bytes = 0;
}

void constraint_close(struct constraint *c)
{
    if (!c)
        return;
    forget_local(c);
    for (size_t i = 0; i < c->n_cursors; i++)
        c->cursor[i]->constraint = NULL;
    free(c->local);
    free(c->run);
    free(c->cursor);
    free(c->spans.span);
    free(c->ends);
    free(c->all);
    free(c->named);
    for (size_t i = 0; i < c->n_markers; i++) {
        free(c->marker[i].marker);
        free(c->marker[i].crossing);
    }
    free(c->marker);
    automaton_close(&c->automaton);
    free(c);
}

/* ---- cursors ---- */

void constraint_end(struct constraint_cursor *cursor)
{
    struct constraint *c = cursor->constraint;
    if (c) {
        c->cursor[cursor->index] = c->cursor[--c->n_cursors];
        c->cursor[cursor->index]->index = cursor->index;
    }
    *cursor = (struct constraint_cursor){0};
}

/* Whether all went well so far; from a failure on, all states are dead. */
static int outcome(const struct constraint *c, struct err *err)
{
    if (!c->automaton.failed)
        return 0;
    *err = c->automaton.why;
    return -1;
}

int constraint_begin(struct constraint_cursor *cursor, struct constraint *c, struct err *err)
{
    constraint_end(cursor);
    if (!c)
        return 0;
    (void)HOLD(&c->automaton, c->cursor, c->cursors_cap, c->n_cursors + 1);
    const uint32_t state = automaton_start(&c->automaton);
    if (outcome(c, err) < 0)
        return -1;
    *cursor = (struct constraint_cursor){c, state, c->n_cursors};
    c->cursor[c->n_cursors++] = cursor;
    return 0;
}

void constraint_set(struct constraint_cursor *cursor, uint32_t state) { cursor->state = state; }

/* Forgets states that no cursor is in. */
static int collect(struct constraint *c, struct err *err)
{
    uint32_t **state = mem_alloc(c->n_cursors, sizeof *state);
    if (!state)
        return err_no_memory(err, "a constraint");
    for (size_t i = 0; i < c->n_cursors; i++)
        state[i] = &c->cursor[i]->state;
    const int rc = automaton_collect(&c->automaton, state, c->n_cursors, err);
    free(state);
    forget_local(c);
    for (size_t i = 0; i < c->run_cap; i++)
        c->run[i] = (struct token_run){0};
    return rc;
}

/* The bytes that the automaton reads for a token. */
static const char *token_text(const struct constraint *c, uint32_t token, size_t *len)
{
    *len = EXPR_TOKEN_BYTES;
    for (size_t i = 0; i < c->n_named; i++)
        if (c->named[i].id == token)
            return c->named[i].bytes;
    return vocab_trie_text(c->trie, token, len);
}

static uint32_t step_over(struct constraint *c, uint32_t state, const char *bytes, size_t len)
{
    c->automaton.work = 0;
    for (size_t i = 0; i < len && state != CONSTRAINT_DEAD; i++)
        state = automaton_step(&c->automaton, state, (uint8_t)bytes[i]);
    return state;
}

uint32_t constraint_next(struct constraint *c, uint32_t state, uint32_t token)
{
    size_t len;
    const char *text = token_text(c, token, &len);
    return len == 0 || len > TRIE_TOKEN_BYTES ? CONSTRAINT_DEAD : step_over(c, state, text, len);
}

uint32_t constraint_after(struct constraint *c, const char *bytes, size_t len)
{
    return step_over(c, automaton_start(&c->automaton), bytes, len);
}

int constraint_advance(struct constraint_cursor *cursor, uint32_t token, struct err *err)
{
    struct constraint *c = cursor->constraint;
    const uint32_t state = constraint_next(c, cursor->state, token);
    if (outcome(c, err) < 0)
        return -1;
    if (state == CONSTRAINT_DEAD)
        return err_set(err, "token %u is not allowed by the constraint", token);
    cursor->state = state;
    return automaton_is_full(&c->automaton) ? collect(c, err) : 0;
}

bool constraint_failed(const struct constraint *c) { return c->automaton.failed; }

bool constraint_accepts(const struct constraint *c, uint32_t state)
{
    return automaton_accepts(&c->automaton, state);
}

bool constraint_is_complete(struct constraint *c, uint32_t state)
{
    const struct nfa *nfa = &c->automaton.nfa;
    if (!constraint_accepts(c, state))
        return false;
    c->automaton.work = 0;
    for (size_t cls = 0; cls < nfa->classes; cls++)
        if (automaton_step(&c->automaton, state, nfa->any[cls]) != CONSTRAINT_DEAD)
            return false;
    return true;
}

/* ---- markers, behind which constrained text begins ---- */

size_t marker_match(const char *marker, size_t matched, char byte)
{
    while (matched && marker[matched] != byte) {
        size_t shorter = matched - 1;
        while (shorter && memcmp(marker, marker + matched - shorter, shorter) != 0)
            shorter--;
        matched = shorter;
    }
    return matched + (marker[matched] == byte);
}

/* Notes a token that crosses the end of a marker, for each beginning of it from which the token does. */
static int find_crossings(struct constraint *c, struct marker_crossings *m, uint32_t id,
                          const struct buf *text, struct err *err)
{
    const size_t whole = strlen(m->marker);
    for (size_t from = 0; from < whole; from++) {
        size_t at = 0, matched = from;
        while (at < text->len && matched < whole)
            matched = marker_match(m->marker, matched, text->data[at++]);
        if (matched < whole || at == text->len ||
            constraint_after(c, text->data + at, text->len - at) != CONSTRAINT_DEAD)
            continue;
        if (mem_grow(&m->crossing, &m->cap, m->n, sizeof *m->crossing, err) < 0)
            return -1;
        m->crossing[m->n++] = (struct crossing){id, (uint16_t)from};
    }
    return outcome(c, err);
}

/* Looks through the vocabulary for them. */
static int find_all_crossings(struct constraint *c, struct marker_crossings *m,
                              const struct tokenizer *tok, struct err *err)
{
    const size_t vocab = size_min(c->trie->vocab, tokenizer_vocab(tok));
    const char last = m->marker[strlen(m->marker) - 1];
    AUTO(buf_release) struct buf piece = {0};
    for (uint32_t id = 0; id < vocab; id++) {
        buf_clear(&piece);
        if (tokenizer_piece(tok, id, &piece, err) < 0)
            return -1;
        const char *at = piece.len ? memchr(piece.data, last, piece.len) : NULL;
        if (at && at + 1 < piece.data + piece.len && find_crossings(c, m, id, &piece, err) < 0)
            return -1;
    }
    return 0;
}

int constraint_crossings(struct constraint *c, const char *marker, const struct tokenizer *tok,
                         const struct crossing **crossing, size_t *n, struct err *err)
{
    size_t i = 0;
    while (i < c->n_markers && strcmp(c->marker[i].marker, marker) != 0)
        i++;
    if (i == c->n_markers) {
        struct marker_crossings m = {.marker = strdup(marker)};
        if (!m.marker)
            return err_no_memory(err, "a marker");
        if (find_all_crossings(c, &m, tok, err) < 0 ||
            mem_grow(&c->marker, &c->markers_cap, i, sizeof *c->marker, err) < 0) {
            free(m.marker);
            free(m.crossing);
            return -1;
        }
        c->marker[c->n_markers++] = m;
    }
    *crossing = c->marker[i].crossing;
    *n = c->marker[i].n;
    return 0;
}

/* ---- walking through the trie ---- */

static void add_span(struct constraint *c, size_t start, size_t end)
{
    struct span_list *s = &c->spans;
    s->total += end - start;
    if (s->n && s->span[s->n - 1].end == start)
        s->span[s->n - 1].end = end;
    else if (start < end && HOLD(&c->automaton, s->span, s->cap, s->n + 1))
        s->span[s->n++] = (struct span){start, end};
}

/* The state that all bytes of a range lead to; AUTOMATON_DEAD if they lead to different ones. */
static uint32_t state_after_any(struct automaton *a, uint32_t state, uint8_t first, uint8_t last)
{
    const uint32_t to = automaton_step(a, state, first);
    for (unsigned b = first; b <= last; b++)
        if (automaton_step(a, state, (uint8_t)b) != to)
            return AUTOMATON_DEAD;
    return to;
}

/* True if every character but ASCII ones leads from one state to the other. */
static bool others_lead_to(struct automaton *a, uint32_t state, uint32_t to)
{
    for (unsigned byte = 0x80; byte <= 0xff; byte++) {
        struct utf8_rest rest;
        if (!utf8_rest_begin((uint8_t)byte, &rest))
            continue;
        uint32_t at = automaton_step(a, state, (uint8_t)byte);
        for (; rest.n && at != AUTOMATON_DEAD;
             rest = (struct utf8_rest){0x80, 0xbf, (uint8_t)(rest.n - 1)})
            at = state_after_any(a, at, rest.first, rest.last);
        if (at != to)
            return false;
    }
    return true;
}

/* The state that most groups of characters lead to, and these groups. */
static struct token_run find_run(struct automaton *a, uint32_t state)
{
    const uint8_t *group = vocab_trie_groups();
    uint32_t to[TRIE_ASCII] = {0};
    bool whole[TRIE_ASCII], seen[TRIE_ASCII] = {false};
    struct token_run best = {.known = true};
    size_t most = 0;
    for (size_t b = 0; b < 128; b++) {
        const uint32_t next = automaton_step(a, state, (uint8_t)b);
        const size_t g = group[b];
        whole[g] = !seen[g] || (whole[g] && to[g] == next);
        seen[g] = true;
        to[g] = next;
    }
    for (size_t g = 0; g < TRIE_ASCII; g++) {
        uint64_t groups = 0;
        size_t n = 0;
        for (size_t h = 0; h < TRIE_ASCII && to[g] != AUTOMATON_DEAD; h++)
            if (seen[h] && whole[h] && to[h] == to[g]) {
                groups |= (uint64_t)1 << h;
                n++;
            }
        if (n > most) {
            most = n;
            best.groups = groups;
            best.to = to[g];
        }
    }
    if (most && others_lead_to(a, state, best.to))
        best.groups |= (uint64_t)1 << TRIE_OTHER;
    return best;
}

/* find_run(), remembered; NULL: failed. */
static const struct token_run *run_of(struct constraint *c, uint32_t state)
{
    if (!HOLD(&c->automaton, c->run, c->run_cap, (size_t)state + 1))
        return NULL;
    if (!c->run[state].known)
        c->run[state] = find_run(&c->automaton, state);
    return &c->run[state];
}

/* True if no character of the groups is allowed in a state. */
static bool excludes(struct automaton *a, uint32_t state, uint64_t groups)
{
    const uint8_t *group = vocab_trie_groups();
    for (unsigned b = 0; b < 256; b++)
        if (groups >> (b < 128 ? group[b] : TRIE_OTHER) & 1 &&
            automaton_step(a, state, (uint8_t)b) != AUTOMATON_DEAD)
            return false;
    return true;
}

/* Sets the length of a state's run, as far as RUN_STEPS. */
static void measure_run(struct constraint *c, uint32_t state)
{
    const struct token_run *run = run_of(c, state);
    const uint64_t groups = run ? run->groups : 0;
    uint32_t at = state;
    uint16_t steps = 0;
    bool returns = false;
    for (; steps < RUN_STEPS && (run = run_of(c, at)); steps++) {
        if (run->to == AUTOMATON_DEAD || (run->groups & groups) != groups)
            break;
        if (run->to == at) {
            steps = ENDLESS;
            break;
        }
        at = run->to;
        returns |= automaton_returned(&c->automaton, at);
    }
    const bool closed = groups && steps < RUN_STEPS && excludes(&c->automaton, at, groups);
    if (c->automaton.failed)
        return;
    struct token_run *known = &c->run[state];
    known->steps = steps;
    known->returns = returns;
    known->closed = closed;
    known->steps_known = true;
}

/* Which tokens below a node are allowed, as far as it is known without walking through them. */
enum below { BELOW_UNKNOWN, BELOW_ALL, BELOW_SHORT /* those of no more characters than the run */ };

static enum below look_below(struct constraint *c, uint32_t state, const struct trie_node *node,
                             bool ends)
{
    if (c->run_cap <= state || !c->run[state].steps_known)
        measure_run(c, state);
    if (c->automaton.failed)
        return BELOW_ALL;
    const struct token_run *run = &c->run[state];
    return node->groups & ~run->groups              ? BELOW_UNKNOWN
           : node->below <= run->steps              ? BELOW_ALL
           : run->closed && !(ends && run->returns) ? BELOW_SHORT
                                                    : BELOW_UNKNOWN;
}

/* Adds the tokens that begin with a node's bytes and have up to `most` characters more. */
static void add_short(struct constraint *c, const struct trie_node *node, size_t most)
{
    const uint16_t *chars = c->trie->chars;
    for (size_t r = node->first; r < node->last; r++) {
        const size_t start = r;
        while (r < node->last && chars[r] <= node->chars + most)
            r++;
        add_span(c, start, r);
    }
}

/* Visits a node that is reached in `state`: adds its tokens, and says what is known of those below. */
static enum below visit_node(struct constraint *c, uint32_t n, uint32_t state, bool ends)
{
    const struct trie_node *node = &c->trie->node[n];
    const enum below below = node->n_children ? look_below(c, state, node, ends) : BELOW_ALL;
    if (ends && below != BELOW_ALL && automaton_returned(&c->automaton, state) &&
        HOLD(&c->automaton, c->ends, c->ends_cap, c->n_ends + 1))
        c->ends[c->n_ends++] = n;
    if (below == BELOW_SHORT)
        add_short(c, node, c->run[state].steps);
    else
        add_span(c, node->first, below == BELOW_ALL ? node->last : c->trie->node[node->child].first);
    return below;
}

static struct walk_level level_of(const struct trie_node *node, uint32_t state)
{
    return (struct walk_level){node->child, node->child + node->n_children, state};
}

/* Adds to c->spans the tokens below `top` that are allowed after `state`, which is reached there.
 * With `ends`, notes the nodes where the rule may have ended in c->ends. */
static void walk_vocabulary(struct constraint *c, uint32_t top, uint32_t state, bool ends)
{
    const struct trie_node *node = c->trie->node;
    struct automaton *a = &c->automaton;
    size_t levels = 1;
    c->level[0] = level_of(&node[top], state);
    while (levels > 0 && !a->failed) {
        struct walk_level *level = &c->level[levels - 1];
        if (level->child == level->end) {
            levels--;
            continue;
        }
        const uint32_t n = level->child++;
        const uint32_t next = automaton_step(a, level->state, node[n].byte);
        if (next != AUTOMATON_DEAD && visit_node(c, n, next, ends) == BELOW_UNKNOWN)
            c->level[levels++] = level_of(&node[n], next);
    }
}

/* ---- masks ---- */

static void set_bits(const struct constraint *c, uint64_t *mask)
{
    const uint32_t *order = c->trie->order;
    for (size_t i = 0; i < c->spans.n; i++)
        for (size_t r = c->spans.span[i].start; r < c->spans.span[i].end; r++)
            mask[order[r] / 64] |= (uint64_t)1 << order[r] % 64;
}

/* Sets an empty mask to the tokens of c->spans, which are in ascending order. */
static void set_mask(const struct constraint *c, uint64_t *mask)
{
    const uint32_t *order = c->trie->order;
    size_t at = 0;
    if (c->spans.total <= c->trie->n_order / 2) {
        set_bits(c, mask);
        return;
    }
    memcpy(mask, c->all, constraint_mask_words(c) * sizeof *mask);
    for (size_t i = 0; i <= c->spans.n; i++) {
        const size_t to = i < c->spans.n ? c->spans.span[i].start : c->trie->n_order;
        for (; at < to; at++)
            mask[order[at] / 64] &= ~((uint64_t)1 << order[at] % 64);
        at = i < c->spans.n ? c->spans.span[i].end : at;
    }
}

/* Stores the results of a walk. */
static int fill_local(struct constraint *c, struct local_mask *m)
{
    const size_t words = constraint_mask_words(c);
    size_t n = 0;
    m->ends = mem_alloc(c->n_ends + 1, sizeof *m->ends);
    if (c->spans.total * 2 <= words)
        m->ids = mem_alloc(c->spans.total + 1, sizeof *m->ids);
    else
        m->bits = mem_zalloc(words, sizeof *m->bits);
    if (!m->ends || (!m->ids && !m->bits))
        return -1;
    if (c->n_ends)
        memcpy(m->ends, c->ends, c->n_ends * sizeof *m->ends);
    m->n_ends = c->n_ends;
    for (size_t i = 0; i < c->spans.n && m->ids; i++)
        for (size_t r = c->spans.span[i].start; r < c->spans.span[i].end; r++)
            m->ids[n++] = c->trie->order[r];
    m->n_ids = n;
    if (m->bits)
        set_mask(c, m->bits);
    m->bytes = sizeof *m + m->n_ends * sizeof *m->ends +
               (m->bits ? words * sizeof *m->bits : n * sizeof *m->ids);
    return 0;
}

static void compute_local(struct constraint *c, uint32_t local)
{
    const uint32_t state = automaton_inside(&c->automaton, local);
    c->spans.n = c->spans.total = c->n_ends = 0;
    c->stats.local_masks++;
    walk_vocabulary(c, 0, state, true);
    if (c->local_bytes > LOCAL_BYTES)
        forget_local(c);
    if (!HOLD(&c->automaton, c->local, c->local_cap, (size_t)local + 1))
        return;
    struct local_mask *m = c->local[local] = mem_zalloc(1, sizeof *m);
    if (!m || fill_local(c, m) < 0) {
        c->automaton.failed = true;
        err_no_memory(&c->automaton.why, "the tokens of a constraint");
        return;
    }
    c->local_bytes += m->bytes;
}

/* Adds to a mask the tokens that an item of a state allows. */
static void add_item_tokens(struct constraint *c, const struct automaton_item *item, uint64_t *mask)
{
    const size_t words = constraint_mask_words(c);
    if (c->local_cap <= item->local || !c->local[item->local])
        compute_local(c, item->local);
    if (c->automaton.failed)
        return;
    const struct local_mask *m = c->local[item->local];
    for (size_t i = 0; i < words && m->bits; i++)
        mask[i] |= m->bits[i];
    for (size_t i = 0; i < m->n_ids; i++)
        mask[m->ids[i] / 64] |= (uint64_t)1 << m->ids[i] % 64;
    const uint32_t after = m->n_ends ? automaton_return(&c->automaton, item->frame) : AUTOMATON_DEAD;
    c->spans.n = c->spans.total = 0;
    for (size_t i = 0; i < m->n_ends && after != AUTOMATON_DEAD; i++)
        walk_vocabulary(c, m->ends[i], after, false);
    set_bits(c, mask);
}

int constraint_mask(struct constraint *c, uint32_t state, uint64_t *mask, struct err *err)
{
    size_t n = 1;
    memset(mask, 0, constraint_mask_words(c) * sizeof *mask);
    c->automaton.work = 0;
    c->stats.masks++;
    for (size_t i = 0; i < n && !c->automaton.failed; i++) {
        const struct automaton_item *items = automaton_items(&c->automaton, state, &n);
        if (i < n) {
            const struct automaton_item item = items[i];
            add_item_tokens(c, &item, mask);
        }
    }
    for (size_t i = 0; i < c->n_named; i++) {
        const uint32_t id = c->named[i].id;
        const uint64_t bit = (uint64_t)1 << id % 64;
        mask[id / 64] &= ~bit;
        mask[id / 64] |= constraint_next(c, state, id) == CONSTRAINT_DEAD ? 0 : bit;
    }
    return outcome(c, err);
}

/* ---- opening ---- */

/* A token of a mask, chosen by a number; SIZE_MAX: there is none. */
static size_t pick_token(const uint64_t *mask, size_t words, uint64_t number)
{
    for (size_t i = 0, at = number % words; i < words; i++, at = (at + 1) % words) {
        uint64_t bits = mask[at];
        for (uint64_t skip = (number >> 32) % 64; bits & (bits - 1) && skip > 0; skip--)
            bits &= bits - 1;
        if (bits)
            return at * 64 + (size_t)__builtin_ctzll(bits);
    }
    return SIZE_MAX;
}

/* Follows a text with any tokens. *work: the time left. */
static int try_text(struct constraint *c, uint64_t *mask, uint64_t *number, size_t *work,
                    struct err *err)
{
    uint32_t state = automaton_start(&c->automaton);
    for (size_t step = 0; step < STEPS_AHEAD && state != CONSTRAINT_DEAD; step++) {
        c->automaton.most_work = *work;
        if (constraint_mask(c, state, mask, err) < 0)
            return -1;
        *work -= size_min(*work, c->automaton.work);
        *number = *number * 6364136223846793005 + 1442695040888963407;
        const size_t token = pick_token(mask, constraint_mask_words(c), *number >> 16);
        state = token == SIZE_MAX ? CONSTRAINT_DEAD : constraint_next(c, state, (uint32_t)token);
    }
    return 0;
}

/* Fails if masks take too long, before a text is generated that would have to end there. */
static int try_texts(struct constraint *c, struct err *err)
{
    const size_t words = constraint_mask_words(c);
    size_t work = WORK_AHEAD;
    uint64_t number = 1;
    int rc = 0;
    c->automaton.most_work = WORK_PER_MASK;
    if (c->automaton.nfa.n < MANY_STATES || !words)
        return 0;
    AUTO(free_auto) uint64_t *mask = mem_alloc(words, sizeof *mask);
    if (!mask)
        return err_no_memory(err, "a constraint");
    for (size_t i = 0; i < TEXTS_AHEAD && rc == 0; i++)
        rc = try_text(c, mask, &number, &work, err);
    c->automaton.most_work = WORK_PER_MASK;
    return rc;
}

/* Takes over the tokens that a grammar names. */
static int name_tokens(struct constraint *c, const struct grammar *grammar, struct err *err)
{
    if (!(c->named = mem_zalloc(grammar->n_tokens + 1, sizeof *c->named)))
        return err_no_memory(err, "a constraint");
    for (; c->n_named < grammar->n_tokens; c->n_named++) {
        const uint32_t id = grammar->token[c->n_named];
        if (id >= c->trie->vocab)
            return err_set(err, "the grammar names token %u, the vocabulary has %zu", id,
                           c->trie->vocab);
        c->named[c->n_named].id = id;
        expr_token_bytes(id, c->named[c->n_named].bytes);
    }
    return 0;
}

int constraint_open(struct constraint **out, const struct grammar *grammar,
                    const struct vocab_trie *trie, struct err *err)
{
    struct constraint *c = *out = mem_zalloc(1, sizeof *c);
    struct nfa nfa = {0};
    if (!c)
        return err_no_memory(err, "a constraint");
    c->trie = trie;
    c->all = mem_zalloc(constraint_mask_words(c) + 1, sizeof *c->all);
    if (!c->all)
        err_no_memory(err, "a constraint");
    for (size_t i = 0; c->all && i < trie->n_order; i++)
        c->all[trie->order[i] / 64] |= (uint64_t)1 << trie->order[i] % 64;
    if (c->all && name_tokens(c, grammar, err) == 0 && nfa_compile(&nfa, grammar, err) == 0 &&
        automaton_open(&c->automaton, &nfa, err) == 0 && try_texts(c, err) == 0)
        return 0;
    nfa_release(&nfa);
    constraint_close(c);
    *out = NULL;
    return -1;
}

struct constraint_stats constraint_stats(const struct constraint *c)
{
    struct constraint_stats stats = c->stats;
    stats.states = c->automaton.states.n;
    stats.bytes = automaton_bytes(&c->automaton) + c->local_bytes;
    return stats;
}

/* ---- a cache of compiled constraints: those in use, and the last ones that were ---- */

struct constraint_cache {
    const struct tokenizer *tok;
    size_t vocab;
    struct vocab_trie *trie; /* NULL: not built yet */
    struct cached_constraint {
        struct hash key;
        struct constraint *constraint;
        enum constraint_kind kind;
        struct buf text;
        size_t users, used_at;
    } * entry;
    size_t n, cap, clock;
    void (*note)(void *arg, const char *sentence); /* NULL: nobody asks, or the note was made */
    void *note_arg;
};

int constraint_cache_open(struct constraint_cache **out, const struct tokenizer *tok, size_t vocab,
                          struct err *err)
{
    struct constraint_cache *cache = *out = mem_zalloc(1, sizeof *cache);
    if (!cache)
        return err_no_memory(err, "constraints");
    cache->tok = tok;
    cache->vocab = vocab;
    return 0;
}

static void drop(struct constraint_cache *cache, size_t i)
{
    constraint_close(cache->entry[i].constraint);
    buf_release(&cache->entry[i].text);
    cache->entry[i] = cache->entry[--cache->n];
}

void constraint_cache_close(struct constraint_cache *cache)
{
    if (!cache)
        return;
    while (cache->n)
        drop(cache, cache->n - 1);
    free(cache->entry);
    vocab_trie_close(cache->trie);
    free(cache);
}

void constraint_cache_on_note(struct constraint_cache *cache,
                              void note(void *arg, const char *sentence), void *arg)
{
    cache->note = note;
    cache->note_arg = arg;
}

static struct hash key_of(enum constraint_kind kind, const char *text, size_t len)
{
    const uint32_t number = kind;
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, &number, sizeof number);
    hasher_add(&hasher, text, len);
    return hasher_result(&hasher);
}

/* Closes the constraint that was not used for longest, if there are too many without users. */
static void evict(struct constraint_cache *cache)
{
    size_t oldest = SIZE_MAX, idle = 0;
    for (size_t i = 0; i < cache->n; i++)
        if (!cache->entry[i].users) {
            idle++;
            if (oldest == SIZE_MAX || cache->entry[i].used_at < cache->entry[oldest].used_at)
                oldest = i;
        }
    if (idle > CONSTRAINTS_IDLE)
        drop(cache, oldest);
}

static int compile(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                   size_t len, struct constraint **constraint, struct err *err)
{
    struct grammar grammar;
    if (!cache->trie && vocab_trie_open(&cache->trie, cache->tok, cache->vocab, err) < 0)
        return -1;
    int rc = constraint_source_parse(&grammar, kind, text, len, err);
    if (rc == 0)
        rc = constraint_open(constraint, &grammar, cache->trie, err);
    if (rc == 0 && grammar.note.text[0] && cache->note) {
        cache->note(cache->note_arg, grammar.note.text);
        cache->note = NULL;
    }
    grammar_release(&grammar);
    return rc;
}

int constraint_cache_get(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                         size_t len, struct constraint **constraint, struct err *err)
{
    const struct hash key = key_of(kind, text, len);
    struct cached_constraint *entry = NULL;
    for (size_t i = 0; i < cache->n && !entry; i++)
        if (hash_equal(&cache->entry[i].key, &key) && !constraint_failed(cache->entry[i].constraint))
            entry = &cache->entry[i];
    if (!entry) {
        struct buf copy = {0};
        struct constraint *made;
        if (mem_grow(&cache->entry, &cache->cap, cache->n, sizeof *cache->entry, err) < 0 ||
            buf_add(&copy, text, len, err) < 0 || compile(cache, kind, text, len, &made, err) < 0) {
            buf_release(&copy);
            return -1;
        }
        entry = &cache->entry[cache->n++];
        *entry = (struct cached_constraint){.key = key, .constraint = made, .kind = kind, .text = copy};
    }
    entry->users++;
    *constraint = entry->constraint;
    return 0;
}

void constraint_cache_put(struct constraint_cache *cache, struct constraint *constraint)
{
    for (size_t i = 0; i < cache->n; i++)
        if (cache->entry[i].constraint == constraint) {
            cache->entry[i].used_at = ++cache->clock;
            if (--cache->entry[i].users == 0 && constraint_failed(constraint))
                drop(cache, i);
            break;
        }
    evict(cache);
}

struct constraint_source constraint_cache_source(const struct constraint_cache *cache,
                                                 const struct constraint *constraint)
{
    const struct cached_constraint *entry = cache->entry;
    while (entry->constraint != constraint)
        entry++;
    return (struct constraint_source){entry->kind, buf_text(&entry->text), entry->text.len};
}
