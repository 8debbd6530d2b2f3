/* Pickle protocol 2, as far as torch.save() uses it for a dictionary of tensors: a stack machine
 * with a memo.
 *
 * Values are immutable and refer to others by index; items of all dictionaries are in one list.
 * Only the final dictionary is traversed, and not recursively, so deep nesting is harmless. */
#include "format/hf/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

/* ---- input ---- */
static int take(struct pickle_machine *m, size_t n, const unsigned char **bytes, struct err *err)
{
    if (n > m->size - m->at)
        return pickle_damaged(m, "unexpected end", err);
    *bytes = m->data + m->at;
    m->at += n;
    return 0;
}

/* Reads a little-endian number of n < 8 bytes. */
static int take_number(struct pickle_machine *m, size_t n, uint64_t *number, struct err *err)
{
    const unsigned char *bytes;
    if (take(m, n, &bytes, err) < 0)
        return -1;
    *number = 0;
    for (size_t i = 0; i < n; i++)
        *number |= (uint64_t)bytes[i] << 8 * i;
    return 0;
}

static int take_line(struct pickle_machine *m, struct pickle_text *line, struct err *err)
{
    const unsigned char *at = m->data + m->at, *end = memchr(at, '\n', m->size - m->at);
    if (!end)
        return pickle_damaged(m, "unterminated line", err);
    *line = (struct pickle_text){(const char *)at, (size_t)(end - at)};
    m->at += line->len + 1;
    return 0;
}

static bool value_is(const struct value *value, const char *word)
{
    return value->kind == TEXT && pickle_text_is((struct pickle_text){value->text, value->count}, word);
}

/* ---- opcodes ---- */

static int op_proto(struct pickle_machine *m, struct err *err)
{
    uint64_t protocol;
    if (take_number(m, 1, &protocol, err) < 0)
        return -1;
    if (protocol != 2)
        return err_set(err,
                       "%s: pickle protocol %d is not supported; save the model again with protocol 2, "
                       "the default of torch.save",
                       m->name, (int)protocol);
    return 0;
}

static int op_stop(struct pickle_machine *m, struct err *err)
{
    m->stopped = true;
    return m->depth == 1 ? 0
                         : pickle_damaged(m, "the final stack does not hold exactly one value", err);
}

static int push(struct pickle_machine *m, size_t value, struct err *err)
{
    return pickle_push(m, (uint32_t)value, err);
}

/* Skips a value of `bytes` bytes that tensors do not need, and pushes a placeholder. */
static int pass_over(struct pickle_machine *m, size_t bytes, struct err *err)
{
    const unsigned char *unused;
    return take(m, bytes, &unused, err) < 0 ? -1 : pickle_push(m, VALUE_PLAIN, err);
}

/* Skips a byte string with a length prefix: tensor names are never byte strings. */
static int pass_over_counted(struct pickle_machine *m, size_t length_bytes, struct err *err)
{
    uint64_t bytes;
    return take_number(m, length_bytes, &bytes, err) < 0 ? -1 : pass_over(m, bytes, err);
}

static int push_empty(struct pickle_machine *m, size_t kind, struct err *err)
{
    return pickle_push_new(m, (struct value){.kind = (enum pickle_kind)kind}, err);
}

static int check_list(const struct pickle_machine *m, struct err *err)
{
    return pickle_top(m)->kind == LIST ? 0
                                       : pickle_damaged(m, "append to a value that is not a list", err);
}

/* APPEND drops the appended element: no list is needed for tensors. */
static int op_append(struct pickle_machine *m, struct err *err)
{
    uint32_t unused;
    return pickle_pop(m, PLAIN, &unused, err) < 0 ? -1 : check_list(m, err);
}

static int op_appends(struct pickle_machine *m, struct err *err)
{
    size_t first, count;
    return pickle_pop_mark(m, &first, &count, err) < 0 ? -1 : check_list(m, err);
}

/* Reads an unsigned integer of n < 8 bytes and pushes it. */
static int push_unsigned(struct pickle_machine *m, size_t n, struct err *err)
{
    uint64_t number;
    if (take_number(m, n, &number, err) < 0)
        return -1;
    return pickle_push_new(m, (struct value){.kind = INTEGER, .integer = (int64_t)number}, err);
}

/* Reads a two's complement integer of n < 8 bytes and pushes it. */
static int push_signed(struct pickle_machine *m, size_t n, struct err *err)
{
    if (push_unsigned(m, n, err) < 0)
        return -1;
    int64_t *number = &m->value[m->values - 1].integer;
    if (n && *number >> (8 * n - 1))
        *number |= (int64_t)(~(uint64_t)0 << 8 * n);
    return 0;
}

