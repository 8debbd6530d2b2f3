/* Regular expressions for normalizers and pre-tokenizers, on PCRE2.
 *
 * The dialects of tokenizer.json (Oniguruma) and PCRE2 differ in \s, \w, \b, \h, \p{Han}, "$", "&&" and "{2}+".
 * All but the last are translated so that matches are identical; constructs without an exact
 * translation are rejected. */
#include "text/pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <pthread.h>

#include "text/utf8.h"

enum {
    /* memory limit of PCRE2's interpreter, used where JIT is unavailable */
    HEAP_LIMIT_KIB = 256 << 10,
    STACK_START = 32 << 10,
    STACK_LIMIT = 64 << 20, /* of address space, not of allocated memory */
};

#define SPACES                                                                                         \
    "\\t-\\r "                                                                                         \
    "\\x{85}\\x{A0}\\x{1680}\\x{2000}-\\x{200A}\\x{2028}\\x{2029}\\x{202F}\\x{205F}\\x{3000}"
#define NOT_SPACES                                                                                     \
    "\\x{0}-\\x{8}\\x{E}-\\x{1F}!-\\x{84}\\x{86}-\\x{9F}\\x{A1}-\\x{167F}\\x{1681}-\\x{1FFF}"          \
    "\\x{200B}-\\x{2027}\\x{202A}-\\x{202E}\\x{2030}-\\x{205E}\\x{2060}-\\x{2FFF}\\x{3001}-\\x{"       \
    "10FFFF}"
/* Oniguruma's \w in classes, which includes circled and squared letters, and outside of them, where it
 * also includes the numbers of category No in Latin-1. */
#define WORDS                                                                                          \
    "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{24B6}-\\x{24E9}"                                             \
    "\\x{1F130}-\\x{1F149}\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}"
#define WORD     "[" WORDS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
#define NOT_WORD "[^" WORDS "\\x{B2}\\x{B3}\\x{B9}\\x{BC}-\\x{BE}]"
/* Where a word begins or ends, and elsewhere. PCRE2's own \b does not count marks. */
#define BOUNDARY     "(?:(?<=" WORD ")(?!" WORD ")|(?<!" WORD ")(?=" WORD "))"
#define NOT_BOUNDARY "(?:(?<=" WORD ")(?=" WORD ")|(?<!" WORD ")(?!" WORD "))"

/* Escapes such as \s: translation outside and inside [...]; NULL: rejected. Unlisted letters and
 * digits are rejected, other characters are literal. */
static const struct escape {
    char letter;
    const char *outside, *inside;
} escapes[] = {
    {'s', "[" SPACES "]", SPACES},
    {'S', "[^" SPACES "]", NOT_SPACES},
    {'w', WORD, WORDS},
    {'W', NOT_WORD, NULL},
    {'h', "[0-9A-Fa-f]", "0-9A-Fa-f"},
    {'H', "[^0-9A-Fa-f]", NULL},
    {'v', "\\x{B}", "\\x{B}"},
    {'d', "\\d", "\\d"},
    {'D', "\\D", "\\D"},
    {'n', "\\n", "\\n"},
    {'r', "\\r", "\\r"},
    {'t', "\\t", "\\t"},
    {'f', "\\f", "\\f"},
    {'a', "\\a", "\\a"},
    {'e', "\\e", "\\e"},
    {'p', "\\p", "\\p"},
    {'P', "\\P", "\\P"},
    {'x', "\\x", "\\x"},
    {'u', "\\x", "\\x"},
    {'A', "\\A", NULL},
    {'z', "\\z", NULL},
    {'Z', "\\Z", NULL},
    {'b', BOUNDARY, "\\b"},
    {'B', NOT_BOUNDARY, NULL},
};

/* POSIX classes such as [:space:]: translation inside [...]. */
static const struct named_class {
    const char *name, *inside;
} named_classes[] = {
    {"[:space:]", SPACES},
    {"[:digit:]", "\\d"},
    {"[:xdigit:]", "0-9A-Fa-f"},
    {"[:word:]", WORDS},
};

/* A translation of a pattern in progress. */
struct translation {
    const char *text;
    size_t len, at;
    unsigned depth; /* nesting depth of [...] */
    /* of the outermost class, if it is an intersection, [a&&b]; each operand becomes a lookahead */
    bool intersects, negated;
    bool alone;     /* the operand is a negated class, which must be all of it */
    size_t operand; /* where the operand's members begin in `out` */
    struct buf *out;
};

