/* Multiples of a number: automata over digits whose states are remainders. */
#include "text/grammar/json_multiple.h"

#include <stdio.h>
#include <stdlib.h>

#include "text/grammar/json_number.h"

enum { MOST_DIGITS = 18 };

struct multiples {
    struct grammar *grammar;
    uint64_t factor;
    size_t fraction; /* digits after the point */
    /* [MOST_DIGITS + 1][factor]: n digits that make a multiple of what begins with a remainder; valid if
     * `known` */
    expr_id *any;
    bool *known;
};

/* n digits after which the remainder is 0, `remainder` being that of the digits before them. They are at
 * least those at `lo` and at most those at `hi`; NULL: no bound. */
static expr_id digits(struct multiples *m, const char *lo, const char *hi, size_t n, uint64_t remainder)
{
    struct grammar *g = m->grammar;
    const bool open = !lo && !hi;
    const size_t at = n * m->factor + remainder;
    const expr_id point = n && n == m->fraction ? expr_text(g, ".") : EXPR_EMPTY;
    struct expr_list list = {0};
    if (n == 0)
        return remainder == 0 ? EXPR_EMPTY : EXPR_NONE;
    if (open && m->known[at])
        return m->any[at];
    for (char d = lo ? *lo : '0'; d <= (hi ? *hi : '9') && !g->failed; d++) {
        const expr_id rest = digits(m, lo && d == *lo ? lo + 1 : NULL, hi && d == *hi ? hi + 1 : NULL,
                                    n - 1, (remainder * 10 + (uint64_t)(d - '0')) % m->factor);
        if (rest != EXPR_NONE)
            expr_list_add(g, &list, EXPR_SEQ(g, point, expr_bytes(g, &d, 1), rest));
    }
    expr_id id = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    if (open && id != EXPR_NONE && !g->failed) {
        const uint32_t rule = grammar_add_rule(g, "multiple", 8);
        grammar_set_rule(g, rule, id);
        id = expr_rule(g, rule);
    }
    if (open) {
        m->known[at] = true;
        m->any[at] = id;
    }
    return id;
}

/* The multiples from lo > 0 to hi. */
static expr_id positive(struct multiples *m, uint64_t lo, uint64_t hi)
{
    struct grammar *g = m->grammar;
    struct expr_list list = {0};
    uint64_t power = 1; /* the lowest number of n digits */
    for (size_t n = 1; n <= MOST_DIGITS && (power <= hi || n <= m->fraction + 1); n++, power *= 10) {
        const uint64_t from = n == m->fraction + 1 ? 1 : power; /* zeros before the point: one */
        const uint64_t a = lo > from ? lo : from, b = hi < power * 10 - 1 ? hi : power * 10 - 1;
        char low[24], high[24];
        if (n <= m->fraction || a > b)
            continue;
        snprintf(low, sizeof low, "%0*llu", (int)n, (unsigned long long)a);
        snprintf(high, sizeof high, "%0*llu", (int)n, (unsigned long long)b);
        expr_list_add(g, &list, digits(m, low, high, n, 0));
    }
    const expr_id id = expr_alt(g, list.id, list.n);
    expr_list_release(&list);
    return id;
}

/* Rounds |x| / power down (`up` false) or up. */
static uint64_t scaled(uint64_t x, uint64_t power, bool up) { return x / power + (up && x % power); }

expr_id json_multiples(struct grammar *g, uint64_t factor, size_t fraction, int64_t lo, int64_t hi)
{
    struct multiples m = {.grammar = g, .factor = factor, .fraction = fraction};
    uint64_t power = 1;
    expr_id list[3], zeros = EXPR_EMPTY;
    size_t n = 0;
    while (!fraction && m.factor % 10 == 0 && power < 1000000000000000000) {
        m.factor /= 10;
        power *= 10;
        zeros = EXPR_SEQ(g, zeros, expr_text(g, "0"));
    }
    if (m.factor > JSON_FACTOR_MAX)
        return grammar_fail(g, "a factor (multipleOf) exceeds %d times a power of ten",
                            JSON_FACTOR_MAX);
    m.any = mem_alloc((MOST_DIGITS + 1) * (size_t)m.factor, sizeof *m.any);
    m.known = mem_zalloc((MOST_DIGITS + 1) * (size_t)m.factor, sizeof *m.known);
    if (!m.any || !m.known)
        grammar_no_memory(g, "multiples");
    if (lo <= 0 && hi >= 0)
        list[n++] = expr_text(g, "0");
    if (hi > 0 && !g->failed)
        list[n++] = EXPR_SEQ(g,
                             positive(&m, scaled(lo > 0 ? (uint64_t)lo : 1, power, true),
                                      scaled((uint64_t)hi, power, false)),
                             zeros);
    if (lo < 0 && !g->failed)
        list[n++] = EXPR_SEQ(g, expr_text(g, "-"),
                             positive(&m, scaled(hi < 0 ? (uint64_t)-hi : 1, power, true),
                                      scaled((uint64_t)-lo, power, false)),
                             zeros);
    free(m.any);
    free(m.known);
    return lo > hi ? EXPR_NONE : expr_alt(g, list, n);
}
