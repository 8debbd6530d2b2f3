/* What a decoder is: its sizes and traits. The same "key value" lines stand in shape files, come out of
 * a family file applied to config.json, and lie in model.bmc. One table (config.c) lists the keys. */
#ifndef BMC_CONFIG_H
#define BMC_CONFIG_H

#include "base/conf.h"
#include "base/err.h"
#include "base/mem.h"

enum norm { NORM_LAYER, NORM_RMS };
enum norm_place { NORM_BEFORE, NORM_AFTER };
enum position { POSITION_LEARNED, POSITION_ROPE };
enum activation { ACT_RELU, ACT_SILU, ACT_GELU, ACT_GELU_TANH };
enum mlp { MLP_PLAIN, MLP_GATED };
enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3 };

enum { MAX_EOS = 8 };

struct config {
    char family[32];
    size_t layers;
    size_t hidden;   /* width of the residual stream */
    size_t embed;    /* width of the embedding; projected to `hidden` where they differ */
    size_t heads;    /* H */
    size_t kv_heads; /* H / G */
    size_t head_dim; /* d */
    size_t ffn;
    size_t vocab;
    size_t context;         /* N at most */
    size_t position_offset; /* learned positions: row = position + offset */
    int norm, norm_place, position, activation, mlp, rope_scaling;
    bool norm_affine; /* LayerNorm has gain and bias */
    bool final_norm;
    bool bias_qkv, bias_out, bias_mlp;
    bool tied_head; /* the head is the embedding */
    double norm_eps;
    double rope_theta, rope_factor, rope_low, rope_high;
    size_t rope_original; /* context before scaling, llama3 */
    uint32_t eos[MAX_EOS];
    size_t n_eos;
};

/* Reads and checks every key; `conf` may have others. */
int config_read(struct config *config, const struct conf *conf, struct err *err) MUST_USE;

/* Writes the keys, one line each, in the table's order: the same configuration gives the same text. */
int config_write(const struct config *config, struct buf *text, struct err *err) MUST_USE;

/* True when the table has a key of that name. */
bool config_has_key(const char *name);

#endif