static int op_long1(struct pickle_machine *m, struct err *err)
{
    uint64_t bytes;
    if (take_number(m, 1, &bytes, err) < 0)
        return -1;
    return bytes < 8 ? push_signed(m, bytes, err) : pass_over(m, bytes, err);
}

static int op_binunicode(struct pickle_machine *m, struct err *err)
{
    uint64_t len;
    const unsigned char *text;
    if (take_number(m, 4, &len, err) < 0 || take(m, len, &text, err) < 0)
        return -1;
    return pickle_push_new(
        m, (struct value){.kind = TEXT, .count = (uint32_t)len, .text = (const char *)text}, err);
}

/* Pushes a tuple of the `count` values at m->stack[first], which have been popped. */
static int push_tuple(struct pickle_machine *m, size_t first, size_t count, struct err *err)
{
    const struct value tuple = {.kind = TUPLE, .count = (uint32_t)count, .first = m->members};
    if (count > MAX_VALUES - m->members)
        return pickle_too_much(m, "members of tuples", err);
    for (size_t i = 0; i < count; i++) {
        if (mem_grow(&m->member, &m->member_cap, m->members, sizeof *m->member, err) < 0)
            return -1;
        m->member[m->members++] = m->stack[first + i];
    }
    return pickle_push_new(m, tuple, err);
}

static int op_tuple(struct pickle_machine *m, struct err *err)
{
    size_t first, count;
    return pickle_pop_mark(m, &first, &count, err) < 0 ? -1 : push_tuple(m, first, count, err);
}

static int tuple_of(struct pickle_machine *m, size_t count, struct err *err)
{
    uint32_t unused;
    for (size_t i = 0; i < count; i++)
        if (pickle_pop(m, PLAIN, &unused, err) < 0)
            return -1;
    return push_tuple(m, m->depth, count, err);
}

static int add_item(struct pickle_machine *m, uint32_t dict, uint32_t key, uint32_t value,
                    struct err *err)
{
    if (m->items == MAX_VALUES)
        return pickle_too_much(m, "entries of dictionaries", err);
    if (mem_grow(&m->item, &m->item_cap, m->items, sizeof *m->item, err) < 0)
        return -1;
    m->item[m->items++] = (struct item){dict, key, value};
    return 0;
}

static int op_setitem(struct pickle_machine *m, struct err *err)
{
    uint32_t dict, key, value;
    if (pickle_pop(m, PLAIN, &value, err) < 0 || pickle_pop(m, PLAIN, &key, err) < 0 ||
        pickle_pop(m, DICT, &dict, err) < 0 || pickle_push(m, dict, err) < 0)
        return -1;
    return add_item(m, dict, key, value, err);
}

static int op_setitems(struct pickle_machine *m, struct err *err)
{
    size_t first, count;
    if (pickle_pop_mark(m, &first, &count, err) < 0)
        return -1;
    if (pickle_top(m)->kind != DICT || count % 2)
        return pickle_damaged(m, "items are not pairs, or there is no dictionary", err);
    for (size_t i = 0; i < count; i += 2)
        if (add_item(m, m->stack[m->depth - 1], m->stack[first + i], m->stack[first + i + 1], err) < 0)
            return -1;
    return 0;
}

static int op_global(struct pickle_machine *m, struct err *err)
{
    struct pickle_text module, name;
    if (take_line(m, &module, err) < 0 || take_line(m, &name, err) < 0)
        return -1;
    const struct global *global = pickle_global(module, name);
    if (global)
        return pickle_push_new(m, (struct value){.kind = GLOBAL, .global = global}, err);
    return err_set(err,
                   "%s: the pickle uses \"%.*s.%.*s\", which is not allowed; save only the model's "
                   "state_dict()",
                   m->name, (int)size_min(module.len, 100), module.data, (int)size_min(name.len, 100),
                   name.data);
}

static int op_reduce(struct pickle_machine *m, struct err *err)
{
    uint32_t args, name;
    if (pickle_pop(m, TUPLE, &args, err) < 0 || pickle_pop(m, GLOBAL, &name, err) < 0)
        return -1;
    const struct global *global = m->value[name].global;
    const struct value tuple = m->value[args]; /* copied: m->value may be reallocated */
    return global->call ? global->call(m, &tuple, err)
                        : pickle_damaged(m, "a storage class is called", err);
}

/* BUILD sets attributes of an object, such as module versions: they are ignored. */
static int op_build(struct pickle_machine *m, struct err *err)
{
    uint32_t unused;
    if (pickle_pop(m, DICT, &unused, err) < 0)
        return -1;
    return pickle_top(m)->kind == DICT
               ? 0
               : pickle_damaged(m, "attributes on a value that is not a dictionary", err);
}

