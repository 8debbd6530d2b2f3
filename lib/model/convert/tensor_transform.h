/* How a weight is extracted from a source tensor: the words after the name in a `tensor` line of
 * bmc-family(5). */
#pragma once

#include "model/weight_kinds.h"

enum { TRANSFORM_PARTS = 5 };

struct tensor_transform {
    bool transposed;                                  /* source rows are output columns */
    const struct weight_kind *parts[TRANSFORM_PARTS]; /* weight kinds in a fused tensor, in order */
    size_t n_parts;                                   /* 0: not fused */
    bool by_head;                                     /* fused parts alternate per KV head */
    bool by_query_head, by_key_head; /* ... per query head, or head of keys of recurrent layers */
    bool of_kv_b; /* of k_b or v_b: the source is kv_b, with K and V of a head one after the other */
    bool by_row;  /* parts of the same size alternate row by row */
    size_t turns; /* how often parts alternate; 0, without by_head: each is contiguous */
    bool interleaved;      /* rotary pairs are adjacent instead of half a head apart */
    bool interleaved_head; /* and those of dimensions that are not rotated, too */
    bool plus_one;         /* the source stores gains minus 1 */
    bool exp, negated;     /* the source stores logarithms, or values with the other sign */
    bool per_expert; /* experts have tensors of their own, not one for all; set by the tensor's name */
};

/* Parses "[transposed] [of_kv_b] [part NAME of NAME,.. [by_head | by_query_head | by_key_head |
 * by_row | turns N]] [interleaved | interleaved_head] [plus_one | exp | negated]"; false on a syntax error or if it does not apply to this kind. */
bool tensor_transform_parse(struct tensor_transform *transform, const struct weight_kind *kind,
                            char *const *word, size_t n);
