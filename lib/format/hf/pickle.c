/* Pickle protocol 2, as far as torch.save() uses it for a dictionary of tensors: a stack machine
 * with a memo.
 *
 * Values are immutable and refer to others by index; items of all dictionaries are in one list.
 * Only the final dictionary is traversed, and not recursively, so deep nesting is harmless. */
#include "format/hf/pickle.h"

#include "format/reader.h"
#include "base/mem.h"

/* ---- the pickle virtual machine: values, stack and errors ---- */

/* Maximum sizes of stack, memo and lists: far above those of real models, low enough for the
 * memory of any machine. */
enum {
    MAX_STACK = 1 << 16,
    MAX_MEMO = 1 << 21,
    MAX_VALUES = 1 << 22,
    MAX_TENSORS = 1 << 18,
};

enum pickle_kind { MARK, PLAIN, INTEGER, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR, LIST };

struct value {
    enum pickle_kind kind;
    uint32_t count; /* bytes of a string, or number of members of a tuple or storage */
    union {
        int64_t integer;
        const char *text;
        const struct global *global;
        size_t first; /* index in pickle_machine.member of its first member */
        size_t tensor;
    };
};

enum { VALUE_MARK, VALUE_PLAIN, FIRST_VALUE };

/* An item of a dictionary: indices of the dictionary, the key and the value among all values. */
struct item {
    uint32_t dict, key, value;
};

struct pickle_machine {
    const char *name;
    struct reader in;
    size_t opcode_at;
    bool stopped;
    struct value *value;
    size_t values, value_cap;
    uint32_t *stack, *memo, *member;
    size_t depth, stack_cap, memos, memo_cap, members, member_cap;
    struct item *item;
    size_t items, item_cap;
    struct pickle_tensor *tensor;
    size_t tensors, tensor_cap;
};

/* A global that is allowed: a function, or the element type of a storage class. */
struct global {
    const char *module, *name;
    int (*call)(struct pickle_machine *, const struct value *args, struct err *);
    struct torch_type type;
};

static inline int pickle_damaged(const struct pickle_machine *m, const char *part, struct err *err)
{
    return err_set(err, "%s: the pickle is damaged at byte %zu: %s", m->name, m->opcode_at, part);
}

static inline int pickle_too_much(const struct pickle_machine *m, const char *part, struct err *err)
{
    return err_set(err, "%s: the pickle has too many %s for a model checkpoint", m->name, part);
}

/* Names of kinds, for errors. */
static const char *const pickle_kinds[] = {"a mark", "a constant", "an integer", "a text",   "a tuple",
                                           "a dict", "a name",     "a storage",  "a tensor", "a list"};

/* The value on top of the stack; a mark if the stack is empty. */
static const struct value *pickle_top(const struct pickle_machine *m)
{
    return m->depth ? &m->value[m->stack[m->depth - 1]] : &m->value[VALUE_MARK];
}

/* Pushes an existing value, given by its index, or a new one. */
static int pickle_push(struct pickle_machine *m, uint32_t value, struct err *err)
{
    if (m->depth == MAX_STACK)
        return pickle_too_much(m, "values on its stack", err);
    if (mem_grow(&m->stack, &m->stack_cap, m->depth, sizeof *m->stack, err) < 0)
        return -1;
    m->stack[m->depth++] = value;
    return 0;
}

static int pickle_push_new(struct pickle_machine *m, struct value value, struct err *err)
{
    if (m->values == MAX_VALUES)
        return pickle_too_much(m, "values", err);
    if (mem_grow(&m->value, &m->value_cap, m->values, sizeof *m->value, err) < 0)
        return -1;
    m->value[m->values++] = value;
    return pickle_push(m, (uint32_t)(m->values - 1), err);
}

/* Pops a value and stores its index in *value; fails if it is of another kind (PLAIN: any). */
static int pickle_pop(struct pickle_machine *m, enum pickle_kind kind, uint32_t *value, struct err *err)
{
    const enum pickle_kind found = pickle_top(m)->kind;
    if (found == MARK || (kind != PLAIN && found != kind))
        return err_set(err, "%s: the pickle is damaged at byte %zu: expected %s, found %s", m->name,
                       m->opcode_at, kind == PLAIN ? "a value" : pickle_kinds[kind],
                       pickle_kinds[found]);
    *value = m->stack[--m->depth];
    return 0;
}

/* Pops the last mark and the *count values above it, which stay at m->stack[*first] until the
 * next push. */
static int pickle_pop_mark(struct pickle_machine *m, size_t *first, size_t *count, struct err *err)
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

static const struct value *pickle_member(const struct pickle_machine *m, const struct value *tuple,
                                         size_t i)
{
    return &m->value[m->member[tuple->first + i]];
}

static bool pickle_text_is(struct pickle_text text, const char *word)
{
    return text.len == strlen(word) && memcmp(text.data, word, text.len) == 0;
}

