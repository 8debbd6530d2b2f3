/* Index selection: reordered beams read each other's entries in place (segment paper 3.3).
 *
 * The index of a beam has the offset of every entry behind the prompt. It is valid for K and V of
 * every layer and head, since the tails (kv_chain.h) of a beam group have the same layout. A child
 * copies its parent's index, and no entry moves; attention finds each row through the index.
 *
 * Layers whose rows differ in size have no common offsets: their beams are forked instead.
 *
 * Entries older than the latest common ancestor of all beams are moved to the group's first tail,
 * once each, as soon as they fill a tile: attention reads them contiguously, once for all beams. */
#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"
#include "kv/policy/kv_chain.h"

static bool differ_in_tails_only(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = kv_chain_of(kv, a), *y = kv_chain_of(kv, b);
    bool same = kv->seq[a].n == kv->seq[b].n && x->group == y->group && x->n_shared == y->n_shared &&
                y->tail && !kv->seq[b].attached;
    for (size_t i = 0; same && i < x->n_shared; i++)
        same = x->shared[i].segment == y->shared[i].segment && x->shared[i].end == y->shared[i].end;
    return same;
}

static struct kv_beam_group *make_group(struct kv *kv, const size_t *seq, size_t n)
{
    struct kv_beam_group *group = mem_zalloc(1, sizeof *group + n * sizeof group->tail[0]);
    for (size_t i = 0; group && i < n; i++) {
        struct kv_chain *c = kv_chain_of(kv, seq[i]);
        group->tail[i] = c->tail;
        c->group = group;
    }
    if (group)
        group->refs = group->n = n;
    return group;
}

/* Offset, as in the index, that entry i behind the prompt has in the chain's own tail. */
static ptrdiff_t own_offset(const struct kv *kv, const struct kv_chain *c, size_t i)
{
    return addr_distance(addr_add(c->tail->rows, i * kv->head[0].bytes), c->group->tail[0]->rows);
}

static ptrdiff_t offset_of(const struct kv *kv, const struct kv_chain *c, size_t i)
{
    return i < c->n_index ? c->index[i] : own_offset(kv, c, i);
}

/* Position behind the latest common ancestor of two beams, by binary search: where the offsets in
 * their indices are equal, so are all earlier ones, as children inherit whole indices. */
static size_t common_end_of(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = kv_chain_of(kv, a), *y = kv_chain_of(kv, b);
    const size_t first = kv_chain_tail_at(x), n = size_min(kv->seq[a].n, kv->seq[b].n);
    size_t end = size_min(size_max(x->group->common, first), n);
    for (size_t last = n; end < last;) {
        const size_t middle = end + (last - end) / 2;
        if (offset_of(kv, x, middle - first) == offset_of(kv, y, middle - first))
            end = middle + 1;
        else
            last = middle;
    }
    return end;
}

static size_t common_end(const struct kv *kv, const size_t *seq, size_t n)
{
    size_t end = kv->seq[seq[0]].n;
    for (size_t i = 1; i < n; i++)
        end = size_min(end, common_end_of(kv, seq[0], seq[i]));
    return end;
}

/* Moves the entries common to all beams to the group's first tail, unless they are there already, in whole tiles;
 * they overwrite entries that no beam reads. */
static void gather_common(struct kv *kv, const size_t *seq, size_t n)
{
    const struct kv_chain *c = kv_chain_of(kv, seq[0]);
    const size_t first = kv_chain_tail_at(c), bytes = kv->head[0].bytes;
    const size_t begin = size_max(c->group->common, first),
                 end = common_end(kv, seq, n) / TILE_ROWS * TILE_ROWS;
    const double start = clock_ms();
    if (end <= begin)
        return;
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t i = begin - first; i < end - first; i++) {
        if (offset_of(kv, c, i) == (ptrdiff_t)(i * bytes))
            continue;
        kv->stats.copied_rows++;
        for (size_t h = 0; h < kv->n_heads; h++) {
            const struct device_addr rows = kv_segment_row(kv, c->group->tail[0], h, first);
            kv_copies_add(&copies, addr_add(rows, i * bytes),
                          addr_add(rows, (size_t)offset_of(kv, c, i)), bytes, 0);
        }
    }
    kv_copies_end(&copies);
    c->group->common = end;
    kv->stats.copy_ms += clock_ms() - start;
}

/* Prepares to reorder beams: forms a beam group of their sequences, if there is none yet, and moves
 * common entries. False if they cannot read each other's entries, or memory is short. */
static bool begin_alias(struct kv *kv, const size_t *seq, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!differ_in_tails_only(kv, seq[0], seq[i]))
            return false;
    struct kv_beam_group *group = kv_chain_of(kv, seq[0])->group;
    if (!group && !(group = make_group(kv, seq, n)))
        return false;
    if (group->refs != group->n || n != group->n || kv->seq[seq[0]].n < group->filled)
        return false;
    group->filled = kv->seq[seq[0]].n;
    gather_common(kv, seq, n);
    return true;
}

static int grow_index(struct kv_chain *c, size_t n, struct err *err)
{
    while (c->index_cap < n)
        if (mem_grow(&c->index, &c->index_cap, c->index_cap, sizeof *c->index, err) < 0)
            return -1;
    return 0;
}

/* Extends a chain's index to `end` entries, the new ones being in the chain's own tail. */
static void add_own(const struct kv *kv, struct kv_chain *c, size_t end)
{
    for (; c->n_index < end; c->n_index++)
        c->index[c->n_index] = own_offset(kv, c, c->n_index);
}

int kv_chain_index_extend(struct kv *kv, struct kv_chain *c, size_t n, struct err *err)
{
    const size_t end = round_up(n - size_min(n, kv_chain_tail_at(c)), TILE_ROWS);
    if (!c->n_index)
        return 0;
    if (grow_index(c, end, err) < 0)
        return -1;
    add_own(kv, c, end);
    return 0;
}

void kv_chain_index_truncate(struct kv_chain *c, size_t n)
{
    c->n_index = size_min(c->n_index, n - kv_chain_tail_at(c));
}

static int alias(struct kv *kv, size_t to, size_t from, struct err *err)
{
    struct kv_chain *t = kv_chain_of(kv, to);
    const struct kv_chain *f = kv_chain_of(kv, from);
    const size_t first = kv_chain_tail_at(f), n = kv->seq[from].n - first;
    const size_t end = round_up(n, TILE_ROWS);
    if (grow_index(t, end, err) < 0)
        return -1;
    for (size_t i = size_max(f->group->common, first) - first; i < n; i++)
        t->index[i] = offset_of(kv, f, i);
    t->n_index = n;
    add_own(kv, t, end);
    return 0;
}

int kv_chain_alias(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                   struct err *err)
{
    if (kv->setup.shape.n_sizes > 1 || !begin_alias(kv, seq, n))
        return 1;
    for (size_t i = 0; i < n; i++)
        if (to[i] != seq[parent[i]] && alias(kv, to[i], seq[parent[i]], err) < 0)
            return -1;
    return 0;
}
