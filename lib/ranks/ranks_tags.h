/* Tags of messages between the ranks of one model. */
#ifndef BMC_RANKS_TAGS_H
#define BMC_RANKS_TAGS_H

enum {
    RANKS_TAG_BYTES = 1, /* size of a command of rank 0 */
    RANKS_TAG_WORDS,     /* a command of rank 0 */
    RANKS_TAG_PIECE,     /* a rank's share of a weight row */
    RANKS_TAG_ROWS,      /* activations, from pipeline stage to stage */
    RANKS_TAG_LOGITS,    /* and above: logits, a tag for each request */
    RANKS_TAG_END = 1 << 14
};

#endif
