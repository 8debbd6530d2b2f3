/* Family files: parsing, inheritance (`like`), and search by architecture. */
#include "model/family/family.h"

#include <dirent.h>

#include "base/number.h"
#include "base/text_util.h"
#include "format/detect.h"
#include "model/family/family_words.h"

enum { PATH_SIZE = 4096 + 300 };

/* Parses "KIND NAME [TRANSFORM]", the value of a `tensor` line. */
static int add_tensor(struct family *family, const struct family_line *line, struct err *err)
{
    struct words w;
    if (!words_split(&w, line->entry->value) || w.n < 2 || strlen(w.word[1]) >= TENSOR_NAME_SIZE)
        return family_bad_line(line, err);
    const struct weight_kind *kind = weight_kind_find(w.word[0]);
    if (!kind)
        return err_set(err, "%s: line %d: unknown weight kind \"%s\"; bmc-model(5) lists them",
                       line->file, line->entry->line, w.word[0]);
    if (mem_grow(&family->tensor, &family->cap_tensors, family->n_tensors, sizeof *family->tensor,
                 err) < 0)
        return -1;
    struct tensor_line *tensor = &family->tensor[family->n_tensors++];
    tensor->kind = kind;
    strcpy(tensor->pattern, w.word[1]);
    const bool per_expert = family_names_experts(tensor->pattern, kind);
    if (!tensor_transform_parse(&tensor->transform, kind, w.word + 2, w.n - 2) ||
        (per_expert && !weight_kind_of_experts(kind) && !weight_kind_of_streams(kind) &&
         kind->out != DIM_Q_NORM && kind->out != DIM_K_NORM && kind->out != DIM_CONV_WEIGHT))
        return family_bad_line(line, err);
    tensor->transform.per_expert = per_expert;
    return 0;
}

/* The keywords with which lines of a family file begin. */
static const struct {
    const char *key;
    bool passed_on; /* inherited by families that are `like` this one */
    /* a line replaces inherited lines with its keyword and first word; false: with its keyword */
    bool by_value;
    int (*add)(struct family *family, const struct family_line *line, struct err *err);
} kinds[] = {
    {"family", false, false, NULL},
    {"architecture", false, false, NULL},
    {"like", false, false, NULL},
    {"config", true, true, NULL}, /* applied in family_config.c, like `let` and `require` */
    {"let", true, true, NULL},
    {"require", true, true, NULL},
    {"tensor", true, true, add_tensor},
    {"optional_prefix", true, false, NULL},
    {"text_config", true, false, NULL}, /* applied by family_text_config(), as the next */
    {"alias", true, false, NULL},
    {"layer_lists", true, false, NULL},
    {"mtp", true, false, NULL}, /* applied by family_open_mtp(), as the next */
    {"layer_prefix", false, false, NULL},
};

static size_t kind_of(const struct conf_entry *entry)
{
    size_t kind = 0;
    while (kind < ARRAY_LEN(kinds) && strcmp(kinds[kind].key, entry->key) != 0)
        kind++;
    return kind;
}

static int check_lines(const struct conf *conf, struct err *err)
{
    for (size_t i = 0; i < conf->n_entries; i++)
        if (kind_of(&conf->entry[i]) == ARRAY_LEN(kinds))
            return err_set(err, "%s: line %d: unknown keyword \"%s\"; see bmc-family(5)", conf->name,
                           conf->entry[i].line, conf->entry[i].key);
    if (!conf_get(conf, "family"))
        return err_set(err, "%s: a \"family\" line is missing", conf->name);
    return 0;
}

/* The same for the family of a model; that of MTP layers has no architecture. */
static int check_model_lines(const struct conf *conf, struct err *err)
{
    if (check_lines(conf, err) < 0)
        return -1;
    if (!conf_get(conf, "architecture"))
        return err_set(err, "%s: an \"architecture\" line is missing", conf->name);
    return 0;
}

/* True if line `a` replaces the inherited line `b`. */
static bool same_subject(const struct conf_entry *a, const struct conf_entry *b)
{
    const size_t kind = kind_of(a), len = strcspn(a->value, " \t");
    return kind == kind_of(b) && (!kinds[kind].by_value || (len == strcspn(b->value, " \t") &&
                                                            memcmp(a->value, b->value, len) == 0));
}

