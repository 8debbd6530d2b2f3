/* segment: sequences that continue one prompt share its KV rows; each sequence's continuation is in
 * its own tail, which grows by r rows (segment paper 3.2, where r is called `step`).
 *
 * Forking a prompt turns its whole tiles into a read-only segment that both sequences share; each
 * continues in its own tail. Forking a continuation copies the tail; beams that are reordered read
 * each other's entries through an index.
 *
 * reserve: the same storage without sharing. Address space for N rows per sequence is committed r
 * rows at a time, so no row is ever copied to grow. */
#include "base/clock.h"
#include "base/mem.h"
#include "kv/kv_rows.h"
#include "kv/policy/kv_prepare.h"

/* Storage of both: a sequence is a chain of segments. The last one, its tail, is private; those before it can be shared
 * with other sequences. A segment is reserved address space for the rows of all layers from one position on, committed
 * as rows are added: rows never move. */

struct kv_segment {
    struct device_addr rows;        /* [kv.n_heads][stored], positions from `first` on */
    struct kv_layer_rows *attached; /* [layers] kv_attach()'s memory instead of `rows`; or NULL */
    size_t first, stored;
    size_t committed; /* rows before this position have memory */
    /* Growth in advance: rows from `committed` to `ahead` of the first `ahead_heads` heads have
     * memory, too */
    size_t ahead, ahead_heads;
    size_t refs;
};

/* Maximum shared segments of a chain: the common prefix of several prompts, and the rest of one. */
enum { KV_CHAIN_SHARED = 2 };

/* Tails of beams that continue one prompt in lockstep and read each other's entries (segment paper
 * 3.3); freed with the last beam that leaves. Each beam writes to its own tail. Entries older
 * than the latest common ancestor of all beams are moved to the first tail. All tails have
 * the same layout. */
struct kv_beam_group {
    size_t refs, n;
    size_t filled; /* entries before this position may be read by other beams */
    size_t common; /* entries before this position, a multiple of a tile, are in the first tail */
    struct kv_segment *tail[];
};

struct kv_chain {
    struct {
        struct kv_segment *segment;
        size_t end; /* position where the next segment begins */
    } shared[KV_CHAIN_SHARED];
    size_t n_shared;
    struct kv_segment *tail;
    struct kv_beam_group *group; /* beam group that the tail belongs to, or NULL */
    /* Where each entry from position chain_tail_at() on is: its offset in bytes from a head's
     * first row in the group's first tail. [n_index], filled up to whole tiles; entries behind
     * n_index are in the chain's own tail. */
    ptrdiff_t *index;
    size_t n_index, index_cap;
    bool prompt; /* the tail contains a prompt, which is worth sharing */
};

static struct kv_chain *chain_of(const struct kv *kv, size_t seq)
{
    return (struct kv_chain *)kv->store + seq;
}

/* First position of the tail. */
static size_t chain_tail_at(const struct kv_chain *c)
{
    return c->n_shared ? c->shared[c->n_shared - 1].end : 0;
}

/* Number of rows to allocate for a sequence of `rows` rows: rounded up to r, at most N. */
static size_t segment_cap(const struct kv *kv, size_t rows)
{
    return size_min(round_up(rows, kv->setup.r), kv->setup.shape.max_rows);
}

/* ---- segments and chains ---- */

static size_t segment_bytes(const struct kv *kv, const struct kv_segment *s)
{
    return kv_token_bytes(kv) * s->stored;
}

static struct device_addr segment_row(const struct kv *kv, const struct kv_segment *s, size_t head,
                                      size_t position)
{
    const struct kv_head *h = &kv->head[head];
    const size_t at = (position - s->first) * h->bytes;
    if (!s->attached)
        return addr_add(s->rows, h->before * s->stored + at);
    const struct kv_layer_rows *layer = &s->attached[h->layer];
    const size_t index = head - kv->first_head[h->layer],
                 heads = kv_layer_sizes(kv, h->layer)->kv_heads;
    return addr_add(index >= heads ? layer->v : layer->k, index % heads * s->stored * h->bytes + at);
}

