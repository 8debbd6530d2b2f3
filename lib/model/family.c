/* Families and shapes as data. */
#include "model/family.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"

enum { WORD_SIZE = 256, MAX_WORDS = 8, PATH_SIZE = 4096 + 300 };

/* A line's value cut at blanks. */
struct words {
    char text[1024];
    char *word[MAX_WORDS];
    size_t n;
};

static int split(struct words *words, const char *text)
{
    *words = (struct words){0};
    if (strlen(text) >= sizeof words->text)
        return -1;
    strcpy(words->text, text);
    char *rest = words->text;
    for (char *word; (word = strsep(&rest, " \t"));) {
        if (!*word)
            continue;
        if (words->n == MAX_WORDS)
            return -1;
        words->word[words->n++] = word;
    }
    return 0;
}

int family_open(struct family *family, const char *path, struct err *err)
{
    if (conf_open(&family->conf, path, err) < 0)
        return -1;
    if (!conf_get(&family->conf, "family") || !conf_get(&family->conf, "architecture")) {
        err_set(err, "%s: needs a line \"family\" and a line \"architecture\"", path);
        family_release(family);
        return -1;
    }
    return 0;
}

void family_release(struct family *family) { conf_release(&family->conf); }

static bool has_suffix(const char *text, const char *suffix)
{
    const size_t len = strlen(text), n = strlen(suffix);
    return len > n && strcmp(text + len - n, suffix) == 0;
}

static bool lists_architecture(const struct family *family, const char *architecture)
{
    for (size_t i = 0; i < family->conf.n_entries; i++)
        if (strcmp(family->conf.entry[i].key, "architecture") == 0 &&
            strcmp(family->conf.entry[i].value, architecture) == 0)
            return true;
    return false;
}

/* Appends "NAME, " for every file of a folder whose name ends in `suffix`, as many as there is room for. */
static void list_names(const char *folder, const char *suffix, char *text, size_t size)
{
    struct dirent **files = NULL;
    const int n = scandir(folder, &files, NULL, alphasort);
    size_t used = 0;
    *text = 0;
    for (int i = 0; i < n; i++) {
        const size_t len = strlen(files[i]->d_name) - strlen(suffix);
        if (has_suffix(files[i]->d_name, suffix) && used + len + sizeof ", " <= size)
            used += (size_t)snprintf(text + used, size - used, "%s%.*s", used ? ", " : "", (int)len,
                                     files[i]->d_name);
        free(files[i]);
    }
    free(files);
}

int family_find(struct family *family, const char *models_dir, const char *architecture,
                struct err *err)
{
    char path[PATH_SIZE], known[256] = "";
    snprintf(path, sizeof path, "%s/families", models_dir);
    struct dirent **files = NULL;
    const int n = scandir(path, &files, NULL, alphasort);
    if (n < 0)
        return err_errno(err, "%s: cannot list the model families", path);
    int rc = 1;
    for (int i = 0; i < n; i++) {
        if (rc == 1 && has_suffix(files[i]->d_name, ".family")) {
            snprintf(path, sizeof path, "%s/families/%s", models_dir, files[i]->d_name);
            rc = family_open(family, path, err);
            if (rc == 0 && !lists_architecture(family, architecture)) {
                const size_t used = strlen(known);
                snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "",
                         conf_get(&family->conf, "architecture"));
                family_release(family);
                rc = 1;
            }
        }
        free(files[i]);
    }
    free(files);
    if (rc == 1)
        return err_set(
            err, "architecture \"%s\" is not known; families in %s are for %s; a new one is a new file",
            architecture, models_dir, *known ? known : "none");
    return rc;
}

/* ---- configuring ---- */

