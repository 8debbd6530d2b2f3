/* Splitting lines of family files into words. */
#include "model/family/family_words.h"

#include <stdio.h>
#include <string.h>

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

void family_fill_pattern(const char *pattern, size_t layer, size_t expert, char *name, size_t size)
{
    const char *mark = strchr(pattern, '%'), *next = mark ? strchr(mark + 1, '%') : NULL;
    if (next)
        snprintf(name, size, "%.*s%zu%.*s%zu%s", (int)(mark - pattern), pattern, layer,
                 (int)(next - mark - 1), mark + 1, expert, next + 1);
    else if (mark)
        snprintf(name, size, "%.*s%zu%s", (int)(mark - pattern), pattern, layer, mark + 1);
    else
        snprintf(name, size, "%s", pattern);
}

bool family_names_experts(const char *pattern)
{
    const char *mark = strchr(pattern, '%');
    return mark && strchr(mark + 1, '%');
}

bool family_source_has(const struct weight_source *source, const char *names, size_t layer)
{
    char pattern[TENSOR_NAME_SIZE], name[TENSOR_NAME_SIZE];
    bool all = source && source->format;
    while (all && *names) {
        const size_t len = strcspn(names, ",");
        all = len < sizeof pattern;
        if (all) {
            memcpy(pattern, names, len);
            pattern[len] = 0;
            family_fill_pattern(pattern, layer, 0, name, sizeof name);
            all = source->format->find(source, name) != NULL;
        }
        names += len + (names[len] == ',');
    }
    return all;
}

int family_bad_line(const struct family_line *line, struct err *err)
{
    return err_set(err, "%s: line %d: invalid syntax: \"%s %s\"; see bmc-family(5)", line->file,
                   line->entry->line, line->entry->key, line->entry->value);
}
