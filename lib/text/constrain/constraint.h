/* Constrained output: a grammar over the tokens of a vocabulary. Tells which tokens may come next.
 *
 * Tokens are allowed by their bytes, whatever the grammar's rules: a token may go through several of
 * them. Special tokens and tokens without text are never allowed, unless the grammar names them; callers add
 * end-of-generation tokens where the text may end.
 *
 * Files, lowest layer first:
 *
 *    grammar/expr                    grammars as expressions
 *    grammar/json_text regex         JSON and regular expressions as such
 *    grammar/gbnf json_schema schema schema_string structure   front ends
 *    nfa                             nondeterministic automata of grammars
 *    array_pool automaton            made deterministic while running
 *    vocab_trie                      the vocabulary
 *    constraint                      this interface: all front ends, masks of tokens, compiled constraints */
#pragma once

#include "base/json.h"
#include "text/constrain/vocab_trie.h"
#include "text/grammar/expr.h"

struct constraint;

/* Compiles a grammar. The trie is borrowed. */
int constraint_open(struct constraint **constraint, const struct grammar *grammar,
                    const struct vocab_trie *trie, struct err *err) MUST_USE;
void constraint_close(struct constraint *constraint); /* NULL is accepted */

/* A place in a constrained text. Zeros: no constraint. States of cursors are kept; those that
 * constraint_next() returns are valid until the next constraint_advance() of any cursor of the
 * constraint. */
struct constraint_cursor {
    struct constraint *constraint; /* NULL: no constraint */
    uint32_t state;
    size_t index; /* among the constraint's cursors */
};

#define CONSTRAINT_DEAD 0u /* the state that no text leads to */

/* Moves the cursor to the start of a text; `constraint` may be NULL. Ends its previous use. */
int constraint_begin(struct constraint_cursor *cursor, struct constraint *constraint,
                     struct err *err) MUST_USE;
void constraint_end(struct constraint_cursor *cursor);

/* Moves the cursor to a state that constraint_next() returned, or to another cursor's. */
void constraint_set(struct constraint_cursor *cursor, uint32_t state);

/* Moves the cursor over a token. Fails if it is not allowed, or if the constraint's automaton becomes
 * too large. */
int constraint_advance(struct constraint_cursor *cursor, uint32_t token, struct err *err) MUST_USE;

/* True if the automaton has become too large, or an allocation failed: the constraint can only be closed. */
bool constraint_failed(const struct constraint *constraint);

/* The state after a token; CONSTRAINT_DEAD: the token is not allowed. */
uint32_t constraint_next(struct constraint *constraint, uint32_t state, uint32_t token);

/* The state after bytes with which the text begins; CONSTRAINT_DEAD: it may not begin with them. */
uint32_t constraint_after(struct constraint *constraint, const char *bytes, size_t len);

/* The bytes of a marker that a text ends with, after one more byte; `matched` before it, fewer than the marker has. */
size_t marker_match(const char *marker, size_t matched, char byte);

/* A token that goes over the end of a marker into text with which the constrained text may not begin, where `matched`
 * bytes of the marker precede it. */
struct crossing {
    uint32_t id;
    uint16_t matched;
};

/* The tokens that cross the end of a marker, behind which the constrained text begins. The first call for a marker looks
 * through the vocabulary; the list is kept as long as the constraint. */
int constraint_crossings(struct constraint *constraint, const char *marker, const struct tokenizer *tok,
                         const struct crossing **crossing, size_t *n, struct err *err) MUST_USE;

/* True if the text may end in the state; if it must, because nothing can follow. */
bool constraint_accepts(const struct constraint *constraint, uint32_t state);
bool constraint_is_complete(struct constraint *constraint, uint32_t state);

/* Words of a mask: bit i % 64 of word i / 64 is set if token i is allowed. */
size_t constraint_mask_words(const struct constraint *constraint);

/* Sets mask[words] to the tokens allowed in a state, possibly none. */
int constraint_mask(struct constraint *constraint, uint32_t state, uint64_t *mask,
                    struct err *err) MUST_USE;

struct constraint_stats {
    size_t masks;       /* computed */
    size_t local_masks; /* of them, parts that were not in the cache */
    size_t states;      /* of the automaton */
    size_t bytes;       /* memory of automaton and masks */
};

struct constraint_stats constraint_stats(const struct constraint *constraint);

enum constraint_kind {
    CONSTRAINT_NONE,
    CONSTRAINT_JSON_SCHEMA, /* text: the schema */
    CONSTRAINT_JSON_OBJECT, /* any JSON object; no text */
    CONSTRAINT_GRAMMAR,     /* text: GBNF */
    CONSTRAINT_REGEX,       /* text: a regular expression that whole outputs match */
    CONSTRAINT_CHOICE,      /* text: a list of strings as JSON */
    CONSTRAINT_STRUCTURE,   /* text: texts, tokens and JSON Schemas, as structure.h has them */
};

/* Reads a constraint into a grammar, which the caller releases in either case. */
int constraint_source_parse(struct grammar *grammar, enum constraint_kind kind, const char *text,
                            size_t len, struct err *err) MUST_USE;

/* The alternatives of "A|B|C", where \| and \\ stand for themselves, as a list of strings in JSON. */
int constraint_split_choice(const char *text, struct buf *json, struct err *err) MUST_USE;

struct constraint_cache;

/* `vocab` is the number of logits. The tokenizer is borrowed; its trie is built with the first
 * constraint. */
int constraint_cache_open(struct constraint_cache **cache, const struct tokenizer *tok, size_t vocab,
                          struct err *err) MUST_USE;
void constraint_cache_close(struct constraint_cache *cache); /* NULL is accepted */

/* Calls `note` with the first sentence about what a constraint asks for and is not done. */
void constraint_cache_on_note(struct constraint_cache *cache,
                              void note(void *arg, const char *sentence), void *arg);

/* Compiles a constraint, unless it is in the cache. Each one got is returned by
 * constraint_cache_put(). */
int constraint_cache_get(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                         size_t len, struct constraint **constraint, struct err *err) MUST_USE;
void constraint_cache_put(struct constraint_cache *cache, struct constraint *constraint);

/* What a constraint of the cache was compiled from: its text is valid as long as the constraint is. */
struct constraint_source {
    enum constraint_kind kind;
    const char *text;
    size_t len;
};
struct constraint_source constraint_cache_source(const struct constraint_cache *cache,
                                                 const struct constraint *constraint);
