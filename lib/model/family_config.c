/* Configurations out of the lines of a family, from config.json or a shape file. */
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "model/family_words.h"

/* Key -> value while a configuration is put together; later lines win. */
struct config_draft {
    json_t *values;
    const struct family *family;
    const char *name;
};

/* A JSON scalar as configuration text; false for null, lists and objects. */
static bool scalar_text(const json_t *value, char *text, size_t size)
{
    if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value))
        snprintf(text, size, "%.17g", json_real_value(value));
    else if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_string(value) && strlen(json_string_value(value)) < size)
        snprintf(text, size, "%s", json_string_value(value));
    else
        return false;
    return text[strcspn(text, "\n")] == 0;
}

/* The first of "a.b,c" that the JSON has. */
static bool look_up(const json_t *json, const char *paths, char *text, size_t size)
{
    char path[WORD_SIZE];
    while (json && *paths) {
        const size_t len = strcspn(paths, ",");
        if (len < sizeof path) {
            memcpy(path, paths, len);
            path[len] = 0;
            if (scalar_text(json_at(json, path), text, size))
                return true;
        }
        paths += len + (paths[len] == ',');
    }
    return false;
}

static int set(struct config_draft *draft, const char *key, const char *value, struct err *err)
{
    if (json_object_set_new(draft->values, key, json_string(value)) < 0)
        return err_set(err, "%s: %s is no usable text", draft->name, key);
    return 0;
}

/* "KEY is VALUE [if PATH WANTED]" and "KEY from PATHS [default VALUE]". */
static int apply_config(struct config_draft *draft, const struct family_line *line, const json_t *json,
                        struct err *err)
{
    struct words w;
    char found[WORD_SIZE];
    if (!words_split(&w, line->entry->value) || w.n < 3)
        return family_bad_line(line, err);
    const char *key = w.word[0], *value = w.word[2];
    if (!config_has_key(key))
        return family_bad_line(line, err);
    if (strcmp(w.word[1], "is") == 0) {
        if (w.n == 3)
            return set(draft, key, value, err);
        if (w.n != 6 || strcmp(w.word[3], "if") != 0)
            return family_bad_line(line, err);
        if (look_up(json, w.word[4], found, sizeof found) && strcmp(found, w.word[5]) == 0)
            return set(draft, key, value, err);
        return 0;
    }
    if (strcmp(w.word[1], "from") != 0 ||
        !(w.n == 3 || (w.n == 5 && strcmp(w.word[3], "default") == 0)))
        return family_bad_line(line, err);
    if (look_up(json, w.word[2], found, sizeof found))
        return set(draft, key, found, err);
    if (w.n == 5)
        return set(draft, key, w.word[4], err);
    return json ? err_set(err, "%s: has no \"%s\"", draft->name, w.word[2]) : 0;
}

/* "PATH is VALUE[,VALUE]": when the JSON has it, it must be one of these. */
static int apply_require(struct config_draft *draft, const struct family_line *line, const json_t *json,
                         struct err *err)
{
    struct words w;
    char found[WORD_SIZE];
    if (!words_split(&w, line->entry->value) || w.n != 3 || strcmp(w.word[1], "is") != 0)
        return family_bad_line(line, err);
    if (!look_up(json, w.word[0], found, sizeof found))
        return 0;
    for (char *rest = w.word[2], *wanted; (wanted = strsep(&rest, ","));)
        if (strcmp(wanted, found) == 0)
            return 0;
    return err_set(err, "%s: \"%s\" is %s, the %s family here handles only %s", draft->name, w.word[0],
                   found, conf_get(&draft->family->conf, "family"), line->entry->value);
}