/* Makes a storage of the tuple ("storage", class, key, device, elements). */
static int op_binpersid(struct pickle_machine *m, struct err *err)
{
    uint32_t id;
    if (pickle_pop(m, TUPLE, &id, err) < 0)
        return -1;
    struct value v = m->value[id];
    if (v.count != 5 || !value_is(pickle_member(m, &v, 0), "storage") ||
        pickle_member(m, &v, 1)->kind != GLOBAL || pickle_member(m, &v, 1)->global->call ||
        pickle_member(m, &v, 2)->kind != TEXT || pickle_member(m, &v, 3)->kind != TEXT ||
        pickle_member(m, &v, 4)->kind != INTEGER || pickle_member(m, &v, 4)->integer < 0)
        return pickle_damaged(m, "malformed storage reference", err);
    v.kind = STORAGE;
    return pickle_push_new(m, v, err);
}

/* Reads a memo index of `bytes` bytes and stores the top of the stack there. Indices are
 * consecutive. */
static int put(struct pickle_machine *m, size_t bytes, struct err *err)
{
    uint64_t at;
    if (take_number(m, bytes, &at, err) < 0)
        return -1;
    if (at > m->memos || pickle_top(m)->kind == MARK)
        return pickle_damaged(m, "memo index out of order, or empty stack", err);
    if (at == MAX_MEMO)
        return pickle_too_much(m, "memo entries", err);
    if (mem_grow(&m->memo, &m->memo_cap, at, sizeof *m->memo, err) < 0)
        return -1;
    m->memo[at] = m->stack[m->depth - 1];
    m->memos = size_max(m->memos, at + 1);
    return 0;
}

static int get(struct pickle_machine *m, size_t bytes, struct err *err)
{
    uint64_t at;
    if (take_number(m, bytes, &at, err) < 0)
        return -1;
    return at < m->memos ? pickle_push(m, m->memo[at], err)
                         : pickle_damaged(m, "memo entry does not exist", err);
}

/* Opcodes without a function are rejected by name. */
static const struct opcode {
    const char *name;
    int (*run)(struct pickle_machine *, struct err *);
    int (*run_with)(struct pickle_machine *, size_t argument, struct err *); /* instead of run() */
    size_t argument;
} opcodes[256] = {
    ['('] = {"MARK", NULL, push, VALUE_MARK},
    [')'] = {"EMPTY_TUPLE", NULL, tuple_of, 0},
    ['.'] = {"STOP", op_stop, NULL, 0},
    ['0'] = {"POP", NULL, NULL, 0},
    ['1'] = {"POP_MARK", NULL, NULL, 0},
    ['2'] = {"DUP", NULL, NULL, 0},
    ['B'] = {"BINBYTES", NULL, NULL, 0},
    ['C'] = {"SHORT_BINBYTES", NULL, NULL, 0},
    ['F'] = {"FLOAT", NULL, NULL, 0},
    ['G'] = {"BINFLOAT", NULL, pass_over, 8},
    ['I'] = {"INT", NULL, NULL, 0},
    ['J'] = {"BININT", NULL, push_signed, 4},
    ['K'] = {"BININT1", NULL, push_unsigned, 1},
    ['L'] = {"LONG", NULL, NULL, 0},
    ['M'] = {"BININT2", NULL, push_unsigned, 2},
    ['N'] = {"NONE", NULL, push, VALUE_PLAIN},
    ['P'] = {"PERSID", NULL, NULL, 0},
    ['Q'] = {"BINPERSID", op_binpersid, NULL, 0},
    ['R'] = {"REDUCE", op_reduce, NULL, 0},
    ['S'] = {"STRING", NULL, NULL, 0},
    ['T'] = {"BINSTRING", NULL, pass_over_counted, 4},
    ['U'] = {"SHORT_BINSTRING", NULL, pass_over_counted, 1},
    ['V'] = {"UNICODE", NULL, NULL, 0},
    ['X'] = {"BINUNICODE", op_binunicode, NULL, 0},
    [']'] = {"EMPTY_LIST", NULL, push_empty, LIST},
    ['a'] = {"APPEND", op_append, NULL, 0},
    ['b'] = {"BUILD", op_build, NULL, 0},
    ['c'] = {"GLOBAL", op_global, NULL, 0},
    ['d'] = {"DICT", NULL, NULL, 0},
    ['e'] = {"APPENDS", op_appends, NULL, 0},
    ['g'] = {"GET", NULL, NULL, 0},
    ['h'] = {"BINGET", NULL, get, 1},
    ['i'] = {"INST", NULL, NULL, 0},
    ['j'] = {"LONG_BINGET", NULL, get, 4},
    ['l'] = {"LIST", NULL, NULL, 0},
    ['o'] = {"OBJ", NULL, NULL, 0},
    ['p'] = {"PUT", NULL, NULL, 0},
    ['q'] = {"BINPUT", NULL, put, 1},
    ['r'] = {"LONG_BINPUT", NULL, put, 4},
    ['s'] = {"SETITEM", op_setitem, NULL, 0},
    ['t'] = {"TUPLE", op_tuple, NULL, 0},
    ['u'] = {"SETITEMS", op_setitems, NULL, 0},
    ['}'] = {"EMPTY_DICT", NULL, push_empty, DICT},
    [0x80] = {"PROTO", op_proto, NULL, 0},
    [0x81] = {"NEWOBJ", NULL, NULL, 0},
    [0x82] = {"EXT1", NULL, NULL, 0},
    [0x83] = {"EXT2", NULL, NULL, 0},
    [0x84] = {"EXT4", NULL, NULL, 0},
    [0x85] = {"TUPLE1", NULL, tuple_of, 1},
    [0x86] = {"TUPLE2", NULL, tuple_of, 2},
    [0x87] = {"TUPLE3", NULL, tuple_of, 3},
    [0x88] = {"NEWTRUE", NULL, push, VALUE_PLAIN},
    [0x89] = {"NEWFALSE", NULL, push, VALUE_PLAIN},
    [0x8a] = {"LONG1", op_long1, NULL, 0},
    [0x8b] = {"LONG4", NULL, NULL, 0},
};

