/* A fuzz target of constraints: compiles the input as a text of one kind. What compiles is walked through:
 * every token of a mask can be followed, and no other. */
#ifndef BMC_FUZZ_CONSTRAIN_H
#define BMC_FUZZ_CONSTRAIN_H

#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "text/constrain/constraint.h"

enum { BYTES = 256, VOCAB = BYTES + 8, STEPS = 24 };

static inline struct vocab_trie *constrain_vocab(void)
{
    static const char *const more[VOCAB - BYTES] = {"\": ",       "\",\"", "}}",   "ab",
                                                    "\xc3\xa9\"", "12",    "\n  ", "true"};
    struct vocab_trie *trie;
    struct buf text = {0};
    struct err err;
    uint32_t *at = mem_zalloc(VOCAB + 1, sizeof *at);
    for (uint32_t id = 0; id < VOCAB; id++) {
        const char byte = (char)id;
        at[id] = (uint32_t)text.len;
        if ((id < BYTES ? buf_add(&text, &byte, 1, &err)
                        : buf_addf(&text, &err, "%s", more[id - BYTES])) < 0)
            abort();
    }
    at[VOCAB] = (uint32_t)text.len;
    if (vocab_trie_build(&trie, text.data, at, VOCAB, &err) < 0)
        abort();
    return trie;
}

static inline void constrain_walk(struct constraint *c, uint64_t random)
{
    uint64_t mask[(VOCAB + 63) / 64];
    struct constraint_cursor cursor = {0};
    struct err err;
    if (constraint_begin(&cursor, c, &err) < 0)
        return;
    for (size_t step = 0; step < STEPS && constraint_mask(c, cursor.state, mask, &err) == 0; step++) {
        uint32_t allowed[VOCAB], n = 0;
        for (uint32_t id = 0; id < VOCAB; id++) {
            const bool in = mask[id / 64] >> id % 64 & 1;
            const uint32_t next = constraint_next(c, cursor.state, id);
            if (in)
                allowed[n++] = id;
            if (in != (next != CONSTRAINT_DEAD)) {
                if (constraint_advance(&cursor, id, &err) == 0 || in) /* unless it became too large */
                    abort();
                goto out;
            }
        }
        if (n == 0)
            break;
        random = random * 6364136223846793005u + 1442695040888963407u;
        if (constraint_advance(&cursor, allowed[(random >> 33) % n], &err) < 0)
            break;
    }
out:
    constraint_end(&cursor);
}

static inline void constrain_try(enum constraint_kind kind, const uint8_t *data, size_t size)
{
    static struct vocab_trie *trie;
    struct grammar grammar;
    struct constraint *c;
    struct err err;
    if (!trie)
        trie = constrain_vocab();
    if (constraint_source_parse(&grammar, kind, (const char *)data, size, &err) == 0 &&
        constraint_open(&c, &grammar, trie, &err) == 0) {
        constrain_walk(c, size);
        constrain_walk(c, size ? data[size - 1] : 1);
        constraint_close(c);
    }
    grammar_release(&grammar);
}

#endif