static struct device_addr chain_row(const struct kv *kv, const struct kv_chain *c, size_t head,
                                    size_t row)
{
    for (size_t i = 0; i < c->n_shared; i++)
        if (row < c->shared[i].end)
            return segment_row(kv, c->shared[i].segment, head, row);
    const size_t first = chain_tail_at(c);
    if (c->group && row < c->group->common)
        return segment_row(kv, c->group->tail[0], head, row);
    return row - first < c->n_index ? addr_add(segment_row(kv, c->group->tail[0], head, first),
                                               (size_t)c->index[row - first])
                                    : segment_row(kv, c->tail, head, row);
}

/* Bytes of a row in heads [head, end). */
static size_t heads_bytes(const struct kv *kv, size_t head, size_t end)
{
    return kv->head[end].before - kv->head[head].before;
}

/* Bytes of memory behind `committed`. */
static size_t bytes_ahead(const struct kv *kv, const struct kv_segment *s)
{
    return s->ahead_heads ? heads_bytes(kv, 0, s->ahead_heads) * (s->ahead - s->committed) : 0;
}

/* Drops a reference; the last one frees the segment. NULL is accepted. */
static void segment_unref(struct kv *kv, struct kv_segment *s)
{
    if (!s || --s->refs)
        return;
    kv_count_memory(kv, 0, kv_token_bytes(kv) * (s->committed - s->first) + bytes_ahead(kv, s));
    if (!addr_is_null(s->rows))
        kv->memory->release(s->rows, segment_bytes(kv, s));
    free(s->attached);
    free(s);
}

/* Commits rows from `committed` to `end` of heads [head, end_head), and counts them. */
static bool commit_heads(struct kv *kv, const struct kv_segment *s, size_t head, size_t end_head,
                         size_t end)
{
    const double start = clock_ms();
    const bool ok = kv_commit_memory(kv, s->rows, s->stored, head, end_head, s->committed - s->first,
                                     end - s->first);
    kv_count_memory(kv, ok ? heads_bytes(kv, head, end_head) * (end - s->committed) : 0, 0);
    kv->stats.alloc_ms += clock_ms() - start;
    return ok;
}

/* Completes growth in advance, if some was done, to rows before `ahead` in all heads. */
static bool complete_ahead(struct kv *kv, struct kv_segment *s)
{
    if (!s->ahead_heads)
        return true;
    if (!commit_heads(kv, s, s->ahead_heads, kv->n_heads, s->ahead))
        return false;
    s->committed = s->ahead;
    s->ahead_heads = 0;
    return true;
}

static int segment_commit(struct kv *kv, struct kv_segment *s, size_t cap, struct err *err)
{
    const size_t end = round_up(cap, TILE_ROWS), rows = end > s->committed ? end - s->committed : 0;
    if (addr_is_null(s->rows) || !complete_ahead(kv, s) ||
        (end > s->committed && !commit_heads(kv, s, 0, kv->n_heads, end)))
        return err_no_memory(err, "%zu rows of KV cache, %zu bytes; use a smaller -c or -np", rows,
                             rows * kv_token_bytes(kv));
    s->committed = size_max(end, s->committed);
    return 0;
}

/* Before a forward pass of `rows` rows, which have been allocated: does the pass's part of the next
 * growth event (kv_prepare.h). Does nothing if memory is short. */
static void chain_advance(struct kv *kv, size_t seq, size_t rows)
{
    struct kv_segment *s = chain_of(kv, seq)->tail;
    const size_t end = round_up(kv_prepare_due(kv, seq, rows), TILE_ROWS);
    if (!s || end <= s->committed || (s->ahead_heads && s->ahead != end))
        return;
    const size_t heads = kv_prepare_share(kv, seq, rows, kv->n_heads, s->ahead_heads);
    if (!heads || !commit_heads(kv, s, s->ahead_heads, s->ahead_heads + heads, end))
        return;
    s->ahead = end;
    s->ahead_heads += heads;
}

/* Huge pages take memory for rows that do not exist yet, so they are for segments that begin nearly full, as those of shared
 * prompts do, unless they are asked for. */
static enum vm_alloc pages_of(const struct kv *kv, const struct kv_segment *s, size_t cap)
{
    const bool full = cap >= s->first && cap - s->first >= s->stored / 8 * 7;
    return kv->spec.alloc == VM_POOL && full ? VM_THP : kv->spec.alloc;
}

