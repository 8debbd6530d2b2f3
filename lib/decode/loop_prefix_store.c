/* The generation loop's use of the prefix cache on disk. */
#include "base/clock.h"
#include "decode/loop.h"

/* How long a request waits for a process that computes its prefix, and how often it looks, in ms. */
enum { AWAIT_MS = 60000, LOOK_EVERY_MS = 5 };

static struct prefix_store *store_of(const struct loop *loop)
{
    return session_options(loop->session)->prefix_store;
}

/* Ends a request's waiting for another process. */
static bool stop_waiting(struct loop *loop)
{
    if (loop->awaits_since_ms > 0)
        loop->stats->store_wait_ms += clock_ms() - loop->awaits_since_ms;
    loop->awaits_since_ms = 0;
    return false;
}

void prefix_store_start(struct loop *loop, struct slot *slot)
{
    const struct prefix_store *store = store_of(loop);
    slot->looked_up = false;
    if (store)
        slot->chain =
            prefix_store_begin(store, session_model(loop->session), slot->request->lora_factor);
}

bool prefix_store_await(struct loop *loop, struct slot *slot, const struct gen_request *request)
{
    struct prefix_store *store = store_of(loop);
    const double now = clock_ms();
    struct prefix_chain chain;
    struct hash key;
    if (!store || request->from || request->prompt_logprobs)
        return false;
    if (loop->awaits_since_ms > 0 && now - loop->awaited_at_ms < LOOK_EVERY_MS)
        return true;
    loop->awaited_at_ms = now;
    prefix_store_unclaim(loop, slot);
    chain = prefix_store_begin(store, session_model(loop->session), request->lora_factor);
    if (!prefix_store_missing(store, chain, 0, request->ids->id, request->ids->len, &key))
        return stop_waiting(loop);
    slot->claims = prefix_store_claim(store, &key);
    slot->claim = key;
    if (slot->claims) {
        /* it may have been stored just before the claim */
        if (!prefix_store_missing(store, chain, 0, request->ids->id, request->ids->len, &key) ||
            !hash_equal(&key, &slot->claim))
            prefix_store_unclaim(loop, slot);
        return stop_waiting(loop);
    }
    if (loop->awaits_since_ms > 0 && hash_equal(&key, &loop->awaited))
        return now - loop->awaits_since_ms < AWAIT_MS || stop_waiting(loop);
    stop_waiting(loop);
    loop->awaits_since_ms = now;
    loop->awaited = key;
    return true;
}

int prefix_store_use(struct loop *loop, struct slot *slot, struct err *err)
{
    struct prefix_store *store = store_of(loop);
    size_t dropped;
    if (!store || slot->looked_up || slot->prompt_logprobs ||
        session_has_foreign(loop->session, slot->seq) || session_scaled(loop->session, slot->seq))
        return 0;
    const size_t before = session_length(loop->session, slot->seq);
    slot->looked_up = true;
    if (prefix_store_load(store, loop->session, slot->seq, slot->ids->id, slot->n_prompt,
                          prefix_cache_limit(loop, slot), &slot->chain, &dropped, err) < 0)
        return -1;
    prefix_cache_mark(loop, slot);
    const size_t tokens = slot->n_prompt - before,
                 found = session_length(loop->session, slot->seq) - before;
    prefix_store_count(store, tokens, found);
    loop->stats->store_lookup_tokens += tokens;
    loop->stats->store_hit_tokens += found;
    loop->stats->store_dropped_blocks += dropped;
    return 0;
}

void prefix_store_add(struct loop *loop, struct slot *slot, bool ended)
{
    struct prefix_store *store = store_of(loop);
    /* after a beam search only the prompt is surely at its place */
    const size_t n = loop->strategy->width > 1 ? slot->n_prompt : slot->ids->len;
    if (store && !slot->n_discarded && slot->converted_at == SIZE_MAX &&
        !session_scaled(loop->session, slot->seq) &&
        (loop->strategy->width == 1 || slot->seq == loop_first_seq(loop, slot)))
        loop->stats->stored_tokens +=
            prefix_store_save(store, loop->session, slot->seq, slot->ids->id, n, ended, &slot->chain);
}

void prefix_store_step(struct loop *loop)
{
    const size_t every = session_options(loop->session)->stored_every;
    for (size_t i = 0; every && i < loop->n_slots; i++) {
        struct slot *slot = &loop->slot[i];
        if (slot->busy && loop->strategy->width == 1 &&
            session_length(loop->session, slot->seq) / every > slot->chain.state / every)
            prefix_store_add(loop, slot, false);
    }
}

void prefix_store_advance(struct loop *loop, struct slot *slot)
{
    struct prefix_store *store = store_of(loop);
    const struct hash old = slot->claim;
    const size_t next = session_length(loop->session, slot->seq) / KVBLOCK_TOKENS;
    const bool claims = slot->claims;
    struct hash key;
    const bool more =
        claims && prefix_store_missing(store, slot->chain, next, slot->ids->id, slot->n_prompt, &key);
    if (more) {
        slot->claim = key;
        slot->claims = prefix_store_claim(store, &key);
    }
    prefix_store_add(loop, slot, false);
    if (more && !hash_equal(&old, &slot->claim))
        prefix_store_release(store, &old);
    if (!more)
        prefix_store_unclaim(loop, slot);
}

void prefix_store_unclaim(struct loop *loop, struct slot *slot)
{
    if (slot->claims)
        prefix_store_release(store_of(loop), &slot->claim);
    slot->claims = false;
}
