/* The pickle in a PyTorch checkpoint, protocol 2: a machine with a stack and a memo, of just what torch.save() writes for a
 * dictionary of tensors.
 *
 * Values never change once they are made, and refer to others by number. What is put into a dictionary is kept in one
 * list for all of them; nothing is walked through but the one that comes out in the end, so depth costs nothing. */
#include "format/pickle_machine.h"

#include <stdlib.h>
#include <string.h>

/* ---- what is in the file ---- */
static int take(struct machine *m, size_t n, const unsigned char **bytes, struct err *err)
{
    if (n > m->size - m->at)
        return pickle_damaged(m, "it ends there", err);
    *bytes = m->data + m->at;
    m->at += n;
    return 0;
}

/* A little-endian number of n bytes, n < 8. */
static int take_number(struct machine *m, size_t n, uint64_t *number, struct err *err)
{
    const unsigned char *bytes;
    if (take(m, n, &bytes, err) < 0)
        return -1;
    *number = 0;
    for (size_t i = 0; i < n; i++)
        *number |= (uint64_t)bytes[i] << 8 * i;
    return 0;
}

static int take_line(struct machine *m, struct pickle_text *line, struct err *err)
{
    const unsigned char *at = m->data + m->at, *end = memchr(at, '\n', m->size - m->at);
    if (!end)
        return pickle_damaged(m, "a line has no end", err);
    *line = (struct pickle_text){(const char *)at, (size_t)(end - at)};
    m->at += line->len + 1;
    return 0;
}

static bool value_is(const struct value *value, const char *word)
{
    return value->kind == TEXT && pickle_text_is((struct pickle_text){value->text, value->count}, word);
}

/* ---- instructions ---- */

static int op_proto(struct machine *m, struct err *err)
{
    uint64_t protocol;
    if (take_number(m, 1, &protocol, err) < 0)
        return -1;
    if (protocol != 2)
        return err_set(err,
                       "%s: its pickle is of protocol %d, torch.save writes 2 unless told otherwise: "
                       "save the model anew",
                       m->name, (int)protocol);
    return 0;
}

static int op_stop(struct machine *m, struct err *err)
{
    m->stopped = true;
    return m->depth == 1 ? 0 : pickle_damaged(m, "it stops with a stack that holds not one value", err);
}

static int op_mark(struct machine *m, struct err *err) { return pickle_push(m, VALUE_MARK, err); }
static int op_plain(struct machine *m, struct err *err) { return pickle_push(m, VALUE_PLAIN, err); }

/* What weights are not made of is passed over: it only stands where it stands. */
static int pass_over(struct machine *m, size_t bytes, struct err *err)
{
    const unsigned char *unused;
    return take(m, bytes, &unused, err) < 0 ? -1 : op_plain(m, err);
}

static int op_binfloat(struct machine *m, struct err *err) { return pass_over(m, 8, err); }

/* Texts of bytes are no names of tensors. */
static int pass_over_counted(struct machine *m, size_t length_bytes, struct err *err)
{
    uint64_t bytes;
    return take_number(m, length_bytes, &bytes, err) < 0 ? -1 : pass_over(m, bytes, err);
}

static int op_short_binstring(struct machine *m, struct err *err)
{
    return pass_over_counted(m, 1, err);
}

static int op_binstring(struct machine *m, struct err *err) { return pass_over_counted(m, 4, err); }

static int op_list(struct machine *m, struct err *err)
{
    return pickle_push_new(m, (struct value){.kind = LIST}, err);
}

/* What is put into a list is forgotten: nothing asks for it. */
static int op_append(struct machine *m, struct err *err)
{
    uint32_t unused;
    if (pickle_pop(m, PLAIN, &unused, err) < 0)
        return -1;
    return pickle_top(m)->kind == LIST ? 0 : pickle_damaged(m, "only lists are appended to", err);
}

static int op_appends(struct machine *m, struct err *err)
{
    size_t first, count;
    if (pickle_pop_mark(m, &first, &count, err) < 0)
        return -1;
    return pickle_top(m)->kind == LIST ? 0 : pickle_damaged(m, "only lists are appended to", err);
}

static int op_dict(struct machine *m, struct err *err)
{
    return pickle_push_new(m, (struct value){.kind = DICT}, err);
}

