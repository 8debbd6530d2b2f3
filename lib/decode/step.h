/* Decoding strategies: how tokens are generated after the prompt (plain, speculative, beam search,
 * pipelined).
 *
 * A strategy is a file (step_NAME.c; spec.c for speculation) with a struct step_strategy that is
 * passed to generate(). Its functions work on struct loop (loop.h). To add one, write that file and
 * give a program an option that opens it. */
#pragma once

#include "base/err.h"

struct loop;
struct session;
struct slot;

struct step_strategy {
    const char *name;
    /* Consecutive cache sequences per slot. The first, slot->seq, gets the prompt; the strategy may
     * use the others, and may set slot->seq to another one that begins with the prompt. All are
     * cleared when the request ends. */
    size_t width;
    bool revises; /* tokens are not sampled one after the other by loop_sample_token() */
    /* Called before prefill: returns why the strategy cannot serve the slot's request, or NULL if it
     * can. NULL: it can serve every request. Also called for requests of 0 tokens. */
    const char *(*conflict)(const void *arg, const struct loop *loop, const struct slot *slot);
    /* Called after prefill, with the finite logits after the prompt. NULL: the loop samples. */
    int (*first)(void *arg, struct loop *loop, struct slot *slot, const float *logits, struct err *err);
    /* Called after a pass over prompts, for each slot with tokens in it: slot->chunk_row, chunk_from,
     * chunk_len. NULL: not needed. */
    int (*prefilled)(void *arg, struct loop *loop, struct slot *slot, struct err *err);
    /* Tokens at the end of a prompt that prefilled() must see: their KV entries are computed even if
     * another request or a snapshot has them. The last token always is. */
    size_t computed;
    /* Advances all busy slots by one step; their prompts are in the cache and first() has been
     * called. Appends tokens by loop_append(), at once or in a later step; the newest token has
     * no KV entry yet. A slot whose request ended is not busy any more. Updates loop->stats. */
    int (*step)(void *arg, struct loop *loop, struct err *err);
    /* Called when a request ends, before its KV entries are kept or dropped: commits those of its tokens that step() has not
     * committed yet. NULL: step() commits before it appends. */
    void (*commit)(void *arg, struct loop *loop, struct slot *slot);
    /* Called when the run ends early: appends tokens that step() has not appended yet, so that
     * every KV entry has its token. May be called before first(). NULL: step() appends at once. */
    int (*drain)(void *arg, struct loop *loop, struct slot *slot, struct err *err);
    /* The draft model's session, whose sequence i belongs to slot i: requests are admitted only if
     * they fit its cache, too. NULL: there is none. */
    struct session *draft_session;
    void *arg;
};

/* One token per sequence and step. */
extern const struct step_strategy step_plain;
