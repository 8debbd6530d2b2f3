/* Prompts that begin alike: their common rows are computed once, and held once where the cache's policy can. */
#include "decode/loop.h"

/* Fewer common rows are not worth that one prompt waits for another. */
enum { LEAST_ROWS = TILE_ROWS };

size_t loop_first_seq(const struct loop *loop, const struct slot *slot)
{
    return (size_t)(slot - loop->slot) * loop->strategy->width;
}

/* ---- under a budget of memory ---- */

static size_t budget(const struct loop *loop) { return loop->session->options.memory_bytes; }

/* Not for beams under a policy in which they share rows: those are reckoned with, and might be fewer then. */
static bool may_share(const struct loop *loop)
{
    return !budget(loop) || loop->strategy->width == 1 || !kv_shares_rows(loop->session->kv);
}

/* What is copied when a sequence of `rows` rows comes to share `common` of them has room, for a moment. */
static bool may_fork(const struct loop *loop, size_t rows, size_t common)
{
    const struct kv *kv = loop->session->kv;
    return !budget(loop) ||
           kv_stats(kv)->resident_bytes + kv_need_of_fork(kv, rows, common) <= budget(loop);
}

/* ---- rows that others have ---- */

/* Who has rows, or is about to. */
struct origin {
    size_t seq, rows;
    size_t common; /* with the prompt in question; more than `rows`: they come */
};

static size_t common_ids(const struct ids *a, const struct ids *b, size_t most)
{
    size_t n = 0;
    most = size_min(most, size_min(a->len, b->len));
    while (n < most && a->id[n] == b->id[n])
        n++;
    return n;
}

/* Rows of a slot's sequence that others can begin with: none once the cache has dropped any of them. */
static size_t rows_of(const struct loop *loop, const struct slot *slot, size_t seq)
{
    const bool whole = kv_whole(loop->session->kv, seq) && !slot->dropped;
    return whole ? session_rows(loop->session, seq) : 0;
}

/* Whether it pays to wait for the prompt of `other`: it is still being computed, and the cache will keep all of its rows. A slot waits only
 * for slots before its own, so none wait for each other, and the first slot with an incomplete prompt waits for nobody. */
static bool is_coming(const struct loop *loop, const struct slot *slot, const struct slot *other)
{
    return other < slot && other->busy && loop_rows(loop, other) < other->n_prompt &&
           other->n_prompt <= kv_setup(loop->session->kv)->cut_rows;
}

/* What `other` has of the slot's prompt, without its last token: that gives logits, so each slot computes it. */
static struct origin origin_of(const struct loop *loop, const struct slot *slot,
                               const struct slot *other)
{
    const size_t seq = other->busy ? other->seq : loop_first_seq(loop, other);
    const struct ids *ids = other->busy ? other->ids : &other->before;
    const size_t rows = rows_of(loop, other, seq);
    const size_t come = is_coming(loop, slot, other) ? other->n_prompt : rows;
    return (struct origin){seq, rows, common_ids(slot->ids, ids, size_min(come, slot->n_prompt - 1))};
}

static bool is_worth(const struct slot *slot, size_t rows)
{
    return rows && (rows >= LEAST_ROWS || rows + 1 == slot->n_prompt);
}

/* The one with the most of the slot's prompt, there or coming; common is 0 when nobody has enough. */
static struct origin find_origin(const struct loop *loop, const struct slot *slot)
{
    struct origin best = {0};
    for (const struct slot *other = loop->slot; other < loop->slot + loop->n_slots; other++) {
        if (other == slot)
            continue;
        const struct origin origin = origin_of(loop, slot, other);
        const bool better =
            origin.common > best.common || (origin.common == best.common && origin.rows > best.rows);
        if (better && is_worth(slot, origin.common) &&
            forward_same_rows(&loop->session->forward, slot->seq, origin.seq))
            best = origin;
    }
    return best;
}

static void count(struct loop *loop, size_t rows, size_t once)
{
    loop->stats->shared_rows += rows;
    loop->stats->saved_bytes += kv_rows_bytes(loop->session->kv, once);
}