/* Two's complement of n bytes, n < 8. */
static int push_integer(struct machine *m, size_t n, bool is_signed, struct err *err)
{
    uint64_t number;
    if (take_number(m, n, &number, err) < 0)
        return -1;
    if (is_signed && n && number >> (8 * n - 1))
        number |= ~(uint64_t)0 << 8 * n;
    return pickle_push_new(m, (struct value){.kind = INTEGER, .integer = (int64_t)number}, err);
}

static int op_binint(struct machine *m, struct err *err) { return push_integer(m, 4, true, err); }
static int op_binint1(struct machine *m, struct err *err) { return push_integer(m, 1, false, err); }
static int op_binint2(struct machine *m, struct err *err) { return push_integer(m, 2, false, err); }

static int op_long1(struct machine *m, struct err *err)
{
    uint64_t bytes;
    if (take_number(m, 1, &bytes, err) < 0)
        return -1;
    return bytes < 8 ? push_integer(m, bytes, true, err) : pass_over(m, bytes, err);
}

static int op_binunicode(struct machine *m, struct err *err)
{
    uint64_t len;
    const unsigned char *text;
    if (take_number(m, 4, &len, err) < 0 || take(m, len, &text, err) < 0)
        return -1;
    return pickle_push_new(
        m, (struct value){.kind = TEXT, .count = (uint32_t)len, .text = (const char *)text}, err);
}

/* A tuple of `count` values from m->stack[first] on, which were taken off. */
static int push_tuple(struct machine *m, size_t first, size_t count, struct err *err)
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

static int op_tuple(struct machine *m, struct err *err)
{
    size_t first, count;
    return pickle_pop_mark(m, &first, &count, err) < 0 ? -1 : push_tuple(m, first, count, err);
}

static int tuple_of(struct machine *m, size_t count, struct err *err)
{
    uint32_t unused;
    for (size_t i = 0; i < count; i++)
        if (pickle_pop(m, PLAIN, &unused, err) < 0)
            return -1;
    return push_tuple(m, m->depth, count, err);
}

static int op_empty_tuple(struct machine *m, struct err *err) { return tuple_of(m, 0, err); }
static int op_tuple1(struct machine *m, struct err *err) { return tuple_of(m, 1, err); }
static int op_tuple2(struct machine *m, struct err *err) { return tuple_of(m, 2, err); }
static int op_tuple3(struct machine *m, struct err *err) { return tuple_of(m, 3, err); }

static int add_item(struct machine *m, uint32_t dict, uint32_t key, uint32_t value, struct err *err)
{
    if (m->items == MAX_VALUES)
        return pickle_too_much(m, "entries of dictionaries", err);
    if (mem_grow(&m->item, &m->item_cap, m->items, sizeof *m->item, err) < 0)
        return -1;
    m->item[m->items++] = (struct item){dict, key, value};
    return 0;
}

static int op_setitem(struct machine *m, struct err *err)
{
    uint32_t dict, key, value;
    if (pickle_pop(m, PLAIN, &value, err) < 0 || pickle_pop(m, PLAIN, &key, err) < 0 ||
        pickle_pop(m, DICT, &dict, err) < 0 || pickle_push(m, dict, err) < 0)
        return -1;
    return add_item(m, dict, key, value, err);
}

static int op_setitems(struct machine *m, struct err *err)
{
    size_t first, count;
    if (pickle_pop_mark(m, &first, &count, err) < 0)
        return -1;
    if (pickle_top(m)->kind != DICT || count % 2)
        return pickle_damaged(m, "what is to be put into a dictionary is no pairs, or there is none",
                              err);
    for (size_t i = 0; i < count; i += 2)
        if (add_item(m, m->stack[m->depth - 1], m->stack[first + i], m->stack[first + i + 1], err) < 0)
            return -1;
    return 0;
}

static int op_global(struct machine *m, struct err *err)
{
    struct pickle_text module, name;
    if (take_line(m, &module, err) < 0 || take_line(m, &name, err) < 0)
        return -1;
    const struct global *global = pickle_global(module, name);
    if (global)
        return pickle_push_new(m, (struct value){.kind = GLOBAL, .global = global}, err);
    return err_set(err,
                   "%s: its pickle asks for \"%.*s.%.*s\", which weights do not need and which is not "
                   "called here: save the model's state_dict() alone",
                   m->name, (int)size_min(module.len, 100), module.data, (int)size_min(name.len, 100),
                   name.data);
}

