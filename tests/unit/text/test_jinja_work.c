/* Functions of templates: the steps that they count bound the time that they take, whatever they are given.
 *
 *    test_jinja_work [NAME..]      only the functions of these names, with the figures of the slowest calls
 *    test_jinja_work --names       kind, type, name and parameters of each function, a line each */
#include <string.h>
#include <time.h>

#include "tests/unit/check.h"
#include "text/jinja/jinja_filters.h"
#include "text/jinja/jinja_methods.h"
#include "text/jinja/jinja_value.h"

#ifdef __SANITIZE_ADDRESS__
static const bool sanitized = true;
#else
static const bool sanitized = false;
#endif

enum {
    SIZE = 8 << 20,    /* bytes of the large strings */
    ITEMS = 1 << 16,   /* of the large lists */
    MOST_STEPS = 4000, /* of a call; what takes more ends early */
    MOST_NS = 100,     /* for each step, on a slow and busy machine: 2 s for the limit of 20 million */
    FREE_NS = 40000,   /* of a call: clock, allocation, page faults */
    VALUES = 13
};

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

static const struct js *repeated(struct jinja_state *j, const char *text, size_t size)
{
    const size_t len = strlen(text), n = size / len;
    char *all = jinja_alloc(j, n * len, 1);
    for (size_t i = 0; i < n; i++)
        memcpy(all + i * len, text, len);
    return js_new(j, all, n * len, false);
}

/* Values that functions are given, as what they apply to and as arguments. */
static void make_values(struct jinja_state *j, struct jv value[VALUES])
{
    static const char *const texts[] = {"a", "<\xC3\xA9 '", " ", "a"};
    size_t n = 0;
    for (size_t i = 0; i < ARRAY_LEN(texts); i++)
        value[n++] = jv_string(repeated(j, texts[i], i == 3 ? 1 : SIZE));
    value[n++] = jv_string(js_literal(j, "\xC3\xA9x"));
    value[n++] = jv_int(SIZE / 2);
    value[n++] = jv_float(0.1 + 0.2);
    value[n++] = jv_listed(j, JV_LIST, ITEMS);
    value[n++] = jv_listed(j, JV_TUPLE, ITEMS);
    for (size_t i = 0; i < ITEMS; i++)
        value[7].list->item[i] = jv_float((double)((i * 7919) % 100003) / 3);
    for (size_t i = 0; i < ITEMS; i++)
        value[8].list->item[i] = jv_string(&js_empty);
    value[n] = jv_dict_new(j);
    for (size_t i = 0; i < 5000; i++)
        jv_dict_set(j, value[n].dict, jv_int((int64_t)i), value[i % 5]);
    n++;
    value[n++] = jv_listed(j, JV_LIST, 40);
    for (size_t i = 0; i < 40; i++)
        value[n - 1].list->item[i] = value[i % 2 ? 0 : 1];
    value[n] = jv_dict_new(j);
    jv_dict_set(j, value[n++].dict, value[0], value[9]);
    struct js_builder b = {.j = j};
    js_add_str(&b, repeated(j, "a", 200));
    js_add(&b, "b", 1, false);
    value[n] = jv_string(js_done(&b));
}

struct slowest {
    double ns_per_step;
    char call[200];
    size_t calls;
};

/* Calls a function with arguments a[0] .. a[n - 1]; returns the nanoseconds, and the steps counted. */
static double time_call(const struct jinja_state *base, const struct jinja_builtin *builtin,
                        struct jv self, const struct jv *argument, size_t n, double *steps)
{
    struct jinja_state j = *base;
    struct jv list[VALUES];
    struct err err;
    j.chunk = NULL;
    j.left = j.used = 0;
    j.work = j.depth = 0;
    j.most_work = (uint64_t)MOST_STEPS * JINJA_STEP;
    j.err = &err;
    memcpy(list, argument, n * sizeof *list);
    const struct jv_args args = {list, n, NULL, 0};
    if (self.kind == JV_ITERATOR)
        self.list->next = 0;
    const double start = now_ns();
    if (setjmp(j.way_out) == 0)
        (void)jinja_builtin_call(&j, builtin, self, &args);
    const double ns = now_ns() - start;
    *steps = (double)j.work / JINJA_STEP;
    jinja_state_release(&j);
    return ns;
}

