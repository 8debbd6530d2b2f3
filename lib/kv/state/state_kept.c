/* States that are kept beside the current one: sequences can be truncated to and forked at their
 * positions. */
#include "kv/state/state_store.h"

static void drop_kept(struct state_store *store, struct state_seq *s, size_t i)
{
    state_block_release(store, s->kept[i].block);
    memmove(s->kept + i, s->kept + i + 1, (s->n_kept - i - 1) * sizeof *s->kept);
    s->n_kept--;
}

void state_drop_after(struct state_store *store, struct state_seq *s, size_t end)
{
    while (s->n_kept && (s->kept[s->n_kept - 1].position > end || !end))
        drop_kept(store, s, s->n_kept - 1);
}

struct state_block *state_find(const struct state_seq *s, size_t position)
{
    for (size_t i = 0; i < s->n_kept; i++)
        if (s->kept[i].position == position)
            return s->kept[i].block;
    return NULL;
}

/* Drops the oldest states of a kind until `most` are left. */
static void limit_kept(struct state_store *store, struct state_seq *s, enum kept_why why, size_t most)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_kept; i++)
        n += s->kept[i].why == why;
    for (size_t i = 0; i < s->n_kept && n > most;)
        if (s->kept[i].why == why) {
            drop_kept(store, s, i);
            n--;
        } else {
            i++;
        }
}

/* Adds a state at the end of a sequence's list; takes over the reference. */
static void state_keep(struct state_store *store, struct state_seq *s, size_t position,
                       enum kept_why why, struct state_block *block)
{
    struct kept *last = s->n_kept ? &s->kept[s->n_kept - 1] : NULL;
    if (last && last->position == position) {
        state_block_release(store, block);
        last->why = last->why > why ? last->why : why;
    } else {
        s->kept[s->n_kept++] = (struct kept){position, why, block};
    }
    limit_kept(store, s, KEPT_RECENT, store->options.recent);
    limit_kept(store, s, KEPT_MARKED, STATE_WANTED);
}

size_t state_most_regular(const struct state_options *o, size_t rows)
{
    return o->kept && o->cost ? size_max(o->kept, size_min(rows / o->cost / 2, STATE_KEPT)) : o->kept;
}

/* Lets regular positions be so far apart that those up to `end` are within the limit, and few in a pass. */
static void thin_out(struct state_store *store, struct state_seq *s, size_t end)
{
    while (end / s->every > state_most_regular(&store->options, end) ||
           s->rows / s->every > STATE_MARKS / 2)
        s->every *= 2;
    for (size_t i = s->n_kept; i-- > 0;)
        if (s->kept[i].why == KEPT_REGULAR && s->kept[i].position % s->every)
            drop_kept(store, s, i);
}

static bool is_wanted(const struct state_seq *s, size_t position)
{
    for (size_t i = 0; i < s->n_wanted; i++)
        if (s->wanted[i] == position)
            return true;
    return false;
}

static bool is_regular(const struct state_store *store, const struct state_seq *s, size_t position)
{
    return store->options.kept && position % s->every == 0;
}

/* Distance of the positions in the current pass whose states are kept to be stored; 0: none. */
static size_t stored_distance(const struct state_store *store, const struct state_seq *s)
{
    return s->rows < store->options.block ? store->options.block : store->options.stored;
}

static bool is_stored(const struct state_store *store, const struct state_seq *s, size_t position)
{
    return store->options.stored && position % stored_distance(store, s) == 0;
}

/* The first position from `from` on whose state is to be kept; SIZE_MAX: none. */
static size_t next_position(const struct state_store *store, const struct state_seq *s, size_t from)
{
    size_t next = store->options.kept ? round_up(from, s->every) : SIZE_MAX;
    if (store->options.stored)
        next = size_min(next, round_up(from, stored_distance(store, s)));
    for (size_t i = 0; i < s->n_wanted; i++)
        if (s->wanted[i] >= from)
            next = size_min(next, s->wanted[i]);
    return next;
}

/* Why the state at a position is kept; KEPT_RECENT: only if the latest ones are. */
static enum kept_why why_kept(const struct state_store *store, const struct state_seq *s,
                              size_t position)
{
    return is_wanted(s, position)           ? KEPT_MARKED
           : is_regular(store, s, position) ? KEPT_REGULAR
           : is_stored(store, s, position)  ? KEPT_STORED
                                            : KEPT_RECENT;
}

int state_plan_marks(struct state_store *store, struct state_seq *s, struct err *err)
{
    const size_t end = s->position + s->rows;
    if (store->options.kept)
        thin_out(store, s, end);
    limit_kept(store, s, KEPT_STORED, 1);
    size_t at = next_position(store, s, s->position + 1);
    for (; at < end && s->n_marks < STATE_MARKS; at = next_position(store, s, at + 1)) {
        struct state_block *block = state_block_new(store);
        if (!block)
            return err_no_memory(err, "a recurrent state of %zu bytes", state_bytes(&store->shape));
        s->mark[s->n_marks].rows = at - s->position;
        s->mark[s->n_marks].why = why_kept(store, s, at);
        s->mark[s->n_marks++].block = block;
    }
    return 0;
}

/* Forgets wanted positions up to `end`. */
static void forget_wanted(struct state_seq *s, size_t end)
{
    size_t n = 0;
    for (size_t i = 0; i < s->n_wanted; i++)
        if (s->wanted[i] > end)
            s->wanted[n++] = s->wanted[i];
    s->n_wanted = n;
}

void state_keep_pass(struct state_store *store, struct state_seq *s, size_t n, bool leading)
{
    const size_t end = s->position + n;
    for (size_t i = 0; leading && i < s->n_marks && s->mark[i].rows < n; i++)
        state_keep(store, s, s->position + s->mark[i].rows, s->mark[i].why,
                   state_block_share(s->mark[i].block));
    const enum kept_why why = why_kept(store, s, end);
    if (why != KEPT_RECENT || store->options.recent)
        state_keep(store, s, end, why, state_block_share(s->now));
    forget_wanted(s, end);
}

void state_keep_loaded(struct state_store *store, struct state_seq *s)
{
    if (store->options.kept)
        thin_out(store, s, s->position);
    const enum kept_why why = is_regular(store, s, s->position) ? KEPT_REGULAR
                              : store->options.kept             ? KEPT_MARKED
                                                                : KEPT_RECENT;
    if (why != KEPT_RECENT || store->options.recent)
        state_keep(store, s, s->position, why, state_block_share(s->now));
}

void state_mark(struct state_store *store, size_t seq, size_t position, size_t mark)
{
    struct state_seq *s = &store->seq[seq];
    if (mark < position || !mark || is_wanted(s, mark))
        return;
    if (mark == position) {
        state_keep(store, s, mark, KEPT_MARKED, state_block_share(s->now));
        return;
    }
    if (s->n_wanted == STATE_WANTED)
        memmove(s->wanted, s->wanted + 1, --s->n_wanted * sizeof *s->wanted);
    s->wanted[s->n_wanted++] = mark;
}

size_t state_positions(const struct state_store *store, size_t seq, size_t position, size_t *list)
{
    const struct state_seq *s = &store->seq[seq];
    size_t n = 0;
    for (; n < s->n_kept && s->kept[n].position < position; n++)
        if (list)
            list[n] = s->kept[n].position;
    if (list)
        list[n] = position;
    return n + 1;
}
