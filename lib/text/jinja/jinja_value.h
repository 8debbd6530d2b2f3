/* State of parsing or rendering a Jinja template: an arena, limits, and the way out on errors.
 *
 * All memory of a template or of a rendering is in one arena, which is released as a whole. Errors
 * leave by longjmp() to the entry point: expressions are evaluated by functions that return values,
 * and nothing but the arena needs cleaning up. */
#pragma once

#include <setjmp.h>
#include <time.h>

#include "base/err.h"

struct jinja_state {
    struct jinja_chunk *chunk;  /* of the arena, newest first */
    size_t left;                /* bytes left in the newest chunk */
    size_t used, most_memory;   /* bytes allocated, and their limit */
    uint64_t work, most_work;   /* sixteenths of steps */
    unsigned depth, most_depth; /* of nested expressions, statements and values */
    const char *name;           /* of the template, for errors */
    const char *source;         /* its text */
    size_t source_len;
    size_t pos;      /* offset in the source of what is being parsed or evaluated */
    struct tm now;   /* for strftime_now() */
    struct err *err; /* where an error goes */
    jmp_buf way_out; /* set by the entry point */
};

/* Ends parsing or rendering with an error message that names the template, line and column. */
_Noreturn void jinja_fail(struct jinja_state *j, const char *format, ...) PRINTF_LIKE(2, 3);

/* Allocates count * size bytes in the arena, 16-byte aligned, not cleared. Never NULL. */
void *jinja_alloc(struct jinja_state *j, size_t count, size_t size);

/* Allocates cleared memory. */
void *jinja_zalloc(struct jinja_state *j, size_t count, size_t size);

/* Work is counted where it is done, so that the limit of steps bounds the time that a template takes, whatever
 * it does: a step for what is evaluated or called, a sixteenth for each byte or item that a function looks at,
 * several if it does more with them. What allocates memory is bounded by the limit of memory, too. */
enum { JINJA_STEP = 16 };
void jinja_touch(struct jinja_state *j, size_t sixteenths);
static inline void jinja_work(struct jinja_state *j, size_t steps)
{
    jinja_touch(j, steps > SIZE_MAX / JINJA_STEP ? SIZE_MAX : steps * JINJA_STEP);
}

/* Enter and leave a level of nesting. */
void jinja_enter(struct jinja_state *j);
static inline void jinja_leave(struct jinja_state *j) { j->depth--; }

/* Grows an array of the arena that has `used` of *cap elements, to hold one more. */
void *jinja_grow(struct jinja_state *j, void *array, size_t *cap, size_t used, size_t size);

void jinja_state_release(struct jinja_state *j);

struct js {
    const char *text; /* not terminated */
    size_t len;
    const unsigned char *mask; /* 1 for each byte of content, else 0; NULL: all as in `content` */
    bool content;
    bool ascii;
};

/* A string under construction; {.j = state} is empty. */
struct js_builder {
    struct jinja_state *j;
    char *text;
    unsigned char *mask; /* NULL: uniform so far */
    size_t len, cap;
    bool content;
};

extern const struct js js_empty;

/* A string of the template's own; the text is borrowed. js_literal() is for C strings. */
const struct js *js_new(struct jinja_state *j, const char *text, size_t len, bool content);
const struct js *js_literal(struct jinja_state *j, const char *text);

void js_add(struct js_builder *b, const char *text, size_t len, bool content);
void js_add_str(struct js_builder *b, const struct js *s);
void js_add_part(struct js_builder *b, const struct js *s, size_t start, size_t end); /* bytes */
void js_add_char(struct js_builder *b, uint32_t code, bool content);
const struct js *js_done(struct js_builder *b);

/* The bytes [start, end) of a string. */
const struct js *js_part(struct jinja_state *j, const struct js *s, size_t start, size_t end);

/* Number of characters; byte offset of the i-th one, at most `len`. */
size_t js_count(struct jinja_state *j, const struct js *s);
size_t js_offset(struct jinja_state *j, const struct js *s, size_t i);

/* True if the byte at an offset is content; past the end: as the last one. */
bool js_is_content(const struct js *s, size_t at);
bool js_any_content(const struct js *s);

/* The arguments of %.*s for the beginning of a string, in messages. */
#define JS_SHORT(s) (int)size_min((s)->len, 60), (s)->text

bool js_is(const struct js *s, const char *text);
bool js_equal(const struct js *a, const struct js *b); /* callers count the work */

