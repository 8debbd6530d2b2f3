/* Arithmetic of template values. */
#include "text/jinja_values/jinja_arith.h"

#include <math.h>
#include <string.h>

#include "text/jinja_values/jinja_format.h"
#include "text/jinja_values/jinja_markup.h"
#include "text/jinja_values/jinja_ops.h"

static const char *const signs[JV_OPS] = {"+", "-", "*", "/", "//", "%", "**"};

static _Noreturn void refuse(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b)
{
    if (a.kind == JV_UNDEFINED || b.kind == JV_UNDEFINED)
        jv_fail_undefined(j, a.kind == JV_UNDEFINED ? a : b);
    jinja_fail(j, "the operator %s does not take values of types %s and %s", signs[op], jv_type(a),
               jv_type(b));
}

static _Noreturn void too_large(struct jinja_state *j) { jinja_fail(j, "an integer exceeds 64 bits"); }

static struct jv power(struct jinja_state *j, int64_t a, int64_t b)
{
    int64_t x = 1;
    if (b < 0 && a == 0)
        jinja_fail(j, "division by zero");
    if (b < 0)
        return jv_float(pow((double)a, (double)b));
    if (a == 0 || a == 1)
        return jv_int(b == 0 ? 1 : a);
    if (a == -1)
        return jv_int(b % 2 ? -1 : 1);
    for (int64_t i = 0; i < b; i++)
        if (__builtin_mul_overflow(x, a, &x))
            too_large(j);
    return jv_int(x);
}

static struct jv of_integers(struct jinja_state *j, enum jv_op op, int64_t a, int64_t b)
{
    int64_t x = 0;
    bool over = false;
    if (b == 0 && (op == JV_DIV || op == JV_FLOORDIV || op == JV_MOD))
        jinja_fail(j, "division by zero");
    switch (op) {
    case JV_ADD: over = __builtin_add_overflow(a, b, &x); break;
    case JV_SUB: over = __builtin_sub_overflow(a, b, &x); break;
    case JV_MUL: over = __builtin_mul_overflow(a, b, &x); break;
    case JV_DIV: return jv_float((double)a / (double)b);
    case JV_FLOORDIV:
        if (a == INT64_MIN && b == -1)
            too_large(j);
        x = a / b - (a % b != 0 && (a < 0) != (b < 0));
        break;
    case JV_MOD:
        x = b == -1 ? 0 : a % b;
        x += x != 0 && (x < 0) != (b < 0) ? b : 0;
        break;
    case JV_POW: return power(j, a, b);
    case JV_OPS: break;
    }
    if (over)
        too_large(j);
    return jv_int(x);
}

/* Python's remainder: it has the sign of b. */
static double modulo(double a, double b)
{
    double x = fmod(a, b);
    if (x != 0)
        return (x < 0) != (b < 0) ? x + b : x;
    return copysign(0, b);
}

static struct jv of_floats(struct jinja_state *j, enum jv_op op, double a, double b)
{
    if (b == 0 && (op == JV_DIV || op == JV_FLOORDIV || op == JV_MOD))
        jinja_fail(j, "division by zero");
    switch (op) {
    case JV_ADD: return jv_float(a + b);
    case JV_SUB: return jv_float(a - b);
    case JV_MUL: return jv_float(a * b);
    case JV_DIV: return jv_float(a / b);
    case JV_FLOORDIV: return jv_float(floor((a - modulo(a, b)) / b + 0.5));
    case JV_MOD: return jv_float(modulo(a, b));
    case JV_POW:
        if ((a < 0 && b != floor(b)) || (a == 0 && b < 0))
            jinja_fail(j, "a power that is not a real number");
        return jv_float(pow(a, b));
    case JV_OPS: break;
    }
    return jv_none();
}

static bool is_listed(struct jv v) { return v.kind == JV_LIST || v.kind == JV_TUPLE; }

static struct jv join(struct jinja_state *j, struct jv a, struct jv b)
{
    struct js_builder text = {.j = j};
    const bool markup = jv_is_markup(a) || jv_is_markup(b);
    if (markup) {
        a = jv_escape(j, a);
        b = jv_escape(j, b);
    }
    if (a.kind == JV_STRING) {
        js_add_str(&text, a.s);
        js_add_str(&text, b.s);
        const struct jv sum = jv_string(js_done(&text));
        return markup ? jv_as_markup(j, sum) : sum;
    }
    const struct jv list = jv_listed(j, a.kind, a.list->n + b.list->n);
    for (size_t i = 0; i < list.list->n; i++)
        list.list->item[i] = i < a.list->n ? a.list->item[i] : b.list->item[i - a.list->n];
    return list;
}

static struct jv repeat(struct jinja_state *j, struct jv value, int64_t times)
{
    const size_t n = times < 0 ? 0 : (size_t)times;
    struct js_builder text = {.j = j};
    size_t total;
    if (value.kind == JV_STRING) {
        for (size_t i = 0; i < n && value.s->len; i++) {
            js_add_str(&text, value.s);
            jinja_work(j, 1);
        }
        value.s = js_done(&text);
        return value;
    }
    if (__builtin_mul_overflow(value.list->n, n, &total))
        total = SIZE_MAX;
    const struct jv list = jv_listed(j, value.kind, total);
    for (size_t i = 0; i < total; i++)
        list.list->item[i] = value.list->item[i % value.list->n];
    return list;
}

struct jv jv_arith(struct jinja_state *j, enum jv_op op, struct jv a, struct jv b)
{
    int64_t i, k;
    double x, y;
    jinja_touch(j, JINJA_STEP / 2);
    if (jv_integer(a, &i) && jv_integer(b, &k))
        return of_integers(j, op, i, k);
    if (jv_number(a, &x) && jv_number(b, &y))
        return of_floats(j, op, x, y);
    if (op == JV_ADD && a.kind == b.kind && (a.kind == JV_STRING || is_listed(a)))
        return join(j, a, b);
    if (op == JV_MUL && (a.kind == JV_STRING || is_listed(a)) && jv_integer(b, &k))
        return repeat(j, a, k);
    if (op == JV_MUL && (b.kind == JV_STRING || is_listed(b)) && jv_integer(a, &i))
        return repeat(j, b, i);
    if (op == JV_MOD && jv_is_markup(a))
        jinja_fail(j, "text that is safe or escaped cannot be a format");
    if (op == JV_MOD && a.kind == JV_STRING)
        return jv_string(jinja_format(j, a.s, b));
    refuse(j, op, a, b);
}

struct jv jv_negate(struct jinja_state *j, struct jv value, bool positive)
{
    int64_t i;
    if (value.kind == JV_FLOAT)
        return jv_float(positive ? value.f : -value.f);
    if (value.kind == JV_UNDEFINED)
        jv_fail_undefined(j, value);
    if (!jv_integer(value, &i))
        jinja_fail(j, "a value of type %s has no sign", jv_type(value));
    if (!positive && i == INT64_MIN)
        too_large(j);
    return jv_int(positive ? i : -i);
}
