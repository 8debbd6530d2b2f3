/* The machine of pickles: its values, its stack, and what is said when they are wrong. */
#include "format/pickle_machine.h"

#include <string.h>

const char *const pickle_kinds[] = {"a mark", "a constant", "an integer", "a text",   "a tuple",
                                    "a dict", "a name",     "a storage",  "a tensor", "a list"};

/* ---- values and the stack ---- */

const struct value *pickle_top(const struct machine *m)
{
    return m->depth ? &m->value[m->stack[m->depth - 1]] : &m->value[VALUE_MARK];
}

int pickle_push(struct machine *m, uint32_t value, struct err *err)
{
    if (m->depth == MAX_STACK)
        return pickle_too_much(m, "values on its stack", err);
    if (mem_grow(&m->stack, &m->stack_cap, m->depth, sizeof *m->stack, err) < 0)
        return -1;
    m->stack[m->depth++] = value;
    return 0;
}

int pickle_push_new(struct machine *m, struct value value, struct err *err)
{
    if (m->values == MAX_VALUES)
        return pickle_too_much(m, "values", err);
    if (mem_grow(&m->value, &m->value_cap, m->values, sizeof *m->value, err) < 0)
        return -1;
    m->value[m->values++] = value;
    return pickle_push(m, (uint32_t)(m->values - 1), err);
}

/* Takes a value of that kind off the stack; PLAIN stands for any. */
int pickle_pop(struct machine *m, enum kind kind, uint32_t *value, struct err *err)
{
    const enum kind found = pickle_top(m)->kind;
    if (found == MARK || (kind != PLAIN && found != kind))
        return err_set(err, "%s: its pickle is damaged at byte %zu: %s is needed, %s is there", m->name,
                       m->opcode_at, kind == PLAIN ? "a value" : pickle_kinds[kind],
                       pickle_kinds[found]);
    *value = m->stack[--m->depth];
    return 0;
}

/* Takes off what is above the last mark, and the mark: *count values from m->stack[*first] on, which stay there until
 * the next push. */
int pickle_pop_mark(struct machine *m, size_t *first, size_t *count, struct err *err)
{
    size_t mark = m->depth;
    while (mark && m->stack[mark - 1] != VALUE_MARK)
        mark--;
    if (!mark)
        return pickle_damaged(m, "there is no mark", err);
    *first = mark;
    *count = m->depth - mark;
    m->depth = mark - 1;
    return 0;
}

const struct value *pickle_member(const struct machine *m, const struct value *tuple, size_t i)
{
    return &m->value[m->member[tuple->first + i]];
}

bool pickle_text_is(struct pickle_text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}
