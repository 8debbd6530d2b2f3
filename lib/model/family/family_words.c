/* Words of a family's lines, and names of a source's tensors: those of these lines, with other prefixes, or the source's
 * own. */
#include "model/family/family_words.h"

bool words_split(struct words *words, const char *text)
{
    *words = (struct words){0};
    if (strlen(text) >= sizeof words->text)
        return false;
    strcpy(words->text, text);
    char *rest = words->text;
    for (char *word; (word = strsep(&rest, " \t"));) {
        if (!*word)
            continue;
        if (words->n == MAX_WORDS)
            return false;
        words->word[words->n++] = word;
    }
    return true;
}

/* Copies a tensor name, with the layer's number in place of the first % and in place of the second the expert's, or q,
 * k or v in convolutions' names. */
static void family_fill_pattern(const char *pattern, const struct weight_kind *kind, size_t layer,
                                size_t expert, char *name, size_t size)
{
    const char *mark = strchr(pattern, '%'), *next = mark ? strchr(mark + 1, '%') : NULL;
    char second[24];
    if (kind && kind->out == DIM_CONV_WEIGHT)
        snprintf(second, sizeof second, "%c", "qkv"[expert]);
    else
        snprintf(second, sizeof second, "%zu", expert);
    if (next)
        snprintf(name, size, "%.*s%zu%.*s%s%s", (int)(mark - pattern), pattern, layer,
                 (int)(next - mark - 1), mark + 1, second, next + 1);
    else if (mark)
        snprintf(name, size, "%.*s%zu%s", (int)(mark - pattern), pattern, layer, mark + 1);
    else
        snprintf(name, size, "%s", pattern);
}

bool family_names_experts(const char *pattern, const struct weight_kind *kind)
{
    const char *mark = strchr(pattern, '%');
    return mark && (weight_kind_of_streams(kind) || strchr(mark + 1, '%'));
}

const char *family_value(const struct family *family, const char *key)
{
    const char *value = NULL;
    for (size_t i = 0; i < family->n_lines; i++)
        if (strcmp(family->line[i].entry->key, key) == 0)
            value = family->line[i].entry->value;
    return value;
}

int family_bad_line(const struct family_line *line, struct err *err)
{
    return err_set(err, "%s: line %d: invalid syntax: \"%s %s\"; see bmc-family(5)", line->file,
                   line->entry->line, line->entry->key, line->entry->value);
}

/* ---- names of tensors ---- */

static int add_name(struct family *family, const struct weight_kind *kind, const char *line,
                    struct err *err)
{
    struct words w;
    struct tensor_line tensor = {.kind = kind};
    if (!words_split(&w, line) || w.n < 1 || strlen(w.word[0]) >= TENSOR_NAME_SIZE ||
        !tensor_transform_parse(&tensor.transform, kind, w.word + 1, w.n - 1))
        return err_set(err, "%s: \"%s\" is not a usable tensor line for %s", family->conf.name, line,
                       kind->name);
    strcpy(tensor.pattern, w.word[0]);
    tensor.transform.per_expert = family_names_experts(tensor.pattern, kind);
    if (mem_grow(&family->tensor, &family->cap_tensors, family->n_tensors, sizeof tensor, err) < 0)
        return -1;
    family->tensor[family->n_tensors++] = tensor;
    return 0;
}

int family_take_names(struct family *family, const struct weight_source *source, struct err *err)
{
    char line[TENSOR_NAME_SIZE];
    if (!source->format->tensor_line)
        return 0;
    family->n_tensors = 0;
    for (size_t i = 0; i < n_weight_kinds; i++)
        for (size_t nth = 0;
             source->format->tensor_line(source, weight_kinds[i].name, nth, line, sizeof line); nth++)
            if (add_name(family, &weight_kinds[i], line, err) < 0)
                return -1;
    return 0;
}

/* Replaces the first of the `prefixes` at the beginning of a tensor's name, if it begins so, by the
 * nth of the others; the one after the last is "". False: there is none, or the name is too long. */
static bool replace_prefix(char name[TENSOR_NAME_SIZE], const struct words *prefixes, size_t nth)
{
    const size_t len = prefixes->n ? strlen(prefixes->word[0]) : 0;
    if (!len || nth >= prefixes->n || strncmp(name, prefixes->word[0], len) != 0)
        return false;
    const char *other = nth + 1 < prefixes->n ? prefixes->word[nth + 1] : "";
    const size_t other_len = strlen(other), rest = strlen(name + len) + 1;
    if (other_len + rest > TENSOR_NAME_SIZE)
        return false;
    memmove(name + other_len, name + len, rest);
    memcpy(name, other, other_len);
    return true;
}

/* Sets `other` to the nth of the names that a tensor may have by the line `optional_prefix`, the first being
 * `name`; false: there are no more. */
static bool family_other_name(const struct family *family, const char *name, size_t nth,
                              char other[TENSOR_NAME_SIZE])
{
    const char *prefix = family ? family_value(family, "optional_prefix") : NULL;
    struct words prefixes;
    snprintf(other, TENSOR_NAME_SIZE, "%s", name);
    return nth == 0 ||
           (prefix && words_split(&prefixes, prefix) && replace_prefix(other, &prefixes, nth - 1));
}

const struct tensor_transform *family_tensor(const struct family *family,
                                             const struct weight_kind *kind, struct tensor_place place,
                                             size_t nth, char name[TENSOR_NAME_SIZE])
{
    char first[TENSOR_NAME_SIZE];
    for (size_t i = 0; i < family->n_tensors; i++) {
        const struct tensor_line *tensor = &family->tensor[i];
        if (tensor->kind != kind)
            continue;
        const size_t layer =
            weight_kind_of_streams(kind) ? place.expert : family->first_layer + place.layer;
        family_fill_pattern(tensor->pattern, kind, layer, place.expert, first, TENSOR_NAME_SIZE);
        for (size_t other = 0; family_other_name(family, first, other, name); other++)
            if (nth-- == 0)
                return &tensor->transform;
    }
    return NULL;
}

const struct source_tensor *family_find_tensor(const struct family *family,
                                               const struct weight_source *source, const char *pattern,
                                               size_t layer)
{
    char name[TENSOR_NAME_SIZE], other[TENSOR_NAME_SIZE];
    const struct source_tensor *found = NULL;
    family_fill_pattern(pattern, NULL, layer, 0, name, sizeof name);
    for (size_t nth = 0; source && source->format && !found; nth++) {
        if (!family_other_name(family, name, nth, other))
            break;
        found = source_find(source, other);
    }
    return found;
}

bool family_source_has(const struct family *family, const struct weight_source *source,
                       const char *names, size_t layer)
{
    char pattern[TENSOR_NAME_SIZE];
    bool all = true;
    while (all && *names) {
        const size_t len = strcspn(names, ",");
        snprintf(pattern, sizeof pattern, "%.*s", (int)len, names);
        all = len < sizeof pattern && family_find_tensor(family, source, pattern, layer);
        names += len + (names[len] == ',');
    }
    return all;
}
