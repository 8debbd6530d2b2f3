/* The pickle virtual machine, shared by opcodes (pickle.c) and globals (pickle_names.c). */
#ifndef BMC_PICKLE_MACHINE_H
#define BMC_PICKLE_MACHINE_H

#include "base/mem.h"
#include "format/hf/pickle.h"

/* Maximum sizes of stack, memo and lists: far above those of real models, low enough for the
 * memory of any machine. */
enum {
    MAX_STACK = 1 << 16,
    MAX_MEMO = 1 << 21,
    MAX_VALUES = 1 << 22,
    MAX_TENSORS = 1 << 18,
};

enum pickle_kind { MARK, PLAIN, INTEGER, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR, LIST };

extern const char *const pickle_kinds[]; /* names of kinds with article, for errors */

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
    const unsigned char *data;
    size_t size, at;
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

/* The allowed global called module.name, or NULL. */
const struct global *pickle_global(struct pickle_text module, struct pickle_text name);

static inline int pickle_damaged(const struct pickle_machine *m, const char *what, struct err *err)
{
    return err_set(err, "%s: the pickle is damaged at byte %zu: %s", m->name, m->opcode_at, what);
}

static inline int pickle_too_much(const struct pickle_machine *m, const char *what, struct err *err)
{
    return err_set(err, "%s: the pickle has too many %s for a model checkpoint", m->name, what);
}

/* Pushes an existing value, given by its index, or a new one. */
int pickle_push(struct pickle_machine *m, uint32_t value, struct err *err) MUST_USE;
int pickle_push_new(struct pickle_machine *m, struct value value, struct err *err) MUST_USE;

/* The value on top of the stack; a mark if the stack is empty. */
const struct value *pickle_top(const struct pickle_machine *m);

/* Pops a value and stores its index in *value; fails if it is of another kind (PLAIN: any). */
int pickle_pop(struct pickle_machine *m, enum pickle_kind kind, uint32_t *value,
               struct err *err) MUST_USE;

/* Pops the last mark and the *count values above it, which stay at m->stack[*first] until the
 * next push. */
int pickle_pop_mark(struct pickle_machine *m, size_t *first, size_t *count, struct err *err) MUST_USE;

const struct value *pickle_member(const struct pickle_machine *m, const struct value *tuple, size_t i);

bool pickle_text_is(struct pickle_text text, const char *word);

#endif
