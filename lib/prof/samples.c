/* Reads result files of bmc-prof. */
#include "prof/samples.h"

#include "base/mem.h"
#include "report/stat.h"
#include "kv/kv.h"
#include "prof/compare.h"
#include "prof/prof_fields.h"

static bool says_what(const json_t *row, const char *key, const json_t *value)
{
    const json_t *model_id = json_object_get(row, "model_id");
    if (!json_is_string(value) && !json_is_integer(value) && !json_is_boolean(value))
        return false;
    if (!prof_field_identifies(key))
        return false;
    /* A model is identified by its model_id, not by its path. */
    return strcmp(key, "shape") != 0 || !model_id || json_string_length(model_id) == 0;
}

/* Value of field "attended" for a row written by an earlier version, whose field "rows" has the
 * value `rows`. In latency rows that is the first policy's effective value, not the setting; if
 * that policy never attends to padding, the setting is taken to be the default. */
static const char *old_attended(const json_t *row, const char *rows)
{
    json_t *samples = json_object_get(row, "samples");
    const char *figure = json_object_iter_key(json_object_iter(samples)); /* POLICY_ms */
    char policy[256];
    struct kv_spec spec;
    struct err err;
    snprintf(policy, sizeof policy, "%.*s", figure ? (int)strlen(figure) - 3 : 0, figure ? figure : "");
    if (json_object_get(row, "policy") || !json_object_get(row, "n") ||
        kv_spec_parse(&spec, policy, &err) < 0)
        return rows;
    spec.attend_valid = false;
    return kv_spec_attends_valid(&spec) ? "padded" : rows;
}

/* The value of field `key`, `text` if it is one, with names used by earlier versions replaced by present ones. */
static json_t *current_value(const char *key, const char *text, json_t *value)
{
    static const struct {
        const char *key, *old, *now;
    } old_values[] = {
        {"attended", "policy", "padded"},
        {"parallelism", "layers", "pipeline"},
        {"parallelism", "requests", "data"},
    };
    enum dtype type;
    if (text && strcmp(key, "weight_type") == 0 && dtype_parse(text, &type))
        text = dtype_name(type);
    for (size_t i = 0; text && i < ARRAY_LEN(old_values); i++)
        if (strcmp(key, old_values[i].key) == 0 && strcmp(text, old_values[i].old) == 0)
            text = old_values[i].now;
    return text == json_string_value(value) ? json_incref(value) : json_string(text);
}

static int collect_what(struct measured_row *row, struct err *err)
{
    const json_t *all = row->all;
    const char *key;
    json_t *value;
    int rc = row->what ? 0 : err_no_memory(err, "a row");
    json_object_foreach((json_t *)(uintptr_t)all, key, value)
    {
        const char *text = json_string_value(value);
        const bool rows = text && strcmp(key, "rows") == 0 && !json_object_get(all, "attended");
        const char *now = rows ? "attended" : strcmp(key, "split") == 0 ? "parallelism" : key;
        if (rc == 0 && says_what(all, key, value))
            rc = json_put(row->what, now,
                          current_value(now, rows ? old_attended(all, text) : text, value), err);
    }
    return rc;
}

static int check_rounds(const char *figure, const json_t *rounds, struct err *err)
{
    const size_t n = json_array_size(rounds);
    bool less;
    if (!figure_direction(figure, &less))
        return err_set(err, "\"samples\": \"%.60s\" is neither a time (_ms) nor a rate (tok_s)",
                       figure);
    if (n < 1 || n > COMPARE_ROUNDS)
        return err_set(err, "\"samples\": \"%.60s\" needs a list of 1 to %d numbers, found %s of %zu",
                       figure, COMPARE_ROUNDS, json_type_name(rounds), n);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(rounds, i);
        if (!json_is_number(x))
            return err_set(err, "\"samples\": \"%.60s\" has %s among its numbers", figure,
                           json_type_name(x));
        if (!(json_number_value(x) >= 0 && json_number_value(x) <= 1e15))
            return err_set(err, "\"samples\": \"%.60s\" has %g, which is not from 0 to 1e15", figure,
                           json_number_value(x));
    }
    return 0;
}