static int op_reduce(struct machine *m, struct err *err)
{
    uint32_t args, name;
    if (pickle_pop(m, TUPLE, &args, err) < 0 || pickle_pop(m, GLOBAL, &name, err) < 0)
        return -1;
    const struct global *global = m->value[name].global;
    const struct value tuple = m->value[args]; /* values may move when one is added */
    return global->call ? global->call(m, &tuple, err) : pickle_damaged(m, "a storage is called", err);
}

/* Attributes, such as versions of modules: weights have none that matter. */
static int op_build(struct machine *m, struct err *err)
{
    uint32_t unused;
    if (pickle_pop(m, DICT, &unused, err) < 0)
        return -1;
    return pickle_top(m)->kind == DICT
               ? 0
               : pickle_damaged(m, "only dictionaries have attributes here", err);
}

/* ("storage", class, key, device, elements) */
static int op_binpersid(struct machine *m, struct err *err)
{
    uint32_t id;
    if (pickle_pop(m, TUPLE, &id, err) < 0)
        return -1;
    struct value v = m->value[id];
    if (v.count != 5 || !value_is(pickle_member(m, &v, 0), "storage") ||
        pickle_member(m, &v, 1)->kind != GLOBAL || pickle_member(m, &v, 1)->global->call ||
        pickle_member(m, &v, 2)->kind != TEXT || pickle_member(m, &v, 3)->kind != TEXT ||
        pickle_member(m, &v, 4)->kind != INTEGER || pickle_member(m, &v, 4)->integer < 0)
        return pickle_damaged(m, "a storage is not described as PyTorch does it", err);
    v.kind = STORAGE;
    return pickle_push_new(m, v, err);
}

/* Numbers are given one after the other. */
static int put(struct machine *m, size_t bytes, struct err *err)
{
    uint64_t at;
    if (take_number(m, bytes, &at, err) < 0)
        return -1;
    if (at > m->memos || pickle_top(m)->kind == MARK)
        return pickle_damaged(m, "what is to be remembered has a wrong number, or is nothing", err);
    if (at == MAX_MEMO)
        return pickle_too_much(m, "values to remember", err);
    if (mem_grow(&m->memo, &m->memo_cap, at, sizeof *m->memo, err) < 0)
        return -1;
    m->memo[at] = m->stack[m->depth - 1];
    m->memos = size_max(m->memos, at + 1);
    return 0;
}

static int get(struct machine *m, size_t bytes, struct err *err)
{
    uint64_t at;
    if (take_number(m, bytes, &at, err) < 0)
        return -1;
    return at < m->memos ? pickle_push(m, m->memo[at], err)
                         : pickle_damaged(m, "what was never remembered is asked for", err);
}

static int op_binput(struct machine *m, struct err *err) { return put(m, 1, err); }
static int op_long_binput(struct machine *m, struct err *err) { return put(m, 4, err); }
static int op_binget(struct machine *m, struct err *err) { return get(m, 1, err); }
static int op_long_binget(struct machine *m, struct err *err) { return get(m, 4, err); }