/* Opens a segment for positions from `first` on, with memory for those before `cap`, or NULL. */
static struct kv_segment *segment_open(struct kv *kv, size_t first, size_t cap, struct err *err)
{
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    if (!s) {
        err_no_memory(err, "the cache's tables");
        return NULL;
    }
    *s = (struct kv_segment){.first = first, .committed = first, .refs = 1};
    s->stored = round_up(kv->setup.shape.max_rows, TILE_ROWS) - first;
    s->rows = kv->memory->reserve(pages_of(kv, s, cap), segment_bytes(kv, s));
    if (segment_commit(kv, s, cap, err) == 0)
        return s;
    segment_unref(kv, s);
    return NULL;
}

/* Releases the memory of a segment's rows from position `cap` on, in whole tiles, and of growth in advance. */
static void shrink(struct kv *kv, struct kv_segment *s, size_t cap)
{
    const size_t end = size_max(round_up(cap, TILE_ROWS), s->first);
    const size_t rows = s->committed > end ? s->committed - end : 0;
    for (size_t h = 0; rows && h < kv->n_heads; h++) {
        const size_t behind = h < s->ahead_heads ? s->ahead - s->committed : 0;
        kv->memory->drop(segment_row(kv, s, h, end), (rows + behind) * kv->head[h].bytes);
    }
    if (!rows)
        return;
    kv_count_memory(kv, 0, rows * kv_token_bytes(kv) + bytes_ahead(kv, s));
    s->committed -= rows;
    s->ahead_heads = 0;
}

/* Implements kv_policy.shrink: drops the pages of unused rows, in shared segments of those that no other sequence has. */
static void chain_shrink(struct kv *kv, size_t seq)
{
    struct kv_chain *c = chain_of(kv, seq);
    const size_t n = kv->seq[seq].n;
    for (size_t i = 0; i < c->n_shared; i++)
        if (c->shared[i].segment->refs == 1)
            shrink(kv, c->shared[i].segment, n);
    if (!c->tail || c->group)
        return;
    shrink(kv, c->tail, segment_cap(kv, n));
    kv->seq[seq].cap = size_min(kv->seq[seq].cap, segment_cap(kv, n));
}

static int chain_open(struct kv *kv, struct err *err)
{
    size_t bytes;
    if (!size_mul(kv_token_bytes(kv), round_up(kv->setup.shape.max_rows, TILE_ROWS), &bytes))
        return err_set(err, "a reservation of %zu rows is larger than the address space",
                       kv->setup.shape.max_rows);
    kv->store = mem_zalloc(kv->setup.n_seqs, sizeof(struct kv_chain));
    return kv->store ? 0 : err_no_memory(err, "the cache's tables");
}

static struct device_addr chain_row_at(const struct kv *kv, size_t seq, size_t head, size_t row)
{
    return chain_row(kv, chain_of(kv, seq), head, row);
}

static int chain_attach(struct kv *kv, size_t seq, const struct kv_layer_rows *layer, size_t rows,
                        size_t stored, struct err *err)
{
    (void)rows;
    struct kv_chain *c = chain_of(kv, seq);
    struct kv_segment *s = mem_alloc(1, sizeof *s);
    struct kv_layer_rows *attached = mem_alloc(kv->setup.shape.layers, sizeof *attached);
    if (!s || !attached) {
        free(s);
        free(attached);
        return err_no_memory(err, "the cache's tables");
    }
    memcpy(attached, layer, kv->setup.shape.layers * sizeof *layer);
    *s = (struct kv_segment){.attached = attached, .stored = stored, .refs = 1};
    c->shared[0].segment = s;
    c->shared[0].end = stored;
    c->n_shared = 1;
    return 0;
}

/* Makes a span of a segment's rows at positions [at, end); its `k` and `v` point to the row at
 * position `base`, from which row offsets count. */
static struct kv_span span_of(const struct kv *kv, const struct kv_view *view,
                              const struct kv_segment *s, size_t base, size_t at, size_t end)
{
    const size_t k_bytes = kv_row_bytes(kv, view->layer, KV_K),
                 v_bytes = kv_row_bytes(kv, view->layer, KV_V);
    return (struct kv_span){
        .k = segment_row(kv, s, kv_k_head(kv, view->layer, view->head), base),
        .v = segment_row(kv, s, kv_v_head(kv, view->layer, view->head), base),
        .head_stride = {s->stored * k_bytes, s->stored * v_bytes},
        .row_stride = {k_bytes, v_bytes},
        .first = at,
        .rows = end - at,
        .valid = end - at,
    };
}

