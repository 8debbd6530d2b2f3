/* Tests of templates. */
#include "text/jinja_functions/jinja_tests.h"

#include "text/jinja_values/jinja_arith.h"
#include "text/jinja_values/jinja_case.h"
#include "text/jinja_values/jinja_markup.h"
#include "text/jinja_values/jinja_ops.h"
#include "text/jinja_values/jinja_repr.h"

#define TEST(name, condition)                                                                          \
    static struct jv name(struct jinja_state *j, struct jv self, const struct jv_args *a)              \
    {                                                                                                  \
        (void)j;                                                                                       \
        (void)a;                                                                                       \
        return jv_bool(condition);                                                                     \
    }

static bool is_callable(struct jv v)
{
    return v.kind == JV_UNDEFINED || v.kind == JV_MACRO || v.kind == JV_FUNCTION ||
           v.kind == JV_METHOD || v.kind == JV_JOINER || v.kind == JV_LOOP;
}

static bool is_sequence(struct jv v)
{
    return v.kind == JV_UNDEFINED || v.kind == JV_STRING || v.kind == JV_LIST || v.kind == JV_TUPLE ||
           v.kind == JV_DICT || v.kind == JV_RANGE;
}

/* Whether a % b is `rest`. */
static bool leaves(struct jinja_state *j, struct jv a, struct jv b, double rest)
{
    double x;
    return jv_number(jv_arith(j, JV_MOD, a, b), &x) && x == rest;
}

TEST(is_defined, self.kind != JV_UNDEFINED)
TEST(is_undefined, self.kind == JV_UNDEFINED)
TEST(is_none, self.kind == JV_NONE)
TEST(is_boolean, self.kind == JV_BOOL)
TEST(is_true, self.kind == JV_BOOL && self.b)
TEST(is_false, self.kind == JV_BOOL && !self.b)
TEST(is_integer, self.kind == JV_INT)
TEST(is_float, self.kind == JV_FLOAT)
TEST(is_number, self.kind == JV_INT || self.kind == JV_FLOAT || self.kind == JV_BOOL)
TEST(is_string, self.kind == JV_STRING)
TEST(is_mapping, self.kind == JV_DICT)
TEST(is_escaped, jv_is_markup(self))
TEST(is_seq, is_sequence(self))
TEST(is_iterable, jv_is_iterable(self))
TEST(is_called, is_callable(self))
TEST(is_lower, js_is_all(j, jv_str(j, self), JS_IS_LOWER))
TEST(is_upper, js_is_all(j, jv_str(j, self), JS_IS_UPPER))
TEST(is_odd, leaves(j, self, jv_int(2), 1))
TEST(is_even, leaves(j, self, jv_int(2), 0))
TEST(is_divisible, leaves(j, self, a->arg[0], 0))
TEST(is_same, jv_same(j, self, a->arg[0]))
TEST(is_in, jv_contains(j, a->arg[0], self))
TEST(is_eq, jv_equal(j, self, a->arg[0]))
TEST(is_ne, !jv_equal(j, self, a->arg[0]))
TEST(is_lt, jv_order(j, self, a->arg[0]) < 0)
TEST(is_le, jv_order(j, self, a->arg[0]) <= 0)
TEST(is_gt, jv_order(j, self, a->arg[0]) > 0)
TEST(is_ge, jv_order(j, self, a->arg[0]) >= 0)

static const struct jinja_builtin tests[] = {
    {"defined", is_defined, "", 0},  {"undefined", is_undefined, "", 0},
    {"none", is_none, "", 0},        {"boolean", is_boolean, "", 0},
    {"true", is_true, "", 0},        {"false", is_false, "", 0},
    {"integer", is_integer, "", 0},  {"float", is_float, "", 0},
    {"number", is_number, "", 0},    {"string", is_string, "", 0},
    {"mapping", is_mapping, "", 0},  {"escaped", is_escaped, "", 0},
    {"sequence", is_seq, "", 0},     {"iterable", is_iterable, "", 0},
    {"callable", is_called, "", 0},  {"lower", is_lower, "", 0},
    {"upper", is_upper, "", 0},      {"odd", is_odd, "", 0},
    {"even", is_even, "", 0},        {"divisibleby", is_divisible, "num", 1},
    {"sameas", is_same, "other", 1}, {"in", is_in, "seq", 1},
    {"eq", is_eq, "other", 1},       {"equalto", is_eq, "other", 1},
    {"==", is_eq, "other", 1},       {"ne", is_ne, "other", 1},
    {"!=", is_ne, "other", 1},       {"lt", is_lt, "other", 1},
    {"lessthan", is_lt, "other", 1}, {"<", is_lt, "other", 1},
    {"le", is_le, "other", 1},       {"<=", is_le, "other", 1},
    {"gt", is_gt, "other", 1},       {"greaterthan", is_gt, "other", 1},
    {">", is_gt, "other", 1},        {"ge", is_ge, "other", 1},
    {">=", is_ge, "other", 1},
};

struct jinja_table jinja_test_table(void) { return (struct jinja_table){tests, ARRAY_LEN(tests)}; }

const struct jinja_builtin *jinja_test(const struct js *name)
{
    return jinja_builtin_find(jinja_test_table(), name);
}
