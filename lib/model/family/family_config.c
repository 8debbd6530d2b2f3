/* Computes a configuration by applying a family's lines to config.json or to a shape file. */
#include "base/number.h"
#include "base/text_util.h"
#include "model/family/family_words.h"

/* A configuration's keys and values while a family's lines are applied; later lines win. */
struct config_draft {
    json_t *values;
    const struct family *family;
    const char *name;
    const struct weight_source *source; /* NULL: none, of a shape file */
};

/* Space for a word of Hugging Face per layer. */
enum { VALUE_SIZE = 32 * MAX_LAYERS };

/* Formats a JSON scalar; false for null, lists and objects. */
static bool scalar_text(const json_t *value, char *text, size_t size)
{
    if (json_is_integer(value))
        snprintf(text, size, "%lld", (long long)json_integer_value(value));
    else if (json_is_real(value) && size >= NUMBER_TEXT_SIZE)
        number_text(json_real_value(value), text);
    else if (json_is_boolean(value))
        snprintf(text, size, "%s", json_is_true(value) ? "true" : "false");
    else if (json_is_string(value) && strlen(json_string_value(value)) < size)
        snprintf(text, size, "%s", json_string_value(value));
    else
        return false;
    return text[strcspn(text, "\n")] == 0;
}

/* Formats an entry of a list: a number, or a string that is one word. */
static bool entry_text(const json_t *value, char *text, size_t size)
{
    if (json_is_number(value))
        return snprintf(text, size, "%.17g", json_number_value(value)) > 0;
    return json_is_string(value) && scalar_text(value, text, size) && *text &&
           text[strcspn(text, " \t,*.")] == 0;
}

/* Formats a JSON scalar or a list of numbers or words, separated by blanks. In place of other
 * entries, and of those that do not fit, is a word that no key accepts. */
static bool value_text(const json_t *value, char *text, size_t size)
{
    enum { ENTRY_SIZE = 64 };
    const json_t *first = json_array_get(value, 0);
    if (!json_is_array(value))
        return scalar_text(value, text, size);
    size_t used = 0;
    for (size_t i = 0; i < json_array_size(value) && size - used > 2 * ENTRY_SIZE; i++) {
        char entry[ENTRY_SIZE];
        const json_t *item = json_array_get(value, i);
        const bool usable = json_is_string(item) == json_is_string(first) &&
                            size - used > 3 * ENTRY_SIZE && entry_text(item, entry, sizeof entry);
        used += (size_t)snprintf(text + used, size - used, "%s%s", i ? " " : "", usable ? entry : "?");
    }
    return used > 0;
}

/* The first of the entries of a list, one per layer, whose layers have WORD in another list of `json`, for `which` "LIST:WORD";
 * if these differ, or what should be a list is none, that itself. NULL: there is none. */
static const json_t *value_of_layers(const json_t *json, const json_t *list, const char *which)
{
    char kinds[WORD_SIZE];
    const size_t len = strcspn(which, ":");
    const json_t *found = NULL;
    snprintf(kinds, sizeof kinds, "%.*s", (int)len, which);
    const json_t *kind = json_at(json, kinds);
    if (list && !json_is_array(list) && !json_is_null(list))
        return list;
    for (size_t i = 0; which[len] && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *word = json_string_value(json_array_get(kind, i));
        if (!word || strcmp(word, which + len + 1) != 0)
            continue;
        if (found && !json_equal(found, item))
            return list;
        found = item;
    }
    return found;
}

/* The value at a path, in which * stands for all members of an object, if these have the same value there; or, at its
 * end, for the entries of a list, which stands for itself if they differ; *LIST:WORD for those of some layers. */
static const json_t *value_at(const json_t *json, const char *path)
{
    char outer[WORD_SIZE];
    const char *key, *star = strstr(path, ".*");
    json_t *member;
    const json_t *found = NULL;
    if (!star)
        return json_at(json, path);
    snprintf(outer, sizeof outer, "%.*s", (int)(star - path), path);
    const json_t *at = json_at(json, outer);
    if (star[2] && star[2] != '.')
        return value_of_layers(json, at, star + 2);
    for (size_t i = 0; !star[2] && i < json_array_size(at); i++)
        if (!json_equal(json_array_get(at, i), json_array_get(at, 0)))
            return at;
    if (!star[2])
        return json_array_get(at, 0);
    json_object_foreach((json_t *)(uintptr_t)at, key, member)
    {
        const json_t *value = json_at(member, star + 3);
        if (!value || (found && !json_equal(found, value)))
            return NULL;
        found = value;
    }
    return found;
}

