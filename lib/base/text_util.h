/* String helpers: comparison, excerpts of untrusted text for messages, edit distance for "did you
 * mean", lists of names separated by '|'. */
#pragma once

#include "base/err.h"

/* The beginning of a text, for messages: cut between characters, with control characters replaced
 * by '?', and ".." appended if truncated. */
struct excerpt {
    char text[64];
};

/* Compares two texts byte by byte; the result has the sign of strcmp()'s. */
int text_order(const char *a, size_t a_len, const char *b, size_t b_len);

/* True if `text` ends in `end`, with text_ends_like() in any case, and is longer. */
bool text_ends(const char *text, const char *end);
bool text_ends_like(const char *text, const char *end);

/* Bytes of a text without the blanks, tabs and ends of lines at its end. */
size_t text_trimmed(const char *text, size_t len);

/* True if `word` (of `len` bytes) is in `list`, words separated by single blanks or commas. */
bool text_lists(const char *list, const char *word, size_t len);

/* The index of `name` in `choices`, names separated by '|'; SIZE_MAX: it is none of them. */
size_t text_choice(const char *choices, const char *name);

/* Joins choices with `between`, but puts `before_last` before the last. */
void text_join_choices(const char *choices, const char *between, const char *before_last, char *text,
                       size_t size);

/* Fails with the sentence that there is no `kind` "name", but which ones there are. */
int text_no_choice(const char *kind, const char *name, const char *choices, struct err *err) MUST_USE;

struct excerpt excerpt_of(const char *text, size_t len);

/* Edit distance of two words: bytes inserted, removed, replaced or swapped with a neighbour
 * (optimal string alignment). Only their first 32 bytes count. */
size_t edit_distance(const char *a, const char *b);
