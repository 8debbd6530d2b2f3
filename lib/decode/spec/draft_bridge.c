/* Drafting with a model that has another vocabulary, through text: the sequence becomes tokens of the draft model, which a
 * drafter of that model continues greedily, and their text becomes tokens of the target (Timor et al., 2025). Any split of
 * the text into tokens will do: the target verifies every draft token.
 *
 * The text is encoded in segments, of which all but the last stay, so that a step encodes a bounded part of a sequence. */
#include "base/mem.h"
#include "decode/spec/drafter.h"
#include "text/tokenizer/tokenizer.h"
#include "text/utf8.h"

enum {
    /* bytes from which on a segment ends at the next word; from twice as many on at any character */
    SEGMENT = 1024,
    TAIL = 4 /* last tokens that are encoded together with the draft's text */
};

struct bridge_slot {
    struct ids seen;       /* tokens of the target that were translated */
    struct ids ids;        /* of the draft model, the same text */
    size_t kept, kept_ids; /* tokens of the target, and of the draft model, of segments that stay */
    struct draft draft;
    bool ready; /* it has tokens to continue */
};

struct bridge {
    struct drafter drafter;
    struct drafter *inner;
    const struct tokenizer *target, *draft;
    size_t vocab;                  /* of the target */
    struct bridge_slot *slot;      /* [slots] */
    struct draft_request *request; /* [slots] to the inner drafter */
    struct tree_shape shape;       /* of its drafts, a chain */
    struct buf text;
    struct ids list;
};

/* True if the ids from `first` on are those of the text, byte by byte. */
static bool spells(const struct tokenizer *tok, const struct ids *ids, size_t first, const char *text,
                   size_t len)
{
    AUTO(buf_release) struct buf back = {0};
    struct err err;
    for (size_t i = first; i < ids->len; i++)
        if (tokenizer_piece(tok, ids->id[i], &back, &err) < 0)
            return false;
    return back.len == len && (!len || memcmp(back.data, text, len) == 0);
}

/* Appends the ids of a part of a running text. Tokenizers that put a blank in front of texts would double that of a
 * part which begins with one. */
static int encode_part(const struct tokenizer *tok, const char *text, size_t len, struct ids *ids,
                       struct err *err)
{
    const size_t first = ids->len;
    if (tokenizer_encode_plain(tok, text, len, false, ids, err) < 0)
        return -1;
    if (!len || *text != ' ' || spells(tok, ids, first, text, len))
        return 0;
    ids->len = first;
    return tokenizer_encode_plain(tok, text + 1, len - 1, false, ids, err);
}

/* ---- from the target to the draft model ---- */

/* Ends a segment: its tokens stay, as do those of `n` tokens of the target. */
static int end_segment(struct bridge *b, struct bridge_slot *s, size_t n, struct err *err)
{
    if (encode_part(b->draft, buf_text(&b->text), b->text.len, &s->ids, err) < 0)
        return -1;
    buf_clear(&b->text);
    s->kept = n;
    s->kept_ids = s->ids.len;
    return 0;
}

/* Begins a sequence: what the draft model's tokenizer puts in front of texts, in place of the target's. */
static int begin_text(struct bridge *b, struct bridge_slot *s, const uint32_t *ids, size_t n,
                      struct err *err)
{
    s->ids.len = 0;
    if (tokenizer_encode(b->draft, "", 0, true, &s->ids, err) < 0)
        return -1;
    s->ids.len = tokenizer_leading(b->draft, s->ids.id, s->ids.len);
    s->kept = tokenizer_leading(b->target, ids, n);
    s->kept_ids = s->ids.len;
    return 0;
}

/* A special token is the draft model's of the same spelling, or left out. */
static int add_special(struct bridge *b, struct bridge_slot *s, uint32_t id, struct err *err)
{
    AUTO(buf_release) struct buf spelling = {0};
    if (tokenizer_piece_printable(b->target, id, &spelling, err) < 0)
        return -1;
    const int64_t own = tokenizer_find(b->draft, buf_text(&spelling), spelling.len);
    return own < 0 ? 0 : ids_add(&s->ids, (uint32_t)own, err);
}

