/* What the ranks of a split model send each other for a step of decoding, by arithmetic. A test holds it against what ranks count. */
#ifndef BMC_SENT_H
#define BMC_SENT_H

#include "model/config.h"

enum transfer_kind {
    TRANSFER_GATHER,  /* all ranks get the pieces of all */
    TRANSFER_COLLECT, /* rank 0 gets them */
    TRANSFER_HOP,     /* from one rank to another */
    TRANSFER_ORDER,   /* from rank 0 to each of the others, in two messages */
};

struct transfer {
    enum transfer_kind kind;
    size_t bytes; /* of all pieces together */
    size_t times; /* in a step */
    size_t waits; /* of these, those that nothing goes on beside */
};

struct transfers {
    struct transfer list[32];
    size_t n;
};

/* Of a step that gives each of `rows` sequences a token, each with its logits. */
struct transfers sent_by_tensor(const struct config *config, size_t rows);
struct transfers sent_by_layers(const struct config *config, size_t ranks, size_t rows);

/* Sums over all ranks, counted as struct ranks counts them. */
size_t transfers_bytes(const struct transfers *transfers, size_t ranks);
size_t transfers_calls(const struct transfers *transfers, size_t ranks);

#endif
