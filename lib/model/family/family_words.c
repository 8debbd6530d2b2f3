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