/* Fills a view with a span per shared segment, one of the entries common to the beam group, and one
 * of the sequence's other entries. */
static int chain_view(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                      struct kv_view *view, struct err *err)
{
    const struct kv_chain *c = chain_of(kv, seq);
    const size_t first = chain_tail_at(c), common = c->group ? c->group->common : 0;
    struct kv_span *span = view->inline_span;
    size_t at = 0;
    (void)heads;
    (void)err;
    view->layer = layer;
    view->head = head;
    for (size_t i = 0; i < c->n_shared && at < valid; at = c->shared[i++].end)
        *span++ = span_of(kv, view, c->shared[i].segment, at, at, size_min(c->shared[i].end, valid));
    if (common > first && at < valid) {
        *span++ = span_of(kv, view, c->group->tail[0], at, at, size_min(common, valid));
        at = common;
    }
    if (at < valid && c->n_index) {
        *span = span_of(kv, view, c->group->tail[0], first, at, valid);
        span++->row = c->index + (at - first);
    } else if (at < valid) {
        *span++ = span_of(kv, view, c->tail, at, at, valid);
    }
    view->offset[KV_K] = view->offset[KV_V] = 0;
    view->span = view->inline_span;
    view->n_spans = (size_t)(span - view->inline_span);
    return 0;
}

/* A growth event: allocates memory in the tail for a sequence of `rows` rows in total. */
static int chain_grow(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_chain *c = chain_of(kv, seq);
    const size_t cap = segment_cap(kv, rows);
    if (!c->tail && !(c->tail = segment_open(kv, chain_tail_at(c), cap, err)))
        return -1;
    if (segment_commit(kv, c->tail, cap, err) < 0)
        return -1;
    kv->stats.allocations++;
    kv->seq[seq].cap = cap;
    return 0;
}

/* Returns a new segment with copies of a chain's rows at positions [first, end), its capacity
 * rounded up to r; NULL on error. */
static struct kv_segment *chain_copy(struct kv *kv, const struct kv_chain *c, size_t first, size_t end,
                                     struct err *err)
{
    struct kv_segment *to = segment_open(kv, first, segment_cap(kv, end), err);
    const double start = clock_ms();
    const size_t bytes = kv->head[0].bytes;
    struct kv_copies copies;
    kv_copies_begin(&copies, kv);
    for (size_t at = first, next; to && at < end; at = next) {
        const struct device_addr from = chain_row(kv, c, 0, at);
        for (next = at + 1;
             next < end && addr_equal(chain_row(kv, c, 0, next), addr_add(from, (next - at) * bytes));)
            next++;
        for (size_t h = 0; h < kv->n_heads; h++)
            kv_copies_add(&copies, segment_row(kv, to, h, at), chain_row(kv, c, h, at),
                          (next - at) * kv->head[h].bytes, 0);
    }
    kv_copies_end(&copies);
    kv->stats.copy_ms += clock_ms() - start;
    kv->stats.copied_rows += to ? end - first : 0;
    return to;
}

/* Drops the chain's references to its tail and beam group, which are freed with the last one. */
static void chain_drop_tail(struct kv *kv, struct kv_chain *c)
{
    struct kv_beam_group *group = c->group;
    if (!group)
        segment_unref(kv, c->tail);
    else if (--group->refs == 0) {
        for (size_t i = 0; i < group->n; i++)
            segment_unref(kv, group->tail[i]);
        free(group);
    }
    free(c->index);
    c->index = NULL;
    c->n_index = c->index_cap = 0;
    c->group = NULL;
    c->tail = NULL;
}

/* Drops a sequence's shared rows from position `end` on, and replaces its tail by `tail`, which may
 * be NULL. */
static void chain_truncate(struct kv *kv, size_t seq, size_t end, struct kv_segment *tail)
{
    struct kv_chain *c = chain_of(kv, seq);
    chain_drop_tail(kv, c);
    while (c->n_shared && (c->n_shared > 1 ? c->shared[c->n_shared - 2].end : 0) >= end)
        segment_unref(kv, c->shared[--c->n_shared].segment);
    if (c->n_shared)
        c->shared[c->n_shared - 1].end = end;
    c->tail = tail;
    c->prompt = false;
    kv->seq[seq].cap = tail ? segment_cap(kv, kv->seq[seq].n) : end;
}

/* Copies a sequence's rows from position `end` on, which other sequences may read or which are in
 * the memory of kv_attach(), to a new tail of its own. */
