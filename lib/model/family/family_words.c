/* Splitting lines of family files into words. */
#include "model/family/family_words.h"

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

bool family_source_has(const struct weight_source *source, const char *names)
{
    char name[TENSOR_NAME_SIZE];
    bool all = source && source->format;
    while (all && *names) {
        const size_t len = strcspn(names, ",");
        all = len < sizeof name;
        if (all) {
            memcpy(name, names, len);
            name[len] = 0;
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