/* Sets s->ids to the text of a sequence; s->ready: it is text, and not empty. */
static int translate(struct bridge *b, struct bridge_slot *s, const uint32_t *ids, size_t n,
                     struct err *err)
{
    size_t same = 0;
    while (same < n && same < s->seen.len && s->seen.id[same] == ids[same])
        same++;
    if ((same < s->kept || !s->kept_ids) && begin_text(b, s, ids, n, err) < 0)
        return -1;
    s->seen.len = same;
    while (s->seen.len < n)
        if (ids_add(&s->seen, ids[s->seen.len], err) < 0)
            return -1;
    s->ids.len = s->kept_ids;
    s->ready = false;
    buf_clear(&b->text);
    for (size_t i = s->kept; i < n; i++) {
        const size_t before = b->text.len;
        const bool special = tokenizer_is_special(b->target, ids[i]);
        if (!special && tokenizer_piece(b->target, ids[i], &b->text, err) < 0)
            return -1;
        const bool ends = !special && b->text.len > before &&
                          ((before >= SEGMENT && b->text.data[before] == ' ') ||
                           (before >= 2 * SEGMENT && utf8_valid(b->text.data, before) == before));
        if (!special && !ends)
            continue;
        if (utf8_valid(buf_text(&b->text), before) < before)
            return 0; /* of no use to a draft model */
        AUTO(buf_release) struct buf next = {0};
        if (ends && buf_add(&next, b->text.data + before, b->text.len - before, err) < 0)
            return -1;
        b->text.len = before;
        if (end_segment(b, s, i, err) < 0 || (special && add_special(b, s, ids[i], err) < 0) ||
            (next.len && buf_add(&b->text, next.data, next.len, err) < 0))
            return -1;
        s->kept = special ? i + 1 : i;
        s->kept_ids = s->ids.len;
    }
    if (utf8_valid(buf_text(&b->text), b->text.len) < b->text.len)
        return 0; /* the rest of a character follows */
    if (encode_part(b->draft, buf_text(&b->text), b->text.len, &s->ids, err) < 0)
        return -1;
    s->ready = s->ids.len > 0;
    return 0;
}

/* ---- from the draft model to the target ---- */

/* Appends the draft's text, up to a special token or an incomplete character. */
static int draft_text(struct bridge *b, const struct draft *draft, struct err *err)
{
    const size_t before = b->text.len;
    for (size_t i = 1; i < draft->n && !tokenizer_is_special(b->draft, draft->token[i]); i++)
        if (tokenizer_piece(b->draft, draft->token[i], &b->text, err) < 0)
            return -1;
    b->text.len = before + utf8_valid(buf_text(&b->text) + before, b->text.len - before);
    return 0;
}

/* Sets b->list to the target's tokens for a draft, those that continue the last tokens of the sequence if there are
 * such; *first: the number of tokens in front that the sequence has. */
static int target_ids(struct bridge *b, const struct draft_request *request, const struct draft *draft,
                      size_t *first, struct err *err)
{
    size_t tail = size_min(TAIL, request->n_ids), before = 0;
    const uint32_t *last = request->ids + request->n_ids;
    buf_clear(&b->text);
    for (size_t i = 0; i < tail; i++)
        if (tokenizer_is_special(b->target, last[-1 - (ptrdiff_t)i]))
            tail = i;
    for (size_t i = tail; i > 0; i--)
        if (tokenizer_piece(b->target, *(last - i), &b->text, err) < 0)
            return -1;
    before = b->text.len;
    b->list.len = *first = 0;
    if (draft_text(b, draft, err) < 0)
        return -1;
    if (b->text.len == before)
        return 0;
    if (utf8_valid(b->text.data, b->text.len) == b->text.len) {
        if (encode_part(b->target, b->text.data, b->text.len, &b->list, err) < 0)
            return -1;
        if (b->list.len > tail && memcmp(b->list.id, last - tail, tail * sizeof *last) == 0) {
            *first = tail;
            return 0;
        }
    }
    b->list.len = 0;
    return encode_part(b->target, b->text.data + before, b->text.len - before, &b->list, err);
}