static void try_call(const struct jinja_state *j, const struct jinja_builtin *builtin, const char *kind,
                     struct jv self, const struct jv *argument, size_t n, struct slowest *slowest)
{
    double steps, ns = 0;
    for (int again = 0; again < 4; again++) { /* other programs may slow one down */
        ns = time_call(j, builtin, self, argument, n, &steps);
        if (sanitized || ns <= FREE_NS + MOST_NS * steps)
            break;
    }
    char call[200];
    snprintf(call, sizeof call, "%s %s of %s with %zu arguments, the first %s", kind, builtin->name,
             jv_type(self), n, n ? jv_type(*argument) : "none");
    check(sanitized || ns <= FREE_NS + MOST_NS * steps, "%s: %.0f ns in %.1f steps", call, ns, steps);
    const double each = steps > 500 ? ns / steps : 0;
    slowest->calls++;
    if (each > slowest->ns_per_step) {
        slowest->ns_per_step = each;
        memcpy(slowest->call, call, sizeof call);
    }
}

/* Applies a function to every value, with arguments that are the large and the small ones. */
static void try_builtin(const struct jinja_state *j, const struct jinja_builtin *builtin,
                        const char *kind, enum jv_kind only, const struct jv value[VALUES],
                        struct slowest *slowest)
{
    static const int arguments[][2] = {{0, 0}, {1, 1}, {3, 0}, {4, 3},  {5, 3},
                                       {7, 5}, {8, 8}, {9, 7}, {11, 4}, {12, 3}};
    for (size_t i = 0; i < VALUES && builtin->call; i++) {
        if (only != JV_ABSENT && value[i].kind != only)
            continue;
        try_call(j, builtin, kind, value[i], value, 0, slowest);
        for (size_t k = 0; k < ARRAY_LEN(arguments); k++)
            for (size_t n = 1; n <= 2; n++) {
                const struct jv argument[2] = {value[arguments[k][0]], value[arguments[k][1]]};
                try_call(j, builtin, kind, value[i], argument, n, slowest);
            }
    }
}

/* Calls `use` with each function of a template. */
typedef void user(void *arg, const struct jinja_builtin *builtin, const char *kind, enum jv_kind only);

static void walk(user *use, void *arg)
{
    static const char *const sets[JINJA_SETS] = {"filter", "test", "global"};
    for (enum jinja_set set = 0; set < JINJA_SETS; set++)
        for (size_t i = 0; i < jinja_functions(set).n; i++)
            use(arg, &jinja_functions(set).row[i], sets[set],
                set == JINJA_GLOBALS ? JV_INT : JV_ABSENT);
    for (enum jv_kind kind = JV_ABSENT; kind < JV_KINDS; kind++)
        for (size_t i = 0; i < jinja_method_table(kind).n; i++)
            if (kind != JV_LOOP)
                use(arg, &jinja_method_table(kind).row[i], "method", kind);
}

struct trial {
    const struct jinja_state *j;
    struct jv value[VALUES];
    struct slowest slowest;
    char **name;
    int n_names;
};

static void run_one(void *arg, const struct jinja_builtin *builtin, const char *kind, enum jv_kind only)
{
    struct trial *run = arg;
    bool wanted = !run->n_names;
    for (int i = 0; i < run->n_names; i++)
        wanted |= strcmp(run->name[i], builtin->name) == 0;
    if (wanted)
        try_builtin(run->j, builtin, kind, only, run->value, &run->slowest);
}

static void print_name(void *arg, const struct jinja_builtin *builtin, const char *kind,
                       enum jv_kind only)
{
    (void)arg;
    if (builtin->call)
        printf("%s %s %s %s\n", kind, jv_type((struct jv){.kind = only}), builtin->name,
               builtin->params ? builtin->params : "*");
}

int main(int argc, char **argv)
{
    struct err err = {0};
    struct jinja_state j = {.most_memory = (size_t)256 << 20,
                            .most_work = UINT64_MAX,
                            .most_depth = 1200,
                            .name = "test",
                            .source = "",
                            .err = &err};
    struct trial run = {.j = &j, .name = argv + 1, .n_names = argc - 1};
    if (argc > 1 && strcmp(argv[1], "--names") == 0) {
        walk(print_name, NULL);
        return 0;
    }
    if (setjmp(j.way_out) == 0) {
        make_values(&j, run.value);
        walk(run_one, &run);
    }
    check(!*err.text, "%s", err.text);
    check(run.slowest.calls > 10, "only %zu calls", run.slowest.calls);
    if (argc > 1)
        printf("%.1f ns for a step: %s\n", run.slowest.ns_per_step, run.slowest.call);
    jinja_state_release(&j);
    return check_result();
}