/* Takes the first of the paths separated by commas; false: there are no more. */
static bool next_path(const char **paths, char path[WORD_SIZE])
{
    const size_t len = strcspn(*paths, ",");
    snprintf(path, WORD_SIZE, "%.*s", (int)len, *paths);
    *paths += len + ((*paths)[len] == ',');
    return len > 0;
}

bool family_look_up(const json_t *json, const char *paths, char *text, size_t size)
{
    char path[WORD_SIZE];
    while (json && next_path(&paths, path))
        if (value_text(value_at(json, path), text, size))
            return true;
    return false;
}

static int set_key(struct config_draft *draft, const char *key, const char *value, struct err *err)
{
    if (json_object_set_new(draft->values, key, json_string(value)) < 0)
        return err_set(err, "%s: the value of %s is not valid text", draft->name, key);
    return 0;
}

/* Appends the entry of `values` at the place that `entry` has in `words`, both separated by commas, or `entry`
 * itself if it is none of them. */
static int add_reading(struct buf *text, const char *entry, const char *words, const char *values,
                       struct err *err)
{
    const size_t len = strlen(entry);
    for (size_t n, m; *words && *values;
         words += n + (words[n] == ','), values += m + (values[m] == ',')) {
        n = strcspn(words, ",");
        m = strcspn(values, ",");
        if (n == len && memcmp(words, entry, n) == 0)
            return buf_add(text, values, m, err);
    }
    return buf_add(text, entry, len, err);
}

/* Sets a key to a list, with values in place of the entries `words`; entries are separated by blanks, or single letters. */
static int set_reading(struct config_draft *draft, const char *key, char *list, bool letters,
                       const char *words, const char *values, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    int rc = 0;
    while (rc == 0 && list && *list) {
        char letter[] = {*list, 0}, *entry = letters ? letter : strsep(&list, " ");
        list += letters;
        rc = text.len ? buf_addf(&text, err, " ") : 0;
        if (rc == 0)
            rc = add_reading(&text, entry, words, values, err);
    }
    if (rc == 0)
        rc = set_key(draft, key, text.data, err);
    return rc;
}

/* Sets a key to the number of entries of a list, or of letters of a text, if config.json has it. */
static int set_entries(struct config_draft *draft, const char *key, const json_t *json,
                       const char *path, struct err *err)
{
    const json_t *value = json ? json_at(json, path) : NULL;
    const size_t n = json_is_string(value) ? json_string_length(value) : json_array_size(value);
    char text[32];
    snprintf(text, sizeof text, "%zu", n);
    return n ? set_key(draft, key, text, err) : 0;
}

/* Sets a key to the numbers, from 0, of the entries of a list that are `word`, if config.json has it. */
static int set_numbers(struct config_draft *draft, const char *key, const json_t *json,
                       const char *path, const char *word, struct err *err)
{
    AUTO(buf_release) struct buf text = {0};
    const json_t *list = json ? json_at(json, path) : NULL;
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < json_array_size(list); i++) {
        const char *found = json_string_value(json_array_get(list, i));
        if (found && strcmp(found, word) == 0)
            rc = buf_addf(&text, err, "%s%zu", text.len ? " " : "", i);
    }
    if (rc == 0 && json_is_array(list))
        rc = set_key(draft, key, text.len ? text.data : "none", err);
    return rc;
}

/* Sets a key to the rows of a tensor, if the source has it. */
static int set_rows(struct config_draft *draft, const char *key, const char *tensor, struct err *err)
{
    const struct source_tensor *found = family_find_tensor(draft->family, draft->source, tensor, 0);
    char text[32];
    if (!found || !found->n_dims)
        return 0;
    snprintf(text, sizeof text, "%zu", found->dim[0]);
    return set_key(draft, key, text, err);
}

/* Marks layers[0..n) that a value of config.json chooses: with "every", a number, each layer of that many is the last
 * one; else those whose numbers a list has, from 0, or with "nth" from 1. False if the value is neither. */
static bool choose_layers(const json_t *value, const char *how, bool *layers, size_t n)
{
    const bool every = strcmp(how, "every") == 0;
    const json_int_t step = json_integer_value(value), first = strcmp(how, "nth") == 0;
    for (size_t i = 0; every && i < n; i++)
        layers[i] = step > 0 && (json_int_t)(i + 1) % step == 0;
    for (size_t i = 0; !every && i < json_array_size(value); i++) {
        const json_t *item = json_array_get(value, i);
        const json_int_t layer = json_integer_value(item) - first;
        if (!json_is_integer(item) || layer < 0 || (size_t)layer >= n)
            return false;
        layers[layer] = true;
    }
    return every ? step > 0 : json_is_array(value);
}

