/* Strings of a JSON Schema: formats, sets of strings, and what pattern, format and length say together. */
#include "text/grammar/string_set.h"

#include "text/grammar/schema.h"
#include "text/utf8.h"

/* ---- formats of strings, as regular expressions, and of integers, as ranges ---- */

struct string_state;

/* Years 0001 to 9999; those of them that are leap years. */
#define YEAR "(?:[0-9]{3}[1-9]|[0-9]{2}[1-9]0|[0-9][1-9]00|[1-9]000)"
#define LEAP "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)"
#define DATE                                                                                           \
    "(?:" YEAR                                                                                         \
    "-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"          \
    "|02-(?:0[1-9]|1[0-9]|2[0-8]))|" LEAP "-02-29)"
#define CLOCK         "(?:[01][0-9]|2[0-3]):[0-5][0-9]"
#define TIME(digits)  CLOCK ":[0-5][0-9](?:\\.[0-9]" digits ")?(?:[Zz]|[+-]" CLOCK ")"
#define TIME_TO_WRITE CLOCK ":[0-5][0-9](?:\\.[0-9]{1,9})?(?:Z|[+-]" CLOCK ")"

/* Durations (RFC 3339, appendix A), of numbers N. */
#define DURATION(N)                                                                                    \
    "P(?:(?:" N "Y(?:" N "M(?:" N "D)?)?|" N "M(?:" N "D)?|" N                                         \
    "D)(?:" DURATION_TIME(N) ")?|" DURATION_TIME(N) "|" N "W)"
#define DURATION_TIME(N) "T(?:" N "H(?:" N "M(?:" N "S)?)?|" N "M(?:" N "S)?|" N "S)"

#define HEX  "[0-9a-f]"
#define HEX4 "[0-9a-f]{4}"
#define UUID_OF(version, variant)                                                                      \
    HEX4 HEX4 "-" HEX4 "-" version HEX HEX HEX "-" variant HEX HEX HEX "-" HEX4 HEX4 HEX4
#define ANY_HEX4 "[0-9A-Fa-f]{4}"

#define LABEL         "[A-Za-z0-9](?:[A-Za-z0-9-]{0,59}[A-Za-z0-9])?"
#define LONGEST_LABEL "[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define MAIL_LABEL    "[A-Za-z0-9](?:[A-Za-z0-9-]{0,43}[A-Za-z0-9])?"
#define IDN_LABEL     "[a-z0-9](?:-?[a-z0-9]){0,25}"
#define ATEXT         "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
#define ATOM          ATEXT "{1,20}"

#define MAIL                                                                                           \
    ATOM "(?:\\." ATOM "){0,2}@"                                                                       \
         "(?:" MAIL_LABEL "\\.){1,3}[A-Za-z]{2,12}"

#define BYTE "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define IPV4 BYTE "(?:\\." BYTE "){3}"
#define H    "[0-9A-Fa-f]{1,4}"
#define IPV6                                                                                           \
    "(?:(?:" H ":){7}" H "|(?:" H ":){1,7}:|(?:" H ":){1,6}:" H "|(?:" H ":){1,5}(?::" H               \
    "){1,2}|(?:" H ":){1,4}(?::" H "){1,3}|(?:" H ":){1,3}(?::" H "){1,4}|(?:" H ":){1,2}(?::" H       \
    "){1,5}|" H ":(?::" H "){1,6}|::(?:" H ":){0,6}" H "|::|(?:" H ":){6}" IPV4 "|::(?:" H             \
    ":){0,5}" IPV4 ")"
#define NETWORK4                                                                                       \
    "(?:" IPV4 "/32|(?:" BYTE "\\.){3}0/24|(?:" BYTE "\\.){2}0\\.0/16|" BYTE                           \
    "\\.0\\.0\\.0/8|0\\.0\\.0\\.0/0)"
#define INTERFACE4 IPV4 "/(?:[12]?[0-9]|3[0-2])"
#define INTERFACE6 IPV6 "/(?:[1-9]?[0-9]|1[01][0-9]|12[0-8])"

/* URIs (RFC 3986) and IRIs (RFC 3987), with the characters `more` in addition to ASCII. */
#define SCHEME        "[A-Za-z][A-Za-z0-9+.-]"
#define REGNAME(more) "(?:[A-Za-z0-9._~!$&'()*+,;=" more "-]|%[0-9A-Fa-f]{2})"
#define PCHAR(more)   "(?:[A-Za-z0-9._~!$&'()*+,;=:@" more "-]|%[0-9A-Fa-f]{2})"
#define TAIL(more)    "(?:\\?(?:[/?]|" PCHAR(more) ")*)?(?:#(?:[/?]|" PCHAR(more) ")*)?"
#define PATH(more)    "(?:/|" PCHAR(more) ")*"
#define AUTHORITY(more)                                                                                \
    "//(?:(?::|" REGNAME(more) ")*@)?(?:\\[" IPV6                                                      \
                               "\\]|" REGNAME(more) "*)(?::[0-9]*)?(?:/" PATH(more) ")?"
#define ROOTED(more) "/(?:" PCHAR(more) PATH(more) ")?"
#define URI(more)                                                                                      \
    SCHEME "*:(?:" AUTHORITY(more) "|" ROOTED(more) "|" PCHAR(more) PATH(more) ")?" TAIL(more)
