/* Prefix caching: KV entries of a common prefix are computed once, and stored once under policies
 * that can share memory between sequences. */
#include "decode/loop.h"

/* Shortest common prefix to reuse, in tokens, unless it is a whole prompt except its last token. */
enum { MIN_PREFIX = TILE_ROWS };

size_t loop_first_seq(const struct loop *loop, const struct slot *slot)
{
    return (size_t)(slot - loop->slot) * loop->strategy->width;
}

static size_t memory_budget(const struct loop *loop)
{
    return session_options(loop->session)->memory_bytes;
}

/* True if slots may reuse each other's prefixes. False for beams that share memory under a memory
 * limit: admission control relies on that sharing, and a fork from another slot may reduce it. */
static bool may_share(const struct loop *loop)
{
    return !memory_budget(loop) || loop->strategy->width == 1 ||
           !kv_shares_prefix(session_kv(loop->session));
}

/* True if the memory limit allows the copy that may be made to fork the first `common` of the
 * `rows` KV entries of a sequence. */
static bool may_fork(const struct loop *loop, size_t rows, size_t common)
{
    const struct kv *kv = session_kv(loop->session);
    return !memory_budget(loop) ||
           kv_stats(kv).resident_bytes + kv_footprint_of_fork(kv, rows, common) <= memory_budget(loop);
}

/* A cache sequence to fork a prefix from, now or once its prompt is computed. It has `rows` KV
 * entries that can be forked. */
struct entry_origin {
    size_t seq, rows;
    size_t common; /* length of the common prefix; beyond `rows` it is still being computed */
};