/* Applies "KEY is VALUE at|nth|every PATH else OTHER", words w: a list with a value per layer. Of a shape file, or if
 * config.json has nothing at PATH, it does nothing. */
static int set_layers(struct config_draft *draft, const struct words *w, const json_t *json,
                      struct err *err)
{
    bool layers[MAX_LAYERS] = {false};
    const char *text = json_string_value(json_object_get(draft->values, "layers"));
    const json_t *value = json ? json_at(json, w->word[4]) : NULL;
    AUTO(buf_release) struct buf list = {0};
    size_t n;
    int rc = 0;
    if (!value || json_is_null(value))
        return 0;
    if (!text || !parse_size(text, &n) || n > MAX_LAYERS ||
        !choose_layers(value, w->word[3], layers, n))
        return err_set(err, "%s: \"%s\" is not %s of %s layers", draft->name, w->word[4],
                       strcmp(w->word[3], "every") == 0 ? "an interval" : "a list of numbers",
                       text ? text : "the");
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = buf_addf(&list, err, "%s%s", i ? " " : "", w->word[layers[i] ? 2 : 6]);
    if (rc == 0)
        rc = set_key(draft, w->word[0], list.data ? list.data : "none", err);
    return rc;
}

static bool is_layers_line(const struct words *w)
{
    return w->n == 7 && strcmp(w->word[1], "is") == 0 && strcmp(w->word[5], "else") == 0 &&
           text_lists("at nth every", w->word[3], strlen(w->word[3]));
}

/* True if the first of the paths that has a value has one of those wanted, or any; or if there is but one path, which
 * has an empty list, and "empty" is wanted. */
static bool applies(const json_t *json, const char *paths, const char *wanted)
{
    char found[VALUE_SIZE];
    if (family_look_up(json, paths, found, sizeof found))
        return strcmp(wanted, "any") == 0 || text_lists(wanted, found, strlen(found));
    const json_t *value = json ? json_at(json, paths) : NULL;
    return json_is_array(value) && !json_array_size(value) &&
           text_lists(wanted, "empty", strlen("empty"));
}

/* The words after "KEY from PATHS"; NULL: not given. */
struct from_words {
    const char *otherwise, *null; /* "default VALUE", "null VALUE" */
    const char *paths, *wanted;   /* "if PATHS WANTED" */
    const char *reading, *letters,
        *as_values; /* "reading WORDS as VALUES", "letters LETTERS as VALUES" */
};

static bool parse_from(struct from_words *from, const struct words *w)
{
    const struct {
        const char *word;
        const char **first, *between, **second;
    } forms[] = {
        {"default", &from->otherwise, NULL, NULL},
        {"null", &from->null, NULL, NULL},
        {"if", &from->paths, NULL, &from->wanted},
        {"reading", &from->reading, "as", &from->as_values},
        {"letters", &from->letters, "as", &from->as_values},
    };
    size_t at = 3;
    *from = (struct from_words){0};
    for (size_t i = 0; i < ARRAY_LEN(forms); i++) {
        const size_t n = 2 + (forms[i].between != NULL) + (forms[i].second != NULL);
        if (at + n > w->n || strcmp(w->word[at], forms[i].word) != 0 ||
            (forms[i].between && strcmp(w->word[at + 2], forms[i].between) != 0))
            continue;
        *forms[i].first = w->word[at + 1];
        if (forms[i].second)
            *forms[i].second = w->word[at + n - 1];
        at += n;
    }
    return at == w->n;
}

/* True if the first of the paths that config.json has has null. */
static bool first_is_null(const json_t *json, const char *paths)
{
    char path[WORD_SIZE];
    const json_t *value = NULL;
    while (json && !value && next_path(&paths, path))
        value = json_at(json, path);
    return json_is_null(value);
}

/* The first of the paths as config.json spells it: with the object that an `alias` line names in place of its
 * alias. */
