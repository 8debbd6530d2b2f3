/* Functions of the interpreter: filters, tests, methods and globals are tables of these. */
#ifndef BMC_JINJA_BUILTIN_H
#define BMC_JINJA_BUILTIN_H

#include "text/jinja_values/jinja_value.h"

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

/* The strings of the result are markup if `self` is (jinja_markup.h). */
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

#endif
