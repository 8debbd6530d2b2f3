/* The weights of a decoder, bound in place in the mapped file. */
#ifndef BMC_WEIGHTS_H
#define BMC_WEIGHTS_H

#include "base/dtype.h"
#include "format/bmcfile.h"
#include "model/config.h"

/* Gain and bias are NULL where the family has none. */
struct norm_weights {
    const float *gain, *bias; /* [hidden]; of queries and keys [d], or all their width */
};

struct linear {
    struct mat weight; /* [out][in] */
    const float *bias; /* [out] or NULL */
    size_t skip;       /* leading outputs that another rank has, too (part.h) */
};

struct layer {
    struct norm_weights attn_norm, attn_post_norm; /* of a half's input or the sum; of its output */
    struct linear q, k, v;                         /* [H*d][hidden], [KV*d][hidden] twice */
    struct norm_weights q_norm, k_norm;
    struct linear out; /* [hidden][H*d] */
    struct norm_weights mlp_norm, mlp_post_norm;
    struct linear gate, up; /* [ffn][hidden]; gate only in gated MLPs */
    struct linear down;     /* [hidden][ffn] */
};

struct weights {
    struct mat embed;          /* [vocab][embed] */
    struct mat position;       /* [context + offset][hidden], learned positions only */
    struct linear project_in;  /* [hidden][embed] where they differ */
    struct linear project_out; /* [embed][hidden] */
    struct norm_weights embed_norm, final_norm;
    struct linear head; /* [vocab][embed], the same bytes as `embed` when tied */
    struct layer *layer;
};

/* Binds every tensor that the configuration asks for; checks each one's type and shape. */
int weights_bind(struct weights *weights, const struct config *config, const struct bmc_file *file,
                 const char *path, struct err *err) MUST_USE;
void weights_release(struct weights *weights);

#endif