/* Byte offset of the first occurrence of `what` in [start, end), or SIZE_MAX; the last one. */
size_t js_find(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
               size_t end);
size_t js_rfind(struct jinja_state *j, const struct js *s, const struct js *what, size_t start,
                size_t end);

/* Whether Python's str.isspace() holds for a character. */
bool js_is_space(uint32_t code);

/* Byte range of a string without leading and trailing white space, or without the characters in
 * `chars` unless that is NULL. */
enum { JS_LEFT = 1, JS_RIGHT = 2 };
const struct js *js_strip(struct jinja_state *j, const struct js *s, const struct js *chars,
                          unsigned sides);

enum js_case {
    JS_LOWER,
    JS_UPPER,
    JS_CAPITAL, /* the first character upper, all others lower */
    JS_TITLE,   /* every word capital; words are runs of letters */
    JS_WORDS,   /* every word capital; words end at blanks, hyphens and opening brackets */
};
const struct js *js_case(struct jinja_state *j, const struct js *s, enum js_case to);

enum js_class { JS_ALPHA, JS_DIGIT, JS_ALNUM, JS_SPACE, JS_IS_LOWER, JS_IS_UPPER };
bool js_is_all(struct jinja_state *j, const struct js *s, enum js_class class);

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
    JV_KINDS
};

struct jv {
    enum jv_kind kind;
    enum jv_kind owner; /* undefined: kind of the value that has no such attribute; JV_ABSENT: none.
                           String: JV_STRING if it is markup (jinja_text.h) */
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
    size_t next; /* iterator: items already read */
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
    size_t n, index0;
};

static inline struct jv jv_none(void) { return (struct jv){.kind = JV_NONE}; }
static inline struct jv jv_absent(void) { return (struct jv){.kind = JV_ABSENT}; }
static inline struct jv jv_bool(bool b) { return (struct jv){.kind = JV_BOOL, .b = b}; }
static inline struct jv jv_int(int64_t i) { return (struct jv){.kind = JV_INT, .i = i}; }
static inline struct jv jv_float(double f) { return (struct jv){.kind = JV_FLOAT, .f = f}; }
static inline struct jv jv_string(const struct js *s) { return (struct jv){.kind = JV_STRING, .s = s}; }
static inline bool jv_is_listed(struct jv v) { return v.kind == JV_LIST || v.kind == JV_TUPLE; }
static inline struct jv jv_undefined(const struct js *name, enum jv_kind owner)
{
    return (struct jv){.kind = JV_UNDEFINED, .owner = owner, .s = name};
}

/* A list, tuple, view or iterator of `n` items, which are not set, or copied. */
struct jv jv_listed(struct jinja_state *j, enum jv_kind kind, size_t n);
struct jv jv_copied(struct jinja_state *j, enum jv_kind kind, const struct jv *item, size_t n);
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

/* What can be done with a value: iterate over it, index it, call it. */
enum jv_trait { JV_ITERABLE = 1, JV_SEQUENCE = 2, JV_CALLABLE = 4 };
bool jv_has(struct jv value, enum jv_trait trait);

/* Ends rendering because a value is used that is undefined. */
_Noreturn void jv_fail_undefined(struct jinja_state *j, struct jv value);

bool jv_truth(struct jv value);
bool jv_equal(struct jinja_state *j, struct jv a, struct jv b);
bool jv_same(struct jinja_state *j, struct jv a, struct jv b); /* Python's `is` */

/* Below 0, 0 or above 0; ends rendering if the values have no order. */
int jv_order(struct jinja_state *j, struct jv a, struct jv b);

/* Whether `container` holds `value`. */
bool jv_contains(struct jinja_state *j, struct jv container, struct jv value);

/* The items of a value: characters, keys of a dict, items of a list. Reads an iterator to its end.
 * Ends rendering for values that cannot be iterated over. */
const struct jv_list *jv_items_of(struct jinja_state *j, struct jv value);

/* Number of items; false if the value has no length. */
bool jv_length(struct jinja_state *j, struct jv value, size_t *length);

/* The number that a bool, int or float is; false for other values. */
bool jv_number(struct jv value, double *x);
bool jv_integer(struct jv value, int64_t *i); /* a bool or int */

/* An argument that must be an integer; `what` names it in the error. */
int64_t jv_int_arg(struct jinja_state *j, struct jv value, const char *what);

/* Sorts values by their order, stably; `key` are what is compared, or the values themselves. */
void jv_sort(struct jinja_state *j, struct jv *value, struct jv *key, size_t n, bool reverse);
