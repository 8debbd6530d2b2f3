/* Functions of the interpreter: filters, tests, methods and globals are tables of these. */
#pragma once

#include "text/jinja/jinja_value.h"

struct jv_named {
    const struct js *name;
    struct jv value;
};

/* Arguments of a call. */
struct jv_args {
    struct jv *arg;
    size_t n;
    struct jv_named *named;
    size_t n_named;
};

/* `self` is what a filter or test applies to, or what a method belongs to. */
typedef struct jv jinja_function(struct jinja_state *j, struct jv self, const struct jv_args *args);

/* Defines a function, which need not use its parameters; one that is an expression. */
#define JINJA_UNUSED __attribute__((unused))
#define JINJA_FUNCTION(name)                                                                           \
    static struct jv name(struct jinja_state *j JINJA_UNUSED, struct jv self JINJA_UNUSED,             \
                          const struct jv_args *a JINJA_UNUSED)
#define JINJA_VALUE(name, value)                                                                       \
    JINJA_FUNCTION(name) { return value; }

/* The strings of the result are markup if `self` is (jinja_text.h). */
enum { KEEPS_MARKUP = 16 };

struct jinja_builtin {
    const char *name;
    jinja_function *call;
    /* Names of the parameters, separated by blanks: `args` holds a value for each then, JV_ABSENT for
     * those not given. NULL: arguments are passed as they are. */
    const char *params;
    unsigned required; /* parameters that must be given; plus KEEPS_MARKUP */
};

struct jinja_table {
    const struct jinja_builtin *row;
    size_t n;
};

/* The row called `name`, or NULL. */
const struct jinja_builtin *jinja_builtin_find(struct jinja_table table, const struct js *name);

struct jv jinja_builtin_call(struct jinja_state *j, const struct jinja_builtin *builtin, struct jv self,
                             const struct jv_args *args);

/* The argument, or a default if it was not given. */
static inline struct jv jv_or(struct jv arg, struct jv otherwise)
{
    return arg.kind == JV_ABSENT ? otherwise : arg;
}

/* `s` with up to `most` occurrences of `old` replaced; most < 0: all. */
const struct js *js_replace(struct jinja_state *j, const struct js *s, const struct js *old,
                            const struct js *new, int64_t most);

/* The methods that values of a kind have. */
struct jinja_table jinja_method_table(enum jv_kind kind);

/* value.name: a method or attribute, else the item of a dict, else undefined. */
struct jv jv_attribute(struct jinja_state *j, struct jv value, const struct js *name);

/* value[key]: an item, else an attribute, else undefined. */
struct jv jv_item(struct jinja_state *j, struct jv value, struct jv key);

/* value[start:stop:step]; bounds that are not given are none. */
struct jv jv_slice(struct jinja_state *j, struct jv value, struct jv start, struct jv stop,
                   struct jv step);

/* The attribute that a filter's argument names: "a.b", "0", or an integer. `otherwise`: the value of
 * an undefined one, unless absent. */
struct jv jv_path(struct jinja_state *j, struct jv value, struct jv path, struct jv otherwise);
