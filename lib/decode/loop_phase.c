/* Phases of an answer: free text, thoughts of limited length, and text under a constraint, which may begin at a marker.
 *
 * What may follow depends on the answer's tokens alone. A strategy that verifies drafts asks after each accepted token, so
 * that drafts change nothing; the tokens that close a thought are forced by a mask of one, and pass through the model as
 * any others. */
#include "base/mem.h"
#include "decode/loop.h"
#include "text/tokenizer/detok.h"

/* Markers by number: where a thought begins and ends, then the triggers. */
enum { THOUGHT_BEGIN, THOUGHT_END, FIRST_TRIGGER };

static const struct answer_markers no_markers;

static const struct answer_markers *markers_of(const struct slot *slot)
{
    return slot->request->markers ? slot->request->markers : &no_markers;
}

/* A marker that ends the phase; NULL: it is none, or there is none. */
static const char *marker_at(const struct slot *slot, enum phase phase, size_t i)
{
    const struct answer_markers *m = markers_of(slot);
    if (phase == PHASE_THOUGHT)
        return i == THOUGHT_END ? m->thought_end : NULL;
    return i == THOUGHT_BEGIN ? m->thought_begin
           : i >= FIRST_TRIGGER && i - FIRST_TRIGGER < m->n_triggers && slot->request->constraint
               ? m->trigger[i - FIRST_TRIGGER]
               : NULL;
}

/* The phase behind a marker, or behind a thought that was closed. */
static enum phase phase_behind(const struct slot *slot, size_t marker)
{
    if (marker == THOUGHT_BEGIN)
        return PHASE_THOUGHT;
    return marker >= FIRST_TRIGGER || (slot->request->constraint && !markers_of(slot)->n_triggers)
               ? PHASE_CONSTRAINED
               : PHASE_TEXT;
}

struct constraint *loop_constraint(const struct slot *slot)
{
    return slot->phase.now == PHASE_CONSTRAINED ? slot->constrained.constraint : NULL;
}

/* ---- the start of a request ---- */

/* The tokens that end the request: the model's and its own, or none with ignore_eos. */
static int collect_ends(const struct loop *loop, struct slot *slot, struct err *err)
{
    const struct gen_request *request = slot->request;
    const struct config *config = &session_model(loop->session)->config;
    slot->ends.len = 0;
    for (size_t i = 0; i < config->n_eos && !request->ignore_eos; i++)
        if (ids_add(&slot->ends, config->eos[i], err) < 0)
            return -1;
    for (size_t i = 0; i < request->turn_end.n_ids && !request->ignore_eos; i++)
        if (ids_add(&slot->ends, request->turn_end.id[i], err) < 0)
            return -1;
    return 0;
}

/* Whether the tokens of thoughts are used up. What is incomplete at that point, a character or the end marker, may be
 * completed. */
static bool is_over_budget(const struct slot *slot)
{
    const struct answer_markers *m = markers_of(slot);
    const size_t n = slot->phase.n_thought;
    return m->close && n >= m->thought_tokens &&
           (n - m->thought_tokens >= strlen(m->thought_end) ||
            !(slot->phase.matched[THOUGHT_END] || slot->text_streamer.detok.held_len));
}

static void enter(struct slot *slot, enum phase phase)
{
    struct answer_phase *p = &slot->phase;
    memset(p->matched, 0, sizeof p->matched);
    p->n_closed = 0;
    p->now = phase;
    if (phase == PHASE_THOUGHT && is_over_budget(slot))
        p->now = PHASE_CLOSING;
}

int loop_phase_begin(struct loop *loop, struct slot *slot, struct err *err)
{
    const struct answer_markers *m = markers_of(slot);
    struct constraint *constraint = slot->request->constraint;
    const struct tokenizer *tok = session_model(loop->session)->tok;
    slot->phase = (struct answer_phase){0};
    enter(slot, m->in_thought ? PHASE_THOUGHT : phase_behind(slot, THOUGHT_END));
    if (constraint_begin(&slot->constrained, constraint, err) < 0 ||
        (constraint && collect_ends(loop, slot, err) < 0))
        return -1;
    if (constraint && constraint_is_complete(constraint, slot->constrained.state))
        return err_set(err, "the constraint allows the empty text only: nothing can be generated");
    for (size_t i = 0; constraint && i < PHASE_MARKERS; i++) {
        const char *marker = marker_at(slot, i == THOUGHT_END ? PHASE_THOUGHT : PHASE_TEXT, i);
        if (marker && phase_behind(slot, i) == PHASE_CONSTRAINED &&
            constraint_crossings(constraint, marker, tok, &slot->phase.crossings[i].token,
                                 &slot->phase.crossings[i].n, err) < 0)
            return -1;
    }
    return 0;
}

void loop_phase_end(struct slot *slot)
{
    constraint_end(&slot->constrained);
    slot->phase = (struct answer_phase){0};
}

/* ---- before a token ---- */