static bool is_alnum(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static int refuse(const struct translation *t, size_t start, size_t len, struct err *err)
{
    return err_set(err, "pattern \"%.*s\": \"%.*s\" at byte %zu is not supported",
                   (int)size_min(t->len, 200), t->text, (int)size_min(len, t->len - start),
                   t->text + start, start);
}

/* True if a property is a script. PCRE2 takes the name alone for the characters that other scripts
 * share with it, too. */
static bool is_script(const char *name, size_t len)
{
    char pattern[64];
    int why;
    PCRE2_SIZE where;
    if (len > sizeof pattern - 8)
        return false;
    const int n = snprintf(pattern, sizeof pattern, "\\p{sc:%.*s}", (int)len, name);
    pcre2_code *code = pcre2_compile((PCRE2_SPTR)pattern, (size_t)n, PCRE2_UTF, &why, &where, NULL);
    pcre2_code_free(code);
    return code != NULL;
}

/* Translates the braces of \p{Name}, \p{^Name} and \x{123}. */
static int translate_braces(struct translation *t, size_t start, bool property, struct err *err)
{
    const char *name = t->text + t->at + 1, *close = memchr(name, '}', t->len - t->at - 1);
    if (!close)
        return refuse(t, start, 3, err);
    const bool negated = property && *name == '^';
    name += negated;
    const size_t len = (size_t)(close - name);
    t->at = (size_t)(close - t->text) + 1;
    return buf_addf(t->out, err, "{%s%s%.*s}", negated ? "^" : "",
                    property && is_script(name, len) ? "sc:" : "", (int)len, name);
}

static int translate_escape(struct translation *t, struct err *err)
{
    size_t start = t->at;
    if (start + 1 >= t->len)
        return refuse(t, start, 1, err);
    char letter = t->text[start + 1];
    t->at += 2;
    if (!is_alnum(letter))
        return buf_add(t->out, t->text + start, 2, err);
    const char *spelling = NULL;
    for (size_t i = 0; i < ARRAY_LEN(escapes); i++)
        if (escapes[i].letter == letter)
            spelling = t->depth ? escapes[i].inside : escapes[i].outside;
    if (!spelling)
        return refuse(t, start, 2, err);
    if (buf_add(t->out, spelling, strlen(spelling), err) < 0)
        return -1;
    if (letter == 'u') {
        if (t->len - t->at < 4)
            return refuse(t, start, 2, err);
        for (size_t i = 0; i < 4; i++)
            if (hex_digit(t->text[t->at + i]) < 0)
                return refuse(t, start, 6, err);
        t->at += 4;
        return buf_addf(t->out, err, "{%.4s}", t->text + t->at - 4);
    }
    if ((letter == 'p' || letter == 'P' || letter == 'x') && t->at < t->len && t->text[t->at] == '{')
        return translate_braces(t, start, letter != 'x', err);
    return 0;
}

/* Translates the "(" of a group; verbs such as (*FAIL) and options other than i are rejected. */
static int translate_group(struct translation *t, struct err *err)
{
    size_t start = t->at, at = start + 1;
    if (at < t->len && t->text[at] == '*')
        return refuse(t, start, 2, err);
    if (at < t->len && t->text[at] == '?')
        for (at++; at < t->len && (is_alnum(t->text[at]) || t->text[at] == '-'); at++)
            if (t->text[at] != 'i' && t->text[at] != '-')
                return refuse(t, start, at - start + 1, err);
    t->at++;
    return buf_add(t->out, "(", 1, err);
}

/* Translates the "{" of an interval. "{n}+" and "{n}?" mean something else in PCRE2: rejected. */
static int translate_interval(struct translation *t, struct err *err)
{
    size_t start = t->at, at = start + 1;
    bool comma = false;
    if (at < t->len && t->text[at] == ',')
        return refuse(t, start, 2, err);
    while (at < t->len && ((t->text[at] >= '0' && t->text[at] <= '9') || t->text[at] == ',')) {
        comma |= t->text[at] == ',';
        at++;
    }
    if (at > start + 1 && at + 1 < t->len && t->text[at] == '}' &&
        (t->text[at + 1] == '+' || (t->text[at + 1] == '?' && !comma)))
        return refuse(t, start, at + 2 - start, err);
    t->at++;
    return buf_add(t->out, "{", 1, err);
}

/* True if the class whose members begin at byte `at` has "&&" outside nested classes. */
static bool is_intersection(const struct translation *t, size_t at)
{
    for (unsigned depth = 1; at < t->len && depth; at++) {
        if (depth == 1 && t->text[at] == '&' && at + 1 < t->len && t->text[at + 1] == '&')
            return true;
        depth += t->text[at] == '[';
        depth -= t->text[at] == ']';
        at += t->text[at] == '\\';
    }
    return false;
}

static int begin_operand(struct translation *t, const char *text, struct err *err)
{
    if (buf_add(t->out, text, strlen(text), err) < 0)
        return -1;
    t->operand = t->out->len;
    t->alone = false;
    return 0;
}

/* Begins the outermost class: as [...], or as lookaheads for all operands of an intersection, which
 * PCRE2 does not have, followed by any character. */
static int begin_class(struct translation *t, bool negated, struct err *err)
{
    t->intersects = is_intersection(t, t->at);
    t->negated = negated;
    if (!t->intersects)
        return buf_add(t->out, "[^", negated ? 2 : 1, err);
    return begin_operand(t, negated ? "(?:(?!(?=[" : "(?:(?=[", err);
}

/* Translates "]" and, of the outermost class, "&&". */
static int end_operand(struct translation *t, struct err *err)
{
    const bool ends = t->text[t->at] == ']';
    const char *end = t->negated ? "]))(?s:.))" : "])(?s:.))";
    if (t->intersects && t->depth == 1 && t->out->len == t->operand)
        return refuse(t, t->at, ends ? 1 : 2, err);
    t->at += ends ? 1 : 2;
    if (!ends)
        return begin_operand(t, "])(?=[", err);
    if (--t->depth)
        return t->alone && t->at < t->len && t->text[t->at] != ']' && t->text[t->at] != '&'
                   ? refuse(t, t->at, 1, err)
                   : 0;
    return t->intersects ? buf_add(t->out, end, strlen(end), err) : buf_add(t->out, "]", 1, err);
}

/* Translates the "[" of a class; nested classes are unions, so inner brackets are dropped. */
static int translate_class(struct translation *t, struct err *err)
{
    size_t start = t->at;
    bool named = t->depth && start + 1 < t->len && t->text[start + 1] == ':';
    bool negated = start + 1 < t->len && t->text[start + 1] == '^';
    if (named) {
        for (size_t i = 0; i < ARRAY_LEN(named_classes); i++) {
            const char *name = named_classes[i].name, *inside = named_classes[i].inside;
            if (t->len - start < strlen(name) || memcmp(t->text + start, name, strlen(name)) != 0)
                continue;
            t->at += strlen(name);
            return buf_add(t->out, inside, strlen(inside), err);
        }
        return refuse(t, start, 8, err);
    }
    t->alone = negated && t->intersects && t->depth == 1 && t->out->len == t->operand;
    if (t->depth && negated && !t->alone)
        return refuse(t, start, 2, err);
    t->at += negated ? 2 : 1;
    if (t->at < t->len && t->text[t->at] == ']')
        return refuse(t, start, t->at + 1 - start, err);
    if (++t->depth > 1)
        return t->alone ? buf_add(t->out, "^", 1, err) : 0;
    return begin_class(t, negated, err);
}

static int translate_next(struct translation *t, struct err *err)
{
    char c = t->text[t->at];
    if (c == '\\')
        return translate_escape(t, err);
    if (c == '[')
        return translate_class(t, err);
    const bool both = t->depth && c == '&' && t->at + 1 < t->len && t->text[t->at + 1] == '&';
    if (both && t->depth > 1)
        return refuse(t, t->at, 2, err);
    if (both || (t->depth && c == ']'))
        return end_operand(t, err);
    if (!t->depth && c == '(')
        return translate_group(t, err);
    if (!t->depth && c == '{')
        return translate_interval(t, err);
    return buf_add(t->out, t->text + t->at++, 1, err);
}

static int compile(const char *pattern, size_t len, pcre2_code **code, struct err *err)
{
    int rc = -1, why;
    PCRE2_SIZE where;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (!context) {
        err_no_memory(err, "a pattern of %zu bytes", len);
        goto out;
    }
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    *code = pcre2_compile((PCRE2_SPTR)pattern, len,
                          PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NO_AUTO_CAPTURE |
                              PCRE2_NEVER_BACKSLASH_C,
                          &why, &where, context);
    if (!*code) {
        char reason[128] = "";
        pcre2_get_error_message(why, (PCRE2_UCHAR *)reason, sizeof reason);
        err_set(err, "pattern \"%.*s\" cannot be compiled: %s (at byte %zu)", (int)size_min(len, 200),
                pattern, reason, (size_t)where);
        goto out;
    }
    /* Without executable memory this fails and the interpreter is used. */
    (void)pcre2_jit_compile(*code, PCRE2_JIT_COMPLETE);
    rc = 0;
out:
    pcre2_compile_context_free(context);
    return rc;
}

int pattern_translate(const char *pattern, size_t len, struct buf *out, struct err *err)
{
    struct translation t = {.text = pattern, .len = len, .out = out};
    size_t start = out->len;
    while (t.at < len)
        if (translate_next(&t, err) < 0)
            return -1;
    if (t.depth)
        return err_set(err, "pattern \"%.*s\": a \"[\" is not closed", (int)size_min(len, 200),
                       pattern);
    pcre2_code *code = NULL;
    int rc = compile(buf_text(out) + start, out->len - start, &code, err);
    pcre2_code_free(code);
    return rc;
}

struct patterns {
    pthread_mutex_t lock;
    size_t count;
    pcre2_code *code[]; /* [count]: compiled on first use, NULL until then */
};

struct patterns *patterns_new(size_t count)
{
    struct patterns *patterns = calloc(1, sizeof *patterns + count * sizeof patterns->code[0]);
    if (patterns) {
        pthread_mutex_init(&patterns->lock, NULL);
        patterns->count = count;
    }
    return patterns;
}

void patterns_free(struct patterns *patterns)
{
    if (!patterns)
        return;
    for (size_t i = 0; i < patterns->count; i++)
        pcre2_code_free(patterns->code[i]);
    pthread_mutex_destroy(&patterns->lock);
    free(patterns);
}

static int patterns_get(struct patterns *patterns, size_t index, const char *pattern, size_t len,
                        const void **found, struct err *err)
{
    int rc = 0;
    pcre2_code *code = __atomic_load_n(&patterns->code[index], __ATOMIC_ACQUIRE);
    if (!code) {
        pthread_mutex_lock(&patterns->lock);
        code = patterns->code[index];
        if (!code) {
            rc = compile(pattern, len, &code, err);
            __atomic_store_n(&patterns->code[index], code, __ATOMIC_RELEASE);
        }
        pthread_mutex_unlock(&patterns->lock);
    }
    *found = code;
    return rc;
}

static int matcher_prepare(struct matcher *matcher, struct err *err)
{
    if (!matcher->match_data)
        matcher->match_data = pcre2_match_data_create(1, NULL);
    if (!matcher->context)
        matcher->context = pcre2_match_context_create(NULL);
    if (!matcher->match_data || !matcher->context)
        return err_no_memory(err, "a search for patterns");
    if (!matcher->stack) {
        matcher->stack = pcre2_jit_stack_create(STACK_START, STACK_LIMIT, NULL);
        if (matcher->stack)
            pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
        pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
    }
    return 0;
}

void matcher_release(struct matcher *matcher)
{
    pcre2_match_data_free(matcher->match_data);
    pcre2_match_context_free(matcher->context);
    pcre2_jit_stack_free(matcher->stack);
    *matcher = (struct matcher){0};
}

int search_start(struct search *search, struct matcher *matcher, struct patterns *patterns,
                 size_t index, const char *pattern, size_t pattern_len, const char *text, size_t len,
                 struct err *err)
{
    *search = (struct search){.matcher = matcher, .text = text, .len = len};
    if (matcher_prepare(matcher, err) < 0)
        return -1;
    return patterns_get(patterns, index, pattern, pattern_len, &search->code, err);
}

int search_next(struct search *search, size_t *start, size_t *end, struct err *err)
{
    pcre2_match_data *data = search->matcher->match_data;
    while (search->from <= search->len) {
        int rc = pcre2_match(search->code, (PCRE2_SPTR)search->text, search->len, search->from,
                             PCRE2_NO_UTF_CHECK, data, search->matcher->context);
        if (rc == PCRE2_ERROR_NOMATCH)
            return 0;
        if (rc < 0) {
            char reason[128] = "";
            pcre2_get_error_message(rc, (PCRE2_UCHAR *)reason, sizeof reason);
            return err_set(err, "a pattern of the tokenizer failed at byte %zu of the text: %s",
                           search->from, reason);
        }
        const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(data);
        *start = bounds[0];
        *end = bounds[1];
        if (*start < search->from || *start > *end || *end > search->len)
            return err_set(err, "a pattern of the tokenizer matched backwards at byte %zu of the text",
                           search->from);
        if (*start != *end || !search->matched || *end != search->last_end) {
            search->from = search->last_end = *end;
            search->matched = true;
            return 1;
        }
        uint32_t code;
        search->from +=
            search->from < search->len ? utf8_decode(search->text + search->from, &code) : 1;
    }
    return 0;
}