static bool has_subject(const struct conf *conf, const struct conf_entry *entry)
{
    for (size_t i = 0; i < conf->n_entries; i++)
        if (same_subject(&conf->entry[i], entry))
            return true;
    return false;
}

/* True if the family's own file, or one of the first `bases` that it inherits from, replaces a line. */
static bool replaced(const struct family *family, size_t bases, const struct conf_entry *entry)
{
    bool found = has_subject(&family->conf, entry);
    for (size_t i = 0; i < bases && !found; i++)
        found = has_subject(&family->base[i], entry);
    return found;
}

/* Opens the family that `from`, a family file, is like, if any: base[n_bases]. */
static int open_base(struct family *family, const struct conf *from, const char *models_dir,
                     struct err *err)
{
    const char *file = from->name, *name = conf_get(from, "like");
    char path[PATH_SIZE];
    if (!*name || strchr(name, '/') || strlen(name) >= WORD_SIZE)
        return err_set(err, "%s: \"like\" needs the name of a family, found \"%.64s\"", file, name);
    if (family->n_bases == FAMILY_BASES)
        return err_set(err, "%s: is like %s, the family file inherits from more than %d others", file,
                       name, FAMILY_BASES);
    snprintf(path, sizeof path, "%s/families/%s.family", models_dir, name);
    struct conf *base = &family->base[family->n_bases++];
    if (conf_open(base, path, err) < 0 || check_lines(base, err) < 0)
        return err_prefix(err, "%s: is like %s", file, name);
    return 0;
}

static int add_line(struct family *family, const char *file, const struct conf_entry *entry,
                    struct err *err)
{
    const struct family_line line = {file, entry};
    if (mem_grow(&family->line, &family->cap_lines, family->n_lines, sizeof line, err) < 0)
        return -1;
    family->line[family->n_lines++] = line;
    const size_t kind = kind_of(entry);
    return kinds[kind].add ? kinds[kind].add(family, &line, err) : 0;
}

/* Collects a family's lines in effect, inherited ones first. */
static int add_lines(struct family *family, const char *models_dir, struct err *err)
{
    for (const struct conf *from = &family->conf; conf_get(from, "like");
         from = &family->base[family->n_bases - 1])
        if (open_base(family, from, models_dir, err) < 0)
            return -1;
    for (size_t level = family->n_bases; level-- > 0;)
        for (size_t i = 0; i < family->base[level].n_entries; i++) {
            const struct conf_entry *entry = &family->base[level].entry[i];
            if (kinds[kind_of(entry)].passed_on && !replaced(family, level, entry) &&
                add_line(family, family->base[level].name, entry, err) < 0)
                return -1;
        }
    for (size_t i = 0; i < family->conf.n_entries; i++)
        if (add_line(family, family->conf.name, &family->conf.entry[i], err) < 0)
            return -1;
    return 0;
}

/* Second half of family_open() and family_parse(): if family->conf was read (rc is 0), checks and
 * collects its lines. Releases the family on error. */
static int complete(struct family *family, int rc, const char *models_dir, struct err *err)
{
    if (rc == 0 && check_model_lines(&family->conf, err) == 0 &&
        add_lines(family, models_dir, err) == 0)
        return 0;
    family_release(family);
    return -1;
}

int family_open(struct family *family, const char *models_dir, const char *path, struct err *err)
{
    *family = (struct family){0};
    return complete(family, conf_open(&family->conf, path, err), models_dir, err);
}

int family_parse(struct family *family, const char *models_dir, const char *text, size_t size,
                 const char *name, struct err *err)
{
    *family = (struct family){0};
    return complete(family, conf_parse(&family->conf, text, size, name, err), models_dir, err);
}

void family_release(struct family *family)
{
    conf_release(&family->conf);
    for (size_t i = 0; i < family->n_bases; i++)
        conf_release(&family->base[i]);
    free(family->line);
    free(family->tensor);
    *family = (struct family){0};
}

/* Gives the layers in inherited tensor names the prefix that the line `layer_prefix` names. */
static int rename_layers(struct family *family, struct err *err)
{
    static const char of_model[] = "model.layers.";
    const char *prefix = conf_get(&family->conf, "layer_prefix");
    for (size_t i = 0; prefix && i < family->n_tensors; i++) {
        char *pattern = family->tensor[i].pattern;
        const char *rest = pattern + sizeof of_model - 1;
        if (strncmp(pattern, of_model, sizeof of_model - 1) != 0)
            continue;
        const size_t len = strlen(prefix), rest_size = strlen(rest) + 1;
        if (len + rest_size > TENSOR_NAME_SIZE)
            return err_set(err, "%s: \"layer_prefix\" is too long", family->conf.name);
        memmove(pattern + len, rest, rest_size);
        memcpy(pattern, prefix, len);
    }
    return 0;
}

