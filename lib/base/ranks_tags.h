/* What messages between ranks of one model are about. */
#ifndef BMC_RANKS_TAGS_H
#define BMC_RANKS_TAGS_H

enum {
    RANKS_TAG_BYTES = 1, /* of the words that come */
    RANKS_TAG_WORDS,     /* what rank 0 does */
    RANKS_TAG_PIECE,     /* of a row */
    RANKS_TAG_ROWS,      /* a step's, from layer to layer */
    RANKS_TAG_LOGITS,    /* and above it: those of the first question for them, of the next ... */
    RANKS_TAG_END = 1 << 14
};

#endif
