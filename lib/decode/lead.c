/* Orders on their way. */
#include "decode/lead.h"

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

int lead_send(struct lead *lead, struct err *err)
{
    uint64_t bytes = lead->words.len;
    int rc = -1;
    if (lead->failed)
        *err = lead->err;
    else if (lead->ranks->ops->broadcast(lead->ranks, &bytes, sizeof bytes, 0, err) == 0 &&
             lead->ranks->ops->broadcast(lead->ranks, lead->words.data, lead->words.len, 0, err) == 0)
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
    if (ranks->ops->broadcast(ranks, &bytes, sizeof bytes, 0, err) < 0 ||
        buf_reserve(words, bytes, err) < 0 ||
        ranks->ops->broadcast(ranks, words->data, bytes, 0, err) < 0)
        return -1;
    words->len = bytes;
    return 0;
}
