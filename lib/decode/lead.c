/* Orders on their way. */
#include "decode/lead.h"

#include <stdlib.h>
#include <sys/resource.h>

#include "base/ranks_tags.h"

void lead_open(struct lead *lead, struct ranks *ranks) { *lead = (struct lead){.ranks = ranks}; }

void lead_close(struct lead *lead) { buf_release(&lead->words); }

void lead_word(struct lead *lead, uint64_t word)
{
    if (!lead->failed && buf_add(&lead->words, &word, sizeof word, &lead->err) < 0)
        lead->failed = true;
}

void lead_words(struct lead *lead, const size_t *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lead_word(lead, word[i]);
}

void lead_ids(struct lead *lead, const uint32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        lead_word(lead, id[i]);
}

void lead_order(struct lead *lead, enum order order, const size_t *word, size_t n)
{
    lead_word(lead, order);
    lead_words(lead, word, n);
}

static int send_all(const struct lead *lead, int tag, const void *data, size_t bytes, struct err *err)
{
    int rc = 0;
    for (int r = 1; r < lead->ranks->size && rc == 0; r++)
        rc = lead->ranks->ops->send(lead->ranks, data, bytes, r, tag, err);
    return rc;
}

int lead_send(struct lead *lead, struct err *err)
{
    uint64_t bytes = lead->words.len;
    int rc = -1;
    if (lead->failed)
        *err = lead->err;
    else if (send_all(lead, RANKS_TAG_BYTES, &bytes, sizeof bytes, err) == 0 &&
             send_all(lead, RANKS_TAG_WORDS, lead->words.data, lead->words.len, err) == 0)
        rc = 0;
    buf_clear(&lead->words);
    lead->failed |= rc < 0;
    lead->err = rc < 0 ? *err : lead->err;
    return rc;
}

int lead_end(struct lead *lead, struct err *err)
{
    lead_word(lead, ORDER_END);
    return lead_send(lead, err);
}

int lead_receive(struct ranks *ranks, struct buf *words, struct err *err)
{
    uint64_t bytes = 0;
    buf_clear(words);
    if (ranks_take(ranks, 0, RANKS_TAG_BYTES, &bytes, sizeof bytes, err) < 0 ||
        buf_reserve(words, bytes, err) < 0 ||
        ranks_take(ranks, 0, RANKS_TAG_WORDS, words->data, bytes, err) < 0)
        return -1;
    words->len = bytes;
    return 0;
}

int lead_count(struct ranks *ranks, double wait_ms, struct lead_counts *all, struct err *err)
{
    const size_t size = (size_t)ranks->size;
    struct lead_counts *each = mem_alloc(size, sizeof *each);
    size_t *bytes = mem_alloc(size, sizeof *bytes);
    struct rusage usage;
    int rc = -1;
    getrusage(RUSAGE_SELF, &usage);
    if (!each || !bytes) {
        err_set(err, "out of memory for the counts of %zu ranks", size);
        goto out;
    }
    for (size_t r = 0; r < size; r++)
        bytes[r] = sizeof *each;
    each[ranks->rank] = (struct lead_counts){ranks->sent_bytes, ranks->calls,
                                             (uint64_t)usage.ru_maxrss * 1024, wait_ms};
    *all = (struct lead_counts){0};
    rc = ranks->ops->gather(ranks, each, bytes, err);
    for (size_t r = 0; r < size && rc == 0; r++) {
        all->sent_bytes += each[r].sent_bytes;
        all->calls += each[r].calls;
        all->peak_bytes = size_max(all->peak_bytes, each[r].peak_bytes);
        all->wait_ms += each[r].wait_ms / (double)size;
    }
out:
    free(each);
    free(bytes);
    return rc;
}

int lead_counts(struct lead *lead, double wait_ms, struct lead_counts *all, struct err *err)
{
    lead_word(lead, ORDER_COUNT);
    return lead_send(lead, err) < 0 ? -1 : lead_count(lead->ranks, wait_ms, all, err);
}
