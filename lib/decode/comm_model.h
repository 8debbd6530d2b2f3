/* Model of the communication of one decoding step across ranks: kinds, sizes and numbers of
 * messages. Tests compare it with the counters of struct ranks. */
#pragma once

#include "model/config.h"

enum transfer_kind {
    TRANSFER_GATHER,  /* all-gather */
    TRANSFER_COLLECT, /* gather to rank 0 */
    TRANSFER_HOP,     /* point to point, from one rank to another */
    TRANSFER_COMMAND, /* rank 0 to every other rank: length, then words */
};

struct transfer {
    enum transfer_kind kind;
    size_t bytes; /* of one transfer, the shards of all ranks together */
    size_t times; /* such transfers per decoding step */
    size_t waits; /* of these, those that computation does not overlap */
};

struct transfers {
    struct transfer list[256]; /* each of another kind or size */
    size_t n;
};

/* The transfers of a decoding step of `rows` sequences, one token each, over `ranks` ranks: under tensor parallelism, with
 * `expert_parallel` expert parallelism; and under pipeline parallelism, where rank r has count[r] layers. */
int comm_by_tensor(struct transfers *transfers, const struct config *config, size_t ranks, size_t rows,
                   bool expert_parallel, struct err *err) MUST_USE;
struct transfers comm_by_layers(const struct config *config, const size_t *count, size_t ranks,
                                size_t rows);

/* Bytes sent and calls made by all ranks together, comparable with the counters of struct ranks. */
size_t transfers_bytes(const struct transfers *transfers, size_t ranks);
size_t transfers_calls(const struct transfers *transfers, size_t ranks);