static size_t common_ids(const struct ids *a, const struct ids *b, size_t max)
{
    size_t n = 0;
    max = size_min(max, size_min(a->len, b->len));
    while (n < max && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Number of KV entries of a slot's sequence that can be forked: 0 after the cache evicted any. */
static size_t forkable_rows(const struct loop *loop, const struct slot *slot, size_t seq)
{
    const bool whole = kv_is_untrimmed(session_kv(loop->session), seq) && !slot->n_discarded &&
                       !(slot->busy && slot->converted_at < SIZE_MAX);
    return whole ? session_length(loop->session, seq) : 0;
}

/* True if `slot` can wait to fork the prompt of `other`: it is still being computed, and the cache
 * will keep all of its KV entries. A slot waits only for slots of lower index: there are no cycles,
 * and the first slot with an incomplete prompt never waits. */
static bool is_coming(const struct loop *loop, const struct slot *slot, const struct slot *other)
{
    return other < slot && other->busy && loop_processed(loop, other) < other->n_prompt &&
           other->convert_at == SIZE_MAX && other->converted_at == SIZE_MAX &&
           other->n_prompt <= kv_untrimmed_limit(session_kv(loop->session));
}

size_t prefix_cache_limit(const struct loop *loop, const struct slot *slot)
{
    return size_min(slot->n_prompt - size_min(slot->n_prompt, size_max(1, loop->strategy->computed)),
                    slot->convert_at);
}

/* The prefix that the slot's prompt shares with `other`, as far as it may be reused: in models with
 * recurrent state, up to a position whose state is kept; a prompt that is still being computed can keep one. */
static struct entry_origin origin_of(const struct loop *loop, const struct slot *slot,
                                     const struct slot *other)
{
    const size_t seq = other->busy ? other->seq : loop_first_seq(loop, other);
    const struct ids *ids = other->busy ? other->ids : &other->cached;
    const size_t rows = forkable_rows(loop, other, seq);
    const size_t come = is_coming(loop, slot, other) ? other->n_prompt : rows;
    const size_t common = common_ids(slot->ids, ids, size_min(come, prefix_cache_limit(loop, slot)));
    if (common <= rows)
        return (struct entry_origin){seq, rows, session_rewind(loop->session, seq, common)};
    session_mark(loop->session, seq, common);
    return (struct entry_origin){seq, rows, common};
}

static bool is_long_enough(const struct loop *loop, const struct slot *slot, size_t rows)
{
    return rows && (rows >= MIN_PREFIX || rows == prefix_cache_limit(loop, slot));
}

/* Finds the cache sequence that shares the longest prefix with the slot's prompt, even one whose
 * prefill is still in progress; .common is 0 if none is long enough. */
static struct entry_origin find_origin(const struct loop *loop, const struct slot *slot)
{
    struct entry_origin best = {0};
    for (const struct slot *other = loop->slot; other < loop->slot + loop->n_slots; other++) {
        if (other == slot)
            continue;
        const struct entry_origin origin = origin_of(loop, slot, other);
        const bool better =
            origin.common > best.common || (origin.common == best.common && origin.rows > best.rows);
        if (better && is_long_enough(loop, slot, origin.common) &&
            session_same_entries(loop->session, slot->seq, origin.seq))
            best = origin;
    }
    return best;
}

static void count_shared(struct loop *loop, size_t rows, size_t once)
{
    loop->stats->shared_rows += rows;
    loop->stats->saved_bytes += kv_rows_bytes(session_kv(loop->session), once);
}

int prefix_cache_use(struct loop *loop, struct slot *slot, bool *ready, struct err *err)
{
    const struct kv *kv = session_kv(loop->session);
    *ready = true;
    if (session_length(loop->session, slot->seq) || slot->prompt_logprobs || !may_share(loop))
        return 0;
    const struct entry_origin origin = find_origin(loop, slot);
    *ready = origin.rows >= origin.common;
    if (!*ready || !origin.common || !may_fork(loop, origin.rows, origin.common))
        return 0;
    if (session_fork(loop->session, slot->seq, origin.seq, origin.common, err) < 0)
        return -1;
    count_shared(loop, origin.common, kv_shared_rows(kv, slot->seq, origin.seq));
    return 0;
}

/* Bytes of the KV entries and recurrent states of a slot's first sequence, which has `rows` entries. */
static size_t bytes_of(const struct loop *loop, const struct slot *slot, size_t rows)
{
    const struct kv *kv = session_kv(loop->session);
    return size_plus(kv_rows_bytes(kv, rows), kv_state_held_bytes(kv, loop_first_seq(loop, slot)));
}

/* Bytes that free slots retain; memory that slots share counts once for each. */
static size_t retained_bytes(const struct loop *loop)
{
    size_t bytes = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        if (loop->slot[i].cached.len)
            bytes += bytes_of(loop, &loop->slot[i], loop->slot[i].cached.len);
    return bytes;
}

static struct slot *oldest_retained(const struct loop *loop)
{
    struct slot *found = NULL;
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if (slot->cached.len && (!found || slot->retained_at < found->retained_at))
            found = slot;
    return found;
}

/* Evicts the KV entries that were retained first until `bytes` more fit in prefix_cache_bytes. */
static void evict_for(struct loop *loop, size_t bytes)
{
    while (size_plus(retained_bytes(loop), bytes) > session_options(loop->session)->prefix_cache_bytes)
        prefix_cache_evict(loop, oldest_retained(loop));
}

/* True if later requests can reuse the slot's KV entries: these must be in its first sequence,
 * and fit the budget. Those of a snapshot stay in its file, and
 * after evictions a sequence can only be continued where it ends: both only serve a single slot. */
static bool can_retain(const struct loop *loop, const struct slot *slot)
{
    const struct session *session = loop->session;
    const size_t rows = session_length(session, slot->seq);
    const bool single = loop->n_slots == 1;
    return rows && slot->seq == loop_first_seq(loop, slot) &&
           (single || !kv_seq_info(session_kv(session), slot->seq).attached) &&
           (single || kv_is_untrimmed(session_kv(session), slot->seq)) && !slot->n_discarded &&
           slot->converted_at == SIZE_MAX &&
           bytes_of(loop, slot, rows) <= session_options(session)->prefix_cache_bytes;
}

void prefix_cache_retain(struct loop *loop, struct slot *slot)
{
    const size_t rows = session_length(loop->session, slot->seq);
    const bool retain = can_retain(loop, slot);
    struct err none;
    if (retain) {
        evict_for(loop, bytes_of(loop, slot, rows));
        slot->retained_at = loop->n_retained++;
    }
    for (size_t i = 0; retain && i < rows; i++)
        if (ids_add(&slot->cached, slot->ids->id[i], &none) < 0) {
            slot->cached.len = 0;
            return;
        }
}

void prefix_cache_evict(struct loop *loop, struct slot *slot)
{
    slot->cached.len = 0;
    slot->footprint.target = (struct kv_footprint){0};
    session_clear(loop->session, loop_first_seq(loop, slot));
}

void prefix_cache_release(struct loop *loop, struct slot *slot)
{
    const size_t first = loop_first_seq(loop, slot);
    if (!slot->cached.len)
        slot->footprint.target = (struct kv_footprint){0};
    struct session *draft = loop->strategy->draft_session;
    if (draft && kv_offload(session_kv(draft)).ram)
        session_clear(draft, first);
    slot->footprint.draft = (struct kv_footprint){0};
    for (size_t i = 0; i < loop->strategy->width; i++)
        session_truncate(loop->session, first + i, first + i == slot->seq ? slot->cached.len : 0);
}

void prefix_cache_mark(const struct loop *loop, const struct slot *slot)
{
    if (session_options(loop->session)->kept_states)
        session_mark(loop->session, slot->seq, prefix_cache_limit(loop, slot));
    if (loop->strategy->width > 1)
        session_mark(loop->session, slot->seq, slot->n_prompt);
}

void prefix_cache_reuse(struct loop *loop, struct slot *slot)
{
    struct session *session = loop->session;
    const size_t max =
        slot->n_prompt ? size_min(session_length(session, slot->seq), prefix_cache_limit(loop, slot))
                       : 0;
    size_t rows = max ? common_ids(&slot->cached, slot->ids, max) : 0;
    rows = session_rewind(session, slot->seq, rows);
    if (!may_share(loop) || !is_long_enough(loop, slot, rows) || slot->request->from ||
        slot->n_prompt_best || find_origin(loop, slot).common > rows ||
        (rows < session_length(session, slot->seq) && !kv_is_untrimmed(session_kv(session), slot->seq)))
        rows = 0;
    session_truncate(session, slot->seq, rows);
    slot->cached.len = 0;
    prefix_cache_mark(loop, slot);
    count_shared(loop, rows, 0);
}