static const char *spelling(const struct config_draft *draft, const json_t *json, const char *paths,
                            char text[2 * WORD_SIZE])
{
    const int len = (int)strcspn(paths, ",");
    bool spelled = false;
    snprintf(text, 2 * WORD_SIZE, "%.*s", len, paths);
    for (size_t i = 0; i < draft->family->n_lines; i++) {
        struct words w;
        const struct conf_entry *entry = draft->family->line[i].entry;
        if (strcmp(entry->key, "alias") != 0 || !words_split(&w, entry->value) || w.n < 2)
            continue;
        const size_t alias = strlen(w.word[0]);
        if (strncmp(paths, w.word[0], alias) != 0 || paths[alias] != '.' ||
            (spelled && !json_object_size(json_at(json, w.word[1]))))
            continue;
        spelled = true;
        snprintf(text, 2 * WORD_SIZE, "%s%.*s", w.word[1], len - (int)alias, paths + alias);
    }
    return text;
}

/* Applies "KEY from PATHS ..." */
static int apply_from(struct config_draft *draft, const struct family_line *line, const struct words *w,
                      const json_t *json, struct err *err)
{
    struct from_words from;
    char found[VALUE_SIZE];
    const char *key = w->word[0], *paths = w->word[2];
    if (!parse_from(&from, w))
        return family_bad_line(line, err);
    if (from.paths && !applies(json, from.paths, from.wanted))
        return 0;
    if (from.null && first_is_null(json, paths))
        return set_key(draft, key, from.null, err);
    const char *words = from.letters ? from.letters : from.reading;
    if (family_look_up(json, paths, found, sizeof found))
        return words ? set_reading(draft, key, found, from.letters, words, from.as_values, err)
                     : set_key(draft, key, found, err);
    if (from.otherwise)
        return set_key(draft, key, from.otherwise, err);
    if (words && json_object_get(draft->values, key))
        return 0;
    char name[2 * WORD_SIZE];
    return json ? err_set(err, "%s: \"%s\" is missing", draft->name, spelling(draft, json, paths, name))
                : 0;
}

/* Applies "KEY is VALUE [if PATHS WANTED[,WANTED]]", "KEY is VALUE with TENSOR", "KEY is VALUE at|every PATH else OTHER",
 * "KEY rows TENSOR", "KEY entries PATH", "KEY numbers PATH WORD" or "KEY from PATHS [default VALUE] [null VALUE] [if PATHS WANTED] [reading WORDS as
 * VALUES | letters LETTERS as VALUES]"; in a `let` line, KEY is a variable. */
static int apply_config(struct config_draft *draft, const struct family_line *line, const json_t *json,
                        struct err *err)
{
    struct words w;
    if (!words_split(&w, line->entry->value) || w.n < 3)
        return family_bad_line(line, err);
    const char *key = w.word[0], *value = w.word[2];
    if (config_has_key(key) == (strcmp(line->entry->key, "let") == 0))
        return family_bad_line(line, err);
    if (is_layers_line(&w))
        return set_layers(draft, &w, json, err);
    if (strcmp(w.word[1], "from") == 0)
        return apply_from(draft, line, &w, json, err);
    if (strcmp(w.word[1], "entries") == 0 && w.n == 3)
        return set_entries(draft, key, json, value, err);
    if (strcmp(w.word[1], "numbers") == 0 && w.n == 4)
        return set_numbers(draft, key, json, value, w.word[3], err);
    if (strcmp(w.word[1], "rows") == 0 && w.n == 3)
        return set_rows(draft, key, value, err);
    if (strcmp(w.word[1], "is") != 0)
        return family_bad_line(line, err);
    if (w.n == 3)
        return set_key(draft, key, value, err);
    if (w.n == 5 && strcmp(w.word[3], "with") == 0)
        return family_source_has(draft->family, draft->source, w.word[4], draft->family->first_layer)
                   ? set_key(draft, key, value, err)
                   : 0;
    if (w.n != 6 || strcmp(w.word[3], "if") != 0)
        return family_bad_line(line, err);
    return applies(json, w.word[4], w.word[5]) ? set_key(draft, key, value, err) : 0;
}

/* Checks "PATH is VALUE[,VALUE]": a value at PATH, if there is one, must be one of these. "PATH is @OTHER": it must be the value
 * at path OTHER. "PATH is any" only replaces an inherited line. */