/* Forbids the tokens that would cross a marker from here, unless `mask` is NULL. Returns whether there are any. */
static bool forbid_crossings(const struct answer_phase *p, struct token_mask *mask)
{
    bool any = false;
    for (size_t i = 0; i < PHASE_MARKERS; i++)
        for (size_t k = 0; k < p->crossings[i].n; k++)
            if (p->crossings[i].token[k].matched == p->matched[i]) {
                any = true;
                if (!mask)
                    return true;
                token_mask_put(mask, p->crossings[i].token[k].id, false);
            }
    return any;
}

/* Forbids the tokens that cross a marker, and in a thought before a constraint those that end the answer. */
static int allow_free(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct answer_phase *p = &slot->phase;
    const bool goes_on =
        p->now == PHASE_THOUGHT && phase_behind(slot, THOUGHT_END) == PHASE_CONSTRAINED;
    if (!(goes_on && slot->ends.len) && !forbid_crossings(p, NULL))
        return 0;
    if (token_mask_fill(&loop->mask, session_vocab(loop->session), true, err) < 0)
        return -1;
    (void)forbid_crossings(p, &loop->mask);
    for (size_t i = 0; i < slot->ends.len && goes_on; i++)
        token_mask_put(&loop->mask, slot->ends.id[i], false);
    loop->sampler.allowed = loop->mask.bits;
    return 0;
}

int loop_constrain(struct loop *loop, const struct slot *slot, struct err *err)
{
    const struct constraint_cursor *at = &slot->constrained;
    const struct answer_phase *p = &slot->phase;
    loop->sampler.allowed = NULL;
    if (p->now == PHASE_TEXT || p->now == PHASE_THOUGHT)
        return allow_free(loop, slot, err);
    if (p->now == PHASE_CLOSING) {
        if (token_mask_fill(&loop->mask, session_vocab(loop->session), false, err) < 0)
            return -1;
        token_mask_put(&loop->mask, markers_of(slot)->close->id[p->n_closed], true);
    } else if (token_mask_set(&loop->mask, at->constraint, at->state, &slot->ends, err) < 0) {
        return -1;
    }
    if (!loop->mask.any)
        return err_set(err, "no token of the vocabulary continues the text as the constraint asks for");
    loop->sampler.allowed = loop->mask.bits;
    return 0;
}

/* ---- after a token ---- */

/* Begins the constraint behind its marker, with the rest of the token. */
static int begin_constraint(struct slot *slot, const char *rest, size_t len, struct err *err)
{
    struct constraint_cursor *at = &slot->constrained;
    enter(slot, PHASE_CONSTRAINED);
    constraint_set(at, constraint_after(at->constraint, rest, len));
    return at->state == CONSTRAINT_DEAD && len
               ? err_set(err, "a token goes beyond the marker at which the constraint begins")
               : 0;
}

/* Follows the text of a token from marker to marker. */
static int follow_text(struct slot *slot, const char *text, size_t len, struct err *err)
{
    for (size_t at = 0; at < len;) {
        const enum phase phase = slot->phase.now;
        const char byte = text[at++];
        for (size_t i = 0; i < PHASE_MARKERS; i++) {
            const char *marker = marker_at(slot, phase, i);
            size_t *matched = &slot->phase.matched[i];
            *matched = marker ? marker_match(marker, *matched, byte) : 0;
            if (!marker || marker[*matched])
                continue;
            if (phase_behind(slot, i) == PHASE_CONSTRAINED)
                return begin_constraint(slot, text + at, len - at, err);
            enter(slot, phase_behind(slot, i));
            break;
        }
        if (slot->phase.now == PHASE_CLOSING) /* a thought with nothing left of its budget */
            return 0;
    }
    return 0;
}

static int advance_free(const struct loop *loop, struct slot *slot, uint32_t id, struct err *err)
{
    AUTO(buf_release) struct buf piece = {0};
    if (!slot->request->markers)
        return 0;
    slot->phase.n_thought += slot->phase.now == PHASE_THOUGHT;
    if (tokenizer_piece(session_model(loop->session)->tok, id, &piece, err) < 0 ||
        follow_text(slot, buf_text(&piece), piece.len, err) < 0)
        return -1;
    if (slot->phase.now == PHASE_THOUGHT && is_over_budget(slot))
        enter(slot, PHASE_CLOSING);
    return 0;
}

int loop_phase_advance(struct loop *loop, struct slot *slot, uint32_t id, bool *complete,
                       struct err *err)
{
    struct constraint_cursor *at = &slot->constrained;
    struct answer_phase *p = &slot->phase;
    *complete = false;
    if (p->now == PHASE_CLOSING) {
        if (++p->n_closed == markers_of(slot)->close->len)
            enter(slot, phase_behind(slot, THOUGHT_END));
        return 0;
    }
    if (p->now != PHASE_CONSTRAINED)
        return advance_free(loop, slot, id, err);
    if (constraint_advance(at, id, err) < 0)
        return -1;
    *complete = constraint_is_complete(at->constraint, at->state);
    return 0;
}