/* "@key" and "@key/key" become values of other keys. */
static int resolve(struct config_draft *draft, struct err *err)
{
    const char *key;
    json_t *value;
    for (int pass = 0; pass < 4; pass++) {
        json_object_foreach(draft->values, key, value)
        {
            const char *text = json_string_value(value);
            char name[WORD_SIZE];
            if (text[0] != '@' || strlen(text) >= sizeof name)
                continue;
            strcpy(name, text + 1);
            char *by = strchr(name, '/');
            if (by)
                *by++ = 0;
            const char *first = json_string_value(json_object_get(draft->values, name));
            const char *second = by ? json_string_value(json_object_get(draft->values, by)) : "1";
            if (!first || !second || *first == '@' || *second == '@')
                continue;
            size_t a, b;
            if (!by) {
                if (set(draft, key, first, err) < 0)
                    return -1;
            } else {
                if (!parse_size(first, &a) || !parse_size(second, &b) || b == 0 || a % b)
                    return err_set(err, "%s: %s (%s) is no multiple of %s (%s)", draft->name, name,
                                   first, by, second);
                snprintf(name, sizeof name, "%zu", a / b);
                if (set(draft, key, name, err) < 0)
                    return -1;
            }
        }
    }
    return 0;
}

static int apply_lines(struct config_draft *draft, const json_t *json, struct err *err)
{
    for (size_t i = 0; i < draft->family->n_lines; i++) {
        const struct family_line *line = &draft->family->line[i];
        if (strcmp(line->entry->key, "config") == 0 && apply_config(draft, line, json, err) < 0)
            return -1;
        if (strcmp(line->entry->key, "require") == 0 && apply_require(draft, line, json, err) < 0)
            return -1;
    }
    return 0;
}

/* The draft becomes a configuration by way of its own text form. */
static int finish(struct config_draft *draft, struct config *config, const struct buf *extra,
                  struct err *err)
{
    struct buf text = {0};
    struct conf conf = {0};
    const char *key;
    json_t *value;
    int rc = -1;
    if (resolve(draft, err) < 0 ||
        buf_addf(&text, err, "family %s\n", conf_get(&draft->family->conf, "family")) < 0)
        goto out;
    json_object_foreach(draft->values, key, value)
    {
        if (buf_addf(&text, err, "%s %s\n", key, json_string_value(value)) < 0)
            goto out;
    }
    if (extra->len && buf_add(&text, extra->data, extra->len, err) < 0)
        goto out;
    if (conf_parse(&conf, text.data, text.len, draft->name, err) < 0)
        goto out;
    rc = config_read(config, &conf, err);
out:
    conf_release(&conf);
    buf_release(&text);
    return rc;
}

int family_configure(const struct family *family, const json_t *json, const char *name,
                     struct config *config, struct err *err)
{
    const struct buf nothing = {0};
    struct config_draft draft = {json_object(), family, name};
    int rc = -1;
    if (!draft.values)
        return err_set(err, "%s: out of memory", name);
    if (apply_lines(&draft, json, err) == 0)
        rc = finish(&draft, config, &nothing, err);
    json_decref(draft.values);
    return rc;
}

int family_configure_shape(const struct family *family, const struct conf *shape, struct config *config,
                           struct err *err)
{
    struct buf eos = {0};
    struct config_draft draft = {json_object(), family, shape->name};
    int rc = -1;
    if (!draft.values)
        return err_set(err, "%s: out of memory", shape->name);
    if (apply_lines(&draft, NULL, err) < 0)
        goto out;
    for (size_t i = 0; i < shape->n_entries; i++) {
        const struct conf_entry *line = &shape->entry[i];
        const bool is_eos = strcmp(line->key, "eos") == 0;
        if (!is_eos && strcmp(line->key, "family") != 0 && !config_has_key(line->key)) {
            err_set(err, "%s: line %d: there is no key \"%s\"; see bmc-family(5)", shape->name,
                    line->line, line->key);
            goto out;
        }
        if ((is_eos ? buf_addf(&eos, err, "eos %s\n", line->value)
                    : set(&draft, line->key, line->value, err)) < 0)
            goto out;
    }
    rc = finish(&draft, config, &eos, err);
out:
    json_decref(draft.values);
    buf_release(&eos);
    return rc;
}