/* Fills the first child of each level. */
static void add_chain(const struct bridge *b, const struct draft_request *request, size_t first)
{
    const struct tree_shape *shape = request->shape;
    size_t node = 0;
    for (size_t i = first; i < b->list.len && shape->children[node] && b->list.id[i] < b->vocab; i++) {
        node = shape->first[node];
        draft_add(request->draft, request->draft->n - 1, b->list.id[i], node);
    }
}

static int propose_by_bridge(struct drafter *drafter, const struct draft_request *request,
                             size_t n_requests, struct err *err)
{
    static const struct sampler_options greedy = {.repeat_penalty = 1};
    struct bridge *b = (struct bridge *)drafter;
    size_t n = 0, levels = 1, first;
    for (size_t a = 0; a < n_requests; a++) {
        struct bridge_slot *s = &b->slot[request[a].slot];
        if (translate(b, s, request[a].ids, request[a].n_ids, err) < 0)
            return -1;
        levels = size_max(levels, request[a].shape->levels);
        if (!s->ready)
            continue;
        draft_begin(&s->draft, s->ids.id[s->ids.len - 1]);
        b->request[n++] = (struct draft_request){.slot = request[a].slot,
                                                 .ids = s->ids.id,
                                                 .n_ids = s->ids.len,
                                                 .shape = &b->shape,
                                                 .draft = &s->draft,
                                                 .sampling = &greedy};
    }
    tree_chain(&b->shape, levels - 1);
    if (b->inner->propose(b->inner, b->request, n, err) < 0)
        return -1;
    drafter->prefill_ms = b->inner->prefill_ms;
    drafter->prefill_tokens = b->inner->prefill_tokens;
    for (size_t a = 0; a < n_requests; a++) {
        const struct bridge_slot *s = &b->slot[request[a].slot];
        if (s->ready && target_ids(b, &request[a], &s->draft, &first, err) < 0)
            return -1;
        if (s->ready)
            add_chain(b, &request[a], first);
    }
    return 0;
}

static void close_bridge(struct drafter *drafter)
{
    AUTO(free_auto) struct bridge *b = (struct bridge *)drafter;
    const size_t slots = b->inner ? session_options(b->inner->session)->batch : 0;
    for (size_t i = 0; b->slot && i < slots; i++) {
        ids_release(&b->slot[i].seen);
        ids_release(&b->slot[i].ids);
        free(b->slot[i].draft.pool);
    }
    drafter_close(b->inner);
    free(b->slot);
    free(b->request);
    buf_release(&b->text);
    ids_release(&b->list);
}

int draft_bridge_open(struct drafter **out, struct session *session, const struct model *target,
                      double cost, struct err *err)
{
    const size_t slots = session_options(session)->batch;
    struct bridge *b = mem_zalloc(1, sizeof *b);
    *out = NULL;
    if (!b)
        return err_no_memory(err, "a drafter");
    *b = (struct bridge){.drafter = {.name = "bridge",
                                     .ranks = 1,
                                     .cost = cost,
                                     .propose = propose_by_bridge,
                                     .close = close_bridge,
                                     .session = session},
                         .target = target->tok,
                         .draft = session_model(session)->tok,
                         .vocab = target->config.vocab};
    int rc = draft_model_open(&b->inner, session, session_vocab(session), cost, err);
    if (rc == 0) {
        b->slot = mem_zalloc(slots, sizeof *b->slot);
        b->request = mem_zalloc(slots, sizeof *b->request);
        rc = b->slot && b->request ? 0 : err_no_memory(err, "drafts of %zu sequences", slots);
    }
    if (rc < 0) {
        close_bridge(&b->drafter);
        return -1;
    }
    *out = &b->drafter;
    return 0;
}
