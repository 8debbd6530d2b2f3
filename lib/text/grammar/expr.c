/* Building grammars from expressions. */
#include "text/grammar/expr.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static expr_id add(struct grammar *g, const struct expr *expr)
{
    if (g->failed)
        return EXPR_NONE;
    if (g->n_exprs >= GRAMMAR_MAX)
        return grammar_fail(g, "the grammar is too large: it has more than %d expressions",
                            GRAMMAR_MAX);
    if (mem_grow(&g->expr, &g->exprs_cap, g->n_exprs, sizeof *g->expr, &g->why) < 0) {
        g->failed = true;
        return EXPR_NONE;
    }
    g->expr[g->n_exprs] = *expr;
    return (expr_id)g->n_exprs++;
}

void grammar_begin(struct grammar *g)
{
    *g = (struct grammar){0};
    add(g, &(struct expr){.kind = EXPR_IS_NONE});
    add(g, &(struct expr){.kind = EXPR_IS_EMPTY});
}

void grammar_release(struct grammar *g)
{
    free(g->expr);
    free(g->list);
    free(g->range);
    free(g->rule);
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
    return add(g, &(struct expr){.kind = EXPR_IS_BYTES, .a = (uint32_t)at, .b = (uint32_t)len});
}

expr_id expr_text(struct grammar *g, const char *text) { return expr_bytes(g, text, strlen(text)); }

expr_id expr_class(struct grammar *g, const struct code_range *range, size_t n)
{
    const size_t at = g->n_ranges;
    for (size_t i = 0; i < n && !g->failed; i++) {
        if (g->n_ranges >= (size_t)4 * GRAMMAR_MAX)
            return grammar_fail(g, "the grammar is too large: it has more than %d ranges of characters",
                                4 * GRAMMAR_MAX);
        if (mem_grow(&g->range, &g->ranges_cap, g->n_ranges, sizeof *g->range, &g->why) < 0)
            g->failed = true;
        else
            g->range[g->n_ranges++] = range[i];
    }
    return n ? add(g, &(struct expr){.kind = EXPR_IS_CLASS, .a = (uint32_t)at, .b = (uint32_t)n})
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
        if (mem_grow(&g->list, &g->list_cap, g->n_list, sizeof *g->list, &g->why) < 0)
            g->failed = true;
        else
            g->list[g->n_list++] = list[i];
    }
    return add(g, &(struct expr){.kind = kind, .a = (uint32_t)at, .b = (uint32_t)n});
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
    return add(g, &(struct expr){.kind = EXPR_IS_REPEAT, .a = id, .min = min, .max = max});
}

static expr_id as_rule(struct grammar *g, expr_id id)
{
    const uint32_t rule = grammar_add_rule(g, "repetition", 10);
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
    b->full[0] = id;
    b->upto[0] = EXPR_EMPTY;
    for (size_t i = 1; i < LEVELS; i++) {
        b->full[i] = as_rule(g, repeat(g, b->full[i - 1], BLOCK, BLOCK));
        b->upto[i] = as_rule(g, EXPR_SEQ(g, repeat(g, b->full[i - 1], 0, BLOCK - 1), b->upto[i - 1]));
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
    return add(g, &(struct expr){.kind = EXPR_IS_RULE, .a = rule});
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
    if (buf_add(&g->names, name, len, &g->why) < 0 || buf_add(&g->names, "", 1, &g->why) < 0 ||
        mem_grow(&g->rule, &g->rules_cap, g->n_rules, sizeof *g->rule, &g->why) < 0) {
        g->failed = true;
        return 0;
    }
    g->rule[g->n_rules] = (struct grammar_rule){EXPR_NONE, at};
    return (uint32_t)g->n_rules++;
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
    if (g->failed)
        return;
    if (mem_grow(&list->id, &list->cap, list->n, sizeof *list->id, &g->why) < 0)
        g->failed = true;
    else
        list->id[list->n++] = id;
}

void expr_list_release(struct expr_list *list)
{
    free(list->id);
    *list = (struct expr_list){0};
}