static int check_samples(const json_t *samples, struct err *err)
{
    const char *figure;
    json_t *rounds;
    int rc = 0;
    if (!json_is_object(samples) || !json_object_size(samples))
        return err_set(err,
                       "has no rounds (member \"samples\", found %s): roof keeps none, nor did "
                       "versions before; measure with another subcommand and --format json",
                       json_type_name(samples));
    json_object_foreach((json_t *)(uintptr_t)samples, figure, rounds)
    {
        if (rc == 0)
            rc = check_rounds(figure, rounds, err);
    }
    return rc;
}

/* The row's identifying fields as text, its key in the index. (json_dumps() would omit fields when
 * out of memory.) */
static char *key_of(const struct measured_row *row)
{
    struct buf text = {0};
    struct err err;
    if (json_append(row->what, JSON_SORT_KEYS | JSON_COMPACT, &text, &err) == 0)
        return text.data;
    buf_release(&text);
    return NULL;
}

static int add_to_index(struct measured *m, size_t i, struct err *err)
{
    AUTO(free_auto) char *key = key_of(&m->row[i]);
    const json_t *before = key ? json_object_get(m->index, key) : NULL;
    int rc = key ? 0 : err_no_memory(err, "a row");
    if (before)
        rc = err_set(err, "measured the same as row %lld", (long long)json_integer_value(before) + 1);
    return rc < 0 ? -1 : json_put(m->index, key, json_integer((json_int_t)i), err);
}

static int read_row(struct measured *m, const json_t *all, struct err *err)
{
    struct measured_row *row = &m->row[m->n];
    if (!json_is_object(all))
        return err_set(err, "is %s, no object", json_type_name(all));
    *row = (struct measured_row){all, json_object_get(all, "samples"), json_object()};
    m->n++;
    if (collect_what(row, err) < 0 || check_samples(row->samples, err) < 0)
        return -1;
    return add_to_index(m, m->n - 1, err);
}

const char *measured_error(const json_t *row)
{
    return json_string_value(json_object_get(row, "error"));
}

int measured_parse(struct measured *m, const char *text, size_t size, const char *name, struct err *err)
{
    *m = (struct measured){0};
    if (json_parse(text, size, name, &m->root, err) < 0)
        return -1;
    const json_t *rows = json_object_get(m->root, "rows");
    const size_t n = json_array_size(rows);
    m->index = json_object();
    m->row = mem_zalloc(n, sizeof *m->row);
    int rc = 0;
    if (!n)
        rc = err_set(err, "%s: no rows of bmc-prof (--format json): \"rows\" is %s", name,
                     json_is_array(rows) ? "empty" : json_type_name(rows));
    else if (!m->index || !m->row)
        rc = err_no_memory(err, "%s: %zu rows", name, n);
    for (size_t i = 0; i < n && rc == 0; i++)
        if (!measured_error(json_array_get(rows, i)) &&
            (rc = read_row(m, json_array_get(rows, i), err)) < 0)
            rc = err_prefix(err, "%s: row %zu", name, i + 1);
    if (rc == 0 && !m->n)
        rc = err_set(err, "%s: no row was measured: all have an error", name);
    if (rc < 0)
        measured_release(m);
    return rc;
}

void measured_release(struct measured *m)
{
    for (size_t i = 0; i < m->n; i++)
        json_decref(m->row[i].what);
    json_decref(m->index);
    json_decref(m->root);
    free(m->row);
    *m = (struct measured){0};
}

int measured_find(const struct measured *m, const struct measured_row *like,
                  const struct measured_row **row, struct err *err)
{
    AUTO(free_auto) char *key = key_of(like);
    if (!key)
        return err_no_memory(err, "a row");
    const json_t *at = json_object_get(m->index, key);
    *row = at ? &m->row[json_integer_value(at)] : NULL;
    return 0;
}

size_t measured_rounds(const struct measured_row *row, const char *figure, double *round)
{
    const json_t *rounds = json_object_get(row->samples, figure);
    const size_t n = json_array_size(rounds);
    for (size_t i = 0; i < n; i++)
        round[i] = json_number_value(json_array_get(rounds, i));
    return n;
}
