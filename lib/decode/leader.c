/* Sends and receives the command stream, and exchanges statistics between ranks. */
#include "decode/leader.h"

#include <sys/resource.h>

#include "ranks/ranks_tags.h"

void leader_close(struct leader *leader) { buf_release(&leader->words); }

static void add_word(struct leader *leader, uint64_t word)
{
    if (leader && !leader->failed && buf_add(&leader->words, &word, sizeof word, &leader->err) < 0)
        leader->failed = true;
}

void leader_words(struct leader *leader, const size_t *word, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_word(leader, word[i]);
}

void leader_ids(struct leader *leader, const uint32_t *id, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_word(leader, id[i]);
}

void leader_command(struct leader *leader, enum leader_command command, const size_t *word, size_t n)
{
    add_word(leader, command);
    leader_words(leader, word, n);
}

static int send_all(const struct leader *leader, int tag, const void *data, size_t bytes,
                    struct err *err)
{
    int rc = 0;
    for (int r = 1; r < leader->ranks->size && rc == 0; r++)
        rc = leader->ranks->ops->send(leader->ranks, data, bytes, r, tag, err);
    return rc;
}

int leader_send(struct leader *leader, struct err *err)
{
    uint64_t bytes = leader->words.len;
    int rc = -1;
    if (leader->failed)
        *err = leader->err;
    else if (send_all(leader, RANKS_TAG_BYTES, &bytes, sizeof bytes, err) == 0 &&
             send_all(leader, RANKS_TAG_WORDS, leader->words.data, leader->words.len, err) == 0)
        rc = 0;
    buf_clear(&leader->words);
    leader->failed |= rc < 0;
    leader->err = rc < 0 ? *err : leader->err;
    return rc;
}

int leader_end(struct leader *leader, struct err *err)
{
    add_word(leader, COMMAND_END);
    return leader_send(leader, err);
}

int leader_receive(struct ranks *ranks, struct buf *words, struct err *err)
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

int leader_gather_stats(struct ranks *ranks, double wait_ms, struct leader_stats *all, struct err *err)
{
    const size_t size = (size_t)ranks->size;
    struct leader_stats *each = mem_alloc(size, sizeof *each);
    size_t *bytes = mem_alloc(size, sizeof *bytes);
    struct rusage usage;
    int rc = -1;
    getrusage(RUSAGE_SELF, &usage);
    if (!each || !bytes) {
        err_no_memory(err, "the counts of %zu ranks", size);
        goto out;
    }
    for (size_t r = 0; r < size; r++)
        bytes[r] = sizeof *each;
    each[ranks->rank] = (struct leader_stats){ranks->sent_bytes, ranks->calls,
                                              (uint64_t)usage.ru_maxrss * 1024, wait_ms};
    *all = (struct leader_stats){0};
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

int leader_stats(struct leader *leader, double wait_ms, struct leader_stats *all, struct err *err)
{
    add_word(leader, COMMAND_STATISTICS);
    return leader_send(leader, err) < 0 ? -1 : leader_gather_stats(leader->ranks, wait_ms, all, err);
}
