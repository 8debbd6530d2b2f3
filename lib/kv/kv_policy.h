/* What a cache policy is, and what it sees of a cache. Users of a cache include kv.h only. */
#ifndef BMC_KV_POLICY_H
#define BMC_KV_POLICY_H

#include <stdatomic.h>

#include "kv/kv.h"

/* What a rule of growth knows: how the option is spelled, and how many rows an allocation adds. */
struct kv_growth {
    /* What follows the colon of the option. NULL: nothing may. `text` is all of it. */
    int (*parse)(struct kv_spec *spec, const char *text, const char *parameter, struct err *err);

    /* r; sets kv->setup.T_from if it is not the policy's. */
    size_t (*rows)(struct kv *kv, const struct kv_spec *spec);
    const char *
        before_r; /* what stands between the colon and r where a snapshot keeps it; NULL: it keeps no r */
    bool in_steps; /* rows up to the next growth are free */
};

/* A part "S=64" of a parameter that has several, with commas between them. */
struct kv_key {
    const char *name; /* with its = */
    bool (*take)(struct kv_spec *spec, const char *value);
};

/* kv_growth.c: takes the parts, by at most 8 keys; `text` is all of the option, and `expected` says what may stand behind its
 * colon. */
int kv_take_parts(struct kv_spec *spec, const char *text, const char *parameter,
                  const struct kv_key *keys, size_t n_keys, const char *expected,
                  struct err *err) MUST_USE;

/* kv_growth.c: a row at a time (T = N), all at once (T = 1), T or r given or else picked, blocks of 16 or 32, T or r given
 * or else 16 rows, a window of r = S rows and its slack at once. */
extern const struct kv_growth kv_grow_every_row, kv_grow_once, kv_grow_in_steps, kv_grow_in_blocks,
    kv_grow_in_segments, kv_grow_window;

/* grow_on_disk.c: how much memory, which folder, how many heads together. */
extern const struct kv_growth kv_grow_on_disk;

/* Which rows attention multiplies is part of the policy: that trade is what the papers are about. WINDOW: as many as a full
 * window has, padded on the left. */
enum kv_rows { KV_ROWS_VALID, KV_ROWS_CAP, KV_ROWS_WINDOW };

/* What some policies do around views; each may be NULL. */
struct kv_reading {
    /* Begins to fetch heads that will be viewed next, as kv_announce() says; what is there already, or under way, is
     * left alone. Rows that are appended meanwhile belong to them. What goes wrong is said by view(). Only asked where
     * kv->setup.heads_at_once is set; such a policy adopts nothing. */
    void (*announce)(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads);

    /* Leading committed rows that two sequences share: attention may read those of one for the other. */
    size_t (*shared)(const struct kv *kv, size_t a, size_t b);

    /* Sequences of equal length that may be reordered without copies: join() makes ready, or says that they are not of that
     * kind; then follow() makes `to` what `from` is. Both or none. */
    bool (*join)(struct kv *kv, const size_t *seq, size_t n);
    int (*follow)(struct kv *kv, size_t to, size_t from, struct err *err);
};

/* To add a policy: a file with such a table, its line in kv_policies.c. Functions that return int give
 * 0, or -1 with `err` filled and the sequence as it was. */
struct kv_policy {
    const char *name;
    const char *summary;
    const struct kv_growth *growth;
    enum kv_rows rows; /* what attention multiplies under --rows policy */

    bool lockstep; /* can grow a batch as one tensor */
    bool sparse;   /* knows heads that do not look far */
    bool
        endless; /* only the last rows are kept, as kv->setup.window has it: a sequence is never full, and n + first goes on */

    const struct kv_reading *reading; /* NULL: nothing of that */

    /* Called once, from kv_open(): kv->spec and kv->setup are set. May set kv->store, and kv->setup.heads_at_once. One that is
     * endless sets kv->setup.window and what stands beside it. */
    int (*open)(struct kv *kv, struct err *err);

    /* Before a step: makes room for `rows` rows after the n committed ones; at most kv_left() of them. */
    int (*room)(struct kv *kv, size_t seq, size_t rows, struct err *err);

