/* The machine that pickle.c runs, also for the names that it knows (pickle_names.c). */
#ifndef BMC_PICKLE_MACHINE_H
#define BMC_PICKLE_MACHINE_H

#include "base/mem.h"
#include "format/pickle.h"

/* Far beyond what models have, and small enough for any machine. */
enum {
    MAX_STACK = 1 << 16,
    MAX_MEMO = 1 << 21,
    MAX_VALUES = 1 << 22,
    MAX_TENSORS = 1 << 18,
};

enum kind { MARK, PLAIN, INTEGER, TEXT, TUPLE, DICT, GLOBAL, STORAGE, TENSOR, LIST };

extern const char *const pickle_kinds[]; /* as they are called in sentences */

struct value {
    enum kind kind;
    uint32_t count; /* of a text's bytes, or of the members of a tuple or storage */
    union {
        int64_t integer;
        const char *text;
        const struct global *global;
        size_t first; /* of its members */
        size_t tensor;
    };
};

enum { VALUE_MARK, VALUE_PLAIN, FIRST_VALUE };

/* What was put into a dictionary. */
struct item {
    uint32_t dict, key, value;
};

struct machine {
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

/* A name that a pickle may ask for: what calling it does, or what it says about a storage. */
struct global {
    const char *module, *name;
    int (*call)(struct machine *, const struct value *args, struct err *);
    struct torch_type type;
};

/* The one of that name, or NULL. */
const struct global *pickle_global(struct pickle_text module, struct pickle_text name);

/* Errors. */
static inline int pickle_damaged(const struct machine *m, const char *what, struct err *err)
{
    return err_set(err, "%s: its pickle is damaged at byte %zu: %s", m->name, m->opcode_at, what);
}

static inline int pickle_too_much(const struct machine *m, const char *what, struct err *err)
{
    return err_set(err, "%s: its pickle has too many %s: no checkpoint of a model has as many", m->name,
                   what);
}

/* Puts a value on the stack: one that is there, or a new one. */
int pickle_push(struct machine *m, uint32_t value, struct err *err) MUST_USE;
int pickle_push_new(struct machine *m, struct value value, struct err *err) MUST_USE;

/* What lies on top of it: a mark where nothing does. */
const struct value *pickle_top(const struct machine *m);

/* Takes a value of that kind off the stack; PLAIN stands for any. */
int pickle_pop(struct machine *m, enum kind kind, uint32_t *value, struct err *err) MUST_USE;

/* Takes a mark and all above it; those begin at `first` of the stack. */
int pickle_pop_mark(struct machine *m, size_t *first, size_t *count, struct err *err) MUST_USE;

/* The i-th member of a tuple or storage. */
const struct value *pickle_member(const struct machine *m, const struct value *tuple, size_t i);

bool pickle_text_is(struct pickle_text text, const char *word);

#endif