/* ---- globals allowed in the pickle of a checkpoint; all others are rejected ---- */

static int call_dict(struct pickle_machine *m, const struct value *args, struct err *err)
{
    if (args->count)
        return pickle_damaged(m, "OrderedDict has arguments", err);
    return pickle_push_new(m, (struct value){.kind = DICT}, err);
}

static int read_sizes(struct pickle_machine *m, const struct value *tuple, size_t *size,
                      const char *part, struct err *err)
{
    for (size_t i = 0; i < tuple->count; i++) {
        const struct value *value = pickle_member(m, tuple, i);
        if (value->kind != INTEGER || value->integer < 0)
            return pickle_damaged(m, part, err);
        size[i] = (size_t)value->integer;
    }
    return 0;
}

/* True if every element of the tensor is inside its storage. */
static bool fits_storage(const struct pickle_tensor *t)
{
    size_t end = t->first, step;
    for (size_t i = 0; i < t->n_dims; i++)
        if (t->dim[i] == 0)
            return true;
    for (size_t i = 0; i < t->n_dims; i++)
        if (!size_mul(t->dim[i] - 1, t->stride[i], &step) || !size_add(end, step, &end))
            return false;
    return end < t->storage_elements;
}

/* _rebuild_tensor_v2(storage, first element, sizes, strides, requires_grad, hooks): pushes the
 * tensor. */
static int call_tensor(struct pickle_machine *m, const struct value *args, struct err *err)
{
    static const enum pickle_kind kinds[] = {STORAGE, INTEGER, TUPLE, TUPLE, PLAIN, DICT};
    bool right = args->count == ARRAY_LEN(kinds);
    for (size_t i = 0; right && i < ARRAY_LEN(kinds); i++)
        right = pickle_member(m, args, i)->kind == kinds[i];
    if (!right)
        return pickle_damaged(m, "a tensor's arguments are not storage, offset, sizes and strides",
                              err);
    const struct value *storage = pickle_member(m, args, 0), *first = pickle_member(m, args, 1);
    const struct value *sizes = pickle_member(m, args, 2), *strides = pickle_member(m, args, 3);
    const struct value *key = pickle_member(m, storage, 2);
    struct pickle_tensor t = {.storage = {key->text, key->count},
                              .type = &pickle_member(m, storage, 1)->global->type,
                              .storage_elements = (size_t)pickle_member(m, storage, 4)->integer,
                              .first = (size_t)first->integer,
                              .n_dims = sizes->count};
    if (first->integer < 0 || sizes->count > SOURCE_MAX_DIMS || strides->count != sizes->count)
        return pickle_damaged(m, "a tensor has too many dimensions, or another number of strides", err);
    if (read_sizes(m, sizes, t.dim, "a tensor has an invalid size", err) < 0 ||
        read_sizes(m, strides, t.stride, "a tensor has an invalid stride", err) < 0)
        return -1;
    if (!fits_storage(&t))
        return pickle_damaged(m, "a tensor exceeds its storage", err);
    if (m->tensors == MAX_TENSORS)
        return pickle_too_much(m, "tensors", err);
    if (mem_grow(&m->tensor, &m->tensor_cap, m->tensors, sizeof *m->tensor, err) < 0)
        return -1;
    m->tensor[m->tensors++] = t;
    return pickle_push_new(m, (struct value){.kind = TENSOR, .tensor = m->tensors - 1}, err);
}

/* _rebuild_parameter(tensor, requires_grad, hooks): pushes the tensor itself. */
static int call_parameter(struct pickle_machine *m, const struct value *args, struct err *err)
{
    if (args->count != 3 || pickle_member(m, args, 0)->kind != TENSOR)
        return pickle_damaged(m, "a parameter's argument is not a tensor", err);
    return pickle_push(m, m->member[args->first], err);
}

static const struct global globals[] = {
    {"collections", "OrderedDict", call_dict, {0}},
    {"torch._utils", "_rebuild_tensor_v2", call_tensor, {0}},
    {"torch._utils", "_rebuild_parameter", call_parameter, {0}},
    {"torch", "FloatStorage", NULL, {"FloatStorage", DTYPE_F32, 4}},
    {"torch", "HalfStorage", NULL, {"HalfStorage", DTYPE_F16, 2}},
    {"torch", "BFloat16Storage", NULL, {"BFloat16Storage", DTYPE_BF16, 2}},
    {"torch", "DoubleStorage", NULL, {"DoubleStorage", SOURCE_OTHER, 8}},
    {"torch", "LongStorage", NULL, {"LongStorage", SOURCE_OTHER, 8}},
    {"torch", "IntStorage", NULL, {"IntStorage", SOURCE_OTHER, 4}},
    {"torch", "ShortStorage", NULL, {"ShortStorage", SOURCE_OTHER, 2}},
    {"torch", "CharStorage", NULL, {"CharStorage", SOURCE_OTHER, 1}},
    {"torch", "ByteStorage", NULL, {"ByteStorage", SOURCE_OTHER, 1}},
    {"torch", "BoolStorage", NULL, {"BoolStorage", SOURCE_OTHER, 1}},
};