static int chain_make_private(struct kv *kv, size_t seq, size_t end, struct err *err)
{
    const size_t n = kv->seq[seq].n;
    struct kv_segment *tail = n > end ? chain_copy(kv, chain_of(kv, seq), end, n, err) : NULL;
    if (n > end && !tail)
        return -1;
    chain_truncate(kv, seq, end, tail);
    kv->seq[seq].attached = false;
    return 0;
}

/* Turns the tail's rows before position `end`, if they belong to a prompt, into a segment that can
 * be shared; later rows are copied to a new tail. */
static int chain_share(struct kv *kv, size_t seq, size_t end, struct err *err)
{
    struct kv_chain *c = chain_of(kv, seq);
    const size_t n = kv->seq[seq].n;
    if (c->group || c->n_shared == KV_CHAIN_SHARED || end <= chain_tail_at(c) ||
        (c->n_shared && !c->prompt))
        return 0;
    struct kv_segment *tail = n > end ? chain_copy(kv, c, end, n, err) : NULL;
    if (n > end && !tail)
        return -1;
    c->shared[c->n_shared].segment = c->tail;
    c->shared[c->n_shared++].end = end;
    shrink(kv, c->tail, end); /* later rows were copied to `tail` */
    c->tail = NULL;
    chain_truncate(kv, seq, end, tail);
    return 0;
}

/* ---- index selection ----
 *
 * Index selection: reordered beams read each other's entries in place (segment paper 3.3).
 *
 * The index of a beam has the offset of every entry behind the prompt. It is valid for K and V of
 * every layer and head, since the tails of a beam group have the same layout. A child
 * copies its parent's index, and no entry moves; attention finds each row through the index.
 *
 * Layers whose rows differ in size, of K or of V, have no common offsets: their beams are forked
 * instead.
 *
 * Entries older than the latest common ancestor of all beams are moved to the group's first tail,
 * once each, as soon as they fill a tile: attention reads them contiguously, once for all beams. */

