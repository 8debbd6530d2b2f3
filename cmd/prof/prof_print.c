/* Output: the columns of tables, and the setup above them. */
#include "cli.h"
#include "prof/prof.h"

enum { MOST_COLUMNS = 96 };

/* Names of columns; those of fields that are named after policies are stored here. */
struct columns {
    const char *name[MOST_COLUMNS];
    size_t n;
    char own[MOST_COLUMNS][PROF_FIELD_BYTES];
};

static void add_column(struct columns *c, const char *name, size_t len)
{
    if (c->n == MOST_COLUMNS)
        return;
    snprintf(c->own[c->n], sizeof c->own[c->n], "%.*s", (int)len, name);
    c->name[c->n] = c->own[c->n];
    c->n++;
}

static bool has_column(const struct columns *c, const char *name)
{
    for (size_t i = 0; i < c->n; i++)
        if (strcmp(c->name[i], name) == 0)
            return true;
    return false;
}

/* Length of the first entry of a list NAME,NAME.. if it is `name`, else 0. */
static size_t entry_is(const char *list, const char *name)
{
    const size_t len = strlen(name);
    return strncmp(list, name, len) == 0 && (!list[len] || list[len] == ',') ? len : 0;
}

/* Length of the first entry of a list if it is a field of the subcommand's rows, else 0. Policies, after which the
 * fields of latency are named, may contain commas. */
static size_t known_entry(const struct prof *prof, const char *list)
{
    static const char *const ends[] = {"_ms", "_p95_ms", "_max_ms"};
    const enum prof_command command = prof->options.command;
    const struct row_field *f = prof_find_field(list, strcspn(list, ","));
    size_t found = 0;
    if (command == PROF_COMPARE && f && f->flags & (FIELD_TEST | FIELD_IDENTITY))
        return strlen(f->name);
    for (size_t i = 0; (f = prof_field(command, i)); i++)
        found = size_max(found, entry_is(list, f->name));
    for (size_t i = 0; command == PROF_LATENCY && i < prof->n_contenders * ARRAY_LEN(ends); i++) {
        char name[PROF_FIELD_BYTES];
        snprintf(name, sizeof name, "%s%s", prof->contender[i / ARRAY_LEN(ends)].text,
                 ends[i % ARRAY_LEN(ends)]);
        found = size_max(found, entry_is(list, name));
    }
    return found;
}

__attribute__((noreturn)) static void refuse_column(const char *at, enum prof_command command)
{
    struct buf names = {0};
    struct err err;
    const struct row_field *f;
    for (size_t i = 0; (f = prof_field(command, i)); i++)
        (void)!buf_addf(&names, &err, ", %s", f->name); /* too long a list is truncated */
    opt_usage_error(&prof_program, "--columns: \"%.*s\" is not a field of %s; known are all%s%s",
                    (int)strcspn(at, ","), at, prof_command_names[command], buf_text(&names),
                    command == PROF_LATENCY
                        ? ", and for each policy POLICY_ms, POLICY_p95_ms and POLICY_max_ms"
                        : "");
}

void prof_check_columns(const struct prof *prof)
{
    const struct prof_options *o = &prof->options;
    if (!o->columns)
        return;
    if (o->format == TABLE_JSON || o->format == TABLE_JSONL)
        opt_usage_error(&prof_program, "--columns: JSON has all fields: choose table, md or csv");
    for (const char *at = o->columns;; at++) {
        const size_t len = known_entry(prof, at);
        if (!len && strcmp(o->columns, "all") != 0 &&
            (prof->n_contenders || o->command != PROF_LATENCY))
            refuse_column(at, o->command);
        at += len ? len : strcspn(at, ",");
        if (!*at)
            return;
    }
}

/* True if the field `key` has the same value in all rows. */
static bool same_in_all(const json_t *rows, const char *key)
{
    for (size_t i = 1; i < json_array_size(rows); i++)
        if (!json_equal(json_object_get(json_array_get(rows, i), key),
                        json_object_get(json_array_get(rows, 0), key)))
            return false;
    return true;
}

