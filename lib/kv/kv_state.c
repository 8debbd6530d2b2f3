/* The recurrent state of a cache's sequences. */
#include "kv/kv_state.h"

#include <assert.h>

static size_t position_of(const struct kv *kv, size_t seq)
{
    return kv->seq[seq].first + kv->seq[seq].n;
}

void kv_count_state(struct kv *kv)
{
    const size_t bytes = state_resident_bytes(kv->state);
    kv->stats.resident_bytes = kv->stats.resident_bytes - kv->state_bytes + bytes;
    kv->stats.peak_bytes = size_max(kv->stats.peak_bytes, kv->stats.resident_bytes);
    kv->state_bytes = bytes;
}

int kv_state_begin(struct kv *kv, size_t seq, size_t rows, struct err *err)
{
    if (!kv->state)
        return 0;
    const int rc = state_begin(kv->state, seq, position_of(kv, seq), rows, err);
    kv_count_state(kv);
    return rc;
}

void kv_state_accept(struct kv *kv, size_t seq, const size_t *row, size_t n)
{
    if (!kv->state)
        return;
    state_accept(kv->state, seq, row, n);
    kv_count_state(kv);
}

void kv_state_truncate(struct kv *kv, size_t seq, size_t end)
{
    if (!kv->state)
        return;
    state_truncate(kv->state, seq, position_of(kv, seq), end);
    kv_count_state(kv);
}

void kv_state_fork(struct kv *kv, size_t to, size_t from, size_t end)
{
    if (kv->state)
        state_fork(kv->state, to, from, position_of(kv, from), end);
}

int kv_state_reorder(struct kv *kv, const size_t *seq, const size_t *parent, const size_t *to, size_t n,
                     struct err *err)
{
    return kv->state ? state_reorder(kv->state, seq, parent, to, n, err) : 0;
}

size_t kv_rewind(const struct kv *kv, size_t seq, size_t end)
{
    return kv->state ? state_rewind(kv->state, seq, position_of(kv, seq), end) : end;
}

void kv_mark(struct kv *kv, size_t seq, size_t position)
{
    if (kv->state)
        state_mark(kv->state, seq, position_of(kv, seq), position);
}

void kv_state_view(struct kv *kv, size_t seq, size_t layer, bool tree, struct state_view *view)
{
    assert(kv->state && layer < kv->setup.state.layers);
    state_view(kv->state, seq, layer, tree, view);
}

bool kv_has_state(const struct kv *kv) { return kv->state != NULL; }

size_t kv_state_bytes(const struct kv *kv) { return kv->state ? state_bytes(&kv->setup.state) : 0; }

size_t kv_state_held_bytes(const struct kv *kv, size_t seq) { return state_held_bytes(kv->state, seq); }

size_t kv_state_positions(const struct kv *kv, size_t seq, size_t *list, size_t most)
{
    return kv->state ? state_positions(kv->state, seq, position_of(kv, seq), list, most) : 0;
}

void kv_state_read(const struct kv *kv, size_t seq, size_t position, void *to)
{
    state_read(kv->state, seq, position_of(kv, seq), position, to);
}

int kv_state_load(struct kv *kv, size_t seq, const void *state, struct err *err)
{
    const int rc = state_load(kv->state, seq, position_of(kv, seq), state, err);
    kv_count_state(kv);
    return rc;
}
