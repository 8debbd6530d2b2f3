/* The pickle virtual machine: values, stack and errors. */
#include "format/hf/pickle_machine.h"

#include <string.h>

const char *const pickle_kinds[] = {"a mark", "a constant", "an integer", "a text",   "a tuple",
                                    "a dict", "a name",     "a storage",  "a tensor", "a list"};

const struct value *pickle_top(const struct pickle_machine *m)
{
    return m->depth ? &m->value[m->stack[m->depth - 1]] : &m->value[VALUE_MARK];
}

int pickle_push(struct pickle_machine *m, uint32_t value, struct err *err)
{
    if (m->depth == MAX_STACK)
        return pickle_too_much(m, "values on its stack", err);
    if (mem_grow(&m->stack, &m->stack_cap, m->depth, sizeof *m->stack, err) < 0)
        return -1;
    m->stack[m->depth++] = value;
    return 0;
}

int pickle_push_new(struct pickle_machine *m, struct value value, struct err *err)
{
    if (m->values == MAX_VALUES)
        return pickle_too_much(m, "values", err);
    if (mem_grow(&m->value, &m->value_cap, m->values, sizeof *m->value, err) < 0)
        return -1;
    m->value[m->values++] = value;
    return pickle_push(m, (uint32_t)(m->values - 1), err);
}

int pickle_pop(struct pickle_machine *m, enum pickle_kind kind, uint32_t *value, struct err *err)
{
    const enum pickle_kind found = pickle_top(m)->kind;
    if (found == MARK || (kind != PLAIN && found != kind))
        return err_set(err, "%s: the pickle is damaged at byte %zu: expected %s, found %s", m->name,
                       m->opcode_at, kind == PLAIN ? "a value" : pickle_kinds[kind],
                       pickle_kinds[found]);
    *value = m->stack[--m->depth];
    return 0;
}

int pickle_pop_mark(struct pickle_machine *m, size_t *first, size_t *count, struct err *err)
{
    size_t mark = m->depth;
    while (mark && m->stack[mark - 1] != VALUE_MARK)
        mark--;
    if (!mark)
        return pickle_damaged(m, "no mark on the stack", err);
    *first = mark;
    *count = m->depth - mark;
    m->depth = mark - 1;
    return 0;
}

const struct value *pickle_member(const struct pickle_machine *m, const struct value *tuple, size_t i)
{
    return &m->value[m->member[tuple->first + i]];
}

bool pickle_text_is(struct pickle_text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}