static bool differ_in_tails_only(const struct kv *kv, size_t a, size_t b)
{
    const struct kv_chain *x = chain_of(kv, a), *y = chain_of(kv, b);
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
        struct kv_chain *c = chain_of(kv, seq[i]);
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
    const struct kv_chain *x = chain_of(kv, a), *y = chain_of(kv, b);
    const size_t first = chain_tail_at(x), n = size_min(kv->seq[a].n, kv->seq[b].n);
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
    const struct kv_chain *c = chain_of(kv, seq[0]);
    const size_t first = chain_tail_at(c), bytes = kv->head[0].bytes;
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
            const struct device_addr rows = segment_row(kv, c->group->tail[0], h, first);
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
    struct kv_beam_group *group = chain_of(kv, seq[0])->group;
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

/* Extends a chain's index, if it has one, to n rows; to be called before these rows are written. */
static int chain_index_extend(struct kv *kv, struct kv_chain *c, size_t n, struct err *err)
{
    const size_t end = round_up(n - size_min(n, chain_tail_at(c)), TILE_ROWS);
    if (!c->n_index)
        return 0;
    if (grow_index(c, end, err) < 0)
        return -1;
    add_own(kv, c, end);
    return 0;
}

/* Truncates the index to the chain's first n rows. */
static void chain_index_truncate(struct kv_chain *c, size_t n)
{
    c->n_index = size_min(c->n_index, n - chain_tail_at(c));
}

static int alias(struct kv *kv, size_t to, size_t from, struct err *err)
{
    struct kv_chain *t = chain_of(kv, to);
    const struct kv_chain *f = chain_of(kv, from);
    const size_t first = chain_tail_at(f), n = kv->seq[from].n - first;
    const size_t end = round_up(n, TILE_ROWS);
    if (grow_index(t, end, err) < 0)
        return -1;
    for (size_t i = size_max(f->group->common, first) - first; i < n; i++)
        t->index[i] = offset_of(kv, f, i);
    t->n_index = n;
    add_own(kv, t, end);
    return 0;
}

static bool same_row_bytes(const struct kv *kv)
{
    bool same = true;
    for (size_t h = 0; h < kv->n_heads; h++)
        same = same && kv->head[h].bytes == kv->head[0].bytes;
    return same;
}

/* Implements kv_policy.alias: reorders beams that differ only in their tails, by letting them read
 * each other's entries. */
static int chain_alias(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to,
                       size_t n, struct err *err)
{
    if (!same_row_bytes(kv) || !begin_alias(kv, seq, n))
        return 1;
    for (size_t i = 0; i < n; i++)
        if (to[i] != seq[parent[i]] && alias(kv, to[i], seq[parent[i]], err) < 0)
            return -1;
    return 0;
}

/* ---- segment ---- */

static int ensure(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    struct kv_seq *s = &kv->seq[seq];
    struct kv_chain *c = chain_of(kv, seq);
    const size_t tail_at = size_min(s->n / TILE_ROWS * TILE_ROWS, chain_tail_at(c));
    const bool read_by_others = s->n < chain_tail_at(c) || (c->group && s->n < c->group->filled);
    if (read_by_others && !s->attached && chain_make_private(kv, seq, tail_at, err) < 0)
        return -1;
    c->prompt = c->prompt || rows > kv->setup.r;
    if (chain_index_extend(kv, c, s->n + rows, err) < 0)
        return -1;
    if (s->n + rows > s->cap)
        return chain_grow(kv, seq, s->n + rows, err);
    chain_advance(kv, seq, rows);
    return 0;
}

static void accept(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    struct kv_chain *c = chain_of(kv, seq);
    const size_t n = rows + n_extra;
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (n >= chain_tail_at(c) && n) {
        chain_index_truncate(c, n);
        return;
    }
    chain_drop_tail(kv, c);
    kv->seq[seq].cap = n; /* later rows of a shared segment may be in use by other sequences */
    if (!n)
        chain_truncate(kv, seq, 0, NULL);
}

/* A chain of the shared segments of `c` only, cut at position `end`, a multiple of TILE_ROWS. */
static struct kv_chain shared_part(const struct kv_chain *c, size_t end)
{
    struct kv_chain part = {0};
    for (size_t i = 0; i < c->n_shared && chain_tail_at(&part) < end; i++) {
        part.shared[part.n_shared] = c->shared[i];
        part.shared[part.n_shared++].end = size_min(end, c->shared[i].end);
    }
    return part;
}

static int fork_rows(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    const size_t whole = rows / TILE_ROWS * TILE_ROWS;
    if ((kv->seq[from].attached && chain_make_private(kv, from, 0, err) < 0) ||
        chain_share(kv, from, whole, err) < 0)
        return -1;
    const struct kv_chain *c = chain_of(kv, from);
    struct kv_chain part = shared_part(c, whole);
    const size_t first = chain_tail_at(&part);
    if (rows > first && !(part.tail = chain_copy(kv, c, first, rows, err)))
        return -1;
    for (size_t i = 0; i < part.n_shared; i++)
        part.shared[i].segment->refs++;
    *chain_of(kv, to) = part;
    kv->seq[to].cap = part.tail ? segment_cap(kv, rows) : rows;
    kv->stats.allocations += part.tail != NULL;
    return 0;
}

/* ---- reserve ---- */

/* Implements kv_policy.accept: compacts rows in place; memory is freed only if no row is kept. */
static void accept_private(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra)
{
    kv_rows_compact(kv, seq, rows, extra, n_extra);
    if (rows + n_extra == 0)
        chain_truncate(kv, seq, 0, NULL);
}

static int fork_private(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err)
{
    struct kv_chain *c = chain_of(kv, to);
    c->tail = chain_copy(kv, chain_of(kv, from), 0, rows, err);
    if (!c->tail)
        return -1;
    kv->seq[to].cap = segment_cap(kv, rows);
    kv->stats.allocations++;
    return 0;
}

#define GROWS_IN_PLACE                                                                                 \
    .attend = KV_ATTEND_VALID, .open = chain_open, .ensure = ensure, .row_at = chain_row_at,           \
    .append = kv_rows_append, .view = chain_view, .attach = chain_attach, .shrink = chain_shrink

const struct kv_policy kv_policy_segment = {
    .name = "segment",
    .growth = &kv_grow_in_segments,
    .shares_prefix = true,
    GROWS_IN_PLACE,
    .accept = accept,
    .fork = fork_rows,
    .alias = chain_alias,
};

const struct kv_policy kv_policy_reserve = {
    .name = "reserve",
    .growth = &kv_grow_in_steps,
    GROWS_IN_PLACE,
    .accept = accept_private,
    .fork = fork_private,
};