/* Opens a family file that inherits the lines in effect of another family. */
static int open_derived(struct family *family, const struct family *from, const char *path,
                        struct err *err)
{
    int rc = conf_open(&family->conf, path, err);
    if (rc == 0)
        rc = check_lines(&family->conf, err);
    if (rc == 0 && conf_get(&family->conf, "like"))
        rc = err_set(err,
                     "%s: \"like\" has no place in a family of MTP layers, which inherits from that of "
                     "the model",
                     path);
    for (size_t i = 0; i < from->n_lines && rc == 0; i++) {
        const struct family_line *line = &from->line[i];
        if (kinds[kind_of(line->entry)].passed_on && !replaced(family, 0, line->entry))
            rc = add_line(family, line->file, line->entry, err);
    }
    if (rc == 0)
        rc = rename_layers(family, err);
    for (size_t i = 0; i < family->conf.n_entries && rc == 0; i++)
        rc = add_line(family, family->conf.name, &family->conf.entry[i], err);
    if (rc < 0)
        family_release(family);
    return rc;
}

/* Reads the number of MTP layers, by the words of an `mtp` line. */
static int count_mtp(const struct family *target, const struct words *w,
                     const struct weight_source *source, size_t *n, struct err *err)
{
    enum { MOST_LAYERS = 64 };
    char found[WORD_SIZE];
    json_t *json = family_text_config(target, source->json[SOURCE_CONFIG], err);
    if (!json)
        return -1;
    const bool given = family_look_up(json, w->word[2], found, sizeof found);
    json_decref(json);
    const char *number = given ? found : w->n == 5 ? w->word[4] : "0";
    return parse_size(number, n) && *n <= MOST_LAYERS
               ? 0
               : err_set(err, "%s: \"%s\" is %.40s, expected a number of MTP layers from 0 to %d",
                         source->config_name, w->word[2], number, MOST_LAYERS);
}

int family_open_mtp(struct family *family, const struct family *target, const char *models_dir,
                    const struct weight_source *source, size_t layers, size_t *n, struct err *err)
{
    struct words w;
    char path[PATH_SIZE];
    const char *value = family_value(target, "mtp");
    *family = (struct family){0};
    *n = 0;
    if (!value || strcmp(value, "none") == 0)
        return 0;
    if (!words_split(&w, value) || (w.n != 3 && (w.n != 5 || strcmp(w.word[3], "default") != 0)) ||
        strcmp(w.word[1], "from") != 0 || strchr(w.word[0], '/') || strlen(w.word[0]) >= WORD_SIZE)
        return err_set(err, "%s: invalid syntax: \"mtp %s\"; see bmc-family(5)", target->conf.name,
                       value);
    if (count_mtp(target, &w, source, n, err) < 0)
        return -1;
    if (!*n)
        return 0;
    snprintf(path, sizeof path, "%s/families/%s.family", models_dir, w.word[0]);
    if (open_derived(family, target, path, err) < 0)
        return -1;
    family->first_layer = conf_get(&family->conf, "layer_prefix") ? 0 : layers;
    return 0;
}

/* What is searched: an architecture, and tensors that tell variants of it apart. */
struct family_query {
    const char *models_dir, *architecture;
    const struct weight_source *source;
    bool by_tensors; /* only lines that ask for tensors, "NAME with TENSORS"; else only others */
};

static bool matches(const struct family_query *query, const char *value)
{
    struct words w;
    if (!words_split(&w, value) || w.n == 0 || strcmp(w.word[0], query->architecture) != 0)
        return false;
    if (w.n == 1)
        return !query->by_tensors;
    return query->by_tensors && w.n == 3 && strcmp(w.word[1], "with") == 0 &&
           family_source_has(NULL, query->source, w.word[2], 0);
}

static bool lists_architecture(const struct conf *conf, const struct family_query *query)
{
    for (size_t i = 0; i < conf->n_entries; i++)
        if (strcmp(conf->entry[i].key, "architecture") == 0 && matches(query, conf->entry[i].value))
            return true;
    return false;
}