/* The allowed global called module.name, or NULL. */
static const struct global *pickle_global(struct pickle_text module, struct pickle_text name)
{
    for (size_t i = 0; i < ARRAY_LEN(globals); i++)
        if (pickle_text_is(module, globals[i].module) && pickle_text_is(name, globals[i].name))
            return &globals[i];
    return NULL;
}

/* ---- input ---- */

static int take_bytes(struct pickle_machine *m, size_t n, const unsigned char **bytes, struct err *err)
{
    return reader_bytes(&m->in, n, bytes, "the pickle", err);
}

/* Reads a little-endian number of n < 8 bytes. */
static int take_number(struct pickle_machine *m, size_t n, uint64_t *number, struct err *err)
{
    return reader_number(&m->in, n, number, "the pickle", err);
}

static int take_line(struct pickle_machine *m, struct pickle_text *line, struct err *err)
{
    const unsigned char *at = m->in.at, *end = memchr(at, '\n', reader_left(&m->in));
    if (!end)
        return pickle_damaged(m, "unterminated line", err);
    *line = (struct pickle_text){(const char *)at, (size_t)(end - at)};
    m->in.at = end + 1;
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

static int push_value(struct pickle_machine *m, size_t value, struct err *err)
{
    return pickle_push(m, (uint32_t)value, err);
}

/* Skips a value of `bytes` bytes that tensors do not need, and pushes a placeholder. */
static int pass_over(struct pickle_machine *m, size_t bytes, struct err *err)
{
    const unsigned char *unused;
    return take_bytes(m, bytes, &unused, err) < 0 ? -1 : pickle_push(m, VALUE_PLAIN, err);
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

static int expect_list(const struct pickle_machine *m, struct err *err)
{
    return pickle_top(m)->kind == LIST ? 0
                                       : pickle_damaged(m, "append to a value that is not a list", err);
}

/* APPEND drops the appended element: no list is needed for tensors. */
static int op_append(struct pickle_machine *m, struct err *err)
{
    uint32_t unused;
    return pickle_pop(m, PLAIN, &unused, err) < 0 ? -1 : expect_list(m, err);
}

static int op_appends(struct pickle_machine *m, struct err *err)
{
    size_t first, count;
    return pickle_pop_mark(m, &first, &count, err) < 0 ? -1 : expect_list(m, err);
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
    if (take_number(m, 4, &len, err) < 0 || take_bytes(m, len, &text, err) < 0)
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
static int set_memo(struct pickle_machine *m, size_t bytes, struct err *err)
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

static int push_memo(struct pickle_machine *m, size_t bytes, struct err *err)
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
    ['('] = {"MARK", NULL, push_value, VALUE_MARK},
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
    ['N'] = {"NONE", NULL, push_value, VALUE_PLAIN},
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
    ['h'] = {"BINGET", NULL, push_memo, 1},
    ['i'] = {"INST", NULL, NULL, 0},
    ['j'] = {"LONG_BINGET", NULL, push_memo, 4},
    ['l'] = {"LIST", NULL, NULL, 0},
    ['o'] = {"OBJ", NULL, NULL, 0},
    ['p'] = {"PUT", NULL, NULL, 0},
    ['q'] = {"BINPUT", NULL, set_memo, 1},
    ['r'] = {"LONG_BINPUT", NULL, set_memo, 4},
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
    [0x88] = {"NEWTRUE", NULL, push_value, VALUE_PLAIN},
    [0x89] = {"NEWFALSE", NULL, push_value, VALUE_PLAIN},
    [0x8a] = {"LONG1", op_long1, NULL, 0},
    [0x8b] = {"LONG4", NULL, NULL, 0},
};

static int run_opcode(struct pickle_machine *m, struct err *err)
{
    const unsigned char *code;
    m->opcode_at = reader_offset(&m->in);
    if (take_bytes(m, 1, &code, err) < 0)
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
static int collect_tensors(struct pickle_machine *m, struct pickle *pickle, struct err *err)
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
    struct pickle_machine m = {.name = name, .in = reader_of(data, size, name)};
    int rc = -1;
    *pickle = (struct pickle){0};
    if (mem_grow(&m.value, &m.value_cap, 0, sizeof *m.value, err) < 0)
        goto out;
    m.values = FIRST_VALUE;
    m.value[VALUE_MARK] = (struct value){.kind = MARK};
    m.value[VALUE_PLAIN] = (struct value){.kind = PLAIN};
    while (!m.stopped)
        if (run_opcode(&m, err) < 0)
            goto out;
    rc = collect_tensors(&m, pickle, err);
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
