/* What a cache takes, by its policy's arithmetic: nothing is allocated. */
#ifndef BMC_KV_NEED_H
#define BMC_KV_NEED_H

#include "kv/kv.h"

/* Bytes of all layers and heads, of the process that has most of them where several have parts of a model; SIZE_MAX: more than
 * can be counted. */
struct kv_need {
    size_t held;   /* when all rows are there */
    size_t moving; /* beside them, at most, while the last growth copies */
    size_t most;   /* of held, however many there are, for the rest lies elsewhere; 0: no such limit */
    size_t least;  /* of held, what must be within that limit, as kv_need_least() says */
};

/* `width` sequences (beams) go on from one prompt, each until it has `rows` rows, the prompt's among them. */
struct kv_need kv_need(const struct kv *kv, size_t prompt, size_t rows, size_t width);

/* Bytes in memory that a sequence of `rows` rows cannot do without, where they come in steps of `step` at most; 0 where the
 * policy's memory has no limit. */
size_t kv_need_least(const struct kv *kv, size_t rows, size_t step);

/* Bytes that a prompt of `rows` rows must have in memory where they are beyond the policy's limit; 0: they are not. It comes into
 * a cache that is empty, in steps of `step` (0: however), and `width` sequences (beams) then go on from it. */
size_t kv_need_beyond(const struct kv *kv, size_t rows, size_t step, size_t width);

/* All of it can be under way at the same time: it is within its limit, if it has one, or what must be there is. */
bool kv_need_possible(const struct kv *kv, struct kv_need need);

/* Sequences can have rows in common under its policy. */
bool kv_shares_rows(const struct kv *kv);

/* What is copied, and stands twice for a moment, when a sequence of `rows` rows comes to share the first `common` of them; 0
 * where no sequences share rows. */
size_t kv_need_of_fork(const struct kv *kv, size_t rows, size_t common);

/* What others hold, and then this: the sum of what is held, and the larger of what moves, since one sequence grows at a time. */
struct kv_need kv_need_add(struct kv_need a, struct kv_need b);
struct kv_need kv_need_times(struct kv_need need, size_t n);
size_t kv_need_held(struct kv_need need);
size_t kv_need_total(struct kv_need need);

/* How many such needs fit into so many bytes, and into the policy's own limit; SIZE_MAX: any number. */
size_t kv_need_fits(const struct kv *kv, struct kv_need need, size_t bytes);

#endif
