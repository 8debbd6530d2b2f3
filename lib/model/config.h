/* What a decoder is: its sizes and traits. The same "key value" lines stand in shape files, come out of
 * a family file applied to config.json, and lie in model.bmc. One table (config.c) lists the keys. */
#ifndef BMC_CONFIG_H
#define BMC_CONFIG_H

#include "base/conf.h"
#include "base/err.h"
#include "base/mem.h"

enum norm { NORM_LAYER, NORM_RMS };
/* Of a half of a layer, attention or MLP: before it, after it joined the stream, on what it gives, or before and on. */
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_ON_OUTPUT, NORM_AROUND };
/* The MLP reads the stream after attention joined it, or before: normed by itself, or as attention reads it. */
enum block_order { BLOCK_SEQUENTIAL, BLOCK_PARALLEL, BLOCK_PARALLEL_SHARED };
enum position { POSITION_LEARNED, POSITION_ROPE, POSITION_ALIBI };
enum activation { ACT_RELU, ACT_SILU, ACT_GELU, ACT_GELU_TANH };
enum mlp { MLP_PLAIN, MLP_GATED };
/* Rotary waves that are made longer: position.c says how. */
enum rope_scaling { ROPE_PLAIN, ROPE_LINEAR, ROPE_LLAMA3, ROPE_YARN, ROPE_DYNAMIC, ROPE_LONGROPE };
/* Norms on queries and keys before they turn: of each head by itself, or of a row as a whole. */
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE };

enum { MAX_EOS = 8, MAX_FACTORS = 128 };

/* A list of numbers in a configuration. */
struct factors {
    size_t n;
    double x[MAX_FACTORS];
};

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
    int norm, norm_place, qk_norm, block, position, activation, mlp, rope_scaling;
    bool embed_norm;  /* the embedding is normed before the first layer */
    bool norm_affine; /* LayerNorm has gain and bias */
    bool final_norm;
    bool bias_qkv, bias_out, bias_mlp, bias_head;
    bool tied_head; /* the head is the embedding */
    double norm_eps;
    double embed_scale; /* of the embedding; 0: 1 */
    double rope_theta, rope_factor, rope_low, rope_high;
    double rope_fast, rope_slow; /* turns within rope_original where yarn begins and ends to stretch */
    bool rope_whole;             /* yarn: these limits become whole elements */
    double rope_gain;            /* of cosines and sines; 0: as the scaling has it */
    struct factors rope_short,
        rope_long;        /* longrope: of each wave, for texts within rope_original, and beyond */
    size_t rope_original; /* context before scaling */
    size_t rope_dim;      /* elements of a head that turn; 0: all */
    size_t window;        /* positions that a layer with a window sees; 0: there is none */
    size_t
        window_every; /* every so manieth layer sees all positions, the others have the window; 0: all have it */
    double attn_scale;                  /* of the scores; 0: 1 / sqrt(head_dim) */
    double attn_softcap, logit_softcap; /* 0: none */
    uint32_t eos[MAX_EOS];
    size_t n_eos;
};

/* Widths of a row of queries, and of one of keys or values. */
static inline size_t config_q_width(const struct config *c) { return c->heads * c->head_dim; }
static inline size_t config_kv_width(const struct config *c) { return c->kv_heads * c->head_dim; }

/* True when what a half gives is normed before it joins the stream. */
static inline bool config_norms_output(const struct config *c)
{
    return c->norm_place >= NORM_ON_OUTPUT;
}

/* Reads and checks every key; `conf` may have others. */
int config_read(struct config *config, const struct conf *conf, struct err *err) MUST_USE;

/* Elements of a head that are rotated, and the window of a layer (0: none). */
size_t config_rope_dim(const struct config *config);
size_t config_window(const struct config *config, size_t layer);

/* Writes the keys that are not at their defaults, one line each, in the table's order: the same configuration gives the same
 * text, and a new key with a default changes none that was written before. */
int config_write(const struct config *config, struct buf *text, struct err *err) MUST_USE;

/* True when the table has a key of that name. */
bool config_has_key(const char *name);

#endif
