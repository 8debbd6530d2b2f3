/* Lines of family files: their words, and the names of tensors in them. */
#pragma once

#include "model/family/family.h"

enum { WORD_SIZE = 256, MAX_WORDS = 10 };

/* The value of a line, split at blanks. */
struct words {
    char text[1024];
    char *word[MAX_WORDS];
    size_t n;
};

/* Splits a text at blanks; false if it has too many characters or words. */
bool words_split(struct words *words, const char *text);

/* True if a tensor name has a place for the number of an expert: it is that of one expert's tensor. */
bool family_names_experts(const char *pattern, const struct weight_kind *kind);

/* The value of the line in effect with a keyword that occurs once; NULL: there is none. */
const char *family_value(const struct family *family, const char *key);

/* The source's tensor of that name or another that it may have; % is `layer`. NULL: there is none. */
const struct source_tensor *family_find_tensor(const struct family *family,
                                               const struct weight_source *source, const char *pattern,
                                               size_t layer);

/* True if the source has all tensors of a comma-separated list; % is `layer`. */
bool family_source_has(const struct family *family, const struct weight_source *source,
                       const char *names, size_t layer);

/* Finds the value at the first of the paths "a.b,c" that config.json has, as text. */
bool family_look_up(const json_t *json, const char *paths, char *text, size_t size);

/* Sets the error for a line with invalid syntax; returns -1. */
int family_bad_line(const struct family_line *line, struct err *err);