int loop_share(struct loop *loop, struct slot *slot, bool *ready, struct err *err)
{
    const struct kv *kv = loop->session->kv;
    *ready = true;
    if (session_rows(loop->session, slot->seq) || slot->prompt_logprobs || !may_share(loop))
        return 0;
    const struct origin origin = find_origin(loop, slot);
    *ready = origin.rows >= origin.common;
    if (!*ready || !origin.common || !may_fork(loop, origin.rows, origin.common))
        return 0;
    if (session_fork(loop->session, slot->seq, origin.seq, origin.common, err) < 0)
        return -1;
    count(loop, origin.common, kv_shared_rows(kv, slot->seq, origin.seq));
    return 0;
}

/* ---- rows that stay in a place ---- */

/* Those in places that wait for a request; what they share is counted with each. */
static size_t staying_bytes(const struct loop *loop)
{
    size_t bytes = 0;
    for (size_t i = 0; i < loop->n_slots; i++)
        bytes += kv_rows_bytes(loop->session->kv, loop->slot[i].before.len);
    return bytes;
}

static struct slot *oldest(const struct loop *loop)
{
    struct slot *found = NULL;
    for (struct slot *slot = loop->slot; slot < loop->slot + loop->n_slots; slot++)
        if (slot->before.len && (!found || slot->since < found->since))
            found = slot;
    return found;
}

/* The oldest go for those that come now. */
static void make_way(struct loop *loop, size_t bytes)
{
    while (size_plus(staying_bytes(loop), bytes) > loop->session->options.share_bytes)
        loop_forget(loop, oldest(loop));
}

/* Those of a model whose keys depend on the length of the text are no use to a text of another length; those of a snapshot lie
 * in its file. */
static bool may_stay(const struct loop *loop, const struct slot *slot)
{
    const struct session *session = loop->session;
    const size_t rows = session_rows(session, slot->seq);
    return rows && slot->seq == loop_first_seq(loop, slot) && snapshot_fits(session, NULL) &&
           !kv_fill(session->kv, slot->seq).adopted && kv_whole(session->kv, slot->seq) &&
           !slot->dropped && kv_rows_bytes(session->kv, rows) <= session->options.share_bytes;
}

void loop_remember(struct loop *loop, struct slot *slot)
{
    const size_t rows = session_rows(loop->session, slot->seq);
    const bool stays = may_stay(loop, slot);
    struct err none;
    if (stays) {
        make_way(loop, kv_rows_bytes(loop->session->kv, rows));
        slot->since = loop->n_stayed++;
    }
    for (size_t i = 0; stays && i < rows; i++)
        if (ids_add(&slot->before, slot->ids->id[i], &none) < 0) {
            slot->before.len = 0;
            return;
        }
}

void loop_forget(struct loop *loop, struct slot *slot)
{
    slot->before.len = 0;
    slot->need.own = (struct kv_need){0};
    session_drop(loop->session, loop_first_seq(loop, slot));
}

void loop_leave(struct loop *loop, struct slot *slot)
{
    const size_t first = loop_first_seq(loop, slot);
    if (!slot->before.len)
        slot->need.own = (struct kv_need){0};
    if (slot->need.beside.most)
        session_drop(loop->strategy->beside, first);
    slot->need.beside = (struct kv_need){0};
    for (size_t i = 0; i < loop->strategy->width; i++)
        session_cut(loop->session, first + i, first + i == slot->seq ? slot->before.len : 0);
}

void loop_reuse(struct loop *loop, struct slot *slot)
{
    struct session *session = loop->session;
    const size_t most =
        slot->n_prompt ? size_min(session_rows(session, slot->seq), slot->n_prompt - 1) : 0;
    size_t rows = most ? common_ids(&slot->before, slot->ids, most) : 0;
    if (!may_share(loop) || !is_worth(slot, rows) || slot->request->from || slot->n_prompt_best ||
        find_origin(loop, slot).common > rows)
        rows = 0;
    session_cut(session, slot->seq, rows);
    slot->before.len = 0;
    count(loop, rows, 0);
}
