/* Message tags, by which ranks that share one model tell their messages apart. */
#pragma once

enum {
    RANKS_TAG_BYTES = 1, /* size of the following RANKS_TAG_WORDS message, in bytes */
    RANKS_TAG_WORDS,     /* a command from rank 0 to the others */
    RANKS_TAG_PIECE,     /* a rank's slice of the logits, sent to rank 0 */
    RANKS_TAG_ROWS,      /* activations, sent from one pipeline stage to the next */
    RANKS_TAG_OPEN,      /* rank 0 has opened the model: others may */
    RANKS_TAG_LOGITS,    /* and above: logits from the last stage, a tag for each request */
    RANKS_TAG_END = 1 << 14
};