static int apply_require(struct config_draft *draft, const struct family_line *line, const json_t *json,
                         struct err *err)
{
    struct words w;
    char found[VALUE_SIZE], other[VALUE_SIZE] = "";
    if (!words_split(&w, line->entry->value) || w.n != 3 || strcmp(w.word[1], "is") != 0)
        return family_bad_line(line, err);
    const char *allowed = w.word[2];
    if (*allowed == '@')
        allowed = family_look_up(json, allowed + 1, other, sizeof other) ? other : allowed + 1;
    if (strcmp(allowed, "any") == 0 || !family_look_up(json, w.word[0], found, sizeof found) ||
        text_lists(allowed, found, strlen(found)))
        return 0;
    char name[2 * WORD_SIZE];
    return err_set(err, "%s: \"%s\" is %.80s, but the %s family supports only %s", draft->name,
                   spelling(draft, json, w.word[0], name), found,
                   conf_get(&draft->family->conf, "family"), allowed);
}

/* The value of a name or number in an expression; NULL: undefined, or not resolved yet. */
static const char *operand(const struct config_draft *draft, const char *name)
{
    const char *text = json_string_value(json_object_get(draft->values, name));
    double number;
    if (!text && parse_double(name, &number))
        return name;
    return text && *text != '@' ? text : NULL;
}

/* Formats `first` OP `second` as text, OP being ^, *, + or /; a division must have no remainder. */
static int calculate(const char *name, const char *key, const char *first, char op, const char *second,
                     char result[64], struct err *err)
{
    size_t whole, by;
    double a, b;
    if (!parse_double(first, &a) || !parse_double(second, &b))
        return err_set(err, "%s: %s: \"%.32s %c %.32s\" needs two numbers", name, key, first, op,
                       second);
    if (op == '^') {
        snprintf(result, 64, "%.17g", pow(a, b));
    } else if (op == '*') {
        snprintf(result, 64, "%.0f", floor(a * b));
    } else if (op == '+') {
        snprintf(result, 64, "%.17g", a + b);
    } else {
        if (!parse_size(first, &whole) || !parse_size(second, &by) || by == 0 || whole % by)
            return err_set(err, "%s: %s: %s is not a multiple of %s", name, key, first, second);
        snprintf(result, 64, "%zu", whole / by);
    }
    return 0;
}

/* Evaluates "@A", "@A/B", "@A*B", "@A+B" and "@A^B" once their operands are known. */
static int resolve_one(struct config_draft *draft, const char *key, const char *text, struct err *err)
{
    char name[WORD_SIZE], result[64];
    if (*text != '@' || strlen(text) >= sizeof name)
        return 0;
    strcpy(name, text + 1);
    char *second = name + strcspn(name, "/*+^");
    const char op = *second;
    if (op)
        *second++ = 0;
    const char *a = operand(draft, name), *b = op ? operand(draft, second) : "";
    if (!a || !b)
        return 0;
    if (!op)
        return set_key(draft, key, a, err);
    if (calculate(draft->name, key, a, op, b, result, err) < 0)
        return -1;
    return set_key(draft, key, result, err);
}

static int resolve(struct config_draft *draft, struct err *err)
{
    const char *key;
    json_t *value;
    for (int pass = 0; pass < 4; pass++) {
        json_object_foreach(draft->values, key, value)
        {
            if (resolve_one(draft, key, json_string_value(value), err) < 0)
                return -1;
        }
    }
    return 0;
}

static int apply_lines(struct config_draft *draft, const json_t *json, struct err *err)
{
    for (size_t i = 0; i < draft->family->n_lines; i++) {
        const struct family_line *line = &draft->family->line[i];
        const bool value =
            strcmp(line->entry->key, "config") == 0 || strcmp(line->entry->key, "let") == 0;
        if (value && apply_config(draft, line, json, err) < 0)
            return -1;
        if (strcmp(line->entry->key, "require") == 0 && apply_require(draft, line, json, err) < 0)
            return -1;
    }
    return 0;
}

/* Published EAGLE-3 heads number hidden states in two ways: by the layers before them, or by the
 * layer that computes them. No head reads the state behind the first layer, so a list that begins with 1
 * is of the second kind. */
static int renumber_features(struct config_draft *draft, struct err *err)
{
    const char *at = json_string_value(json_object_get(draft->values, "feature_layers"));
    AUTO(buf_release) struct buf text = {0};
    char *end;
    int rc = 0;
    if (!draft->source || !at || strtod(at, &end) != 1)
        return 0;
    for (double x = strtod(at, &end); rc == 0 && end != at; x = strtod(at, &end)) {
        rc = buf_addf(&text, err, "%s%.17g", text.len ? " " : "", x + 1);
        at = end;
    }
    if (rc == 0 && (rc = buf_addf(&text, err, "%s", at)) == 0) /* and what is no number */
        rc = set_key(draft, "feature_layers", text.data, err);
    return rc;
}

