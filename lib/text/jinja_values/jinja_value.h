/* Values of templates, with the meaning that Python gives them. Lists and dicts do not change once
 * they are made; namespaces and the scopes of variables do. */
#ifndef BMC_JINJA_VALUE_H
#define BMC_JINJA_VALUE_H

#include "text/jinja_values/jinja_string.h"

enum jv_kind {
    JV_ABSENT, /* an argument that was not given */
    JV_UNDEFINED,
    JV_NONE,
    JV_BOOL,
    JV_INT,
    JV_FLOAT,
    JV_STRING,
    JV_LIST,
    JV_TUPLE,
    JV_DICT,
    JV_RANGE,    /* list.item holds its numbers */
    JV_VIEW,     /* keys(), values() or items() of a dict */
    JV_ITERATOR, /* result of map(), select() and the like; read once */
    JV_NAMESPACE,
    JV_MACRO,
    JV_FUNCTION,
    JV_METHOD,
    JV_LOOP,
    JV_CYCLER,
    JV_JOINER,
    JV_KINDS
};

struct jv {
    enum jv_kind kind;
    enum jv_kind owner; /* undefined: kind of the value that has no such attribute; JV_ABSENT: none.
                           String: JV_STRING if it is markup (jinja_markup.h) */
    union {
        bool b;
        int64_t i;
        double f;
        const struct js *s; /* string; undefined: the name looked up, or NULL */
        struct jv_list *list;
        struct jv_dict *dict; /* also that of a namespace */
        struct jinja_macro *macro;
        const struct jinja_builtin *builtin;
        struct jv_method *method;
        struct jv_loop *loop;
    };
};

struct jv_list {
    struct jv *item;
    size_t n;
    size_t next; /* iterator: items already read; cycler, joiner: calls so far */
};

struct jv_entry {
    struct jv key, value;
};

struct jv_dict {
    struct jv_entry *entry; /* in order of insertion */
    size_t n, cap;
    uint32_t *index; /* hash table of numbers of entries plus 1; NULL: few entries */
    size_t index_size;
};

/* A method and the value that it belongs to. */
struct jv_method {
    struct jv self;
    const struct jinja_builtin *builtin;
};

/* The variable `loop`. */
struct jv_loop {
    const struct jv *item;
    size_t n, index0, depth0;
    const struct jn *statement; /* of a recursive loop, else NULL */
    struct jx_scope *scope;     /* where that statement is */
    struct jv_list *changed;    /* arguments of the last loop.changed(), or NULL */
};

static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_absent(void) { return (struct jv){.kind = JV_ABSENT}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_float(double f) { return (struct jv){.kind = JV_FLOAT, .f = f}; }
static inline struct jv jv_string(const struct js *s) { return (struct jv){.kind = JV_STRING, .s = s}; }
static inline struct jv jv_undefined(const struct js *name, enum jv_kind owner)
{
    return (struct jv){.kind = JV_UNDEFINED, .owner = owner, .s = name};
}

/* A list, tuple, view or iterator of `n` items, which are not set. */
struct jv jv_listed(struct jinja_state *j, enum jv_kind kind, size_t n);
struct jv jv_pair(struct jinja_state *j, struct jv a, struct jv b); /* a tuple */

/* A list that grows; {NULL, 0, 0} is empty. */
struct jv_items {
    struct jv *item;
    size_t n, cap;
};
void jv_push(struct jinja_state *j, struct jv_items *items, struct jv value);
struct jv jv_items_done(struct jinja_state *j, const struct jv_items *items, enum jv_kind kind);

struct jv jv_dict_new(struct jinja_state *j);

/* Sets a key. Keys are none, numbers, strings and tuples of these; others end rendering. */
void jv_dict_set(struct jinja_state *j, struct jv_dict *dict, struct jv key, struct jv value);

/* The value of a key, or NULL; NULL for values that cannot be keys. */
struct jv *jv_dict_get(struct jinja_state *j, const struct jv_dict *dict, struct jv key);

/* Whether a value can be a key of a dict. */
bool jv_is_key(struct jv value);

/* Python's name of a value's type: "str", "list". */
const char *jv_type(struct jv value);

/* Ends rendering because a value is used that is undefined. */
_Noreturn void jv_fail_undefined(struct jinja_state *j, struct jv value);

#endif
