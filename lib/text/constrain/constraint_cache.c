/* A cache of compiled constraints: those in use, and the last ones that were. */
#include "text/constrain/constraint_cache.h"

#include <stdlib.h>

#include "base/hash.h"

struct constraint_cache {
    const struct tokenizer *tok;
    size_t vocab;
    struct vocab_trie *trie; /* NULL: not built yet */
    struct cached_constraint {
        struct hash key;
        struct constraint *constraint;
        size_t users, used_at;
    } * entry;
    size_t n, cap, clock;
    void (*note)(void *arg, const char *sentence); /* NULL: nobody asks, or the note was made */
    void *note_arg;
};

int constraint_cache_open(struct constraint_cache **out, const struct tokenizer *tok, size_t vocab,
                          struct err *err)
{
    struct constraint_cache *cache = *out = mem_zalloc(1, sizeof *cache);
    if (!cache)
        return err_no_memory(err, "constraints");
    cache->tok = tok;
    cache->vocab = vocab;
    return 0;
}

void constraint_cache_close(struct constraint_cache *cache)
{
    if (!cache)
        return;
    for (size_t i = 0; i < cache->n; i++)
        constraint_close(cache->entry[i].constraint);
    free(cache->entry);
    vocab_trie_close(cache->trie);
    free(cache);
}

void constraint_cache_on_note(struct constraint_cache *cache,
                              void note(void *arg, const char *sentence), void *arg)
{
    cache->note = note;
    cache->note_arg = arg;
}

static struct hash key_of(enum constraint_kind kind, const char *text, size_t len)
{
    const uint32_t number = kind;
    struct hasher hasher;
    hasher_init(&hasher);
    hasher_add(&hasher, &number, sizeof number);
    hasher_add(&hasher, text, len);
    return hasher_result(&hasher);
}

static void drop(struct constraint_cache *cache, size_t i)
{
    constraint_close(cache->entry[i].constraint);
    cache->entry[i] = cache->entry[--cache->n];
}

/* Closes the constraint that was not used for longest, if there are too many without users. */
static void evict(struct constraint_cache *cache)
{
    size_t oldest = SIZE_MAX, idle = 0;
    for (size_t i = 0; i < cache->n; i++)
        if (!cache->entry[i].users) {
            idle++;
            if (oldest == SIZE_MAX || cache->entry[i].used_at < cache->entry[oldest].used_at)
                oldest = i;
        }
    if (idle > CONSTRAINTS_IDLE)
        drop(cache, oldest);
}

static int compile(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                   size_t len, struct constraint **constraint, struct err *err)
{
    struct grammar grammar;
    if (!cache->trie && vocab_trie_open(&cache->trie, cache->tok, cache->vocab, err) < 0)
        return -1;
    int rc = constraint_source_parse(&grammar, kind, text, len, err);
    if (rc == 0)
        rc = constraint_open(constraint, &grammar, cache->trie, err);
    if (rc == 0 && grammar.note.text[0] && cache->note) {
        cache->note(cache->note_arg, grammar.note.text);
        cache->note = NULL;
    }
    grammar_release(&grammar);
    return rc;
}

int constraint_cache_get(struct constraint_cache *cache, enum constraint_kind kind, const char *text,
                         size_t len, struct constraint **constraint, struct err *err)
{
    const struct hash key = key_of(kind, text, len);
    struct cached_constraint *entry = cache->entry;
    while (entry < cache->entry + cache->n &&
           (!hash_equal(&entry->key, &key) || constraint_failed(entry->constraint)))
        entry++;
    if (entry == cache->entry + cache->n) {
        struct constraint *made;
        if (mem_grow(&cache->entry, &cache->cap, cache->n, sizeof *cache->entry, err) < 0 ||
            compile(cache, kind, text, len, &made, err) < 0)
            return -1;
        entry = &cache->entry[cache->n++];
        *entry = (struct cached_constraint){.key = key, .constraint = made};
    }
    entry->users++;
    *constraint = entry->constraint;
    return 0;
}

void constraint_cache_put(struct constraint_cache *cache, struct constraint *constraint)
{
    for (size_t i = 0; i < cache->n; i++)
        if (cache->entry[i].constraint == constraint) {
            cache->entry[i].used_at = ++cache->clock;
            if (--cache->entry[i].users == 0 && constraint_failed(constraint))
                drop(cache, i);
            break;
        }
    evict(cache);
}