#define REFERENCE(more)                                                                                \
    "(?:" URI(more) "|(?:" AUTHORITY(more) "|" ROOTED(more) "|(?:@|" REGNAME(more) ")+(?:/" PATH(      \
        more) ")?)?" TAIL(more) ")"
/* Those that are generated name a host, or have no authority. */
#define URI_TO_WRITE(more)                                                                             \
    SCHEME "{1,15}:(?://" LABEL "(?:\\." LABEL                                                         \
           "){0,3}(?::[1-9][0-9]{0,3})?(?:/" PATH(more) ")?|" PCHAR(more) PATH(more) ")" TAIL(more)
#define REFERENCE_TO_WRITE(more)                                                                       \
    "(?:" URI_TO_WRITE(more) "|(?:" ROOTED(more) "|" REGNAME(more) "+(?:/" PATH(more) ")?)" TAIL(      \
        more) ")"
#define UCS "\xc2\xa0-\xed\x9f\xbf\xef\xa4\x80-\xef\xb7\x8f\xef\xb7\xb0-\xef\xbf\xaf"

#define POINTER "(?:/(?:[^~/]|~[01])*)*"
#define NAME    "[A-Za-z_][A-Za-z0-9_]*(?::[1-9][0-9]{0,2}|\\*)?"
#define BASE64(more)                                                                                   \
    "(?:[A-Za-z0-9" more "]{4})*(?:[A-Za-z0-9" more "][AQgw]==|[A-Za-z0-9" more                        \
    "]{2}[AEIMQUYcgkosw048]=)?"
#define PATTERN_ATOM "(?:[A-Za-z0-9 _@/:,-]|\\\\[dDwWsS.*+?()]|\\.|\\[\\^?[A-Za-z0-9_]+\\])[*+?]?"