/* Those without a function are refused by their names. */
static const struct opcode {
    const char *name;
    int (*run)(struct machine *, struct err *);
} opcodes[256] = {
    ['('] = {"MARK", op_mark},
    [')'] = {"EMPTY_TUPLE", op_empty_tuple},
    ['.'] = {"STOP", op_stop},
    ['0'] = {"POP", NULL},
    ['1'] = {"POP_MARK", NULL},
    ['2'] = {"DUP", NULL},
    ['B'] = {"BINBYTES", NULL},
    ['C'] = {"SHORT_BINBYTES", NULL},
    ['F'] = {"FLOAT", NULL},
    ['G'] = {"BINFLOAT", op_binfloat},
    ['I'] = {"INT", NULL},
    ['J'] = {"BININT", op_binint},
    ['K'] = {"BININT1", op_binint1},
    ['L'] = {"LONG", NULL},
    ['M'] = {"BININT2", op_binint2},
    ['N'] = {"NONE", op_plain},
    ['P'] = {"PERSID", NULL},
    ['Q'] = {"BINPERSID", op_binpersid},
    ['R'] = {"REDUCE", op_reduce},
    ['S'] = {"STRING", NULL},
    ['T'] = {"BINSTRING", op_binstring},
    ['U'] = {"SHORT_BINSTRING", op_short_binstring},
    ['V'] = {"UNICODE", NULL},
    ['X'] = {"BINUNICODE", op_binunicode},
    [']'] = {"EMPTY_LIST", op_list},
    ['a'] = {"APPEND", op_append},
    ['b'] = {"BUILD", op_build},
    ['c'] = {"GLOBAL", op_global},
    ['d'] = {"DICT", NULL},
    ['e'] = {"APPENDS", op_appends},
    ['g'] = {"GET", NULL},
    ['h'] = {"BINGET", op_binget},
    ['i'] = {"INST", NULL},
    ['j'] = {"LONG_BINGET", op_long_binget},
    ['l'] = {"LIST", NULL},
    ['o'] = {"OBJ", NULL},
    ['p'] = {"PUT", NULL},
    ['q'] = {"BINPUT", op_binput},
    ['r'] = {"LONG_BINPUT", op_long_binput},
    ['s'] = {"SETITEM", op_setitem},
    ['t'] = {"TUPLE", op_tuple},
    ['u'] = {"SETITEMS", op_setitems},
    ['}'] = {"EMPTY_DICT", op_dict},
    [0x80] = {"PROTO", op_proto},
    [0x81] = {"NEWOBJ", NULL},
    [0x82] = {"EXT1", NULL},
    [0x83] = {"EXT2", NULL},
    [0x84] = {"EXT4", NULL},
    [0x85] = {"TUPLE1", op_tuple1},
    [0x86] = {"TUPLE2", op_tuple2},
    [0x87] = {"TUPLE3", op_tuple3},
    [0x88] = {"NEWTRUE", op_plain},
    [0x89] = {"NEWFALSE", op_plain},
    [0x8a] = {"LONG1", op_long1},
    [0x8b] = {"LONG4", NULL},
};

static int step(struct machine *m, struct err *err)
{
    const unsigned char *code;
    m->opcode_at = m->at;
    if (take(m, 1, &code, err) < 0)
        return -1;
    const struct opcode *opcode = &opcodes[*code];
    if (opcode->run)
        return opcode->run(m, err);
    return err_set(err,
                   "%s: its pickle has the instruction %s (0x%02x) at byte %zu, which weights do not "
                   "need: save the model's state_dict() alone",
                   m->name, opcode->name ? opcode->name : "that protocol 2 has not", *code,
                   m->opcode_at);
}

/* ---- the result ---- */

/* The tensors in the dictionary that is left. Other entries are buffers of no weight. */
static int collect(struct machine *m, struct pickle *pickle, struct err *err)
{
    const uint32_t dict = m->stack[0];
    if (m->value[dict].kind != DICT)
        return err_set(err, "%s: its pickle is %s, a dictionary of tensors is expected", m->name,
                       pickle_kinds[m->value[dict].kind]);
    pickle->entry = calloc(m->items + 1, sizeof *pickle->entry);
    if (!pickle->entry)
        return err_set(err, "%s: out of memory for its list of tensors", m->name);
    for (size_t i = 0; i < m->items; i++) {
        const struct value *key = &m->value[m->item[i].key], *value = &m->value[m->item[i].value];
        if (m->item[i].dict == dict && key->kind == TEXT && value->kind == TENSOR)
            pickle->entry[pickle->n_entries++] =
                (struct pickle_entry){{key->text, key->count}, &m->tensor[value->tensor]};
    }
    if (!pickle->n_entries)
        return err_set(err,
                       "%s: there is no tensor in the dictionary that it holds: save the model's "
                       "state_dict() alone",
                       m->name);
    pickle->tensor = m->tensor;
    m->tensor = NULL;
    return 0;
}

int pickle_parse(struct pickle *pickle, const void *data, size_t size, const char *name,
                 struct err *err)
{
    struct machine m = {.name = name, .data = data, .size = size};
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