static bool is_error(const json_t *row) { return json_object_get(row, "error") != NULL; }

/* The main columns. Of latency the maxima of policies, too, if those are few; of compare those fields that differ
 * between rows, too. */
static void main_columns(const struct prof *prof, struct columns *c)
{
    enum { FEW = 3 };
    const enum prof_command command = prof->options.command;
    const struct row_field *f;
    for (size_t i = 0; command == PROF_COMPARE && i < json_array_size(prof->rows); i++) {
        json_t *row = json_array_get(prof->rows, i), *value;
        const char *key;
        json_object_foreach(row, key, value)
        {
            const bool always = strcmp(key, "test") == 0 || strcmp(key, "policy") == 0;
            if (!has_column(c, key) && !field_find(prof_rows[command].fields, key, strlen(key)) &&
                (always || !same_in_all(prof->rows, key)))
                add_column(c, key, strlen(key));
        }
    }
    if (command == PROF_LATENCY)
        add_column(c, "n", 1);
    for (size_t i = 0; command == PROF_LATENCY && i < prof->n_contenders; i++) {
        char name[PROF_FIELD_BYTES];
        snprintf(name, sizeof name, "%s_ms", prof->contender[i].text);
        add_column(c, name, strlen(name));
        snprintf(name, sizeof name, "%s_max_ms", prof->contender[i].text);
        if (prof->n_contenders <= FEW)
            add_column(c, name, strlen(name));
    }
    for (size_t i = 0; command != PROF_LATENCY && (f = prof_field(command, i)); i++)
        if (f->flags & FIELD_MAIN && (!(f->flags & FIELD_AXIS) || json_array_size(prof->rows) < 2 ||
                                      !same_in_all(prof->rows, f->name)))
            add_column(c, f->name, strlen(f->name));
}

static void choose_columns(const struct prof *prof, struct columns *c)
{
    const struct prof_options *o = &prof->options;
    json_t *row = json_array_get(prof->rows, 0), *value;
    const char *key;
    c->n = 0;
    if (!o->columns) {
        main_columns(prof, c);
    } else if (strcmp(o->columns, "all") == 0) {
        json_object_foreach(row, key, value) { add_column(c, key, strlen(key)); }
    } else {
        size_t len;
        for (const char *at = o->columns; *at; at += len + (at[len] == ','))
            add_column(c, at, len = known_entry(prof, at));
    }
}

/* Prints "shape opt-6.7b, layers 1, ..." above tables, without members that are columns or have no value. */
static int add_setup(const struct prof *prof, const struct columns *columns, struct buf *text,
                     struct err *err)
{
    enum { LINE = 100 };
    json_t *value;
    const char *key;
    size_t column = 0;
    int rc = 0;
    json_object_foreach(json_array_get(prof->rows, 0), key, value)
    {
        const struct row_field *own =
            field_find(prof_rows[prof->options.command].fields, key, strlen(key));
        const struct row_field *f = own ? own : prof_find_field(key, strlen(key));
        struct buf one = {0};
        const bool same = same_in_all(prof->rows, key);
        if (rc < 0 || !f || !(f->flags & FIELD_SETUP) || has_column(columns, key) ||
            (same && json_is_null(value)))
            continue;
        rc = same ? json_format(value, JSON_REAL_PRECISION(4), &one, err)
                  : buf_addf(&one, err, "varies");
        const bool quoted = one.len >= 2 && one.data[0] == '"';
        const size_t width = strlen(key) + one.len + 3 - 2 * quoted;
        const char *glue = !text->len ? "" : column + width > LINE ? ",\n" : ", ";
        column = *glue == ',' && glue[1] == '\n' ? width : column + width;
        if (rc == 0)
            rc = buf_addf(text, err, "%s%s %.*s", glue, key, (int)(quoted ? one.len - 2 : one.len),
                          one.data + quoted);
        buf_release(&one);
    }
    return rc < 0 ? -1 : buf_addf(text, err, "\n\n");
}