    /* Where a row of a head lies, a committed one or one that room has been made for: of K in matrix 2 * layer, of V in
     * 2 * layer + 1. What kv_rows.h does to rows asks for no more. NULL: the policy does without that. It gives NULL for a row
     * that an endless policy does not keep in this layer. */
    char *(*row_at)(const struct kv *kv, size_t seq, size_t matrix, size_t head, size_t row);

    /* Writes rows at positions n + first .. of one layer; k and v are f32 [rows][kv_heads * d] with
     * `stride` elements from row to row. Room has been made. Most take kv_rows_append(). */
    void (*append)(struct kv *kv, size_t seq, size_t layer, size_t first, size_t rows, const float *k,
                   const float *v, size_t stride);

    /* The rows of one layer, heads [head, head + heads), with `valid` rows holding tokens; fills
     * the spans of `view` as kv.h says; the rest is filled. Called from several threads at a time during a step. */
    int (*view)(struct kv *kv, size_t seq, size_t layer, size_t head, size_t heads, size_t valid,
                struct kv_view *view, struct err *err);

    /* The sequence keeps its first `rows` rows and then those at positions extra[0..n_extra), ascending
     * and
     * >= rows, moved down in place. When nothing is kept its storage is given back. */
    void (*keep)(struct kv *kv, size_t seq, size_t rows, const size_t *extra, size_t n_extra);

    /* `to`, empty, begins with the first `rows` rows of `from`. */
    int (*fork)(struct kv *kv, size_t to, size_t from, size_t rows, struct err *err);

    /* `seq`, empty, begins with `rows` rows that lie in memory, `stored` (a multiple of TILE_ROWS) of them
     * per head; layer[l] for every layer. The memory stays the caller's and must be there as long as the
     * sequence is `adopted`, which the policy takes back when it has copied the rows; it may be written to.
     * The front end sets `cap`, and raises it when it has made room in that memory; room() is asked for what
     * goes beyond `stored`. A view's first span, asked for up to `stored` rows, is that memory.
     * NULL: the front end appends the rows instead. */
    int (*adopt)(struct kv *kv, size_t seq, const struct kv_rows_in *layer, size_t rows, size_t stored,
                 struct err *err);

    /* By arithmetic: bytes that a sequence of `rows` rows takes, in memory and elsewhere. NULL: rows up to the next growth, in whole tiles. */
    size_t (*bytes)(const struct kv *kv, size_t rows);

    /* Of those, what must be in memory, while its rows come in steps of `step` at most; 0: what no steps can spare. NULL where
     * memory has no limit. */
    size_t (*least)(const struct kv *kv, size_t rows, size_t step);

    /* Bytes in memory that a prompt of `rows` rows takes where that is beyond the limit, when they come in steps of `step` into a
     * cache that is empty, and `width` - 1 sequences then begin with all of them; 0: it is within it. NULL as with least(). */
    size_t (*beyond)(const struct kv *kv, size_t rows, size_t step, size_t width);

    /* Once, from kv_close(); every sequence is empty already. */
    void (*close)(struct kv *kv);
};

extern const struct kv_policy *const kv_policies[]; /* ended by NULL */

/* One sequence, as policies see it. */
struct kv_seq {
    size_t first;          /* position of the first row */
    size_t n;              /* committed rows */
    size_t pending;        /* rows of the step under way */
    size_t cap;            /* rows made by the policy, <= N */
    size_t expected, step; /* rows that it may come to, and of a step at most; 0: nobody said */
    bool adopted;          /* rows lie in memory that was adopted */
    size_t stored;         /* rows per head of that memory */
    size_t
        clean; /* leading ones of them that attention may read: tokens' rows, and zeros that we wrote */
    void *store; /* the policy's */
};

struct kv {
    const struct kv_policy *policy;
    struct kv_spec spec; /* as it was asked for */
    struct kv_setup setup;
    enum kv_rows rows; /* what views multiply */
    enum pages_alloc alloc;
    bool lockstep;
    struct kv_seq *seq;
    struct kv_stats stats;
    atomic_size_t rounded_rows; /* of a head, K and V for themselves: made from f32, as each is once */
    void *store;                /* the policy's */
};

#endif