static int step(struct pickle_machine *m, struct err *err)
{
    const unsigned char *code;
    m->opcode_at = m->at;
    if (take(m, 1, &code, err) < 0)
        return -1;
    const struct opcode *opcode = &opcodes[*code];
    if (opcode->run)
        return opcode->run(m, err);
    if (opcode->run_with)
        return opcode->run_with(m, opcode->argument, err);
    return err_set(err,
                   "%s: the pickle has opcode %s (0x%02x) at byte %zu, which is not supported; save "
                   "only the model's state_dict()",
                   m->name, opcode->name ? opcode->name : "unknown", *code, m->opcode_at);
}

/* Collects the tensors of the final dictionary; other entries are ignored. */
static int collect(struct pickle_machine *m, struct pickle *pickle, struct err *err)
{
    const uint32_t dict = m->stack[0];
    if (m->value[dict].kind != DICT)
        return err_set(err, "%s: the pickle is %s, expected a dictionary of tensors", m->name,
                       pickle_kinds[m->value[dict].kind]);
    pickle->entry = calloc(m->items + 1, sizeof *pickle->entry);
    if (!pickle->entry)
        return err_no_memory(err, "%s: its list of tensors", m->name);
    for (size_t i = 0; i < m->items; i++) {
        const struct value *key = &m->value[m->item[i].key], *value = &m->value[m->item[i].value];
        if (m->item[i].dict == dict && key->kind == TEXT && value->kind == TENSOR)
            pickle->entry[pickle->n_entries++] =
                (struct pickle_entry){{key->text, key->count}, &m->tensor[value->tensor]};
    }
    if (!pickle->n_entries)
        return err_set(
            err, "%s: the dictionary contains no tensors; save only the model's state_dict()", m->name);
    pickle->tensor = m->tensor;
    m->tensor = NULL;
    return 0;
}

int pickle_parse(struct pickle *pickle, const void *data, size_t size, const char *name,
                 struct err *err)
{
    struct pickle_machine m = {.name = name, .data = data, .size = size};
    int rc = -1;
    *pickle = (struct pickle){0};
    if (mem_grow(&m.value, &m.value_cap, 0, sizeof *m.value, err) < 0)
        goto out;
    m.values = FIRST_VALUE;
    m.value[VALUE_MARK] = (struct value){.kind = MARK};
    m.value[VALUE_PLAIN] = (struct value){.kind = PLAIN};
    while (!m.stopped)
        if (step(&m, err) < 0)
            goto out;
    rc = collect(&m, pickle, err);
out:
    free(m.value);
    free(m.stack);
    free(m.memo);
    free(m.member);
    free(m.item);
    free(m.tensor);
    if (rc < 0)
        pickle_release(pickle);
    return rc;
}

void pickle_release(struct pickle *pickle)
{
    free(pickle->entry);
    free(pickle->tensor);
    *pickle = (struct pickle){0};
}