static int is_family_file(const struct dirent *entry)
{
    const char *suffix = strrchr(entry->d_name, '.');
    return suffix && suffix != entry->d_name && strcmp(suffix, ".family") == 0;
}

/* The families' names for a message, as many as there is room for. */
struct known_families {
    char names[256];
    size_t others; /* not in names */
};

static void add_known(struct known_families *known, const char *name)
{
    const size_t used = strlen(known->names), room = sizeof known->names - used;
    if (!known->others && strlen(name) + 2 < room)
        snprintf(known->names + used, room, "%s%s", used ? ", " : "", name);
    else
        known->others++;
}

/* Opens the family file `path` if it lists the architecture; else adds the family's name to `known`,
 * if it is one of models, and returns 1. */
static int try_file(struct family *family, const struct family_query *query, const char *path,
                    struct known_families *known, struct err *err)
{
    struct conf conf;
    int rc = conf_open(&conf, path, err);
    if (rc < 0)
        return -1;
    rc = check_lines(&conf, err);
    if (rc == 0 && lists_architecture(&conf, query)) {
        rc = family_open(family, query->models_dir, path, err);
    } else if (rc == 0 && !conf_get(&conf, "architecture")) {
        rc = 1;
    } else if (rc == 0) {
        add_known(known, conf_get(&conf, "family"));
        rc = 1;
    }
    conf_release(&conf);
    return rc;
}

/* Opens the first family that matches; returns 1 if none does. */
static int try_files(struct family *family, const struct family_query *query,
                     struct known_families *known, struct err *err)
{
    char path[PATH_SIZE];
    snprintf(path, sizeof path, "%s/families", query->models_dir);
    struct dirent **files = NULL;
    const int n = scandir(path, &files, is_family_file, alphasort);
    if (n < 0)
        return err_errno(err, "%s: cannot list the model families", path);
    int rc = 1;
    *known = (struct known_families){0};
    for (int i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/families/%s", query->models_dir, files[i]->d_name);
        if (rc == 1)
            rc = try_file(family, query, path, known, err);
        free(files[i]);
    }
    free(files);
    return rc;
}

/* Opens the family of an architecture; returns 1 if there is none. */
static int find_family(struct family *family, const char *models_dir, const char *architecture,
                       const struct weight_source *source, struct known_families *known,
                       struct err *err)
{
    struct family_query query = {models_dir, architecture, source, true};
    const int rc = try_files(family, &query, known, err);
    query.by_tensors = false;
    return rc == 1 ? try_files(family, &query, known, err) : rc;
}

/* The nth architecture with an LM head of which `architecture` may be the part without; false: there
 * are no more. */
static bool name_with_head(const char *architecture, size_t nth, char name[FAMILY_MODEL_SIZE])
{
    static const struct {
        const char *end, *with_head;
    } names[] = {{"TextModel", "ForCausalLM"}, {"Model", "ForCausalLM"}, {"Model", "LMHeadModel"}};
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (text_ends(architecture, names[i].end) && nth-- == 0) {
            const size_t stem = strlen(architecture) - strlen(names[i].end);
            snprintf(name, FAMILY_MODEL_SIZE, "%.*s%s", (int)size_min(stem, 100), architecture,
                     names[i].with_head);
            return true;
        }
    return false;
}

int family_find(struct family *family, const char *models_dir, const char *architecture,
                const struct weight_source *source, struct err *err)
{
    struct known_families known;
    int rc = find_family(family, models_dir, architecture, source, &known, err);
    char model[FAMILY_MODEL_SIZE];
    for (size_t nth = 0; rc == 1 && name_with_head(architecture, nth, model); nth++) {
        rc = find_family(family, models_dir, model, source, &known, err);
        if (rc == 0)
            memcpy(family->model, model, sizeof model);
    }
    const char *reason = unsupported_arch(architecture);
    if (rc == 1 && reason)
        return err_set(err, "architecture \"%.80s\" is %s", architecture, reason);
    if (rc == 1) {
        char others[40] = "";
        if (known.others)
            snprintf(others, sizeof others, " and %zu others", known.others);
        return err_set(
            err,
            "architecture \"%.80s\" is unknown; families in %.80s are %s%s; to add one, write a "
            "family file",
            architecture, models_dir, *known.names ? known.names : "none", others);
    }
    return rc;
}