/* NULL: unknown. */
static const struct string_format *schema_string_format(const char *name)
{
    static const struct string_format formats[] = {
        {"date", DATE, NULL, 0},
        {"time", TIME_TO_WRITE, TIME("+"), 0},
        {"date-time", DATE "T" TIME_TO_WRITE, DATE "[Tt]" TIME("+"), 0},
        {"duration", DURATION("[0-9]{1,4}"), DURATION("[0-9]+"), 0},
        {"uuid", UUID_OF(HEX, HEX), ANY_HEX4 ANY_HEX4 "(?:-" ANY_HEX4 "){4}" ANY_HEX4 ANY_HEX4, 0},
        {"uuid1", UUID_OF("1", "[89ab]"), "", 0},
        {"uuid3", UUID_OF("3", "[89ab]"), "", 0},
        {"uuid4", UUID_OF("4", "[89ab]"), "", 0},
        {"uuid5", UUID_OF("5", "[89ab]"), "", 0},
        {"uuid6", UUID_OF("6", "[89ab]"), "", 0},
        {"uuid7", UUID_OF("7", "[89ab]"), "", 0},
        {"uuid8", UUID_OF("8", "[89ab]"), "", 0},
        {"email", MAIL, ATEXT "+(?:\\." ATEXT "+)*@" LONGEST_LABEL "(?:\\." LONGEST_LABEL "){0,8}",
         254},
        {"idn-email", MAIL, "[^@]+@[^@]+", 254},
        {"name-email", MAIL, "", 0},
        {"hostname", LABEL "(?:\\." LABEL "){0,3}", LONGEST_LABEL "(?:\\." LONGEST_LABEL "){0,30}\\.?",
         253},
        {"idn-hostname", IDN_LABEL "(?:\\." IDN_LABEL "){0,3}", NULL, 253},
        {"ipv4", IPV4, NULL, 0},
        {"ipv6", IPV6, NULL, 0},
        {"ipvanyaddress", "(?:" IPV4 "|" IPV6 ")", "", 0},
        {"ipv4network", NETWORK4, "", 0},
        {"ipv6network", IPV6 "/128", "", 0},
        {"ipvanynetwork", "(?:" NETWORK4 "|" IPV6 "/128)", "", 0},
        {"ipv4interface", INTERFACE4, "", 0},
        {"ipv6interface", INTERFACE6, "", 0},
        {"ipvanyinterface", "(?:" INTERFACE4 "|" INTERFACE6 ")", "", 0},
        {"uri", URI_TO_WRITE(""), URI(""), 0},
        {"uri-reference", REFERENCE_TO_WRITE(""), REFERENCE(""), 0},
        {"iri", URI_TO_WRITE(UCS), URI(UCS), 0},
        {"iri-reference", REFERENCE_TO_WRITE(UCS), REFERENCE(UCS), 0},
        {"url", URI_TO_WRITE(""), "", 0},
        {"multi-host-uri", URI_TO_WRITE(""), "", 0},
        {"uri-template", "(?:[A-Za-z0-9._~/:?&=@-]|\\{[+#./;?&]?" NAME "(?:," NAME ")*\\})*", NULL, 0},
        {"json-pointer", POINTER, NULL, 0},
        {"relative-json-pointer", "(?:0|[1-9]{1,8}0?)(?:#|" POINTER ")", NULL, 0},
        {"regex", "(?:" PATTERN_ATOM "|\\((?:" PATTERN_ATOM ")+\\)[*+?]?)+", NULL, 0},
        {"byte", BASE64("+/"), "", 0},
        {"base64", BASE64("+/"), "", 0},
        {"base64url", BASE64("_-"), "", 0},
        {"color", "#[0-9A-Fa-f]{6}", "", 0},
        /* any string */
        {"password", NULL, NULL, 0},
        {"binary", NULL, NULL, 0},
        {"path", NULL, NULL, 0},
        {"file-path", NULL, NULL, 0},
        {"directory-path", NULL, NULL, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

const struct integer_format *schema_integer_format(const char *name)
{
    static const struct integer_format formats[] = {
        {"int8", -128, 127},
        {"int16", -32768, 32767},
        {"int32", INT32_MIN, INT32_MAX},
        {"uint8", 0, 255},
        {"uint16", 0, 65535},
        {"uint32", 0, UINT32_MAX},
        {"int64", INT64_MIN, INT64_MAX},
        {"uint64", 0, INT64_MAX},
    };
    for (size_t i = 0; i < ARRAY_LEN(formats); i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

/* Sets of strings as automata over code points. A deterministic state is a number of characters, as far as
 * limits of the length need it, and a set of states of the expressions. */

enum {
    MAX_STATES = 1 << 16,    /* of all expressions */
    MAX_NODES = 1 << 16,     /* deterministic ones */
    COUNTED_NODES = 1 << 12, /* of them, where the highest length may be lowered instead */
    MAX_WORK = 1 << 26,
    EXPRESSION_WORK = 1 << 9, /* for parsing one */
};

enum string_state_kind { STATE_FINAL, STATE_CLASS, STATE_SPLIT };

struct string_state {
    enum string_state_kind kind;
    uint32_t term;
    uint32_t a, b;  /* next states */
    uint32_t class; /* index of the class's expression */
};

static void set_fail(struct string_set *s, const char *why) { grammar_fail(&s->expr, "%s", why); }

static void set_charge(struct string_set *s, size_t work)
{
    s->work += work;
    if (s->work > MAX_WORK)
        set_fail(s, "patterns, formats and limits of the length are too complex together");
}

static void string_set_begin(struct string_set *s)
{
    *s = (struct string_set){.max = EXPR_MANY};
    grammar_begin(&s->expr);
    s->expr.flat = true;
}

void string_set_release(struct string_set *s)
{
    grammar_release(&s->expr);
    array_pool_release(&s->nodes);
    free(s->state);
    free(s->interval);
    free(s->class_of);
    free(s->has);
    free(s->set);
    free(s->todo);
    free(s->seen);
    *s = (struct string_set){0};
}

/* ---- terms ---- */

static void add_term(struct string_set *s, expr_id id, bool negated)
{
    if (s->n_terms == STRING_TERMS)
        set_fail(s, "too many patterns and formats on one string: at most 24 are supported");
    else
        s->term[s->n_terms++] = (struct string_term){id, negated, 0};
}

/* The length of the group at the start of `text`, its parentheses included; 0: it has no end. With `bars`:
 * the length up to a bar outside of groups, or 0. */
static size_t find_end(const char *text, size_t len, bool bars)
{
    size_t depth = 0;
    bool in_class = false;
    for (size_t i = 0; i < len; i++) {
        const char c = text[i];
        if (c == '\\')
            i++;
        else if (in_class)
            in_class = c != ']';
        else if (c == '[')
            in_class = true;
        else if (c == '(')
            depth++;
        else if (c == ')' && depth && --depth == 0 && !bars)
            return i + 1;
        else if (c == '|' && !depth && bars)
            return i + 1;
    }
    return 0;
}

/* Adds a condition. Look-ahead at the beginning of the expression is supported. `use`: of enum
 * regex_use. `regex` is borrowed. */
static void string_set_add(struct string_set *s, const char *regex, unsigned use, bool negated)
{
    struct json_grammar json = {.grammar = &s->expr};
    const char *at = regex;
    set_charge(s, EXPRESSION_WORK + strlen(regex));
    if (s->expr.failed)
        return;
    if (use & REGEX_SEARCH && *at == '^' && !find_end(at, strlen(at), true) && !negated)
        while (at[1] == '(' && at[2] == '?' && (at[3] == '=' || at[3] == '!')) {
            const bool ahead = at[3] == '=';
            const size_t len = find_end(at + 1, strlen(at + 1), false);
            if (!len)
                break;
            add_term(s, regex_parse(&json, at + 4, len - 4, REGEX_PREFIX | (ahead ? 0 : REGEX_WIDE)),
                     !ahead);
            at += len;
        }
    const bool anchored = at != regex;
    if (s->n_terms == 0 && !negated) {
        s->only = regex;
        s->use = use;
    }
    at += anchored;
    use = anchored ? (use & ~(unsigned)REGEX_SEARCH) | REGEX_PREFIX : use;
    add_term(s, regex_parse(&json, at, strlen(at), use | (negated ? REGEX_WIDE : 0)), negated);
}

/* Leaves out strings. */
static void string_set_exclude(struct string_set *s, const char *const *text, size_t n)
{
    struct expr_list texts = {0}, chars = {0};
    for (size_t i = 0; i < n; i++) {
        chars.n = 0;
        for (const char *c = text[i]; *c;) {
            uint32_t code;
            c += utf8_decode(c, &code);
            expr_list_add(&s->expr, &chars, expr_range(&s->expr, code, code));
        }
        expr_list_add(&s->expr, &texts, expr_seq(&s->expr, chars.id, chars.n));
    }
    if (n)
        add_term(s, expr_alt(&s->expr, texts.id, texts.n), true);
    expr_list_release(&texts);
    expr_list_release(&chars);
}

/* ---- lengths ---- */

/* Adds or multiplies lengths; EXPR_MANY is the largest. */
static uint32_t capped(uint64_t length) { return length < EXPR_MANY ? (uint32_t)length : EXPR_MANY; }

/* The lengths of an expression's strings, if open repetitions end at `open`. */
static void find_lengths(const struct grammar *g, expr_id id, uint32_t open, uint32_t *min,
                         uint32_t *max)
{
    const struct expr *e = &g->expr[id];
    uint32_t least, most;
    *min = *max = e->kind == EXPR_IS_CLASS;
    if (e->kind == EXPR_IS_REPEAT) {
        find_lengths(g, e->a, open, &least, &most);
        *min = capped((uint64_t)least * e->min);
        *max = most ? capped((uint64_t)most * regex_most(e->min, e->max, open)) : 0;
    }
    if (e->kind == EXPR_IS_ALT)
        *min = EXPR_MANY;
    for (size_t i = 0; (e->kind == EXPR_IS_SEQ || e->kind == EXPR_IS_ALT) && i < e->b; i++) {
        find_lengths(g, g->list[e->a + i], open, &least, &most);
        *min = e->kind == EXPR_IS_SEQ ? capped((uint64_t)*min + least) : least < *min ? least : *min;
        *max = e->kind == EXPR_IS_SEQ ? capped((uint64_t)*max + most) : most > *max ? most : *max;
    }
}

/* True if a set of one expression has no strings outside of the limits of the length, if the expression's open
 * repetitions end at `open`. */
static bool is_within(const struct string_set *s, uint32_t open)
{
    uint32_t min, max;
    find_lengths(&s->expr, s->term[0].id, open, &min, &max);
    return min >= s->min && max <= s->max;
}

/* ---- states of the expressions ---- */

static uint32_t add_state(struct string_set *s, struct string_state state)
{
    if (s->expr.failed)
        return 0;
    if (s->n_states >= MAX_STATES)
        set_fail(s, "the patterns have too many states: lower the numbers of repetitions");
    else if (mem_grow(&s->state, &s->states_cap, s->n_states, sizeof *s->state, &s->expr.why) < 0)
        s->expr.failed = true;
    if (s->expr.failed)
        return 0;
    s->state[s->n_states] = state;
    return (uint32_t)s->n_states++;
}

static uint32_t add_split(struct string_set *s, uint32_t term, uint32_t a, uint32_t b)
{
    return add_state(s, (struct string_state){STATE_SPLIT, term, a, b, 0});
}

/* Returns the state from which the expression leads to `next`. */
static uint32_t compile_term(struct string_set *s, uint32_t term, expr_id id, uint32_t next)
{
    const struct expr e = s->expr.expr[id];
    uint32_t at = next;
    if (s->expr.failed || e.kind == EXPR_IS_EMPTY)
        return next;
    if (e.kind == EXPR_IS_CLASS || e.kind == EXPR_IS_NONE)
        return add_state(s, (struct string_state){STATE_CLASS, term, next, 0, id});
    for (size_t i = e.b; e.kind == EXPR_IS_SEQ && i-- > 0;)
        at = compile_term(s, term, s->expr.list[e.a + i], at);
    for (size_t i = e.b; e.kind == EXPR_IS_ALT && i-- > 0;)
        at = i + 1 == e.b ? compile_term(s, term, s->expr.list[e.a + i], next)
                          : add_split(s, term, compile_term(s, term, s->expr.list[e.a + i], next), at);
    if (e.kind != EXPR_IS_REPEAT)
        return at;
    if (e.max == EXPR_MANY) {
        at = add_split(s, term, next, next);
        const uint32_t body = compile_term(s, term, e.a, at);
        if (!s->expr.failed)
            s->state[at].a = body;
    }
    for (uint32_t i = e.min; e.max != EXPR_MANY && i < e.max && !s->expr.failed; i++)
        at = add_split(s, term, compile_term(s, term, e.a, at), next);
    for (uint32_t i = 0; i < e.min && !s->expr.failed && e.a != EXPR_EMPTY; i++)
        at = compile_term(s, term, e.a, at);
    return at;
}

/* ---- classes of code points ---- */

static bool expr_has(const struct grammar *g, const struct expr *e, uint32_t code)
{
    for (size_t i = 0; i < e->b; i++)
        if (g->range[e->a + i].first <= code && code <= g->range[e->a + i].last)
            return true;
    return false;
}

/* Splits the code points where a class begins or ends. */
static void find_intervals(struct string_set *s)
{
    const struct grammar *g = &s->expr;
    uint32_t *start = mem_alloc(2 * g->n_ranges + 1, sizeof *start);
    size_t n = 0, kept = 0;
    s->interval = mem_alloc(2 * g->n_ranges + 1, sizeof *s->interval);
    s->class_of = mem_alloc(2 * g->n_ranges + 1, sizeof *s->class_of);
    if (!start || !s->interval || !s->class_of) {
        grammar_no_memory(&s->expr, "classes of characters");
        free(start);
        return;
    }
    start[n++] = 0;
    for (size_t i = 0; i < g->n_ranges; i++) {
        start[n++] = g->range[i].first;
        if (g->range[i].last < CODE_MAX)
            start[n++] = g->range[i].last + 1;
    }
    array_pool_sort(start, n);
    for (size_t i = 0; i < n; i++)
        if (!kept || start[i] != start[kept - 1])
            start[kept++] = start[i];
    for (size_t i = 0; i < kept; i++)
        s->interval[i] = (struct code_range){start[i], i + 1 < kept ? start[i + 1] - 1 : CODE_MAX};
    s->n_intervals = kept;
    free(start);
}

/* Joins intervals that are in the same classes, and notes which these are. */
static void find_classes(struct string_set *s)
{
    const struct grammar *g = &s->expr;
    struct array_pool kinds = {0};
    AUTO(free_auto) uint32_t *in = mem_alloc(g->n_exprs + 1, sizeof *in);
    size_t n;
    if (!in)
        grammar_no_memory(&s->expr, "classes of characters");
    for (size_t i = 0; i < s->n_intervals && !g->failed; i++) {
        n = 0;
        for (uint32_t e = 0; e < g->n_exprs; e++)
            if (g->expr[e].kind == EXPR_IS_CLASS && expr_has(g, &g->expr[e], s->interval[i].first))
                in[n++] = e;
        set_charge(s, g->n_exprs + g->n_ranges);
        s->class_of[i] = array_pool_intern(&kinds, in, n, &s->expr.why);
        if (s->class_of[i] == UINT32_MAX)
            s->expr.failed = true;
    }
    s->n_classes = kinds.n;
    set_charge(s, g->n_exprs * kinds.n);
    s->has = g->failed ? NULL : mem_zalloc(g->n_exprs * (kinds.n + 1), sizeof *s->has);
    if (!s->has)
        grammar_no_memory(&s->expr, "classes of characters");
    for (uint32_t cls = 0; cls < kinds.n && !g->failed; cls++) {
        const uint32_t *of = array_pool_get(&kinds, cls, &n);
        for (size_t i = 0; i < n; i++)
            s->has[of[i] * s->n_classes + cls] = true;
    }
    array_pool_release(&kinds);
}

/* ---- deterministic states ---- */

static void open_automaton(struct string_set *s)
{
    if (s->state)
        return;
    for (uint32_t t = 0; t < s->n_terms && !s->expr.failed; t++) {
        const uint32_t final = add_state(s, (struct string_state){.kind = STATE_FINAL, .term = t});
        s->term[t].start = compile_term(s, t, s->term[t].id, final);
    }
    if (!s->expr.failed)
        find_intervals(s);
    if (!s->expr.failed)
        find_classes(s);
    s->set = mem_alloc(s->n_states + 1, sizeof *s->set);
    s->todo = mem_alloc(2 * s->n_states + 2, sizeof *s->todo);
    s->seen = mem_zalloc(s->n_states + 1, sizeof *s->seen);
    if (!s->set || !s->todo || !s->seen)
        grammar_no_memory(&s->expr, "conditions of a string");
}

static void begin_set(struct string_set *s, uint32_t count)
{
    s->stamp++;
    s->set[0] = count;
    s->n_set = 1;
}

/* Adds a state and those reached from it without reading. */
static void add_closure(struct string_set *s, uint32_t state)
{
    size_t n = 0;
    s->todo[n++] = state;
    while (n > 0) {
        const uint32_t at = s->todo[--n];
        const struct string_state *p = &s->state[at];
        if (s->seen[at] == s->stamp)
            continue;
        s->seen[at] = s->stamp;
        s->work++;
        if (p->kind != STATE_SPLIT) {
            s->set[s->n_set++] = at;
            continue;
        }
        s->todo[n++] = p->a; /* each state at most twice */
        s->todo[n++] = p->b;
    }
}

/* True if no string that continues from the scratch set can be accepted: a condition is lost. */
static bool is_lost(const struct string_set *s)
{
    uint32_t alive = 0, wanted = 0;
    for (size_t i = 1; i < s->n_set; i++)
        alive |= (uint32_t)1 << s->state[s->set[i]].term;
    for (size_t t = 0; t < s->n_terms; t++)
        wanted |= s->term[t].negated ? 0 : (uint32_t)1 << t;
    return wanted & ~alive;
}

/* Interns the scratch set; UINT32_MAX: nothing is accepted from there, or failed. */
static uint32_t intern(struct string_set *s)
{
    if (is_lost(s) || s->expr.failed)
        return UINT32_MAX;
    array_pool_sort(s->set + 1, s->n_set - 1);
    const uint32_t id = array_pool_intern(&s->nodes, s->set, s->n_set, &s->expr.why);
    if (id == UINT32_MAX)
        s->expr.failed = true;
    return id;
}

static uint32_t first_node(struct string_set *s)
{
    begin_set(s, 0);
    for (size_t t = 0; t < s->n_terms; t++)
        add_closure(s, s->term[t].start);
    return intern(s);
}

static uint32_t next_node(struct string_set *s, uint32_t node, uint32_t cls)
{
    const uint32_t limit = s->max != EXPR_MANY ? s->max : s->min;
    size_t n;
    const uint32_t *of = array_pool_get(&s->nodes, node, &n);
    if (s->max != EXPR_MANY && of[0] >= s->max)
        return UINT32_MAX;
    begin_set(s, of[0] < limit ? of[0] + 1 : limit);
    s->work += n;
    for (size_t i = 1; i < n; i++) {
        const struct string_state *p = &s->state[of[i]];
        if (p->kind == STATE_CLASS && s->has[p->class * s->n_classes + cls])
            add_closure(s, p->a);
    }
    return intern(s);
}

static bool accepts(const struct string_set *s, uint32_t node)
{
    size_t n;
    const uint32_t *of = array_pool_get(&s->nodes, node, &n);
    uint32_t final = 0, wanted = 0;
    for (size_t i = 1; i < n; i++)
        final |= s->state[of[i]].kind == STATE_FINAL ? (uint32_t)1 << s->state[of[i]].term : 0;
    for (size_t t = 0; t < s->n_terms; t++)
        wanted |= s->term[t].negated ? 0 : (uint32_t)1 << t;
    return final == wanted && of[0] >= s->min;
}

/* True if a string, UTF-8, is in the set. */
static bool string_set_has(struct string_set *s, const char *text, size_t len)
{
    open_automaton(s);
    uint32_t node = s->expr.failed ? UINT32_MAX : first_node(s);
    for (size_t at = 0; at < len && node != UINT32_MAX;) {
        uint32_t code;
        size_t lo = 0, hi = s->n_intervals - 1;
        at += utf8_decode(text + at, &code);
        set_charge(s, 1);
        while (lo < hi) {
            const size_t mid = (lo + hi) / 2;
            if (s->interval[mid].last < code)
                lo = mid + 1;
            else
                hi = mid;
        }
        node = s->expr.failed ? UINT32_MAX : next_node(s, node, s->class_of[lo]);
    }
    return node != UINT32_MAX && accepts(s, node);
}

/* ---- as a grammar ---- */

struct string_edge {
    uint32_t from, to, classes; /* classes: number in string_writer.sets */
};

struct string_writer {
    struct string_set *set;
    struct json_grammar *json;
    struct string_edge *edge;
    size_t n_edges, edges_cap;
    struct array_pool sets; /* sets of classes that lead to one node */
    expr_id *known;         /* [sets]: their characters; EXPR_EMPTY: not known yet */
    uint32_t *to, *in;      /* [classes] */
    bool *alive;            /* [nodes]: a string can be completed from there */
};

static void add_edge(struct string_writer *w, uint32_t from, uint32_t to, size_t n_classes)
{
    struct string_set *s = w->set;
    const uint32_t classes = array_pool_intern(&w->sets, w->in, n_classes, &s->expr.why);
    if (classes == UINT32_MAX ||
        mem_grow(&w->edge, &w->edges_cap, w->n_edges, sizeof *w->edge, &s->expr.why) < 0)
        s->expr.failed = true;
    else
        w->edge[w->n_edges++] = (struct string_edge){from, to, classes};
}

/* Finds where a node's characters lead, classes with the same node together. */
static void find_edges(struct string_writer *w, uint32_t node)
{
    struct string_set *s = w->set;
    for (uint32_t cls = 0; cls < s->n_classes; cls++)
        w->to[cls] = next_node(s, node, cls);
    for (uint32_t cls = 0; cls < s->n_classes && !s->expr.failed; cls++) {
        const uint32_t to = w->to[cls];
        size_t n = 0;
        if (to == UINT32_MAX)
            continue;
        for (uint32_t other = cls; other < s->n_classes; other++)
            if (w->to[other] == to) {
                w->in[n++] = other;
                w->to[other] = UINT32_MAX;
            }
        add_edge(w, node, to, n);
    }
}

/* Finds all nodes, up to a number of them; false: there are more. */
static bool find_nodes(struct string_writer *w, size_t most)
{
    struct string_set *s = w->set;
    array_pool_release(&s->nodes);
    array_pool_release(&w->sets);
    w->n_edges = 0;
    (void)first_node(s);
    for (size_t node = 0; node < s->nodes.n && !s->expr.failed; node++) {
        find_edges(w, (uint32_t)node);
        set_charge(s, s->n_classes);
        if (s->nodes.n > most)
            return false;
    }
    return true;
}

/* Marks the nodes from which a string can be completed: backwards, as most edges lead to later nodes. */
static void mark_alive(struct string_writer *w)
{
    struct string_set *s = w->set;
    bool changed = true;
    for (uint32_t node = 0; node < s->nodes.n; node++)
        w->alive[node] = accepts(s, node);
    while (changed && !s->expr.failed) {
        changed = false;
        for (size_t i = w->n_edges; i-- > 0;)
            if (w->alive[w->edge[i].to] && !w->alive[w->edge[i].from])
                changed = w->alive[w->edge[i].from] = true;
        set_charge(s, w->n_edges);
    }
}

static expr_id characters(struct string_writer *w, uint32_t classes)
{
    const struct string_set *s = w->set;
    struct grammar *g = w->json->grammar;
    struct char_class set = {0};
    size_t n;
    const uint32_t *of = array_pool_get(&w->sets, classes, &n);
    if (w->known[classes] != EXPR_EMPTY)
        return w->known[classes];
    for (size_t k = 0; k < n; k++)
        w->to[of[k]] = 1;
    for (size_t i = 0; i < s->n_intervals; i++)
        if (w->to[s->class_of[i]])
            char_class_add(g, &set, s->interval[i].first, s->interval[i].last);
    for (size_t k = 0; k < n; k++)
        w->to[of[k]] = 0;
    char_class_sort(&set);
    w->known[classes] = json_char(w->json, &set);
    char_class_release(&set);
    return w->known[classes];
}

/* A rule for each node. */
static expr_id write_rules(struct string_writer *w)
{
    const struct string_set *s = w->set;
    struct grammar *g = w->json->grammar;
    struct expr_list list = {0};
    const uint32_t first = grammar_add_rule(g, "string", 6);
    for (size_t node = 1; node < s->nodes.n; node++)
        (void)grammar_add_rule(g, "string", 6);
    memset(w->to, 0, s->n_classes * sizeof *w->to);
    for (size_t i = 0, node = 0; node < s->nodes.n && !g->failed; node++) {
        list.n = 0;
        if (accepts(s, (uint32_t)node))
            expr_list_add(g, &list, EXPR_EMPTY);
        for (; i < w->n_edges && w->edge[i].from == node; i++)
            if (w->alive[w->edge[i].to])
                expr_list_add(g, &list,
                              EXPR_SEQ(g, characters(w, w->edge[i].classes),
                                       expr_rule(g, first + w->edge[i].to)));
        grammar_set_rule(g, first + (uint32_t)node, expr_alt(g, list.id, list.n));
    }
    expr_list_release(&list);
    return s->nodes.n && w->alive[0] ? expr_rule(g, first) : EXPR_NONE;
}

/* Finds the nodes; if there are too many, with a lower limit of the length. */
static void find_fewer_nodes(struct string_writer *w)
{
    struct string_set *s = w->set;
    const uint32_t max = s->max;
    bool fits = max == EXPR_MANY && find_nodes(w, MAX_NODES);
    if (max != EXPR_MANY) {
        s->max = EXPR_MANY;
        fits = find_nodes(w, MAX_NODES);
        const size_t most = COUNTED_NODES / size_max(s->nodes.n / ((size_t)s->min + 1), 1);
        s->max = (uint32_t)size_min(max, size_max((size_t)s->min + 16, most));
        fits = fits && find_nodes(w, MAX_NODES);
    }
    if (!fits && !s->expr.failed)
        set_fail(s, "patterns, formats and limits of the length are too complex together");
}

static expr_id write_nodes(struct string_writer *w)
{
    struct string_set *s = w->set;
    expr_id id = EXPR_NONE;
    w->alive = mem_zalloc(s->nodes.n + 1, sizeof *w->alive);
    w->known = mem_alloc(w->sets.n + 1, sizeof *w->known);
    if (!w->alive || !w->known)
        grammar_no_memory(&s->expr, "conditions of a string");
    for (size_t i = 0; i < w->sets.n && w->known; i++)
        w->known[i] = EXPR_EMPTY;
    if (!s->expr.failed)
        mark_alive(w);
    if (!s->expr.failed)
        id = write_rules(w);
    free(w->alive);
    free(w->known);
    return id;
}

/* Writes a set of one expression as that, its open repetitions ending at `open`. */
static expr_id write_expression(struct string_set *s, struct json_grammar *json, uint32_t open)
{
    return regex_parse_open(json, s->only, strlen(s->only), s->use | REGEX_JSON, open);
}

/* The contents of JSON strings that are in the set. If there would be too many states, long strings are left out;
 * fails if there are too many in spite of that. */
static expr_id string_set_json(struct string_set *s, struct json_grammar *json)
{
    const bool one = s->n_terms == 1 && s->only;
    uint32_t open = s->max / 2;
    struct string_writer w = {.set = s, .json = json};
    expr_id id = EXPR_NONE;
    if (!s->expr.failed && one && is_within(s, EXPR_MANY))
        return write_expression(s, json, EXPR_MANY);
    open_automaton(s);
    w.to = mem_alloc(s->n_classes + 1, sizeof *w.to);
    w.in = mem_alloc(s->n_classes + 1, sizeof *w.in);
    if (!w.to || !w.in)
        grammar_no_memory(&s->expr, "conditions of a string");
    if (!s->expr.failed && find_nodes(&w, COUNTED_NODES)) {
        id = write_nodes(&w);
    } else if (!s->expr.failed) {
        while (one && s->max != EXPR_MANY && open > 0 && !is_within(s, open))
            open /= 2;
        if (one && s->max != EXPR_MANY && open >= 16 && is_within(s, open)) {
            id = write_expression(s, json, open);
        } else {
            find_fewer_nodes(&w);
            id = s->expr.failed ? EXPR_NONE : write_nodes(&w);
        }
    }
    array_pool_release(&w.sets);
    free(w.edge);
    free(w.to);
    free(w.in);
    return id;
}

/* Strings of a JSON Schema: what pattern, format and limits of the length say together. */

bool schema_string_term(const json_t *schema, size_t i, struct string_rule *rule)
{
    static const char *const keys[] = {"pattern", "format", "contentEncoding"};
    const json_t *more = json_object_get(schema, SCHEMA_MORE_STRINGS);
    const json_t *of = i < ARRAY_LEN(keys) ? schema : json_array_get(more, i - ARRAY_LEN(keys));
    *rule = (struct string_rule){NULL, NULL};
    for (size_t k = 0; k < ARRAY_LEN(keys); k++) {
        const char *value = json_string_value(json_object_get(of, keys[k]));
        if (!value || (of == schema && k != i))
            continue;
        if (k == 0)
            rule->pattern = value;
        else if (k == 1 || strcmp(value, "base64") == 0 || strcmp(value, "base64url") == 0)
            rule->format = value;
    }
    return of != NULL;
}

/* Sets share the work that one schema may take. */
static void open_terms(const struct schema_job *job, struct string_set *set)
{
    string_set_begin(set);
    set->work = job->string_work;
}

static void close_terms(struct schema_job *job, struct string_set *set)
{
    job->string_work = size_max(job->string_work, set->work);
    string_set_release(set);
}

/* Adds what the schema says about strings; to check them if `read`, or to write them. */
static void add_terms(struct schema_job *job, struct string_set *set, const json_t *schema, bool read)
{
    struct string_rule rule;
    set->min = schema_count(job, schema, "minLength", 0);
    set->max = schema_count(job, schema, "maxLength", EXPR_MANY);
    for (size_t i = 0; schema_string_term(schema, i, &rule); i++) {
        const struct string_format *format = rule.format ? schema_string_format(rule.format) : NULL;
        if (rule.pattern)
            string_set_add(set, rule.pattern, REGEX_SEARCH, false);
        if (rule.format && !format && !read && !schema_integer_format(rule.format))
            schema_note(job, "the format \"%.60s\" is not enforced", rule.format);
        const char *regex = !format ? NULL : read && format->read ? format->read : format->write;
        if (!regex || !*regex)
            continue;
        string_set_add(set, regex, REGEX_WHOLE, false);
        if (read && format->most && format->most < set->max)
            set->max = format->most;
    }
}

/* Takes over the failure of a set, if any, with the place. */
static bool take_failure(struct schema_job *job, const struct string_set *set, const char *keyword)
{
    struct grammar *g = job->json.grammar;
    if (set->expr.failed && !g->failed) {
        g->failed = true;
        g->why = set->expr.why;
        schema_name_place(job, keyword);
    }
    return g->failed;
}

/* The JSON strings of a set. */
static expr_id write_set(struct schema_job *job, struct string_set *set)
{
    struct grammar *g = job->json.grammar;
    const expr_id quote = expr_text(g, "\"");
    if (take_failure(job, set, "\"pattern\": ") || set->min > set->max)
        return EXPR_NONE;
    if (!set->n_terms)
        return json_text_string(&job->json, set->min, set->max);
    if (job->json.style.quote)
        return schema_fail(job, "patterns and formats of strings without escapes are not supported");
    const expr_id content = string_set_json(set, &job->json);
    if (g->failed)
        schema_name_place(job, "");
    return take_failure(job, set, "") ? EXPR_NONE : EXPR_SEQ(g, quote, content, quote);
}

expr_id schema_string(struct schema_job *job, const json_t *schema)
{
    struct string_set set;
    open_terms(job, &set);
    add_terms(job, &set, schema, false);
    const expr_id id = write_set(job, &set);
    if (json_object_get(schema, "contentMediaType"))
        schema_note(job, "\"contentMediaType\" is not enforced");
    close_terms(job, &set);
    return id;
}

expr_id schema_name(struct schema_job *job, const struct schema_names *names)
{
    const char *pattern;
    json_t *value;
    struct string_set set;
    open_terms(job, &set);
    if (json_is_object(names->names))
        add_terms(job, &set, names->names, false);
    if (names->pattern)
        string_set_add(&set, names->pattern, REGEX_SEARCH, false);
    json_object_foreach((json_t *)(uintptr_t)names->patterns, pattern, value)
    {
        if (pattern != names->pattern)
            string_set_add(&set, pattern, REGEX_SEARCH, true);
    }
    string_set_exclude(&set, names->others, names->n_others);
    const expr_id id = write_set(job, &set);
    close_terms(job, &set);
    return id;
}

bool schema_name_matches(struct schema_job *job, const char *pattern, const char *name)
{
    struct string_set set;
    open_terms(job, &set);
    string_set_add(&set, pattern, REGEX_SEARCH, false);
    const bool matches = string_set_has(&set, name, strlen(name));
    (void)take_failure(job, &set, "\"pattern\": ");
    close_terms(job, &set);
    return matches;
}

bool schema_string_fits(struct schema_job *job, const json_t *schema, const char *text, size_t len)
{
    if (job->strings_of != schema) {
        close_terms(job, &job->strings);
        open_terms(job, &job->strings);
        add_terms(job, &job->strings, schema, true);
        job->strings_of = schema;
    }
    const struct string_set *set = &job->strings;
    if (!set->n_terms && !set->min && set->max == EXPR_MANY)
        return true;
    const bool fits = string_set_has(&job->strings, text, len);
    return !take_failure(job, &job->strings, "\"pattern\": ") && fits;
}