/* Key -> value while a configuration is put together; later lines win. */
struct draft {
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

static int set(struct draft *draft, const char *key, const char *value, struct err *err)
{
    if (json_object_set_new(draft->values, key, json_string(value)) < 0)
        return err_set(err, "%s: %s is no usable text", draft->name, key);
    return 0;
}

static int bad_line(const struct draft *draft, const struct conf_entry *line, struct err *err)
{
    return err_set(err, "%s: line %d is not understood: \"%s %s\"; see bmc-family(5)",
                   draft->family->conf.name, line->line, line->key, line->value);
}

/* "KEY is VALUE [if PATH WANTED]" and "KEY from PATHS [default VALUE]". */
static int apply_config(struct draft *draft, const struct conf_entry *line, const json_t *json,
                        struct err *err)
{
    struct words w;
    char found[WORD_SIZE];
    if (split(&w, line->value) < 0 || w.n < 3)
        return bad_line(draft, line, err);
    const char *key = w.word[0], *value = w.word[2];
    if (!config_has_key(key))
        return bad_line(draft, line, err);
    if (strcmp(w.word[1], "is") == 0) {
        if (w.n == 3)
            return set(draft, key, value, err);
        if (w.n != 6 || strcmp(w.word[3], "if") != 0)
            return bad_line(draft, line, err);
        if (look_up(json, w.word[4], found, sizeof found) && strcmp(found, w.word[5]) == 0)
            return set(draft, key, value, err);
        return 0;
    }
    if (strcmp(w.word[1], "from") != 0 ||
        !(w.n == 3 || (w.n == 5 && strcmp(w.word[3], "default") == 0)))
        return bad_line(draft, line, err);
    if (look_up(json, w.word[2], found, sizeof found))
        return set(draft, key, found, err);
    if (w.n == 5)
        return set(draft, key, w.word[4], err);
    return json ? err_set(err, "%s: has no \"%s\"", draft->name, w.word[2]) : 0;
}

/* "PATH is VALUE[,VALUE]": when the JSON has it, it must be one of these. */
static int apply_require(struct draft *draft, const struct conf_entry *line, const json_t *json,
                         struct err *err)
{
    struct words w;
    char found[WORD_SIZE];
    if (split(&w, line->value) < 0 || w.n != 3 || strcmp(w.word[1], "is") != 0)
        return bad_line(draft, line, err);
    if (!look_up(json, w.word[0], found, sizeof found))
        return 0;
    for (char *rest = w.word[2], *wanted; (wanted = strsep(&rest, ","));)
        if (strcmp(wanted, found) == 0)
            return 0;
    return err_set(err, "%s: \"%s\" is %s, the %s family here handles only %s", draft->name, w.word[0],
                   found, conf_get(&draft->family->conf, "family"), line->value);
}

/* "@key" and "@key/key" become values of other keys. */
static int resolve(struct draft *draft, struct err *err)
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

static int apply_lines(struct draft *draft, const json_t *json, struct err *err)
{
    const struct conf *conf = &draft->family->conf;
    for (size_t i = 0; i < conf->n_entries; i++) {
        const struct conf_entry *line = &conf->entry[i];
        if (strcmp(line->key, "config") == 0 && apply_config(draft, line, json, err) < 0)
            return -1;
        if (strcmp(line->key, "require") == 0 && apply_require(draft, line, json, err) < 0)
            return -1;
    }
    return 0;
}

/* The draft becomes a configuration by way of its own text form. */
static int finish(struct draft *draft, struct config *config, const struct buf *extra, struct err *err)
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
    struct draft draft = {json_object(), family, name};
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
    struct draft draft = {json_object(), family, shape->name};
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

/* A path that is not there is only that; a name could be another one. */
static int unknown_shape(const char *models_dir, const char *shape, const char *path, struct err *err)
{
    char folder[PATH_SIZE], known[360];
    if (strcmp(shape, path) == 0)
        return err_set(err, "no shape \"%s\": there is no such file", shape);
    snprintf(folder, sizeof folder, "%s/shapes", models_dir);
    list_names(folder, ".shape", known, sizeof known);
    return err_set(err, "no shape \"%.80s\"; there are: %s; or give the path of a .shape file", shape,
                   *known ? known : "none");
}

int shape_configure(const char *models_dir, const char *shape, struct config *config, struct err *err)
{
    char path[PATH_SIZE];
    if (strchr(shape, '/') || has_suffix(shape, ".shape"))
        snprintf(path, sizeof path, "%s", shape);
    else
        snprintf(path, sizeof path, "%s/shapes/%s.shape", models_dir, shape);
    if (!file_exists(path))
        return unknown_shape(models_dir, shape, path, err);
    struct conf conf;
    if (conf_open(&conf, path, err) < 0)
        return -1;
    struct family family = {0};
    int rc = -1;
    const char *name = conf_get(&conf, "family");
    if (!name || strchr(name, '/')) {
        err_set(err, "%s: needs a line \"family NAME\"", path);
        goto out;
    }
    char family_path[PATH_SIZE];
    snprintf(family_path, sizeof family_path, "%s/families/%s.family", models_dir, name);
    if (family_open(&family, family_path, err) < 0)
        goto out;
    rc = family_configure_shape(&family, &conf, config, err);
out:
    family_release(&family);
    conf_release(&conf);
    return rc;
}

/* ---- names of tensors ---- */

/* Copies a pattern with % replaced by the layer. */
static void fill_pattern(const char *pattern, size_t layer, char *name, size_t size)
{
    const char *mark = strchr(pattern, '%');
    if (mark)
        snprintf(name, size, "%.*s%zu%s", (int)(mark - pattern), pattern, layer, mark + 1);
    else
        snprintf(name, size, "%s", pattern);
}

bool family_tensor_name(const struct family *family, const char *role, size_t layer, size_t nth,
                        char *name, size_t size)
{
    const char *prefix = conf_get(&family->conf, "optional_prefix");
    const size_t prefix_len = prefix ? strlen(prefix) : 0;
    for (size_t i = 0; i < family->conf.n_entries; i++) {
        const struct conf_entry *line = &family->conf.entry[i];
        struct words w;
        if (strcmp(line->key, "tensor") != 0 || split(&w, line->value) < 0 || w.n != 2 ||
            strcmp(w.word[0], role) != 0)
            continue;
        fill_pattern(w.word[1], layer, name, size);
        if (nth-- == 0)
            return true;
        if (prefix_len && strncmp(name, prefix, prefix_len) == 0 && nth-- == 0) {
            memmove(name, name + prefix_len, strlen(name + prefix_len) + 1);
            return true;
        }
    }
    return false;
}