/* Applies "alias NAME PATH [merged]": if config.json has an object at PATH that is not empty, it is also the
 * member NAME, or its members are added to that. */
static int apply_alias(json_t *config, const struct family_line *line, struct err *err)
{
    struct words w;
    if (!words_split(&w, line->entry->value) ||
        !(w.n == 2 || (w.n == 3 && strcmp(w.word[2], "merged") == 0)))
        return family_bad_line(line, err);
    json_t *const from = (json_t *)(uintptr_t)json_at(config, w.word[1]);
    const json_t *old = json_object_get(config, w.word[0]);
    if (!json_object_size(from))
        return 0;
    json_t *both = w.n == 3 && json_is_object(old) ? json_deep_copy(old) : json_incref(from);
    if (both && both != from && json_object_update(both, from) < 0) {
        json_decref(both);
        both = NULL;
    }
    return json_put(config, w.word[0], both, err);
}

static int apply_aliases(const struct family *family, json_t *config, struct err *err)
{
    for (size_t i = 0; i < family->n_lines; i++)
        if (strcmp(family->line[i].entry->key, "alias") == 0 &&
            apply_alias(config, &family->line[i], err) < 0)
            return -1;
    return 0;
}

/* The number at a path; 0: there is none. */
static size_t number_at(const json_t *json, const char *path)
{
    const json_int_t n = json_integer_value(json_at(json, path));
    return n > 0 ? (size_t)n : 0;
}

/* The entries of a list that are those of a family's layers: without those of MTP layers, or that of the first of these. */
static json_t *entries_of(const struct family *family, const json_t *list, size_t layers)
{
    const size_t first = family->first_layer, end = first ? first + 1 : layers;
    json_t *cut = json_array();
    for (size_t i = first; cut && i < end; i++)
        if (json_array_append(cut, json_array_get(list, i)) < 0) {
            json_decref(cut);
            return NULL;
        }
    return cut;
}

/* Applies "layer_lists NAME,NAME.. LAYERS MTP": lists that count MTP layers, too, get the entries of the family's layers. */
static int cut_layer_lists(const struct family *family, json_t *json, struct err *err)
{
    struct words w;
    const char *value = family_value(family, "layer_lists");
    if (!value)
        return 0;
    if (!words_split(&w, value) || w.n != 3)
        return err_set(err, "%s: invalid syntax: \"layer_lists %s\"; see bmc-family(5)",
                       family->conf.name, value);
    const size_t layers = number_at(json, w.word[1]), mtp = number_at(json, w.word[2]);
    for (char *names = w.word[0], *name; (name = strsep(&names, ","));) {
        const json_t *list = json_object_get(json, name);
        const size_t n = json_array_size(list);
        if (n && family->first_layer && n != layers + mtp)
            return err_set(err,
                           "config.json: \"%s\" has %zu entries for %zu layers and %zu MTP layers; "
                           "complete it, or "
                           "set \"%s\" to 0",
                           name, n, layers, mtp, w.word[2]);
        if (mtp && n && n == layers + mtp &&
            json_put(json, name, entries_of(family, list, layers), err) < 0)
            return -1;
    }
    return 0;
}

/* Members that are those of the whole model, if config.json has them in both places. */
static const char *const of_whole[] = {"architectures", "tie_word_embeddings"};

json_t *family_text_config(const struct family *family, const json_t *json, struct err *err)
{
    const char *path = family_value(family, "text_config");
    json_t *const whole = (json_t *)(uintptr_t)json;
    json_t *const text = (json_t *)(uintptr_t)(path ? json_at(json, path) : NULL);
    json_t *merged = json_copy(json_is_object(text) ? text : whole);
    int rc = merged && json_object_update_missing(merged, whole) == 0
                 ? 0
                 : err_no_memory(err, "config.json");
    for (size_t i = 0; i < ARRAY_LEN(of_whole) && rc == 0; i++) {
        json_t *value = json_object_get(whole, of_whole[i]);
        if (value && !json_is_null(value))
            rc = json_put(merged, of_whole[i], json_incref(value), err);
    }
    if (rc == 0 && cut_layer_lists(family, merged, err) == 0 && apply_aliases(family, merged, err) == 0)
        return merged;
    json_decref(merged);
    return NULL;
}
