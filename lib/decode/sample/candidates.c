/* Ranking candidates: sorting them, and finding the best. */
#include "decode/sample/sampler.h"

/* True if a ranks before b: a total order, so that results do not depend on the sorting method. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->logit > b->logit || (a->logit == b->logit && a->id < b->id);
}

static int by_rank(const void *a, const void *b) { return before(a, b) ? -1 : 1; }

void candidates_sort(struct candidate *candidate, size_t n)
{
    qsort(candidate, n, sizeof *candidate, by_rank);
}

/* Restores the heap order of heap[0..n) below index `at`. The root is the worst candidate. */
static void sift_down(struct candidate *heap, size_t n, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && before(&heap[child], &heap[child + 1]))
            child++;
        if (!before(&heap[at], &heap[child]))
            return;
        const struct candidate swap = heap[at];
        heap[at] = heap[child];
        heap[child] = swap;
    }
}

void top_logits(const float *logits, size_t n, size_t k, struct candidate *best)
{
    for (size_t i = 0; i < k; i++)
        best[i] = (struct candidate){(uint32_t)i, logits[i], 0};
    for (size_t i = k / 2; i-- > 0;)
        sift_down(best, k, i);
    for (size_t i = k; i < n && k; i++)
        if (logits[i] > best[0].logit) {
            best[0] = (struct candidate){(uint32_t)i, logits[i], 0};
            sift_down(best, k, 0);
        }
    qsort(best, k, sizeof *best, by_rank);
}

/* Lists the allowed ones of n tokens, in order of ids. */
static size_t list_allowed(const float *logits, size_t n, const uint64_t *allowed,
                           struct candidate *list)
{
    size_t found = 0;
    for (size_t at = 0; at < n; at += 64)
        for (uint64_t word = allowed[at / 64]; word; word &= word - 1) {
            const size_t id = at + (size_t)__builtin_ctzll(word);
            if (id < n)
                list[found++] = (struct candidate){(uint32_t)id, logits[id], 0};
        }
    return found;
}

size_t top_allowed(const float *logits, size_t n, size_t k, const uint64_t *allowed,
                   struct candidate *best)
{
    if (!allowed) {
        top_logits(logits, n, size_min(k, n), best);
        return size_min(k, n);
    }
    const size_t found = list_allowed(logits, n, allowed, best);
    k = size_min(k, found);
    for (size_t i = k / 2; i-- > 0;)
        sift_down(best, k, i);
    for (size_t i = k; i < found && k; i++)
        if (before(&best[i], &best[0])) {
            best[0] = best[i];
            sift_down(best, k, 0);
        }
    qsort(best, k, sizeof *best, by_rank);
    return k;
}