/* Converts the draft and the lines in `extra` to text, and parses this as a configuration. */
static int finish_config(struct config_draft *draft, struct config *config, const struct buf *extra,
                         struct err *err)
{
    struct buf text = {0};
    struct conf conf = {0};
    const char *key;
    json_t *value;
    int rc = -1;
    if (resolve(draft, err) < 0 || renumber_features(draft, err) < 0 ||
        buf_addf(&text, err, "family %s\n", conf_get(&draft->family->conf, "family")) < 0)
        goto out;
    json_object_foreach(draft->values, key, value)
    {
        if (config_has_key(key) && buf_addf(&text, err, "%s %s\n", key, json_string_value(value)) < 0)
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

static const char *attention_word(const struct config *config, size_t layer)
{
    return config->plan[layer].window ? "sliding_attention" : "full_attention";
}

static const char *mlp_word(const struct config *config, size_t layer)
{
    return config->plan[layer].has_experts ? "sparse" : "dense";
}

/* Fails unless a list in config.json agrees with the configuration, which gives a word per layer. The
 * lists do not count MTP layers. */
static int check_list(const struct config_draft *draft, const json_t *json, const struct config *config,
                      const char *list, const char *(*word)(const struct config *config, size_t layer),
                      struct err *err)
{
    const char *name = draft->name;
    const json_t *types = json_at(json, list);
    const size_t n = json_array_size(types);
    if (!json_is_array(types) || json_object_get(draft->values, list) || draft->family->first_layer)
        return 0;
    if (n != config->layers)
        return err_set(err, "%s: \"%s\" has %zu entries for %zu layers", name, list, n, config->layers);
    for (size_t i = 0; i < n; i++) {
        const char *wanted = word(config, i);
        const char *found = json_string_value(json_array_get(types, i));
        if (!found || strcmp(found, wanted) != 0)
            return err_set(err,
                           "%s: \"%s\" is %s%.40s%s for layer %zu, the %s family supports "
                           "only \"%s\" there",
                           name, list, found ? "\"" : "", found ? found : "not a string",
                           found ? "\"" : "", i, config->family, wanted);
    }
    return 0;
}

/* Checks lists with a word per layer that the family does not read: they must agree with its sliding
 * windows and experts. */
static int check_lists(const struct config_draft *draft, const json_t *json,
                       const struct config *config, struct err *err)
{
    return check_list(draft, json, config, "layer_types", attention_word, err) < 0
               ? -1
               : check_list(draft, json, config, "mlp_layer_types", mlp_word, err);
}

int family_configure(const struct family *family, const json_t *json,
                     const struct weight_source *source, struct config *config, struct err *err)
{
    const struct buf nothing = {0};
    const char *name = source->config_name;
    struct config_draft draft = {json_object(), family, name, source};
    int rc = -1;
    *config = (struct config){0};
    if (!draft.values)
        return err_no_memory(err, "%s", name);
    if (apply_lines(&draft, json, err) == 0)
        rc = finish_config(&draft, config, &nothing, err);
    if (rc == 0)
        rc = check_lists(&draft, json, config, err);
    if (rc < 0)
        config_close(config);
    json_decref(draft.values);
    return rc;
}

int family_configure_shape(const struct family *family, const struct conf *shape, struct config *config,
                           struct err *err)
{
    struct buf eos = {0};
    struct config_draft draft = {json_object(), family, shape->name, NULL};
    int rc = -1;
    *config = (struct config){0};
    if (!draft.values)
        return err_no_memory(err, "%s", shape->name);
    if (apply_lines(&draft, NULL, err) < 0)
        goto out;
    for (size_t i = 0; i < shape->n_entries; i++) {
        const struct conf_entry *line = &shape->entry[i];
        const bool is_eos = strcmp(line->key, "eos") == 0;
        if (!is_eos && conf_once(shape, line, err) < 0)
            goto out;
        if (!is_eos && strcmp(line->key, "family") != 0 && !config_has_key(line->key)) {
            err_set(err, "%s: line %d: unknown key \"%s\"; see bmc-family(5)", shape->name, line->line,
                    line->key);
            goto out;
        }
        if ((is_eos ? buf_addf(&eos, err, "eos %s\n", line->value)
                    : set_key(&draft, line->key, line->value, err)) < 0)
            goto out;
    }
    rc = finish_config(&draft, config, &eos, err);
out:
    json_decref(draft.values);
    buf_release(&eos);
    return rc;
}
