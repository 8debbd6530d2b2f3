/* Model of the communication of one decoding step across ranks: kinds, sizes and numbers of
 * messages. Tests compare it with the counters of struct ranks. */
#ifndef BMC_COMM_MODEL_H
#define BMC_COMM_MODEL_H

#include "model/config.h"

enum transfer_kind {
    TRANSFER_GATHER,  /* all-gather */
    TRANSFER_COLLECT, /* gather to rank 0 */
    TRANSFER_HOP,     /* point to point, from one rank to another */
    TRANSFER_COMMAND, /* rank 0 to every other rank, in two messages */
};

struct transfer {
    enum transfer_kind kind;
    size_t bytes; /* per transfer, all shards together */
    size_t times; /* transfers per step */
    size_t waits; /* of these, how many computation does not hide */
};

struct transfers {
    struct transfer list[32];
    size_t n;
};

/* Transfers to decode one token of each of `rows` sequences: tensor and pipeline parallelism. */
struct transfers comm_by_tensor(const struct config *config, size_t rows);
struct transfers comm_by_layers(const struct config *config, size_t ranks, size_t rows);

/* Bytes sent and calls made by all ranks together, comparable with the counters of struct ranks. */
size_t transfers_bytes(const struct transfers *transfers, size_t ranks);
size_t transfers_calls(const struct transfers *transfers, size_t ranks);

#endif