/* The context of bmc-prof memory, and how it follows from the options. */
static int add_context(const struct prof *prof, struct buf *text, struct err *err)
{
    const size_t N = prof->report.run.N, used = prof_longest_test(prof);
    return buf_addf(
        text, err,
        used == N ? "Caches for a context of %zu tokens, those of prompt (-p) and answer (-n); -N "
                    "sets a longer one.\n\n"
                  : "Caches for a context of %zu tokens (-N), of which prompt (-p) and answer (-n) "
                    "fill at most %zu.\n\n",
        N, used);
}

static int print_rows(const struct prof *prof, struct err *err)
{
    static struct columns columns;
    const struct prof_options *o = &prof->options;
    const enum table_format format = (enum table_format)o->format;
    const bool brief = format == TABLE_TEXT || format == TABLE_MD;
    const bool picks = brief || (format == TABLE_CSV && o->columns);
    AUTO(buf_release) struct buf text = {0};
    AUTO(json_auto) json_t *shown = picks ? NULL : json_incref(prof->rows);
    choose_columns(prof, &columns);
    int rc = picks ? table_pick(prof->rows, columns.name, columns.n, &shown, err) : 0;
    for (size_t i = json_array_size(prof->rows); brief && rc == 0 && i-- > 0;)
        if (is_error(json_array_get(prof->rows, i)) &&
            !json_object_get(json_array_get(shown, i), "policy"))
            json_array_remove(shown, i); /* a failed row without values */
    if (brief && rc == 0)
        rc = add_setup(prof, &columns, &text, err);
    if (brief && rc == 0 && o->command == PROF_MEMORY)
        rc = add_context(prof, &text, err);
    if (rc == 0)
        rc = brief ? table_write_human(shown, format, &text, err)
                   : table_write(shown, NULL, format, &text, err);
    return rc < 0 ? -1 : cli_put(buf_text(&text), text.len, err);
}

static const char *text_of(const json_t *rows, size_t at, const char *key)
{
    const char *text = json_string_value(json_object_get(json_array_get(rows, at), key));
    return text ? text : "";
}

/* The first row with an error and the policy of row `at`: a policy's error is printed once. */
static size_t first_failure(const json_t *rows, size_t at)
{
    size_t i = 0;
    while (!*text_of(rows, i, "error") ||
           strcmp(text_of(rows, i, "policy"), text_of(rows, at, "policy")) != 0)
        i++;
    return i;
}

int prof_conclude(const struct prof *prof, struct err *err)
{
    const json_t *rows = prof->rows;
    const size_t n = json_array_size(rows);
    json_t *reasons = json_object(), *policies; /* error -> the policies that failed for it */
    const char *why;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        char list[256];
        const char *error = text_of(rows, i, "error");
        if (!*error || first_failure(rows, i) != i)
            continue;
        policies = json_object_get(reasons, error);
        snprintf(list, sizeof list, "%s%s%s", policies ? json_string_value(policies) : "",
                 policies ? ", " : "", text_of(rows, i, "policy"));
        if (json_put(reasons, error, json_string(list), err) < 0)
            break;
    }
    json_object_foreach(reasons, why, policies)
    {
        if (rc < 0)
            cli_say(stderr, "%s: %s\n", prof_program.name, err->text);
        rc = err_set(err, "%s: %s", json_string_value(policies), why);
    }
    json_decref(reasons);
    return rc;
}

int prof_print(const struct prof *prof, struct err *err)
{
    bool any = !json_array_size(prof->rows);
    if (prof->report.arg)
        cli_progress_end(prof->report.arg);
    for (size_t i = 0; i < json_array_size(prof->rows); i++)
        any = any || !is_error(json_array_get(prof->rows, i));
    return any ? print_rows(prof, err) : prof_conclude(prof, err);
}
